from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova.scenario.model import StreamInput
from nova.spark.sources import inputs
from nova.spark.sources.inputs import Files


def test_a_batch_takes_in_a_bounded_part_of_the_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files wait, and always one, however large it is."""
    (tmp_path / "p").mkdir()
    rows = [100, 100, 100, 5000, 100]
    for number, count in enumerate(rows):
        lines = "".join(f'{{"source": "p1", "time": {1000 * number + k}, "value": 1.5}}\n' for k in range(count))
        (tmp_path / "p" / f"{number}.json").write_text(lines)
    monkeypatch.setattr(inputs, "MOST_BYTES", 2 * (tmp_path / "p" / "0.json").stat().st_size + 50)
    files = Files(StreamInput(format="json", path="p"), tmp_path, "p")
    batches: list[int] = []
    writer = files.stream(spark, files.schema(spark).json()).writeStream.foreachBatch(
        lambda frame, _: batches.append(frame.count())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert sum(batches) == sum(rows)
    assert max(batches) <= 5000 + 100
    assert len(batches) >= 3
