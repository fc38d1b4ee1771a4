"""MkDocs hook: the reference pages that are generated from the code, so that they cannot go stale.

`reference/cli.md` comes from the commands, `reference/scenario.md` from the JSON Schema of scenario files.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path, content in (("reference/cli.md", commands()), ("reference/scenario.md", scenario())):
        files.append(File.generated(config, path, content=content))
    return files


def commands() -> str:
    """Every command with its arguments and options."""
    from nova.cli import COMMANDS, load_command

    lines = ["# Commands", "", "Every command prints tables, or JSON with `--json`, and helps with `--help`.", ""]
    for name in COMMANDS:
        lines += _command(load_command(name), f"nova {name}", 2)
    return "\n".join(lines)


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{path}`"
    yield ""
    yield inspect.cleandoc(command.help or "")
    yield ""
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from _command(child, f"{path} {name}", level + 1)
        return
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    words = [param.metavar or param.name.upper() for param in arguments] + ["[OPTIONS]"] * bool(options)
    yield f"```\n{' '.join([path, *words])}\n```\n"
    if command.params:
        yield "| | | default |"
        yield "|---|---|---|"
    for param in arguments:
        yield _row(f"`{param.metavar or param.name.upper()}`", param.help or "", "")
    for param in options:
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        default = "" if param.default in (None, False, ()) or callable(param.default) else f"`{param.default}`"
        yield _row(names, param.help or "", "required" if param.required else default)
    yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def scenario() -> str:
    """Every field of a scenario file."""
    from nova.scenario import schema

    document = schema()
    parts = {"Scenario": document} | document["$defs"]
    lines = [
        "# Scenario files",
        "",
        "A scenario is a YAML or JSON file. Tables are paths to CSV or Parquet files, beside the scenario file, or rows"
        " in the file itself. `nova schema` prints the same as JSON Schema, for editors.",
        "",
    ]
    for name, part in parts.items():
        lines += [f"## {name}", "", inspect.cleandoc(part.get("description", "")), ""]
        lines += ["| field | type | default | |", "|---|---|---|---|"]
        required = part.get("required", ())
        for field, about in part.get("properties", {}).items():
            default = "required" if field in required else f"`{about.get('default')}`" if "default" in about else ""
            lines.append(_row(f"`{field}`", _type(about), default.replace("`None`", ""), about.get("description", "")))
        lines.append("")
    return "\n".join(lines)


def _type(about: dict[str, Any]) -> str:
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_type(one) for one in about["anyOf"] if one.get("type") != "null"))
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}" if about.get("items") else "list"
    if about.get("type") == "object" and isinstance(about.get("additionalProperties"), dict):
        return f"name → {_type(about['additionalProperties'])}"
    return str(about.get("type", "any"))
