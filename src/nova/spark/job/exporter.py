"""Exporter: the figures of a run as Prometheus reads them, in a file or on a port.

A file suits node_exporter's textfile collector; it appears whole or not at all. A port answers GET /metrics; it is on
this machine alone unless the address names another interface.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nova.files import appearing
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.spark.job.meter import Meter

EVERY_S = 5.0
"""Time between two writings."""
TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, Mapping[str, str], float]
"""Suffix of the metric's name, labels, value."""
Figures = tuple[Iterable[Meter], float, int]
"""Of a run: the meters of its queries, when it began (s since 1970), how many warnings there are just now."""


def exposition(meters: Iterable[Meter], seconds: float, warnings: int) -> str:
    """The text: counters since the start of the run, latencies as a summary, lag as a gauge."""
    tuples: list[Sample] = []
    dead: list[Sample] = []
    results: list[Sample] = []
    late: list[Sample] = []
    latency: list[Sample] = []
    lag: list[Sample] = []
    kept: list[Sample] = []
    shares: list[Sample] = []
    for meter in meters:
        told, who = meter.report(max(seconds, 1e-3)), {"query": meter.query}
        tuples += [("", {**who, "side": side}, count) for side, count in told["tuples"].items()]
        dead += [("", {**who, "reason": reason}, count) for reason, count in told["dead_letters"].items()]
        results.append(("", who, told["results"]))
        late.append(("", who, told["late_tuples"]))
        shares += [("", {**who, "part": part}, value) for part, value in told["selectivity"].items()]
        kept += [("", {**who, "kind": kind}, value) for kind, value in told["state"].items()]
        if (behind := meter.lag_s) is not None:
            lag.append(("", who, behind))
        count, total_ms, at_ms = meter.latency()
        latency += [("", {**who, "quantile": f"{q:g}"}, ms / 1000) for q, ms in at_ms.items()]
        latency += [("_sum", who, total_ms / 1000), ("_count", who, count)]
    families: tuple[tuple[str, str, str, list[Sample]], ...] = (
        ("nova_tuples_total", "counter", "Tuples that came in.", tuples),
        ("nova_results_total", "counter", "Results that went out.", results),
        ("nova_dead_letters_total", "counter", "Tuples that could not be used.", dead),
        ("nova_late_tuples_total", "counter", "Tuples behind the watermark.", late),
        ("nova_latency_seconds", "summary", "From a result's later tuple to the sink.", latency),
        ("nova_lag_seconds", "gauge", "How far behind the newest tuples of the latest batch were.", lag),
        ("nova_state", "gauge", "What a query keeps: tuples or packets, and bytes.", kept),
        ("nova_selectivity", "gauge", "Measured: shares that pass filters and join, groups a window.", shares),
        ("nova_warnings", "gauge", "What is wrong with the input just now.", [("", {}, warnings)]),
        ("nova_run_seconds", "gauge", "Time since the start.", [("", {}, seconds)]),
    )
    lines = []
    for name, kind, text, samples in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{suffix}{_labels(labels)} {value:.10g}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exporter:
    """Call it with what there is to tell; it writes now and then, and at the end."""

    def __init__(self) -> None:
        self.text = "# nothing yet\n"
        self._at = 0.0

    def __call__(self, figures: Callable[[], Figures], *, now: bool = False) -> None:
        """Tell the figures, where it is time for it; `now`: though little time has passed."""
        if not now and time.monotonic() - self._at < EVERY_S:
            return
        self._at = time.monotonic()
        meters, began_s, warnings = figures()
        self.text = exposition(meters, time.time() - began_s, warnings)
        self.publish()

    def publish(self) -> None:
        """Make the text known."""


class _ToFile(Exporter):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.publish()

    def publish(self) -> None:
        try:
            with appearing(self.file) as draft:
                draft.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise NovaError(f"--metrics: cannot write {self.file}: {error.strerror}") from error


@contextmanager
def exporter(address: str | None) -> Iterator[Exporter]:
    """What tells the figures of a run to `address`: a file, `PORT`, `:PORT` or `HOST:PORT`; None: to nobody."""
    if address is None:
        yield _Silent()
        return
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        yield _ToFile(Path(address))
        return
    told = Exporter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = told.text.encode()
            self.send_response(200 if self.path.split("?")[0] == "/metrics" else 404)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are no news."""

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            [Fault("command line", f"cannot listen: {error}", field="--metrics", value=address)]
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Silent(Exporter):
    def __call__(self, figures: Callable[[], Figures], *, now: bool = False) -> None:
        """Nobody asked."""
