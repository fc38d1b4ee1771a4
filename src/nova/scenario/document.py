"""The scenario file itself: YAML or JSON to plain values, with the line of everything that is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nova.model.errors import Fault, InvalidInput
from nova.model.limits import refuse_beyond
from nova.model.reading import parse_json, whole

MOST_VALUES = 1_000_000
"""Values that a document may have through aliases; one that is written out may have more."""
MOST_DEEP = 200
"""Levels of a document. The parser of YAML goes down level by level and, some ten thousand down, takes Python along."""
IN_MEMORY = 30.0
"""Bytes of memory that a byte of YAML or JSON takes at most."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML in which a node may be called `no`, `007`, `1e3` or `2024-01-01`, and stays that.

    What it takes as a number or a truth is what all versions of YAML agree on; the rest stays text, which columns of
    numbers know how to read.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    message = f"{key.value!r} stands here twice"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)\.[0-9]*)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    "merge": (r"<<", ["<"]),
}
_Loader.yaml_implicit_resolvers = {}
for _tag, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
_Loader.add_constructor(
    "tag:yaml.org,2002:float", lambda loader, node: float(re.sub(r"\.(?=[iInN])", "", loader.construct_scalar(node)))
)


def read(path: Path) -> dict[str, Any]:
    """The document as plain values. A file that cannot be read or parsed raises InvalidInput with its line."""
    file = str(path)
    try:
        refuse_beyond(file, "the document", path.stat().st_size * IN_MEMORY, fix="put the rows into a table of its own")
        text = whole(path).decode("utf-8-sig")
    except IsADirectoryError:
        raise InvalidInput([Fault(file, "this is a folder: name the scenario file in it")]) from None
    except FileNotFoundError:
        raise InvalidInput([Fault(file, "no such file")]) from None
    except OSError as error:
        raise InvalidInput([Fault(file, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        found = error.object[error.start : error.end]
        raise InvalidInput([Fault(file, "not UTF-8 text", row, value=found)]) from None
    content = parse_json(text, file) if path.suffix.lower() == ".json" else parse_yaml(text, file)
    if content is None:
        raise InvalidInput([Fault(file, "the scenario is empty: `nova init DIR` writes one to start from")])
    if not isinstance(content, dict):
        kind = "list" if isinstance(content, list) else "single value"
        raise InvalidInput([Fault(file, f"a mapping with nodes, streams and queries expected, not a {kind}", 1)])
    return content


def parse_yaml(text: str, file: str) -> Any:
    """The value that a YAML text holds; what is no YAML is told with its line."""
    try:
        _refuse_depths(text, file)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_aliases(node, file)
        return loader.construct_document(node)  # safe: _Loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(filter(None, [error.problem, error.context and f"({error.context})"]))
        raise InvalidInput([Fault(file, f"not YAML: {message}", mark.line + 1 if mark else None)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also: thousands of digits or brackets, !!binary
        raise InvalidInput([Fault(file, f"not YAML: {error}")]) from None


def _refuse_depths(text: str, file: str) -> None:
    """Refuse a document of brackets within brackets without end, before the parser goes down there."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEEP:
            message = f"not YAML: more than {MOST_DEEP} levels of lists and mappings within each other"
            raise InvalidInput([Fault(file, message, event.start_mark.line + 1 if event.start_mark else None)])


def _refuse_aliases(root: yaml.Node, file: str) -> None:
    """Refuse a document that a few aliases blow up beyond all measure, or that contains itself."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if id(node) in sizes:
            continue
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        if done:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
            continue
        if id(node) in open_:
            continue
        open_.add(id(node))
        if any(id(part) in open_ and id(part) not in sizes for part in parts):
            message = "an alias stands inside what it names"
            raise InvalidInput([Fault(file, message, node.start_mark.line + 1)])
        stack.append((node, True))
        stack += [(part, False) for part in parts]
    size = sizes[id(root)]
    if size > MOST_VALUES and size > 10 * len(sizes):
        message = f"aliases blow the document up to {size:,} values, more than {MOST_VALUES:,}: use a table"
        raise InvalidInput([Fault(file, message)])


def line_of(path: Path, location: Sequence[str | int]) -> int | None:
    """Line of a field (or of the nearest thing around it that exists). Read again only when something is wrong."""
    try:
        node = yaml.compose(path.read_bytes().decode("utf-8-sig"), Loader=_Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    line: int | None = None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                break
            line = found[0][0].start_mark.line + 1
            node = found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line or (1 if node is not None else None)
