"""Windows: what a text says of the times of tuples: TUMBLE, HOP, window, INTERVAL, and how far apart two times are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from nova.query.dialect import fault

_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}


@dataclass(frozen=True)
class Tumbling:
    """Windows of one length side by side, from 1970 on; or sliding ones, where `slide_us` is shorter."""

    size_us: int
    slide_us: int

    def __str__(self) -> str:
        size = f"{self.size_us / 1e6:g} s"
        return (
            f"windows of {size}"
            if self.size_us == self.slide_us
            else f"windows of {size} every {self.slide_us / 1e6:g} s"
        )


@dataclass(frozen=True)
class Interval:
    """low ≤ time of the first alias − time of the second ≤ high, in µs."""

    first: str
    second: str
    low_us: int
    high_us: int

    def __str__(self) -> str:
        return f"{self.first}.time − {self.second}.time within {self.low_us / 1e6:g} … {self.high_us / 1e6:g} s"


def window_in(sql: str, node: exp.Expr) -> Tumbling | None:
    """TUMBLE(time, size), HOP(time, slide, size) or window(time, size[, slide]); None for anything else."""
    if not is_window(node):
        return None
    assert isinstance(node, exp.Anonymous)
    name, arguments = str(node.this).upper(), node.expressions
    counts = {"TUMBLE": (2,), "HOP": (3,), "WINDOW": (2, 3)}[name]
    usage = {
        "TUMBLE": "TUMBLE(time, INTERVAL '10' SECOND)",
        "HOP": "HOP(time, INTERVAL '1' SECOND, INTERVAL '10' SECOND): slide, then size",
        "WINDOW": "window(time, '10 seconds') or window(time, '10 seconds', '1 second'): size, then slide",
    }[name]
    if len(arguments) not in counts:
        raise fault(sql, node, f"{usage} expected")
    if moment(sql, arguments[0]) is None or not isinstance(arguments[0], exp.Column):
        raise fault(sql, arguments[0], f"the event time of a stream expected: {usage}")
    lengths = [length_us(sql, argument) for argument in arguments[1:]]
    size = lengths[-1] if name == "HOP" else lengths[0]
    slide = lengths[0] if name == "HOP" else lengths[-1]
    if size <= 0 or slide <= 0 or size % slide:
        raise fault(sql, node, f"a window is a whole multiple of its slide, and both are above 0: {usage}")
    return Tumbling(size, slide)


def length_us(sql: str, node: exp.Expr) -> int:
    """An INTERVAL, or a text such as '10 seconds', in µs."""
    if isinstance(node, exp.Interval):
        amount, unit = node.this, node.args.get("unit")
        text = f"{amount.name if amount is not None else ''} {unit.name if unit is not None else ''}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.name
    else:
        raise fault(sql, node, "a length of time expected, such as INTERVAL '10' SECOND")
    words = text.upper().split()
    try:
        value = sum(
            float(number) * _UNITS.get(name.removesuffix("S"), float("nan"))
            for number, name in zip(words[::2], words[1::2], strict=True)
        )
    except ValueError:
        value = float("nan")
    if not words:
        value = float("nan")
    if value != value or value != round(value):
        units = ", ".join(_UNITS)
        raise fault(sql, node, f"a number and one of {units} expected, in whole microseconds")
    return round(value)


def differences(sql: str, part: exp.Expr) -> Iterator[tuple[tuple[str, str], int | None, int | None]]:
    """What a comparison tells of the difference of two streams' times: ((first, second), low µs, high µs)."""
    if isinstance(part, exp.Between):
        yield from differences(sql, exp.GTE(this=part.this, expression=part.args["low"]))
        yield from differences(sql, exp.LTE(this=part.this, expression=part.args["high"]))
        return
    if not isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ):
        return
    sides = part.this.unnest(), part.expression.unnest()
    for one, other in (sides, sides[::-1]):
        if isinstance(one, exp.Sub) and isinstance(other, exp.Interval):  # x − y ≤ t is x ≤ y + t
            later = exp.Add(this=one.expression.copy(), expression=other.copy())
            sides = (one.this, later) if one is sides[0] else (later, one.this)
            break
    left, right = (moment(sql, side) for side in sides)
    if left is None or right is None or left[0] == right[0]:
        return
    (first, plus), (second, minus) = left, right
    bound = minus - plus  # first − second <op> bound
    if first > second:
        pair, low, high = (first, second), bound, bound
        lower, upper = isinstance(part, exp.GT | exp.GTE | exp.EQ), isinstance(part, exp.LT | exp.LTE | exp.EQ)
    else:
        pair, low, high = (second, first), -bound, -bound
        lower, upper = isinstance(part, exp.LT | exp.LTE | exp.EQ), isinstance(part, exp.GT | exp.GTE | exp.EQ)
    yield pair, low if lower else None, high if upper else None


def moment(sql: str, node: exp.Expr) -> tuple[str, int] | None:
    """An event time plus a fixed time: the stream and the µs."""
    if isinstance(node, exp.Paren):
        return moment(sql, node.this)
    if isinstance(node, exp.Column):
        return (node.table, 0) if node.name == "time" and node.table else None
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
        return moment(sql, exp.Add(this=node.expression.copy(), expression=node.this.copy()))
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        inner = moment(sql, node.this)
        length = length_us(sql, node.expression)
        return None if inner is None else (inner[0], inner[1] + (length if isinstance(node, exp.Add) else -length))
    return None


def is_window(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("TUMBLE", "HOP", "WINDOW")


def windows_in(node: exp.Expr) -> list[exp.Expr]:
    return [part for part in node.walk() if is_window(part)]
