"""The public functions of dbt-recluster, for notebooks and orchestrators. They need no dbt.

They work on any Iceberg table, built by dbt or not. They are the operations of dbt and of the command for one table,
and return objects.

```python
from dbt_recluster.maintenance import clustering_information, recluster

result = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(result.depth_before, result.depth_after, result.blocks_in, result.blocks_out)
print(clustering_information(spark, "analytics.events")["average_depth"])
```

Each takes ``spark``, a session with Iceberg's SQL extensions, and ``table``: ``schema.table``, ``catalog.schema.table``
or a :class:`ClusteredTable`, which is loaded once and reads its blocks once. ``cluster_by`` defaults to the table's
sort order, and an option to the one recorded in the table (``recluster.option.<name>``).

Each may raise ``NotAnIcebergTableError``, if there is no such table, and ``Interrupted``, if Ctrl-C was pressed in the
main thread. Other bad input is refused before anything is written, with ``ClusterKeyError``, ``OptionError`` or
``PredicateError``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from dbt_recluster.advice.cost_model import CostEstimate, CostModel, ReclusterEstimate, auto_depth
from dbt_recluster.advice.imported_reads import ImportedReads, has_recorded, import_log, record_queries
from dbt_recluster.advice.overview import Overview, table_overview, totals, totals_by
from dbt_recluster.advice.report_data import ReportData, report_data
from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering import options
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import (
    TableReadsInformation,
    count_blocks_opened,
    reads_information,
    table_information,
)
from dbt_recluster.clustering.options import PlanningOptions, Queries, ReclusteringOptions, ReclusterOptions, Unpack
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import Progress as Progress
from dbt_recluster.clustering.result import ProgressCallback as ProgressCallback
from dbt_recluster.clustering.result import ReclusterResult as ReclusterResult
from dbt_recluster.clustering.result import Round as Round
from dbt_recluster.clustering.table import ClusteredTable as ClusteredTable
from dbt_recluster.clustering.table_maintenance import (
    FilesRewritten,
    Maintained,
    OrphansRemoved,
    SnapshotsExpired,
    TableMaintenance,
)
from dbt_recluster.clustering.verdict import VERDICTS, Verdict
from dbt_recluster.exceptions import ClusterKeyError, OptionError, ReclusterError
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.table_properties import CLUSTER_BY
from dbt_recluster.operations.declaration import (
    METRICS,
    Answer,
    Argument,
    Branch,
    Call,
    Flag,
    Key,
    MeasuredKey,
    Moment,
    OperationTable,
    Prices,
    Since,
    Summary,
    Where,
    table_function,
    write_lines,
)
from dbt_recluster.operations.tables import EVERY_TABLE, MAINTAINED, recorded_key, unknown_properties
from dbt_recluster.report import result_text
from dbt_recluster.report.result_text import plan_table, recluster_line

OPERATIONS = OperationTable()
MEASURED_FACTS = ("table", "cluster_key", "suspended", "suspension")  # beside a single figure


def _record_reads(call: Call) -> list[str]:
    """Record the project's reads with the table if its model says so, unless they are recorded; return warnings."""
    if call.target.options is None or not call.target.options.records_reads:
        return []
    try:
        if call.queries and not has_recorded(call.table, call.queries):
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
        if model is not None:
            model.check_key(call.target.relation, call.table.key)
        elif own is not None and str(own).lower() != str(call.table.key).lower():
            if own.curve:  # a recluster by hand records it too
                yield f"it was clustered by {own}, and is again once a model runs that has this cluster_by"
            else:
                yield f"its model has cluster_by {own} and makes that its sort order again at its next run"
    if model is None:
        for name in unknown_properties(call.opened.iceberg.properties):
            yield f"table property {name} is not an option of dbt-recluster and is ignored"
        return
    yield from model.unknown
    if model.sorted_by is not None and not sort_order.is_cluster_key(call.opened.iceberg, call.table.key):
        yield f"its model's sorted_by ({model.sorted_by}) gives way to the cluster key {call.table.key}"


