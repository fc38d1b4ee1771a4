"""Schema: what a running plan's state consists of, written down once.

`Record` says the fields of each kind of row and what a new row holds; `LAYOUT` says which arrays kernels see, under
which name. From these follow the tables (`Records`), the arrays that kernels work on (`pack`, `unpack`), and the
fingerprint by which a snapshot of another schema is refused.

A row is a record, so that whatever an event asks of a node or a replica lies in one or two cache lines. Numba unpacks
every array that is handed to a kernel, at half a microsecond each; so a kernel gets one small table with the address
and shape of each array, the handle, and makes the arrays from it.
"""

from __future__ import annotations

import hashlib
from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import config, from_dtype, types
from numba.extending import intrinsic
from numba.np.arrayobj import get_itemsize, populate_array

from nova.model.replicas import SHARES

if TYPE_CHECKING:
    from nova.controller.state import State

Values: TypeAlias = npt.NDArray[Any]

INTERPRETED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]
"""Whether kernels run as Python, for debugging."""

NONE, RUNNING, WAITING, COUPLED = 0, 1, 2, 3
"""States of a sub-join. `COUPLED`: runs, in boxes of which several share a host and its input, so that no box can be
moved on its own."""
GONE = -2
"""In the list by sub-join: this row is not a running replica."""
WINDOWS, KEYS = SHARES.index("slice_from"), SHARES.index("key_from")
"""Axes along which parts of a sub-join share no input: where their two numbers stand in a box."""
SPARE_TOP, CREATED, REMOVED, STEP = 0, 1, 2, 3
"""Entries of `counts`: spare replica rows, rows made and dropped in this step, number of the step."""
LARGEST, C_MIN, MOST_PARTS, WORTH, HYSTERESIS, STAY, SCV, QUANTILE = 0, 1, 2, 3, 4, 5, 6, 7
"""Entries of `limits`: tuples/s that one replica may take in; free tuples/s below which a host is passed over; replicas
of a sub-join; cost in ms, and share of its cost, by which a sub-join must gain for a move that is not forced; weight of
the time at hosts (0: only distance counts), variability of arrivals, quantile of the wait (0: its mean)."""


class Record:
    """The fields of one kind of row: (name, type, value in a new row), and how many of it there are if not one."""

    def __init__(self, *fields: tuple[str, str, Any] | tuple[str, str, Any, int]) -> None:
        self.dtype = np.dtype([(name, kind, *count) for name, kind, _, *count in fields], align=True)
        self.blank = np.zeros(1, self.dtype)
        for name, _, value, *_ in fields:
            self.blank[name] = value


NODE = Record(
    ("height", "f8", 0.0),
    ("capacity", "f8", 0.0),
    ("bandwidth", "f8", np.inf),
    ("busy", "f8", 0.0),  # tuples/s of other work
    ("room", "f8", 0.0),  # usable tuples/s; 0: hosts nothing
    ("used", "f8", 0.0),
    ("limit", "f8", 0.0),  # tuples/s it serves
    ("present", "f8", 0.0),  # shares of sub-joins that run here, summed: all of them wait here
    ("slot", "i8", -1),  # in the host index; −1: not there
    ("first", "i8", -1),  # replica
    ("source", "i8", -1),  # first source born here
    ("hosts", "?", True),
    ("alive", "?", True),
)
SOURCE = Record(
    ("stream", "i8", -1),
    ("node", "i8", -1),
    ("rate", "f8", 0.0),
    ("join", "i8", -1),  # first sub-join
    ("next", "i8", -1),  # source on the same node
    ("alive", "?", True),
)
JOIN = Record(
    ("query", "i8", -1),
    ("left", "i8", -1),
    ("right", "i8", -1),
    ("output", "f8", np.nan),
    ("first", "i8", -1),  # replica
    ("state", "i8", NONE),
    ("ideal", "f8", np.inf),  # cost at the virtual position
    ("next", "i8", -1, 2),
    ("before", "i8", -1, 2),  # in the lists of the left and of the right source
)
QUERY = Record(
    ("sink", "i8", -1),  # node; −1: none
    ("window_ms", "f8", 0.0),
    ("axis", "i8", WINDOWS),  # along which its sub-joins divide freely
    ("sliced", "?", False),  # whether they are divided along it at once
    ("may_slice", "?", False),  # whether they may be where nothing else fits
)
REPLICA = Record(
    ("join", "i8", -1),
    ("node", "i8", -1),
    ("next", "i8", GONE),  # of the same sub-join
    ("before", "i8", -1),
    ("after", "i8", -1),  # on the same node
    ("charge", "f8", 0.0),  # tuples/s it brings to its host
    ("evicted_from", "i8", -1),  # node it had to leave for another sub-join; −1: none
    ("step", "i8", -1),  # that made it
    ("box", "f8", 0.0, len(SHARES)),  # shares as in a plan
)


