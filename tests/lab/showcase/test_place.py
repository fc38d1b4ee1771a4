from __future__ import annotations

from pathlib import Path

from nova.evaluation.approaches import embedded, run
from nova.optimizer import optimize
from nova.scenario import load
from nova_lab.showcase.place import LEFT, REGIONS, generated


def test_generated_sensors_make_a_scenario_that_nova_fits_and_the_sink_does_not(tmp_path: Path) -> None:
    file, sensors = generated(tmp_path, 10, 20.0, 7)
    scenario = load(file)
    assert not scenario.warnings
    assert len(sensors) == len(scenario.problem.sources) == 4 * len(REGIONS)
    assert {sensor.region for sensor in sensors if sensor.stream == LEFT} == {region.name for region in REGIONS}
    plan = optimize(scenario.problem, scenario.options)
    assert not len(plan.overloaded)
    hosts = scenario.problem.nodes.ids.take(plan.replicas.node).to_pylist()
    assert "cloud" not in hosts  # there is room near the sensors
    problem, space = embedded(scenario.problem, scenario.options)
    for approach in ("sink", "source"):
        assert len(run(approach, problem, space, scenario.options)[0].plan.overloaded)


def test_same_seed_same_scenario(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generated(tmp_path / name, 10, 20.0, seed)
    read = {name: (tmp_path / name / "nodes.csv").read_text() for name in "abc"}
    assert read["a"] == read["b"] != read["c"]
