"""The arguments of operations: those that several share, each with its type, and how a function declares its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le, MaxLen, MinLen, Predicate
from pydantic import AfterValidator, BeforeValidator, PlainValidator

from dbt_recluster.advice import cost_model
from dbt_recluster.clustering.options import (
    MOMENT,
    NUMBER,
    RECLUSTER_OPTIONS,
    WORD,
    Boolean,
    Count,
    Expected,
    Moment,
    NamedQueries,
    Reads,
    Size,
    SqlPredicate,
    Text,
    is_auto,
    parse_value,
)
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.verdict import VERDICTS, Verdict
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.report.prometheus import MetricsFile
from dbt_recluster.text import did_you_mean


@dataclass(frozen=True)
class Argument:
    """An argument of an operation; ``max_bytes`` is ``--max-bytes`` on the command line."""

    metavar: str = "VALUE"  # stands for the value in help; empty for one that is true or false
    meaning: str = ""  # a sentence for the reference and for help
    otherwise: str = ""  # the default in words
    name: str = ""
    default: Any = None
    is_list: bool = False  # whether the command line may repeat it
    var: str = ""  # the var of a dbt project that stands in for it
    is_of_python: bool = False  # whether neither dbt nor the command takes it
    kind: Any = None  # the type that validates it; by default, the annotation

    def read(self, value: Any, name: str = "") -> Any:
        """Return a value, checked, which an error calls ``name``; the default for None."""
        return self.default if value is None else parse_value(self.kind, name or self.name, value)

    def of_var(self, var: Callable[..., Any]) -> Any:
        """Return the value of its var, checked, by dbt's ``var``; the default if the project does not set it."""
        return self.read(var(self.var, None), f"var {self.var}")


@cache
def arguments_of(function: Callable[..., Any]) -> tuple[Argument, ...]:
    """Return the arguments of a function, by its annotations and its docstring."""
    texts, hints = documented_arguments(function), inspect.get_annotations(function, eval_str=True)
    arguments: list[Argument] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (typed,) = get_args(hints[name])
            arguments += (argument for option, argument in OPTIONS.items() if option in typed.__annotations__)
        annotations = getattr(hints.get(name), "__metadata__", ())
        for argument in (each for each in annotations if isinstance(each, Argument)):
            meaning, _, otherwise = texts.get(name, "").partition(" By default, ")
            otherwise = otherwise.rstrip(".") or argument.otherwise or str(parameter.default).lower()
            argument = replace(argument, name=name, kind=argument.kind or hints[name], default=parameter.default)
            arguments.append(replace(argument, meaning=meaning or argument.meaning, otherwise=otherwise))
    return tuple(arguments)


