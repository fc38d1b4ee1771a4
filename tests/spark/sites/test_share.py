from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import market
import streams
from builders import invoke
from groups_at_sites import FIVE, planned, sites
from nova.files import name_of
from nova.model.errors import InvalidInput
from nova.model.merges import Merges
from nova.model.operators import Pipeline
from nova.model.plan import Plan
from nova.model.problem import Key, Problem
from nova.model.skew import KeyAxis
from nova.routing import compile_routes, key_position
from nova.routing.flow import Flow
from nova.scenario import load
from nova.scenario.model import StreamInput
from nova.spark import session
from nova.spark.sites import share as shares
from nova.spark.sites.presence import FolderBoard, Presence
from nova.spark.sites.share import SIDES, Settled, Share
from nova.spark.sources.inputs import Feed
from tilings import random_replicas

CARRIED = pa.schema([("value", pa.float64()), ("zone", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def scattered(seed: int, nodes: int = 5) -> tuple[Problem, Plan]:
    """Sources on random nodes, replicas of any shape on random nodes."""
    problem = streams.problem(regions=2, per_region=3, nodes=nodes)
    born = np.random.default_rng(seed).integers(0, nodes, len(problem.sources)).astype(np.int32)
    problem = replace(problem, sources=replace(problem.sources, node=born))
    key = Key(("zone",), 50, (0.4, 0.2), ("n", "s"))
    problem = replace(problem, queries=(replace(problem.queries[0], key=key, pipeline=Pipeline(on=("zone",))),))
    return problem, streams.plan(problem, random_replicas(streams.resolve(problem), nodes, seed, keyed=True))


def cut(problem: Problem, plan: Plan, only: int | None = None) -> dict[str, Share]:
    feeds = {
        name: Feed(StreamInput(format="csv", path=f"{name}.csv"), (), (), Path("/somewhere"), name)
        for name in problem.streams
    }
    flow = Flow("climate", 1_000_000, ("zone",), CARRIED, CARRIED, 16)
    made = shares.cut(problem, plan, [flow], feeds, Settled("exchange"), [True], only)
    return {share.site: share for share in made}


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_sites_route_as_the_whole_plan_does(seed: int) -> None:
    """Every tuple leaves its site for the meetings and hosts that the whole plan names, and each host knows them."""
    problem, plan = scattered(seed)
    made = cut(problem, plan)
    one = problem.queries[0]
    whole = compile_routes(plan.joins, plan.replicas, 0, len(problem.sources), one.sink, KeyAxis.of(one))
    rng = np.random.default_rng(seed)
    for row, source in enumerate(problem.sources.ids.to_pylist()):
        side = SIDES[int(problem.sources.stream[row])]
        share = made[problem.nodes.ids[int(problem.sources.node[row])].as_py()]
        query = share.queries[0]
        assert source in share.own(query, side)["id"].to_pylist()
        mine = share.routes(query)
        at, position = rng.random(20), rng.random(20)
        keys = np.concatenate([key_position([pa.array(["n", "s"])]), rng.random(18)])
        rows = np.full(20, row)
        reached, meeting = mine.side(side).reach(rows, at, position, keys)
        wanted, meeting_wanted = whole.side(side).reach(rows, at, position, keys)
        assert sorted(zip(reached, meeting, strict=True)) == sorted(zip(wanted, meeting_wanted, strict=True))
        for number in set(meeting.tolist()):
            host = problem.nodes.ids[int(whole.node[number])].as_py()
            assert mine.node[number] == whole.node[number]
            assert made[host].routes(made[host].queries[0]).node[number] == whole.node[number]
            assert share.site in made[host].senders(made[host].queries[0], side)
            assert made[host].names().sources[row].as_py() == source


def test_a_share_names_only_what_the_site_deals_with() -> None:
    problem, plan = scattered(3)
    made = cut(problem, plan)
    total = 0
    for name, share in made.items():
        query = share.queries[0]
        hosted = [node == name for node in share.replicas["node"].to_pylist()]
        total += sum(hosted)
        assert share.joins(query) == any(hosted)
        own = {source for side in SIDES for source in share.own(query, side)["id"].to_pylist()}
        for left, right, here in zip(
            share.replicas["left_source"].to_pylist(), share.replicas["right_source"].to_pylist(), hosted, strict=True
        ):
            assert here or left in own or right in own
        assert bool(query.hosts) == (query.sink == name)
        assert set(share.inputs) == {
            stream for stream, side in zip(query.streams, SIDES, strict=True) if len(share.own(query, side))
        }
        assert all(given.path == f"/somewhere/{stream}.csv" for stream, given in share.inputs.items())
    assert total == len(plan.replicas)
    sink = made["n4"].queries[0]
    assert set(sink.hosts) == set(plan.table(problem)["node"].to_pylist())
    assert list(cut(problem, plan, only=2)) == ["n2"]


def test_a_share_survives_its_folder(tmp_path: Path) -> None:
    for share in cut(*scattered(5)).values():
        again = shares.read(share.write(tmp_path / share.site))
        assert again == replace(share, place=str(tmp_path / share.site / "site.json"))


def test_folders_that_are_no_site_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file of a site"):
        shares.read(tmp_path)
    (tmp_path / "site.json").write_text('{"nova": 9}')
    with pytest.raises(InvalidInput, match="site format 2 expected"):
        shares.read(tmp_path)
    (tmp_path / "site.json").write_text("{")
    with pytest.raises(InvalidInput, match="not a site"):
        shares.read(tmp_path)


def test_names_of_sites_are_names_of_files_and_topics() -> None:
    assert name_of("rack 7/é+#.x") == "rack%207%2F%C3%A9%2B%23%2Ex"


def test_a_site_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may take minutes to start on a small machine: whose name is taken is told at once."""
    made = next(iter(cut(*scattered(1)).values()))
    replace(made, settled=Settled(str(tmp_path / "exchange"))).write(tmp_path / "site")
    Presence(FolderBoard(tmp_path / "exchange" / "board"), made.site, tmp_path / "first").start()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", never)
    told = invoke("run", tmp_path / "site", "--site", made.site, "-o", tmp_path / "second")
    assert told.exit_code == 1
    assert "belongs to another run folder" in told.stderr


def test_what_a_join_makes_is_sent_from_where_it_is_made(tmp_path: Path) -> None:
    """Of a chain each host of the first join sends the sources that its sub-joins make; the sink of an outer join hears
    all of them."""
    queries = {name: text for name, (text, _) in market.CHAINS.items()}
    loaded = load(market.scenario(tmp_path / "s", market.tables(), queries, 1))
    problem, plan = loaded.problem, market.on_two_and_one(loaded)
    flows = [Flow(query.id, 1_000_000, (), CARRIED, CARRIED, 16) for query in problem.queries]
    feeds = {name: Feed(StreamInput(format="csv", path="x.csv"), (), (), tmp_path, name) for name in market.COLUMNS}
    made = {}
    for share in shares.cut(problem, plan, flows, feeds, Settled("exchange"), [True] * len(flows)):
        again = shares.read(share.write(tmp_path / share.site))
        assert [replace(query, pipeline=share.queries[0].pipeline) for query in again.queries] == [
            replace(query, pipeline=share.queries[0].pipeline) for query in share.queries
        ]
        made[share.site] = again
    for number, row in enumerate(plan.joins.makes.tolist()):
        if row < 0:
            continue
        source = problem.sources.ids[row].as_py()
        maker = problem.queries[int(plan.joins.query[number])].id.removesuffix(".1")
        host = problem.nodes.ids[int(plan.replicas.node[number])].as_py()
        for site, share in made.items():
            for query in share.queries:
                if query.flow.query == maker:
                    assert (source in share.own(query, "left")["id"].to_pylist()) == (site == host)
    for query in made["edge3"].queries:
        if query.makes is None:
            assert query.made == ("left",)
            assert made["edge3"].senders(query, "left") == ("edge2", "fog")
    sink = {query.flow.query: query for query in made["hq"].queries}
    assert sink["kept"].keepers == (("left", "edge2"), ("left", "fog"))
    assert not set(made["hq"].inputs)


def test_partial_aggregates_go_the_way_of_the_plan(tmp_path: Path) -> None:
    """A host that merges has its own share of that, also where it hosts no replica."""
    loaded, plan = planned(tmp_path / "s", sites(FIVE))
    problem = loaded.problem
    ids = problem.nodes.ids.to_pylist()
    replicas = plan.replicas
    replicas.node[:] = np.arange(len(replicas)) % 3
    plan = replace(plan, replicas=replicas, merges=Merges.of([(0, 0, 3), (0, 1, 3), (0, 4, 3)]))
    flow = Flow("q", 1_000_000, (), CARRIED, CARRIED, 16)
    feeds = {name: Feed(StreamInput(format="csv", path="x.csv"), (), (), tmp_path, name) for name in "lr"}
    made = {share.site: share for share in shares.cut(problem, plan, [flow], feeds, Settled("x"), [True])}
    merging = made[ids[3]].queries[0]
    assert merging.senders(ids[3]) == (ids[0], ids[1])  # nothing is joined on the last one
    assert made["hq"].queries[0].last() == (ids[2], ids[3])
    assert made["hq"].queries[0].hosts == (ids[0], ids[1], ids[2])
