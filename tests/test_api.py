"""What `import nova` gives: every name works, and works again."""

from __future__ import annotations

import doctest
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import nova
from builders import SMALL, invoke, write_scenario
from nova.extras import MissingExtra


def model() -> nova.Model:
    """`builders.SMALL`, in Python."""
    made = nova.Model(seed=3, **SMALL["options"])
    for node in SMALL["nodes"]:
        made.add_node(**node)
    for name, stream in SMALL["streams"].items():
        made.add_stream(name, stream["sources"])
    return made.add_query("climate", left="pressure", right="humidity", on="region", sink="hq")


def test_every_exported_name_works_twice(tmp_path: Path) -> None:
    file = write_scenario(tmp_path)
    assert dir(nova) == sorted(nova.__all__)
    for _ in range(2):
        scenario = nova.load(file)
        assert isinstance(scenario, nova.Scenario)
        assert isinstance(scenario.problem, nova.Problem)
        assert isinstance(scenario.options, nova.Options)
        plan = nova.optimize(model())
        assert isinstance(plan, nova.Plan)
        assert isinstance(nova.evaluate(plan), nova.Metrics)
        assert isinstance(nova.compare(scenario, ["nova", "sink"], simulated_s=0), nova.Comparison)
        assert nova.simulate(plan, duration_s=2).served > 0
        after = nova.reoptimize(plan, nova.events.NodeRemoved(node="fog"))
        assert isinstance(after, nova.Reoptimized)
        assert isinstance(plan.controller(nova.Stability()), nova.Controller)
        for error in (nova.InvalidInput, nova.Infeasible, nova.BrokenPlan):
            assert issubclass(error, nova.NovaError)
        assert nova.__version__
    assert not set(nova.__all__) - {"__version__"} - set(vars(nova))  # each is a value by now, not a lookup


@pytest.mark.parametrize("name", [name for name in nova.__all__ if name not in ("events", "__version__")])
def test_the_example_of_every_exported_name_runs(name: str, tmp_path: Path) -> None:
    known = {"nova": nova, "scenario": SMALL, "folder": tmp_path / "plan"}
    found = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(nova, name)) or "", known, name, None, None)
    assert found.examples, f"nova.{name} shows no example"
    said: list[str] = []
    assert not doctest.DocTestRunner().run(found, out=said.append).failed, "".join(said)


def test_import_is_light() -> None:
    code = "import sys, nova; sys.exit(bool({'numpy', 'numba', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_optimize_takes_whatever_says_a_problem(tmp_path: Path) -> None:
    file = write_scenario(tmp_path)
    scenario = nova.load(file)
    plans = [
        nova.optimize(what, waiting=0)  # a problem has no options of its own
        for what in (file, str(file), dict(SMALL), scenario, scenario.problem, model(), model().scenario())
    ]
    assert len({plan.digest for plan in plans}) == 1
    assert len({plan.cost() for plan in plans}) == 1


def test_options_of_the_call_win_over_those_of_the_scenario() -> None:
    scenario = nova.load({**SMALL, "options": {"seed": 1, "partition": "grid"}})
    assert nova.optimize(scenario, seed=5).options == nova.Options(seed=5, partition="grid")
    assert nova.optimize(scenario, nova.Options(seed=2)).options == nova.Options(seed=2)
    assert nova.optimize(scenario, nova.Options(seed=2), c_min="2/s").options == nova.Options(seed=2, c_min=2.0)
    assert nova.optimize(scenario.problem, seed=9).options == nova.Options(seed=9)
    assert nova.optimize(dict(SMALL), seed=9).options == nova.Options(seed=9, waiting=0)
    with pytest.raises(nova.InvalidInput, match="did you mean 'seed'"):
        nova.optimize(scenario, sead=5)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, lambda rows: pl.DataFrame(rows).to_arrow()])
