"""The public functions of dbt-recluster, for notebooks and orchestrators. They need no dbt.

They work on any Iceberg table, built by dbt or not. They are the operations of dbt and of the command for one table,
and return objects.

```python
from dbt_recluster.api import clustering_information, recluster

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

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from typing_extensions import Unpack

from dbt_recluster.advice.auto_key import auto_key, key_choices
from dbt_recluster.advice.cost_model import CostEstimate, CostModel, ReclusterEstimate
from dbt_recluster.advice.imported_reads import ImportedReads, import_log, record_queries
from dbt_recluster.advice.overview import Overview, totals, totals_by
from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import (
    TableReadsInformation,
    reads_information,
    table_figures,
    table_information,
)
from dbt_recluster.clustering.options import PlanningOptions, Queries, ReclusteringOptions, SqlPredicate, parse_value
from dbt_recluster.clustering.options import ReclusterOptions as ReclusterOptions
from dbt_recluster.clustering.result import Progress as Progress
from dbt_recluster.clustering.result import ProgressCallback as ProgressCallback
from dbt_recluster.clustering.result import ReclusterResult as ReclusterResult
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.result import Round as Round
from dbt_recluster.clustering.table import ClusteredTable as ClusteredTable
from dbt_recluster.clustering.table_maintenance import (
    FilesRewritten,
    Maintained,
    OrphansRemoved,
    SnapshotsExpired,
    TableMaintenance,
)
from dbt_recluster.clustering.verdict import Facts, decide
from dbt_recluster.exceptions import NoKeyYetError, OptionError, PredicateError, ReclusterError
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan
from dbt_recluster.operations import arguments
from dbt_recluster.operations.arguments import (
    METRICS,
    Argument,
    BlockRows,
    Branch,
    Flag,
    Key,
    Listener,
    MeasuredKey,
    Now,
    OlderThan,
    Prices,
    ReadsOfTable,
    Since,
    Trigger,
    Where,
)
from dbt_recluster.operations.declaration import Answer, Call, OperationTable, Summary, overview_line, table_function
from dbt_recluster.operations.reclustering import gain_first, option_warnings, recluster_estimate, recluster_table
from dbt_recluster.operations.targets import EVERY_TABLE, MAINTAINED
from dbt_recluster.report import result_text
from dbt_recluster.report.report_data import ReportData, report_data
from dbt_recluster.report.result_text import plan_table, recluster_line

OPERATIONS = OperationTable()
MEASURED_FACTS = ("table", "cluster_key", "suspended", "suspension")  # beside a single figure


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
    reads: ReadsOfTable = None,
    trigger: Trigger = None,
    listener: Listener = None,
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
    try:
        call.warnings.extend(option_warnings(call))
        progress = listener or call.context.progress()
        started = {"trigger": trigger or call.context.trigger, "progress": progress}
        recluster_options = call.options(**options, reads=reads, dry_run=dry_run, **started)
        budget = call.context.budget
        with budget.limit(recluster_options.max_bytes) as max_bytes:
            try:
                result = recluster_table(call, replace(recluster_options, max_bytes=max_bytes))
            except ReclusterError as e:
                budget.spend(e.bytes_rewritten)  # by rounds before the one that failed
                raise
            budget.spend(result.plan.bytes if result.plan else result.bytes_in)
    except Exception as e:
        if not dry_run and branch is None:
            call.record_failure(e)
        raise
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
    reason: Annotated[arguments.Reason | None, Argument("TEXT")] = None,
    until: Annotated[arguments.End | None, Argument("TIME")] = None,
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
    older_than: OlderThan = None,
    retain_last: Annotated[arguments.SnapshotCount | None, Argument("NUMBER")] = None,
    *,
    force: Flag = False,
    dry_run: Flag = False,
) -> SnapshotsExpired:
    """Expire the snapshots of tables, and delete the data and delete files that no other snapshot references, such as
    blocks that merges have replaced. Branches and tags stay until history.expire.max-ref-age-ms.
    Expired snapshots leave history and time travel.

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
    call: Call, older_than: OlderThan = None, *, force: Flag = False, dry_run: Flag = True
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
    """Strip tables of what dbt-recluster keeps in them: the sort order that their models or a recluster have set, with
    its write.distribution-mode, and all properties recluster.*. Data, history and Iceberg's other properties stay. For
    tables that no model clusters any more, and before dbt-recluster is uninstalled.

    Args:
        dry_run: Report what would be removed; change nothing.

    Returns:
        table: The table.
        dry_run: Whether nothing was changed.
        sort_order: The sort order that was cleared, or would be; None if there is none, or somebody else had set it.
        properties: The properties that were removed, or would be.
    """
    if call.target.options is not None and call.target.options.is_clustered:
        call.warnings.append("its model has cluster_by, and sets it again at its next run")
    order, properties = sort_order.remove_clustering(call.opened.iceberg, dry_run=dry_run)
    if order is None and (kept := sort_order.sort_order_text(call.opened.iceberg)):
        call.warnings.append(
            f"its sort order {kept} was set by somebody else and stays; to clear it: "
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
    block_rows: BlockRows = None,
) -> dict[str, Any]:
    """Print how well tables are clustered, under their own key or any other: depth, threshold and verdict, and how many
    blocks have which depth. JSON has every metric. Changes nothing.

    Args:
        block_rows: Rows in a full block, for what counts as a small one.

    Returns:
        verdict, depth, threshold, reason, cause: Those of ``clustering_overview``, of the whole table.
        options: Every option in effect, by its name in ``meta.recluster``: ``name`` and ``value`` as they are written,
            or the default in words; ``origin``: ``model``, ``dbt_project.yml``, ``project`` (either, of a manifest or
            a package), ``var``, ``environment``, ``table property``, ``sort order``, ``argument`` or ``default``.
    """
    # By the recorded boundaries of a curve, as every other figure; the verdict samples the loads after them.
    measured = table_information(call.table, where, block_rows or _block_rows(call))
    try:
        overview = call.overview(call.options(block_rows=block_rows), exact=True)
    except (OptionError, PredicateError) as e:  # a wrong option prevents reclustering, not measuring
        standing = decide(Facts(error=str(e)))
        overview = Overview(call.table.name, standing.verdict, standing.text, standing.cause)
    facts = {name: getattr(overview, name) for name in ("table", "verdict", "depth", "threshold", "reason", "cause")}
    return {**facts, **measured, "options": call.options_in_effect(block_rows=block_rows)}


