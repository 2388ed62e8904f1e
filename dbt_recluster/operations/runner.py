"""Runs an operation on tables, one after the other, for dbt and for the command alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.progress import ProgressCallback
from dbt_recluster.exceptions import BudgetSpentError, OptionError, ReclusterError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.iceberg.session.interruption import stop_if_interrupted
from dbt_recluster.operations.budget import RunBudget
from dbt_recluster.operations.declaration import Operation
from dbt_recluster.operations.model_options import ModelOptions, recorded_key
from dbt_recluster.operations.tables import Choice, Target

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable


class Context(Protocol):
    """Where operations run.

    Attributes:
        budget: The bytes that all tables together may rewrite.
        trigger: What reclusters: ``run`` after a build, otherwise ``manual``.
        resume: The command that resumes a suspended table, with ``%s`` for its name.
        absent: Why :meth:`exists` is false, for the line of a rewrite; empty for no line.
    """

    @property
    def budget(self) -> RunBudget: ...  # noqa: D102
    @property
    def trigger(self) -> str: ...  # noqa: D102
    @property
    def resume(self) -> str: ...  # noqa: D102
    @property
    def absent(self) -> str: ...  # noqa: D102

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order.

        Raises:
            NotAnIcebergTableError: There is no such table.
        """

    def exists(self, target: Target) -> bool:
        """Whether a table that nobody named is there, and one to work on."""

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of what reads a node's table, by name."""

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster, or None."""

    def explain(self, error: Exception) -> str:
        """Return an error in one line."""


@dataclass(frozen=True)
class Answer:
    """What an operation answers for one table.

    Attributes:
        table: The table's identifier.
        values: For programs.
        text: For people; empty if it failed.
        detail: What belongs below it.
        result: What the operation's function has returned, or None.
        warnings: What the user should know although it did not fail.
        error: Why it failed, or None.
    """

    table: str
    values: Mapping[str, Any]
    text: str = ""
    detail: str = ""
    result: Any = None
    warnings: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass
class Call:
    """An operation on one table.

    Attributes:
        target: The table.
        arguments: The arguments of the operation.
        context: Where it runs.
        catalog: What the calls of one operation have seen of the other tables.
        warnings: What the user should know.
    """

    target: Target
    arguments: Mapping[str, Any]
    context: Context
    catalog: CatalogFiles = field(default_factory=CatalogFiles)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def opened(self) -> ClusteredTable:
        """The table under the key of its sort order."""
        return self.context.open(self.target.relation)

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
        own = self.target.options or ModelOptions.of_table(self.opened.iceberg.properties, but=given)
        return replace(own.recluster, **given, **more)


def run_operation(
    operation: Operation,
    choice: Choice,
    targets: Iterable[Target],
    arguments: Mapping[str, Any],
    context: Context,
) -> Iterator[tuple[Answer, int, int]]:
    """Run an operation on tables and yield what came of each. A table that fails does not stop the others.

    Args:
        operation: The operation.
        choice: What the user chose.
        targets: The tables; those that the user did not name are passed over if they are not built.
        arguments: Its arguments, checked.
        context: Where it runs.

    Yields:
        The answer, its number from 1, and the number of tables.

    Raises:
        OptionError: An argument for a single table is given, and that is not what is chosen.
    """
    chosen = list(targets)
    for argument in operation.arguments:
        is_given = argument.is_of_one_table and arguments[argument.name] is not None
        if is_given and (choice.table is None or len(chosen) != 1):
            raise OptionError(f"{argument.name} is for a single table: name it with table")
    catalog = CatalogFiles()
    calls = operation.order([Call(target, arguments, context, catalog) for target in chosen])
    for number, call in enumerate(calls, start=1):
        stop_if_interrupted()
        answer = _answer(operation, call)
        if answer is not None:
            yield answer, number, len(calls)


def _answer(operation: Operation, call: Call) -> Answer | None:
    """Run an operation on one table; None if the table is passed over without a word."""
    relation = call.target.relation
    try:
        if not call.target.required and not call.context.exists(call.target):
            absent = call.context.absent
            return _passed_over(relation, absent) if operation.is_rewrite and absent else None
        if call.target.error is not None:
            raise OptionError(call.target.error)
        result = operation.run(call)
    except BudgetSpentError as e:
        return _passed_over(relation, f"not reclustered, {e}")
    except Exception as e:
        stop_if_interrupted(e)
        error = call.context.explain(e)
        values: Mapping[str, Any] = {
            "table": relation,
            "error": error,
            "reason": f"{relation}: failed: {error}",
            "orphans": list(getattr(e, "orphans", ())),
        }
        return Answer(relation, values, error=error, warnings=call.warnings)
    if operation.finish is not None:
        return Answer(relation, {"table": relation}, result=result, warnings=call.warnings)
    values = result if isinstance(result, Mapping) else result.as_dict()
    detail = operation.detail(result) if operation.detail is not None else ""
    return Answer(relation, values, operation.text(result, call), detail, result, call.warnings)


def _passed_over(relation: str, why: str) -> Answer:
    text = f"{relation}: {why}"
    return Answer(relation, {"table": relation, "error": None, "reason": text, "orphans": []}, text)


def failure_line(answer: Answer) -> str:
    """Return why an operation failed for a table, with the table's name."""
    error = answer.error or ""
    return error if answer.table in error else f"{answer.table}: {error}"


def gain_first(calls: list[Call]) -> list[Call]:
    """Sort calls so that under a budget those that gain most for each byte come first."""
    if len(calls) < 2 or calls[0].context.budget.total is None:
        return calls
    return sorted(calls, key=lambda call: -_gain_per_byte(call))


def _gain_per_byte(call: Call) -> float:
    from dbt_recluster.clustering.costs.cost_model import CostModel

    try:
        options = call.options()
        return CostModel.of(call.table, options).recluster(options.where).gain_per_byte
    except ReclusterError:
        return 0.0  # its own run raises it again
