"""Ansible: machines of an inventory: `ansible-inventory --list` (JSON), or the inventory itself in YAML or INI."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

from nova.imports import inventory
from nova.imports.tables import Imported, Row, need, read_any, wrong
from nova.model.reading import read_text
from nova.model.units import RATE
from nova.scenario.document import parse_yaml

CAPACITY = "nova_capacity"
"""Variable of a host (or of its group) with its capacity."""


def read(path: Path, capacity: float) -> Imported:
    """One row per host: its capacity from the variable `nova_capacity`, else `capacity`; its address and its groups."""
    document = need(_document(path), dict, path, "")
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    if "_meta" in document or any(_listed(group) for group in document.values()):
        document = _nested(document, path)
    for name, group in document.items():
        _walk(name, group, {}, hosts, groups, path, 0)
    if not hosts:
        raise wrong(path, "no hosts here: write them with `ansible-inventory --list`")
    rows = [_row(host, own, groups[host], path, capacity) for host, own in hosts.items()]
    unknown = sum(CAPACITY not in own for own in hosts.values())
    return Imported({"nodes": rows}, [f"{unknown} hosts state no {CAPACITY}: --capacity is taken"] if unknown else [])


def _document(path: Path) -> Any:
    """JSON where it begins like it, YAML by its ending or by a first line like `all:`, else INI, as Ansible has it."""
    text = read_text(path, "an inventory")
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] not in "#;"), "")
    if first.startswith("{") or path.suffix.lower() in (".json", ".yaml", ".yml"):
        return read_any(path)
    if first == "---" or re.fullmatch(r"[^\s=\[]+:", first):
        return parse_yaml(text, str(path))
    return inventory.parse(text, path)


def _listed(group: Any) -> bool:
    """Whether a group names its hosts or children in a list, as `--list` and inventory scripts do."""
    return isinstance(group, list) or (
        isinstance(group, dict) and any(isinstance(group.get(part), list) for part in ("hosts", "children"))
    )


def _nested(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The inventory of `--list` (or of a script) as YAML would say it: groups below groups, variables with hosts."""
    meta = need(document.get("_meta") or {}, dict, path, "_meta")
    known = need(meta.get("hostvars") or {}, dict, path, "_meta.hostvars")
    flat = {
        name: {"hosts": group} if isinstance(group, list) else need(group or {}, dict, path, name)
        for name, group in document.items()
        if name != "_meta"
    }
    below = {str(child) for name, one in flat.items() for child in need(one.get("children") or [], list, path, name)}

    def tree(name: str, above: tuple[str, ...]) -> dict[str, Any]:
        inventory.refuse_endless(name, above, next(made), path)
        one = flat.get(name, {})
        named = [need(host, str, path, f"{name}.hosts") for host in need(one.get("hosts") or [], list, path, name)]
        return {
            "hosts": {host: known.get(host) for host in named},
            "vars": one.get("vars"),
            "children": {str(child): tree(str(child), (*above, name)) for child in one.get("children") or []},
        }

    made = count()
    top = [name for name in flat if name not in below]
    return {name: tree(name, ()) for name in top or flat}


def _walk(
    name: str,
    group: Any,
    above: dict[str, Any],
    hosts: dict[str, Any],
    groups: dict[str, list[str]],
    path: Path,
    depth: int,
) -> None:
    """A group of a YAML inventory with its hosts, variables and children."""
    if group is None:
        return
    if depth > inventory.DEPTH:
        raise wrong(path, "groups are nested too deep", name)
    one = need(group, dict, path, name)
    settings = {**above, **need(one.get("vars") or {}, dict, path, f"{name}.vars")}
    for host, own in need(one.get("hosts") or {}, dict, path, f"{name}.hosts").items():
        hosts[str(host)] = {
            **settings,
            **hosts.get(str(host), {}),
            **need(own or {}, dict, path, f"{name}.hosts.{host}"),
        }
        groups.setdefault(str(host), []).append(name)
    for child, inner in need(one.get("children") or {}, dict, path, f"{name}.children").items():
        _walk(str(child), inner, settings, hosts, groups, path, depth + 1)


def _row(host: str, own: dict[str, Any], groups: list[str], path: Path, capacity: float) -> Row:
    try:
        stated = RATE.parse(own[CAPACITY]) if CAPACITY in own else capacity
    except ValueError as error:
        raise wrong(path, str(error), f"{host}.{CAPACITY}", own[CAPACITY]) from None
    address = own.get("ansible_host", "")
    kept = dict.fromkeys(name for name in groups if name not in ("all", "ungrouped"))
    return {"id": host, "capacity": stated, "address": str(address), "group": " ".join(kept)}
