"""Roads out: what is written is what Compose, systemd and Kubernetes take, whatever the ids."""

from __future__ import annotations

import base64
import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from hostile_names import HOSTILE
from nova.files import LABEL, label_of, name_of
from nova.model.errors import InvalidInput
from nova.spark.sites.formats import FORMATS, USER, Site

SCHEMAS = Path(__file__).parent / "schemas"
BROKER = "mqtt://ops:secret@broker:1883/x"


def sites(folder: Path, names: tuple[str, ...] = HOSTILE) -> list[Site]:
    found = []
    for name in names:
        home = folder / name_of(name)
        home.mkdir(parents=True)
        (home / "site.json").write_text(json.dumps({"site": name}))
        (home / "run.sh").write_text("#!/bin/sh\n")
        found.append(Site(name, home))
    return found


def validate(document: Any, schema: str) -> None:
    jsonschema.validate(document, json.loads((SCHEMAS / schema).read_text()))


def takes(manifest: Any) -> None:
    """Kubernetes' own schemas, of an old and a recent version, without a field that they do not know."""
    for version in ("1.28", "1.34"):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_labels_are_labels_and_differ() -> None:
    labels = {label_of(name) for name in HOSTILE}
    assert len(labels) == len(HOSTILE)
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", label) and len(label) <= LABEL for label in labels)
    assert label_of("edge-1") == "edge-1"


def test_compose(tmp_path: Path) -> None:
    (file,) = FORMATS["compose"](sites(tmp_path), tmp_path, BROKER)
    document = yaml.safe_load(file.read_text())
    validate(document, "compose.json")
    told = {one["command"][3].replace("$$", "$") for one in document["services"].values()}
    assert told == set(HOSTILE)
    for one in document["services"].values():
        assert not re.search(r"(?<!\$)\$(?!\$)", "".join(one["command"]).replace("$$", ""))
        assert (tmp_path / one["volumes"][0]["source"]).is_dir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (shared,) = FORMATS["compose"](sites(tmp_path / "b", ("a",)), tmp_path / "b", "/mnt/exchange")
    assert yaml.safe_load(shared.read_text())["services"]["nova-a"]["volumes"][2]["target"] == "/mnt/exchange"


def test_systemd(tmp_path: Path) -> None:
    files = FORMATS["systemd"](sites(tmp_path), tmp_path, BROKER)
    assert len(files) == len(HOSTILE)
    for file, name in zip(files, HOSTILE, strict=True):
        lines = file.read_text().splitlines()
        assert lines[1].removeprefix("Description=Nova site ").replace("%%", "%").replace("\\\\", "\\") == name
        start = next(line for line in lines if line.startswith("ExecStart="))
        assert re.fullmatch(r"ExecStart=/opt/nova/nova-[a-z0-9-]+/run\.sh", start)
        assert "secret" not in file.read_text()


def test_systemd_takes_them(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    made = FORMATS["systemd"](sites(tmp_path, ("fog", "a%i$(x)", "[Service]")), tmp_path, BROKER)
    for file in made:
        text = re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", file.read_text(), flags=re.M)
        file.write_text(text.replace("After=network-online.target\nWants=network-online.target\n", ""))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, made)], capture_output=True, text=True, timeout=60
    )
    about = [line for line in told.stderr.splitlines() if any(file.name in line for file in made)]
    assert not [line for line in about if "Unknown" in line or "Invalid" in line or "ignoring" in line.lower()], about


def test_kubernetes(tmp_path: Path) -> None:
    (file,) = FORMATS["k8s"](sites(tmp_path), tmp_path, BROKER)
    documents = list(yaml.safe_load_all(file.read_text()))
    assert len(documents) == 2 * len(HOSTILE)
    for document in documents:
        takes(document)
    secrets, sets = documents[::2], documents[1::2]
    for name, secret, one in zip(HOSTILE, secrets, sets, strict=True):
        assert json.loads(base64.b64decode(secret["data"]["site.json"])) == {"site": name}
        pod = one["spec"]["template"]["spec"]
        assert pod["containers"][0]["args"][3].replace("$$(", "$(") == name
        assert pod["volumes"][0]["secret"]["secretName"] == secret["metadata"]["name"]
        assert pod["securityContext"]["fsGroup"] == USER  # who may not write the volume cannot run
    assert f"--uid {USER} nova" in (Path(__file__).parents[3] / "Dockerfile").read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match="through a broker"):
        FORMATS["k8s"]([], tmp_path, "/mnt/folder")


def test_a_site_too_large_for_a_secret_is_told(tmp_path: Path) -> None:
    (one,) = sites(tmp_path, ("a",))
    (one.folder / "replicas.parquet").write_bytes(b"x" * 1_000_001)
    with pytest.raises(InvalidInput, match="build them into an image"):
        FORMATS["k8s"]([one], tmp_path, BROKER)


def test_what_a_site_refers_to_is_passed_to_it(tmp_path: Path) -> None:
    """Variables and files, by the means of each format; no value of them is written."""
    (site,) = sites(tmp_path, ("fog",))
    options = {"password": "${BROKER_PASSWORD}", "ca": "${file:/run/secrets/ca.pem}", "plain": "x"}
    (site.folder / "site.json").write_text(json.dumps({"site": "fog", "streams": {"a": options, "b": options}}))
    (file,) = FORMATS["compose"]([site], tmp_path, BROKER)
    document = yaml.safe_load(file.read_text())
    validate(document, "compose.json")
    service = document["services"]["nova-fog"]
    assert service["environment"] == {"BROKER_PASSWORD": "${BROKER_PASSWORD:?is not set}"}
    assert service["volumes"][2] == {
        "type": "bind", "source": "/run/secrets/ca.pem", "target": "/run/secrets/ca.pem", "read_only": True,
    }  # fmt: skip
    (unit,) = FORMATS["systemd"]([site], tmp_path, BROKER)
    assert "EnvironmentFile=/etc/nova/nova-fog.env" in unit.read_text().splitlines()
    (manifests,) = FORMATS["k8s"]([site], tmp_path, BROKER)
    _, stateful = yaml.safe_load_all(manifests.read_text())
    takes(stateful)
    pod = stateful["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["env"] == [
        {
            "name": "BROKER_PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "nova-credentials", "key": "BROKER_PASSWORD"}},
        }
    ]
    mounted = container["volumeMounts"][2]
    assert mounted["mountPath"] == "/run/secrets/ca.pem"
    assert re.fullmatch(r"[-._a-zA-Z0-9]+", mounted["subPath"])
    assert pod["volumes"][1] == {"name": "credentials", "secret": {"secretName": "nova-credentials"}}


def test_a_variable_that_no_service_can_have_is_told(tmp_path: Path) -> None:
    (site,) = sites(tmp_path, ("fog",))
    (site.folder / "site.json").write_text(json.dumps({"exchange": "mqtt://ops:${a b}@broker"}))
    for name in ("compose", "systemd", "k8s"):
        with pytest.raises(InvalidInput, match="letters, digits and _"):
            FORMATS[name]([site], tmp_path, BROKER)
