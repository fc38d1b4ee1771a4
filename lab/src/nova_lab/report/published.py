"""Figures that were published before us, to stand beside ours. Literature, never computed here.

`PAPER`: what the paper's text says. `SCRIPTS`: what its published simulation scripts give when run unchanged (their
deterministic figures are the paper's, to the printed digit). Where the scripts part from the text is told per
experiment; only their Nova(p) respects capacities. Latencies in ms, runtimes in seconds, overload in percent.
"""

from __future__ import annotations

from typing import Final

Range = tuple[int, int]
"""Lowest and highest over the six heterogeneity levels."""

PAPER_OVERLOAD: Final[dict[str, Range]] = {
    "nova": (0, 0),
    "sink": (100, 100),
    "source": (46, 54),
    "top-c": (6, 14),
    "tree": (85, 85),
    "cl-sf": (86, 95),
    "cl-tree-sf": (94, 99),
}
SCRIPTS_OVERLOAD: Final[dict[str, Range]] = {
    "nova": (0, 0),
    "sink": (100, 100),
    "source": (46, 54),
    "top-c": (6, 14),
    "tree": (84, 85),
    "cl-sf": (85, 95),
    "cl-tree-sf": (94, 100),
}

SCRIPTS_P90_DELTA: Final[dict[str, dict[str, float]]] = {
    "synthetic": {
        "source": 60.4,
        "top-c": 82.4,
        "tree": 87.3,
        "cl-sf": 2.1,
        "cl-tree-sf": 70.6,
        "nova-inf": 8.4,
        "nova": 31.5,
    },
    "fit": {
        "source": 11.1,
        "top-c": 39.0,
        "tree": 31.8,
        "cl-sf": 3.5,
        "cl-tree-sf": 35.7,
        "nova-inf": 2.0,
        "nova": 14.3,
    },
    "planetlab": {
        "source": 11.0,
        "top-c": 34.2,
        "tree": 57.6,
        "cl-sf": 2.3,
        "cl-tree-sf": 104.2,
        "nova-inf": 0.0,
        "nova": 51.8,
    },
    "atlas": {
        "source": 59.8,
        "top-c": 192.8,
        "tree": 406.3,
        "cl-sf": 15.6,
        "cl-tree-sf": 284.8,
        "nova-inf": 19.8,
        "nova": 96.4,
    },
    "king": {
        "source": 93.7,
        "top-c": 303.7,
        "tree": 664.5,
        "cl-sf": 19.0,
        "cl-tree-sf": 339.8,
        "nova-inf": 22.0,
        "nova": 175.0,
    },
}
"""90th percentile of latency less that of sink-based. The paper prints the same figures for Nova and Cl-SF."""

LP_MEAN_DELTA: Final[dict[str, float]] = {
    "fit": 3.8,
    "planetlab": 5.0,
    "atlas": 19.7,
    "king": 25.0,
    "synthetic": 9.9,
}
"""Mean delta to sink-based of an LP optimum with window slices on the fixed instances at level 5."""
SCRIPTS_MEAN_DELTA: Final[dict[str, float]] = {
    "fit": 14.5,
    "planetlab": 109.0,
    "atlas": 82.0,
    "king": 139.0,
    "synthetic": 27.4,
}
"""Mean delta to sink-based of the scripts' Nova(p) on the fixed instances at level 5."""

PAPER_ESTIMATION: Final[dict[str, dict[str, float]]] = {
    "nova-inf": {"mean_estimated": 237, "mean_measured": 259, "p90_estimated": 347, "p90_measured": 542},
    "nova": {"p90_estimated": 424, "p90_measured": 754},
    "source": {"mean_estimated": 261, "mean_measured": 262, "p90_estimated": 387, "p90_measured": 663},
    "top-c": {"mean_estimated": 345, "mean_measured": 330, "p90_estimated": 520, "p90_measured": 709},
    "sink": {"mean_estimated": 220, "mean_measured": 146},
    "tree": {"mean_estimated": 512, "mean_measured": 11_700, "p90_estimated": 733, "p90_measured": 19_000},
    "cl-tree-sf": {"mean_estimated": 450, "mean_measured": 2_000},
}
"""As printed. Its 'measured' side looks RTTs up by row number in another day's matrix of other nodes."""
SCRIPTS_MEASURED: Final[dict[str, tuple[float, float]]] = {
    "sink": (223, 326),
    "source": (266, 405),
    "top-c": (358, 540),
    "tree": (2960, 3978),
    "nova-inf": (260, 366),
    "nova": (316, 444),
}
"""Mean and 90th percentile of the scripts' placements on the right matrix, 419 nodes."""

PAPER_RESILIENCE: Final[dict[str, tuple[Range, Range]]] = {
    "nova": ((228, 241), (489, 522)),
    "sink": ((141, 146), (370, 382)),
}
"""Lowest and highest (mean, 90th percentile) over the hours, as printed: sums of both directions. Sink-based is from
the scripts."""

PAPER_SECONDS: Final[dict[int, float]] = {100: 0.015, 1_000_000: 135.0}
"""The paper's placement time by nodes, on an AMD Ryzen 7 5700X."""
SCRIPTS_SECONDS: Final[dict[int, float]] = {1_000: 2.4, 10_000: 45.0, 100_000: 135.0}
"""CPU seconds of the scripts on two cores; 100,000 only with capacities ignored."""
PAPER_EVENT_SECONDS: Final[dict[str, float]] = {
    "add source": 0.2,
    "remove source": 0.1,
    "remove worker": 0.1,
    "move node": 0.1,
    "change rate": 0.1,
}
"""Re-optimization at a million nodes; 0.1 stands for the paper's 'well under 0.1 s'."""

PAPER_CLUSTER: Final[dict[str, tuple[int, float, float]]] = {
    "nova": (14_159, 8.0, 91.0),
    "source": (3_176, 37.0, float("nan")),
    "top-c": (1_503, 80.0, 310.0),
    "sink": (1_057, 115.0, 481.0),
}
"""Tuples in two minutes on 14 Raspberry Pis, and the mean and 99.99th percentile of what the paper calls latency: the
time between two results at the sink."""
PAPER_CLUSTER_STRESSED: Final[dict[str, tuple[int, float, float]]] = {
    "nova": (8_805, 13.9, 113.8),
    "source": (2_211, 54.4, 3_643.0),
    "top-c": (230, 520.6, 4_433.7),
    "sink": (546, 223.3, 1_827.7),
}
"""The same with stressed sources, as its published notebook prints them; the text has some of them."""
PAPER_CLUSTER_S: Final = 120.0
"""Length of the paper's runs."""
