"""Where names go: beside their points, never over each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.model.problem import Floats

SIDES = ("right", "left", "top", "bottom", "top right", "bottom right", "top left", "bottom left")
"""Sides to try, most readable first."""


@dataclass(frozen=True)
class Label:
    """One placed name: which point, and on which side of it."""

    point: int
    side: str


def place_labels(
    at: Floats, radius: Floats, size: Floats, obstacles: Floats, strokes: Floats, reach: float = 4.0
) -> list[Label]:
    """Choose a side for each name, in the given order, so that no two names and no name and point overlap.

    `at` are points, `radius` their marks' radii, `size` width and height of the names, `obstacles` further marks as
    rows x, y, radius, `strokes` points on lines that are better not crossed; all in pixels, y upwards. Names without
    a free side are left out: better none than a blot.
    """
    boxes = np.empty((0, 4))
    marks = np.vstack([np.column_stack([at, radius]), obstacles])
    placed = []
    for i in range(len(at)):
        best: tuple[int, str, Floats] | None = None
        for side in SIDES:
            box = _box(at[i], radius[i] + reach, size[i], side)
            if _hits_marks(box, marks) or _hits_boxes(box, boxes):
                continue
            crossed = _inside(box, strokes)
            if best is None or crossed < best[0]:
                best = crossed, side, box
        if best is not None:
            boxes = np.vstack([boxes, best[2]])
            placed.append(Label(i, best[1]))
    return placed


def offset(side: str, reach: float) -> tuple[float, float]:
    """From the point to the anchor of its name."""
    x = reach if "right" in side else -reach if "left" in side else 0.0
    y = reach if "top" in side else -reach if "bottom" in side else 0.0
    diagonal = 0.75 if x and y else 1.0
    return x * diagonal, y * diagonal


def _box(at: Floats, reach: float, size: Floats, side: str) -> Floats:
    """Corners x0, y0, x1, y1 of a name on one side of its point."""
    dx, dy = offset(side, reach)
    width, height = size
    x0 = at[0] + dx - (width if "left" in side else 0.0 if "right" in side else width / 2)
    y0 = at[1] + dy - (height if "bottom" in side else 0.0 if "top" in side else height / 2)
    return np.array([x0, y0, x0 + width, y0 + height])


def _hits_boxes(box: Floats, others: Floats) -> bool:
    return bool(((box[:2] < others[:, 2:]) & (others[:, :2] < box[2:])).all(axis=1).any())


def _hits_marks(box: Floats, marks: Floats) -> bool:
    """Whether a mark's disc reaches into the box."""
    nearest = np.clip(marks[:, :2], box[:2], box[2:])
    return bool((np.hypot(*(marks[:, :2] - nearest).T) < marks[:, 2]).any())


def _inside(box: Floats, points: Floats) -> int:
    """How many of the points lie in the box."""
    return int(((points > box[:2]) & (points < box[2:])).all(axis=1).sum())
