"""Tables grow, use freed rows again, and keep the type of their records."""

from __future__ import annotations

import numpy as np

from nova.controller.table import Table

KIND = np.dtype([("rate", "f8"), ("row", "i8"), ("alive", "?")], align=True)


def test_rows_are_blank_and_freed_ones_are_used_again():
    table = Table(KIND, {"row": -1, "alive": True}, {"at": 2})
    table.fill(3, {"rate": np.array([1.0, 2.0, 3.0]), "at": np.arange(6.0).reshape(3, 2)})
    assert table["rate"][:3].tolist() == [1.0, 2.0, 3.0]
    assert table["at"][2].tolist() == [4.0, 5.0]
    table.free += [1, 0]
    assert [table.take()[0] for _ in range(3)] == [0, 1, 3]
    assert table.rows[1].item() == (0.0, -1, True)


def test_growing_keeps_content_and_the_layout_of_records():
    table = Table(np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(KIND)), {"row": -1})
    taken = [table.take() for _ in range(100)]
    assert [row for row, _ in taken] == list(range(100))
    assert [row for row, grown in taken if grown] == [0, 16, 32, 48, 72]
    assert table.rows.dtype == KIND
    assert table.rows.dtype.itemsize == KIND.itemsize
    assert (table["row"] == -1).all()