class Records:
    """Rows of one kind that grow in number, and are used again once freed, so that a long run does not grow; and arrays
    beside them with one row of floats each."""

    def __init__(self, record: Record, beside: dict[str, int] | None = None) -> None:
        """`beside` names arrays and their width."""
        self.blank = record.blank
        self.rows: Values = np.empty(0, record.dtype)
        self.beside = {name: np.empty((0, width)) for name, width in (beside or {}).items()}
        self.end = 0
        """Rows from here on were never used."""
        self.free: list[int] = []
        """Rows that were freed, the last freed last."""

    def __getitem__(self, name: str) -> Values:
        """One column."""
        return self.beside[name] if name in self.beside else self.rows[name]

    @property
    def capacity(self) -> int:
        """Rows there is place for."""
        return len(self.rows)

    def reserve(self, capacity: int) -> None:
        """Have place for so many rows at least."""
        before = self.capacity
        if capacity > before:
            rows = np.empty(capacity, self.blank.dtype)  # np.concatenate would drop the padding of records
            rows[:before], rows[before:] = self.rows, self.blank
            self.rows = rows
            for name, array in self.beside.items():
                self.beside[name] = np.concatenate([array, np.zeros((capacity - before, array.shape[1]))])

    def grow(self) -> None:
        """Half as many rows again."""
        self.reserve(self.capacity + max(16, self.capacity // 2))

    def fill(self, size: int, columns: dict[str, Values]) -> None:
        """Use the first `size` rows for the given columns, and have some more."""
        self.reserve(size + max(16, size // 8))
        for name, values in columns.items():
            self[name][:size] = values
        self.end = size

    def take(self) -> tuple[int, bool]:
        """A blank row for use, the last freed first, and whether the arrays had to be replaced for it."""
        if self.free:
            row = self.free.pop()
            self.rows[row] = self.blank[0]
            return row, False
        row, grown = self.end, self.end == self.capacity
        if grown:
            self.grow()
        self.end += 1
        return row, grown


_NUMBER, _WHOLE, _SLOT = np.dtype("f8"), np.dtype("i8"), np.dtype("i4")


@dataclass(frozen=True, slots=True)
class Array:
    """An array as kernels see it."""

    name: str
    path: str
    """Where the state keeps it."""
    dtype: np.dtype[Any] = _NUMBER
    axes: int = 1

    def of(self, state: State) -> Values:
        """The array of a state."""
        found: Any = state
        for name in self.path.split("."):
            found = found[name] if isinstance(found, Records) and name != "rows" else getattr(found, name)
        values: Values = found
        return values


LAYOUT = (
    Array("nodes", "nodes.rows", NODE.dtype),
    Array("at", "nodes.at", axes=2),
    Array("sources", "sources.rows", SOURCE.dtype),
    Array("joins", "joins.rows", JOIN.dtype),
    Array("queries", "queries.rows", QUERY.dtype),
    Array("replicas", "replicas.rows", REPLICA.dtype),
    # replica rows to use, and what this step made and dropped
    Array("spare", "spare", _WHOLE),
    Array("created", "created", _WHOLE),
    Array("removed", "removed", _WHOLE),
    Array("counts", "counts", _WHOLE),
    # the host index
    Array("i_node", "index.node", _SLOT),
    Array("i_points", "index.points", axes=2),
    Array("i_heights", "index.heights"),
    Array("i_free", "index.free"),
    Array("i_low", "index.low", axes=2),
    Array("i_high", "index.high", axes=2),
    Array("i_most", "index.most_free"),
    Array("i_height", "index.least_height"),
    Array("i_offsets", "index.offsets", _WHOLE),
    Array("i_held", "index.held", _SLOT),
    # measured RTTs between nodes in ms, NaN where unknown; empty: the cost space tells all
    Array("rtts", "rtts", axes=2),
    # of the legs left→host, right→host, host→sink
    Array("weights", "weights"),
    # see LARGEST and the following
    Array("limits", "limits"),
)
"""All that kernels see."""

Columns = namedtuple("Columns", [array.name for array in LAYOUT])  # type: ignore[misc]
"""The arrays of `LAYOUT` by name: what kernels call `s`."""

Handle: TypeAlias = npt.NDArray[np.int64] | Columns
"""One row per array: address and shape. The arrays themselves where kernels are not compiled."""


def fingerprint() -> str:
    """Tells states of this schema from others."""
    parts = [f"{array.name} {np.lib.format.dtype_to_descr(array.dtype)} {array.axes}" for array in LAYOUT]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def pack(state: State) -> Handle:
    """The handle of a state. Its arrays must outlive the handle; replacing one makes the handle stale."""
    arrays = [array.of(state) for array in LAYOUT]
    table = np.zeros((len(LAYOUT), 3), np.int64)
    for row, (values, wanted) in enumerate(zip(arrays, LAYOUT, strict=True)):
        if values.dtype != wanted.dtype or values.ndim != wanted.axes or not values.flags.c_contiguous:
            raise TypeError(f"{wanted.name}: {values.dtype} with {values.ndim} axes, or not contiguous")
        table[row, 0] = values.ctypes.data
        table[row, 1 : 1 + values.ndim] = values.shape
    if INTERPRETED:
        return Columns(*[values.view(np.recarray) if values.dtype.names else values for values in arrays])
    return table


def _unpack(typing_context: Any, handle: Any) -> Any:  # noqa: ARG001 - numba calls it so
    """Make the arrays of `LAYOUT` from their addresses and shapes."""
    kinds = [types.Array(from_dtype(array.dtype), array.axes, "C") for array in LAYOUT]
    made = types.NamedTuple(kinds, Columns)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(signature.args[0])(context, builder, arguments[0])

        def entry(row: int, column: int) -> Any:
            return builder.load(builder.gep(table.data, [context.get_constant(types.intp, 3 * row + column)]))

        values = []
        for row, kind in enumerate(kinds):
            array = context.make_array(kind)(context, builder)
            size = context.get_constant(types.intp, get_itemsize(context, kind))  # type: ignore[no-untyped-call]
            shape = [entry(row, 1 + axis) for axis in range(kind.ndim)]
            strides = [size]
            for extent in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], extent))
            address = builder.inttoptr(entry(row, 0), array.data.type)
            populate_array(array, data=address, shape=shape, strides=strides, itemsize=size, meminfo=None)  # type: ignore[no-untyped-call]
            values.append(array._getvalue())
        return context.make_tuple(builder, made, values)

    return made(handle), generate


def _as_it_is(handle: Columns) -> Columns:
    return handle


unpack: Any = _as_it_is if INTERPRETED else intrinsic(_unpack)
"""The arrays behind a handle."""
