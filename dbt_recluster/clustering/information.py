"""How well a table is clustered, by its own key or any other."""

from __future__ import annotations

from typing import Any

from dbt_recluster.clustering.curve_blocks import curve_columns, curve_over
from dbt_recluster.clustering.foreign_rewrites import foreign_rewrites
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.reads.reads_information import reads_information
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.metadata.scan import file_paths
from dbt_recluster.planner import curve_information
from dbt_recluster.planner.curve_information import curve_groups


def table_information(
    table: ClusteredTable, where: str | None = None, block_rows: int | None = None
) -> dict[str, Any]:
    """Return the clustering metrics of a table.

    Args:
        table: The table.
        where: A predicate; only blocks that may hold a matching row count.
        block_rows: Rows in a full block, for what counts as a small one; None is the option that the table records.

    Returns:
        table: The table's identifier.
        cluster_key: The key that it is measured by, as users write it.
        where: The predicate, or None.
        suspended: Since when reclustering is suspended, or None.
        rows_undone: Rows of blocks that reclustering had written, and that other writers' rewrites merged, as far back
            as snapshots are kept.
        snapshot_id: The snapshot that is measured; None for a table that was never written.
        snapshot_at: When it was committed, ISO 8601 in UTC, or None.
        share_wasted: As in ``clustering_reads``; only where reads of the key are known and there is no ``where``.
        curve: Only under a key with a curve, what reads of its columns open, by the names of the columns. The size of
            a full block decides how many there are in the sorted table.

        And the fields of :class:`dbt_recluster.planner.ClusteringInformation`.

    Raises:
        ClusterKeyError, PredicateError: Bad input.
        OptionError: ``block_rows``, or the option that the table records, is not a number of rows.
    """
    option = RECLUSTER_OPTIONS["block_rows"]
    if block_rows is None:
        block_rows = option.recorded(table.iceberg.properties)
    block_rows = option.read("block_rows", block_rows)
    blocks = table.blocks(where)
    measured = table.measure(blocks.blocks, block_rows).as_dict()
    if table.key.curve:
        measured["curve"] = _on_curve(table, blocks.metadata.take(blocks.eligible), block_rows)
    snapshot = table.iceberg.current_snapshot()
    if where is None and (share := reads_information(table).share_wasted) is not None:
        measured["share_wasted"] = share
    return {
        "table": table.name,
        "cluster_key": str(table.key),
        "where": where,
        "suspended": table.suspended,
        "rows_undone": sum(rewrite.rows for rewrite in foreign_rewrites(table)),
        "snapshot_id": snapshot.id if snapshot else None,
        "snapshot_at": snapshot.at.isoformat() if snapshot else None,
        **measured,
    }


def _on_curve(table: ClusteredTable, blocks: BlockMetadata, block_rows: int) -> dict[str, Any]:
    """Return what reads of the columns of a curve open, now and in the table sorted at once."""
    key, rows = table.key, int(blocks.rows.sum())
    curve = curve_over(table.curve, key, blocks)
    full = (
        min(block_rows, rows * table.block_bytes // max(1, int(blocks.bytes.sum()))) if rows else block_rows
    )
    group = curve_groups(blocks.partition, blocks.lower[: len(key.leading)], blocks.rows, max(1, full))
    information = curve_information(
        curve, *curve_columns(key, blocks), blocks.rows, max(1, full), group
    ).as_dict()
    by_column = {
        name: dict(zip(map(str, key.on_curve), information[name], strict=True))
        for name in ("point_blocks", "sorted_point_blocks")
    }
    return {**information, **by_column}


def count_blocks_opened(table: ClusteredTable, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning.

    Raises:
        PredicateError: The predicate cannot choose blocks.
    """
    predicate = table.predicate(where)
    snapshot_id = table.iceberg.snapshot_id
    return 0 if snapshot_id is None else len(file_paths(table.iceberg, snapshot_id, predicate.expression))
