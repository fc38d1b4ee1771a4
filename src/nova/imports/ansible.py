"""Ansible: machines of an inventory, from `ansible-inventory --list` (JSON) or a YAML inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nova.imports.tables import Imported, Row, need, read_any, wrong
from nova.model.units import RATE

CAPACITY = "nova_capacity"
"""Variable of a host (or of its group) with its capacity."""


def read(path: Path, capacity: float) -> Imported:
    """One row per host: its capacity from the variable `nova_capacity`, else `capacity`; its address and its groups."""
    document = need(read_any(path), dict, path, "")
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    if "_meta" in document:
        known = need(need(document["_meta"], dict, path, "_meta").get("hostvars") or {}, dict, path, "_meta.hostvars")
        for name, group in document.items():
            for host in (group.get("hosts") or []) if isinstance(group, dict) and name != "_meta" else []:
                own = need(known.get(need(host, str, path, f"{name}.hosts"), {}), dict, path, f"_meta.hostvars.{host}")
                hosts.setdefault(host, dict(own))
                groups.setdefault(host, []).append(name)
    else:
        for name, group in document.items():
            _walk(name, group, {}, hosts, groups, path, 0)
    if not hosts:
        raise wrong(path, "no hosts here: write them with `ansible-inventory --list`")
    rows = [_row(host, own, groups[host], path, capacity) for host, own in hosts.items()]
    unknown = sum(CAPACITY not in own for own in hosts.values())
    return Imported({"nodes": rows}, [f"{unknown} hosts state no {CAPACITY}: --capacity is taken"] if unknown else [])


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
    if depth > 50:
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
    kept = [name for name in groups if name not in ("all", "ungrouped")]
    return {"id": host, "capacity": stated, "address": str(address), "group": " ".join(kept)}
