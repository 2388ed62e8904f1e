"""Every operation by name, and the run of one on tables, one after the other, for dbt and for the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dbt_recluster.advice.overview import Overview
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.iceberg.actions import CatalogFiles
from dbt_recluster.iceberg.session.jobs import stop_if_interrupted
from dbt_recluster.operations import inspection, maintenance_operations, reclustering
from dbt_recluster.operations.declaration import METRICS, Answer, Call, Context, Operation, OperationTable
from dbt_recluster.operations.tables import Target
from dbt_recluster.report.prometheus import write_metrics
from dbt_recluster.text import did_you_mean

OPERATIONS = OperationTable(
    reclustering.OPERATIONS | inspection.OPERATIONS | maintenance_operations.OPERATIONS
)


def operation_named(name: str) -> Operation:
    """Return an operation, or raise OptionError."""
    if name in OPERATIONS:
        return OPERATIONS[name]
    raise OptionError(f"there is no operation {name}; {did_you_mean(name, OPERATIONS, 'there are')}")


def run_operation(
    operation: Operation, targets: Iterable[Target], arguments: Mapping[str, Any], context: Context
) -> Iterator[tuple[Answer, int, int]]:
    """Run an operation on tables; yield each answer, its number from 1, and the number of tables.

    A table that fails does not stop the others. One that the user did not name is passed over if it is not built.
    """
    catalog = CatalogFiles()
    calls = [Call(target, arguments, context, catalog) for target in targets]
    calls = reclustering.gain_first(calls) if operation.is_rewrite else calls
    for number, call in enumerate(calls, start=1):
        stop_if_interrupted()
        if (answer := _answer(operation, call)) is not None:
            yield answer, number, len(calls)


def _answer(operation: Operation, call: Call) -> Answer | None:
    """Run an operation on one table; None if the table is passed over in silence."""
    relation, context = call.target.relation, call.context
    try:
        if not call.target.required and not context.exists(call.target):
            return _not_done(call, context.absent) if operation.is_rewrite and context.absent else None
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


def metrics_path(operation: Operation, arguments: Mapping[str, Any]) -> Path | None:
    """Return the file for the metrics of the tables that an operation changes, or None."""
    is_change = operation.finish is None and not arguments.get("dry_run")
    return arguments.get(METRICS.name) if is_change else None


def record_metrics(answers: Sequence[Answer], path: Path | None) -> list[str]:
    """Write each table's line in the overview to a metrics file, if there is one; return why that failed."""
    try:
        if path is not None and answers:
            write_metrics(list(map(_overview, answers)), path)
    except OptionError as e:
        return [str(e)]
    return []


def _overview(answer: Answer) -> Overview:
    assert answer.call is not None
    error = answer.error
    try:
        if error is None:
            line: Overview = inspection.clustering_overview.run(answer.call)
            return line
    except Exception as e:  # whatever fails, the metrics of the other tables are written
        error = answer.call.context.explain(e)
    return Overview(answer.table, "failing", error)
