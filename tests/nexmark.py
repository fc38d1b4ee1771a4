"""NEXMark for tests: persons open auctions and bid; a generator after the benchmark's own proportions, and its queries.

Queries 0 to 5 and 7 to 9, with a window where the original has none (a stream has no end): 3 bounds how long after a
person its auctions come, 4 and 9 how long an auction lasts, and they group auctions by when they were opened. 6
averages over the last ten auctions of a seller, by count and not by time, which no window here is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from builders import write_scenario

START_MS = 1_700_000_000_000
SHARES = {"person": 1, "auction": 3, "bid": 46}
"""Of fifty events, as in the original."""
SECONDS = 20
STREAMS = {
    "person": ["id", "name", "city", "state"],
    "auction": ["id", "seller", "category", "expires"],
    "bid": ["auction", "bidder", "channel"],
}


def events(count: int = 1500, seed: int = 1) -> dict[str, pd.DataFrame]:
    """About `count` events, in order of time."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, SECONDS * 1000, count)) + START_MS
    kind = rng.choice(list(SHARES), count, p=np.array(list(SHARES.values())) / 50 * 0.7 + 0.1)
    time = pd.Series(pd.to_datetime(at, unit="ms", utc=True))
    rows = {name: np.flatnonzero(kind == name) for name in SHARES}
    persons, auctions = (np.arange(len(rows[name])) + 1000 for name in ("person", "auction"))

    def recent(ids: np.ndarray, of: str, size: np.ndarray) -> np.ndarray:
        """Ids that exist by then, rather new ones."""
        so_far = np.searchsorted(rows[of], size)
        return ids[np.maximum(so_far - 1 - rng.geometric(0.15, len(size)), 0)]

    def table(name: str, /, **columns: Any) -> pd.DataFrame:
        mine = rows[name]
        sites = [f"{name}-{k}" for k in rng.integers(0, 10, len(mine))]
        return pd.DataFrame({"source_id": sites, "date_time": time.iloc[mine].to_numpy(), **columns})

    person, auction, bid = (len(rows[name]) for name in ("person", "auction", "bid"))
    opened = at[rows["auction"]]
    return {
        "person": table(
            "person",
            value=rng.random(person),
            id=persons,
            name=rng.choice(["ann lee", "bob ray", "cleo fox"], person),
            city=rng.choice(["boise", "portland", "phoenix"], person),
            state=rng.choice(["OR", "ID", "CA", "AZ"], person),
        ),
        "auction": table(
            "auction",
            value=rng.integers(1, 100, auction),
            id=auctions,
            seller=recent(persons, "person", rows["auction"]),
            category=rng.integers(10, 15, auction),
            expires=pd.to_datetime(opened + rng.integers(500, 6000, auction), unit="ms", utc=True),
        ),
        "bid": table(
            "bid",
            value=rng.integers(1, 1000, bid),
            auction=recent(auctions, "auction", rows["bid"]),
            bidder=recent(persons, "person", rows["bid"]),
            channel=rng.choice(["web", "app", None], bid),
        ),
    }


QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, value AS price, date_time, channel FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * value AS price, date_time FROM bid",
    "q2": "SELECT auction, value AS price FROM bid WHERE auction % 12 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
             AND a.date_time BETWEEN p.date_time - INTERVAL '1' SECOND AND p.date_time + INTERVAL '10' SECOND
             WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT w, category, avg(final) AS mean FROM (
             SELECT window_start AS w, a.id, a.category, max(b.value) AS final FROM bid b JOIN auction a
             ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL '6' SECOND
             AND b.date_time <= a.expires GROUP BY TUMBLE(a.date_time, INTERVAL '5' SECOND), a.id, a.category)
             GROUP BY w, category""",
    "q5": """SELECT w, auction, n FROM (SELECT w, auction, n, max(n) OVER (PARTITION BY w) AS most FROM (
             SELECT window_start AS w, auction, count(*) AS n FROM bid
             GROUP BY HOP(date_time, INTERVAL '2' SECOND, INTERVAL '6' SECOND), auction)) WHERE n = most""",
    "q7": """SELECT w, auction, bidder, price, n FROM (SELECT *, max(price) OVER (PARTITION BY w) AS top FROM (
             SELECT window_end AS w, auction, bidder, value AS price, count(*) AS n FROM bid
             GROUP BY TUMBLE(date_time, INTERVAL '2' SECOND), auction, bidder, value)) WHERE price = top""",
    "q8": """SELECT p.id, p.name, window_start FROM person p JOIN auction a ON p.id = a.seller
             AND TUMBLE(p.date_time, INTERVAL '5' SECOND) = TUMBLE(a.date_time, INTERVAL '5' SECOND)
             GROUP BY p.id, p.name, window_start""",
    "q9": """SELECT id, bidder, price, at FROM (
             SELECT *, row_number() OVER (PARTITION BY w, id ORDER BY price DESC, at, bidder) AS place FROM (
             SELECT window_start AS w, a.id, b.bidder, b.value AS price, b.date_time AS at FROM bid b JOIN auction a
             ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL '6' SECOND
             AND b.date_time <= a.expires
             GROUP BY TUMBLE(a.date_time, INTERVAL '5' SECOND), a.id, b.bidder, b.value, b.date_time))
             WHERE place = 1""",
    "q9_inner": """SELECT a.id, b.bidder, b.value AS price, b.date_time AS at, coalesce(b.channel, 'none') AS channel,
             CASE WHEN b.value > a.value THEN 'sold' ELSE 'open' END AS state, b.value % 7 AS rest
             FROM bid b, auction a WHERE a.id = b.auction AND b.date_time >= a.date_time AND b.date_time <= a.expires
             AND b.date_time - INTERVAL '6' SECOND <= a.date_time AND b.value >= a.value""",
    "shares": """SELECT window_end, b.channel, count(*) AS n, sum(CASE WHEN b.value > 500 THEN 1 ELSE 0 END) AS high,
             round(avg(b.value) / count(*), 6) AS ratio, count(DISTINCT b.bidder) AS bidders
             FROM bid b JOIN auction a ON b.auction = a.id AND window(b.date_time, '4 seconds', '2 seconds')
             = window(a.date_time, '4 seconds', '2 seconds') WHERE NOT (a.category = 11 OR b.channel LIKE 'w%')
             GROUP BY window_end, b.channel""",
}


def scenario(folder: Path, tables: dict[str, pd.DataFrame], nodes: int = 100, parts: int = 2) -> Path:
    """A topology of so many nodes, ten sources a stream spread over it, and all queries to one sink."""
    rng = np.random.default_rng(2)
    at = rng.uniform(0, 60, (nodes, 2)).round(3)
    streams = {}
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        for i, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
            table.iloc[rows].to_parquet(folder / name / f"{i:04d}.parquet", index=False)
        rate = len(table) / SECONDS / 10
        homes = rng.integers(1, nodes, 10)
        streams[name] = {
            "sources": [{"id": f"{name}-{k}", "node": f"n{home}", "rate": rate} for k, home in enumerate(homes)],
            "input": {
                "format": "parquet",
                "path": name,
                "options": {"maxFilesPerTrigger": 1},
                "columns": {"time": "date_time"},
            },
        }
    return write_scenario(
        folder,
        {
            "nova": 1,
            "nodes": [{"id": f"n{k}", "capacity": 60.0, "x": float(x), "y": float(y)} for k, (x, y) in enumerate(at)],
            "streams": streams,
            "queries": [{"id": name, "sql": sql, "sink": "n0"} for name, sql in QUERIES.items()],
        },
    )
