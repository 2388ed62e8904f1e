"""The operations that change tables: recluster them, suspend that or resume it, and clean up after commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

from dbt_recluster.advice.cost_model import CostModel
from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.advice.replay import auto_depth
from dbt_recluster.clustering.options import (
    RECLUSTER_OPTIONS,
    ReclusteringOptions,
    ReclusterOptions,
    Unpack,
    property_text,
)
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import ProgressCallback, ReclusterResult
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_maintenance import (
    FilesRewritten,
    Maintained,
    OrphansRemoved,
    SnapshotsExpired,
    TableMaintenance,
)
from dbt_recluster.clustering.values import AUTO, parse_end, parse_reason, parse_snapshot_count
from dbt_recluster.exceptions import ClusterKeyError, ReclusterError
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.iceberg.table_properties import CLUSTER_BY
from dbt_recluster.operations.declaration import (
    METRICS,
    Argument,
    Branch,
    Call,
    Flag,
    Key,
    Moment,
    OperationTable,
)
from dbt_recluster.operations.tables import EVERY_TABLE, MAINTAINED, recorded_key, unknown_properties
from dbt_recluster.report import result_text
from dbt_recluster.report.result_text import plan_table, recluster_line

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


def recluster_table(
    table: ClusteredTable, options: ReclusterOptions, changes: PropertyChanges | None = None
) -> ReclusterResult:
    """Recluster a table; resolve ``auto`` before, and estimate the loss of the past week after.

    ``changes`` are further properties to set with the first commit; the size of a block, if no model sets it, is one.
    """
    if options.depth == AUTO:
        table.predicate(options.where)  # which is refused first
        table.reads.follow(options.reads)
        depth = auto_depth(table)
        options, changes = replace(options, depth=depth.depth), {**(changes or {}), **depth.as_properties()}
    changes, block_rows = changes or {}, RECLUSTER_OPTIONS["block_rows"]
    properties, name = table.iceberg.properties, block_rows.table_property
    given, usual = property_text(options.block_rows), property_text(block_rows.default)
    if CLUSTER_BY not in properties and name not in changes and given != properties.get(name, usual):
        # No model records it, and a later call without it would rewrite every block.
        changes = {**changes, name: given}
    result = Recluster(table, options, changes).run()
    if result.rounds and table.reads.for_key(table.key).reads is not None:
        with suppress(Exception):  # an expiry meanwhile; the rounds are committed
            result.loss = CostModel(table, options.policy).loss()
    return result


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
    METRICS,
    detail=plan_table,
    is_rewrite=True,
    order=gain_first,
)
def recluster(
    call: Call,
    cluster_by: Key = None,
    *,
    dry_run: Flag = False,
    branch: Branch = None,
    reads: str | Sequence[str | Mapping[str, Any]] | None = None,
    trigger: str | None = None,
    listener: ProgressCallback | None = None,
    **options: Unpack[ReclusteringOptions],
) -> ReclusterResult:
    """Recluster tables that are not well clustered: merge the block sets that make them deep. Prints one line for each
    table with counts, bytes, depths and seconds. A suspended table is passed over. Fails, after trying the others,
    if any table failed. Under a budget for the whole run, the tables that gain most for each byte come first.

    Args:
        cluster_by: The cluster key of a single table, which becomes its sort order; a model's key is changed in its
            configuration: columns or expressions, a list or separated by commas.
        dry_run: Print the plan, its bytes and its duration, and rewrite nothing.
        reads: What queries read, as the option of a model.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``.
        listener: Callback for the progress: called when a round starts, about twice a second during its merge (from
            another thread), and when it is committed.

    Raises:
        ConcurrentChangeError: Other writers were faster five times in a row.
        MergeFailedError, CommitFailedError: Blocks could not be read or written, or the catalog did not answer.
        CommitStateUnknownError: The catalog did not confirm a commit.
        CommitMismatchError: What was committed beside another writer's commit has to be rolled back.
        OrphanFilesError: Something failed, and files written before could not be deleted.
    """
    call.warnings.extend(_warnings(call))
    progress = listener or call.context.progress()
    given = call.options(trigger=trigger or call.context.trigger, progress=progress)
    model, changes, warnings, budget = call.target.options, {}, [], call.context.budget
    with budget.limit(given.max_bytes) as max_bytes:
        try:
            if branch is None:
                warnings = [] if given.dry_run else _record_reads(call)
                if model is not None and call.context.records_options:
                    changes = model.recorded(call.opened.iceberg.properties)
            result = recluster_table(call.table, replace(given, max_bytes=max_bytes), changes)
        except ReclusterError as e:
            budget.spend(e.bytes_rewritten)  # by rounds before the one that failed
            raise
        budget.spend(result.plan.bytes if result.plan else result.bytes_in)
    result.warnings += warnings
    call.warnings.extend(result.warnings)
    return result


@OPERATIONS.declare(
    lambda values, call: result_text.suspended(values, call.context.resume),
    METRICS,
    short="suspend",
    needs_choice=True,
)
def suspend_recluster(
    call: Call,
    reason: Annotated[str | None, Argument(parse_reason, "TEXT")] = None,
    until: Annotated[datetime | None, Argument(parse_end, "TIME")] = None,
) -> dict[str, Any]:
    """Suspend all reclustering of tables, after a run or by hand, until resume_recluster or a time. The suspension is a
    property of the table (recluster.suspended), so every process honours it; a recluster that is running stops
    before its next round.

    Args:
        reason: Why, in at most 200 characters.
        until: When it ends: a date, or a time, in UTC. By default, never.

    Returns:
        table: The table.
        suspended: Since when it is suspended, ISO 8601 in UTC.
        suspension: Since when, by whom, until when and the reason.
    """
    suspension = call.opened.suspend(reason, until)
    return {"table": call.target.relation, "suspended": suspension.since, "suspension": asdict(suspension)}


@OPERATIONS.declare(lambda values, _: result_text.resumed(values), METRICS, short="resume", needs_choice=True)
def resume_recluster(call: Call) -> dict[str, Any]:
    """Resume reclustering of tables that were suspended.

    Returns:
        table: The table.
        suspended: None.
        was_suspended: Since when it was suspended, or None if it was not.
    """
    since = call.opened.resume()
    return {"table": call.target.relation, "suspended": None, "was_suspended": since}


def _maintained(result: SnapshotsExpired | OrphansRemoved | FilesRewritten | Maintained, _: Call) -> str:
    return result_text.maintained(result.as_dict())


def _maintenance(call: Call) -> TableMaintenance:
    return TableMaintenance(call.opened.iceberg, catalog=call.catalog)


@OPERATIONS.declare(_maintained, eligible=EVERY_TABLE, needs_choice=True)
def expire_snapshots(
    call: Call,
    older_than: Moment = None,
    retain_last: Annotated[int | None, Argument(parse_snapshot_count, "NUMBER")] = None,
    *,
    force: Flag = False,
    dry_run: Flag = False,
) -> SnapshotsExpired:
    """Expire the snapshots of tables, and delete the data and delete files that no other snapshot references, such as
    blocks that merges have replaced. Branches and tags stay. Expired snapshots leave history and time travel.

    Args:
        older_than: Snapshots committed before it expire: a date, a time (UTC unless it has a zone) or a period such as
            '7 days'. Within the past hour it is refused. By default, the table's history.expire.max-snapshot-age-ms,
            else 5 days.
        retain_last: How many snapshots stay, however old. By default, the table's
            history.expire.min-snapshots-to-keep, else 1.
        force: Allow an older_than within the past hour, though a running query may still read what is deleted.
        dry_run: Report what would expire and the bytes freed; change nothing.
    """
    return _maintenance(call).expire_snapshots(older_than, retain_last, force=force, dry_run=dry_run)


@OPERATIONS.declare(_maintained, eligible=EVERY_TABLE, needs_choice=True)
def remove_orphan_files(
    call: Call, older_than: Moment = None, *, force: Flag = False, dry_run: Flag = True
) -> OrphansRemoved:
    """Name orphan files: files in the directories of tables that no snapshot references, left by writers that failed or
    were killed; with dry_run false, delete them. A file that any table of the catalog uses stays. Refused where
    another table writes to the same place, or a table of the catalog cannot be read.

    Args:
        older_than: Only files last changed before it: a date, a time (UTC unless it has a zone) or a period such as '7
            days'. Less than 3 days is refused, since the files of a writer that has not committed yet look like
            orphans. By default, 3 days ago.
        force: Allow an older_than of less than 3 days, and remove files that a dropped table left in the same
            directories.
        dry_run: Only name the files.
    """
    return _maintenance(call).remove_orphan_files(older_than, force=force, dry_run=dry_run)


@OPERATIONS.declare(_maintained, eligible=EVERY_TABLE, needs_choice=True)
def rewrite_manifests(call: Call, *, dry_run: Flag = False) -> FilesRewritten:
    """Rewrite the manifests of tables, ordered by partition and of the size in commit.manifest.target-size-bytes, so
    that planning a query reads fewer. Data files stay as they are.

    Args:
        dry_run: Report how many manifests there are and would be at best; change nothing.
    """
    return _maintenance(call).rewrite_manifests(dry_run=dry_run)


@OPERATIONS.declare(_maintained, eligible=EVERY_TABLE, needs_choice=True)
def rewrite_position_delete_files(call: Call, *, dry_run: Flag = False) -> FilesRewritten:
    """Compact the small position delete files of tables, and drop those whose rows are gone. Iceberg leaves fewer than
    five in a partition as they are, and deletion vectors.

    Args:
        dry_run: Report the most that one partition has; change nothing.
    """
    return _maintenance(call).rewrite_position_delete_files(dry_run=dry_run)


@OPERATIONS.declare(_maintained, METRICS, eligible=MAINTAINED)
def maintain(call: Call, *, orphans: Flag = False, dry_run: Flag = False) -> Maintained:
    """Do the maintenance that is due, with one line for each table: compact position delete files (five or more in a
    partition), rewrite manifests (ten or more, and four times as many as needed), expire snapshots by the tables' own
    settings and, with orphans, remove orphan files of more than three days.

    Args:
        orphans: Also remove orphan files of more than three days, which lists all files in the table's directories.
        dry_run: Report what is due; change nothing.
    """
    return _maintenance(call).maintain(orphans=orphans, dry_run=dry_run)


@OPERATIONS.declare(lambda values, _: result_text.removed(values), eligible=EVERY_TABLE, needs_choice=True)
def remove_clustering(call: Call, *, dry_run: Flag = False) -> dict[str, Any]:
    """Strip tables of what dbt-recluster keeps in them: the sort order that their models have set, with its
    write.distribution-mode, and all properties recluster.*. Data, history and Iceberg's other properties stay. For
    tables that no model clusters any more, and before dbt-recluster is uninstalled.

    Args:
        dry_run: Report what would be removed; change nothing.

    Returns:
        table: The table.
        dry_run: Whether nothing was changed.
        sort_order: The sort order that was cleared, or would be; None if there is none, or none that a model had set.
        properties: The properties that were removed, or would be.
    """
    if call.target.options is not None and call.target.options.cluster_by is not None:
        call.warnings.append("its model has cluster_by, and sets it again at its next run")
    order, properties = sort_order.remove_clustering(call.opened.iceberg, dry_run=dry_run)
    if order is None and (kept := sort_order.sort_order_text(call.opened.iceberg)):
        call.warnings.append(
            f"its sort order {kept} is not a model's and stays; to clear it: "
            f"alter table {call.opened.name} write unordered"
        )
    return {"table": call.target.relation, "dry_run": dry_run, "sort_order": order, "properties": properties}