def test_tables_come_from_pandas_polars_and_arrow(frame) -> None:  # type: ignore[no-untyped-def]
    made = nova.Model(seed=3).add_nodes(frame(SMALL["nodes"][:4])).add_node(**SMALL["nodes"][4])
    for name, stream in SMALL["streams"].items():
        made.add_stream(name, frame(stream["sources"]))
    made.add_query(
        "climate", left="pressure", right="humidity", sink="hq", pairs=frame([{"left": "p1", "right": "h1"}])
    )
    plan = nova.optimize(made)
    assert plan.to_arrow()["left_source"].to_pylist() == ["p1"]
    document = {**SMALL, "nodes": frame(SMALL["nodes"])}
    assert nova.load(document).digest == nova.load(dict(SMALL)).digest


def test_latencies_come_as_pairs_as_a_matrix_and_one_by_one() -> None:
    ids = ["a", "b", "c"]
    rtt = np.array([[0.0, 10.0, 30.0], [10.0, 0.0, 20.0], [30.0, 20.0, 0.0]])
    matrix = nova.Model().add_latencies(pd.DataFrame(rtt, index=ids, columns=ids))
    pairs = nova.Model().add_latencies(pl.DataFrame({"from": ["a", "a"], "to": ["b", "c"], "rtt_ms": [10.0, 30.0]}))
    pairs.add_latency("b", "c", 20.0)
    found = []
    for made in (matrix, pairs):
        for node in ids:
            made.add_node(node, capacity="100/s")
        made.add_stream("left", [{"id": "l", "node": "a", "rate": 1}])
        made.add_stream("right", {"id": "r", "node": "b", "rate": "1/s"})
        made.add_query("q", left="left", right="right", sink="c", window=500)
        found.append(made.scenario())
    assert found[0].digest == found[1].digest
    assert found[0].problem.queries[0].window_ms == 500


def test_faults_of_a_table_in_memory_name_row_and_field() -> None:
    wrong = {**SMALL, "nodes": pd.DataFrame(SMALL["nodes"]).assign(capacity=[1, 2, -3, 4, 5])}
    with pytest.raises(nova.InvalidInput) as error:
        nova.load(wrong)
    fault = error.value.faults[0]
    assert (fault.file, fault.row, fault.field, fault.value) == ("scenario: nodes", 3, "capacity", -3)


def test_a_plan_is_a_table_and_has_typed_figures() -> None:
    plan = nova.optimize(model())
    frame = plan.to_pandas()
    assert list(frame.columns) == plan.to_arrow().column_names
    assert len(frame) == plan.summary.replicas == plan.summary["replicas"]
    assert plan.summary.sub_joins == 2
    assert plan.summary.overloaded_nodes == 0
    assert plan.cost() == nova.evaluate(plan, bound=False).cost_latency_ms
    paper = nova.optimize(model(), objective="paper")
    assert paper.cost() == nova.evaluate(paper, bound=False).cost_paper_ms
    assert "2 sub-joins" in repr(plan)
    assert "<table>" in plan._repr_html_()
    assert "climate" in plan._repr_html_()


def test_a_plan_is_saved_and_loaded_without_a_problem_at_hand(tmp_path: Path) -> None:
    plan = nova.optimize(model())
    folder = plan.save(tmp_path / "plan")
    again = nova.Plan.load(folder)
    assert again.to_arrow() == plan.to_arrow()
    assert (again.options, again.digest, again.summary) == (plan.options, plan.digest, plan.summary)
    assert again.problem.digest == plan.problem.digest
    assert again.cost() == plan.cost()
    again.save(folder)  # a plan replaces a plan
    assert nova.Plan.load(folder).to_arrow() == plan.to_arrow()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(nova.InvalidInput, match="other things than a plan"):
        plan.save(tmp_path / "other")


def test_the_command_line_and_python_read_each_others_plans(tmp_path: Path) -> None:
    file = write_scenario(tmp_path)
    assert invoke("plan", file, "-o", tmp_path / "plan").exit_code == 0
    plan = nova.Plan.load(tmp_path / "plan")
    assert plan.problem.digest == nova.load(file).digest
    plan.save(tmp_path / "plan2")
    for scenario in (file, tmp_path / "plan2" / "scenario" / "scenario.yaml"):
        answer = invoke("evaluate", scenario, tmp_path / "plan2", "--json")
        assert json.loads(answer.stdout)["matches_scenario"], answer.output
    (tmp_path / "plan" / "scenario" / "scenario.yaml").unlink()
    with pytest.raises(nova.InvalidInput, match="name the scenario"):
        nova.Plan.load(tmp_path / "plan")
    assert nova.Plan.load(tmp_path / "plan", file).cost() == plan.cost()
    with pytest.raises(nova.InvalidInput, match="no such plan"):
        nova.Plan.load(tmp_path / "nowhere")


