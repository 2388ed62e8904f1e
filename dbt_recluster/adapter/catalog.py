"""What ``dbt docs`` shows of a clustered table beside its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_recluster.report.text import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def clustering_statistics(spark: SparkSession, table: str) -> dict[str, Any]:
    """Return the statistics of a clustered table as dbt's catalog takes them, four entries for each.

    Raises:
        NotAnIcebergTableError, ClusterKeyError: The table has no cluster key to measure by.
    """
    from dbt_recluster.history import clustering_history
    from dbt_recluster.information import clustering_information

    found = clustering_information(spark, table)
    rounds = [entry for entry in clustering_history(spark, table) if entry.kind == "recluster"]
    last = f"{rounds[-1].at:%Y-%m-%d %H:%M} UTC" if rounds else "never"
    statistics = (
        ("cluster_key", "Cluster key", found["cluster_key"], "What the table's blocks are clustered by."),
        ("block_count", "Blocks", found["total_block_count"], "Data files of the table."),
        ("block_bytes", "Size of all blocks", size(found["total_bytes"]), "Without older snapshots."),
        (
            "average_depth",
            "Average depth",
            found["average_depth"],
            "How many blocks a query for one key opens.",
        ),
        (
            "clustering_ratio",
            "Clustering ratio",
            found["clustering_ratio"],
            "100 when no two blocks overlap.",
        ),
        ("last_recluster", "Last recluster", last, "The last round that the table's snapshots hold."),
    )
    entries: dict[str, Any] = {}
    for name, label, value, description in statistics:
        entries[f"stats:{name}:label"] = label
        # Text: dbt's catalog has one type for a column of values, over all tables of a schema.
        entries[f"stats:{name}:value"] = f"{value:g}" if isinstance(value, float) else str(value)
        entries[f"stats:{name}:description"] = description
        entries[f"stats:{name}:include"] = True
    return entries
