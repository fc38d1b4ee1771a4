"""Requirements: what a node must be or have so that a query may run there, told by the labels of the node table."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # who only reads the text of conditions, such as the journal, needs no numeric libraries
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

FORMS: Final = "label = value, label != value, label in [a, b], label >= number (also >, <=, <), joined by `and`"
_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*(?P<label>[\w.-]+)\s*(?P<how>>=|<=|!=|=|>|<|\bin\b)\s*(?P<what>.+?)\s*")


@dataclass(frozen=True)
class Requirement:
    """One condition on a label."""

    label: str
    how: str
    """`=`, `!=`, `in`, `>=`, `<=`, `>` or `<`."""
    values: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.label} in [{', '.join(self.values)}]"
            if self.how == "in"
            else f"{self.label} {self.how} {self.values[0]}"
        )

    def met(self, labels: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
        """Which nodes meet it; one without the label does not."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        column = labels[self.label]
        if self.how in _ORDERS:
            numbers = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            found: npt.NDArray[np.bool_] = _ORDERS[self.how](numbers, float(self.values[0]))  # NaN meets nothing
            return found
        texts = pc.cast(column, pa.string())
        same = pc.is_in(texts, value_set=pa.array(self.values, pa.string()))
        known = pc.is_valid(texts)
        wanted = pc.and_(known, pc.invert(same) if self.how == "!=" else same)
        return np.asarray(wanted.to_numpy(zero_copy_only=False), dtype=np.bool_)


def parse(text: str) -> tuple[Requirement, ...]:
    """The conditions of a text. Raises ValueError with the one that is not understood."""
    found = []
    for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not understood: {FORMS}")
        what, how = match["what"], match["how"]
        if how == "in":
            if not (what.startswith("[") and what.endswith("]")) or not what[1:-1].strip():
                raise ValueError(f"{part!r} is not understood: a list such as [eu, ch] expected after `in`")
            values = tuple(value.strip().strip("'\"") for value in what[1:-1].split(","))
        else:
            values = (what.strip("'\""),)
        if how in _ORDERS:
            try:
                float(values[0])
            except ValueError:
                raise ValueError(f"{part!r} is not understood: a number expected after {how}") from None
        found.append(Requirement(match["label"], how, values))
    return tuple(found)


def allowed(requires: Sequence[Requirement], labels: Mapping[str, pa.Array], nodes: int) -> npt.NDArray[np.bool_]:
    """Which nodes meet all conditions."""
    import numpy as np

    met = np.ones(nodes, dtype=np.bool_)
    for one in requires:
        met &= one.met(labels)
    return met


def came_nearest(
    requires: Sequence[Requirement], labels: Mapping[str, pa.Array], ids: pa.StringArray, hosts: npt.NDArray[np.bool_]
) -> str:
    """The hosts that fail the fewest conditions, and which ones."""
    import numpy as np

    met = np.array([one.met(labels) for one in requires])
    rows = np.flatnonzero(hosts)
    best = rows[np.argsort(-met[:, rows].sum(axis=0), kind="stable")][:3]
    told = []
    for row in best.tolist():
        failed = [requires[k].label for k in np.flatnonzero(~met[:, row]).tolist()]
        values = ", ".join(f"{label} is {labels[label][row].as_py()}" for label in dict.fromkeys(failed))
        told.append(f"{ids[row].as_py()} ({values})")
    return ", ".join(told) or "none at all"
