"""Columns: the tables of a state as kernels take them.

A row of a table is a record, so that whatever an event asks of a node or a replica lies in one or two cache lines,
however many there are. Numba unpacks every array that is handed to a kernel, at half a microsecond each; so a kernel
gets one small table with the place and shape of each array, the handle, and makes the arrays from it. `State` keeps the
arrays alive and makes a new handle whenever one of them is replaced.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from nova.jit import kernel

INTERPRETED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]
"""Whether kernels run as Python, for debugging."""

NONE, RUNNING, WAITING, TANGLED = 0, 1, 2, 3
"""States of a sub-join. `TANGLED`: runs, in boxes of which several share a host and its input, so that no box can be
moved on its own."""
GONE = -2
"""In the list by sub-join: this row is not a running replica."""
SPARE_TOP, CREATED, REMOVED, STEP = 0, 1, 2, 3
"""Entries of `counts`: spare replica rows, rows made and dropped in this step, number of the step."""
LARGEST, C_MIN, MOST_PARTS, WORTH, HYSTERESIS = 0, 1, 2, 3, 4
"""Entries of `limits`: tuples/s that one replica may take in; free tuples/s below which a host is passed over; replicas
of a sub-join; cost in ms, and share of its cost, by which a sub-join must gain for a move that is not forced."""

NODE = np.dtype(
    [
        ("height", "f8"),
        ("capacity", "f8"),
        ("bandwidth", "f8"),
        ("busy", "f8"),  # tuples/s of other work
        ("room", "f8"),  # usable tuples/s; 0: hosts nothing
        ("used", "f8"),
        ("slot", "i8"),  # in the host index; −1: not there
        ("first", "i8"),  # replica
        ("source", "i8"),  # first source born here
        ("hosts", "?"),
        ("alive", "?"),
    ],
    align=True,
)
SOURCE = np.dtype(
    [
        ("stream", "i8"),
        ("node", "i8"),
        ("rate", "f8"),
        ("join", "i8"),  # first sub-join
        ("next", "i8"),  # source on the same node
        ("alive", "?"),
    ],
    align=True,
)
JOIN = np.dtype(
    [
        ("query", "i8"),
        ("left", "i8"),
        ("right", "i8"),
        ("output", "f8"),
        ("first", "i8"),  # replica
        ("state", "i8"),
        ("ideal", "f8"),  # cost at the virtual position
        ("next", "i8", 2),
        ("before", "i8", 2),  # in the lists of the left and of the right source
    ],
    align=True,
)
QUERY = np.dtype(
    [
        ("sink", "i8"),  # node; −1: none
        ("sliced", "?"),  # whether windows are dealt out
        ("may_slice", "?"),  # whether they may be where nothing else fits
    ],
    align=True,
)
REPLICA = np.dtype(
    [
        ("join", "i8"),
        ("node", "i8"),
        ("next", "i8"),  # of the same sub-join
        ("before", "i8"),
        ("after", "i8"),  # on the same node
        ("charge", "f8"),  # tuples/s it brings to its host
        ("home", "i8"),  # node it was ousted from; −1: none
        ("step", "i8"),  # that made it
        ("box", "f8", 6),  # shares as in a plan
    ],
    align=True,
)

Columns = namedtuple(
    "Columns",
    (
        "nodes",
        "at",
        "sources",
        "joins",
        "queries",
        "replicas",
        # replica rows to use, and what this step made and dropped
        "spare",
        "created",
        "removed",
        "counts",
        # the host index
        "i_node",
        "i_points",
        "i_heights",
        "i_free",
        "i_low",
        "i_high",
        "i_most",
        "i_height",
        "i_offsets",
        "i_held",
        # measured RTTs between nodes, NaN where unknown; empty: the cost space tells all
        "legs",
        # of the legs left→host, right→host, host→sink
        "weights",
        # see LARGEST and the following
        "limits",
    ),
)
DTYPES = (
    NODE,
    np.dtype("f8"),
    SOURCE,
    JOIN,
    QUERY,
    REPLICA,
    *[np.dtype("i8")] * 4,
    np.dtype("i4"),
    *[np.dtype("f8")] * 7,
    np.dtype("i8"),
    np.dtype("i4"),
    *[np.dtype("f8")] * 3,
)

Handle: TypeAlias = npt.NDArray[np.int64] | Columns
"""One row per array: address, rows, entries per row. The arrays themselves where kernels are not compiled."""


def pack(columns: Columns) -> Handle:
    """The handle of arrays. They have to be contiguous and of the types above, and must outlive the handle."""
    table = np.zeros((len(columns), 3), np.int64)
    for row, (name, array, dtype) in enumerate(zip(columns._fields, columns, DTYPES, strict=True)):
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise TypeError(f"{name} is {array.dtype}, {'' if array.flags.c_contiguous else 'not '}contiguous")
        table[row] = array.ctypes.data, array.shape[0], array.shape[1] if array.ndim > 1 else 0
    if INTERPRETED:
        return Columns(*[array.view(np.recarray) if array.dtype.names else array for array in columns])
    return table


def _to_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba calls it so
    """A number as an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_to_pointer)


def _unpack(h):  # type: ignore[no-untyped-def]
    return Columns(
        carray(_pointer(h[0, 0]), (h[0, 1],), NODE),
        carray(_pointer(h[1, 0]), (h[1, 1], h[1, 2]), np.float64),  # at
        carray(_pointer(h[2, 0]), (h[2, 1],), SOURCE),
        carray(_pointer(h[3, 0]), (h[3, 1],), JOIN),
        carray(_pointer(h[4, 0]), (h[4, 1],), QUERY),
        carray(_pointer(h[5, 0]), (h[5, 1],), REPLICA),
        carray(_pointer(h[6, 0]), (h[6, 1],), np.int64),  # spare
        carray(_pointer(h[7, 0]), (h[7, 1],), np.int64),  # created
        carray(_pointer(h[8, 0]), (h[8, 1],), np.int64),  # removed
        carray(_pointer(h[9, 0]), (h[9, 1],), np.int64),  # counts
        carray(_pointer(h[10, 0]), (h[10, 1],), np.int32),  # i_node
        carray(_pointer(h[11, 0]), (h[11, 1], h[11, 2]), np.float64),  # i_points
        carray(_pointer(h[12, 0]), (h[12, 1],), np.float64),  # i_heights
        carray(_pointer(h[13, 0]), (h[13, 1],), np.float64),  # i_free
        carray(_pointer(h[14, 0]), (h[14, 1], h[14, 2]), np.float64),  # i_low
        carray(_pointer(h[15, 0]), (h[15, 1], h[15, 2]), np.float64),  # i_high
        carray(_pointer(h[16, 0]), (h[16, 1],), np.float64),  # i_most
        carray(_pointer(h[17, 0]), (h[17, 1],), np.float64),  # i_height
        carray(_pointer(h[18, 0]), (h[18, 1],), np.int64),  # i_offsets
        carray(_pointer(h[19, 0]), (h[19, 1],), np.int32),  # i_held
        carray(_pointer(h[20, 0]), (h[20, 1], h[20, 2]), np.float64),  # legs
        carray(_pointer(h[21, 0]), (h[21, 1],), np.float64),  # weights
        carray(_pointer(h[22, 0]), (h[22, 1],), np.float64),  # limits
    )


def _as_it_is(h: Columns) -> Columns:
    return h


unpack = _as_it_is if INTERPRETED else kernel(_unpack)
"""The arrays behind a handle."""
