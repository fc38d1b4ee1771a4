"""`nova data`: the public topologies and sensor archives, where they lie and how to get them."""

from __future__ import annotations

from typing import Any

import typer

from nova.cli.output import JSON, console, emit_json, progress, table

app = typer.Typer(
    help="Public topologies and sensor archives: list them, fetch them, see where they lie and what cleaning does.",
    no_args_is_help=True,
)

NAMES = typer.Argument(..., help="Names of data sets, as `nova data list` prints them.", metavar="NAME…")


@app.command("list")
def list_sets(as_json: bool = JSON) -> None:
    """List the data sets: size, licence, whether they can be fetched and whether they are at hand.

    `nova data where` and `--json` tell more: source, units, oddities.

    They are looked for in the folder that the environment variable `NOVA_DATA` names, then among what was fetched.

    Example: `NOVA_DATA=~/data nova data list`
    """
    from nova.datasets.catalog import DATASETS, files_of
    from nova.datasets.folder import locate

    here = {d.name: all(locate(file) is not None for file in files_of(d)) for d in DATASETS}
    if as_json:
        emit_json(
            [
                {
                    "name": d.name,
                    "kind": d.kind,
                    "what": d.what,
                    "size": d.size,
                    "units": d.units,
                    "source": d.source,
                    "licence": d.licence,
                    "oddities": d.oddities,
                    "sha256": d.digest,
                    "fetchable": d.origin is not None,
                    "here": here[d.name],
                }
                for d in DATASETS
            ]
        )
        return
    table(
        "Data sets",
        ["name", "size", "licence", "fetch", "here"],
        [[d.name, d.size, d.licence, d.origin is not None, here[d.name]] for d in DATASETS],
    )


@app.command()
def fetch(
    names: list[str] = NAMES,
    accept_unverified: bool = typer.Option(
        False, "--accept-unverified", help="Keep a download whose content is not what the catalogue describes."
    ),
    as_json: bool = JSON,
) -> None:
    """Fetch data sets from their public origin into the cache, convert them, and check their content.

    Sets that are at hand already are left alone. A download whose content differs from the catalogue's is refused.

    Example: `nova data fetch planetlab-490 aws-regions-32`
    """
    from nova.datasets.catalog import find
    from nova.datasets.folder import look_up
    from nova.datasets.origin import fetch as fetch_set

    done: list[dict[str, Any]] = []
    for dataset in [find(name) for name in names]:
        found = look_up(dataset)
        if found is not None:
            done.append({"name": dataset.name, "path": str(found.paths[0]), "state": found.state, "fetched": False})
            continue
        with progress(f"fetching {dataset.name}"):
            fetched = fetch_set(dataset, accept_unverified)
        done.append({"name": dataset.name, "path": str(fetched.path), "state": fetched.state, "fetched": True})
    if as_json:
        emit_json(done)
        return
    rows = [[d["name"], d["state"], d["fetched"], d["path"]] for d in done]
    table("Fetched", ["name", "content", "new", "path"], rows)


@app.command()
def where(names: list[str] = NAMES, as_json: bool = JSON) -> None:
    """Say where data sets lie, where they come from, whether their content is sound, and what cleaning drops.

    Example: `nova data where ripe-atlas-723`
    """
    from nova.datasets.catalog import find
    from nova.datasets.folder import look_up, require

    told: list[dict[str, Any]] = []
    for dataset in [find(name) for name in names]:
        found = look_up(dataset)
        if found is None:
            require(dataset)  # says what is missing and how to get it
            continue
        told.append(
            {
                "name": dataset.name,
                "paths": [str(path) for path in found.paths],
                "content": found.state,
                "sha256": dataset.digest,
                "source": dataset.source,
                "licence": dataset.licence,
                "units": dataset.units,
                "oddities": dataset.oddities,
                "cleaning": cleaning(dataset.name),
            }
        )
    if as_json:
        emit_json(told)
        return
    for entry in told:
        console.print(f"[bold]{entry['name']}[/bold] ({entry['content']}, {entry['units']})", highlight=False)
        for path in entry["paths"]:
            console.print(f"  {path}", soft_wrap=True, highlight=False, markup=False)
        for word in ("source", "licence", "oddities"):
            if entry[word]:
                console.print(f"  {word}: {entry[word]}", soft_wrap=True, highlight=False, markup=False)
        for step in entry["cleaning"].get("steps", []):
            console.print(f"  {step['what']}: {step['pairs']:,} pairs", highlight=False)
        if "kept" in entry["cleaning"]:
            kept, pairs = entry["cleaning"]["kept"], entry["cleaning"]["pairs"]
            console.print(f"  kept: {kept:,} of {pairs:,} pairs", highlight=False)
        if entry["cleaning"].get("dropped_readings"):
            console.print(f"  faulty readings dropped: {entry['cleaning']['dropped_readings']:,}", highlight=False)


def cleaning(name: str) -> dict[str, Any]:
    """What cleaning does to a set; empty for sets that need none."""
    from dataclasses import asdict

    from nova.datasets.catalog import find
    from nova.datasets.sensors import readings
    from nova.datasets.topologies import topology

    kind = find(name).kind
    if kind in ("latency", "series"):
        report = asdict(topology(name).cleaning)
        report["steps"] = [step for step in report["steps"] if step["pairs"]]
        return report
    if kind == "sensors":
        loaded = readings(name)
        return {"rows": loaded.table.num_rows, "dropped_readings": loaded.dropped}
    return {}
