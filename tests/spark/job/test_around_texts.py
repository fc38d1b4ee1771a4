"""Many texts as users write them: each gives the rows of Spark SQL in batch, of tuples that come in no order.

Texts are the same for both, but for windows: `$same(x,y)` says that two times lie in one window of two seconds,
`$start(x)` and `$end(x)` are its bounds, `$by(x)` groups by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import auctions
import market
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Run, Settings

FIVE = """SELECT b.value, a.category, p.city, v.page, w.page AS again FROM bids b JOIN auctions a ON b.auction = a.id
    AND $same(b,a) JOIN people p ON a.seller = p.id AND $same(a,p) JOIN visits v ON v.visitor = p.id AND $same(v,p) JOIN
    visits w ON w.visitor = b.bidder AND $same(w,b) AND w.page <> v.page WHERE b.value > 60"""
UNITS = """SELECT id, try_cast(value AS int) AS v, date_trunc('second', at) AS s, timestampdiff(SECOND, TIMESTAMP
    '2023-01-01 00:00:00', at) AS gone FROM auctions WHERE CASE WHEN category > 4 THEN value > 20 ELSE TRUE END"""
RIGHT = """SELECT $start(p) AS w, p.city, count(a.id) AS n, sum(a.value) AS s FROM auctions a RIGHT JOIN people p ON
    a.seller = p.id AND $same(a,p) GROUP BY $by(p), p.city"""
TEXTS: dict[str, str] = {
    "scalars": """SELECT CASE WHEN b.value > 150 THEN 'high' WHEN b.value > 50 THEN 'mid' ELSE NULL END AS class, CASE
        a.category WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS word, if(b.value % 2 = 0, 'even', 'odd') AS
        parity, coalesce(b.bidder, -1) AS bidder, nvl(a.seller, 0) + 1 AS seller, nullif(b.value, 7) AS n7,
        cast(b.value AS decimal(10, 2)) / 3 AS third, b.value::string || '-' || a.id AS label, -b.value AS
        neg, b.value & 6 AS bits, b.value div 7 AS d, b.value % 7 AS m, greatest(b.value, a.value) AS top,
        date_format(b.at, 'HH:mm:ss.SSS') AS t, unix_millis(a.at) AS ms, round(b.value / 3, 2) AS r, b.value
        BETWEEN 10 AND 50 AS mid FROM bids b JOIN auctions a ON b.auction = a.id AND $same(b,a)""",
    "functions": """SELECT concat_ws('/', cast(b.auction AS string), 'x') AS path, split('a,b,c', ',')[1] AS part,
        transform(array(b.value, a.value), e -> e * 2)[0] AS doubled, array_contains(array(1, 2, 3),
        a.category) AS has, struct(b.value, a.value AS reserve).reserve AS inner_value,
        regexp_replace('a1b2', '[0-9]', '#') AS re, hash(b.auction) AS h, extract(SECOND FROM b.at) AS s,
        substring('abcdef', 2, 3) AS sub, trim(BOTH 'x' FROM 'xxyxx') AS tr, map('k', b.value)['k'] AS mv,
        named_struct('q', a.seller).q AS nq, sha2(cast(b.value AS string), 256) AS sha FROM bids b JOIN
        auctions a ON b.auction = a.id AND $same(b,a) WHERE b.value > 30""",
    "null safe key": """SELECT b.value AS bv, a.value AS av, b.auction, a.id FROM bids b JOIN auctions a ON
        b.auction <=>
        a.id AND $same(b,a)""",
    "quoted": """SELECT `b`.`value` AS `My Value`, a.value AS `größe`, b.at AS `time`, a.id AS `select` FROM bids AS
        `b` JOIN `auctions` a ON `b`.auction = a.`id` AND $same(b,a)""",
    "self interval": """SELECT x.value AS xv, y.value AS yv, unix_millis(y.at) - unix_millis(x.at) AS gap FROM bids x
        JOIN bids y ON x.bidder = y.bidder AND y.at > x.at AND y.at <= x.at + INTERVAL '400' MILLISECOND""",
    "equal times": """SELECT b.value, a.value AS av FROM bids b JOIN auctions a ON b.at = a.at + INTERVAL '3'
        MILLISECOND""",
    "left anti": """SELECT b.value, b.auction FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND $same(b,a) AND
        a.category = 3 WHERE a.id IS NULL""",
    "group merge": """SELECT $start(b) AS w, a.category + 1 AS c, mean(b.value) AS m, std(b.value) AS sd,
        stddev_samp(a.value) AS ss, var_samp(a.value) AS vs, sum(b.value) FILTER (WHERE b.value > 100) AS
        big, count(*) FILTER (WHERE b.bidder IS NULL) AS nobody, sum(b.value) / count(*) AS ratio,
        max(b.value) - min(b.value) AS span, count(1) AS ones, sum(CASE WHEN a.value > 50 THEN 1 ELSE 0 END)
        AS high FROM bids b JOIN auctions a ON b.auction = a.id AND $same(b,a) GROUP BY $by(b), a.category +
        1""",
    "group spark": """SELECT $start(b) AS w, sort_array(collect_set(b.bidder)) AS who, percentile(b.value, 0.25) AS q,
        percentile(b.value, array(0.1, 0.9)) AS qs, max_by(b.value, a.value * 1000 + b.value) AS best,
        median(a.value) AS med, approx_count_distinct(b.auction) AS acd, count_if(b.value > 50) AS ci,
        bool_and(b.value > 0) AS every_one, corr(b.value, a.value) AS c, skewness(b.value) AS sk,
        bit_or(b.value) AS bo, try_sum(b.value) AS ts, count(DISTINCT
        b.auction, b.bidder) AS pairs, sum(DISTINCT b.value) AS sd FROM bids b JOIN auctions a ON b.auction
        = a.id AND $same(b,a) GROUP BY $by(b)""",
    "having": """SELECT $start(b) AS w, b.auction AS k, sum(b.value) AS total FROM bids b JOIN auctions a ON
        b.auction = a.id AND $same(b,a) GROUP BY $by(b), b.auction HAVING total > 500 AND max(a.value) > 20
        AND count(*) BETWEEN 2 AND 100""",
    "group alias": """SELECT $start(b) AS w, percentile_cont(0.3) WITHIN GROUP (ORDER BY b.value) AS pc,
        listagg(cast(b.value AS string)) WITHIN GROUP (ORDER BY b.value) AS every, CASE WHEN b.value > 100 THEN
        'high' ELSE 'low' END AS class, count(*) AS n
        FROM bids b JOIN auctions a ON b.auction = a.id AND $same(b,a) GROUP BY $by(b), CASE WHEN b.value >
        100 THEN 'high' ELSE 'low' END""",
    "four": """SELECT b.value, a.category, p.city, v.page FROM bids b JOIN auctions a ON b.auction = a.id AND
        $same(b,a) JOIN people p ON a.seller = p.id AND $same(a,p) JOIN visits v ON v.visitor = p.id AND
        $same(v,p) AND v.value > b.value WHERE b.value > 120 OR v.page = 3""",
    "brackets": """WITH big AS (SELECT * FROM bids WHERE value > 100) SELECT big.value + 1, a.c, a.k FROM big LEFT JOIN
        (SELECT id AS k, coalesce(category, -1) AS c, at FROM auctions WHERE value > 50) a ON big.auction = a.k AND
        $same(big,a)""",
    "brackets around a join": """SELECT $start(t) AS w, t.category, max(t.v) AS m FROM (SELECT a.at, a.category,
        b.value * 2 AS v FROM bids b JOIN auctions a ON b.auction = a.id AND $same(b,a)) t
        GROUP BY $by(t), t.category""",
    "difference": """SELECT b.value, a.value AS av FROM bids b JOIN auctions a ON b.auction = a.id AND
        b.at - a.at BETWEEN INTERVAL '0' SECOND AND INTERVAL '1 second 500 milliseconds'""",
    "chain left": """SELECT b.value, a.value AS av, v.page FROM bids b JOIN auctions a ON b.auction = a.id AND
        $same(b,a) LEFT JOIN visits v ON v.visitor = a.seller AND $same(v,a) AND v.value > b.value WHERE
        b.value > 100""",
}
OTHERS: dict[str, tuple[str, str]] = {
    "flink window join": (
        """SELECT L.auction, L.value, R.category FROM
           (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECONDS)) WHERE value > 50) L LEFT JOIN
           (SELECT id, category, window_start, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at),
           INTERVAL '2' SECONDS))) R
           ON L.auction = R.id AND L.window_start = R.window_start AND L.window_end = R.window_end""",
        """SELECT b.auction, b.value, a.category FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND $same(b,a)
           WHERE b.value > 50""",
    ),
    "risingwave": (
        """SELECT window_start, count(DISTINCT auction) FILTER (WHERE value < 100) AS few, sum(value) AS s
           FROM TUMBLE(bids, at, INTERVAL '2 seconds') WHERE bidder BETWEEN 1 AND 6 GROUP BY window_start""",
        """SELECT $start(b) AS w, count(DISTINCT auction) FILTER (WHERE value < 100) AS few, sum(value) AS s FROM bids b
           WHERE bidder BETWEEN 1 AND 6 GROUP BY $by(b)""",
    ),
    "numbers": (
        """SELECT window(at, '2 seconds').end AS e, upper(substr(city, 1, 2)) AS c, count(*) AS n, max(value) AS m
           FROM people WHERE city LIKE '%o%' AND city NOT IN ('bonn') GROUP BY 1, 2 HAVING n >= 1""",
        """SELECT $end(p) AS e, upper(substr(city, 1, 2)) AS c, count(*) AS n, max(value) AS m FROM people p
           WHERE city LIKE '%o%' AND city NOT IN ('bonn') GROUP BY $by(p), upper(substr(city, 1, 2)) HAVING n >= 1""",
    ),
    "five streams": (FIVE, FIVE),
    "units": (UNITS, UNITS),
    "ranks of rows, as Flink writes them": (
        """SELECT auction, value, place FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end,
           auction ORDER BY value DESC, at, bidder) AS place
           FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL '2' SECONDS))
           WHERE bidder > 1) WHERE place <= 2""",
        """SELECT auction, value, place FROM (SELECT *, row_number() OVER (PARTITION BY $by(b), auction
           ORDER BY value DESC, at, bidder) AS place FROM bids b WHERE bidder > 1) WHERE place <= 2""",
    ),
    "ranks of joined rows": (
        """SELECT id, value, place FROM (SELECT a.id, b.value, rank() OVER (PARTITION BY
           TUMBLE_START(a.at, INTERVAL '2' SECOND), a.id ORDER BY b.value DESC) AS place FROM auctions a JOIN bids b
           ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '1' SECOND) WHERE place <= 2""",
        """SELECT id, value, place FROM (SELECT a.id, b.value, rank() OVER (PARTITION BY $by(a), a.id
           ORDER BY b.value DESC) AS place FROM auctions a JOIN bids b
           ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '1' SECOND) WHERE place <= 2""",
    ),
    "above the mean": (
        """SELECT g.auction, g.m - t.m AS above FROM (SELECT auction, avg(value) AS m, window_start AS w
           FROM TUMBLE(bids, at, INTERVAL '2' SECOND) GROUP BY auction, window_start) g
           JOIN (SELECT avg(value) FILTER (WHERE bidder > 2) AS m, window_start AS w
           FROM TUMBLE(bids, at, INTERVAL '2' SECOND) GROUP BY window_start) t ON g.w = t.w""",
        """SELECT g.auction, g.m - t.m AS above FROM (SELECT b.auction, avg(value) AS m, $by(b) AS w FROM bids b
           GROUP BY b.auction, $by(b)) g JOIN (SELECT avg(value) FILTER (WHERE bidder > 2) AS m, $by(b) AS w
           FROM bids b GROUP BY $by(b)) t ON g.w = t.w""",
    ),
    "right groups": (RIGHT, RIGHT),
}
"""As others write them, and in Spark's SQL for batches."""