def _block_rows(call: Call) -> int | None:
    return None if call.target.options is None else call.target.options.recluster.block_rows


def _measure(call: Call, figure: str, where: str | None) -> dict[str, Any]:
    information = table_figures(call.table, where, _block_rows(call))
    return {key: information[key] for key in (*MEASURED_FACTS, figure)}


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "average_depth"), short="depth")
def clustering_depth(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the average depth of tables, under their own key or any other. Changes nothing."""
    return _measure(call, "average_depth", where)


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "clustering_ratio"), short="ratio")
def clustering_ratio(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the clustering ratio of tables, 100 for no overlap, under their own key or any other. Changes nothing."""
    return _measure(call, "clustering_ratio", where)


@table_function
def well_clustered(
    call: Call,
    max_average_depth: arguments.Limit = None,
    max_p95_depth: arguments.Limit = None,
    max_fragmentation: arguments.Limit = None,
    min_ratio: arguments.Percentage = None,
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
    try:
        information = table_figures(call.table, predicate)
    except NoKeyYetError:
        return []
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
    predicate, iceberg = call.opened.predicate(parse_value(SqlPredicate, "where", where)), call.opened.iceberg
    snapshot_id = iceberg.snapshot_id
    return 0 if snapshot_id is None else len(SnapshotScan(iceberg, snapshot_id, predicate.expression).paths())


@dataclass(frozen=True)
class History(Result):
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


@OPERATIONS.declare(lambda found, call: result_text.history(found.as_dict(), call.arguments["prices"]), short="history")
def clustering_history(call: Call, since: Since = None, prices: Prices = None) -> History:
    """Print what happened to tables, oldest first: every round of reclustering with its trigger, levels, blocks, bytes,
    rows, depths, seconds and conflicts, the commits of other writers between, and the keys that cluster_by: auto
    chose. It is read from the tables' own snapshots, so it goes as far back as those are kept. Changes nothing.
    """
    choices = (choice for choice in key_choices(call.opened) if since is None or choice.at >= since)
    entries, spent = sorted([*table_history(call.opened, since), *choices], key=lambda entry: entry.at), None
    if prices is not None:
        entries = [replace(e, spent=prices.of_seconds(e.seconds)) if e.is_recluster else e for e in entries]
        spent = prices.of_seconds(*(entry.seconds for entry in entries if entry.is_recluster))
    start = since.isoformat() if since else None
    return History(call.target.relation, start, spent, prices.assumption if prices else None, entries)


def _overview(
    answers: list[Answer],
    fail_on: Annotated[arguments.Verdicts | None, Argument("VERDICTS")] = None,
    prices: Prices = None,
    by: Annotated[arguments.Label | None, Argument("LABEL")] = None,
) -> Summary:
    """Return the overview of all tables.

    Args:
        fail_on: Fail, after showing all, if a table has one of these verdicts, such as deep,failing, and name it.
        by: Totals for each tag, group or owner of the models, too; the owner is meta.owner, else that of the group.
    """
    rows = sorted(map(overview_line, answers), key=lambda row: row.rank)
    told = {answer.table for answer in answers if answer.error is not None}
    verdicts = {"failing", *(fail_on or ())}
    failed = [f"{row.table} is {row.verdict}" for row in rows if row.verdict in verdicts and row.table not in told]
    sums = totals(rows)
    if by is not None:
        sums["by"] = totals_by(rows, by)
    if prices is not None:
        sums["assumption"] = prices.assumption
    values = {"tables": [row.as_dict() for row in rows], "totals": sums}
    return Summary(result_text.overview(rows, sums, prices), values, ", ".join(failed) or None)


@OPERATIONS.declare(lambda *_: "", METRICS, short="overview", finish=_overview)
def clustering_overview(call: Call) -> Overview:
    """Print one line for each table, the worst first, and totals: verdict, depth, threshold, bytes of the past week,
    and last recluster; JSON has more. Fails, after showing all, if a table is failing. Changes nothing.
    """
    return call.overview(prices=call.arguments.get("prices"))


def _write_report(
    answers: list[Answer], path: Annotated[arguments.HtmlFile, Argument("FILE")] = arguments.REPORT
) -> Summary:
    """Write the report.

    Args:
        path: The HTML file to write.
    """
    results: list[ReportData] = [answer.result for answer in answers if answer.result is not None]
    if not results:
        return Summary("", {"files": []})
    from dbt_recluster.report.html import write_report  # matplotlib takes a second

    write_report(results, path, [overview_line(answer) for answer in answers if answer.result is None])
    return Summary(str(path), {"files": [str(path)]})


@OPERATIONS.declare(lambda *_: "", short="report", finish=_write_report)
def clustering_report(call: Call, prices: Prices = None) -> ReportData:
    """Write one HTML file that shows how well tables are clustered: their overview, and of each the depth along the
    key now and around the last recluster, the depths and key ranges of the blocks, the history, and what reads open
    in a day with reclustering and without. It needs no network to be read. Needs the extra dbt-recluster[report].
    """
    return report_data(call.table, call.options(), prices, call.overview(prices=prices))


@OPERATIONS.declare(lambda cost, call: result_text.cost(cost.as_dict(), call.arguments["prices"]), short="estimate")
def estimate_clustering_cost(
    call: Call,
    cluster_by: Key = None,
    *,
    prices: Prices = None,
    now: Now = None,
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
    return CostModel.from_options(call.table, call.options(**options), now).estimate().priced(prices)


@table_function
def estimate_recluster(
    call: Call, cluster_by: Key = None, *, where: Where = None, **options: Unpack[PlanningOptions]
) -> ReclusterEstimate:
    """Estimate what :func:`recluster` with ``final`` and the same arguments would cost and gain."""
    return recluster_estimate(call, call.options(where=where, **options))


@OPERATIONS.declare(
    lambda suggestion, _: result_text.suggestion(suggestion.as_dict()), short="suggest", needs_choice=True
)
def suggest_cluster_by(
    call: Call,
    queries: Annotated[Queries | None, Argument("SQL", is_list=True)] = None,
    **options: Unpack[PlanningOptions],
) -> Suggestion:
    """Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks
    queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the
    bytes of the first clustering and those of each day after it. Also says what cluster_by: auto would do by the known
    reads. Changes nothing.

    Args:
        queries: Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict
            are tried, and pairs of them. By default, the compiled SQL of the project that reads the table, else a
            sample of its reads, else every column with queries for one value of it.

    Raises:
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    recluster_options = call.options(**options)
    tried = queries or call.queries
    call.opened.reads.follow(recluster_options.reads)
    suggestion = suggest_key(call.opened, tried, recluster_options)
    by_reads = None if tried else suggestion
    return replace(suggestion, auto=auto_key(call.opened, recluster_options, by_reads).text("auto would choose"))


@OPERATIONS.declare(lambda reads, _: result_text.reads(reads.as_dict()), short="reads")
def clustering_reads(call: Call, cluster_by: MeasuredKey = None) -> TableReadsInformation:
    """Print the reads of tables, declared or recorded: the range of each, how often it is read, the blocks that it
    opens, and how many of them are wasted. Changes nothing.
    """
    model = call.target.options
    call.table.reads.follow(model.recluster.reads if model else None)
    return reads_information(call.table)


@OPERATIONS.declare(lambda imported, _: result_text.imported(imported.as_dict()), needs_choice=True)
def import_reads(
    call: Call,
    event_log: Annotated[arguments.Log | None, Argument("PATH")] = None,
    since: Since = None,
    logged_as: Annotated[arguments.FullName | None, Argument("NAME")] = None,
    query_log: Annotated[arguments.Log | None, Argument("FILE")] = None,
    dialect: Annotated[arguments.Dialect | None, Argument("NAME")] = None,
    *,
    queries: Annotated[arguments.QueriesByName | None, Argument(is_of_python=True)] = None,
) -> ImportedReads:
    """Record the reads of tables, which every recluster then follows: ranges and counts, never the text of a query.
    They come from the compiled SQL of this project's models, snapshots, tests and analyses (none is run; analyses
    are compiled by dbt compile alone), from the event logs of any Spark application, or from a log of the queries of
    any engine.

    Args:
        event_log: A directory of Spark's event logs, or one log, on any file system that Spark reads. By default, the
            project's compiled SQL.
        since: Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'. By
            default, 7 days ago.
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
        return record_queries(call.opened, queries)
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
