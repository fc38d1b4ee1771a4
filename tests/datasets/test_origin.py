"""Fetching from an origin: here a web server of our own with files as the originals are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builders import invoke, invoke_json
from nova.datasets import origin
from nova.datasets.catalog import find
from nova.datasets.content import read_stored, read_table
from nova.datasets.topologies import topology
from nova.model.errors import InvalidInput, NovaError

AWS = ",x,y\nx,1.5,20\ny,22,1.25\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Base address and folder of a server; data folder and cache are empty ones."""
    monkeypatch.setenv("NOVA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NOVA_DATA", raising=False)
    served = tmp_path / "served"
    served.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    handler.func.log_message = lambda *_: None  # type: ignore[attr-defined]
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}", served
    http.shutdown()
    thread.join()


def publish(served: Path, name: str, text: str) -> str:
    """Put a text where the origin of a set lies; returns the digest of a matrix in it."""
    source = find(name).origin
    assert source is not None
    for path in source.paths:
        file = served / source.repository / source.commit / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return read_table(text, name, square=True).digest


def test_a_download_is_refused_unless_its_content_is_known(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, served = server
    dataset = find("aws-regions-21")
    digest = publish(served, dataset.name, AWS)
    with pytest.raises(NovaError, match="not what the catalogue describes"):
        origin.fetch(dataset, base=base)
    assert origin.fetch(dataset, accept_unverified=True, base=base).state == "differs"
    monkeypatch.setattr("nova.datasets.catalog.DIGESTS", {dataset.name: digest})
    fetched = origin.fetch(dataset, base=base)
    assert fetched.state == "verified"
    assert read_stored(fetched.path, square=True).labels == ("x", "y")
    loaded = topology("aws-regions-21")
    assert loaded.latency.rtt_ms.tolist() == [21.0]


def test_a_series_is_stacked_and_named(server: tuple[str, Path]) -> None:
    base, served = server
    publish(served, "planetlab-490", "0\t7.5\n8.5\t0\n")
    fetched = origin.fetch(find("planetlab-490"), accept_unverified=True, base=base)
    content = read_stored(fetched.path, square=True)
    assert (content.labels, content.values.shape) == (("pl000", "pl001"), (18, 2, 2))
    assert topology("planetlab-490").latency.rtt_ms.tolist() == [8.0]


def test_text_is_kept_as_it_is(server: tuple[str, Path]) -> None:
    base, served = server
    text = "cty1,cty2,rtt_avg\nAD,AT,37.5\n"
    source = find("ripe-atlas-country-2025").origin
    assert source is not None
    file = served / source.repository / source.commit / source.paths[0]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    fetched = origin.fetch(find("ripe-atlas-country-2025"), accept_unverified=True, base=base)
    assert fetched.path.read_text() == text


def test_what_cannot_be_fetched_says_why(server: tuple[str, Path]) -> None:
    base, _ = server
    with pytest.raises(NovaError, match=r"could not fetch http://127\.0\.0\.1"):
        origin.fetch(find("planetlab-169"), base=base)
    with pytest.raises(InvalidInput, match="no single public file"):
        origin.fetch(find("aberdeen-dht22"), base=base)


def test_origins_name_a_file_of_a_public_repository() -> None:
    source = find("aws-regions-21").origin
    assert source is not None
    assert source.urls() == [
        "https://raw.githubusercontent.com/relab/hotstuff/edc0f39a3d3e1c91e2698474ae7b300936ad2ddc/"
        "cmd/latencygen/latencies/aws.csv"
    ]


def test_the_command_lists_fetches_and_finds(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    base, served = server
    publish(served, "aws-regions-21", AWS)
    monkeypatch.setattr("nova.datasets.origin.fetch.__defaults__", (False, base))
    listed = invoke_json("data", "list")
    entry = next(d for d in listed if d["name"] == "aws-regions-21")
    assert (entry["here"], entry["fetchable"], entry["licence"]) == (False, True, "MIT")
    assert "aws-regions-21" in invoke("data", "list").stdout
    refused = invoke("data", "fetch", "aws-regions-21")
    assert refused.exit_code == 1
    assert "--accept-unverified" in refused.output
    fetched = invoke_json("data", "fetch", "aws-regions-21", "--accept-unverified")
    assert (fetched[0]["fetched"], fetched[0]["state"]) == (True, "differs")
    again = invoke_json("data", "fetch", "aws-regions-21")
    assert again[0]["fetched"] is False
    told = invoke_json("data", "where", "aws-regions-21")
    assert told[0]["cleaning"]["kept"] == 1
    assert told[0]["content"] == "differs"
    assert "relab/hotstuff" in invoke("data", "where", "aws-regions-21").stdout
    absent = invoke("data", "where", "king-1740")
    assert absent.exit_code == 2
    assert "nova data fetch king-1740" in absent.output
