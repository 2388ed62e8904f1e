"""The public functions of dbt-recluster, for notebooks and orchestrators. They need no dbt.

They work on any Iceberg table, built by dbt or not.

```python
from dbt_recluster.maintenance import clustering_information, recluster

result = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(result.depth_before, result.depth_after, result.blocks_in, result.blocks_out)
print(clustering_information(spark, "analytics.events")["average_depth"])
```

Each takes ``spark``, a session with Iceberg's SQL extensions, and ``table``: ``schema.table``, ``catalog.schema.table``
or a :class:`ClusteredTable`, which is loaded once and reads its blocks once. ``cluster_by`` is any key to work by; None
is the table's sort order. ``final``, ``where``, ``max_bytes``, ``depth``, ``strategy``, ``max_merge_blocks`` and
``block_rows`` are options of :class:`ReclusterOptions`; None takes the option that the table records
(``recluster.option.<name>``), or the default.

Each may raise ``NotAnIcebergTableError``, if there is no such table, and ``Interrupted``, if Ctrl-C was pressed in the
main thread. Other bad input is refused before anything is written, with ``ClusterKeyError``, ``OptionError`` or
``PredicateError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from dbt_recluster.advice.cost_model import CostEstimate, CostModel, ReclusterEstimate, recluster_table
from dbt_recluster.advice.imported_reads import ImportedReads, import_event_logs, record_queries
from dbt_recluster.advice.report_data import ReportData, report_data
from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import (
    ReadsInformation,
    count_blocks_opened,
    reads_information,
    table_information,
)
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import Progress, ProgressCallback, ReclusterResult, Round
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import (
    Depth,
    parse_branch,
    parse_event_log,
    parse_logged_as,
    parse_moment,
    parse_queries_by_name,
)
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.environment import check_has_jvm
from dbt_recluster.iceberg.session.interruption import Interruptible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ClusteredTable",
    "Progress",
    "ReclusterOptions",
    "ReclusterResult",
    "Round",
    "TableMaintenance",
    "blocks_opened",
    "clustering_depth",
    "clustering_history",
    "clustering_information",
    "clustering_ratio",
    "clustering_reads",
    "clustering_report_data",
    "estimate_clustering_cost",
    "estimate_recluster",
    "forget_reads",
    "import_reads",
    "recluster",
    "resume_recluster",
    "suggest_cluster_by",
    "suspend_recluster",
    "table_maintenance",
]


@contextmanager
def _opened(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    branch: str | None = None,
) -> Iterator[ClusteredTable]:
    """Open a table for work that Ctrl-C in the main thread ends."""
    check_has_jvm(spark)
    with Interruptible(spark):
        if not isinstance(table, ClusteredTable):
            table = ClusteredTable(spark, table, cluster_by)
        elif cluster_by is not None:
            table = table.under(cluster_by)
        yield table if branch is None else table.on_branch(parse_branch("branch", branch))


def recluster(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    *,
    final: bool | None = None,
    where: str | None = None,
    max_bytes: int | str | None = None,
    depth: Depth | None = None,
    strategy: str | None = None,
    max_merge_blocks: int | None = None,
    block_rows: int | None = None,
    dry_run: bool = False,
    trigger: str = "manual",
    listener: ProgressCallback | None = None,
    reads: str | Sequence[str | Mapping[str, Any]] | None = None,
    branch: str | None = None,
) -> ReclusterResult:
    """Recluster a table: merge the block sets that make it deep, until it is well clustered.

    Args:
        cluster_by: The cluster key, which becomes the table's sort order.
        dry_run: Plan and report; change nothing.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``.
        listener: Callback for the progress: called when a round starts, about twice a second during its merge (from
            another thread), and when it is committed.
        reads: Queries that read the table, or predicates of them, or mappings of ``query`` or ``where`` and ``weight``,
            how often. Blocks are merged where their ranges of the key end. ``even`` is without any. None stands for
            the reads that the table's model declares, or else for those that the table records.
        branch: A branch to recluster in place of main, by the table's own key. ``CALL system.fast_forward`` publishes
            the result.

    Returns:
        The result; its ``rounds`` are empty if there was nothing to do.

    Raises:
        ConcurrentChangeError: Other writers were faster five times in a row.
        MergeFailedError, CommitFailedError: Blocks could not be read or written, or the catalog did not answer.
        CommitStateUnknownError: The catalog did not confirm a commit.
        CommitMismatchError: What was committed beside another writer's commit has to be rolled back.
        OrphanFilesError: Something failed, and files written before could not be deleted.
    """
    with _opened(spark, table, cluster_by, branch) as opened:
        options = opened.options(
            final=final,
            where=where,
            max_bytes=max_bytes,
            depth=depth,
            strategy=strategy,
            max_merge_blocks=max_merge_blocks,
            block_rows=block_rows,
            dry_run=dry_run,
            trigger=trigger,
            progress=listener,
            reads=reads,
        )
        return recluster_table(opened, options)


def clustering_information(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    where: str | None = None,
    block_rows: int | None = None,
    branch: str | None = None,
) -> dict[str, Any]:
    """Return the clustering metrics of a table under its own key or any other. The table is not changed.

    Args:
        where: A predicate; only blocks that may hold a matching row count.
        block_rows: Rows in a full block, for what counts as a small one.
        branch: A branch to measure in place of main.

    Returns:
        The figures by name, those that ``run-operation clustering_information`` has in JSON.
    """
    with _opened(spark, table, cluster_by, branch) as opened:
        return table_information(opened, where, block_rows)


def clustering_depth(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    where: str | None = None,
) -> float:
    """Return only the average depth of :func:`clustering_information`."""
    return float(clustering_information(spark, table, cluster_by, where)["average_depth"])


def clustering_ratio(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    where: str | None = None,
) -> float:
    """Return only the clustering ratio, 0 to 100; 100 means that no two blocks overlap."""
    return float(clustering_information(spark, table, cluster_by, where)["clustering_ratio"])


def blocks_opened(spark: SparkSession, table: str | ClusteredTable, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning."""
    with _opened(spark, table) as opened:
        return count_blocks_opened(opened, where)


