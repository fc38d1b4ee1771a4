"""An MQTT broker for tests, in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def certificates(folder: Path) -> Path:
    """A CA (`ca`), and what it signed for the broker (`server`) and for a `client`: `NAME.pem` and `NAME.key`."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


@contextmanager
def broker(tls: Path | None = None) -> Iterator[int]:
    """Run a broker; yields its port. `tls`: a folder of `certificates`."""
    from amqtt.broker import Broker

    logging.getLogger("amqtt").setLevel(logging.ERROR)
    logging.getLogger("transitions").setLevel(logging.ERROR)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listener: dict[str, Any] = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    if tls is not None:
        listener |= {"ssl": True, "certfile": f"{tls}/server.pem", "keyfile": f"{tls}/server.key"}
        listener |= {"cafile": f"{tls}/ca.pem"}
    config = {
        "listeners": {"default": listener},
        # Who gives any name gets in: amqtt keeps no messages for anonymous clients that are away.
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}},
    }
    ready, done = threading.Event(), threading.Event()

    def serve() -> None:
        async def live() -> None:
            running = Broker(config)
            await running.start()
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.05)
            await running.shutdown()

        asyncio.run(live())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(30)
    yield port
    done.set()
    thread.join(timeout=10)


def address(port: int, topic: str) -> str:
    """Address of a topic on the test broker."""
    return f"mqtt://nova:secret@127.0.0.1:{port}/{topic}"


def at(port: int, topic: str) -> Any:
    """The same as a value."""
    from nova.spark.sources.mqtt import Broker

    return Broker.parse(address(port, topic), "test")


def publish(port: int, topic: str, messages: list[dict[str, Any]]) -> None:
    """Publish JSON messages with QoS 1 and wait for their acknowledgement."""
    from nova.spark.sources.mqtt import Publisher

    publisher = Publisher(at(port, topic), f"test-{time.monotonic_ns()}")
    for message in messages:
        publisher.publish(topic, json.dumps(message))
    publisher.close()


@contextmanager
def listener(port: int, topic: str) -> Iterator[list[dict[str, Any]]]:
    """Collect JSON messages of a topic."""
    heard: list[dict[str, Any]] = []
    client = at(port, topic).client(f"ear-{time.monotonic_ns()}", persistent=False)
    subscribed = threading.Event()
    client.on_connect = lambda c, *_: c.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _c, _d, message: heard.append(json.loads(message.payload))
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert subscribed.wait(20)
    yield heard
    client.disconnect()
    client.loop_stop()


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    """Wait for something to become true; fail where it does not."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.05)
