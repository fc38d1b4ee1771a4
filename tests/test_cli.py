"""The command table: quick, lazy, helpful."""

from __future__ import annotations

import errno
import subprocess
import sys
import types

import pytest
import typer

import nova.cli
from builders import invoke
from nova.model.errors import Fault, InvalidInput


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands of our own: `pair` with two sub-commands, `one` with a single function."""
    pair, one = typer.Typer(help="A pair."), typer.Typer()

    @pair.command()
    def first(size: int = 3) -> None:
        typer.echo(f"first {size}")

    @pair.command()
    def second() -> None:
        raise InvalidInput([Fault("nodes.csv", "wrong [here]", 3, "rate", "x")])

    @one.command()
    def command(path: str) -> None:
        """Do one thing."""
        typer.echo(path)

    for name, app in (("pair", pair), ("one", one)):
        module = types.ModuleType(f"fake_{name}")
        module.app = app  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(nova.cli.COMMANDS, name, (module.__name__, f"Help of {name}."))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom nova.cli import main\nsys.argv = ['nova', '--help']\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "print([m for m in ('numpy', 'numba', 'pyarrow', 'scipy', 'pydantic', 'pyspark') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert all(name in out for name in nova.cli.COMMANDS)


@pytest.mark.usefixtures("fake")
def test_one_function_is_a_plain_command_and_several_are_a_group() -> None:
    assert invoke("one", "x").output == "x\n"
    assert "Usage: nova one [OPTIONS]" in invoke("one", "--help").output
    assert invoke("pair", "first", "--size", 5).output == "first 5\n"
    assert "second" in invoke("pair", "--help").output
    assert "completion" not in invoke("pair", "--help").output


@pytest.mark.usefixtures("fake")
def test_errors_become_a_message_and_an_exit_code() -> None:
    result = invoke("pair", "second")
    assert result.exit_code == 2
    assert result.stderr == "nova: 1 problem in the input:\nnodes.csv, row 3, field rate: wrong [here] (found 'x')\n"


@pytest.mark.usefixtures("fake")
def test_a_disk_that_takes_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "run/log")

    monkeypatch.setattr(nova.cli, "load_command", full)
    result = invoke("pair", "first")
    assert result.exit_code == 1
    assert result.stderr == "nova: run/log: No space left on device\n"


def test_unknown_command_is_helped() -> None:
    result = invoke("plam")
    assert result.exit_code == 2
    assert "Did you mean 'plan'?" in result.output


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nova.cli.COMMANDS, "stream", ("fake_stream", ""))

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name, name="pyspark.sql")

    monkeypatch.setattr(nova.cli, "import_module", missing)
    result = invoke("stream")
    assert result.exit_code == 1
    assert "nova-placement[spark]" in result.stderr


def test_version() -> None:
    assert invoke("--version").output.strip() == nova.__version__
