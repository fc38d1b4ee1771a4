"""Names keep clear of each other and of marks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nova.draw.labels import Label, offset, place_labels

NONE = np.empty((0, 3))
NO_STROKES = np.empty((0, 2))


def box(at: np.ndarray, radius: float, size: np.ndarray, label: Label, reach: float = 4.0) -> tuple[float, ...]:
    """Where a placed name lies, worked out from its side alone."""
    dx, dy = offset(label.side, radius + reach)
    x = at[0] + dx + {-1: -size[0], 0: -size[0] / 2, 1: 0.0}[int(np.sign(dx))]
    y = at[1] + dy + {-1: -size[1], 0: -size[1] / 2, 1: 0.0}[int(np.sign(dy))]
    return x, y, x + size[0], y + size[1]


@given(st.integers(1, 25).flatmap(lambda n: arrays(float, (n, 2), elements=st.floats(0, 300))))
def test_placed_names_overlap_nothing(at: np.ndarray) -> None:
    radius, size = np.full(len(at), 5.0), np.tile([30.0, 12.0], (len(at), 1))
    placed = place_labels(at, radius, size, NONE, NO_STROKES)
    boxes = [box(at[p.point], 5.0, size[p.point], p) for p in placed]
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        for a0, b0, a1, b1 in boxes[:i]:
            assert x0 >= a1 or a0 >= x1 or y0 >= b1 or b0 >= y1
        nearest = np.clip(at, [x0, y0], [x1, y1])
        assert (np.hypot(*(at - nearest).T) >= 5.0 - 1e-9).all()


def test_a_lone_name_stands_to_the_right() -> None:
    one = np.array([[50.0, 50.0]])
    assert place_labels(one, np.array([5.0]), np.array([[30.0, 12.0]]), NONE, NO_STROKES) == [Label(0, "right")]


def test_names_avoid_strokes_where_they_can() -> None:
    one = np.array([[50.0, 50.0]])
    stroke = np.column_stack([np.linspace(50, 100, 30), np.full(30, 50.0)])
    (label,) = place_labels(one, np.array([5.0]), np.array([[30.0, 12.0]]), NONE, stroke)
    assert "left" in label.side


def test_a_name_without_room_is_left_out() -> None:
    crowd = np.array([[0.0, 0.0]])
    around = np.array([[0.0, 0.0, 60.0]])
    assert place_labels(crowd, np.array([5.0]), np.array([[30.0, 12.0]]), around, NO_STROKES) == []
