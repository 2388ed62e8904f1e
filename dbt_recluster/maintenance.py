"""The public functions of dbt-recluster, for notebooks and orchestrators. They need no dbt.

They work on any Iceberg table, built by dbt or not.

```python
from dbt_recluster.maintenance import clustering_information, recluster

result = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(result.depth_before, result.depth_after, result.blocks_in, result.blocks_out)
print(clustering_information(spark, "analytics.events")["average_depth"])
```

Each takes ``spark``, a session with Iceberg's SQL extensions, and ``table``: ``schema.table``, ``catalog.schema.table``
or a :class:`ClusteredTable`, which is loaded once and reads its blocks once. ``cluster_by`` is any key to work by
(``Key``: a string or a list of strings); None is the table's sort order. The options are those of
:class:`ReclusterOptions`. None stands for the one that the table records (``recluster.option.<name>``), or else for the
default.

Each may raise ``NotAnIcebergTableError``, if there is no such table, and ``Interrupted``, if Ctrl-C was pressed in the
main thread. Other bad input is refused before anything is written, with ``ClusterKeyError``, ``OptionError`` or
``PredicateError``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from dbt_recluster.advice.cost_model import CostEstimate, CostModel, ReclusterEstimate, recluster_table
from dbt_recluster.advice.imported_reads import ImportedReads, import_event_logs, record_queries
from dbt_recluster.advice.overview import information_of
from dbt_recluster.advice.report_data import ReportData, report_data
from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering import information, values
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import ReadsInformation
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import Progress, ProgressCallback, ReclusterResult, Round
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import Depth
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.environment import check_has_jvm
from dbt_recluster.iceberg.session.jobs import Interruptible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

__all__ = [
    "ClusteredTable",
    "PlanningOptions",
    "Progress",
    "ReclusterOptions",
    "ReclusterResult",
    "ReclusteringOptions",
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

P = ParamSpec("P")
T = TypeVar("T")
Key = str | Sequence[str]


class PlanningOptions(TypedDict, total=False):
    """Options of :class:`ReclusterOptions` that every plan follows."""

    depth: Depth | None
    strategy: str | None
    block_rows: int | None


class ReclusteringOptions(PlanningOptions, total=False):
    """All options of a recluster that are given by name."""

    final: bool | None
    where: str | None
    max_merge_blocks: int | None
    max_bytes: int | str | None
    max_seconds: float | None
    reads: str | Sequence[str | Mapping[str, Any]] | None


def _with_options(options: type) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Name each option in the signature of a function, for ``help``, and refuse others before anything is read."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        given = inspect.signature(function)
        *parameters, _ = given.parameters.values()
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__
            )
            for name, hint in options.__annotations__.items()
        ]
        signature = given.replace(parameters=parameters)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            signature.bind(*args, **kwargs)
            return function(*args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


@contextmanager
def _opened(
    spark: SparkSession, table: str | ClusteredTable, cluster_by: Key | None = None, branch: str | None = None
) -> Iterator[ClusteredTable]:
    """Open a table for work that Ctrl-C in the main thread ends."""
    check_has_jvm(spark)
    with Interruptible(spark):
        if not isinstance(table, ClusteredTable):
            table = ClusteredTable(spark, table, cluster_by)
        elif cluster_by is not None:
            table = table.under(cluster_by)
        yield table if branch is None else table.on_branch(values.parse_branch("branch", branch))


@_with_options(ReclusteringOptions)
def recluster(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: Key | None = None,
    *,
    dry_run: bool = False,
    trigger: str = "manual",
    listener: ProgressCallback | None = None,
    branch: str | None = None,
    **options: Unpack[ReclusteringOptions],
) -> ReclusterResult:
    """Recluster a table: merge the block sets that make it deep, until it is well clustered.

    Args:
        cluster_by: The cluster key, which becomes the table's sort order.
        dry_run: Plan and report; change nothing.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``.
        listener: Callback for the progress: called when a round starts, about twice a second during its merge (from
            another thread), and when it is committed.
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
        given = opened.options(dry_run=dry_run, trigger=trigger, progress=listener, **options)
        return recluster_table(opened, given)


