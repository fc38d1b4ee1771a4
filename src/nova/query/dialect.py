"""Dialect: the SQL that queries are written in, a small part of Spark's; and what is wrong with a text, by position."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

CLAUSES = "SELECT, FROM, JOIN … ON, WHERE, GROUP BY and HAVING"
BOUNDS = ("window_start", "window_end")
"""Columns of every window."""
_MERGED: dict[str, type[exp.Func]] = {
    "COUNT": exp.Count,
    "SUM": exp.Sum,
    "MIN": exp.Min,
    "MAX": exp.Max,
    "AVG": exp.Avg,
    "MEAN": exp.Avg,
    "STD": exp.Stddev,
    "STDDEV": exp.Stddev,
    "STDDEV_SAMP": exp.StddevSamp,
    "STDDEV_POP": exp.StddevPop,
    "VARIANCE": exp.Variance,
    "VAR_SAMP": exp.Variance,
    "VAR_POP": exp.VariancePop,
}
"""Aggregates that partial ones are made of."""
AGGREGATES = frozenset(
    [
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "array_agg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "corr",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max_by",
        "median",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "skewness",
        "some",
        "string_agg",
        "try_avg",
        "try_sum",
    ]
)
"""All others of Spark's: computed where all rows of a group are."""
_MERGEABLE = {"expressions", "from_", "joins", "where", "kind", "hint", "match"}
"""What a query in brackets may have that is merged into the one around it."""
_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""What may stand around an aggregate and belongs to it."""


class SqlFault(Exception):
    """Something wrong with a query's text: where, at which token, and what is allowed there."""

    unplanned = False
    """Whether the text is in order, but Nova cannot plan what it asks for."""

    def __init__(self, message: str, line: int = 1, column: int = 1, token: str = "") -> None:  # nosec B107
        super().__init__(message)
        self.message, self.line, self.column, self.token = message, line, column, token

    def __str__(self) -> str:
        at = f" at {self.token!r}" if self.token else ""
        return f"line {self.line}, column {self.column}{at}: {self.message}"


class NovaSql(Spark):
    """Spark's SQL, in which `window` is a function and not a clause. Functions are Spark's and stay as they are
    written: only those that Nova takes apart have a meaning here."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {  # noqa: RUF012
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if kind not in (TokenType.WINDOW, TokenType.SESSION)
        }

    class Parser(SparkParser):
        FUNCTIONS = {  # noqa: RUF012
            **{name: kind.from_arg_list for name, kind in _MERGED.items()},
            **{name: SparkParser.FUNCTIONS[name] for name in ("ARRAY", "MAP", "STRUCT")},
        }
        FUNCTION_PARSERS = {  # noqa: RUF012
            **{name: read for name, read in SparkParser.FUNCTION_PARSERS.items() if name.lower() not in AGGREGATES},
            **{name: (lambda self, name=name: self.of_table(name)) for name in ("TUMBLE", "HOP", "CUMULATE")},
        }

        def of_table(self, name: str) -> exp.Expr:
            """A window of a time, or of a table as others write it: TUMBLE(TABLE x, DESCRIPTOR(time), …)."""

            def argument() -> exp.Expr | None:
                if self._next is not None and self._next.token_type == TokenType.FARROW:  # DATA => TABLE x
                    self._advance(2)
                self._match(TokenType.TABLE)
                return self._parse_lambda()

            return self.expression(exp.Anonymous(this=name, expressions=self._parse_csv(argument)))


def aggregates_in(node: exp.Expr) -> list[exp.Expr]:
    """The aggregates of an expression, each with all that belongs to it: FILTER (WHERE …), WITHIN GROUP (…)."""
    return [part for part in node.walk() if is_aggregate(part)]


def is_aggregate(node: object) -> bool:
    """Whether a part of an expression is a whole aggregate."""
    if not isinstance(node, exp.Expr) or (isinstance(node.parent, _AROUND) and node.arg_key == "this"):
        return False
    while isinstance(node, _AROUND):
        node = node.this
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in AGGREGATES
    return isinstance(node, exp.AggFunc)


def is_view(select: exp.Select) -> bool:
    """Whether a query reads what it reads row by row: no groups, no ranks, nothing but columns and conditions."""
    others = (name for name, value in select.args.items() if value and name not in _MERGEABLE)
    own = [*select.expressions, *(one for one in (select.args.get("where"),) if one is not None)]
    counted = (one for part in own for one in (*aggregates_in(part), *part.find_all(exp.Window)))
    return next(others, None) is None and next(counted, None) is None


def parse(sql: str) -> exp.Select:
    """The SELECT that a text is. Raises `SqlFault` where the text is not of the dialect."""
    try:
        statements = [one for one in sqlglot.parse(sql, read=NovaSql) if one is not None]
    except ParseError as error:
        detail = error.errors[0]
        token = str(detail["highlight"] or "")
        line, column = int(detail["line"] or 1), int(detail["col"] or 1)
        raise SqlFault(_said(str(detail["description"])), line, max(1, column - len(token) + 1), token) from None
    except TokenError:
        line, column, token = _unclosed(sql)
        raise SqlFault("a text or name that begins here has no end", line, column, token) from None
    except RecursionError:
        raise SqlFault("nested too deep") from None
    if not statements:
        raise SqlFault(f"the query is empty: {CLAUSES} expected")
    for extra in statements[1:]:
        raise fault(sql, extra, "one query expected, and this is a second one")
    select = statements[0]
    if not isinstance(select, exp.Select):
        kind = type(select).__name__.upper()
        raise fault(sql, select, f"a query begins with SELECT, and has the clauses {CLAUSES}; this is {kind}")
    return select


def fault(sql: str, node: object, message: str, token: str = "") -> SqlFault:  # nosec B107
    """A fault at the first token of a part of the query."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta] if isinstance(node, exp.Expr) else []
    if not starts and isinstance(node, exp.Expr) and node.parent is not None and not token:
        return fault(sql, node.parent, message)
    if not starts:
        found = re.search(rf"\b{re.escape(token)}\b", sql, re.IGNORECASE) if token else None
        start = found.start() if found else 0
    else:
        start = min(starts)
    word = re.match(r"\w+|'[^']*'|\S", sql[start:])
    before = sql[:start]
    return SqlFault(
        message, before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1, word.group() if word else token
    )


def _said(description: str) -> str:
    """sqlglot's words in ours."""
    if description.startswith("Expected table name"):
        return "the name of a stream expected after this"
    if description.startswith("Required keyword"):
        return "something is missing after this"
    if description.startswith("Expecting"):
        return f"{description.removeprefix('Expecting').strip()} expected after this"
    return f"not expected here; the clauses of a query are {CLAUSES}"


def _unclosed(sql: str) -> tuple[int, int, str]:
    """Line, column and first word of the quote that is not closed."""
    rest = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`", lambda m: " " * len(m.group()), sql)
    at = min((rest.find(quote) for quote in "'\"`" if quote in rest), default=0)
    word = re.match(r"\S+", sql[at:])
    return sql.count("\n", 0, at) + 1, at - (sql.rfind("\n", 0, at) + 1) + 1, word.group() if word else ""
