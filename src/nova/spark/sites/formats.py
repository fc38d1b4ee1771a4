"""Roads out: the folders of sites as services of Docker Compose, units of systemd, or manifests of Kubernetes.

Ids stay data: objects are named by labels made from them, and what a format would expand is escaped. Files that hold
the address of the exchange, which may hold a password, are for their owner alone. What a site refers to as `${NAME}` or
`${file:PATH}` is passed to it by the means of each format, and stands in no file.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import nova
from nova.credentials import files, variables
from nova.files import label_of
from nova.model.errors import Fault, InvalidInput
from nova.model.reading import read_json
from nova.spark.sites.share import FILE

IMAGE = f"nova-placement:{nova.__version__}"
"""What the Dockerfile of this project is built as."""
USER = 1000
"""Whom the Dockerfile runs as: volumes of pods must be theirs to write."""
CREDENTIALS = "nova-credentials"
"""Secret of Kubernetes that holds what sites refer to: a key per variable, and one per file."""
ETC = "/etc/nova"
"""Where a unit of systemd finds the variables of its site, in a file for root alone."""
MOST_SECRET = 1_000_000
"""Bytes of a site's files that Kubernetes takes in a Secret."""
OPT = "/opt/nova"
"""Where a unit of systemd expects the site's folder."""


@dataclass(frozen=True)
class Site:
    """A site whose folder is written."""

    id: str
    folder: Path

    @property
    def label(self) -> str:
        return f"nova-{label_of(self.id)}"

    def variables(self) -> list[str]:
        """Environment variables that its configuration refers to."""
        found = variables(self._configuration())
        for name in found:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                message = "letters, digits and _ expected in the name of an environment variable"
                raise InvalidInput([Fault(str(self.folder / FILE), message, value=f"${{{name}}}")])
        return found

    def files(self) -> list[str]:
        """Files that its configuration refers to."""
        return files(self._configuration())

    def _configuration(self) -> str:
        """Where references may stand: the address of the exchange, and inputs. Ids are none."""
        told = read_json(self.folder / FILE, "a site")
        return json.dumps([told.get("exchange"), told.get("streams")], ensure_ascii=False)


def compose(sites: Sequence[Site], out: Path, exchange: str, image: str = IMAGE) -> list[Path]:
    """`compose.yaml`: one service per site, its folder mounted, its checkpoint in a volume."""
    services: dict[str, Any] = {}
    for site in sites:
        mounts: list[dict[str, Any]] = [
            {"type": "bind", "source": f"./{site.folder.name}", "target": "/site", "read_only": True},
            {"type": "volume", "source": f"{site.label}-run", "target": "/run/nova"},
        ]
        if "://" not in exchange:
            mounts.append({"type": "bind", "source": _dollars(exchange), "target": _dollars(exchange)})
        mounts += [
            {"type": "bind", "source": _dollars(path), "target": _dollars(path), "read_only": True}
            for path in site.files()
        ]
        needed = {name: f"${{{name}:?is not set}}" for name in site.variables()}
        services[site.label] = {
            "image": image,
            "command": ["run", "/site", "--site", _dollars(site.id), "-o", "/run/nova"],
            "restart": "unless-stopped",
            **({"environment": needed} if needed else {}),
            "volumes": mounts,
            "labels": {"nova.site": _dollars(site.id)},
        }
    document = {"name": "nova", "services": services, "volumes": {f"{site.label}-run": {} for site in sites}}
    return [_write(out / "compose.yaml", [document])]


def _dollars(text: str) -> str:
    """Compose expands variables in texts; a doubled dollar sign is one."""
    return text.replace("$", "$$")


