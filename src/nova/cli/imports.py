"""`nova import`: what other tools know, as tables of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nova.cli import MARKUP
from nova.cli.options import unit_in_ms
from nova.cli.output import JSON, emit_json, table, warn

if TYPE_CHECKING:
    from nova.imports.tables import Imported

app = typer.Typer(no_args_is_help=True, rich_markup_mode=MARKUP, help="What other tools know, as tables of a scenario.")
OUT = typer.Option(Path("."), "-o", "--out", metavar="DIR", help="Folder for the tables.")
CAPACITY = typer.Option("1000/s", help="Capacity of a machine that states none; `nova calibrate` measures it.")
FILE = typer.Argument(..., metavar="FILE")


@app.command()
def k8s(
    file: Path = FILE,
    out: Path = OUT,
    per_core: str = typer.Option("1000/s", help="Tuples/s of join input per core; `nova calibrate` measures it."),
    as_json: bool = JSON,
) -> None:
    """Nodes of a Kubernetes cluster: allocatable cores, zones, addresses, labels. Writes `nodes.csv`.

    Example: `kubectl get nodes -o json > nodes.json && nova import k8s nodes.json -o my --per-core 2000/s`
    """
    from nova.imports.kubernetes import read

    _finish(read(file, _rate(per_core, "--per-core")), out, as_json)


@app.command()
def prometheus(
    file: Path = FILE,
    out: Path = OUT,
    unit: str | None = typer.Option(None, help="s, ms, us or ns, where the metric's name does not say it."),
    from_label: str | None = typer.Option(None, help="Label of the machine that measured."),
    to_label: str | None = typer.Option(None, help="Label of the machine that was measured."),
    as_json: bool = JSON,
) -> None:
    """Latencies from an answer of Prometheus, such as blackbox probes between machines. Writes `rtt.csv`.

    Addresses become the ids of DIR/nodes.csv where it has them in a column `address`.

    Example: `nova import prometheus rtt.json -o my`, after
    `curl -s 'prometheus:9090/api/v1/query?query=probe_duration_seconds' > rtt.json`
    """
    from nova.imports.prometheus import read
    from nova.imports.tables import names_by_address

    if unit is not None:
        unit_in_ms(unit)
    _finish(read(file, unit, from_label, to_label, names_by_address(out)), out, as_json)


@app.command()
def goldpinger(file: Path = FILE, out: Path = OUT, as_json: bool = JSON) -> None:
    """Latencies between the nodes of a Kubernetes cluster, from goldpinger's `/check_all`. Writes `rtt.csv`.

    Addresses become the ids of DIR/nodes.csv where it has them: import k8s first.

    Example: `curl -s goldpinger:8080/check_all > check.json && nova import goldpinger check.json -o my`
    """
    from nova.imports.goldpinger import read
    from nova.imports.tables import names_by_address

    _finish(read(file, names_by_address(out)), out, as_json)


@app.command()
def consul(file: Path = FILE, out: Path = OUT, capacity: str = CAPACITY, as_json: bool = JSON) -> None:
    """Network coordinates of Consul's agents: no latency table is needed then. Writes `nodes.csv`; from the text of
    `consul rtt` it writes `rtt.csv`.

    Examples: `curl -s consul:8500/v1/coordinate/nodes > nodes.json && nova import consul nodes.json -o my`,
    `for n in a b c; do consul rtt $n; done > rtt.txt && nova import consul rtt.txt -o my`
    """
    from nova.imports.consul import read

    _finish(read(file, _rate(capacity, "--capacity")), out, as_json)


@app.command()
def ansible(file: Path = FILE, out: Path = OUT, capacity: str = CAPACITY, as_json: bool = JSON) -> None:
    """Machines of an Ansible inventory, with the variable `nova_capacity` where they have it. Writes `nodes.csv`.

    FILE is the output of `ansible-inventory --list`, or the inventory itself, INI or YAML.

    Example: `nova import ansible /etc/ansible/hosts -o my --capacity 500/s`
    """
    from nova.imports.ansible import read

    _finish(read(file, _rate(capacity, "--capacity")), out, as_json)


@app.command()
def kafka(
    before: Path = typer.Argument(..., metavar="BEFORE", help="Output of kafka-get-offsets.sh."),
    after: Path = typer.Argument(..., metavar="AFTER", help="The same some time later."),
    seconds: float = typer.Option(..., min=0.001, help="Seconds between the two."),
    describe: Path | None = typer.Option(None, help="Output of kafka-topics.sh --describe: who leads which partition."),
    node: str | None = typer.Option(None, help="Node of partitions whose leader is not known."),
    out: Path = OUT,
    as_json: bool = JSON,
) -> None:
    """Rates of Kafka topics: a stream per topic, a source per partition. Writes `TOPIC.csv`.

    Example: `nova import kafka before.txt after.txt --seconds 60 --describe topics.txt -o my`
    """
    from nova.imports.kafka import read

    _finish(read(before, after, seconds, describe, node), out, as_json)


def _rate(text: str, name: str) -> float:
    from nova.model.errors import Fault, InvalidInput
    from nova.model.units import RATE

    try:
        return RATE.parse(text)
    except ValueError as error:
        raise InvalidInput([Fault("command line", str(error), field=name, value=text)]) from None


def _finish(found: Imported, out: Path, as_json: bool) -> None:
    from nova.imports.tables import write_tables

    written = write_tables(found, out)
    warn(found.warnings)
    rows = [len(rows) for rows in found.tables.values()]
    if as_json:
        tables = {str(path): count for path, count in zip(written, rows, strict=True)}
        emit_json({"tables": tables, "warnings": found.warnings})
    else:
        table("Imported", ["table", "rows"], list(zip(map(str, written), rows, strict=True)))
