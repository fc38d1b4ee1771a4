"""Prometheus: latencies from the answer of its HTTP API, such as blackbox probes between machines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nova.imports.tables import Imported, host_of, latency_rows, need, read_any, wrong
from nova.model.units import RTT_UNITS

FROM = ("source", "from", "src", "probe", "prober", "goldpinger_instance", "node", "instance")
TO = ("target", "to", "destination", "dst", "host_ip", "host", "instance")
"""Labels that say where a measurement was taken and against whom; the first that a series has is taken. `instance` is
whom blackbox probes, and who probes where another label says whom (ping_exporter, smokeping_prober)."""
PHASES = ("rtt", "connect")
"""Phases of a probe that are one round trip; its others (resolve, setup, tls, processing, …) are not."""
COUNTERS = ("_bucket", "_count", "_sum")
"""Endings of series that grow: no latencies by themselves."""


def read(path: Path, unit: str | None, from_label: str | None, to_label: str | None, names: dict[str, str]) -> Imported:
    """RTTs of a saved answer of `/api/v1/query` or `/api/v1/query_range`. `names` are ids of nodes by address."""
    document = need(read_any(path), dict, path, "")
    data = document.get("data")
    if document.get("status") != "success" or not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise wrong(path, "an answer of Prometheus' /api/v1/query expected", "status", document.get("status"))
    measured: dict[tuple[str, str], list[float]] = {}
    lost = other = whole = 0
    for k, series in enumerate(data["result"]):
        metric = need(need(series, dict, path, f"data.result.{k}").get("metric"), dict, path, f"data.result.{k}.metric")
        name = str(metric.get("__name__", ""))
        if name.endswith(COUNTERS):
            base = name.rpartition("_")[0]
            message = f"a counter is no latency: ask for rate({base}_sum[5m]) / rate({base}_count[5m])"
            raise wrong(path, message, f"data.result.{k}.metric.__name__", name)
        if metric.get("phase", PHASES[0]) not in PHASES:
            other += 1
            continue
        whole += name == "probe_duration_seconds"
        target = to_label or next((label for label in TO if label in metric and label != from_label), None)
        here = from_label or next((label for label in FROM if label in metric and label != target), None)
        start = _label(metric, path, k, here, FROM, "--from-label")
        end = _label(metric, path, k, target, TO, "--to-label")
        a, b = (names.get(host_of(one), host_of(one)) for one in (start, end))
        factor = RTT_UNITS[_unit(metric, path, k, unit)]
        for value in _values(series, path, k):
            if math.isfinite(value) and value > 0:
                measured.setdefault((a, b), []).append(value * factor)
            else:
                lost += 1
    if not measured:
        raise wrong(path, "no measurement between two machines here", "data.result")
    told = [f"{lost} failed or empty measurements left out"] if lost else []
    if other:
        told.append(f"{other} series of other phases than {' or '.join(PHASES)} left out")
    if whole:
        told.append(
            "probe_duration_seconds counts resolving and connecting, too, and the time-out of probes that failed; the "
            'round trip alone is probe_icmp_duration_seconds{phase="rtt"}'
        )
    return Imported({"rtt": latency_rows(measured)}, told)


def _label(metric: dict[str, Any], path: Path, k: int, label: str | None, usual: tuple[str, ...], option: str) -> str:
    if label is None or not isinstance(metric.get(label), str):
        raise wrong(
            path, f"no label of {metric} is one of {', '.join(usual)}: name it with {option}", f"data.result.{k}.metric"
        )
    found: str = metric[label]
    return found


def _unit(metric: dict[str, Any], path: Path, k: int, unit: str | None) -> str:
    if unit is not None:
        return unit
    name = str(metric.get("__name__", ""))
    told = next(
        (short for word, short in (("_seconds", "s"), ("_milliseconds", "ms"), ("_ms", "ms")) if word in name), None
    )
    if told is None:
        raise wrong(
            path,
            "the name of the metric says no unit: give --unit s or --unit ms",
            f"data.result.{k}.metric.__name__",
            name,
        )
    return told


def _values(series: dict[str, Any], path: Path, k: int) -> list[float]:
    pairs: list[Any] = series["values"] if isinstance(series.get("values"), list) else [series.get("value")]
    try:
        return [float(pair[1]) for pair in pairs]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        raise wrong(path, "pairs of time and value expected", f"data.result.{k}.value", repr(pairs)[:60]) from None