def systemd(sites: Sequence[Site], out: Path, exchange: str) -> list[Path]:
    """One unit per site, which expects the site's folder below /opt/nova on its machine."""
    written = []
    for site in sites:
        home = f"{OPT}/{site.label}"
        reach = [] if "://" in exchange else [f"ReadWritePaths={_unit(exchange)}"]
        lines = [
            "[Unit]",
            f"Description=Nova site {_unit(site.id)}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            f"WorkingDirectory={home}",
            *([f"EnvironmentFile={ETC}/{site.label}.env"] if site.variables() else []),
            f"ExecStart={home}/run.sh",
            "Restart=on-failure",
            "RestartSec=5",
            "User=nova",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            f"ReadWritePaths={home}",
            *reach,
            "PrivateTmp=yes",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
        file = out / f"{site.label}.service"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.append(file)
    return written


def _unit(text: str) -> str:
    """systemd expands percent signs, and a backslash at the end would go on with the next line."""
    return text.replace("%", "%%").replace("\\", "\\\\")


def kubernetes(sites: Sequence[Site], out: Path, exchange: str, image: str = IMAGE) -> list[Path]:
    """`sites.yaml`: for each site a Secret with its files and a StatefulSet of one pod, on the node of its name."""
    if "://" not in exchange:
        message = "pods see no common folder: let the sites exchange through a broker"
        raise InvalidInput([Fault("command line", message, field="--exchange", value=exchange)])
    documents: list[dict[str, Any]] = []
    for site in sites:
        content = {file.name: file.read_bytes() for file in sorted(site.folder.iterdir()) if file.is_file()}
        size = sum(map(len, content.values()))
        if size > MOST_SECRET:
            message = (
                f"the site's files take {size:,} bytes, and Kubernetes takes {MOST_SECRET:,}: build them into an image"
            )
            raise InvalidInput([Fault(str(site.folder), message)])
        about = {"app.kubernetes.io/name": "nova", "app.kubernetes.io/instance": site.label}
        documents.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": site.label, "labels": about, "annotations": {"nova/site": site.id}},
                "type": "Opaque",
                "data": {name: base64.b64encode(value).decode() for name, value in content.items()},
            }
        )
        needed = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": CREDENTIALS, "key": name}}}
            for name in site.variables()
        ]
        kept = {path: label_of(path) for path in site.files()}
        pod: dict[str, Any] = {
            "containers": [
                {
                    "name": "site",
                    "image": image,
                    "args": ["run", "/site", "--site", _parentheses(site.id), "-o", "/run/nova"],
                    **({"env": needed} if needed else {}),
                    "volumeMounts": [
                        {"name": "site", "mountPath": "/site", "readOnly": True},
                        {"name": "run", "mountPath": "/run/nova"},
                        *(
                            {"name": "credentials", "mountPath": path, "subPath": key, "readOnly": True}
                            for path, key in kept.items()
                        ),
                    ],
                }
            ],
            "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER},
            "volumes": [
                {"name": "site", "secret": {"secretName": site.label}},
                *([{"name": "credentials", "secret": {"secretName": CREDENTIALS}}] if kept else []),
            ],
        }
        if re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", site.id):
            pod["nodeSelector"] = {"kubernetes.io/hostname": site.id}
        documents.append(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": site.label, "labels": about},
                "spec": {
                    "serviceName": site.label,
                    "replicas": 1,
                    "selector": {"matchLabels": about},
                    "template": {"metadata": {"labels": about}, "spec": pod},
                    "volumeClaimTemplates": [
                        {
                            "metadata": {"name": "run"},
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "1Gi"}},
                            },
                        }
                    ],
                },
            }
        )
    return [_write(out / "sites.yaml", documents)]


def _parentheses(text: str) -> str:
    """Kubernetes expands $(NAME) in arguments; a doubled dollar sign before a parenthesis is one."""
    return text.replace("$(", "$$(")


class _Quoting(yaml.SafeDumper):
    """Texts in quotes, unless no version of YAML can take them for anything else."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]{3,}", text) and text.lower() not in ("true", "false", "null")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Quoting.add_representer(str, _text)


def _write(file: Path, documents: Sequence[Any]) -> Path:
    file.touch(mode=0o600)
    file.chmod(0o600)
    plain = json.loads(json.dumps(documents))  # without aliases
    file.write_text(yaml.dump_all(plain, Dumper=_Quoting, sort_keys=False, width=1000), encoding="utf-8")
    return file


FORMATS: dict[str, Callable[[Sequence[Site], Path, str], list[Path]]] = {
    "folder": lambda _sites, _out, _exchange: [],
    "compose": compose,
    "systemd": systemd,
    "k8s": kubernetes,
}
"""What `nova deploy --format` may be."""
