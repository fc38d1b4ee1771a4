"""What a user may write in a scenario file, as pydantic models; their JSON Schema is `nova schema`."""

from __future__ import annotations

import ast
import inspect
import types
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from nova.model.ids import REFUSED, has_control
from nova.model.operators import Selectivities
from nova.model.options import Options
from nova.model.requires import FORMS, Requirement, parse
from nova.model.units import DURATION, NUMBER, RATE, Quantity
from nova.scenario.document import line_of
from nova.scenario.faults import Faults, listed, suggestion
from nova.scenario.frames import as_arrow, is_frame

FORMAT = 1
"""Version of the scenario contract, the field `nova`."""


def _table(value: Any) -> Any:
    """A path, rows (mappings, or lists of which the first names the columns), or a table in memory."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list):
        if all(isinstance(row, dict) for row in value) or all(isinstance(row, list) for row in value):
            return value
        raise PydanticCustomError("table", "the rows of an inline table are all mappings, or all lists")
    if is_frame(value):
        return as_arrow(value)
    raise PydanticCustomError("table", "a path (.csv, .csv.gz, .parquet) or inline rows expected")


def _columns(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name.strip() for name in names):
        if len(set(names)) < len(names):
            raise PydanticCustomError("columns", "an attribute is named twice")
        return tuple(names)
    raise PydanticCustomError("columns", "the name of an attribute, or a list of names, expected")


def _requires(value: Any) -> tuple[Requirement, ...]:
    """Conditions on labels, as one text or several."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("requires", "conditions on labels expected: {forms}", {"forms": FORMS})
    try:
        return tuple(one for text in texts for one in parse(text))
    except ValueError as error:
        raise PydanticCustomError("requires", "{message}", {"message": str(error)}) from None


MOST_JOINS = 5
"""Joins of one query."""


def _order(value: Any, deep: int = 0) -> Any:
    """Names in lists of two, as tuples."""
    if isinstance(value, str) and deep:
        return value
    if not isinstance(value, list | tuple) or len(value) != 2 or deep > MOST_JOINS:
        raise PydanticCustomError("order", "lists of two expected, of names or of such lists: [[a, b], c]")
    return tuple(_order(part, deep + 1) for part in value)


def _scalar(value: Any) -> str | int | float | bool:
    if isinstance(value, str | int | float):
        return value
    raise PydanticCustomError("scalar", "a text, a number, true or false expected")