def meaning_of(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((function.__doc__ or "").partition("\n\n")[0].split())


def documented_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """Return the entries of ``Args`` in a docstring."""
    _, _, text = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def read_arguments(of: str, arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation or a test, checked; None counts as not given.

    Raises:
        OptionError, ClusterKeyError: One is wrong, or there is no such argument.
    """
    by_name = {argument.name: argument for argument in arguments}
    for name, value in values.items():
        if name not in by_name and value is not None:
            meant = did_you_mean(str(name), by_name, "it takes")
            raise OptionError(f"{of} has no argument {name!r}; {meant}")
    return {name: argument.read(values.get(name)) for name, argument in by_name.items()}


def _words(value: Any) -> list[str]:
    words = value.split(",") if isinstance(value, str) else value
    return [str(word).strip().lower().replace("-", " ") for word in words]


SnapshotCount = Annotated[int, Ge(1), Le(2**31 - 1), NUMBER, Expected("a whole number above 0, at most 2,147,483,647")]
End = Annotated[
    datetime,
    MOMENT,
    AfterValidator(lambda end: end.astimezone(timezone.utc)),
    Predicate(lambda end: end > datetime.now(timezone.utc)),
    Expected("a date such as 2026-12-04, or a time, that is to come"),
]
Reason = Annotated[Text, MaxLen(200), Predicate(str.isprintable), Expected("a line of at most 200 characters")]
Log = Annotated[Text, Expected("a directory of Spark's event logs or a file, such as s3://bucket/spark-events")]
Dialect = Annotated[Text, WORD, Expected("the name of a SQL dialect, such as trino")]
FullName = Annotated[
    Text, Predicate(lambda name: "." in name), Expected("a table's full name, such as lake.analytics.events")
]
QueriesByName = Annotated[NamedQueries, Expected("a mapping of names to SQL queries")]
Verdicts = Annotated[
    tuple[Verdict, ...],
    MinLen(1),
    BeforeValidator(_words),
    Expected(f"verdicts, separated by commas, of {', '.join(VERDICTS)}"),
]
Label = Annotated[Literal["tag", "group", "owner"], Expected("tag, group or owner")]
REPORT = Path("target/clustering_report.html")
HtmlFile = Annotated[
    Path,
    BeforeValidator(lambda value: value if re.search(r"\.html?$", value, re.IGNORECASE) else None),
    Expected(f"the name of an HTML file, such as {REPORT}"),
]
TABLE = Argument(
    "TABLE",
    "A relation (schema.table), the name or unique id of a model, or a list of these.",
    "every model that it is for",
    "table",
    kind=Annotated[
        Text | Annotated[list[Text], MinLen(1)], Expected("a relation, the name of a model, or a list of them")
    ],
)
FORMAT = Argument(
    "FORMAT",
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "text",
    "format",
    "text",
    kind=Annotated[Literal["text", "json"], WORD, Expected("text or json")],
)
METRICS = Argument(
    "FILE",
    "A file to write the tables' line in the overview to as well, in Prometheus' text format (dbt-recluster[metrics]).",
    "none; in dbt, the project's var recluster_metrics_file",
    "metrics",
    var="recluster_metrics_file",
    kind=MetricsFile,
)
PRICES = Argument(
    "PRICES",
    "Prices by which money is shown: currency=EUR,compute_hour=3.20,terabyte_scanned=5; in dbt a mapping.",
    "none; in dbt, the project's var recluster_prices",
    var="recluster_prices",
    kind=cost_model.Prices,
)
AUTOMATIC_CLUSTERING = Argument(
    meaning="false: no table is reclustered after its build in this run.",
    default=True,
    var="automatic_clustering",
    kind=Boolean,
)
BUDGET = Argument(
    meaning="The most bytes to rewrite in this run over all tables, a number or a size such as `10 GB`. After builds "
    "it goes to the first tables that need it, since which one gains most is not known while models still run. "
    "`run-operation recluster` knows: those that gain most for a byte come first.",
    var="recluster_max_bytes",
    kind=Size,
)


def _key(value: Any) -> ClusterKey:
    if is_auto(value):
        raise ClusterKeyError(
            "cluster_by: auto is a model's, and stays with its table; here it would be a column, written `auto` in "
            "backquotes or [auto]"
        )
    return value if isinstance(value, ClusterKey) else parse_cluster_key(value)


_Limit = Annotated[float, Ge(1), NUMBER, Expected("a number of at least 1")]
Limit = Annotated[_Limit | None, Argument()]
_Percentage = Annotated[float, Ge(0), Le(100), NUMBER, Expected("a number from 0 to 100")]
Percentage = Annotated[_Percentage | None, Argument()]
Flag = Annotated[Boolean, Argument("")]
_KEY = Argument("KEY", otherwise="the model's, else the table's sort order", kind=Annotated[Any, PlainValidator(_key)])
Key = Annotated[str | Sequence[str] | ClusterKey | None, _KEY]
_MEASURED_KEY = "The key to measure by; the table keeps its own: columns or expressions, a list or separated by commas."
MeasuredKey = Annotated[str | Sequence[str] | ClusterKey | None, replace(_KEY, meaning=_MEASURED_KEY)]
_WHERE = "A predicate on the table's columns; only blocks that may hold a matching row count."
Where = Annotated[SqlPredicate | None, Argument("PREDICATE", _WHERE)]
_BRANCH = "A branch of the tables, in place of main."
Branch = Annotated[Annotated[Text, Expected("the name of a branch")] | None, Argument("NAME", _BRANCH, "main")]
OlderThan = Annotated[Moment | None, Argument("TIME")]
_SINCE = "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'."
Since = Annotated[Moment | None, Argument("TIME", _SINCE, "all")]
Prices = Annotated[cost_model.Prices | None, PRICES]
_OF_PYTHON = Argument(is_of_python=True)
ReadsOfTable = Annotated[str | Sequence[str | Mapping[str, Any]] | None, Argument(is_of_python=True, kind=Reads)]
BlockRows = Annotated[Count | None, _OF_PYTHON]
Now = Annotated[Moment | None, _OF_PYTHON]
Trigger = Annotated[
    Annotated[str, Predicate(("run", "manual").__contains__), Expected("run or manual")] | None, _OF_PYTHON
]
Listener = Annotated[Annotated[ProgressCallback, Expected("a function")] | None, _OF_PYTHON]
# The arguments that override options of the model or the table.
OPTIONS = {
    name: Argument(option.metavar, option.meaning, "what the model or the table says", name, kind=option.kind)
    for name, option in RECLUSTER_OPTIONS.items()
    if option.metavar is not None
}
