"""NEXMark on 100 nodes: all queries in one run, each with the rows of Spark SQL in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

import auctions
import nexmark
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Run, Settings

PLAIN: dict[str, str] = {
    "q0": nexmark.QUERIES["q0"],
    "q1": nexmark.QUERIES["q1"],
    "q2": nexmark.QUERIES["q2"],
    "q3": nexmark.QUERIES["q3"],
    "q4": """SELECT timestamp_micros(w * 5000000), category, avg(final) FROM (
             SELECT unix_micros(a.date_time) div 5000000 AS w, a.category, a.id, max(b.value) AS final
             FROM bid b JOIN auction a ON a.id = b.auction AND b.date_time >= a.date_time AND b.date_time <= a.expires
             GROUP BY unix_micros(a.date_time) div 5000000, a.category, a.id) GROUP BY w, category""",
    "q5": """WITH counts AS (SELECT window.start AS w, auction, count(*) AS n FROM bid
             GROUP BY window(date_time, '6 seconds', '2 seconds'), auction)
             SELECT w, auction, n FROM counts JOIN (SELECT w, max(n) AS n FROM counts GROUP BY w) USING (w, n)""",
    "q7": """WITH wide AS (SELECT *, timestamp_micros((unix_micros(date_time) div 2000000 + 1) * 2000000) AS w FROM bid)
             SELECT w, auction, bidder, value, count(*) FROM wide JOIN
             (SELECT w, max(value) AS value FROM wide GROUP BY w)
             USING (w, value) GROUP BY w, auction, bidder, value""",
    "q8": """SELECT DISTINCT p.id, p.name, timestamp_micros(unix_micros(p.date_time) div 5000000 * 5000000)
             FROM person p JOIN auction a ON p.id = a.seller
             AND unix_micros(p.date_time) div 5000000 = unix_micros(a.date_time) div 5000000""",
    "q9": """SELECT id, bidder, value, at FROM (SELECT a.id, b.bidder, b.value, b.date_time AS at,
             row_number() OVER (PARTITION BY a.id ORDER BY b.value DESC, b.date_time, b.bidder) AS place
             FROM bid b JOIN auction a ON a.id = b.auction AND b.date_time >= a.date_time AND b.date_time <= a.expires)
             WHERE place = 1""",
    "q9_inner": nexmark.QUERIES["q9_inner"],
    "shares": """SELECT timestamp_micros(w + 4000000), channel, count(*), sum(CASE WHEN value > 500 THEN 1 ELSE 0 END),
                 round(avg(value) / count(*), 6), count(DISTINCT bidder) FROM (
                 SELECT explode(array(s, s - 2000000)) AS w, t.* FROM (
                 SELECT b.*, a.date_time AS opened, unix_micros(b.date_time) div 2000000 * 2000000 AS s
                 FROM bid b JOIN auction a ON b.auction = a.id WHERE NOT (a.category = 11 OR b.channel LIKE 'w%')) t)
                 WHERE unix_micros(opened) >= w AND unix_micros(opened) < w + 4000000 GROUP BY w, channel""",
}


def test_all_queries_in_one_run(spark: Any, tmp_path: Path) -> None:
    tables = nexmark.events()
    loaded = load(nexmark.scenario(tmp_path / "s", tables))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    job = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=2000))
    job.start()
    job.wait()
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet", index=False)
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    for name, text in PLAIN.items():
        parts = [pd.read_parquet(file) for file in sorted((tmp_path / "run" / "results").glob(f"{name}-*.parquet"))]
        found = auctions.rows(record for part in parts for record in part.itertuples(index=False))
        expected = auctions.rows(spark.sql(text).collect())
        assert found == expected, name
        assert found, name
