"""What an operation is: its declaration, its arguments, and a call of it on one table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from dbt_recluster.advice.prices import parse_prices
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, Parser, ReclusterOptions
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_boolean, parse_branch, parse_moment, parse_predicate, parser
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.operations.model_options import recorded_key
from dbt_recluster.operations.tables import CLUSTERED, Eligible, Target
from dbt_recluster.report.metrics import parse_metrics_file
from dbt_recluster.text import did_you_mean


class RunBudget:
    """The bytes that a run may rewrite, such as dbt's var ``recluster_max_bytes``, or no limit.

    Under a budget, tables are reclustered one after the other: two at the same time could each spend all that is left.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._spent = 0

    @contextmanager
    def limit(self, own: int | None) -> Iterator[int | None]:
        """Reserve the budget for a table with a limit of its own; yield the most bytes that it may rewrite."""
        if self.total is None:
            yield own
            return
        with self._lock:
            left = self.total - self._spent
            if left <= 0:
                raise BudgetSpentError(
                    f"the {self.total} bytes of var recluster_max_bytes are spent in this run"
                )
            yield left if own is None else min(left, own)

    def spend(self, count: int) -> None:
        """Count bytes that were rewritten; call it while the budget is reserved."""
        self._spent += count


class Context(Protocol):
    """Where operations run.

    Attributes:
        budget: The bytes that all tables together may rewrite.
        trigger: What reclusters: ``run`` after a build, otherwise ``manual``.
        resume: The command that resumes a suspended table, with ``%s`` for its name.
        absent: Why :meth:`exists` is false, for the line of a rewrite; empty for no line.
        records_options: Whether a recluster records the model's options with the table, as dbt's builds do here.
    """

    budget: RunBudget
    trigger: str
    resume: str
    absent: str
    records_options: bool

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""

    def exists(self, target: Target) -> bool:
        """Whether a table that the user did not name exists and is to be worked on."""

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of what reads a node's table, by name."""

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster, or None."""

    def explain(self, error: Exception) -> str:
        """Return an error in one line."""


@dataclass
class Call:
    """An operation on one table.

    Attributes:
        catalog: The files of the other tables, which the calls of one operation read once.
        warnings: What the user should know.
    """

    target: Target
    arguments: Mapping[str, Any]
    context: Context
    catalog: CatalogFiles = field(default_factory=CatalogFiles)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def opened(self) -> ClusteredTable:
        """The table under the key of its sort order, on the branch of the operation if it has one."""
        table = self.context.open(self.target.relation)
        branch = self.arguments.get(BRANCH.name)
        return table if branch is None else table.on_branch(branch)

    @cached_property
    def table(self) -> ClusteredTable:
        """The table under the key of the operation, of its model, or of its sort order, in this order."""
        own = self.target.options
        key = self.arguments.get("cluster_by")
        if key is None:
            key = recorded_key(self.opened.iceberg.properties) if own is None else own.cluster_by
        return self.opened if key is None else self.opened.under(key)

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The queries of the project that read the table, by name."""
        return self.context.queries(self.target.unique_id) if self.target.unique_id else {}

    def options(self, **more: Any) -> ReclusterOptions:
        """Return the options of the table's model, or else those that it records, replaced by the arguments."""
        names = [*RECLUSTER_OPTIONS, "dry_run"]
        given = {name: value for name in names if (value := self.arguments.get(name)) is not None}
        if self.target.options is None:
            return self.opened.options(**given, **more)
        return replace(self.target.options.recluster, **given, **more)


@dataclass(frozen=True)
class Argument:
    """An argument of an operation.

    Attributes:
        name: Its name; ``--max-bytes`` on a command line.
        parse: Reads a value other than None.
        meaning: A sentence for the reference and for help.
        default: The value if none is given.
        otherwise: The default in words.
        metavar: What stands for the value in help; empty for one that is true or false.
        is_list: Whether a command line may repeat it.
        is_of_one_table: Whether it is for a single table that is named.
        var: The var of a dbt project that stands in for it.
    """

    name: str
    parse: Parser
    meaning: str
    default: Any = None
    otherwise: str = ""
    metavar: str = "VALUE"
    is_list: bool = False
    is_of_one_table: bool = False
    var: str = ""

    def read(self, value: Any) -> Any:
        """Return a value, checked; the default for None."""
        return self.default if value is None else self.parse(self.name, value)


@dataclass(frozen=True)
class Answer:
    """What an operation answers for one table.

    Attributes:
        values: For programs.
        text: For people, with ``detail`` below it; empty if it failed.
        result: What the operation's function has returned, or None.
        warnings: What the user should know although it did not fail.
        call: The call that it answers, or None.
    """

    table: str
    values: Mapping[str, Any]
    text: str = ""
    detail: str = ""
    result: Any = None
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    call: Call | None = None

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """The tags, group and owner of the table's model."""
        return self.call.target.labels if self.call else {}


