"""The project's habits: one version, one licence, layers that the linter knows."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

import nova

ROOT = Path(__file__).parents[2]


def project(file: str) -> dict[str, object]:
    return dict(tomllib.loads((ROOT / file).read_text())["project"])


def test_the_version_is_written_once() -> None:
    for file in ("pyproject.toml", "lab/pyproject.toml"):
        assert "version" not in project(file)
        assert project(file)["dynamic"] == ["version"]
    assert version("nova-placement") == nova.__version__


def test_the_licence_is_apache_everywhere() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "END OF TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_text()
    assert {project(file)["license"] for file in ("pyproject.toml", "lab/pyproject.toml")} == {"Apache-2.0"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == "Apache-2.0"


def test_every_room_has_its_layer_and_its_line_in_the_lists_of_rooms() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip("() ") for line in layers for name in line.split(":")}
    found = {
        file.stem
        for file in (ROOT / "src" / "nova").iterdir()
        if file.name not in ("__init__.py", "__main__.py", "__pycache__") and (file.is_dir() or file.suffix == ".py")
    }
    assert {f"nova.{room}" for room in found} <= named
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        rooms = found - {"files", "jit", "terminal", "extras"}
        missing = [room for room in rooms if f"{room}/" not in text and f"{room}.py" not in text]
        assert not missing, page


def test_tests_mirror_modules() -> None:
    """`tests/ROOM/test_MODULE.py`, or `test_MODULE_ASPECT.py` where there is much to say; what spans rooms is in
    `tests/whole`."""
    lost = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        room = file.relative_to(ROOT / "tests").parent
        if room.parts[:1] == ("whole",):
            continue
        lab = room.parts[:1] == ("lab",)
        home = ROOT / "lab" / "src" / "nova_lab" if lab else ROOT / "src" / "nova"
        folder = home.joinpath(*room.parts[lab:])
        words = file.stem.split("_")[1:]
        names = ["_".join(words[:k]) for k in range(1, len(words) + 1)]
        if not any((folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists() for name in names):
            lost.append(str(file.relative_to(ROOT)))
    assert not lost, f"these mirror no module: {lost}"
