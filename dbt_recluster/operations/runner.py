"""Every operation by name, and how one runs on tables, one after the other, for dbt and for the command alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbt_recluster.advice.overview import Overview
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.iceberg.session.interruption import stop_if_interrupted
from dbt_recluster.operations import inspection, maintenance_operations, reclustering
from dbt_recluster.operations.declaration import METRICS, Answer, Call, Context, Operation
from dbt_recluster.operations.inspection import overview_of
from dbt_recluster.operations.tables import Target
from dbt_recluster.report.metrics import write_metrics
from dbt_recluster.text import did_you_mean

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for module in (reclustering, inspection, maintenance_operations)
    for operation in vars(module).values()
    if isinstance(operation, Operation)
}


def operation_named(name: str) -> Operation:
    """Return an operation, or raise OptionError."""
    if name in OPERATIONS:
        return OPERATIONS[name]
    raise OptionError(f"there is no operation {name}; {did_you_mean(name, OPERATIONS, 'there are')}")


def run_operation(
    operation: Operation, targets: Iterable[Target], arguments: Mapping[str, Any], context: Context
) -> Iterator[tuple[Answer, int, int]]:
    """Run an operation on tables and yield what came of each. A table that fails does not stop the others.

    Tables that the user did not name are passed over if they are not built.

    Yields:
        The answer, its number from 1, and the number of tables.
    """
    catalog = CatalogFiles()
    calls = operation.order([Call(target, arguments, context, catalog) for target in targets])
    for number, call in enumerate(calls, start=1):
        stop_if_interrupted()
        answer = _answer(operation, call)
        if answer is not None:
            yield replace(answer, call=call), number, len(calls)


def record_metrics(answers: Sequence[Answer], path: Path | None) -> list[str]:
    """Write the overview's line of each table that was worked on to a file, if any; return why it was not written."""
    if path is None or not answers:
        return []
    try:
        write_metrics(list(map(_overview, answers)), path)
    except OptionError as e:
        return [str(e)]
    return []


def metrics_path(operation: Operation, arguments: Mapping[str, Any]) -> Path | None:
    """Return where the metrics of the tables go after an operation that changes them, or None."""
    is_change = operation.finish is None and not arguments.get("dry_run")
    return arguments.get(METRICS.name) if is_change else None


def _overview(answer: Answer) -> Overview:
    assert answer.call is not None
    try:
        if answer.error is None:
            return overview_of(answer.call)
        return Overview(answer.table, "failing", answer.error)
    except Exception as e:
        return Overview(answer.table, "failing", answer.call.context.explain(e))


def _answer(operation: Operation, call: Call) -> Answer | None:
    """Run an operation on one table; None if the table is passed over without a word."""
    relation = call.target.relation
    try:
        if not call.target.required and not call.context.exists(call.target):
            absent = call.context.absent
            return _not_done(relation, absent) if operation.is_rewrite and absent else None
        if call.target.error is not None:
            raise OptionError(call.target.error)
        result = operation.run(call)
    except BudgetSpentError as e:
        return _not_done(relation, f"not reclustered, {e}")
    except Exception as e:
        stop_if_interrupted(e)
        error = call.context.explain(e)
        answer = _not_done(relation, f"failed: {error}", error, getattr(e, "orphans", ()))
        return replace(answer, warnings=call.warnings)
    if operation.finish is not None:
        return Answer(relation, {"table": relation}, result=result, warnings=call.warnings)
    values = result if isinstance(result, Mapping) else result.as_dict()
    text, detail = operation.text(result, call), operation.detail(result)
    return Answer(relation, values, text, detail, result, call.warnings)


def _not_done(relation: str, why: str, error: str | None = None, orphans: Sequence[str] = ()) -> Answer:
    reason = f"{relation}: {why}"
    values = {"table": relation, "error": error, "reason": reason, "orphans": list(orphans)}
    return Answer(relation, values, reason if error is None else "", error=error)


def failure_line(answer: Answer) -> str:
    """Return why an operation failed for a table, with the table's name."""
    error = answer.error or ""
    return error if answer.table in error else f"{answer.table}: {error}"