def test_a_plan_is_judged_by_another_version_of_its_scenario() -> None:
    plan = nova.optimize(model())
    nodes = [{**node, "x": node["x"] * 2, "y": node["y"] * 2} for node in SMALL["nodes"]]
    far = nova.load({**SMALL, "nodes": nodes})
    assert nova.evaluate(far, plan, bound=False).cost_latency_ms == plan.cost()  # its own cost space still
    assert nova.simulate(far, plan, duration_s=1).served == nova.simulate(plan, duration_s=1).served
    for wrong in ((plan, plan), (far,)):
        with pytest.raises(nova.InvalidInput):
            nova.evaluate(*wrong)  # type: ignore[arg-type]


def test_a_plan_explains_itself() -> None:
    plan = nova.optimize(model())
    *phases, felt = [stage.name for stage in plan.explain()]
    assert [name.split()[1].rstrip(":") for name in phases] == ["I", "II", "II", "III"], phases
    assert felt.startswith("What it feels like")
    host = plan.to_arrow()["node"][0].as_py()
    assert plan.explain(node=host).hosted
    assert plan.explain(join=("p1", "h1"))[0].parts
    with pytest.raises(nova.InvalidInput, match="not both"):
        plan.explain(node=host, join=("p1", "h1"))  # type: ignore[call-overload]


def test_a_plan_shows_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = nova.optimize(model())
    assert "<iframe srcdoc=" in plan.show()._repr_html_()
    assert plan.show(tmp_path / "plan.html").read_text().startswith("<!")
    monkeypatch.setitem(sys.modules, "nova.draw.png", None)
    monkeypatch.delitem(sys.modules, "nova.draw.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"plan.show\(\) needs matplotlib: pip install 'nova-placement\[plot\]'"):
        plan.show(tmp_path / "plan.png")


def test_approaches_stand_side_by_side(tmp_path: Path) -> None:
    compared = nova.compare(model(), ["nova", "sink", "top-c"], simulated_s=1, seed=4)
    assert [row["approach"] for row in compared.rows] == list(compared.plans) == ["nova", "sink", "top-c"]
    assert list(compared.to_pandas()["approach"]) == list(compared.plans)
    assert compared.plans["sink"].summary.overloaded_nodes == 1
    assert compared.plans["sink"].approach == "sink"
    assert "top-c" in compared._repr_html_()
    assert compared.show(tmp_path / "compare.png").exists()
    with pytest.raises(nova.InvalidInput, match="no approach"):
        nova.compare(model(), ["magic"])


def test_events_change_a_plan(tmp_path: Path) -> None:
    plan = nova.optimize(model())
    host = plan.to_arrow()["node"][0].as_py()
    gone = {"event": "node_removed", "node": host}
    lines = tmp_path / "events.jsonl"
    lines.write_text(json.dumps(gone) + "\n")
    answers = [nova.reoptimize(plan, what) for what in (nova.events.NodeRemoved(node=host), gone, [gone], lines)]
    for answer in answers:
        assert answer.changes == answers[0].changes
        assert host not in answer.plan.to_arrow()["node"].to_pylist()
    after = answers[0].plan
    assert nova.Plan.load(after.save(tmp_path / "after")).to_arrow().num_rows == after.summary.replicas
    running = after.controller()
    assert running.handle(nova.events.RateChanged(source="p2", stream="pressure", rate=1.0)) is not None


def test_a_plan_of_nothing_says_why_it_has_no_scenario(tmp_path: Path) -> None:
    """Without its node, a stream has no source, and no two sources join."""
    after = nova.reoptimize(nova.optimize(model()), nova.events.NodeRemoved(node="edge1")).plan
    assert after.summary.replicas == 0
    with pytest.raises(nova.InvalidInput, match="no two sources join any more"):
        nova.Plan.load(after.save(tmp_path / "after"))
