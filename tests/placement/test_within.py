"""Requirements hold in every plan: optimizer, checker, files; what cannot be met is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SMALL, write_scenario
from nova.model.errors import BrokenPlan, Infeasible, InvalidInput
from nova.model.options import Options
from nova.model.requires import parse
from nova.optimizer import optimize
from nova.placement.check import check
from nova.scenario import load
from nova.scenario.writer import write
from nova.synthetic import draw

LABELS = {"edge1": ("eu", 0), "edge2": ("us", 4), "fog": ("us", 0), "cloud": ("eu", 2), "hq": ("eu", 0)}


def small(folder: Path, **query: Any) -> Path:
    nodes = [{**node, "region": LABELS[node["id"]][0], "gpu": LABELS[node["id"]][1]} for node in SMALL["nodes"]]
    return write_scenario(folder, {**SMALL, "nodes": nodes, "queries": [{**SMALL["queries"][0], **query}]})


def hosts(plan: Any, problem: Any) -> set[str]:
    return {problem.nodes.ids[int(node)].as_py() for node in plan.replicas.node}


@pytest.mark.parametrize(
    ("requires", "where"), [("region in [eu]", {"edge1", "cloud"}), (["region = eu", "gpu >= 1"], {"cloud"})]
)
def test_queries_run_where_they_may(tmp_path: Path, requires: Any, where: set[str]) -> None:
    problem = load(small(tmp_path, requires=requires)).problem
    assert hosts(optimize(problem), problem) <= where


def test_too_little_room_on_the_hosts_that_are_left_is_told(tmp_path: Path) -> None:
    problem = load(small(tmp_path, requires="gpu > 2")).problem
    with pytest.raises(Infeasible, match=r"query climate requires gpu > 2: 1 hosts, which have 60 tuples/s"):
        optimize(problem)


def test_a_plan_that_breaks_a_requirement_is_refused(tmp_path: Path) -> None:
    problem = load(small(tmp_path, requires="region = eu")).problem
    free = replace(problem, queries=(replace(problem.queries[0], requires=()),))
    plan = optimize(free)
    assert hosts(plan, problem) & {"fog", "edge2"}
    with pytest.raises(BrokenPlan, match="hosts a replica of climate, which requires region = eu"):
        check(problem, plan)


@pytest.mark.parametrize(
    ("requires", "told"),
    [
        ("gpu >= 9", "no host meets this; nearest came edge1 (gpu is 0), edge2 (gpu is 4), fog (gpu is 0)"),
        ("regon = eu", "the nodes have no such label; did you mean 'region'?"),
        ("region >= 2", "region is no number on every node"),
        ("region is eu", "is not understood"),
    ],
)
def test_what_cannot_be_met_is_told(tmp_path: Path, requires: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(small(tmp_path, requires=requires))
    assert told in str(caught.value)


def test_requirements_are_written_with_the_labels_they_need(tmp_path: Path) -> None:
    problem = load(small(tmp_path / "a", requires="region in [eu] and gpu >= 1")).problem
    file = write(tmp_path / "b", problem, Options())
    assert file is not None
    assert load(file).problem.digest == problem.digest


@settings(max_examples=15, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from(["auto", "grid", "window"]))
def test_many_queries_with_different_wishes_fit_together(seed: int, partition: Any) -> None:
    """Every replica where its query may run, no node above its limit: the checker says so."""
    rng = np.random.default_rng(seed)
    problem = draw(60, level=2, seed=seed, load=0.25)
    zones = rng.integers(0, 3, len(problem.nodes))
    first = problem.queries[0]
    wishes = ("zone = 0", "zone != 0", "zone <= 1", "")
    cut = np.array_split(np.arange(len(first.matrix.left)), len(wishes))  # type: ignore[union-attr]
    queries = tuple(
        replace(
            first,
            id=f"q{number}",
            matrix=replace(
                first.matrix,
                left=first.matrix.left[rows],
                right=first.matrix.right[rows],
                output_rate=first.matrix.output_rate[rows],
            ),  # type: ignore
            requires=parse(wish) if wish else (),
        )
        for number, (wish, rows) in enumerate(zip(wishes, cut, strict=True))
    )
    asked = replace(problem, nodes=replace(problem.nodes, labels={"zone": pa.array(zones)}), queries=queries)
    try:
        plan = optimize(asked, Options(partition=partition))
    except Infeasible:
        return
    check(asked, plan)
