"""Arrays: the columns of a state as kernels take them.

Numba unpacks every array that is handed to a kernel, at half a microsecond each; for the forty here that would be more
than most events need altogether. So a kernel gets one small table with the place and shape of each column, and makes
the arrays from it. `State` keeps the columns alive and makes a new table whenever one of them is replaced.
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

Arrays = namedtuple(
    "Arrays",
    (
        # nodes: coordinates, heights (ms), usable and used tuples/s, slot in the index, first replica
        "at", "height", "room", "used", "slot", "first",
        # sources
        "s_node", "s_rate",
        # sub-joins: first replica, state, cost at the virtual position
        "j_query", "j_left", "j_right", "j_first", "j_state", "j_ideal",
        # queries: node of the sink, whether windows are dealt out
        "q_sink", "q_sliced",
        # replicas: shares as in a plan, tuples/s charged to the host, lists by sub-join and by node, the node it was
        # ousted from, the step that made it
        "r_join", "r_node", "r_box", "r_charge", "r_next", "r_before", "r_after", "r_home", "r_step",
        # rows to use, and what this step made and dropped
        "spare", "created", "removed", "counts", "random",
        # the host index
        "i_node", "i_points", "i_heights", "i_free", "i_low", "i_high", "i_most", "i_height", "i_offsets", "i_held",
        # measured RTTs between nodes, NaN where unknown; empty: the cost space tells all
        "legs",
        "weights",
    ),
)

DTYPES: dict[str, type[np.generic]] = {
    "at": np.float64,
    "height": np.float64,
    "room": np.float64,
    "used": np.float64,
    "slot": np.int32,
    "first": np.int32,
    "s_node": np.int32,
    "s_rate": np.float64,
    "j_query": np.int32,
    "j_left": np.int32,
    "j_right": np.int32,
    "j_first": np.int32,
    "j_state": np.int8,
    "j_ideal": np.float64,
    "q_sink": np.int32,
    "q_sliced": np.bool_,
    "r_join": np.int32,
    "r_node": np.int32,
    "r_box": np.float64,
    "r_charge": np.float64,
    "r_next": np.int32,
    "r_before": np.int32,
    "r_after": np.int32,
    "r_home": np.int32,
    "r_step": np.int64,
    "spare": np.int32,
    "created": np.int32,
    "removed": np.int32,
    "counts": np.int64,
    "random": np.uint64,
    "i_node": np.int32,
    "i_points": np.float64,
    "i_heights": np.float64,
    "i_free": np.float64,
    "i_low": np.float64,
    "i_high": np.float64,
    "i_most": np.float64,
    "i_height": np.float64,
    "i_offsets": np.int64,
    "i_held": np.int32,
    "legs": np.float64,
    "weights": np.float64,
}

Handle: TypeAlias = npt.NDArray[np.int64] | Arrays
"""One row per column: address, rows, entries per row. The columns themselves where kernels are not compiled."""


def pack(columns: Arrays) -> Handle:
    """The table of places. Columns have to be contiguous and of the types above; they must outlive the table."""
    if INTERPRETED:
        return columns
    table = np.zeros((len(columns), 3), np.int64)
    for row, (name, column) in enumerate(zip(columns._fields, columns, strict=True)):
        if column.dtype != DTYPES[name] or not column.flags.c_contiguous:
            raise TypeError(f"{name} is {column.dtype}, {'' if column.flags.c_contiguous else 'not '}contiguous")
        table[row] = column.ctypes.data, column.shape[0], column.shape[1] if column.ndim > 1 else 0
    return table


def _to_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba calls it so
    """A number as an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_to_pointer)


