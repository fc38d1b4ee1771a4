"""Kafka: rates of topics, from two listings of their offsets and the leaders of their partitions.

Offsets are lines `topic:partition:offset` of `kafka-get-offsets.sh`, or the table that `kafka-consumer-groups.sh
--describe` prints.
"""

from __future__ import annotations

import re
from pathlib import Path

from nova.imports.tables import Imported, Row, wrong
from nova.model.reading import read_text

_OFFSET = re.compile(r"\s*(?P<topic>\S+):(?P<partition>[0-9]+):(?P<offset>[0-9]*)\s*")
END = "LOG-END-OFFSET"
"""Column of a consumer group's table."""
_LEADER = re.compile(r"Topic:\s*(\S+)\s+Partition:\s*([0-9]+)\s+Leader:\s*(-?[0-9]+|none)")


def read(before: Path, after: Path, seconds: float, described: Path | None, node: str | None) -> Imported:
    """One stream per topic, one source per partition, its rate from what was appended in `seconds` between two outputs
    of the same tool. A source's node is `broker-<id>` of its leader in the output of
    `kafka-topics.sh --describe`, or `node`."""
    first, last = _offsets(before), _offsets(after)
    leaders = {} if described is None else _leaders(described)
    found = Imported()
    missing = sorted(f"{t}-{p}" for t, p in last.keys() - first.keys())
    if missing:
        found.warnings.append(f"new since {before}, so without a rate: {', '.join(missing[:5])}")
    for (topic, partition), end in last.items():
        if topic.startswith("__") or (topic, partition) not in first:
            continue
        appended = end - first[topic, partition]
        if appended < 0:
            message = f"the offset went back by {-appended}: was the topic made anew, or are the two files swapped?"
            raise wrong(after, message, f"{topic}:{partition}", end)
        leader = leaders.get((topic, partition), node)
        if leader is None:
            raise wrong(
                described or after, "no leader known: give --describe FILE or --node ID", f"{topic}:{partition}"
            )
        rows: list[Row] = found.tables.setdefault(topic, [])
        rows.append({"id": f"{topic}-{partition}", "node": leader, "rate": float(f"{appended / seconds:.6g}")})
    if not found.tables:
        raise wrong(after, "no topic with offsets in both files")
    return found


def _offsets(path: Path) -> dict[tuple[str, int], int]:
    found = {}
    lines = read_text(path, "offsets").splitlines()
    if any(END in line.split() for line in lines):
        return _groups(lines, path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _OFFSET.fullmatch(line)
        if match is None or len(match["offset"]) > 18 or len(match["partition"]) > 9:
            raise wrong(
                path,
                "lines topic:partition:offset expected, as kafka-get-offsets.sh prints them, or the table of"
                " kafka-consumer-groups.sh --describe",
                f"line {number}",
                line[:60],
            )
        found[match["topic"], int(match["partition"])] = int(match["offset"] or 0)
    return found


def _groups(lines: list[str], path: Path) -> dict[tuple[str, int], int]:
    """Ends of partitions from tables of consumer groups, one below the other; notes between them are passed over, and
    so are members that read nothing (`-`)."""
    found: dict[tuple[str, int], int] = {}
    columns: list[str] = []
    named = ("TOPIC", "PARTITION", END)
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if END in cells:
            columns = cells
            if missing := [name for name in named if name not in columns]:
                raise wrong(path, f"no column {missing[0]} beside {END}", f"line {number}", line[:60])
            continue
        if len(cells) < len(columns) or not columns:
            continue
        topic, partition, end = (cells[columns.index(name)] for name in named)
        if partition == "-" or end == "-":
            continue
        if not (partition.isdecimal() and end.isdecimal()) or len(partition) > 9 or len(end) > 18:
            raise wrong(path, f"numbers below PARTITION and {END} expected", f"line {number}", line[:60])
        found[topic, int(partition)] = max(int(end), found.get((topic, int(partition)), 0))
    return found


def _leaders(path: Path) -> dict[tuple[str, int], str]:
    found = _LEADER.findall(read_text(path, "topics"))
    if not found:
        raise wrong(path, "no `Topic: … Partition: … Leader: …` here, as kafka-topics.sh --describe prints them")
    return {(topic, int(part[:9])): f"broker-{leader}" for topic, part, leader in found if leader.isdigit()}
