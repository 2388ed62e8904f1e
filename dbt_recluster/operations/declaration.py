"""Declarations: what an operation and its arguments are, a call of an operation on one table, and its run on many.

The operations themselves are declared in their own modules, each in a :class:`OperationTable`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from dbt_recluster.advice.cost_model import parse_prices
from dbt_recluster.advice.overview import parse_metrics_file
from dbt_recluster.clustering import values
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, Parser, ReclusterOptions
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.iceberg.actions import CatalogFiles
from dbt_recluster.iceberg.session.jobs import stop_if_interrupted
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.operations.tables import CLUSTERED, Eligible, Target, recorded_key
from dbt_recluster.text import did_you_mean


class RunBudget:
    """The bytes that a run may rewrite, such as dbt's var ``recluster_max_bytes``, or no limit.

    Under a budget, tables are reclustered one at a time: two at once could each spend all that is left.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._spent = 0

    @contextmanager
    def limit(self, own: int | None) -> Iterator[int | None]:
        """Reserve the budget for a table with its own limit; yield the most bytes that it may rewrite."""
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
        """Count rewritten bytes, while the budget is reserved."""
        self._spent += count


class Context(Protocol):
    """Where operations run: dbt or the command."""

    budget: RunBudget  # for all tables together
    trigger: str  # ``run`` after a build, otherwise ``manual``
    resume: str  # the command that resumes a suspended table, with ``%s`` for its name
    absent: str  # why :meth:`exists` is false, for the line of a rewrite; empty for no line
    records_options: bool  # whether a recluster records the model's options with the table

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""

    def exists(self, target: Target) -> bool:
        """Return whether to work on a table that the user did not name."""

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL that reads a node's table, by name."""

    def progress(self) -> ProgressCallback | None:
        """Return a callback for the progress of one recluster, or None."""

    def explain(self, error: Exception) -> str:
        """Return an error in one line."""


@dataclass
class Call:
    """An operation on one table: its arguments, the catalog's files (read once for all calls), and its warnings."""

    target: Target
    arguments: Mapping[str, Any]
    context: Context
    catalog: CatalogFiles = field(default_factory=CatalogFiles)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def opened(self) -> ClusteredTable:
        """The table under the key of its sort order, on the operation's branch."""
        table, branch = self.context.open(self.target.relation), self.arguments.get(BRANCH.name)
        return table if branch is None else table.on_branch(branch)

    @cached_property
    def table(self) -> ClusteredTable:
        """The table under the key of the operation, else of its model, else of its sort order."""
        own, key = self.target.options, self.arguments.get("cluster_by")
        if key is None:
            key = recorded_key(self.opened.iceberg.properties) if own is None else own.cluster_by
            if own is None and key is not None and key.missing_from(self.opened.columns):
                key = table_cluster_key(self.opened.iceberg) or key  # follows renamed columns
        return self.opened if key is None else self.opened.under(key)

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The project's queries of the table, by name."""
        return self.context.queries(self.target.unique_id) if self.target.unique_id else {}

    def options(self, **more: Any) -> ReclusterOptions:
        """Return the options of the model, else those that the table records, overridden by the arguments."""
        names = [*RECLUSTER_OPTIONS, "dry_run"]
        given = {name: value for name in names if (value := self.arguments.get(name)) is not None}
        if self.target.options is None:
            return self.opened.options(**given, **more)
        return replace(self.target.options.recluster, **given, **more)


@dataclass(frozen=True)
class Argument:
    """An argument of an operation; ``max_bytes`` is ``--max-bytes`` on the command line."""

    name: str
    parse: Parser  # reads a value other than None
    meaning: str  # a sentence for the reference and for help
    metavar: str = "VALUE"  # stands for the value in help; empty for one that is true or false
    otherwise: str = "none"  # the default in words
    default: Any = None
    is_list: bool = False  # whether the command line may repeat it
    var: str = ""  # the var of a dbt project that stands in for it

    def read(self, value: Any) -> Any:
        """Return a value, checked; the default for None."""
        return self.default if value is None else self.parse(self.name, value)


