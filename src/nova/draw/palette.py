"""One set of colours and marks for still and interactive pictures. Told apart in print and by colour-blind eyes."""

from __future__ import annotations

INK = "#22303c"
"""Text and axes."""
FAINT = "#8a97a6"
GRID = "#e7ebf0"
IDLE = "#c3cad3"
SOURCE = "#2f6db3"
SINK = "#22303c"
VIRTUAL = "#e08e0b"
FLOW_IN = "#6fa3d8"
FLOW_OUT = "#6dbb8f"
OVERLOAD = "#d1334b"
UTILISATION = ((0.0, "#d8f0de"), (0.35, "#8fd1a6"), (0.7, "#3a9d6c"), (1.0, "#0b5d3b"))
"""Host colours from empty to full; what is above full is drawn in `OVERLOAD`."""
