"""Queries in SQL at sites that are processes of their own, some of which die and come back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import auctions
import market
from nova.scenario import load
from processes import Process, environment, looked_after

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PARTS = 6
"""Files of each stream, read one a batch."""


def test_chains_survive_sites_that_die(tmp_path: Path) -> None:
    """A site that makes rows for others, the one that joins these, and the sink are killed while they work."""
    tables = market.tables()
    queries = {name: text for name, (text, _) in market.CHAINS.items()}
    loaded = load(market.scenario(tmp_path / "s", tables, queries, PARTS))
    market.on_two_and_one(loaded).write(tmp_path / "plan", loaded.problem)
    with looked_after() as started:
        sites = deployed(tmp_path)
        running = {
            name: Process(folder / "run.sh", "--until-end", log=tmp_path / f"{name}.log")
            for name, folder in sites.items()
        }
        started += running.values()
        for name, stage, least in (("fog", "groups.1/join", 1), ("edge3", "kept/join", 1), ("hq", "kept/collect", 1)):
            query, _, part = stage.partition("/")
            folder = sites[name] / "run" / "jobs" / query.replace(".", "%2E") / part / "checkpoint" / "commits"
            running[name].until(
                lambda folder=folder, least=least: sum(f.name.isdigit() for f in folder.glob("*")) >= least
            )
            running[name].kill()
            running[name] = running[name].again()
            started.append(running[name])
        for process in running.values():
            process.wait(900)
    for name, (_, plain) in market.CHAINS.items():
        assert found(sites["hq"] / "run" / "results", name) == expected(tables, plain), name


def deployed(folder: Path) -> dict[str, Path]:
    """The sites' folders by name, as `nova deploy` writes them."""
    nova = str(Path(sys.executable).parent / "nova")
    places = [str(folder / "s" / "scenario.yaml"), str(folder / "plan"), "-o", str(folder / "sites")]
    exchange = ["--exchange", str(folder / "exchange"), "--lateness", "3s", "--json"]
    told = subprocess.run(
        [nova, "deploy", *places, *exchange], check=True, capture_output=True, env=environment(), timeout=600
    )
    return {site["site"]: folder / "sites" / site["site"] for site in json.loads(told.stdout)["sites"]}


def found(folder: Path, query: str) -> Counter[Any]:
    parts = [pd.read_parquet(file) for file in sorted(folder.glob(f"{query}-*.parquet"))]
    return auctions.rows(record for part in parts for record in part.itertuples(index=False))


def expected(tables: dict[str, pd.DataFrame], text: str) -> Counter[Any]:
    """The rows of DuckDB."""
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            base.register(name, table)
        text = re.sub(r"win\((\w+)\.at\)", r"(epoch_us(\1.at) // 2000000)", text)
        told = base.sql(text.replace("timestamp_micros", "make_timestamp")).to_arrow_table()
    return auctions.rows(zip(*(column.to_pylist() for column in told.columns), strict=True))