def clustering_history(
    spark: SparkSession, table: str | ClusteredTable, since: datetime | None = None
) -> list[HistoryEntry]:
    """Return every round of reclustering and every other commit of a table, oldest first.

    Args:
        since: Omit older entries; they still count for the write amplification.
    """
    with _opened(spark, table) as opened:
        return table_history(opened, since)


def estimate_clustering_cost(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    *,
    depth: Depth | None = None,
    strategy: str | None = None,
    block_rows: int | None = None,
    now: datetime | None = None,
) -> CostEstimate:
    """Estimate what clustering a table costs: once, and for each day of loads like those of the past seven days.

    Args:
        now: The end of the seven days, by default now.
    """
    with _opened(spark, table, cluster_by) as opened:
        options = opened.options(depth=depth, strategy=strategy, block_rows=block_rows)
        return CostModel.of(opened, options, now).estimate()


def estimate_recluster(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    *,
    where: str | None = None,
    depth: Depth | None = None,
    strategy: str | None = None,
    block_rows: int | None = None,
) -> ReclusterEstimate:
    """Estimate what :func:`recluster` with ``final`` and the same arguments would cost and gain."""
    with _opened(spark, table, cluster_by) as opened:
        options = opened.options(where=where, depth=depth, strategy=strategy, block_rows=block_rows)
        return CostModel.of(opened, options).recluster(opened.predicate(options.where))


def suggest_cluster_by(
    spark: SparkSession,
    table: str | ClusteredTable,
    queries: Sequence[str] | Mapping[str, str] = (),
    *,
    depth: Depth | None = None,
    strategy: str | None = None,
    block_rows: int | None = None,
) -> Suggestion:
    """Suggest a cluster key: try every column, and pairs of the best; with ``queries`` only columns that they name.

    Args:
        queries: Predicates or whole queries that read the table, or a mapping of names to queries. Without any, its
            reads.

    Raises:
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    with _opened(spark, table) as opened:
        options = opened.options(depth=depth, strategy=strategy, block_rows=block_rows)
        return suggest_key(opened, queries, options)


def clustering_reads(
    spark: SparkSession, table: str | ClusteredTable, cluster_by: str | Sequence[str] | None = None
) -> ReadsInformation:
    """Return the reads of a table, and the blocks that each opens under a key."""
    with _opened(spark, table, cluster_by) as opened:
        opened.reads.follow()
        return reads_information(opened)


def import_reads(
    spark: SparkSession,
    table: str | ClusteredTable,
    event_log: str | None = None,
    *,
    queries: Mapping[str, str] | None = None,
    since: datetime | str | None = None,
    logged_as: str | None = None,
) -> ImportedReads:
    """Record with a table the ranges that are read of it, by given queries or by queries that Spark has logged.

    Args:
        event_log: A directory of Spark's event logs, or one log, on any file system that Spark reads.
        queries: Instead, SQL queries by name, of which each counts once. They replace those of an earlier call.
        since: Leave out logged queries before this time, or a period such as ``2 days``; by default a week. Queries of
            earlier imports are not counted again.
        logged_as: The table's full name in the logs, if other applications give its catalog another name.

    Raises:
        EventLogError: There are no logs.
        OptionError: Neither logs nor queries are given, or both, or one is malformed.
    """
    if (event_log is None) == (queries is None):
        raise OptionError("import_reads needs event_log or queries, and not both")
    start = None if since is None else parse_moment("since", since)
    full_name = None if logged_as is None else parse_logged_as("logged_as", logged_as)
    if queries is not None:
        texts = parse_queries_by_name("queries", queries)
        with _opened(spark, table) as opened:
            return record_queries(opened, texts)
    log = parse_event_log("event_log", event_log)
    with _opened(spark, table) as opened:
        return import_event_logs(opened, log, start, full_name)


def forget_reads(spark: SparkSession, table: str | ClusteredTable) -> int:
    """Drop the reads that a table records; return the number of their ranges."""
    with _opened(spark, table) as opened:
        return opened.reads.forget()


def suspend_recluster(
    spark: SparkSession,
    table: str | ClusteredTable,
    reason: str | None = None,
    until: str | date | None = None,
) -> str:
    """Keep everybody from reclustering a table until it is resumed, or a time; return since when it is suspended."""
    with _opened(spark, table) as opened:
        return opened.suspend(reason, until).since


def resume_recluster(spark: SparkSession, table: str | ClusteredTable) -> str | None:
    """Allow reclustering again; return since when the table was suspended, or None if it was not."""
    with _opened(spark, table) as opened:
        return opened.resume()


def clustering_report_data(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: str | Sequence[str] | None = None,
    *,
    depth: Depth | None = None,
    strategy: str | None = None,
    block_rows: int | None = None,
) -> ReportData:
    """Return the data of a table's report."""
    with _opened(spark, table, cluster_by) as opened:
        options = opened.options(depth=depth, strategy=strategy, block_rows=block_rows)
        return report_data(opened, options)


def table_maintenance(spark: SparkSession, table: str | ClusteredTable) -> TableMaintenance:
    """Return what cleans up after a table's commits."""
    with _opened(spark, table) as opened:
        return TableMaintenance(opened.iceberg)
