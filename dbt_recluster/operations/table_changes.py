"""The operations that change tables: recluster them, suspend that or resume it, and clean up after commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import wraps
from typing import Any

from dbt_recluster.advice.cost_model import CostModel, recluster_table
from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_end, parse_moment, parse_reason, parse_snapshot_count
from dbt_recluster.exceptions import ClusterKeyError, ReclusterError
from dbt_recluster.iceberg import sort_order
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
from dbt_recluster.operations.tables import (
    EVERY_TABLE,
    MAINTAINED,
    Eligible,
    recorded_key,
    unknown_properties,
)
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
    order=gain_first,
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


def _declare(name: str, meaning: str, *arguments: Argument, eligible: Eligible = EVERY_TABLE) -> None:
    """Declare the method of :class:`TableMaintenance` of this name; the method takes all arguments but ``metrics``."""
    method = getattr(TableMaintenance, name)

    @wraps(method)
    def run(call: Call) -> Any:
        given = {each.name: call.arguments[each.name] for each in arguments if each is not METRICS}
        return method(TableMaintenance(call.opened.iceberg, catalog=call.catalog), **given)

    OPERATIONS.declare(
        lambda result, _: operation_text.maintained(result.as_dict()),
        *arguments,
        meaning=meaning,
        eligible=eligible,
        needs_choice=eligible is EVERY_TABLE,
    )(run)


def _older_than(meaning: str, otherwise: str) -> Argument:
    return Argument("older_than", parse_moment, meaning, "TIME", otherwise)


_declare(
    "expire_snapshots",
    "Expire the snapshots of tables, and delete the data and delete files that no other snapshot references, such as "
    "blocks that merges have replaced. Branches and tags stay. Expired snapshots leave history and time travel.",
    _older_than(
        "Snapshots committed before it expire: a date, a time (UTC unless it has a zone) or a period such as '7 days'. "
        "Within the past hour it is refused.",
        "the table's history.expire.max-snapshot-age-ms, else 5 days",
    ),
    Argument(
        "retain_last",
        parse_snapshot_count,
        "How many snapshots stay, however old.",
        "NUMBER",
        "the table's history.expire.min-snapshots-to-keep, else 1",
    ),
    flag(
        "force",
        "Allow an older_than within the past hour, though a running query may still read what is deleted.",
    ),
    flag("dry_run", "Report what would expire and the bytes freed; change nothing."),
)
_declare(
    "remove_orphan_files",
    "Name orphan files: files in the directories of tables that no snapshot references, left by writers that failed or "
    "were killed; with dry_run false, delete them. A file that any table of the catalog uses stays. Refused where "
    "another table writes to the same place, or a table of the catalog cannot be read.",
    _older_than(
        "Only files last changed before it: a date, a time (UTC unless it has a zone) or a period such as '7 days'. "
        "Less than 3 days is refused, since the files of a writer that has not committed yet look like orphans.",
        "3 days ago",
    ),
    flag(
        "force",
        "Allow an older_than of less than 3 days, and remove files that a dropped table left in the same directories.",
    ),
    flag("dry_run", "Only name the files.", default=True),
)
_declare(
    "rewrite_manifests",
    "Rewrite the manifests of tables, ordered by partition and of the size in commit.manifest.target-size-bytes, so "
    "that planning a query reads fewer. Data files stay as they are.",
    flag("dry_run", "Report how many manifests there are and would be at best; change nothing."),
)
_declare(
    "rewrite_position_delete_files",
    "Compact the small position delete files of tables, and drop those whose rows are gone. Iceberg leaves fewer than "
    "five in a partition as they are, and deletion vectors.",
    flag("dry_run", "Report the most that one partition has; change nothing."),
)
_declare(
    "maintain",
    "Do the maintenance that is due, with one line for each table: compact position delete files (five or more in a "
    "partition), rewrite manifests (ten or more, and four times as many as needed), expire snapshots by the tables' "
    "own settings and, with orphans, remove orphan files of more than three days.",
    flag(
        "orphans",
        "Also remove orphan files of more than three days, which lists all files in the table's directories.",
    ),
    flag("dry_run", "Report what is due; change nothing."),
    METRICS,
    eligible=MAINTAINED,
)


@OPERATIONS.declare(
    lambda values, _: operation_text.removed(values),
    flag("dry_run", "Report what would be removed; change nothing."),
    eligible=EVERY_TABLE,
    needs_choice=True,
)
def remove_clustering(call: Call) -> dict[str, Any]:
    """Strip tables of what dbt-recluster keeps in them: the sort order that their models have set, with its
    write.distribution-mode, and all properties recluster.*. Data, history and Iceberg's other properties stay. For
    tables that no model clusters any more, and before dbt-recluster is uninstalled.

    Returns:
        table: The table.
        dry_run: Whether nothing was changed.
        sort_order: The sort order that was cleared, or would be; None if there is none, or none that a model had set.
        properties: The properties that were removed, or would be.
    """
    dry_run = call.arguments["dry_run"]
    if call.target.options is not None and call.target.options.cluster_by is not None:
        call.warnings.append("its model has cluster_by, and sets it again at its next run")
    order, properties = sort_order.remove_clustering(call.opened.iceberg, dry_run=dry_run)
    if order is None and (kept := sort_order.sort_order_text(call.opened.iceberg)):
        call.warnings.append(
            f"its sort order {kept} is not a model's and stays; to clear it: "
            f"alter table {call.opened.name} write unordered"
        )
    return {"table": call.target.relation, "dry_run": dry_run, "sort_order": order, "properties": properties}
