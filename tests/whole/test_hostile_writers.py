"""Whatever an id holds, every writer treats it as data: what is written reads back, runs nothing, leaves its folder."""

from __future__ import annotations

import copy
import csv
import html.parser
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SMALL, invoke, invoke_json, write_events, write_scenario
from hostile_names import HOSTILE
from nova.files import LONGEST, name_of
from nova.model.ids import has_control

IDS = {"edge1", "edge2", "fog", "cloud", "hq", "p1", "p2", "h1", "h2", "climate", "pressure", "humidity"}


def renamed(document: Any, names: dict[str, str]) -> Any:
    """The small scenario with other ids."""
    if isinstance(document, dict):
        return {names.get(key, key): renamed(value, names) for key, value in document.items()}
    if isinstance(document, list):
        return [renamed(value, names) for value in document]
    return names.get(document, document) if isinstance(document, str) else document


def hostile_scenario(folder: Path, number: int) -> tuple[Path, dict[str, str]]:
    """The small scenario in which every id is one of the hostile ones, another set for each number."""
    start = number * len(IDS)
    names = {old: HOSTILE[(start + k) % len(HOSTILE)] for k, old in enumerate(sorted(IDS))}
    return write_scenario(folder, renamed(copy.deepcopy(SMALL), names)), names