def _recluster_table(table: ClusteredTable, given: ReclusterOptions, changes: PropertyChanges) -> ReclusterResult:
    """Recluster a table; resolve ``auto`` before, and estimate the loss of the past week after.

    ``changes`` are further properties to set with the first commit; the size of a block, if no model sets it, is one.
    """
    if given.depth == options.AUTO:
        table.predicate(given.where)  # which is refused first
        table.reads.follow(given.reads)
        depth = auto_depth(table)
        given, changes = replace(given, depth=depth.depth), {**changes, **depth.as_properties()}
    block_rows, properties = options.RECLUSTER_OPTIONS["block_rows"], table.iceberg.properties
    name, text = block_rows.table_property, options.property_text(given.block_rows)
    usual = properties.get(name, options.property_text(block_rows.default))
    if CLUSTER_BY not in properties and name not in changes and text != usual:
        # No model records it, and a later call without it would rewrite every block.
        changes = {**changes, name: text}
    result = Recluster(table, given, changes).run()
    if result.rounds and table.reads.for_key(table.key).reads is not None:
        with suppress(Exception):  # an expiry meanwhile; the rounds are committed
            result.loss = CostModel(table, given.policy).loss()
    return result


def _estimate(call: Call) -> ReclusterEstimate:
    given = call.options()
    return CostModel.of(call.table, given).recluster(call.table.predicate(given.where))


def _gain_first(calls: list[Call]) -> list[Call]:
    """Sort calls so that a budget goes first to the tables that gain most for each byte."""

    def loss(call: Call) -> float:
        try:
            return -_estimate(call).gain_per_byte
        except ReclusterError:
            return 0.0  # its own run raises it again

    return calls if len(calls) < 2 or calls[0].context.budget.total is None else sorted(calls, key=loss)