def _name(value: Any) -> Any:
    """Ids that YAML reads as whole numbers are names all the same."""
    if isinstance(value, str) and has_control(value):
        raise PydanticCustomError("name", REFUSED)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _quantity(quantity: Quantity, *, above_zero: bool = False) -> BeforeValidator:
    def parse(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return value
        try:
            number = quantity.parse(value)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{message}", {"message": str(error)}) from None
        if above_zero and not 0 < number < float("inf"):
            raise PydanticCustomError("quantity", "a positive, finite value expected")
        return number

    if not quantity.units:
        return BeforeValidator(parse)
    return BeforeValidator(parse, json_schema_input_type=float | str if quantity.bare else str)


Table: TypeAlias = Annotated[
    Any,
    PlainValidator(_table),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "string",
                    "minLength": 1,
                    "description": "Path of a .csv, .csv.gz or .parquet file, from the folder of the scenario file.",
                },
                {"type": "array", "items": {"type": "object"}, "description": "Rows as mappings."},
                {
                    "type": "array",
                    "items": {"type": "array"},
                    "description": "Rows as lists; the first names the columns.",
                },
            ]
        }
    ),
]
Attributes: TypeAlias = Annotated[
    Any,
    PlainValidator(_columns),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
Requirements: TypeAlias = Annotated[
    Any,
    PlainValidator(_requires),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]
Scalar: TypeAlias = Annotated[Any, PlainValidator(_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Name: TypeAlias = Annotated[str, BeforeValidator(_name, json_schema_input_type=str | int), Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Columns(_Part):
    """Which columns of the input say where, when and what a tuple is."""

    source: str = "source_id"
    """Column with the id of the source a tuple comes from."""
    time: str = "event_time"
    """Column with the event time: ISO 8601, or epoch milliseconds."""
    value: str = "value"
    """Column with the measured value."""


class StreamInput(_Part):
    """Where the tuples of a stream come from when the plan runs."""

    format: str = Field(min_length=1)
    """csv, json, parquet, mqtt, kafka, generator, or any format that Spark reads."""
    path: str | None = None
    """File or folder, from the folder of the scenario file; `mqtt://…` or `kafka://…`; or a URL that Spark reads."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options of the reader, handed on as they are; `${NAME}` and `${file:PATH}` stand for secrets."""
    columns: Columns = Field(default_factory=Columns)
    """Names of the columns that every tuple needs."""

    @model_validator(mode="after")
    def _files_need_a_path(self) -> StreamInput:
        if self.format in ("csv", "json", "parquet") and not self.path:
            raise PydanticCustomError("path", "{format} input needs a path", {"format": self.format})
        return self

    def location(self, folder: Path) -> str | None:
        """The path to read from: as written where it is absolute or a URL, else inside the scenario's folder."""
        if self.path is None or "://" in self.path or Path(self.path).is_absolute():
            return self.path
        return str(folder / self.path)


class Column(_Part):
    """A column of a stream's tuples."""

    type: str | None = None
    """Spark's name of its type, such as bigint, double or string."""
    distinct: Annotated[float, Field(gt=0, allow_inf_nan=False), _quantity(NUMBER)] | None = None
    """How many different values it has: what selectivities are estimated from."""


def _column(value: Any) -> Any:
    """`price: double` is short for `price: {type: double}`."""
    return {"type": value} if isinstance(value, str) else {} if value is None else value


class Stream(_Part):
    """A logical stream: many sources of one kind."""

    sources: Table
    """Table with the columns id, node, rate (tuples/s) and any attributes to join on."""
    input: StreamInput | None = None
    """Where its tuples come from; needed to run the plan, not to make it."""
    columns: (
        dict[Name, Annotated[Column, BeforeValidator(_column, json_schema_input_type=Column | str | None)]] | None
    ) = None
    """Columns of the tuples beside source, time and value, for queries in SQL; where not stated, they are read from the
    input."""


class Window(_Part):
    """How time is cut; tuples join within a window. A length alone, such as `window: 1s`, is a tumbling window."""

    tumbling: Annotated[float, _quantity(DURATION, above_zero=True)] = 1000.0
    """Length with its unit, such as 1s or 500ms; kept in milliseconds."""

    @model_validator(mode="before")
    @classmethod
    def _length_alone(cls, value: Any) -> Any:
        return {"tumbling": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value


class Key(_Part):
    """Columns of the tuples that must be equal, too; a join with a key can be divided by key, at no extra traffic."""

    column: Attributes
    """Column (or list of columns) that the tuples of both sides carry."""
    cardinality: int | None = Field(None, ge=1)
    """Distinct keys, if known."""
    heavy: dict[Name, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """Keys with a large share of the tuples, and that share."""

    @model_validator(mode="after")
    def _shares_of_one_whole(self) -> Key:
        if sum(self.heavy.values()) > 1 + 1e-9:
            raise PydanticCustomError("heavy", "the shares of heavy keys add up to more than 1")
        return self


class Query(_Part):
    """A join of two streams with its results to a sink: as `sql`, or in short as `left`, `right` and `on`."""

    id: Name
    """Name of the query, unique."""
    sql: str | None = None
    """The whole query: see docs/howto/queries.md. Instead of left, right, on and window."""
    left: Name | None = None
    """Name of the left stream."""
    right: Name | None = None
    """Name of the right stream; a stream is not joined with itself."""
    on: Attributes | None = None
    """Attribute (or list of attributes) of the sources: those with equal values join."""
    pairs: Table | None = None
    """Table with the columns left, right and, if known, output_rate: exactly these sources join."""
    key: Key | None = None
    """Columns of the tuples that must be equal, with what is known of their values."""
    window: Annotated[Window, BeforeValidator(lambda value: value, json_schema_input_type=Window | str)] = Field(
        default_factory=Window
    )
    """Tumbling window; 1 s where not stated."""
    selectivity: dict[Name, Annotated[float, Field(ge=0, allow_inf_nan=False), _quantity(NUMBER)]] = Field(
        default_factory=dict
    )
    """What is known about the data: `join` is the share of the pairs in a window that match; for `sql` also, by stream,
    the share of tuples that its filters let through, and `group`: groups per window. Where several streams are joined,
    `join` holds for each join, and beside `order`, `join.1`, `join.2`, … for one of them, as they are made."""
    selectivity_from: dict[Name, Literal["stated", "measured", "estimated"]] = Field(default_factory=dict)
    """Where values of `selectivity` come from; stated by you, unless it is named here."""
    order: Annotated[Any, BeforeValidator(_order, json_schema_input_type=list[Any])] = None
    """Order in which three and more streams are joined, by their names in the text: `[[b, a], p]` joins b with a, and
    what comes of it with p. Left out: the cheapest by rates and latencies."""
    requires: Requirements = ()
    """What a node must be or have to run this query, by labels of the nodes table: `region in [eu, ch]`, `gpu >= 1`,
    `arch = arm64`, joined by `and`, or as a list."""
    tuple_bytes: Annotated[float, Field(gt=0, allow_inf_nan=False), _quantity(NUMBER)] | None = None
    """Memory that a tuple takes while its window is open: hosts are charged tuples/s × window × this against the column
    `memory` (MB) of the nodes table."""
    apart: Name | None = None
    """Label of the nodes (or `id`): no two replicas of one sub-join run on nodes with the same value."""
    sink: Name
    """Node that gets the results."""

    @property
    def known(self) -> Selectivities:
        """The selectivities, each with where it comes from."""
        return Selectivities(self.selectivity, self.selectivity_from)

    @property
    def tuple_columns(self) -> tuple[str, ...]:
        """Columns that joined tuples must agree on, as far as the tuples of both sides carry them."""
        names = (*(self.on or ()), *(self.key.column if self.key is not None else ()))
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _one_form(self) -> Query:
        short = [name for name in ("left", "right", "on", "window") if name in self.model_fields_set]
        if self.sql is not None and short:
            raise PydanticCustomError(
                "form", "`sql` says it all: {names} cannot stand beside it", {"names": ", ".join(short)}
            )
        if self.sql is None:
            missing = [name for name in ("left", "right") if getattr(self, name) is None]
            if missing:
                message = "{names} missing: give left and right, or `sql`"
                raise PydanticCustomError("form", message, {"names": " and ".join(missing)})
            if self.selectivity.keys() - {"join"}:
                message = "beside left and right, `selectivity` has `join` alone: the share of pairs that match"
                raise PydanticCustomError("form", message)
        unknown = sorted(self.selectivity_from.keys() - self.selectivity.keys())
        if unknown:
            message = "`selectivity_from` names {name}, of which `selectivity` says nothing"
            raise PydanticCustomError("form", message, {"name": unknown[0]})
        return self

    @model_validator(mode="after")
    def _one_matrix(self) -> Query:
        if self.on is not None and self.pairs is not None:
            raise PydanticCustomError("matrix", "`on` and `pairs` both say which sources join: give one of them")
        return self


class Metric(_Part):
    """A metric beside latency (energy, money, carbon, …), in any unit per tuple: on hosts, on the way, or both."""

    node: Name | None = None
    """Column of the nodes table: units for each tuple that a host takes in."""
    links: Table | None = None
    """Table with the columns from, to and amount: units for each tuple that travels that way; others cost nothing."""
    label: Name = "id"
    """Label of the nodes that `from` and `to` are values of; ids where not stated."""
    per_gb_of_tuples: Annotated[float, Field(gt=0, allow_inf_nan=False), _quantity(NUMBER)] | None = None
    """Bytes of a tuple, where amounts are per GB instead of per tuple."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False), _quantity(NUMBER)] = 0.0
    """ms of the objective that one unit per second is worth; 0: only reported."""

    @model_validator(mode="after")
    def _something(self) -> Metric:
        if self.node is None and self.links is None:
            raise PydanticCustomError("metric", "a column of the nodes (`node`) or a table of ways (`links`) expected")
        return self


_RANGES: dict[str, Any] = {
    "seed": Field(ge=0, lt=2**63),
    "sigma": Field(ge=0, le=1),
    "bandwidth_budget": Field(gt=0, allow_inf_nan=False),
    "waiting": Field(ge=0, allow_inf_nan=False),
    "percentile": Field(gt=0, lt=100),
    "arrival_scv": Field(ge=0, allow_inf_nan=False),
    "c_min": Field(ge=0, allow_inf_nan=False),
    "utilisation": Field(gt=0, le=1),
    "max_replicas": Field(ge=1),
    "dimensions": Field(ge=1, le=16),
    "neighbours": Field(ge=1),
}
_RATES = {"bandwidth_budget", "c_min"}


def _option_fields() -> dict[str, Any]:
    """The fields of `nova.model.options.Options`, each with its range: one list of options in the project, not two."""
    hints, texts = get_type_hints(Options), _attribute_texts(Options)
    found: dict[str, Any] = {}
    for option in fields(Options):
        hint = hints[option.name]
        optional = type(None) in get_args(hint)
        kind: Any = next(a for a in get_args(hint) if a is not type(None)) if optional else hint
        annotation: Any = Annotated[kind, _RANGES[option.name]] if option.name in _RANGES else kind
        if kind is float:
            annotation = Annotated[annotation, _quantity(RATE if option.name in _RATES else NUMBER)]
        default = Field(option.default, description=texts.get(option.name))
        found[option.name] = (annotation | None if optional else annotation, default)
    return found


def _attribute_texts(cls: type) -> dict[str, str]:
    """The docstring under each attribute of a class: what an editor shows for an option."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


OptionsModel: type[BaseModel] = create_model(
    "Options", __base__=_Part, __doc__="How to plan; every field has a default.", **_option_fields()
)
"""`nova.model.options.Options` as a user may write them."""


class Document(_Part):
    """A scenario: nodes, latencies, streams and the queries that join them."""

    nova: Literal[1]
    """Version of this format."""
    nodes: Table
    """Table with the columns id, capacity (tuples/s) and, if wanted, coordinates in ms (x, y, z or x0, x1, …), height
    (ms), hosts (true/false), bandwidth (tuples/s), busy (tuples/s of other work on the node) and labels."""
    latency: Table | None = None
    """Square matrix of RTTs in ms (first column: id), or table with the columns from, to, rtt_ms (or rtt_s, rtt_us).
    Not needed where the nodes carry coordinates."""
    latency_unit: Literal["ms", "s", "us", "ns"] | None = None
    """What the numbers of a latency matrix are; ms where not stated."""
    links: Table | None = None
    """Table with the columns from, to and budget (tuples/s; or mbit_s and tuple_bytes): at most so much travels from
    the node `from` to the node `to`, or, with the column label, from nodes with one value of that label to nodes with
    another. `*` stands for all others."""
    metrics: dict[Name, Metric] = Field(default_factory=dict)
    """What is counted beside latency, by name: energy, money, carbon or anything else."""
    streams: Annotated[dict[Name, Stream], Field(min_length=1)]
    """Logical streams by name."""
    queries: Annotated[list[Query], Field(min_length=1)]
    """Joins of two streams each."""
    options: dict[str, Any] | None = None
    """How to plan. Checked by `OptionsModel`, together with what the command line says."""


def schema() -> dict[str, Any]:
    """The JSON Schema of scenario files."""
    full = create_model("Scenario", __base__=Document, __doc__=Document.__doc__, options=(OptionsModel | None, None))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **full.model_json_schema(),
        "title": "Nova scenario",
    }


def note(
    error: ValidationError, model: type[BaseModel], path: Path, faults: Faults, inside: tuple[str, ...] = ()
) -> None:
    """Every problem that pydantic found in the file, as faults in our words with their lines."""
    for detail in error.errors(include_url=False):
        location = (*inside, *detail["loc"])
        faults.add(
            str(path),
            _message(detail, model),
            line_of(path, location),
            ".".join(str(part) for part in location) or None,
            None if detail["type"] in ("missing", "extra_forbidden") else _short(detail["input"]),
        )


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    known = _fields_at(model, detail["loc"][:-1])
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown field{suggestion(detail['loc'][-1], known)}; the fields here are {listed(known, 30)}"
        case "missing":
            return "missing"
        case "literal_error" if detail["loc"] == ("nova",):
            return f"this version of nova reads scenario format {FORMAT}"
        case _:
            return detail["msg"].replace("Input should", "should").replace("Dictionary should", "should")


def _fields_at(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """Names of the fields that may stand at a location."""
    at = model
    for part in location:
        at = at.model_fields[part].annotation if _is_model(at) and part in at.model_fields else _inner(at)
        while get_origin(at) in (Annotated, Union, types.UnionType):
            at = next((a for a in get_args(at) if a is not type(None)), None)
    return list(at.model_fields) if _is_model(at) else []


def _inner(container: Any) -> Any:
    """Type of what a list or mapping holds."""
    return get_args(container)[-1] if get_args(container) else None


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _short(value: object) -> object:
    """The value as an error shows it; long ones only by their beginning."""
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "…"