@dataclass(frozen=True)
class Answer:
    """The answer of an operation for one table."""

    table: str
    values: Mapping[str, Any]  # for programs
    text: str = ""  # for people; empty if it failed
    detail: str = ""  # below the text, such as a plan
    result: Any = None  # of the operation's function
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    call: Call | None = None

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """The tags, group and owner of the table's model."""
        return self.call.target.labels if self.call else {}


@dataclass(frozen=True)
class Ending:
    """The answer of an operation for all tables: for people, for programs, and why it failed."""

    text: str
    values: Any
    error: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation on tables, one after the other."""

    name: str  # in ``dbt run-operation``; hyphens replace underscores in the command
    short: str  # its other name on the command line
    meaning: str  # for the reference and for help; the first sentence stands alone
    run: Callable[[Call], Any]  # does it to one table; returns a result with ``as_dict``, or JSON values
    text: Callable[[Any, Call], str]  # writes the result of one table for people
    arguments: tuple[Argument, ...] = ()  # besides those that choose tables, and ``format``
    detail: Callable[[Any], str] = lambda _: ""  # writes what belongs below the text, such as a plan
    eligible: Eligible = CLUSTERED  # which tables it is for, among those that the user did not name
    needs_choice: bool = False  # whether the user must name or select tables
    # Whether it rewrites data, which takes long enough for a numbered line of its own in the log.
    is_rewrite: bool = False
    order: Callable[[list[Call]], list[Call]] = list  # sorts the calls; as the tables were chosen, by default
    # Combines the answers of all tables, even of none, into one that is printed in their place.
    finish: Callable[[list[Answer], Mapping[str, Any]], Ending] | None = None

    def read(self, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of some arguments and of the operation's own, checked."""
        read = read_arguments(self.name, (*arguments, *self.arguments), given)
        table = read.get(TABLE.name)
        is_single = isinstance(table, str) or (table is not None and len(table) == 1)
        if self.is_rewrite and read.get("cluster_by") is not None and not is_single:
            raise OptionError("cluster_by is for a single table: name it")
        return read


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


class OperationTable(dict[str, Operation]):
    """Operations by name, each declared by a decorator of the function that runs it."""

    def declare(
        self, text: Callable[[Any, Call], str], *arguments: Argument, short: str = "", **facts: Any
    ) -> Callable[[Callable[[Call], Any]], Operation]:
        """Declare a function as the operation of its name; ``meaning`` is the first paragraph of its docstring."""

        def declared(run: Callable[[Call], Any]) -> Operation:
            name = facts.pop("name", run.__name__)
            meaning = facts.pop("meaning", "") or " ".join((run.__doc__ or "").partition("\n\n")[0].split())
            self[name] = Operation(name, short, meaning, run, text, arguments, **facts)
            return self[name]

        return declared


def run_operation(
    operation: Operation, targets: Iterable[Target], arguments: Mapping[str, Any], context: Context
) -> Iterator[tuple[Answer, int, int]]:
    """Run an operation on tables; yield each answer, its number from 1, and the number of tables.

    A table that fails does not stop the others. One that the user did not name is passed over if it is not built.
    """
    catalog = CatalogFiles()
    calls = [Call(target, arguments, context, catalog) for target in targets]
    for number, call in enumerate(operation.order(calls), start=1):
        stop_if_interrupted()
        if (answer := _answer(operation, call)) is not None:
            yield answer, number, len(calls)


