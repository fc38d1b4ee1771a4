"""Store: every acknowledged step is there after a crash, none twice, whatever the moment."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nova.controller import NodeAdded, NodeRemoved, RateChanged
from nova.controller.codec import Step
from nova.controller.state import State
from nova.journal import snapshot
from nova.journal.errors import Damaged, Locked, NotDurable
from nova.journal.journal import segment_path
from nova.journal.replay import identical, replay, tables_of
from nova.journal.store import Store
from nova.model.errors import InvalidInput, NovaError
from nova_lab.bench.kills import CLIENT, Torture, run


@pytest.fixture(scope="module")
def torture(tmp_path_factory: pytest.TempPathFactory) -> Torture:
    """Events, a controller that never crashes, and a folder that each test copies."""
    return Torture(tmp_path_factory.mktemp("torture") / "state", nodes=40)


@pytest.fixture
def fresh(torture: Torture, tmp_path: Path) -> Path:
    """A folder in which nothing has happened yet."""
    return Path(shutil.copytree(torture.folder, tmp_path / "state"))


@pytest.fixture(scope="module")
def after(torture: Torture) -> Callable[[int], Any]:
    """The plan after so many steps, from a controller that never crashed."""
    known = {}
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(torture.folder))
        running = store.controller
        for number in range(41):
            known[number] = tables_of(running)
            running.handle(torture.events[number])
    return lambda number: known[number]


def told(folder: Path) -> int:
    """Opens the folder and says at which step it is."""
    with Store(folder) as store:
        return store.sequence


def test_what_was_committed_is_there(torture: Torture, fresh: Path, after: Callable[[int], Any]) -> None:
    with Store(fresh) as store:
        assert store.apply(torture.step(1)).sequence == 1
        for number in range(2, 9):
            store.submit(torture.step(number))
        assert [outcome.sequence for outcome in store.commit()] == list(range(2, 9))
        store.submit(torture.step(9))  # never committed
    with Store(fresh) as store:
        assert store.sequence == store.repeated == 8
        assert store.last_number(CLIENT) == 8
        assert identical(tables_of(store.controller), after(8))
        assert store.warnings == []


def test_snapshot_and_tail_equal_the_whole_journal(torture: Torture, fresh: Path, after: Callable[[int], Any]) -> None:
    whole = Path(shutil.copytree(fresh, fresh.with_name("whole")))
    for folder, every in ((fresh, 7), (whole, 1000)):
        with Store(folder, snapshot_every=every) as store:
            for number in range(1, 41):
                store.apply(torture.step(number))
                if store.snapshot_due:
                    store.snapshot()
    # two snapshots are kept, and the journal since the older one
    assert [snapshot.sequence_of(path) for path in snapshot.paths(fresh)] == [28, 35]
    assert sorted(path.name for path in fresh.glob("journal-*")) == [
        segment_path(fresh, number).name for number in (29, 36)
    ]
    with Store(fresh) as short, Store(whole) as long:
        assert (short.repeated, long.repeated) == (5, 40)
        assert short.last_number(CLIENT) == 40
        assert identical(tables_of(short.controller), tables_of(long.controller))
        assert identical(tables_of(short.controller), after(40))
    found = replay(fresh)
    assert (found.first, found.last, found.equal) == (28, 40, True)
    assert [(one.sequence, one.equal) for one in found.compared] == [(35, True)]


def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(
    torture: Torture, fresh: Path, after: Callable[[int], Any]
) -> None:
    with Store(fresh) as store:
        for number in range(1, 6):
            store.apply(torture.step(number))
        store.snapshot()
        for number in range(6, 9):
            store.apply(torture.step(number))
    newest = snapshot.path_of(fresh, 5)
    content = bytearray(newest.read_bytes())
    for place in range(0, len(content), len(content) // 12):
        broken = bytearray(content)
        broken[place] ^= 16
        newest.write_bytes(broken)
        with Store(fresh) as store:
            assert store.sequence == 8
            assert any(str(newest) in warning and "the snapshot before it" in warning for warning in store.warnings)
            assert identical(tables_of(store.controller), after(8))
            assert not newest.exists()
            assert (fresh / "cut" / newest.name).read_bytes() == broken
            store.snapshot()  # a good one again: two are kept, and the damaged one is none of them
        assert [snapshot.sequence_of(path) for path in snapshot.paths(fresh)] == [0, 8]
        snapshot.path_of(fresh, 8).unlink()
    newest.write_bytes(content[:100])
    with Store(fresh) as store:
        assert store.repeated == 8
    newest.write_bytes(content[:100])
    snapshot.path_of(fresh, 0).write_bytes(b"")
    with pytest.raises(Damaged, match=r"snapshot-0+5\.nova"):
        Store(fresh)
    assert newest.exists()
    newest.unlink()
    snapshot.path_of(fresh, 0).unlink()
    with pytest.raises(Damaged, match="there is no snapshot"):
        Store(fresh)


def test_a_step_is_not_applied_twice(torture: Torture, fresh: Path) -> None:
    with Store(fresh) as store:
        for number in (1, 2, 3):
            store.apply(torture.step(number))
        before = tables_of(store.controller)
        for number in (1, 2, 3):
            again = store.apply(torture.step(number))
            assert again.sequence is None
            assert again.changes == []
        store.submit(torture.step(4))
        store.submit(torture.step(4))  # sent again before it was acknowledged
        assert [outcome.sequence for outcome in store.commit()] == [4, None]
        assert store.sequence == 4
        other = Step((NodeAdded(node="x", capacity=1.0, coordinates=(0.0, 0.0)),), CLIENT, 4, "feed", 12)
        with pytest.raises(InvalidInput, match="feed, row 12, field number: client 'kills' gave this number to other"):
            store.submit(other)
        assert store.apply(Step(other.events, "another client", 1)).sequence == 5
    with Store(fresh) as store:
        assert store.apply(torture.step(4)).sequence is None
        assert store.apply(torture.step(2)).sequence is None
        assert not identical(tables_of(store.controller), before)


def test_a_wrong_step_changes_nothing_and_those_before_it_count(torture: Torture, fresh: Path) -> None:
    with Store(fresh) as store:
        store.submit(torture.step(1))
        with pytest.raises(InvalidInput, match="no such node"):
            store.submit(Step((NodeRemoved(node="nobody"),)))
        store.submit(torture.step(2))
        assert [outcome.sequence for outcome in store.commit()] == [1, 2]
    assert told(fresh) == 2


def test_a_step_that_dies_half_way_closes_the_store(
    torture: Torture, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(fresh) as store:
        store.apply(torture.step(1))

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(State, "end_step", stop)
            with pytest.raises(KeyboardInterrupt):
                store.submit(torture.step(2))
        assert not store.usable
        for call in (store.commit, store.snapshot, lambda: store.submit(torture.step(2))):
            with pytest.raises(NotDurable, match="open the folder again"):
                call()
    assert told(fresh) == 1


def test_what_cannot_be_written_is_not_applied(torture: Torture, fresh: Path, after: Callable[[int], Any]) -> None:
    with Store(fresh) as store:
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.submit(Step((NodeAdded(node="x", capacity=1.0, rtts={"n0": 1j}),)))  # type: ignore[dict-item]
        assert store.apply(torture.step(1)).sequence == 1
        assert identical(tables_of(store.controller), after(1))


def test_another_version_of_nova_says_that_its_plan_may_be_another(
    torture: Torture, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(fresh) as store:
        for number in (1, 2, 3):
            store.apply(torture.step(number))
    monkeypatch.setattr("nova.__version__", "9.9")
    with Store(fresh) as store:
        assert "the last 3 steps were taken in by nova" in store.warnings[0]
        assert store.apply(torture.step(4)).sequence == 4
    with Store(fresh) as store:  # the state was written by this version now
        assert store.warnings == []
        assert (store.sequence, store.repeated) == (4, 1)
    monkeypatch.setattr("nova.__version__", "10")
    with Store(fresh) as store:
        store.snapshot()
    monkeypatch.setattr("nova.__version__", "11")
    with Store(fresh) as store:  # nothing was applied again
        assert store.warnings == []
        store.apply(torture.step(5))
    with Store(fresh) as store:
        assert store.warnings == []


def test_a_folder_that_may_not_be_written_is_said(fresh: Path) -> None:
    (fresh / "lock").unlink(missing_ok=True)
    (fresh / "lock").mkdir()
    with pytest.raises(NovaError, match=r"cannot open .*: Is a directory"):
        Store(fresh)


def test_only_one_writer(torture: Torture, fresh: Path) -> None:
    with Store(fresh), pytest.raises(Locked, match=f"is in use by process {os.getpid()}"):
        Store(fresh)
    assert told(fresh) == 0


def test_the_journal_is_cut_at_many_bytes(torture: Torture, fresh: Path, after: Callable[[int], Any]) -> None:
    with Store(fresh) as store:
        ends = []
        for number in (1, 2, 3):
            store.apply(torture.step(number))
            ends.append(segment_path(fresh, 1).stat().st_size)
    whole = segment_path(fresh, 1).read_bytes()
    for end in range(ends[0] - 5, len(whole), 5):
        shutil.rmtree(fresh / "cut", ignore_errors=True)
        segment_path(fresh, 1).write_bytes(whole[:end])
        with Store(fresh) as store:
            assert store.sequence == sum(one <= end for one in ends)
            assert identical(tables_of(store.controller), after(store.sequence))
            assert (store.cut is None) == (end in ends)
            # the client sends again what was not acknowledged, and all is as if nothing had happened
            for number in (1, 2, 3):
                store.apply(torture.step(number))
            assert identical(tables_of(store.controller), after(3))


def test_damage_in_the_middle_is_refused(torture: Torture, fresh: Path) -> None:
    with Store(fresh) as store:
        ends = []
        for number in (1, 2, 3):
            store.apply(torture.step(number))
            ends.append(segment_path(fresh, 1).stat().st_size)
    content = bytearray(segment_path(fresh, 1).read_bytes())
    content[ends[0] + 30] ^= 1
    segment_path(fresh, 1).write_bytes(content)
    with pytest.raises(Damaged, match=f"byte {ends[0]:,}, record 2: the checksum does not match; good records follow"):
        Store(fresh)
    assert bytes(content) == segment_path(fresh, 1).read_bytes()


def child_that(work: Callable[[], None]) -> int:
    """Run in a process of its own; returns its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CALLS = ("write", "fsync", "replace", "unlink", "ftruncate", "open")


