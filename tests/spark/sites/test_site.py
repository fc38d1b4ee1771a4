"""Sites side by side in one session; `test_sites_live.py` runs them as processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streams
from at_sites import side_by_side
from brokers import address, broker
from nova.model.errors import InvalidInput
from nova.model.replicas import Replicas
from nova.placement.check import broken_joins
from nova.spark.sites.deploy import shares
from nova.spark.sites.share import Settled
from runs import file_inputs, found, plain, scenario, tables


@pytest.mark.parametrize(
    ("way", "hosts"),
    [
        ("folders", ["edge2"]),
        pytest.param("broker", ["edge1", "edge2", "fog"], marks=pytest.mark.slow),
    ],
)
def test_sites_give_the_plain_join(spark: Any, tmp_path: Path, way: str, hosts: list[str]) -> None:
    left, right = tables(120)
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", left, right, 2))
    joins = plan.joins
    # Grid and window slices, on sites that send as well and on one that only joins.
    part = np.tile(np.arange(3), len(joins))
    whole = Replicas.whole(np.arange(len(joins)), np.zeros(len(joins), int))
    split = whole.take(np.repeat(np.arange(len(joins)), 3))  # arrays of its own
    split.left_to[part == 0], split.left_from[part > 0] = 0.4, 0.4
    split.slice_to[part == 1], split.slice_from[part == 2] = 0.5, 0.5
    ids = loaded.problem.nodes.ids.to_pylist()
    split.node[:] = np.array([ids.index(host) for host in hosts])[part % len(hosts)]
    assert not len(broken_joins(split, len(joins)))
    with broker() as port:
        exchange = str(tmp_path / "exchange") if way == "folders" else address(port, "sites/test")
        made = list(shares(spark, loaded, streams.replace_replicas(plan, split), Settled(exchange)))
        assert {share.site for share in made} == {"edge1", "edge2", *hosts, "hq"}
        sites = side_by_side(spark, made, exchange, tmp_path / "run")
    wanted = plain(left, right)
    assert found(tmp_path / "run" / "hq" / "results") == wanted
    results = streams.read_results(tmp_path / "run" / "hq" / "results")
    assert set(results["node"].to_pylist()) == set(hosts)
    reports = {name: site.report()["queries"][0] for name, site in sites.items()}
    assert reports["hq"]["results"] == wanted.total()
    assert sum(reports[name]["results"] for name in hosts) == wanted.total()
    assert reports["edge1"]["tuples"].keys() == {"left", "right"}
    assert sum(sum(report["tuples"].values()) for report in reports.values()) == 240


def test_columns_that_are_missing_at_a_site_are_told(spark: Any, tmp_path: Path) -> None:
    left, right = tables(10)
    loaded, plan = scenario(tmp_path / "s", file_inputs(tmp_path / "s", left, right, 1))
    made = {share.site: share for share in shares(spark, loaded, plan, Settled(str(tmp_path / "x")))}
    for file in (tmp_path / "s" / "p").iterdir():
        left.drop(columns="unit").to_parquet(file, index=False)
    with pytest.raises(InvalidInput, match="lack the columns unit"):
        side_by_side(spark, [made["edge1"]], str(tmp_path / "x"), tmp_path / "run")
