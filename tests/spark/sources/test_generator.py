from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from nova.model.errors import InvalidInput
from nova.spark.sources import generator
from nova.spark.sources.generator import Pattern, Source, generate, tuples_between

START_MS = 1_700_000_000_000
SOURCE = Source("p1", 40.0)


def test_any_stretch_of_time_can_be_made_again() -> None:
    pattern = Pattern(seed=4, keys=9, skew=1.0, disorder_ms=300, burst_every_ms=2000, burst_ms=500, burst_factor=3)
    whole = tuples_between(SOURCE, pattern, -1, 10_000, START_MS)
    cuts = [-1.0, 130.0, 131.0, 2750.5, 9999.0, 10_000.0]
    parts = pa.concat_tables([tuples_between(SOURCE, pattern, a, b, START_MS) for a, b in pairwise(cuts)])

    def rows(table: pa.Table) -> list[tuple[object, ...]]:
        return sorted(zip(*table.to_pydict().values(), strict=True))

    assert rows(parts) == rows(whole)
    assert len(whole) == pytest.approx(40 * 10 * (1 + 2 * 0.25), rel=0.05)


def test_only_the_named_sources_have_anomalies() -> None:
    pattern = Pattern.of(
        {
            "seed": 1,
            "length": "10s",
            "swing": 0,
            "noise": 0,
            "mean": 5,
            "anomaly_every": "5s",
            "anomaly": "1s",
            "anomaly_shift": -3,
            "anomaly_sources": "p2, p3",
        },
        "scenario",
    )
    made = generate([Source(f"p{i}", 20.0) for i in (1, 2, 3)], pattern, -1, 1e9, START_MS)
    second = (made["event_time"].cast(pa.int64()).to_numpy() - START_MS * 1000) / 1e6
    strange = np.isin(made["source_id"].to_pylist(), ["p2", "p3"]) & (second % 5 >= 4)
    assert np.array_equal(made["value"].to_numpy(), np.where(strange, 2.0, 5.0))
    assert strange.any()
    everybody = Pattern.of({"anomaly_every": "5s"}, "scenario")
    assert everybody.strange("p1")
    assert not Pattern().strange("p1")


def test_wrong_options_are_named() -> None:
    with pytest.raises(InvalidInput, match="anomaly_sauces"):
        Pattern.of({"anomaly_sauces": "p1"}, "scenario")
    with pytest.raises(InvalidInput, match=r"options\.length"):
        Pattern.of({"length": "ten"}, "scenario")


def test_a_batch_takes_in_a_bounded_number_of_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live stream that was not read for long comes in bites, and nothing is left out."""
    monkeypatch.setattr(generator, "MOST_ROWS", 100)
    sources, pattern = [Source("a", 300.0), Source("b", 100.0)], Pattern(length_ms=1000)
    reader = generator.GeneratorReader(generator.spec(sources, pattern))
    at = {**reader.initialOffset(), "start_ms": START_MS}  # long ago
    sizes = []
    while not at["ended"]:
        end = reader.latestOffset(at, None)
        sizes.append(sum(len(batch) for part in reader.partitions(at, end) for batch in reader.read(part)))
        at = end
    assert max(sizes) <= 101
    assert sum(sizes) == len(generate(sources, pattern, -1, 1e9, START_MS)) == 400
