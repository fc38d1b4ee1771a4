"""Pictures of plans: the cost space with flows, how full the hosts are, and the main figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nova.draw.picture import Picture, compose
from nova.model.errors import Fault, InvalidInput
from nova.model.plan import Plan
from nova.model.problem import Problem

__all__ = ["draw", "writer", "compose", "Picture"]


def draw(problem: Problem, plan: Plan, file: str | Path) -> Path:
    """Draw a plan into `file`: a still picture for `.png`, an interactive page that needs no network for `.html`."""
    file = Path(file)
    write = writer(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(problem, plan, file)
    return file


def writer(file: Path) -> Callable[[Problem, Plan, Path], None]:
    """How to draw into such a file. The drawing libraries are large, so only the one that is used is imported."""
    if file.suffix.lower() == ".png":
        from nova.draw.png import write as write_png

        return write_png
    if file.suffix.lower() == ".html":
        from nova.draw.html import write as write_html

        return write_html
    raise InvalidInput([Fault(str(file), "pictures are .html or .png", field="ending", value=file.suffix)])
