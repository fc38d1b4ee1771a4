"""Which column of a raw file plays which part."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

from nova.model.errors import Fault, InvalidInput

ROLES: dict[str, tuple[str, ...]] = {
    "from": ("from", "source", "src", "src_addr", "probe", "prb_id", "a", "node_a", "cty1"),
    "to": ("to", "target", "destination", "dst", "dst_addr", "dst_name", "b", "node_b", "cty2"),
    "rtt": ("rtt_ms", "rtt", "latency_ms", "latency", "ping_ms", "ms"),
    "time": ("time", "timestamp", "event_time", "ts", "datetime"),
    "sequence": ("sequence", "seq", "icmp_seq", "round"),
    "site": ("site",),
}
"""Part → names that are understood without being told, the first one present counts.

`from`, `to`, `rtt` are needed. `time` is ISO 8601 or epoch seconds, milliseconds or microseconds (told apart by their
size). `sequence` tells pings of one moment apart. Where `site` is present ids are unique within a site only, and become
`site_id`.
"""
NEEDED = ("from", "to", "rtt")


def chosen(text: str | None) -> dict[str, str]:
    """`from=a,to=b` as a mapping; parts that do not exist are faults."""
    if not text:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    faults = [
        Fault("--columns", f"expected PART=COLUMN with a part of {', '.join(ROLES)}", value=part + sign + column)
        for part, sign, column in pairs
        if part.strip() not in ROLES or not column.strip()
    ]
    if faults:
        raise InvalidInput(faults)
    return {part.strip(): column.strip() for part, _, column in pairs}


def names_of(head: str, delimiter: str) -> list[str]:
    """Column names of a header line."""
    cells = next(csv.reader([head.removeprefix("\ufeff")], delimiter=delimiter), [])
    return [cell.strip() for cell in cells]


def assign(names: Sequence[str], told: Mapping[str, str], file: str) -> dict[str, str]:
    """Part → column for a file with these columns. Without the needed ones the file cannot be read at all."""
    lower = {name.lower(): name for name in reversed(names)}
    parts: dict[str, str] = {}
    faults = []
    for part, known in ROLES.items():
        if part in told:
            if told[part] in names:
                parts[part] = told[part]
            else:
                faults.append(
                    Fault(
                        file,
                        f"no column {told[part]!r}, which --columns names; there are: {', '.join(names)}",
                        row=1,
                        field=part,
                    )
                )
            continue
        match = next((lower[name] for name in known if name in lower), None)
        if match is not None and match not in told.values():
            parts[part] = match
        elif part in NEEDED:
            faults.append(
                Fault(
                    file,
                    f"no column for {part!r}: none of {', '.join(known)} is among "
                    f"{', '.join(names) or 'no columns'}; name it with --columns {part}=COLUMN",
                    row=1,
                    field=part,
                )
            )
    if faults:
        raise InvalidInput(faults)
    return parts
