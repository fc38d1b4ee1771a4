"""`nova explain`: an overview, one join, one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import invoke, invoke_json


def test_overview(planned: tuple[Path, Path]) -> None:
    stages = invoke_json("explain", *planned)["stages"]
    assert [stage["name"][:9].strip() for stage in stages] == [
        "Phase I:",
        "Phase II:",
        "Phase II:",
        "Phase III",
        "What it f",
    ]
    result = invoke("explain", *planned)
    assert result.exit_code == 0
    assert "2 sub-joins of climate (2) need 100 tuples/s" in result.stdout


def test_a_join(planned: tuple[Path, Path]) -> None:
    (join,) = invoke_json("explain", *planned, "--join", "p1", "h1")["joins"]
    assert join["query"] == "climate"
    assert sum(part["share"] for part in join["parts"]) == pytest.approx(1)
    chosen = {c["node"] for c in join["candidates"] if c["verdict"] == "chosen"}
    assert chosen == {part["node"] for part in join["parts"]}
    assert "hq" not in chosen
    result = invoke("explain", *planned, "--join", "p1", "h1")
    assert result.exit_code == 0
    assert "p1 ⋈ h1, query climate" in result.stdout
    assert "chosen" in result.stdout


def test_a_node(planned: tuple[Path, Path]) -> None:
    node = invoke_json("explain", *planned, "--node", "hq")
    assert node["hosts"] is False
    assert node["sink_of"] == ["climate"]
    assert node["said"] == "No join may run here."
    assert node["results"] > 0
    assert node["flooded"]
    assert "more than the 20 it can take" in invoke("explain", *planned, "--node", "hq").stdout
    (join,) = invoke_json("explain", *planned, "--join", "p1", "h1")["joins"]
    host = join["parts"][0]["node"]
    result = invoke("explain", *planned, "--node", host)
    assert result.exit_code == 0
    assert "p1 ⋈ h1" in result.stdout
    sends = invoke("explain", *planned, "--node", "edge1")
    assert "Sends" in sends.stdout


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("--node", "claud"), "did you mean 'cloud'?"),
        (("--join", "p1", "x"), "no source 'x' on the right side; there are h1, h2"),
        (("--join", "p1", "h2"), "'p1' joins h1"),
        (("--join", "h1", "p1"), "there are p1, p2"),
        (("--node", "fog", "--join", "p1", "h1"), "not both"),
    ],
)
def test_wrong_questions(planned: tuple[Path, Path], question: tuple[str, ...], answer: str) -> None:
    result = invoke("explain", *planned, *question)
    assert result.exit_code == 2
    assert answer in result.stderr
