"""The documentation is right: commands in it exist with their options; README, tutorial and notebook run; and
the site builds without a warning."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builders import invoke
from nova.cli import COMMANDS, load_command

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *ROOT.glob("docs/**/*.md")]
)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each line of a code block that begins with `nova` and names a command."""
    blocks = re.findall(r"^```(?:console|sh|bash)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    ((?:nova|echo|tail) .*)$", text, re.MULTILINE)
    for line in "\n".join([*blocks, *indented]).replace("\\\n", " ").splitlines():
        for part in re.split(r" \| | && ", line.removeprefix("$ ")):
            words = shlex.split(part.replace("…", ""), comments=True) if re.match(r"(\.venv/bin/)?nova ", part) else []
            if len(words) > 1 and words[1] in COMMANDS:
                yield ["nova", *words[1:]]


@cache
def command(name: str) -> Any:
    return load_command(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist_with_their_options(page: Path) -> None:
    for words in commands(page.read_text()):
        found, rest = command(words[1]), words[2:]
        while hasattr(found, "commands"):
            assert rest, f"{words} names no command"
            assert rest[0] in found.commands, words
            found, rest = found.commands[rest[0]], rest[1:]
        known = {name for param in found.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
        for word in rest:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{shlex.join(words)}: {word}"


def section(title: str) -> str:
    """A section of the README."""
    return (ROOT / "README.md").read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def run(text: str) -> None:
    """Run the commands and the Python of a page, in order, in the current folder."""
    space: dict[str, Any] = {}
    for kind, block in re.findall(r"^```(console|python|)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(compile(block, "page", "exec"), space)
            continue
        for line in block.splitlines():
            line = line.removeprefix("$ ")
            if line.startswith("echo "):
                subprocess.run(line, shell=True, check=True)
            for words in commands(f"```\n{line}\n```"):
                result = invoke(*words[1:])
                assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_readme_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan at the top, line by line."""
    monkeypatch.chdir(ROOT)
    command, shown = re.search(
        r"^```\n\$ nova (plan .*?) -o plan\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M
    ).groups()  # type: ignore[union-attr]
    printed = invoke(*command.split(), "-o", tmp_path / "plan").stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    assert shown.splitlines() == lines[: len(shown.splitlines())], "README: run the command, and draw docs/assets anew"


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for title in ("Your own scenario in five minutes", "Python", "When the world changes"):
        run(section(title))
    assert (tmp_path / "my" / "plan.html").exists()


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run((ROOT / "docs" / "tutorial.md").read_text())
    assert "sub-joins" in capsys.readouterr().out


SAMPLES = {
    "k8s": ("kubectl-nodes.json", "nodes.json"),
    "prometheus": ("prometheus-vector.json", "rtt.json"),
    "goldpinger": ("goldpinger-check-all.json", "check.json"),
    "consul": ("consul-coordinates.json", "nodes.json"),
    "ansible": ("ansible-inventory.json", "inventory.json"),
    "kafka": ("offsets-before.txt", "before.txt"),
}
"""What stands for the output of another tool, and its name on the page."""


def test_the_imports_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = re.findall(r"^\| `nova (import [^`]+)` ", (ROOT / "docs" / "howto" / "roads.md").read_text(), re.MULTILINE)
    assert {line.split()[1] for line in told} == set(SAMPLES)
    for line in told:
        kind = line.split()[1]
        sample, name = SAMPLES[kind]
        shutil.copy(ROOT / "tests" / "cli" / "samples" / sample, name)
        if kind == "kafka":
            shutil.copy(ROOT / "tests" / "cli" / "samples" / "offsets-after.txt", "after.txt")
            line += " --node broker-1"
        result = invoke(*line.split(), "-o", tmp_path / kind)
        assert result.exit_code == 0, f"{line}\n{result.output}"


NEEDED = r"my/|demo/|scenario\.yaml|examples/"
ELSEWHERE = r"--site|--engine spark|nova (run|deploy|paper|bench|showcase|data|measurements|sensors)"
"""Commands that need another machine, a broker, Spark or a network; the rooms' own tests run those."""


@pytest.mark.parametrize("page", ["howto/capacity.md", "design/cost-space.md", "design/evaluation.md"])
def test_commands_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a scenario and a plan of the names that pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nova.routing.calibrate.LEAST_S", 0.02)
    for name in ("my", "demo", "."):
        assert invoke("init", name).exit_code == 0
    assert invoke("plan", "demo/scenario.yaml", "-o", "demo/plan").exit_code == 0
    ran = 0
    for words in commands((ROOT / "docs" / page).read_text()):
        line = shlex.join(words)
        if re.search(ELSEWHERE, line) or not re.search(NEEDED, line):
            continue
        result = invoke(*words[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}"
        ran += 1
    assert ran


def test_the_events_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a plan to a journal, a replay and a drift, as docs/reference/events.md goes through it."""
    monkeypatch.chdir(tmp_path)
    Path("events.jsonl").write_text('{"event": "node_removed", "node": "north-fog"}\n')
    for words in commands((ROOT / "docs" / "reference" / "events.md").read_text()):
        if words[:3] == ["nova", "events", "apply"] and "events.jsonl" not in words:
            continue  # a feed that does not end: see tests/cli/test_events.py
        result = invoke(*("events.jsonl" if word == "-" else word for word in words[1:]))
        assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"


def test_the_notebook_runs(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "outputs are not kept in the repository"
    nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert book.cells[-1].outputs[0].data["text/plain"] == "True"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    assert "nova plan" in (tmp_path / "reference" / "cli" / "index.html").read_text()
    assert "add_query" in (tmp_path / "reference" / "api" / "index.html").read_text()