@OPERATIONS.declare(
    lambda result, call: recluster_line(result, call.context.resume),
    METRICS,
    detail=plan_table,
    is_rewrite=True,
    order=_gain_first,
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
    table with counts, bytes, depths and seconds. A suspended table is skipped. Fails, after trying the others,
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
            result = _recluster_table(call.table, replace(given, max_bytes=max_bytes), changes)
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
    reason: Annotated[str | None, Argument(options.parse_reason, "TEXT")] = None,
    until: Annotated[datetime | None, Argument(options.parse_end, "TIME")] = None,
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
    retain_last: Annotated[int | None, Argument(options.parse_snapshot_count, "NUMBER")] = None,
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


@OPERATIONS.declare(lambda values, _: result_text.information(values), short="information")
def clustering_information(
    call: Call,
    cluster_by: MeasuredKey = None,
    where: Where = None,
    branch: Branch = None,
    *,
    block_rows: int | None = None,
) -> dict[str, Any]:
    """Print how well tables are clustered, under their own key or any other: depth, threshold and verdict, and how many
    blocks have which depth. ``format: json`` has every metric. Changes nothing.

    Args:
        block_rows: Rows in a full block, for what counts as a small one.

    Returns:
        verdict, depth, threshold, reason: Those of ``clustering_overview``, of the blocks that ``where`` admits;
            ``failing`` if an option is wrong.
    """
    # By the recorded boundaries of a curve, as every other figure; the verdict samples the loads after them.
    measured = table_information(call.table, where, block_rows or _block_rows(call))
    try:
        overview = table_overview(call.table, call.options(), exact=True)
    except OptionError as e:  # a wrong option prevents reclustering, not measuring
        overview = Overview(call.table.name, "failing", str(e))
    facts = {name: getattr(overview, name) for name in ("table", "verdict", "depth", "threshold", "reason")}
    return {**facts, **measured}


def _block_rows(call: Call) -> int | None:
    return None if call.target.options is None else call.target.options.recluster.block_rows


def _measure(call: Call, figure: str, where: str | None) -> dict[str, Any]:
    """Return one figure of :func:`clustering_information`, and what it is of."""
    information = table_information(call.table, where, _block_rows(call))
    return {key: information[key] for key in (*MEASURED_FACTS, figure)}


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "average_depth"), short="depth")
def clustering_depth(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the average depth of tables, under their own key or any other. Changes nothing."""
    return _measure(call, "average_depth", where)


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "clustering_ratio"), short="ratio")
def clustering_ratio(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the clustering ratio of tables, 100 for no overlap, under their own key or any other. Changes nothing."""
    return _measure(call, "clustering_ratio", where)


def _limit(value: Any, least: float, greatest: float) -> float | None:
    limit = options.parse_number(value)
    return limit if limit is not None and least <= limit <= greatest else None


Limit = Annotated[float | None, Argument(options.parser("a number of at least 1", lambda v: _limit(v, 1, math.inf)))]
Percentage = Annotated[float | None, Argument(options.parser("a number from 0 to 100", lambda v: _limit(v, 0, 100)))]


@table_function
def well_clustered(
    call: Call,
    max_average_depth: Limit = None,
    max_p95_depth: Limit = None,
    max_fragmentation: Limit = None,
    min_ratio: Percentage = None,
    cluster_by: MeasuredKey = None,
    predicate: Where = None,
) -> list[dict[str, Any]]:
    """A generic test, for models, seeds, snapshots and sources: fails when an Iceberg table is clustered worse than the
    limits given, of which there must be one. Reads the table's metadata, not its rows.

    Args:
        max_average_depth: The greatest average depth that passes, at least 1.
        max_p95_depth: The greatest depth that 95 % of the blocks may have, at least 1.
        max_fragmentation: How many blocks there may be for each full one that their rows and bytes would make, in the
            worst partition; at least 1.
        min_ratio: The least reducible ratio that passes, 0 to 100.
        predicate: A SQL predicate; only blocks that may hold a matching row count. ``where`` would be dbt's own config.

    Returns:
        The limits that are exceeded, each with ``limit``, ``allowed``, ``measured`` and ``text``.
    """
    limits = {
        "max_average_depth": ("average_depth", max_average_depth),
        "max_p95_depth": ("p95_depth", max_p95_depth),
        "max_fragmentation": ("max_fragmentation", max_fragmentation),
        "min_ratio": ("reducible_ratio", min_ratio),
    }
    if all(allowed is None for _, allowed in limits.values()):
        raise OptionError(f"well_clustered needs a limit: {', '.join(limits)}")
    information = table_information(call.table, predicate)
    broken = []
    for name, (figure, allowed) in limits.items():
        value = float(information[figure])
        if allowed is not None and (value < allowed if name == "min_ratio" else value > allowed):
            text = f"{call.table.name} by {information['cluster_key']}: {name} is {allowed:g}, and it has {value:g}"
            broken.append({"limit": name, "allowed": allowed, "measured": value, "text": text})
    return broken


@table_function
def blocks_opened(call: Call, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning."""
    return count_blocks_opened(call.opened, options.parse_predicate("where", where))


@dataclass(frozen=True)
class History:
    """The history of a table.

    Attributes:
        table: The table.
        since: Older entries are omitted; ISO 8601, or None.
        spent: Money for the rounds among them, or None if their seconds are not all recorded, or without prices.
        assumption: What money stands for, in one line; None without prices.
        entries: The entries, oldest first.
    """

    table: str
    since: str | None
    spent: float | None
    assumption: str | None
    entries: list[HistoryEntry]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**vars(self), "entries": [entry.as_dict() for entry in self.entries]}


@OPERATIONS.declare(lambda found, call: result_text.history(found.as_dict(), call.arguments["prices"]), short="history")
def clustering_history(call: Call, since: Since = None, prices: Prices = None) -> History:
    """Print what happened to tables, oldest first: every round of reclustering with its trigger, levels, blocks, bytes,
    rows, depths, seconds and conflicts, and the commits of other writers between. It is read from the tables' own
    snapshots, so it goes as far back as those are kept. Changes nothing.
    """
    entries, spent = table_history(call.opened, since), None
    if prices is not None:
        entries = [replace(e, spent=prices.of_seconds(e.seconds)) if e.is_recluster else e for e in entries]
        spent = prices.of_seconds(*(entry.seconds for entry in entries if entry.is_recluster))
    start = since.isoformat() if since else None
    return History(call.target.relation, start, spent, prices.assumption if prices else None, entries)


def _verdicts(value: Any) -> tuple[str, ...] | None:
    words = value.split(",") if isinstance(value, str) else value
    verdicts = tuple(str(word).strip().lower().replace("-", " ") for word in words)
    return verdicts if verdicts and all(verdict in VERDICTS for verdict in verdicts) else None


_REPORT = Path("target/clustering_report.html")
_parse_html = options.parser(
    f"the name of an HTML file, such as {_REPORT}",
    lambda value: Path(value) if re.search(r"\.html?$", value, re.IGNORECASE) else None,
)
_parse_verdicts = options.parser(f"verdicts, separated by commas, of {', '.join(VERDICTS)}", _verdicts)
_LABELS = ("tag", "group", "owner")
_parse_label = options.parser("tag, group or owner", lambda value: value if value in _LABELS else None)


def _without_result(answer: Answer) -> Overview:
    verdict: Verdict = "failing" if answer.error else "missing"
    reason = answer.error or answer.text
    return Overview(answer.table, verdict, reason.removeprefix(f"{answer.table}: "), labels=answer.labels)


def _overview(
    answers: list[Answer],
    fail_on: Annotated[tuple[str, ...] | None, Argument(_parse_verdicts, "VERDICTS")] = None,
    metrics: Annotated[Path | None, METRICS] = None,
    prices: Prices = None,
    by: Annotated[str | None, Argument(_parse_label, "LABEL")] = None,
) -> Summary:
    """Return the overview of all tables.

    Args:
        fail_on: Fail, after showing all, if a table has one of these verdicts, such as deep,failing, and name it.
        by: Totals for each tag, group or owner of the models, too; the owner is meta.owner, else that of the group.
    """
    rows = [replace(a.result, labels=a.labels) if a.result else _without_result(a) for a in answers]
    rows.sort(key=lambda row: row.rank)
    failed = [f"{row.table} is {row.verdict}" for row in rows if row.verdict in (fail_on or ())]
    failed += write_lines(rows, metrics)  # the overview is shown all the same
    sums = totals(rows)
    if by is not None:
        sums["by"] = totals_by(rows, by)
    if prices is not None:
        sums["assumption"] = prices.assumption
    values = {"tables": [row.as_dict() for row in rows], "totals": sums}
    return Summary(result_text.overview(rows, sums, prices), values, ", ".join(failed) or None)


@OPERATIONS.declare(lambda *_: "", short="overview", finish=_overview)
def clustering_overview(call: Call) -> Overview:
    """Print one line for each table, the worst first, and totals: verdict, depth, threshold, bytes of the past week,
    last recluster, and what a recluster gains for each GB; format: json has more. Fails, after showing all, if a table
    cannot be read. Changes nothing.
    """
    return table_overview(call.table, call.options(), prices=call.arguments.get("prices"))


def _write_report(answers: list[Answer], path: Annotated[Path, Argument(_parse_html, "FILE")] = _REPORT) -> Summary:
    """Write the report.

    Args:
        path: The HTML file to write.
    """
    results: list[ReportData] = [answer.result for answer in answers if answer.result is not None]
    if not results:
        return Summary("", {"files": []})
    from dbt_recluster.report.html import write_report  # matplotlib takes a second

    failing = [_without_result(answer) for answer in answers if answer.result is None]
    files = [str(path) for path in write_report(results, path, failing)]
    return Summary("\n".join(files), {"files": files})


@OPERATIONS.declare(lambda *_: "", short="report", finish=_write_report)
def clustering_report(call: Call, prices: Prices = None) -> ReportData:
    """Write one HTML file that shows how well tables are clustered: their overview, and of each the depth along the
    key now and around the last recluster, the depths and key ranges of the blocks, the history, and what reads open
    in a day with reclustering and without. It needs no network. A picture of the same name, written beside it, is
    for a terminal or a chat. Needs the extra dbt-recluster[report].
    """
    return report_data(call.table, call.options(), prices)


@OPERATIONS.declare(lambda cost, call: result_text.cost(cost.as_dict(), call.arguments["prices"]), short="estimate")
def estimate_clustering_cost(
    call: Call,
    cluster_by: Key = None,
    *,
    prices: Prices = None,
    now: datetime | None = None,
    **options: Unpack[PlanningOptions],
) -> CostEstimate:
    """Print what clustering tables by their own key or any other would cost: bytes and seconds of the first clustering,
    and of each day of loads like those of the past seven days, which the planner replays on the bounds of the blocks.
    With reads also the balance: bytes that reclustering has rewritten each day, and bytes that reads did not open
    because of it. Changes nothing.

    Args:
        cluster_by: The key to estimate for; the table keeps its own: columns or expressions, a list or separated by
            commas.
        now: The end of the past seven days, by default now.
    """
    return CostModel.of(call.table, call.options(), now).estimate().priced(prices)


@table_function
def estimate_recluster(
    call: Call, cluster_by: Key = None, *, where: Where = None, **options: Unpack[PlanningOptions]
) -> ReclusterEstimate:
    """Estimate what :func:`recluster` with ``final`` and the same arguments would cost and gain."""
    return _estimate(call)


@OPERATIONS.declare(
    lambda suggestion, _: result_text.suggestion(suggestion.as_dict()), short="suggest", needs_choice=True
)
def suggest_cluster_by(
    call: Call,
    queries: Annotated[Queries | None, Argument(options.parse_queries, "SQL", is_list=True)] = None,
    **options: Unpack[PlanningOptions],
) -> Suggestion:
    """Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks
    queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the
    bytes of the first clustering and those of each day after it. Changes nothing.

    Args:
        queries: Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict
            are tried, and pairs of them. By default, the compiled SQL of the project that reads the table, else its
            most frequent reads, else every column with queries for one value of it.

    Raises:
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    return suggest_key(call.opened, queries or call.queries, call.options())


@OPERATIONS.declare(lambda reads, _: result_text.reads(reads.as_dict()), short="reads")
def clustering_reads(call: Call, cluster_by: MeasuredKey = None) -> TableReadsInformation:
    """Print the reads of tables, declared or recorded: the range of each, how often it is read, the blocks that it
    opens, and how many of them are wasted. Changes nothing.
    """
    own = call.target.options
    call.table.reads.follow(own.recluster.reads if own else None)
    return reads_information(call.table)


@OPERATIONS.declare(lambda imported, _: result_text.imported(imported.as_dict()), needs_choice=True)
def import_reads(
    call: Call,
    event_log: Annotated[str | None, Argument(options.parse_log, "PATH")] = None,
    since: Since = None,
    logged_as: Annotated[str | None, Argument(options.parse_logged_as, "NAME")] = None,
    query_log: Annotated[str | None, Argument(options.parse_log, "FILE")] = None,
    dialect: Annotated[str | None, Argument(options.parse_dialect, "NAME")] = None,
    *,
    queries: Mapping[str, str] | None = None,
) -> ImportedReads:
    """Record the reads of tables, which every recluster then follows: ranges and counts, never the text of a query.
    They come from the compiled SQL of this project's models, snapshots, tests and analyses (none is run; analyses
    are compiled by dbt compile alone), from the event logs of any Spark application, or from a log of the queries of
    any engine.

    Args:
        event_log: A directory of Spark's event logs, or one log, on any file system that Spark reads. By default, the
            project's compiled SQL.
        logged_as: The table's full name in the logs, if its catalog has another name there. By default, its name here.
        query_log: A file of any engine's queries: lines of JSON with query, and if known time, count, catalog and
            schema. By default, the project's compiled SQL.
        dialect: The SQL dialect of the query log, as sqlglot names it. By default, spark.
        queries: SQL queries by name, of which each counts once. They replace those of an earlier call.

    Raises:
        EventLogError: There are no logs.
    """
    if queries is not None and (event_log or query_log):
        raise OptionError("import_reads takes a log or queries, not both")
    if event_log or query_log or dialect:
        return import_log(call.opened, event_log, query_log, dialect, since, logged_as)
    if since is not None or logged_as is not None:
        raise OptionError("since and logged_as are about logs: name one with event_log or query_log")
    if queries is not None:
        return record_queries(call.opened, options.parse_queries_by_name("queries", queries))
    if not call.queries:
        is_model = bool(call.target.unique_id)
        advice = "run dbt compile first, or name" if is_model else "it is no model of this project; name"
        raise OptionError(
            f"{call.target.relation}: nothing of this project that reads it is compiled; {advice} Spark's event logs "
            "with event_log"
        )
    return record_queries(call.opened, call.queries)


@OPERATIONS.declare(lambda values, _: result_text.forgotten(values), needs_choice=True)
def forget_reads(call: Call) -> dict[str, Any]:
    """Drop the recorded reads of tables, those of import_reads and of recluster_reads: project.

    Returns:
        table: The table.
        forgotten: Ranges that it recorded.
    """
    return {"table": call.target.relation, "forgotten": call.opened.reads.forget()}
