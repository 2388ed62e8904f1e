"""The arguments of operations: those that several share, each with its parser, and how a function declares its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from typing import Annotated, Any

from dbt_recluster.advice.cost_model import PriceList, parse_prices
from dbt_recluster.clustering.options import (
    RECLUSTER_OPTIONS,
    Parser,
    Queries,
    count_up_to,
    is_auto,
    non_empty,
    parse_boolean,
    parse_bytes,
    parse_count,
    parse_moment,
    parse_predicate,
    parse_reads,
    parsed_moment,
    parser,
)
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.report.prometheus import parse_metrics_file
from dbt_recluster.text import did_you_mean


@dataclass(frozen=True)
class Argument:
    """An argument of an operation; ``max_bytes`` is ``--max-bytes`` on the command line."""

    parse: Parser  # reads a value other than None
    metavar: str = "VALUE"  # stands for the value in help; empty for one that is true or false
    meaning: str = ""  # a sentence for the reference and for help
    otherwise: str = ""  # the default in words
    name: str = ""
    default: Any = None
    is_list: bool = False  # whether the command line may repeat it
    var: str = ""  # the var of a dbt project that stands in for it
    is_of_python: bool = False  # whether neither dbt nor the command takes it

    def read(self, value: Any) -> Any:
        """Return a value, checked; the default for None."""
        return self.default if value is None else self.parse(self.name, value)

    def of_var(self, var: Callable[..., Any]) -> Any:
        """Return the value of its var, checked, by dbt's ``var``; the default if the project does not set it."""
        value = var(self.var, None)
        return self.default if value is None else self.parse(f"var {self.var}", value)


@cache
def arguments_of(function: Callable[..., Any]) -> tuple[Argument, ...]:
    """Return the arguments of a function, by its annotations and its docstring."""
    texts, hints = documented_arguments(function), inspect.get_annotations(function, eval_str=True)
    arguments: list[Argument] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments += (known for option, known in OPTIONS.items() if option in hints[name].__annotations__)
        for known in getattr(hints.get(name), "__metadata__", ()):
            meaning, _, otherwise = texts.get(name, "").partition(" By default, ")
            otherwise = otherwise.rstrip(".") or known.otherwise or str(parameter.default).lower()
            facts = {"name": name, "meaning": meaning or known.meaning, "otherwise": otherwise}
            arguments.append(replace(known, **facts, default=parameter.default))
    return tuple(arguments)