def _unpack(h):  # type: ignore[no-untyped-def]
    """The columns behind a table of places."""
    return Arrays(
        carray(_pointer(h[0, 0]), (h[0, 1], h[0, 2]), np.float64),  # at
        carray(_pointer(h[1, 0]), (h[1, 1],), np.float64),  # height
        carray(_pointer(h[2, 0]), (h[2, 1],), np.float64),  # room
        carray(_pointer(h[3, 0]), (h[3, 1],), np.float64),  # used
        carray(_pointer(h[4, 0]), (h[4, 1],), np.int32),  # slot
        carray(_pointer(h[5, 0]), (h[5, 1],), np.int32),  # first
        carray(_pointer(h[6, 0]), (h[6, 1],), np.int32),  # s_node
        carray(_pointer(h[7, 0]), (h[7, 1],), np.float64),  # s_rate
        carray(_pointer(h[8, 0]), (h[8, 1],), np.int32),  # j_query
        carray(_pointer(h[9, 0]), (h[9, 1],), np.int32),  # j_left
        carray(_pointer(h[10, 0]), (h[10, 1],), np.int32),  # j_right
        carray(_pointer(h[11, 0]), (h[11, 1],), np.int32),  # j_first
        carray(_pointer(h[12, 0]), (h[12, 1],), np.int8),  # j_state
        carray(_pointer(h[13, 0]), (h[13, 1],), np.float64),  # j_ideal
        carray(_pointer(h[14, 0]), (h[14, 1],), np.int32),  # q_sink
        carray(_pointer(h[15, 0]), (h[15, 1],), np.bool_),  # q_sliced
        carray(_pointer(h[16, 0]), (h[16, 1],), np.int32),  # r_join
        carray(_pointer(h[17, 0]), (h[17, 1],), np.int32),  # r_node
        carray(_pointer(h[18, 0]), (h[18, 1], h[18, 2]), np.float64),  # r_box
        carray(_pointer(h[19, 0]), (h[19, 1],), np.float64),  # r_charge
        carray(_pointer(h[20, 0]), (h[20, 1],), np.int32),  # r_next
        carray(_pointer(h[21, 0]), (h[21, 1],), np.int32),  # r_before
        carray(_pointer(h[22, 0]), (h[22, 1],), np.int32),  # r_after
        carray(_pointer(h[23, 0]), (h[23, 1],), np.int32),  # r_home
        carray(_pointer(h[24, 0]), (h[24, 1],), np.int64),  # r_step
        carray(_pointer(h[25, 0]), (h[25, 1],), np.int32),  # spare
        carray(_pointer(h[26, 0]), (h[26, 1],), np.int32),  # created
        carray(_pointer(h[27, 0]), (h[27, 1],), np.int32),  # removed
        carray(_pointer(h[28, 0]), (h[28, 1],), np.int64),  # counts
        carray(_pointer(h[29, 0]), (h[29, 1],), np.uint64),  # random
        carray(_pointer(h[30, 0]), (h[30, 1],), np.int32),  # i_node
        carray(_pointer(h[31, 0]), (h[31, 1], h[31, 2]), np.float64),  # i_points
        carray(_pointer(h[32, 0]), (h[32, 1],), np.float64),  # i_heights
        carray(_pointer(h[33, 0]), (h[33, 1],), np.float64),  # i_free
        carray(_pointer(h[34, 0]), (h[34, 1], h[34, 2]), np.float64),  # i_low
        carray(_pointer(h[35, 0]), (h[35, 1], h[35, 2]), np.float64),  # i_high
        carray(_pointer(h[36, 0]), (h[36, 1],), np.float64),  # i_most
        carray(_pointer(h[37, 0]), (h[37, 1],), np.float64),  # i_height
        carray(_pointer(h[38, 0]), (h[38, 1],), np.int64),  # i_offsets
        carray(_pointer(h[39, 0]), (h[39, 1],), np.int32),  # i_held
        carray(_pointer(h[40, 0]), (h[40, 1], h[40, 2]), np.float64),  # legs
        carray(_pointer(h[41, 0]), (h[41, 1],), np.float64),  # weights
    )


def _as_it_is(h: Arrays) -> Arrays:
    return h


unpack = _as_it_is if INTERPRETED else kernel(_unpack)
