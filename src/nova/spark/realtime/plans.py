"""Plans: the routes of a plan as the JVM part reads them (`Routes.java`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nova.routing.routes import Routes, Side


def write_routes(file: Path, routes: Routes) -> None:
    """For each side starts, meetings and ranges of its boxes, then the hosts of meetings; each with its length."""
    arrays = [*_side(routes.left), *_side(routes.right), routes.node.astype("<i8")]
    file.write_bytes(b"".join(np.int64(len(array)).tobytes() + array.tobytes() for array in arrays))


def _side(side: Side) -> list[npt.NDArray[np.generic]]:
    ranges = (side.share_from, side.share_to, side.slice_from, side.slice_to, side.key_from, side.key_to)
    return [side.start.astype("<i8"), side.meeting.astype("<i8"), *(each.astype("<f8") for each in ranges)]
