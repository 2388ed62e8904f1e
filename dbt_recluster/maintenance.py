"""The public functions of dbt-recluster, for notebooks and orchestrators. They need no dbt.

They work on any Iceberg table, built by dbt or not, and are the operations of dbt and of the command.

```python
from dbt_recluster.maintenance import clustering_information, recluster

result = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(result.depth_before, result.depth_after, result.blocks_in, result.blocks_out)
print(clustering_information(spark, "analytics.events")["average_depth"])
```

Each takes ``spark``, a session with Iceberg's SQL extensions, and ``table``: ``schema.table``, ``catalog.schema.table``
or a :class:`ClusteredTable`, which is loaded once and reads its blocks once. Without ``cluster_by`` they go by the
table's sort order, and without an option by the one that the table records (``recluster.option.<name>``).

Each may raise ``NotAnIcebergTableError``, if there is no such table, and ``Interrupted``, if Ctrl-C was pressed in the
main thread. Other bad input is refused before anything is written, with ``ClusterKeyError``, ``OptionError`` or
``PredicateError``.
"""

from dbt_recluster.clustering.options import ReclusterOptions as ReclusterOptions
from dbt_recluster.clustering.result import (
    Progress as Progress,
    ReclusterResult as ReclusterResult,
    Round as Round,
)
from dbt_recluster.clustering.table import ClusteredTable as ClusteredTable
from dbt_recluster.operations.inspection import (
    blocks_opened as blocks_opened,
    clustering_depth as clustering_depth,
    clustering_history as clustering_history,
    clustering_information as clustering_information,
    clustering_overview as clustering_overview,
    clustering_ratio as clustering_ratio,
    clustering_reads as clustering_reads,
    clustering_report as clustering_report,
    estimate_clustering_cost as estimate_clustering_cost,
    estimate_recluster as estimate_recluster,
    forget_reads as forget_reads,
    import_reads as import_reads,
    suggest_cluster_by as suggest_cluster_by,
)
from dbt_recluster.operations.table_changes import (
    expire_snapshots as expire_snapshots,
    maintain as maintain,
    recluster as recluster,
    remove_clustering as remove_clustering,
    remove_orphan_files as remove_orphan_files,
    resume_recluster as resume_recluster,
    rewrite_manifests as rewrite_manifests,
    rewrite_position_delete_files as rewrite_position_delete_files,
    suspend_recluster as suspend_recluster,
)
