"""The operations that recluster tables, suspend that, or resume it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from dbt_recluster.advice.cost_model import CostModel, recluster_table
from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.values import parse_end, parse_reason
from dbt_recluster.exceptions import ClusterKeyError, ReclusterError
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.operations.declaration import (
    BRANCH,
    METRICS,
    OPTIONS,
    Argument,
    Call,
    OperationTable,
    flag,
    key_argument,
)
from dbt_recluster.operations.model_options import recorded_key, unknown_properties
from dbt_recluster.report import operation_text
from dbt_recluster.report.recluster_text import plan_table, recluster_line

OPERATIONS = OperationTable()


def _record_reads(call: Call) -> list[str]:
    """Record the project's reads with the table if its model says so, unless they are recorded; return warnings."""
    if call.target.options is None or not call.target.options.records_reads or not call.queries:
        return []
    try:
        if not has_recorded(call.table, call.queries):
            record_queries(call.table, call.queries)
    except Exception as e:  # whatever fails, the recluster follows the reads recorded before
        return [f"the project's reads were not recorded: {call.context.explain(e)}"]
    return []


def _warnings(call: Call) -> Iterator[str]:
    """Yield what is wrong with the model's or the table's options, and what happens to a key that is not the model's.

    Raises:
        ClusterKeyError: The key contradicts that of a model of this project.
    """
    model, given = call.target.options, call.arguments.get("cluster_by")
    if given is not None:
        if given.note:
            yield given.note
        try:
            own = model.cluster_by if model else recorded_key(call.opened.iceberg.properties)
        except ClusterKeyError as e:
            own = None
            yield str(e)
        if own is not None and str(own).lower() != str(call.table.key).lower():
            if model is not None:
                raise ClusterKeyError(
                    f"the model of {call.target.relation} has cluster_by {own}; change it there instead of naming "
                    f"{given} here"
                )
            if own.curve:  # a recluster by hand records it too
                yield f"it was clustered by {own}, and is again once a model runs that has this cluster_by"
            else:
                yield f"its model has cluster_by {own} and makes that its sort order again at its next run"
    if model is None:
        for name in unknown_properties(call.opened.iceberg.properties):
            yield f"table property {name} is not an option of dbt-recluster and is ignored"
        return
    yield from model.unknown
    if model.sorted_by is not None and not is_cluster_key(call.opened.iceberg, call.table.key):
        yield f"its model's sorted_by ({model.sorted_by}) gives way to the cluster key {call.table.key}"


def gain_first(calls: list[Call]) -> list[Call]:
    """Sort calls so that a budget goes first to the tables that gain most for each byte."""

    def loss(call: Call) -> float:
        try:
            options = call.options()
            estimate = CostModel.of(call.table, options).recluster(call.table.predicate(options.where))
            return -estimate.gain_per_byte
        except ReclusterError:
            return 0.0  # its own run raises it again

    return calls if len(calls) < 2 or calls[0].context.budget.total is None else sorted(calls, key=loss)


@OPERATIONS.declare(
    lambda result, call: recluster_line(result, call.context.resume),
    *OPTIONS.values(),
    flag("dry_run", "Print the plan, its bytes and its duration, and rewrite nothing."),
    key_argument(
        "The cluster key of a single table, which becomes its sort order; a model's key is changed in its "
        "configuration"
    ),
    BRANCH,
    METRICS,
    detail=plan_table,
    is_rewrite=True,
)
def recluster(call: Call) -> ReclusterResult:
    """Recluster tables that are not well clustered: merge the block sets that make them deep. Prints one line for each
    table with counts, bytes, depths and seconds. A suspended table is passed over. Fails, after trying the others,
    if any table failed. Under a budget for the whole run, the tables that gain most for each byte come first.
    """
    call.warnings.extend(_warnings(call))
    options = call.options(trigger=call.context.trigger, progress=call.context.progress())
    model, changes, warnings, budget = call.target.options, {}, [], call.context.budget
    with budget.limit(options.max_bytes) as max_bytes:
        try:
            if call.arguments.get(BRANCH.name) is None:
                warnings = [] if options.dry_run else _record_reads(call)
                if model is not None and call.context.records_options:
                    changes = model.recorded(call.opened.iceberg.properties)
            result = recluster_table(call.table, replace(options, max_bytes=max_bytes), changes)
        except ReclusterError as e:
            budget.spend(e.bytes_rewritten)  # by rounds before the one that failed
            raise
        budget.spend(result.plan.bytes if result.plan else result.bytes_in)
    result.warnings += warnings
    call.warnings.extend(result.warnings)
    return result


@OPERATIONS.declare(
    lambda values, call: operation_text.suspended(values, call.context.resume),
    Argument("reason", parse_reason, "Why, in at most 200 characters.", "TEXT"),
    Argument("until", parse_end, "When it ends: a date, or a time, in UTC.", "TIME", "never"),
    METRICS,
    short="suspend",
    needs_choice=True,
)
def suspend_recluster(call: Call) -> dict[str, Any]:
    """Suspend all reclustering of tables, after a run or by hand, until resume_recluster or a time. The suspension is a
    property of the table (recluster.suspended), so every process honours it; a recluster that is running stops
    before its next round.

    Returns:
        table: The table.
        suspended: Since when it is suspended, ISO 8601 in UTC.
        suspension: Since when, by whom, until when and the reason.
    """
    suspension = call.opened.suspend(call.arguments["reason"], call.arguments["until"])
    return {"table": call.target.relation, "suspended": suspension.since, "suspension": asdict(suspension)}


@OPERATIONS.declare(
    lambda values, _: operation_text.resumed(values), METRICS, short="resume", needs_choice=True
)
def resume_recluster(call: Call) -> dict[str, Any]:
    """Resume reclustering of tables that were suspended.

    Returns:
        table: The table.
        suspended: None.
        was_suspended: Since when it was suspended, or None if it was not.
    """
    since = call.opened.resume()
    return {"table": call.target.relation, "suspended": None, "was_suspended": since}
