"""Events of every kind for property tests, whatever the plan."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from nova.controller import events as e
from nova.model.ids import has_control

names = st.text(min_size=1, max_size=6).filter(lambda text: not has_control(text))
rates = st.floats(0, 1e12)
ms = st.floats(1e-3, 1e6)
maybe_time = st.none() | st.floats(-1e15, 1e15)
events: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(
        e.NodeAdded,
        node=names,
        capacity=rates | st.just(math.inf),
        bandwidth=rates | st.just(math.inf),
        hosts=st.booleans(),
        coordinates=st.tuples(ms, ms, ms),
        height=ms,
        time=maybe_time,
    ),
    st.builds(e.NodeMoved, node=names, rtts=st.dictionaries(names, ms, min_size=1, max_size=4), time=maybe_time),
    st.builds(e.CapacityChanged, node=names, capacity=st.none() | rates, hosts=st.none() | st.booleans()),
    st.builds(e.LatencyMeasured, from_node=names, to_node=names, rtt_ms=ms).filter(lambda m: m.from_node != m.to_node),
    st.builds(
        e.SourceAdded,
        stream=names,
        source=names,
        node=names,
        rate=rates,
        attributes=st.none() | st.dictionaries(names, names, max_size=2),
        partners=st.none() | st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=2),
    ),
    st.builds(e.RateChanged, stream=names, source=names, rate=rates),
    st.builds(e.PairAllowed, query=names, left=names, right=names, output_rate=st.none() | rates),
    st.builds(
        e.QueryAdded,
        query=names,
        left=st.just("a"),
        right=st.just("b"),
        sink=names,
        window_ms=ms,
        pairs=st.none() | st.lists(st.tuples(names, names), max_size=3).map(tuple),
    ),
    st.builds(e.SinkMoved, query=names, sink=names),
    st.builds(
        e.SelectivityMeasured,
        query=names,
        selectivity=st.dictionaries(names, st.floats(0, 1), min_size=1, max_size=3),
    ),
)