def clustering_information(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: Key | None = None,
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
        given = {"where": where, "block_rows": block_rows}
        return information_of(opened, lambda: opened.options(**given), where, block_rows)


def clustering_depth(
    spark: SparkSession, table: str | ClusteredTable, cluster_by: Key | None = None, where: str | None = None
) -> float:
    """Return only the average depth of :func:`clustering_information`."""
    with _opened(spark, table, cluster_by) as opened:
        return float(information.table_information(opened, where)["average_depth"])


def clustering_ratio(
    spark: SparkSession, table: str | ClusteredTable, cluster_by: Key | None = None, where: str | None = None
) -> float:
    """Return only the clustering ratio, 0 to 100; 100 means that no two blocks overlap."""
    with _opened(spark, table, cluster_by) as opened:
        return float(information.table_information(opened, where)["clustering_ratio"])


def blocks_opened(spark: SparkSession, table: str | ClusteredTable, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning."""
    with _opened(spark, table) as opened:
        return information.count_blocks_opened(opened, where)


def clustering_history(
    spark: SparkSession, table: str | ClusteredTable, since: datetime | None = None
) -> list[HistoryEntry]:
    """Return every round of reclustering and every other commit of a table, oldest first.

    Args:
        since: Omit older entries; they still count for the write amplification.
    """
    with _opened(spark, table) as opened:
        return table_history(opened, since)


@_with_options(PlanningOptions)
def estimate_clustering_cost(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: Key | None = None,
    *,
    now: datetime | None = None,
    **options: Unpack[PlanningOptions],
) -> CostEstimate:
    """Estimate what clustering a table costs: once, and for each day of loads like those of the past seven days.

    Args:
        now: The end of the seven days, by default now.
    """
    with _opened(spark, table, cluster_by) as opened:
        return CostModel.of(opened, opened.options(**options), now).estimate()


@_with_options(PlanningOptions)
def estimate_recluster(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: Key | None = None,
    *,
    where: str | None = None,
    **options: Unpack[PlanningOptions],
) -> ReclusterEstimate:
    """Estimate what :func:`recluster` with ``final`` and the same arguments would cost and gain."""
    with _opened(spark, table, cluster_by) as opened:
        given = opened.options(where=where, **options)
        return CostModel.of(opened, given).recluster(opened.predicate(given.where))


@_with_options(PlanningOptions)
def suggest_cluster_by(
    spark: SparkSession,
    table: str | ClusteredTable,
    queries: Sequence[str] | Mapping[str, str] = (),
    **options: Unpack[PlanningOptions],
) -> Suggestion:
    """Suggest a cluster key: try every column, and pairs of the best; with ``queries`` only columns that they name.

    Args:
        queries: Predicates or whole queries that read the table, or a mapping of names to queries. Without any, its
            reads.

    Raises:
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    with _opened(spark, table) as opened:
        return suggest_key(opened, queries, opened.options(**options))


def clustering_reads(
    spark: SparkSession, table: str | ClusteredTable, cluster_by: Key | None = None
) -> ReadsInformation:
    """Return the reads of a table, and the blocks that each opens under a key."""
    with _opened(spark, table, cluster_by) as opened:
        opened.reads.follow()
        return information.reads_information(opened)


def import_reads(
    spark: SparkSession,
    table: str | ClusteredTable,
    event_log: str | None = None,
    *,
    queries: Mapping[str, str] | None = None,
    since: datetime | str | None = None,
    logged_as: str | None = None,
) -> ImportedReads:
    """Record with a table the key ranges that given queries read, or queries that Spark has logged.

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
    start = None if since is None else values.parse_moment("since", since)
    full_name = None if logged_as is None else values.parse_logged_as("logged_as", logged_as)
    texts = None if queries is None else values.parse_queries_by_name("queries", queries)
    log = values.parse_event_log("event_log", event_log) if texts is None else ""
    with _opened(spark, table) as opened:
        if texts is not None:
            return record_queries(opened, texts)
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
    """Suspend all reclustering of a table until a time, or until it is resumed; return when the suspension began."""
    with _opened(spark, table) as opened:
        return opened.suspend(reason, until).since


def resume_recluster(spark: SparkSession, table: str | ClusteredTable) -> str | None:
    """Resume reclustering of a table; return when the suspension began, or None if there was none."""
    with _opened(spark, table) as opened:
        return opened.resume()


@_with_options(PlanningOptions)
def clustering_report_data(
    spark: SparkSession,
    table: str | ClusteredTable,
    cluster_by: Key | None = None,
    **options: Unpack[PlanningOptions],
) -> ReportData:
    """Return the data of a table's report."""
    with _opened(spark, table, cluster_by) as opened:
        return report_data(opened, opened.options(**options))


def table_maintenance(spark: SparkSession, table: str | ClusteredTable) -> TableMaintenance:
    """Return the maintenance tasks of a table: expiry, orphan files, manifests, delete files."""
    with _opened(spark, table) as opened:
        return TableMaintenance(opened.iceberg)
