"""One schema: tables that grow and use freed rows again, the arrays that kernels see, and snapshots."""

from __future__ import annotations

import numpy as np
import pytest

from controller.running import controller
from nova.controller import NodeAdded
from nova.controller.ledger import total_cost
from nova.controller.schema import LAYOUT, Record, Records, fingerprint, pack, unpack
from nova.jit import kernel
from nova.journal import snapshot
from nova.journal.errors import Damaged

KIND = Record(("rate", "f8", 0.0), ("row", "i8", -1), ("alive", "?", True))


def test_rows_are_blank_and_freed_ones_are_used_again():
    table = Records(KIND, {"at": 2})
    table.fill(3, {"rate": np.array([1.0, 2.0, 3.0]), "at": np.arange(6.0).reshape(3, 2)})
    assert table["rate"][:3].tolist() == [1.0, 2.0, 3.0]
    assert table["at"][2].tolist() == [4.0, 5.0]
    table.free += [1, 0]
    assert [table.take()[0] for _ in range(3)] == [0, 1, 3]
    assert table.rows[1].item() == (0.0, -1, True)


def test_growing_keeps_content_and_the_layout_of_records():
    table = Records(KIND)
    taken = [table.take() for _ in range(100)]
    assert [row for row, _ in taken] == list(range(100))
    assert [row for row, grown in taken if grown] == [0, 16, 32, 48, 72]
    assert table.rows.dtype == KIND.dtype
    assert table.rows.dtype.itemsize == KIND.dtype.itemsize
    assert (table["row"] == -1).all()


def test_kernels_see_the_arrays_of_the_state():
    state = controller(40, seed=1).state
    handle = pack(state)
    for row, array in enumerate(LAYOUT):
        values = array.of(state)
        assert tuple(handle[row, 1 : 1 + array.axes]) == values.shape
        assert handle[row, 0] == values.ctypes.data
    _mark(state.handle, 3)
    assert state.nodes["used"][3] == 12.5
    assert state.replicas["box"][3].tolist() == list(range(state.replicas["box"].shape[1]))
    assert state.rtts.shape == (0, 0)


@kernel
def _mark(h, row):
    s = unpack(h)
    s.nodes[row].used = 12.5
    for k in range(len(s.replicas[row].box)):
        s.replicas[row].box[k] = k


def test_a_state_survives_its_snapshot_array_by_array(tmp_path):
    running = controller(40, seed=2)
    running.handle(NodeAdded(node="new", capacity=5.0, coordinates=(1.0, 2.0)))
    snapshot.write(tmp_path, 1, bytes(16), {"controller": running})
    again = snapshot.read(snapshot.path_of(tmp_path, 1), bytes(16))["controller"]
    for array in LAYOUT:
        before, after = array.of(running.state), array.of(again.state)
        assert (before.dtype, before.shape) == (after.dtype, after.shape), array.name
        for name in before.dtype.names or (slice(None),):  # records have padding, which means nothing
            assert before[name].tobytes() == after[name].tobytes(), (array.name, name)
    assert again.cost() == running.cost()
    assert total_cost(again.state.handle, again.state.joins.end, again.state.nodes.end) == running.cost()


def test_a_snapshot_of_another_schema_is_refused(tmp_path, monkeypatch):
    snapshot.write(tmp_path, 1, bytes(16), {"controller": controller(40, seed=2)})
    monkeypatch.setattr(snapshot, "fingerprint", lambda: "another")
    with pytest.raises(Damaged, match="holds its state otherwise"):
        snapshot.read(snapshot.path_of(tmp_path, 1), bytes(16))
    assert len(fingerprint()) == 16