def meaning_of(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((function.__doc__ or "").partition("\n\n")[0].split())


def documented_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """Return the entries of ``Args`` in a docstring."""
    _, _, text = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def read_arguments(of: str, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation or a test, checked; None counts as not given.

    Raises:
        OptionError, ClusterKeyError: One is wrong, or there is no such argument.
    """
    known = {argument.name: argument for argument in arguments}
    for name, value in given.items():
        if name not in known and value is not None:
            meant = did_you_mean(str(name), known, "it takes")
            raise OptionError(f"{of} has no argument {name!r}; {meant}")
    return {name: argument.read(given.get(name)) for name, argument in known.items()}


def _queries(value: Any) -> Queries | None:
    if isinstance(value, Mapping):
        return _queries_by_name(value)
    queries = [value] if isinstance(value, str) else value
    return queries if isinstance(queries, Sequence) and all(map(non_empty, queries)) else None


def _queries_by_name(value: Any) -> Mapping[str, str] | None:
    is_valid = isinstance(value, Mapping) and all(isinstance(query, str) for query in value.values())
    return {str(name): query for name, query in value.items()} if is_valid else None


parse_snapshot_count = count_up_to(2**31 - 1)  # Java's greatest int
parse_end = parser(
    "a date such as 2026-12-04, or a time, that is to come",
    lambda value: end if (end := parsed_moment(value).astimezone(timezone.utc)) > datetime.now(timezone.utc) else None,
)
parse_reason = parser(
    "a line of at most 200 characters",
    lambda text: text if text.isprintable() and 0 < len(text) <= 200 else None,
)
parse_trigger = parser("run or manual", lambda value: value if value in ("run", "manual") else None)
parse_callback = parser("a function", lambda value: value if callable(value) else None)
parse_branch = parser("the name of a branch", non_empty)
parse_log = parser("a directory of Spark's event logs or a file, such as s3://bucket/spark-events", non_empty)
parse_dialect = parser("the name of a SQL dialect, such as trino", lambda value: str(non_empty(value)).lower())
parse_logged_as = parser(
    "a table's full name, such as lake.analytics.events",
    lambda value: value if isinstance(value, str) and "." in value else None,
)
parse_queries_by_name = parser("a mapping of names to SQL queries", _queries_by_name)
parse_queries: Callable[[str, Any], Queries] = parser(
    "a SQL predicate, a query or a list of them, or queries by name", _queries
)


def _tables(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    is_list = isinstance(names, list) and bool(names)
    return value if is_list and all(map(non_empty, names)) else None


TABLE = Argument(
    parser("a relation, the name of a model, or a list of them", _tables),
    "TABLE",
    "A relation (schema.table), the name or unique id of a model, or a list of these.",
    "every model that it is for",
    "table",
)
FORMAT = Argument(
    parser("text or json", lambda value: {"text": "text", "json": "json"}.get(str(value).strip().lower())),
    "FORMAT",
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "text",
    "format",
    "text",
)
METRICS = Argument(
    parse_metrics_file,
    "FILE",
    "A file to write the tables' line in the overview to as well, in Prometheus' text format (dbt-recluster[metrics]).",
    "none; in dbt, the project's var recluster_metrics_file",
    "metrics",
    var="recluster_metrics_file",
)
PRICES = Argument(
    parse_prices,
    "PRICES",
    "Prices by which money is shown: currency=EUR,compute_hour=3.20,terabyte_scanned=5; in dbt a mapping.",
    "none; in dbt, the project's var recluster_prices",
    var="recluster_prices",
)
AUTOMATIC_CLUSTERING = Argument(
    parse_boolean,
    meaning="false: no table is reclustered after its build in this run.",
    default=True,
    var="automatic_clustering",
)
BUDGET = Argument(
    parse_bytes,
    meaning="The most bytes to rewrite in this run over all tables, a number or a size such as `10 GB`. After builds "
    "it goes to the first tables that need it, since which one gains most is not known while models still run. "
    "`run-operation recluster` knows: those that gain most for a byte come first.",
    var="recluster_max_bytes",
)
Flag = Annotated[bool, Argument(parse_boolean, "")]


def _key(_: str, value: Any) -> ClusterKey:
    if is_auto(value):
        raise ClusterKeyError(
            "cluster_by: auto is a model's, and stays with its table; here it would be a column, written `auto` in "
            "backquotes or [auto]"
        )
    return value if isinstance(value, ClusterKey) else parse_cluster_key(value)


_KEY = Argument(
    _key,
    "KEY",
    otherwise="the model's, else the table's sort order",
)
Key = Annotated[str | Sequence[str] | ClusterKey | None, _KEY]
_MEASURED_KEY = "The key to measure by; the table keeps its own: columns or expressions, a list or separated by commas."
MeasuredKey = Annotated[str | Sequence[str] | ClusterKey | None, replace(_KEY, meaning=_MEASURED_KEY)]
_WHERE = "A predicate on the table's columns; only blocks that may hold a matching row count."
Where = Annotated[str | None, Argument(parse_predicate, "PREDICATE", _WHERE)]
_BRANCH = "A branch of the tables, in place of main."
Branch = Annotated[str | None, Argument(parse_branch, "NAME", _BRANCH, "main")]
Moment = Annotated[datetime | None, Argument(parse_moment, "TIME")]
_SINCE = "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'."
Since = Annotated[datetime | None, Argument(parse_moment, "TIME", _SINCE, "all")]
Prices = Annotated[PriceList | None, PRICES]
_READS, _ROWS = Argument(parse_reads, is_of_python=True), Argument(parse_count, is_of_python=True)
ReadsOfTable = Annotated[str | Sequence[str | Mapping[str, Any]] | None, _READS]
BlockRows = Annotated[int | None, _ROWS]
Trigger = Annotated[str | None, Argument(parse_trigger, is_of_python=True)]
Listener = Annotated[ProgressCallback | None, Argument(parse_callback, is_of_python=True)]
# The arguments that override options of the model or the table.
OPTIONS = {
    name: Argument(option.parse, option.metavar, option.meaning, "what the model or the table says", name)
    for name, option in RECLUSTER_OPTIONS.items()
    if option.metavar is not None
}