@contextlib.contextmanager
def killed_at(count: int, half: bool) -> Iterator[None]:
    """Kill this process before its n-th call that changes or syncs a file; `half`: in the middle of its n-th write."""
    left = count
    calls = ("write",) if half else CALLS

    def deadly(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if half:
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    saved = {name: getattr(os, name) for name in calls}
    for name in calls:
        setattr(os, name, deadly(name))
    try:
        yield
    finally:
        for name, real in saved.items():
            setattr(os, name, real)


@pytest.mark.parametrize("half", [False, True])
def test_killed_before_every_single_call_that_touches_a_file(
    torture: Torture, tmp_path: Path, after: Callable[[int], Any], half: bool
) -> None:
    """Nothing acknowledged is lost wherever between two calls, or within a write, the process ends."""
    for count in range(1, 200):
        folder = Path(shutil.copytree(torture.folder, tmp_path / f"{half}-{count}"))
        acks = tmp_path / f"{half}-{count}.acks"

        def life(folder: Path = folder, acks: Path = acks, count: int = count) -> None:
            told = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            write = os.write
            with killed_at(count, half), Store(folder) as store:
                for number in range(1, 7):
                    store.submit(torture.step(number))
                    if number % 2 == 0:
                        write(told, b"".join(b"%d\n" % (one.sequence or 0) for one in store.commit()))
                        store.snapshot()

        code = child_that(life)
        acknowledged = [int(line) for line in acks.read_text().split()]
        with Store(folder) as store:
            assert store.sequence >= max(acknowledged, default=0)
            assert store.sequence % 2 == 0  # what shares an fsync stands or falls together
            assert identical(tables_of(store.controller), after(store.sequence))
            for number in range(1, 7):
                store.apply(torture.step(number))
            assert store.sequence == 6
            assert identical(tables_of(store.controller), after(6))
        assert replay(folder).equal
        shutil.rmtree(folder)
        if code == 0:
            assert acknowledged == [1, 2, 3, 4, 5, 6]
            assert count > (5 if half else 25)
            return
        assert code == -signal.SIGKILL
    pytest.fail("the life never came to its end")


def test_kills_at_random_moments(tmp_path: Path) -> None:
    found = run(tmp_path / "state", kills=20, seed=3, every=10)
    assert found.lost == []
    assert found.doubled == []
    assert found.equal
    assert found.acknowledged > 0


@pytest.mark.slow
def test_a_thousand_kills_at_random_moments(tmp_path: Path) -> None:
    found = run(tmp_path / "state", kills=1000, seed=4)
    assert (found.kills, found.lost, found.doubled, found.equal) == (1000, [], [], True)


def test_a_full_disk_is_reported_and_nothing_is_acknowledged(torture: Torture, fresh: Path) -> None:
    def life() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with Store(fresh) as store:
            store.apply(torture.step(1))
            size = segment_path(fresh, 1).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
            store.submit(torture.step(2))
            with pytest.raises(NotDurable, match="cannot write records 2 to 2: File too large"):
                store.commit()
            with pytest.raises(NotDurable):
                store.apply(torture.step(3))

    assert child_that(life) == 0
    assert told(fresh) == 1


def test_a_snapshot_that_cannot_be_written_costs_nothing(torture: Torture, fresh: Path) -> None:
    def life() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with Store(fresh) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
            store.apply(torture.step(1))
            with pytest.raises(NotDurable, match="the journal holds all that was acknowledged"):
                store.snapshot()
            assert store.apply(torture.step(2)).sequence == 2

    assert child_that(life) == 0
    assert list(fresh.glob("*.tmp")) == []
    assert told(fresh) == 2


def test_a_folder_is_made_wholly_or_not_at_all(torture: Torture, tmp_path: Path) -> None:
    with Store(torture.folder) as store:
        controller = store.controller
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(InvalidInput, match="is there already, and is no empty folder"):
        Store.create(tmp_path / "taken", controller)

    def life() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        Store.create(tmp_path / "new", controller)

    assert child_that(life) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    Store.create(tmp_path / "new", controller)
    assert told(tmp_path / "new") == 0


def test_what_is_no_folder_of_events_is_refused(tmp_path: Path, fresh: Path) -> None:
    with pytest.raises(InvalidInput, match="not a folder of events: No such file"):
        Store(tmp_path / "nothing")
    marker = fresh / "store.json"
    document = json.loads(marker.read_text())
    for wrong, words in (
        ("{", "not JSON"),
        ("[]", "format 1 expected"),
        (json.dumps({**document, "nova_events": 9}), "(found 9)"),
        (json.dumps({**document, "id": "12"}), "32 hexadecimal digits"),
        (json.dumps({**document, "about": 3}), "field about: an object expected (found 3)"),
        (json.dumps({**document, "about": {"inputs": 3}}), "field about.inputs: an object expected (found 3)"),
        (json.dumps({**document, "about": {"stability": None}}), "field about.stability: an object expected"),
        (json.dumps({**document, "about": {"inputs": {"\ud800": 1}}}), "half a character"),
    ):
        marker.write_text(wrong)
        with pytest.raises(InvalidInput) as error:
            Store(fresh)
        assert words in str(error.value)
    marker.write_text(json.dumps({**document, "id": "00" * 16}))
    with pytest.raises(Damaged, match="belongs to another folder of events"):
        Store(fresh)


def test_replay_finds_a_plan_that_the_journal_does_not_lead_to(torture: Torture, fresh: Path) -> None:
    with Store(fresh) as store:
        for number in range(1, 11):
            store.apply(torture.step(number))
        store.export()
    assert replay(fresh).equal
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = fresh / "current" / "plan" / "replicas.parquet"
    table = pq.read_table(file)
    shares = table["slice_to"].to_numpy().copy()
    shares[-1] = np.nextafter(shares[-1], 0)
    pq.write_table(table.set_column(table.column_names.index("slice_to"), "slice_to", pa.array(shares)), file)
    found = replay(fresh)
    assert not found.equal
    assert [(one.sequence, one.equal) for one in found.compared] == [(10, False)]


def test_an_export_is_a_plan_with_its_scenario(torture: Torture, fresh: Path) -> None:
    from nova.model.plan import read
    from nova.placement.check import check
    from nova.placement.resolve import resolve
    from nova.scenario import load

    with Store(fresh) as store:
        for number in range(1, 31):
            store.apply(torture.step(number))
        for _ in range(2):
            link = store.export()
        assert len(list((fresh / "exports").iterdir())) == 1
        problem = load(link / "scenario" / "scenario.yaml").problem
        plan = read(link / "plan", problem, resolve(problem))
        check(problem, plan)
        assert plan.digest == problem.digest
        assert plan.table(problem).num_rows == store.controller.plan().table(store.controller.problem()).num_rows
        assert plan.summary["sequence"] == 30


def test_the_journal_is_read_without_numeric_libraries() -> None:
    code = (
        "import sys, nova.journal.journal, nova.journal.steps\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'numba', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_snapshot_holds_only_what_it_knows(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"content\[1\]\.rate|content\[1\]: a snapshot cannot hold a .*RateChanged"):
        snapshot.freeze(1, bytes(16), {"content": [1, RateChanged(stream="s", source="a", rate=1.0)]})
    content = {
        "a": {"$": 1, "array": [1, 2.5, None, True, "x"]},
        "b": {1: (1, "2"), (2, 3): {4, 5}},
        "c": [[], (), {}],
        "h": [f"node {i}" for i in range(200)],
        "i": {f"é{i}": -i for i in range(100)},
        "j": [2**40, -1] * 99,
        "k": ["a\nb", "c\0d", ""] * 40,
        "l": {"\0" * i: i for i in range(70)},
        "m": [True, 2] * 50,
        "n": [""] * 64,
        "d": np.arange(6, dtype=np.int16).reshape(2, 3),
        "e": np.float32(1.5),
        "f": float("inf"),
        "g": {"x": [{}]},
    }
    snapshot.write(tmp_path, 7, bytes(16), content)
    back = snapshot.read(snapshot.path_of(tmp_path, 7), bytes(16))
    for name in "abcfghijklmn":
        assert back[name] == content[name]
        assert type(back[name]) is type(content[name])
    assert back["d"].dtype == np.int16
    assert np.array_equal(back["d"], np.arange(6).reshape(2, 3))
    assert type(back["e"]) is np.float32
    os.rename(snapshot.path_of(tmp_path, 7), snapshot.path_of(tmp_path, 8))
    with pytest.raises(Damaged, match="holds events up to 7, its name says 8"):
        snapshot.read(snapshot.path_of(tmp_path, 8), bytes(16))
