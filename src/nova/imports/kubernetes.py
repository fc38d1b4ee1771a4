"""Kubernetes: nodes from `kubectl get nodes -o json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nova.imports.tables import Imported, Row, need, read_any, wrong

LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "node.kubernetes.io/instance-type": "instance_type",
    "kubernetes.io/arch": "arch",
}
OLD_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/region": "region",
    "beta.kubernetes.io/instance-type": "instance_type",
    "beta.kubernetes.io/arch": "arch",
}
"""As clusters before 1.17 call them; newer ones often have both."""
POOLS = {
    "kubernetes.azure.com/agentpool": "pool",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "karpenter.sh/nodepool": "pool",
}
"""The group of like machines that a cloud's node is of."""
MEANT = re.compile(r"id|capacity|hosts|bandwidth|busy|memory|height|[xyz][0-9]*|address|cores|memory_gb|pool", re.ASCII)
"""Columns of a table of nodes that a label of the cluster's owner must not take."""
CLOSING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away."""
_SCALE = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3} | {
    prefix + binary: (2.0**10 if binary else 1e3) ** (power + 1)
    for power, prefix in enumerate(("k", "M", "G", "T", "P", "E"))
    for binary in ("", "i")
}
_SCALE["Ki"] = _SCALE.pop("ki")


def quantity(text: object) -> float:
    """A Kubernetes quantity such as 3920m or 16Gi; ValueError where it is none."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|([numkKMGTPE]i?)?)", str(text))
    if found is None or (found[3] or "") not in _SCALE:
        raise ValueError("a quantity such as 3920m or 16Gi expected")
    return float(found[1]) * 10.0 ** int(found[2] or 0) * _SCALE[found[3] or ""]


def read(path: Path, per_core: float) -> Imported:
    """One row per node: capacity from its allocatable cores at `per_core` tuples/s each, its address, zone, region and
    pool, and the labels without a prefix, which are the owner's. Nodes that are not ready, cordoned or tainted against
    pods host no joins."""
    document = need(read_any(path), dict, path, "")
    items = document.get("items", [document] if document.get("kind") == "Node" else None)
    if not isinstance(items, list) or not items:
        raise wrong(path, "no nodes here: write them with `kubectl get nodes -o json`", "items")
    found = Imported(
        {"nodes": [_node(need(item, dict, path, f"items.{k}"), path, k, per_core) for k, item in enumerate(items)]}
    )
    closed = sum(row["hosts"] == "false" for row in found.tables["nodes"])
    if closed:
        found.warnings.append(f"{closed} of {len(items)} nodes are not ready, cordoned or tainted: they host no joins")
    return found


def _node(item: dict[str, Any], path: Path, k: int, per_core: float) -> Row:
    if item.get("kind", "Node") != "Node":
        hint = "a node expected: write them with `kubectl get nodes -o json`"
        raise wrong(path, hint, f"items.{k}.kind", item["kind"])
    metadata = need(item.get("metadata"), dict, path, f"items.{k}.metadata")
    status = need(item.get("status", {}), dict, path, f"items.{k}.status")
    spec = need(item.get("spec") or {}, dict, path, f"items.{k}.spec")
    allocatable = need(
        status.get("allocatable") or status.get("capacity") or {}, dict, path, f"items.{k}.status.allocatable"
    )
    try:
        cores = quantity(allocatable.get("cpu"))
        memory = quantity(allocatable.get("memory", "0"))
    except ValueError as error:
        raise wrong(path, str(error), f"items.{k}.status.allocatable", allocatable) from None
    conditions = {
        str(c.get("type")): c.get("status") for c in _objects(status, "conditions", path, f"items.{k}.status")
    }
    taints = [t for t in _objects(spec, "taints", path, f"items.{k}.spec") if t.get("effect") in CLOSING]
    open_ = conditions.get("Ready", "True") == "True" and not spec.get("unschedulable") and not taints
    known = [(str(a.get("type")), a.get("address")) for a in _objects(status, "addresses", path, f"items.{k}.status")]
    addresses = dict(reversed(known))  # of a dual-stack node the first one is its own
    labels = need(metadata.get("labels") or {}, dict, path, f"items.{k}.metadata.labels")
    return {
        "id": need(metadata.get("name"), str, path, f"items.{k}.metadata.name"),
        "capacity": float(f"{cores * per_core:.6g}"),
        "hosts": "true" if open_ else "false",
        "address": addresses.get("InternalIP", ""),
        "cores": float(f"{cores:.6g}"),
        "memory_gb": round(memory / 1e9, 2),
        **{f"label_{name}" if MEANT.fullmatch(name) else name: labels[name] for name in labels if "/" not in name},
        **{column: labels[label] for label, column in (OLD_LABELS | LABELS | POOLS).items() if label in labels},
    }


def _objects(above: dict[str, Any], name: str, path: Path, where: str) -> list[dict[str, Any]]:
    """The objects of a list, which may be missing."""
    listed = need(above.get(name) or [], list, path, f"{where}.{name}")
    return [need(one, dict, path, f"{where}.{name}.{i}") for i, one in enumerate(listed)]
