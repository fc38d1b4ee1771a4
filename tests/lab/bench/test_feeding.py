"""Tuples as others bring them: all of them arrive, in seconds, and the last ones close the windows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova.spark.sources.generator import Pattern, Source, generate
from nova_lab.bench.feeding import CLOSING_MS, Streams, _texts, feeding

SOURCES = {"humidity": [Source("h1", 20.0)], "pressure": [Source("p1", 30.0), Source("p2", 10.0)]}
STREAMS = Streams(SOURCES, Pattern(seed=1, keys=5, length_ms=2000), 2)


def test_files_hold_every_tuple_once_and_what_closes_the_last_window(tmp_path: Path) -> None:
    with feeding("files", tmp_path, STREAMS) as fed:
        assert {name: one["format"] for name, one in fed.inputs.items()} == dict.fromkeys(SOURCES, "parquet")
        fed.begin()
        end = time.monotonic() + 60
        while not fed.done:
            assert time.monotonic() < end
            time.sleep(0.05)
    for name, sources in SOURCES.items():
        files = sorted((tmp_path / name).glob("*.parquet"))
        *seconds, closing = [pq.read_table(file) for file in files]
        drawn = generate(sources, STREAMS.pattern, -1, 1e9, 0)
        assert pa.concat_tables(seconds)["value"].to_pylist() == [
            value for second in range(3) for value in STREAMS.of_second(name, second, 0)["value"].to_pylist()
        ]
        assert sum(map(len, seconds)) == len(drawn)
        assert closing["source_id"].to_pylist() == [source.id for source in sources]
        latest = pc.max(pa.concat_tables(seconds)["event_time"]).as_py()
        assert min(closing["event_time"].to_pylist()) - latest > CLOSING_MS


def test_what_closes_windows_joins_nothing() -> None:
    one, other = (STREAMS.closing(name, 0)["key"].to_pylist() for name in SOURCES)
    assert not set(one) & set(other)
    assert max(one + other) < 0  # keys of tuples begin with 0


def test_messages_are_tuples_as_inputs_read_them() -> None:
    (text,) = _texts(STREAMS.closing("humidity", 500))
    assert json.loads(text) == {"source_id": "h1", "event_time": 500 + 2000 + CLOSING_MS, "value": 0.0, "key": -1}
