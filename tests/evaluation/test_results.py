"""Results as traffic: what joins put out, and whether sinks can take it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nova.evaluation.results import traffic
from nova.model.problem import Key
from nova.model.rates import result_rates
from nova.placement.resolve import resolve
from on_a_line import plan_of, problem


def test_results_are_the_stated_ones_and_at_most_all_pairs():
    stated = problem([100.0], rates=(30.0, 20.0), output=7.0)
    assert result_rates(stated, resolve(stated)) == pytest.approx([7.0])
    dreamt = problem([100.0], rates=(3.0, 2.0), output=100.0, window_ms=500.0)
    assert result_rates(dreamt, resolve(dreamt)) == pytest.approx([3.0])
    silent = problem([100.0], rates=(30.0, 20.0), window_ms=500.0)
    assert result_rates(silent, resolve(silent)) == pytest.approx([300.0])


def test_a_sink_that_gets_too_much_and_a_cross_product_are_told_with_figures():
    """825 tuples/s on either side become 680,625 results/s in windows of a second."""
    drawn = problem([2000.0], rates=(825.0, 825.0))
    capacity = drawn.nodes.capacity.copy()
    capacity[0] = 50.0
    drawn = replace(drawn, nodes=replace(drawn.nodes, capacity=capacity))
    told = traffic(drawn, plan_of(drawn, [(0, 3, 0, 1, 0, 1, 0, 1)]))
    assert told.total == told.network == told.unstated == pytest.approx(825.0**2)
    assert [sink.sink for sink in told.sinks if sink.overloaded] == ["n0"]
    full, cross = told.warnings()
    assert "n0 gets 680,625 results/s" in full
    assert "can take 50" in full
    assert "1,650 tuples/s in become 680,625 results/s" in cross


def test_a_sink_that_hosts_the_join_takes_its_input_too():
    drawn = problem([100.0], rates=(30.0, 20.0), output=10.0)
    capacity = drawn.nodes.capacity.copy()
    capacity[0] = 55.0
    drawn = replace(drawn, nodes=replace(drawn.nodes, capacity=capacity, hosts=np.ones(4, bool)))
    told = traffic(drawn, plan_of(drawn, [(0, 0, 0, 1, 0, 1, 0, 1)]))
    assert told.network == 0.0
    assert told.sinks[0].overloaded  # 50 + 10 on 55
    assert "50 tuples/s of other input" in told.warnings()[0]


def test_keys_tell_how_many_pairs_match() -> None:
    """Of 300 pairs/s, one of a hundred keys matches one in a hundred; a key that half the tuples have, a quarter."""
    plain = problem([100.0], rates=(30.0, 20.0), window_ms=500.0)
    query = replace(plain.queries[0], key=Key(("k",), 100))
    even = replace(plain, queries=(query,))
    assert result_rates(even, resolve(even)) == pytest.approx([3.0])
    skewed = replace(plain, queries=(replace(query, key=Key(("k",), 101, (0.5,))),))
    assert result_rates(skewed, resolve(skewed)) == pytest.approx([300 * (0.25 + 0.25 / 100)])
    unknown = replace(plain, queries=(replace(query, key=Key(("k",))),))
    assert result_rates(unknown, resolve(unknown)) == pytest.approx([300.0])
    told = traffic(even, plan_of(even, [(0, 3, 0, 1, 0, 1, 0, 1)]))
    assert (told.estimated, told.unstated) == (pytest.approx(3.0), 0.0)