def _answer(operation: Operation, call: Call) -> Answer | None:
    """Run an operation on one table; None if the table is passed over in silence."""
    relation, context = call.target.relation, call.context
    try:
        if not call.target.required and not context.exists(call.target):
            is_shown = operation.is_rewrite or operation.finish is not None
            return _not_done(call, context.absent) if is_shown and context.absent else None
        if call.target.error is not None:
            raise OptionError(call.target.error)
        result = operation.run(call)
    except BudgetSpentError as e:
        return _not_done(call, f"not reclustered, {e}")
    except Exception as e:  # whatever fails, the other tables have their turn
        stop_if_interrupted(e)
        error = context.explain(e)
        return _not_done(call, f"failed: {error}", error, getattr(e, "orphans", ()))
    if operation.finish is not None:
        return Answer(relation, {"table": relation}, result=result, warnings=call.warnings, call=call)
    values = result if isinstance(result, Mapping) else result.as_dict()
    text, detail = operation.text(result, call), operation.detail(result)
    return Answer(relation, values, text, detail, result, call.warnings, call=call)


def _not_done(call: Call, why: str, error: str | None = None, orphans: Sequence[str] = ()) -> Answer:
    relation, reason = call.target.relation, f"{call.target.relation}: {why}"
    values = {"table": relation, "error": error, "reason": reason, "orphans": list(orphans)}
    if error is None:
        return Answer(relation, values, reason, call=call)
    return Answer(relation, values, warnings=call.warnings, error=error, call=call)


def failure_line(answer: Answer) -> str:
    """Return why an operation failed for a table, with the table's name."""
    error = answer.error or ""
    return error if answer.table in error else f"{answer.table}: {error}"


def _tables(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    is_list = isinstance(names, list) and bool(names)
    return value if is_list and all(isinstance(name, str) and name.strip() for name in names) else None


def key_argument(meaning: str) -> Argument:
    """Return the argument that names a cluster key."""
    return Argument(
        "cluster_by",
        lambda _, value: parse_cluster_key(value),
        f"{meaning}: columns or expressions, a list or separated by commas.",
        "KEY",
        "the model's, else the table's sort order",
    )


def flag(name: str, meaning: str, *, default: bool = False) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, values.parse_boolean, meaning, "", str(default).lower(), default)


TABLE = Argument(
    "table",
    values.parser("a relation, the name of a model, or a list of them", _tables),
    "A relation (schema.table), the name or unique id of a model, or a list of these.",
    "TABLE",
    "every model that it is for",
)
FORMAT = Argument(
    "format",
    values.parser(
        "text or json", lambda value: {"text": "text", "json": "json"}.get(str(value).strip().lower())
    ),
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "FORMAT",
    "text",
    "text",
)
METRICS = Argument(
    "metrics",
    parse_metrics_file,
    "A file to write the tables' line in the overview to as well, in Prometheus' text format (dbt-recluster[metrics]).",
    "FILE",
    "none; in dbt, the project's var recluster_metrics_file",
    var="recluster_metrics_file",
)
PRICES = Argument(
    "prices",
    parse_prices,
    "Prices by which money is shown: currency=EUR,compute_hour=3.20,terabyte_scanned=5; in dbt a mapping.",
    "PRICES",
    "none; in dbt, the project's var recluster_prices",
    var="recluster_prices",
)
MEASURED_KEY = key_argument("The key to measure by; the table keeps its own")
WHERE = Argument(
    "where",
    values.parse_predicate,
    "A predicate on the table's columns; only blocks that may hold a matching row count.",
    "PREDICATE",
)
BRANCH = Argument("branch", values.parse_branch, "A branch of the tables, in place of main.", "NAME", "main")
SINCE = Argument(
    "since",
    values.parse_moment,
    "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'.",
    "TIME",
    "all",
)
# The arguments that override options of the model or the table.
OPTIONS = {
    name: Argument(name, option.parse, option.meaning, option.metavar, "what the model or the table says")
    for name, option in RECLUSTER_OPTIONS.items()
    if option.metavar is not None
}
PLANNING = tuple(OPTIONS[name] for name in ("depth", "strategy", "block_rows"))