@dataclass(frozen=True)
class Ending:
    """What an operation answers for all tables together: for people, for programs (an object), and why it failed."""

    text: str
    values: Any
    error: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation on tables, one after the other.

    Attributes:
        name: Its name in ``dbt run-operation``; the command has it with hyphens.
        short: Its other name on the command line.
        meaning: What it does, for the reference and for help; its first sentence stands alone.
        run: Does it to one table; returns a result with ``as_dict``, or JSON values.
        text: Writes the result of one table for people.
        arguments: The arguments besides those that choose tables, and ``format``.
        detail: Writes what belongs below it, such as a plan.
        eligible: Which tables it is for, of those that the user did not name.
        needs_choice: Whether the user must name or select tables.
        is_rewrite: Whether it rewrites data, which takes long enough for a numbered line of its own in the log.
        order: Sorts its calls before they are run.
        finish: Makes one answer of those of all tables, also of none, printed in place of a text for each.
    """

    name: str
    short: str
    meaning: str
    run: Callable[[Call], Any]
    text: Callable[[Any, Call], str]
    arguments: tuple[Argument, ...] = ()
    detail: Callable[[Any], str] = lambda _: ""
    eligible: Eligible = CLUSTERED
    needs_choice: bool = False
    is_rewrite: bool = False
    order: Callable[[list[Call]], list[Call]] = list
    finish: Callable[[list[Answer], Mapping[str, Any]], Ending] | None = None

    def read(self, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of some arguments and of the operation's own, checked."""
        given = {name: value for name, value in given.items() if value is not None}
        values = read_arguments(self.name, (*arguments, *self.arguments), given)
        table = values.get(TABLE.name)
        is_single = table is not None and (isinstance(table, str) or len(table) == 1)
        for argument in self.arguments:
            if argument.is_of_one_table and values[argument.name] is not None and not is_single:
                raise OptionError(f"{argument.name} is for a single table: name it")
        return values


def read_arguments(of: str, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation or a test, checked; None stands for one that is not given.

    Raises:
        OptionError, ClusterKeyError: One is wrong, or there is no such argument.
    """
    known = {argument.name: argument for argument in arguments}
    for name in given:
        if name not in known:
            meant = did_you_mean(str(name), known, "it takes")
            raise OptionError(f"{of} has no argument {name!r}; {meant}")
    return {name: argument.read(given.get(name)) for name, argument in known.items()}


def operation(
    text: Callable[[Any, Call], str], *arguments: Argument, short: str = "", **facts: Any
) -> Callable[[Callable[[Call], Any]], Operation]:
    """Declare a function as the operation of its name. The first paragraph of its docstring is the meaning."""

    def declare(run: Callable[[Call], Any]) -> Operation:
        meaning = " ".join((run.__doc__ or "").partition("\n\n")[0].split())
        return Operation(run.__name__, short, meaning, run, text, arguments, **facts)

    return declare


def _tables(value: Any) -> Any:
    """Return a name, or a list of names, as it is; None for anything else. They are looked up once tables are known."""
    names = [value] if isinstance(value, str) else value
    is_list = isinstance(names, list) and bool(names)
    return value if is_list and all(isinstance(name, str) and name.strip() for name in names) else None


def _format(value: Any) -> str | None:
    word = str(value).strip().lower()
    return word if word in ("text", "json") else None


parse_format = parser("text or json", _format)
parse_tables = parser("a relation, the name of a model, or a list of them", _tables)


def key_argument(meaning: str, *, is_of_one_table: bool = False) -> Argument:
    """Return the argument that names a cluster key."""
    return Argument(
        "cluster_by",
        lambda _, value: parse_cluster_key(value),
        f"{meaning}: columns or expressions, a list or separated by commas.",
        otherwise="the model's, else the table's sort order",
        metavar="KEY",
        is_of_one_table=is_of_one_table,
    )


def flag(name: str, meaning: str, *, default: bool = False) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, parse_boolean, meaning, default, str(default).lower(), "")


TABLE = Argument(
    "table",
    parse_tables,
    "A relation (schema.table), the name or unique id of a model, or a list of these.",
    otherwise="every model that it is for",
    metavar="TABLE",
)
FORMAT = Argument(
    "format",
    parse_format,
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "text",
    "text",
    "FORMAT",
)

METRICS = Argument(
    "metrics",
    parse_metrics_file,
    "A file to write the tables' line in the overview to as well, in Prometheus' text format (dbt-recluster[metrics]).",
    otherwise="none; in dbt, the project's var recluster_metrics_file",
    metavar="FILE",
    var="recluster_metrics_file",
)
PRICES = Argument(
    "prices",
    parse_prices,
    "Prices by which money is shown: currency=EUR,compute_hour=3.20,terabyte_scanned=5; in dbt a mapping.",
    otherwise="none; in dbt, the project's var recluster_prices",
    metavar="PRICES",
    var="recluster_prices",
)
MEASURED_KEY = key_argument("The key to measure by; the table keeps its own")
WHERE = Argument(
    "where",
    parse_predicate,
    "A predicate on the table's columns; only blocks that may hold a matching row count.",
    otherwise="none",
    metavar="PREDICATE",
)
BRANCH = Argument(
    "branch",
    parse_branch,
    "A branch of the tables, in place of main.",
    otherwise="main",
    metavar="NAME",
)
SINCE = Argument(
    "since",
    parse_moment,
    "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'.",
    otherwise="all",
    metavar="TIME",
)
# The arguments that replace options of the model or the table.
OPTIONS = {
    name: Argument(
        name,
        option.parse,
        option.meaning,
        otherwise="what the model or the table says",
        metavar=option.metavar,
    )
    for name, option in RECLUSTER_OPTIONS.items()
    if option.metavar is not None
}
PLANNING = tuple(OPTIONS[name] for name in ("depth", "strategy", "block_rows"))
