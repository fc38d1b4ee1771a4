from __future__ import annotations

from pathlib import Path
from typing import Any

from nova.spark.job.folder import RunFolder
from nova.spark.realtime.feeds import Generated, Paced
from nova.spark.realtime.inputs import open_streams
from nova.spark.sources.inputs import feeds_of
from runs import scenario


def test_generated_streams_begin_together_when_all_is_at_work(spark: Any, tmp_path: Path) -> None:
    """Not when Spark was still starting: their first tuples would be late for that. Those of another start go on."""
    plain, told = {"format": "generator"}, {"format": "generator", "options": {"start_ms": 7000}}
    loaded, _ = scenario(tmp_path / "s", {"pressure": plain, "humidity": told})

    def begins(begin_ms: int) -> dict[str, int]:
        streams = open_streams(spark, feeds_of(loaded), RunFolder(tmp_path / "run"), None)
        found = {}
        for name, stream in streams.items():
            feed = stream.feed([], begin_ms)
            assert isinstance(feed, Paced)
            assert isinstance(feed.blocks, Generated)
            next(feed.blocks.after(0))  # notes where it began
            found[name] = feed.blocks.start_ms
        return found

    assert begins(123_000) == {"pressure": 123_000, "humidity": 7000}
    assert begins(456_000) == {"pressure": 123_000, "humidity": 7000}