@pytest.fixture(scope="module", params=range(-(-len(HOSTILE) // len(IDS))))
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, set[str]]:
    """A scenario with hostile ids, a plan for it, and its ids."""
    folder = tmp_path_factory.mktemp("hostile")
    scenario, names = hostile_scenario(folder / "s", request.param)
    told = invoke("plan", scenario, "-o", folder / "plan")
    assert told.exit_code == 0, told.output
    return scenario, folder / "plan", set(names.values())


printable_text = st.text(min_size=1, max_size=40).filter(lambda text: not has_control(text))
any_id = st.sampled_from(HOSTILE) | printable_text | st.text(st.sampled_from("%2E./~ab*"), min_size=1, max_size=400)


@settings(max_examples=300)
@given(any_id, any_id)
def test_names_of_files_are_one_harmless_word_and_differ(one: str, other: str) -> None:
    name = name_of(one)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%")
    assert 0 < len(name) <= LONGEST
    assert (name == name_of(other)) == (one == other)


@settings(max_examples=300)
@given(any_id, any_id)
def test_kafka_topics_are_names_that_kafka_takes_and_differ(one: str, other: str) -> None:
    """Kafka refuses a topic whose name differs from another only by `.` and `_`."""
    pytest.importorskip("pyspark")
    from nova.spark.sites.kafka_exchange import topic_name

    mine, theirs = (topic_name("nova", "to", name) for name in (one, other))
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", mine)
    assert mine not in (".", "..")
    assert (mine.replace(".", "_") == theirs.replace(".", "_")) == (one == other)
    assert len(topic_name(one, "to", other, "x" * 400)) <= 249


def test_kafka_topics_of_plain_sites_are_plain() -> None:
    pytest.importorskip("pyspark")
    from nova.spark.sites.kafka_exchange import OURS, topic_name

    assert topic_name("demo", "to", "edge-1") == "demo-to-edge-1"
    assert topic_name("a", "b/c") != topic_name("a", "b_2Fc")
    for path in ("../x", "a/../../x", "/etc/passwd", "a//b", "", "a/.", "a\x00", "a\n"):
        assert OURS.fullmatch(path) is None, path


@settings(max_examples=100)
@given(any_id, any_id, any_id, any_id)
def test_channels_of_sites_are_paths_below_the_inbox_and_differ(query: str, a: str, b: str, other: str) -> None:
    pytest.importorskip("pyspark")
    from nova.spark.sites.exchange import Channel
    from nova.spark.sites.kafka_exchange import OURS

    path, theirs = (Channel(query, "left", a, sender).path for sender in (b, other))
    assert OURS.fullmatch(path)
    assert (path == theirs) == (b == other)


@pytest.mark.parametrize("name", HOSTILE)
def test_logs_and_results_of_a_run_stay_in_its_folder(name: str, tmp_path: Path) -> None:
    """Logs, results, dead letters, schemas, what joins make for each other and what sinks keep, of a query and
    a stream of any name."""
    pytest.importorskip("pyspark")
    from nova.spark.dead_letters import Letter
    from nova.spark.job.folder import RunFolder
    from nova.spark.job.kept import Kept
    from nova.spark.realtime.log import Log
    from nova.spark.realtime.results import ToFiles

    run = RunFolder(tmp_path / "run")
    log = Log(run.job(name) / "left", "lld")
    log.append([pa.array([1], pa.int64()), pa.array([5], pa.int64()), pa.array([1.5])])
    log.close()
    assert Log(run.job(name) / "left", "lld").rows == 1
    run.schema(name, lambda: "value double")
    run.letters(name).put(3, [Letter("bad_time", name, None, 1, "x")])
    ToFiles("parquet", name, run.results).take("00000001", pa.table({"query": [name]}))
    for folder in (run.made(name), run.job(name) / "open"):
        Kept(folder).save(1, pa.table({"query": [name]}), None)
    assert os.listdir(tmp_path) == ["run"]
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) == 6
    for path in written:
        assert path.resolve().is_relative_to((tmp_path / "run").resolve())
        assert not re.search(r"[*?\[\]<>|\"'$`;&\n]", str(path.relative_to(tmp_path)))


def test_a_plain_id_is_its_own_name() -> None:
    assert name_of("edge-1_A") == "edge-1_A"


def test_plans_read_back(hostile: tuple[Path, Path, set[str]]) -> None:
    scenario, plan, ids = hostile
    told = invoke_json("evaluate", scenario, plan)
    assert told
    table = pq.read_table(plan / "replicas.parquet")
    assert {value for name in ("query", "left_source", "right_source", "node") for value in set(
        table[name].to_pylist())} <= ids  # fmt: skip


@pytest.mark.parametrize("command", ["evaluate", "explain", "simulate"])
def test_tables_print(command: str, hostile: tuple[Path, Path, set[str]]) -> None:
    scenario, plan, _ = hostile
    told = invoke(command, scenario, plan)
    assert told.exit_code == 0, told.output


def test_explaining_names_what_was_asked_for(hostile: tuple[Path, Path, set[str]]) -> None:
    scenario, plan, _ = hostile
    row = pq.read_table(plan / "replicas.parquet").to_pylist()[0]
    told = invoke_json("explain", scenario, plan, "--join", row["left_source"], row["right_source"])
    assert row["node"] in json.dumps(told, ensure_ascii=False).encode().decode() or json.dumps(row["node"])[1:-1] in (
        json.dumps(told)
    )


class _Tags(html.parser.HTMLParser):
    """The tags of a page, and text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_pages_hold_no_tags_of_ids(hostile: tuple[Path, Path, set[str]], tmp_path: Path) -> None:
    scenario, plan, _ = hostile
    page = tmp_path / "page.html"
    told = invoke("show", scenario, plan, "-o", page)
    assert told.exit_code == 0, told.output
    seen = _Tags()
    seen.feed(page.read_text(encoding="utf-8"))
    assert not {"img", "b"} & set(seen.tags)
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def test_still_pictures(hostile: tuple[Path, Path, set[str]], tmp_path: Path) -> None:
    scenario, plan, _ = hostile
    told = invoke("show", scenario, plan, "-o", tmp_path / "plan.png")
    assert told.exit_code == 0, told.output


def test_events_and_the_scenarios_they_lead_to(hostile: tuple[Path, Path, set[str]], tmp_path: Path) -> None:
    scenario, plan, _ = hostile
    host = pq.read_table(plan / "replicas.parquet").to_pylist()[0]["node"]
    events = write_events(tmp_path, {"event": "capacity_changed", "node": host, "capacity": 70})
    told = invoke("reoptimize", scenario, plan, "-e", events, "-o", tmp_path / "plan2")
    assert told.exit_code == 0, told.output
    again = invoke("evaluate", tmp_path / "plan2" / "scenario" / "scenario.yaml", tmp_path / "plan2")
    assert again.exit_code == 0, again.output
    assert invoke("diff", plan, tmp_path / "plan2").exit_code == 0


def test_tables_of_placements_read_back(hostile: tuple[Path, Path, set[str]], tmp_path: Path) -> None:
    scenario, plan, _ = hostile
    told = invoke("plan", scenario, "-o", tmp_path / "placements.csv")
    assert told.exit_code == 0, told.output
    rows = pq.read_table(plan / "replicas.parquet").to_pylist()
    wanted = {(row["query"], row["left_source"], row["right_source"], row["node"]) for row in rows}
    with (tmp_path / "placements.csv").open(newline="", encoding="utf-8") as file:
        assert {(row["query"], row["left"], row["right"], row["host"]) for row in csv.DictReader(file)} == wanted


def test_what_tables_show_is_the_id_and_no_markup_of_the_terminal(tmp_path: Path, monkeypatch: Any) -> None:
    """`[bold]` is five letters in brackets, not a style; `:fox:` is no picture."""
    from nova.cli.output import console

    monkeypatch.setattr(console, "_width", 300)
    names = {"fog": "[bold]f[/bold]", "climate": "[link=x]q", "p1": ":fox_face:"}
    scenario = write_scenario(tmp_path, renamed(copy.deepcopy(SMALL), names))
    shown = invoke("plan", scenario, "--all").output
    assert names["fog"] in shown
    assert names["p1"] in shown
    document = renamed(copy.deepcopy(SMALL), names)
    document["queries"].append({**document["queries"][0], "id": "q2"})
    assert names["climate"] in invoke("plan", write_scenario(tmp_path, document), "--all").output


def test_a_journal_keeps_ids_as_they_are(hostile: tuple[Path, Path, set[str]], tmp_path: Path) -> None:
    scenario, plan, _ = hostile
    host = pq.read_table(plan / "replicas.parquet").to_pylist()[0]["node"]
    events = write_events(tmp_path, {"event": "capacity_changed", "node": host, "capacity": 70})
    told = invoke("events", "apply", tmp_path / "state", events, "--scenario", scenario, "--plan", plan)
    assert told.exit_code == 0, told.output
    assert sorted(os.listdir(tmp_path)) == ["events.jsonl", "state"]
    assert json.dumps(host)[1:-1] in invoke("events", "log", tmp_path / "state", "--json").stdout
    assert invoke("events", "replay", tmp_path / "state").exit_code == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_site_s_command_passes_its_id_and_nothing_else(name: str, tmp_path: Path) -> None:
    from nova.spark.sites import deploy

    class Written:
        """A share that writes nothing but its folder."""

        site = name

        def write(self, folder: Path) -> Path:
            folder.mkdir()
            return folder

    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "nova").write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    (bin_ / "nova").chmod(0o755)
    made: Any = Written()
    site = deploy.write(made, tmp_path)
    told = subprocess.run(
        ["/bin/sh", site / "run.sh"],
        env={"PATH": f"{bin_}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        timeout=10,
    )
    assert told.stdout.decode().split("\n") == ["run", ".", "--site", name, "-o", "run", ""], told
    assert sorted(os.listdir(tmp_path)) == sorted(["bin", name_of(name)])
    assert os.listdir(site) == ["run.sh"]
