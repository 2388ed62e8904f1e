"""A table and everything that can be asked of its clustering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dbt_recluster.clustering.auto_depth import recorded_depth, with_depth
from dbt_recluster.clustering.cost_model import CostEstimate, CostModel
from dbt_recluster.clustering.estimate import ReclusterEstimate, estimate_recluster
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import count_blocks_opened, table_information
from dbt_recluster.clustering.keyed_table import ClusterBy, KeyedTable
from dbt_recluster.clustering.known_reads import KnownRead
from dbt_recluster.clustering.learned_reads import (
    LearnedReads,
    forget_reads,
    import_event_logs,
    is_project_known,
    learn_from_project,
)
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.reads_information import ReadsInformation, reads_information
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.report_data import ReportData, report_data
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.suspension import resume, suspend
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import AUTO
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.iceberg.environment import check_has_jvm
from dbt_recluster.iceberg.session.interruption import Interruptible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")
Table = TypeVar("Table", bound=KeyedTable)

_DEFAULTS = ReclusterOptions()


def _interruptible(verb: Callable[Concatenate[Table, P], T]) -> Callable[Concatenate[Table, P], T]:
    """Let Ctrl-C end a verb of a table (:class:`Interruptible`)."""

    @wraps(verb)
    def run(self: Table, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with Interruptible(self.iceberg.spark):
            return verb(self, *args, **kwargs)

    return run


class ClusteredTable(KeyedTable):
    """An Iceberg table, its cluster key, and what can be done with them.

    ```python
    table = ClusteredTable(spark, "analytics.events")
    print(table.information()["average_depth"])
    table.recluster(ReclusterOptions(final=True))
    ```

    Args:
        spark: A session with Iceberg's extensions.
        name: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: The cluster key; None is the table's sort order.

    Raises:
        NotAnIcebergTableError: There is no such table.
        Interrupted: Ctrl-C was pressed in the main thread. Every verb may raise it.
    """

    def __init__(self, spark: SparkSession, name: str, cluster_by: ClusterBy | None = None) -> None:
        check_has_jvm(spark)
        with Interruptible(spark):
            super().__init__(spark, name, cluster_by)

    @_interruptible
    def information(self, where: str | None = None, block_rows: int | None = None) -> dict[str, Any]:
        """Return the clustering metrics (:func:`dbt_recluster.clustering.information.table_information`)."""
        return table_information(self, where, block_rows)

    @_interruptible
    def blocks_opened(self, where: str) -> int:
        """Return how many blocks a query with this predicate opens."""
        return count_blocks_opened(self, where)

    @_interruptible
    def history(self, since: datetime | None = None) -> list[HistoryEntry]:
        """Return every round of reclustering and every other commit, oldest first."""
        return table_history(self, since)

    @_interruptible
    def estimate(self, options: ReclusterOptions = _DEFAULTS) -> ReclusterEstimate:
        """Estimate what reclustering until nothing is left to do would cost and gain."""
        self.know(options.reads)
        return estimate_recluster(self, with_depth(self, options)[0])

    @_interruptible
    def estimate_cost(
        self, options: ReclusterOptions = _DEFAULTS, now: datetime | None = None
    ) -> CostEstimate:
        """Estimate the cost of the first clustering, and of each day of loads like those of the past week."""
        self.know(options.reads)
        return CostModel(self, with_depth(self, options)[0].policy, now).estimate()

    @_interruptible
    def suggest(
        self, queries: Sequence[str] | Mapping[str, str] = (), options: ReclusterOptions = _DEFAULTS
    ) -> Suggestion:
        """Suggest a cluster key for queries; ``auto`` stands for the threshold that the table records."""
        recorded = recorded_depth(self)
        if options.depth == AUTO and recorded is not None:
            options = replace(options, depth=recorded.depth)
        return suggest_key(self, queries, options)

    @_interruptible
    def report_data(self, options: ReclusterOptions = _DEFAULTS) -> ReportData:
        """Collect the data of the table's report."""
        return report_data(self, with_depth(self, options)[0])

    @_interruptible
    def recluster(self, options: ReclusterOptions = _DEFAULTS) -> ReclusterResult:
        """Merge the block sets that make the table deep, until it is well clustered or a limit is reached.

        The object then describes the table as it is afterwards.
        """
        return Recluster(self, options).run()

    def maintenance(self, catalog: CatalogFiles | None = None) -> TableMaintenance:
        """Return what cleans up after the table's commits; ``catalog`` is what a call on many tables shares."""
        return TableMaintenance(self.iceberg, catalog=catalog)

    @_interruptible
    def clustering_reads(self, declared: Sequence[KnownRead] | None = None) -> ReadsInformation:
        """Return the known reads and the blocks that each opens; ``declared`` as in :meth:`know`."""
        return reads_information(self, self.know(declared))

    @_interruptible
    def is_project_known(self, queries: Mapping[str, str]) -> bool:
        """Whether :meth:`learn_from_project` has learned these queries, and not long ago."""
        return is_project_known(self, queries)

    @_interruptible
    def learn_from_project(self, queries: Mapping[str, str]) -> LearnedReads:
        """Record which ranges the queries of a project, by name, read."""
        return learn_from_project(self, queries)

    @_interruptible
    def import_event_logs(
        self, directory: str, since: datetime | None = None, logged_as: str | None = None
    ) -> LearnedReads:
        """Record which ranges the queries in Spark's event logs read."""
        return import_event_logs(self, directory, since, logged_as)

    @_interruptible
    def forget_reads(self) -> int:
        """Drop the reads that the table records; return the number of their ranges."""
        return forget_reads(self)

    @_interruptible
    def suspend(self) -> str:
        """Keep everybody from reclustering the table; return since when."""
        return suspend(self.iceberg)

    @_interruptible
    def resume(self) -> str | None:
        """Allow reclustering again; return since when it was suspended, or None if it was not."""
        return resume(self.iceberg)
