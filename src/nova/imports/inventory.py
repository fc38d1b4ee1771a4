"""An Ansible inventory as INI text: groups with their hosts, variables and children."""

from __future__ import annotations

import re
import shlex
from itertools import count, product
from pathlib import Path
from typing import Any

from nova.imports.tables import wrong

_SECTION = re.compile(r"\[(?P<group>[^:\]]+)(?::(?P<kind>[a-z]+))?\]\s*(?:[#;].*)?")
_RANGE = re.compile(r"\[([0-9]+|[a-z]|[A-Z]):([0-9]+|[a-z]|[A-Z])(?::([0-9]+))?\]")
MOST = 100_000
"""Hosts that one pattern such as `web[01:50]` may stand for; places in the tree of groups that they may have."""
DEPTH = 50
"""Groups below each other."""


def parse(text: str, path: Path) -> dict[str, Any]:
    """The same inventory as YAML would say it: group → hosts, vars, children, all groups below `all`."""
    hosts: dict[str, dict[str, dict[str, str]]] = {"ungrouped": {}}
    settings: dict[str, dict[str, str]] = {}
    children: dict[str, list[str]] = {}
    group, kind = "ungrouped", "hosts"
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            found = _SECTION.fullmatch(line)
            if found is None or found["kind"] not in (None, "hosts", "vars", "children"):
                raise wrong(path, "[group], [group:vars] or [group:children] expected", f"line {number}", line[:60])
            group, kind = found["group"].strip(), found["kind"] or "hosts"
            hosts.setdefault(group, {})
            continue
        if kind == "children":
            child = _words(line, path, number)[0]
            children.setdefault(group, []).append(child)
            hosts.setdefault(child, {})
        elif kind == "vars":
            name, sign, value = line.partition("=")
            if not sign:
                raise wrong(path, "name=value expected", f"line {number}", line[:60])
            settings.setdefault(group, {})[name.strip()] = value.strip().strip("'\"")
        else:
            pattern, *words = _words(line, path, number)
            own = dict(word.partition("=")[::2] for word in words if "=" in word)
            for host in _expanded(pattern, path, number):
                hosts[group].setdefault(host, {}).update(own)
    below = {child for listed in children.values() for child in listed}
    reached: set[str] = set()
    top = [name for name in hosts if name not in below and name != "all"]

    def tree(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        refuse_endless(name, above, next(made), path)
        reached.add(name)
        inner = {child: tree(child, (*above, name)) for child in children.get(name, [])}
        return {"hosts": hosts.get(name, {}), "vars": settings.get(name, {}), "children": inner}

    made = count()
    whole = tree("all")
    whole["children"] |= {name: tree(name) for name in top}
    if lost := sorted(hosts.keys() - reached):  # reached from no group but itself
        raise wrong(path, "a group is a child of itself", lost[0])
    return {"all": whole}


def refuse_endless(name: str, above: tuple[str, ...], made: int, path: Path) -> None:
    """Raise where a group stands below itself, too deep, or in too many places to be written out."""
    if name in above:
        raise wrong(path, "a group is a child of itself", name)
    if len(above) > DEPTH or made > MOST:
        raise wrong(path, "groups are nested too deep", name)


def _words(line: str, path: Path, number: int) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise wrong(path, f"unclear quotes ({error})", f"line {number}", line[:60]) from None
    if not words:
        raise wrong(path, "a host or group expected", f"line {number}", line[:60])
    return words


def _expanded(pattern: str, path: Path, number: int) -> list[str]:
    """The hosts of a pattern such as `db-[a:c]` or `web[01:50:2].example.com`, without a port."""
    parts: list[list[str]] = []
    at, count = 0, 1
    for found in _RANGE.finditer(pattern):
        first, last, step = found[1], found[2], int(found[3] or 1)
        if first.isdigit() != last.isdigit() or not step or len(first) > 9 or len(last) > 9:
            raise wrong(path, "a range such as [01:50] or [a:f] expected", f"line {number}", pattern[:60])
        low, high = (int(first), int(last)) if first.isdigit() else (ord(first), ord(last))
        count *= max(0, (high - low) // step + 1)
        if not 0 < count <= MOST:
            raise wrong(path, f"a pattern stands for 1 to {MOST:,} hosts", f"line {number}", pattern[:60])
        width = len(first) if first.startswith("0") else 0
        steps = range(low, high + 1, step)
        parts += [
            [pattern[at : found.start()]],
            [f"{k:0{width}}" if first.isdigit() else chr(k) for k in steps],
        ]
        at = found.end()
    parts.append([pattern[at:]])
    names = ["".join(one) for one in product(*parts)]
    return [re.sub(r"(?<=[^:]):[0-9]+$", "", name) if name.count(":") == 1 else name for name in names]
