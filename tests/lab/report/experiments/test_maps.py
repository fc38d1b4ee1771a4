from __future__ import annotations

from nova.draw.page import render
from nova_lab.report.experiment import Setting
from nova_lab.report.experiments import maps


def test_a_map_of_drawn_coordinates_claims_no_accuracy() -> None:
    rows = maps.run_map(Setting(), {"topology": "synthetic", "seed": 0})
    assert rows[0]["nodes"] == 1001
    assert rows[0]["in_two"] == 1.0  # two dimensions are all there are
    section = maps.section(Setting(), rows)
    assert "nothing that they could be wrong about" in section.reading[0]
    assert "Network coordinate systems" in render("t", "b", "l", [section])


def test_errors_are_told_from_the_best_to_the_worst() -> None:
    known = maps.run_map(Setting(), {"topology": "synthetic", "seed": 0})[0]
    rows = [
        {**known, "topology": name, "median_relative_error": error, "mae_ms": 5.0, "tiv_share": 0.07}
        for name, error in (("fit", 0.2), ("atlas", 0.08))
    ]
    assert "8.00 % (RIPE Atlas), and 20.0 % (FIT IoT Lab) at most" in maps.section(Setting(), rows).reading[0]


def test_drawn_coordinates_beside_measured_ones_have_no_error_to_be_the_best_or_the_worst() -> None:
    """Rows come from the units' files, where what is not known is no number."""
    known = maps.run_map(Setting(), {"topology": "synthetic", "seed": 0})[0]
    unknown = {"median_relative_error": float("nan"), "mae_ms": float("nan"), "tiv_share": float("nan")}
    told = {"median_relative_error": 0.08, "mae_ms": 5.0, "tiv_share": 0.07}
    section = maps.section(Setting(), [{**known, **unknown}, {**known, "topology": "atlas", **told}])
    assert section.reading == ["The median error on unseen pairs is 8.00 % (RIPE Atlas)."]
