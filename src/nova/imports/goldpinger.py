"""Goldpinger: latencies between the nodes of a Kubernetes cluster, from its `/check_all`."""

from __future__ import annotations

from pathlib import Path

from nova.imports.tables import Imported, latency_rows, need, read_any, wrong

BELOW_1_MS = 0.5
"""What an answer within the first millisecond counts as."""


def read(path: Path, names: dict[str, str]) -> Imported:
    """RTTs between hosts. `names` are ids of nodes by address; without one the address is the id."""
    document = need(read_any(path), dict, path, "")
    responses = document.get("responses")
    if not isinstance(responses, dict):
        raise wrong(path, "an answer of goldpinger's /check_all expected", "responses")
    measured: dict[tuple[str, str], list[float]] = {}
    failed = short = 0
    for pod, told in responses.items():
        where = f"responses.{pod}"
        one = need(told, dict, path, where)
        results = (one.get("response") or {}).get("podResults") if isinstance(one.get("response") or {}, dict) else None
        if not isinstance(results, dict):
            failed += 1
            continue
        for other, result in results.items():
            to = need(result, dict, path, f"{where}.response.podResults.{other}")
            time = to.get("response-time-ms") or 0  # left out where it is 0: whole ms are counted
            if not to.get("OK") or isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 1e9:
                failed += 1
                continue
            short += time == 0
            a, b = (str(end.get("HostIP") or end.get("hostIP") or "") for end in (one, to))
            if a and b:
                measured.setdefault((names.get(a, a), names.get(b, b)), []).append(float(time) or BELOW_1_MS)
    if not measured:
        raise wrong(path, "no measurement between two hosts here", "responses")
    told_ = [f"{failed} checks failed: left out"] if failed else []
    if short:
        told_.append(f"{short} checks took less than 1 ms: taken as {BELOW_1_MS} ms, as goldpinger counts whole ones")
    return Imported({"rtt": latency_rows(measured)}, told_)
