"""Operations: the command, the macros, the Python interface and the reference are generated from their signatures.

The signature gives the arguments, by annotations with an :class:`Argument`, and the docstring their meaning.
"""

from __future__ import annotations

import inspect
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args, get_type_hints

from dbt_recluster.advice.overview import Overview, table_overview
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_state import Failure, FailureFile
from dbt_recluster.clustering.verdict import Facts, decide
from dbt_recluster.exceptions import (
    BudgetSpentError,
    ClusterKeyError,
    MissingTableError,
    NoKeyYetError,
    NotAnIcebergTableError,
    OptionError,
    OtherFormatError,
    PredicateError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.actions import CatalogFiles
from dbt_recluster.iceberg.session.environment import check_has_jvm
from dbt_recluster.iceberg.session.jobs import Interruptible, stop_if_interrupted
from dbt_recluster.iceberg.session.jvm import SparkSession
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.iceberg.sort_order import recorded_key, sort_order_text, valid_cluster_key
from dbt_recluster.iceberg.table_properties import AUTO_KEY, FAILURE
from dbt_recluster.operations.arguments import (
    BUDGET,
    METRICS,
    TABLE,
    Argument,
    arguments_of,
    meaning_of,
    read_arguments,
)
from dbt_recluster.operations.model_options import MODEL_OPTIONS, written_options
from dbt_recluster.operations.targets import CLUSTERED, Eligible, Target
from dbt_recluster.report.prometheus import write_metrics
from dbt_recluster.text import did_you_mean, printable

P = ParamSpec("P")
T = TypeVar("T")


class Spending:
    """The bytes that a run has rewritten under its budget."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0


@dataclass(frozen=True)
class RunBudget:
    """The bytes that a run may rewrite, such as dbt's var ``recluster_max_bytes``, or no limit.

    Under a budget, tables are reclustered one at a time: two at once could each spend all that is left.
    """

    total: int | None = None
    spent: Spending = field(default_factory=Spending)

    @contextmanager
    def limit(self, max_bytes: int | None) -> Iterator[int | None]:
        """Reserve the budget for a table with its own limit; yield the most bytes that it may rewrite."""
        if self.total is None:
            yield max_bytes
            return
        with self.spent.lock:
            left = self.total - self.spent.bytes
            if left <= 0:
                raise BudgetSpentError(f"the {self.total} bytes of var {BUDGET.var} are spent in this run")
            yield left if max_bytes is None else min(left, max_bytes)

    def spend(self, count: int) -> None:
        """Count rewritten bytes, while the budget is reserved."""
        self.spent.bytes += count


class Context(ABC):
    """Where operations run: dbt, the command or Python."""

    budget = RunBudget()  # for all tables together
    gain_first = False  # whether the tables that gain most for a byte come first without a budget, too
    trigger = "manual"  # or ``run`` after a build
    resume = ""  # the command that resumes a suspended table, with ``%s`` for its name
    absent = ""  # why :meth:`exists` is false, for the line of a rewrite; empty for no line
    records_options = False  # whether a recluster records the model's options with the table
    off_by = ""  # what keeps builds from reclustering their tables: ``var`` or ``environment``
    failures: FailureFile | None = None  # of tables that cannot record them

    @abstractmethod
    def open(self, relation: str) -> ClusteredTable:
        """Open a table under its own key."""

    def is_one_table(self, one: str, other: str) -> bool:
        """Return whether two names are of one Iceberg table."""
        try:
            return self.open(one).iceberg.uuid == self.open(other).iceberg.uuid
        except NotAnIcebergTableError:
            return False

    def exists(self, target: Target) -> bool:  # noqa: ARG002
        """Return whether to work on a table that the user did not name."""
        return True

    def queries(self, unique_id: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return the compiled SQL that reads a node's table, by name."""
        return {}

    def own_configs(self, unique_id: str) -> Collection[str] | None:  # noqa: ARG002
        """Return the configs that a node's own files set; None if they cannot be told from those of dbt_project.yml."""
        return None

    def progress(self) -> ProgressCallback | None:
        """Return a callback for the progress of one recluster, or None."""
        return None

    def explain(self, error: Exception) -> str:
        """Return an error in one line."""
        return short_message(error)


@dataclass
class _InPython(Context):
    """In Python, where the caller names one table or has opened it."""

    table: ClusteredTable

    def open(self, relation: str) -> ClusteredTable:  # noqa: ARG002
        return self.table


# Errors of input, raised before anything is done to the table.
_REFUSED = (
    ClusterKeyError,
    MissingTableError,
    OptionError,
    OtherFormatError,
    PredicateError,
    UnsupportedTableError,
)
# Errors that end an operation before it tries to recluster the table.
_NO_ATTEMPT = (*_REFUSED, BudgetSpentError, NotAnIcebergTableError)


@dataclass
class Call:
    """An operation on one table: its arguments, the catalog's files (read once for all calls), and its warnings.

    An operation's parameters are its declaration. :meth:`options` merges its options with the model's and the table's.
    """

    target: Target
    arguments: Mapping[str, Any]
    context: Context
    catalog: CatalogFiles = field(default_factory=CatalogFiles)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def opened(self) -> ClusteredTable:
        """The table under its own key, on the operation's branch."""
        table, branch = self.context.open(self.target.relation), self.arguments.get("branch")
        return table if branch is None else table.on_branch(branch)

    @cached_property
    def table(self) -> ClusteredTable:
        """The table under the key of the operation, else of its model, else its own."""
        model, key = self.target.options, self.arguments.get("cluster_by")
        key = model.cluster_by if key is None and model is not None else key
        return self.opened if key is None else self.opened.under(key)

    @property
    def is_auto(self) -> bool:
        """Whether known reads choose the key: no argument names one, and all branches share that of main."""
        model, key_and_branch = self.target.options, (self.arguments.get("cluster_by"), self.arguments.get("branch"))
        is_auto = AUTO_KEY in self.opened.iceberg.properties if model is None else model.auto is not None
        return is_auto and key_and_branch == (None, None) and self.opened.cluster_by is None

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The project's queries of the table, by name."""
        return self.context.queries(self.target.unique_id) if self.target.unique_id else {}

    @property
    def given(self) -> dict[str, Any]:
        """The options among the arguments, None for those that are not given."""
        return {name: self.arguments.get(name) for name in RECLUSTER_OPTIONS}

    def options(self, **options: Any) -> ReclusterOptions:
        """Return the options of the model, else those that the table records, overridden by ``options`` except None."""
        model, recorded = self.target.options, MODEL_OPTIONS["automatic_clustering"]
        automatic = recorded.of_table(self.opened.iceberg.properties) if model is None else model.automatic_clustering
        overriding = {name: value for name, value in options.items() if value is not None}
        overriding["automatic"] = automatic and not self.context.off_by
        return self.opened.options(**overriding) if model is None else replace(model.recluster, **overriding)

    def options_in_effect(self, **options: Any) -> dict[str, dict[str, Any]]:
        """Return each option's name and value as they are written, or its default in words, and its origin."""
        in_effect = {}
        for name, option in MODEL_OPTIONS.items():
            if self.target.options is None and not (option.is_recorded or name == "cluster_by"):
                continue  # only a model has it
            where, value, origin = option.config, options.get(name), "argument"
            if value is None and name in self._written:
                where, value, origin = self._written[name]
            if value is None:
                value, origin = option.otherwise, "default"
            in_effect[name] = {"name": where, "value": value, "origin": origin}
        if self.context.off_by:
            in_effect["automatic_clustering"] |= {"value": False, "origin": self.context.off_by}
        if (total := self.context.budget.total) is not None:
            with suppress(OptionError):  # the verdict says what is wrong
                if total < (self.options(**options).max_bytes or math.inf):
                    in_effect["max_bytes"] = {"name": BUDGET.var, "value": total, "origin": "var"}
        return in_effect

    @cached_property
    def _written(self) -> dict[str, tuple[str, Any, str]]:
        """The name, the value and the origin of the options that the project or the table sets."""
        if (model := self.target.options) is None:
            table = self.opened.iceberg
            has_recorded = str(recorded_key(table.properties)).lower() == str(valid_cluster_key(table)).lower()
            return written_options(table.properties, "" if has_recorded else sort_order_text(table))
        of_node = self.context.own_configs(self.target.unique_id) if self.target.unique_id else None

        def origin(config: str) -> str:
            return "project" if of_node is None else "model" if config in of_node else "dbt_project.yml"

        return {name: (of, value, origin(of.rpartition(".")[0] or of)) for name, (of, value) in model.written.items()}

    def overview(self, options: ReclusterOptions | None = None, **more: Any) -> Overview:
        """Return the table's line in the overview, by default by its own options."""
        failures, options, budget = self.context.failures, options or self.options(), self.context.budget.total
        if budget is not None:
            options = replace(options, max_bytes=min(budget, options.max_bytes or budget))
        failure = None if failures is None else failures.of(self.target.relation)
        return table_overview(self.table, options, failure=failure, **more)

    def record_failure(self, error: Exception) -> None:
        """Record with the table that an attempt to recluster it failed, or in a file if that fails too."""
        if isinstance(error, _NO_ATTEMPT):
            return
        failure = Failure.now(short_message(error))
        try:
            recorded = self.opened.failure
            if recorded is None or recorded.error != failure.error:
                self.opened.iceberg.set_property(FAILURE, FAILURE.dump(asdict(failure)))
        except Exception:  # whatever prevents it, such as a catalog that does not answer
            if self.context.failures is not None:
                self.context.failures.keep(self.target.relation, failure)


TableFunction = Callable[Concatenate["SparkSession", "str | ClusteredTable", P], T]


def table_function(function: Callable[Concatenate[Call, P], T]) -> TableFunction[P, T]:
    """Return the function of Python that does to one table what ``function`` does to a call."""
    arguments, hints = arguments_of(function), get_type_hints(function)
    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in ("spark", "table")]
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        hint = hints.get(name, parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            typed = get_args(hint)[0].__annotations__.items()
            parameters += (
                kinds(name, kinds.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__) for name, kind in typed
            )
        else:
            parameters.append(parameter.replace(annotation=hint))
    signature = inspect.signature(function).replace(parameters=parameters)

    @wraps(function)
    def of_table(*args: Any, **kwargs: Any) -> T:
        words = signature.bind(*args, **kwargs).arguments
        spark, table = words.pop("spark"), words.pop("table")
        check_has_jvm(spark)
        words |= {argument.name: argument.read(words.get(argument.name)) for argument in arguments}
        with Interruptible(spark):
            opened = table if isinstance(table, ClusteredTable) else ClusteredTable(spark, table)
            return function(Call(Target(opened.name), words, _InPython(opened)), **words)  # type: ignore[call-arg]

    of_table.__signature__ = signature  # type: ignore[attr-defined]
    return of_table


@dataclass(frozen=True)
class Answer:
    """The answer of an operation for one table."""

    table: str
    values: Mapping[str, Any] = field(default_factory=dict)  # for programs
    text: str = ""  # for people; empty if it failed
    detail: str = ""  # below the text, such as a plan
    result: Any = None  # of the operation's function
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    is_missing: bool = False  # whether there is no table
    is_refused: bool = False  # whether it failed before anything was done to the table
    call: Call | None = None

    @property
    def failure(self) -> str:
        """Why it failed, with the table's name."""
        error = self.error or ""
        return error if self.table in error else f"{self.table}: {error}"


@dataclass(frozen=True)
class Summary:
    """The answer of an operation for all tables: combined text, JSON and error."""

    text: str
    values: Any
    error: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation on tables, one after the other."""

    name: str  # in ``dbt run-operation``; hyphens replace underscores in the command
    function: Callable[..., Any]  # does it to a call; returns a result with ``as_dict``, or JSON values
    text: Callable[[Any, Call], str]  # writes the result of one table for people
    more: tuple[Argument, ...] = ()  # arguments that the function does not take
    short: str = ""  # its other name on the command line
    detail: Callable[[Any], str] = lambda _: ""  # writes what belongs below the text, such as a plan
    eligible: Eligible = CLUSTERED  # which tables it is for, among those that the user did not name
    needs_choice: bool = False  # whether the user must name or select tables
    # Whether it rewrites data, which takes long enough for a numbered line of its own in the log.
    is_rewrite: bool = False
    order: Callable[[list[Call]], list[Call]] = list  # sorts the calls; as the tables were chosen, by default
    # Combines the answers of all tables, even of none, into one that is printed in their place.
    finish: Callable[..., Summary] | None = None

    @property
    def meaning(self) -> str:
        """What it does, for the reference and for help; the first sentence stands alone."""
        return meaning_of(self.function)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its arguments, besides those that choose tables, and ``format``."""
        every = (*arguments_of(self.function), *(arguments_of(self.finish) if self.finish else ()), *self.more)
        return tuple(argument for argument in every if not argument.is_of_python)

    def run(self, call: Call) -> Any:
        """Do it to one table."""
        arguments = arguments_of(self.function)
        return self.function(call, **{each.name: call.arguments.get(each.name, each.default) for each in arguments})

    def end(self, answers: list[Answer], arguments: Mapping[str, Any]) -> Summary:
        """Return what is printed after the last table."""
        if self.finish is None:
            return Summary("", [answer.values for answer in answers])
        return self.finish(answers, **{each.name: arguments[each.name] for each in arguments_of(self.finish)})

    def metrics_path(self, arguments: Mapping[str, Any]) -> Path | None:
        """Return the file for the metrics of the tables, or None; a dry run writes none."""
        return None if arguments.get("dry_run") else arguments.get(METRICS.name)

    def read(self, arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of some arguments and of the operation's own, checked."""
        read = read_arguments(self.name, (*arguments, *self.arguments), values)
        table = read.get(TABLE.name)
        is_single = isinstance(table, str) or (table is not None and len(table) == 1)
        if self.is_rewrite and read.get("cluster_by") is not None and not is_single:
            raise OptionError("cluster_by is for a single table: name it")
        return read


class OperationTable(dict[str, Operation]):
    """Operations by name."""

    def named(self, name: str) -> Operation:
        """Return an operation, or raise OptionError."""
        if name in self:
            return self[name]
        raise OptionError(f"there is no operation {name}; {did_you_mean(name, self, 'there are')}")

    def declare(
        self, text: Callable[[Any, Call], str], *more: Argument, **facts: Any
    ) -> Callable[[Callable[Concatenate[Call, P], T]], TableFunction[P, T]]:
        """Declare a function as the operation of its name, and make it a function of Python."""

        def declared(function: Callable[Concatenate[Call, P], T]) -> TableFunction[P, T]:
            name = function.__name__
            self[name] = Operation(name, function, text, more, **facts)
            return table_function(function)

        return declared


def run_operation(
    operation: Operation, targets: Iterable[Target], arguments: Mapping[str, Any], context: Context
) -> Iterator[tuple[Answer, int, int]]:
    """Run an operation on tables; yield each answer, its number from 1, and the number of tables.

    A table that fails does not stop the others. One that the user did not name is skipped if it is not built.
    """
    catalog = CatalogFiles()
    calls = [Call(target, arguments, context, catalog) for target in targets]
    for number, call in enumerate(operation.order(calls), start=1):
        stop_if_interrupted()
        if (answer := _answer(operation, call)) is not None:
            yield answer, number, len(calls)


def _answer(operation: Operation, call: Call) -> Answer | None:
    """Run an operation on one table; None if the table is skipped in silence."""
    relation, context = call.target.relation, call.context
    try:
        if not call.target.required and not context.exists(call.target):
            is_shown = operation.is_rewrite or operation.finish is not None
            missing = replace(_not_done(call, context.absent), is_missing=True)
            return replace(missing, text=missing.text * operation.is_rewrite) if is_shown and context.absent else None
        if call.target.error is not None:
            raise OptionError(call.target.error)
        result = operation.run(call)
    except BudgetSpentError as e:
        return _not_done(call, f"not reclustered, {e}")
    except NoKeyYetError:
        return _not_done(call, call.overview().reason)
    except Exception as e:  # whatever fails, the other tables have their turn
        stop_if_interrupted(e)
        error = printable(context.explain(e), keep="\n")
        is_refused = isinstance(e, _REFUSED) and not e.bytes_rewritten
        return replace(_not_done(call, f"failed: {error}", error, getattr(e, "orphans", ())), is_refused=is_refused)
    if operation.finish is not None:
        return Answer(relation, {"table": relation}, result=result, warnings=call.warnings, call=call)
    values = result if isinstance(result, Mapping) else result.as_dict()
    # Names and values come from tables.
    text, detail = (printable(part, keep="\n") for part in (operation.text(result, call), operation.detail(result)))
    return Answer(relation, values, text, detail, result, list(map(printable, call.warnings)), call=call)


def _not_done(call: Call, why: str, error: str | None = None, orphans: Sequence[str] = ()) -> Answer:
    relation, reason = call.target.relation, f"{call.target.relation}: {why}"
    values = {"table": relation, "error": error, "reason": reason, "orphans": list(orphans)}
    if error is None:
        return Answer(relation, values, reason, call=call)
    return Answer(relation, values, warnings=call.warnings, error=error, call=call)


def record_metrics(answers: Sequence[Answer], path: Path | None, project: Collection[str] | None = None) -> list[str]:
    """Merge each table's line in the overview into a metrics file, if there is one; return why that failed.

    ``project`` are all tables of the project: others leave the file. None if they are not known.
    """
    try:
        if path is not None and answers:
            write_metrics(list(map(overview_line, answers)), path, project)
    except OptionError as e:
        return [str(e)]
    return []


def overview_line(answer: Answer) -> Overview:
    """Return the line of a table in the overview, whatever an operation has answered for it."""
    call, line = answer.call, answer.result
    assert call is not None
    missing = (call.context.absent or "there is no such table") if answer.is_missing else ""
    facts = Facts(missing=missing, error=call.target.error or "")
    if not (facts.missing or facts.error or isinstance(line, Overview)):
        try:
            line = call.overview(prices=call.arguments.get("prices"))
        except MissingTableError as e:
            is_model = call.target.options is not None
            facts = Facts(missing=call.context.absent or str(e)) if is_model else Facts(error=str(e))
        except Exception as e:  # whatever fails, the other tables have their lines
            facts = Facts(error=call.context.explain(e))
    if not isinstance(line, Overview):
        standing = decide(facts)
        line = Overview(answer.table, standing.verdict, standing.text, standing.cause)
    return replace(line, table=answer.table, labels=call.target.labels)
