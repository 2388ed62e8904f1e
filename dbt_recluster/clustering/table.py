"""A table and everything that can be asked of its clustering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from dbt_recluster.clustering.auto_depth import recorded_depth, with_depth
from dbt_recluster.clustering.cost_model import CostEstimate, CostModel
from dbt_recluster.clustering.estimate import ReclusterEstimate, estimate_recluster
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.housekeeping import Housekeeping
from dbt_recluster.clustering.information import count_blocks_opened, table_information
from dbt_recluster.clustering.keyed_table import KeyedTable
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
from dbt_recluster.clustering.values import AUTO
from dbt_recluster.iceberg.catalog_files import CatalogFiles

_DEFAULTS = ReclusterOptions()


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
    """

    def information(self, where: str | None = None, block_rows: int | None = None) -> dict[str, Any]:
        """Return the clustering metrics (:func:`dbt_recluster.clustering.information.table_information`)."""
        return table_information(self, where, block_rows)

    def blocks_opened(self, where: str) -> int:
        """Return how many blocks a query with this predicate opens."""
        return count_blocks_opened(self, where)

    def history(self, since: datetime | None = None) -> list[HistoryEntry]:
        """Return every round of reclustering and every other commit, oldest first."""
        return table_history(self, since)

    def estimate(self, options: ReclusterOptions = _DEFAULTS) -> ReclusterEstimate:
        """Estimate what reclustering until nothing is left to do would cost and gain."""
        self.know(options.reads)
        return estimate_recluster(self, with_depth(self, options)[0])

    def estimate_cost(
        self, options: ReclusterOptions = _DEFAULTS, now: datetime | None = None
    ) -> CostEstimate:
        """Estimate the cost of the first clustering, and of each day of loads like those of the past week."""
        self.know(options.reads)
        return CostModel(self, with_depth(self, options)[0].policy, now).estimate()

    def suggest(
        self, queries: Sequence[str] | Mapping[str, str] = (), options: ReclusterOptions = _DEFAULTS
    ) -> Suggestion:
        """Suggest a cluster key for queries; ``auto`` stands for the threshold that the table records."""
        recorded = recorded_depth(self)
        if options.depth == AUTO and recorded is not None:
            options = replace(options, depth=recorded.depth)
        return suggest_key(self, queries, options)

    def report_data(self, options: ReclusterOptions = _DEFAULTS) -> ReportData:
        """Collect the data of the table's report."""
        return report_data(self, with_depth(self, options)[0])

    def recluster(self, options: ReclusterOptions = _DEFAULTS) -> ReclusterResult:
        """Merge the block sets that make the table deep, until it is well clustered or a limit is reached.

        The object then describes the table as it is afterwards.
        """
        return Recluster(self, options).run()

    def housekeeping(self, catalog: CatalogFiles | None = None) -> Housekeeping:
        """Return what cleans up after the table's commits; ``catalog`` is what a call on many tables shares."""
        return Housekeeping(self.iceberg, catalog=catalog)

    def clustering_reads(self, declared: Sequence[KnownRead] | None = None) -> ReadsInformation:
        """Return the known reads and the blocks that each opens; ``declared`` as in :meth:`know`."""
        return reads_information(self, self.know(declared))

    def is_project_known(self, queries: Mapping[str, str]) -> bool:
        """Whether :meth:`learn_from_project` has learned these queries, and not long ago."""
        return is_project_known(self, queries)

    def learn_from_project(self, queries: Mapping[str, str]) -> LearnedReads:
        """Record which ranges the queries of a project, by name, read."""
        return learn_from_project(self, queries)

    def import_event_logs(
        self, directory: str, since: datetime | None = None, logged_as: str | None = None
    ) -> LearnedReads:
        """Record which ranges the queries in Spark's event logs read."""
        return import_event_logs(self, directory, since, logged_as)

    def forget_reads(self) -> int:
        """Drop the reads that the table records; return the number of their ranges."""
        return forget_reads(self)

    def suspend(self) -> str:
        """Keep everybody from reclustering the table; return since when."""
        return suspend(self.iceberg)

    def resume(self) -> str | None:
        """Allow reclustering again; return since when it was suspended, or None if it was not."""
        return resume(self.iceberg)