def nova_sql(text: str) -> str:
    """A text in Nova's dialect."""
    size = "INTERVAL '2' SECOND"
    text = re.sub(r"\$same\((\w+),(\w+)\)", rf"TUMBLE(\1.at, {size}) = TUMBLE(\2.at, {size})", text)
    text = re.sub(r"\$by\((\w+)\)", rf"TUMBLE(\1.at, {size})", text)
    return re.sub(r"\$(start|end)\(\w+\)", r"window_\1", text)


def batch_sql(text: str) -> str:
    """The same for Spark in batch."""

    def number(name: str) -> str:
        return f"(unix_micros({name}.at) div 2000000)"

    text = re.sub(r"\$same\((\w+),(\w+)\)", lambda m: f"{number(m[1])} = {number(m[2])}", text)
    text = re.sub(r"\$by\((\w+)\)", lambda m: number(m[1]), text)
    text = re.sub(r"\$start\((\w+)\)", lambda m: f"timestamp_micros({number(m[1])} * 2000000)", text)
    return re.sub(r"\$end\((\w+)\)", lambda m: f"timestamp_micros({number(m[1])} * 2000000 + 2000000)", text)


def rows(records: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, arrays as tuples."""
    return auctions.rows(tuple(tuple(v) if isinstance(v, list) else v for v in record) for record in records)


def test_rows_equal_spark(spark: Any, tmp_path: Path) -> None:
    """All texts in one run, which must be in the dialect as well as understood."""
    tables = market.tables()
    texts = {name: (text, text) for name, text in TEXTS.items()} | OTHERS
    ids = {f"t{number}": name for number, name in enumerate(texts)}
    queries = {query: nova_sql(texts[name][0]) for query, name in ids.items()}
    loaded = load(market.scenario(tmp_path / "s", tables, queries, 2, in_order=False))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=10_000))
    run.start()
    run.wait()
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet", index=False)
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    wrong = []
    for query, name in ids.items():
        files = [str(file) for file in (tmp_path / "run" / "results").glob(f"{query}-*.parquet")]
        found = rows(spark.read.parquet(*files).collect()) if files else rows([])
        expected = rows(spark.sql(batch_sql(texts[name][1])).collect())
        if found != expected or not found:
            wrong.append((name, sum(found.values()), sum(expected.values()), list((found - expected).items())[:2]))
    assert not wrong
