"""How well a table is clustered, under its own key or any other. Nothing here changes a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.predicates import parse_predicate
from dbt_recluster.iceberg.scan import file_paths
from dbt_recluster.iceberg.snapshots import current_snapshot
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.observation import observe, resolve_key
from dbt_recluster.planner import clustering_information as planner_information

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def clustering_information(
    spark: SparkSession, table: str, cluster_by: str | Sequence[str] | None = None, where: str | None = None
) -> dict[str, Any]:
    """Return the clustering metrics of a table under its own key or any other, as a dictionary.

    The fields are ``table``, ``cluster_key``, ``where``, ``snapshot_id`` and ``snapshot_at`` (UTC, both None for
    a table never written), then those of :class:`dbt_recluster.planner.ClusteringInformation`.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: Any key; None takes the table's sort order. The table is not changed.
        where: A predicate; only blocks that may hold a matching row count.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, PredicateError: Bad input.
    """
    target = IcebergTable.load(spark, table)
    key = resolve_key(target, cluster_by)
    if where is not None:
        parse_predicate(target, where)  # an empty table answers for no block, and would let anything pass
    snapshot = current_snapshot(target)
    measures = planner_information(observe(target, key, where).blocks).as_dict()
    return {
        "table": table,
        "cluster_key": str(key),
        "where": where,
        "snapshot_id": snapshot.id if snapshot else None,
        "snapshot_at": snapshot.at.isoformat() if snapshot else None,
        **measures,
    }


def clustering_depth(
    spark: SparkSession, table: str, cluster_by: str | Sequence[str] | None = None, where: str | None = None
) -> float:
    """Return the average depth alone; arguments and errors are those of :func:`clustering_information`."""
    return float(clustering_information(spark, table, cluster_by, where)["average_depth"])


def clustering_ratio(
    spark: SparkSession, table: str, cluster_by: str | Sequence[str] | None = None, where: str | None = None
) -> float:
    """Return the clustering ratio alone, 0 to 100; 100 means that no two blocks overlap."""
    return float(clustering_information(spark, table, cluster_by, where)["clustering_ratio"])


def blocks_opened(spark: SparkSession, table: str, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning.

    Raises:
        NotAnIcebergTableError, PredicateError: Bad input.
    """
    target = IcebergTable.load(spark, table)
    if target.snapshot_id is None:
        return 0
    return len(file_paths(target, target.snapshot_id, parse_predicate(target, where)))
