"""Clustering metrics of a table under any key, and the blocks that each of its reads opens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dbt_recluster.clustering.history import foreign_rewrites
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.planner import ReadCosts, curve_information, read_costs
from dbt_recluster.planner.metrics import curve_read_costs


def table_information(table: ClusteredTable, where: str | None = None, block_rows: int | None = None) -> dict[str, Any]:
    """Return the clustering metrics of a table.

    Args:
        table: The table.
        where: A predicate; only blocks that may hold a matching row count.
        block_rows: Rows in a full block, for what counts as a small one; None is the option that the table records.

    Returns:
        table: The table's identifier.
        branch: The branch, or None for main.
        cluster_key: The key that it is measured by, as users write it.
        where: The predicate, or None.
        suspended: Since when reclustering is suspended, or None.
        suspension: Since when, by whom, until when and the reason, as far as recorded; or None.
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
        OptionError: The option ``block_rows`` that the table records is not a number of rows.
    """
    blocks, block_rows, measured = _measured(table, where, block_rows)
    if table.key.curve:
        measured["curve"] = _on_curve(table, blocks.metadata.take(blocks.eligible), block_rows)
    snapshot = table.iceberg.current_snapshot()
    if where is None and (share := reads_information(table).share_wasted) is not None:
        measured["share_wasted"] = share
    return {
        **measured,
        "branch": table.iceberg.branch,
        "where": where,
        "rows_undone": sum(rewrite.rows for rewrite in foreign_rewrites(table)),
        "snapshot_id": snapshot.id if snapshot else None,
        "snapshot_at": snapshot.at.isoformat() if snapshot else None,
    }


def table_figures(table: ClusteredTable, where: str | None = None, block_rows: int | None = None) -> dict[str, Any]:
    """Return the part of :func:`table_information` that reads neither history nor reads."""
    return _measured(table, where, block_rows)[2]


def _measured(
    table: ClusteredTable, where: str | None, block_rows: int | None
) -> tuple[SnapshotBlocks, int, dict[str, Any]]:
    rows: int = block_rows or RECLUSTER_OPTIONS["block_rows"].of_table(table.iceberg.properties)
    blocks, suspension = table.blocks(table.predicate(where)), table.suspension
    facts = {"table": table.name, "cluster_key": str(table.key), "suspended": table.suspended}
    measured = table.measure(blocks.blocks, rows).as_dict()
    return blocks, rows, {**facts, "suspension": suspension and asdict(suspension), **measured}


def _on_curve(table: ClusteredTable, blocks: BlockMetadata, block_rows: int) -> dict[str, Any]:
    """Return the blocks that reads of the columns of a curve open, now and in a sorted table."""
    key, rows = table.key, int(blocks.rows.sum())
    if rows:
        block_rows = min(block_rows, rows * table.block_bytes // max(1, int(blocks.bytes.sum())))
    information = curve_information(table.key_curve.blocks(blocks), max(1, block_rows)).as_dict()
    for name in ("point_blocks", "sorted_point_blocks"):
        information[name] = dict(zip(map(str, key.on_curve), information[name], strict=True))
    return information


@dataclass(frozen=True)
class ReadInformation(Result):
    """A read.

    Attributes:
        source: ``declared`` or ``recorded``.
        imported_from: Where a recorded read comes from, ``project``, ``event log`` or ``query log``; else None.
        weight: How often the query runs, relative to the others.
        columns: The least and the greatest value that it reads of each column; None where the range is open.
        blocks: Blocks that its range of the key opens, or None if it does not restrict the key.
        blocks_wasted: Those of them that it would not open in a sorted table, estimated, or None.
        bytes: Bytes of the blocks, or None.
        bytes_wasted: Bytes of those wasted, or None.
    """

    source: str
    imported_from: str | None
    weight: float
    columns: dict[str, list[Any]]
    blocks: int | None = None
    blocks_wasted: float | None = None
    bytes: int | None = None
    bytes_wasted: int | None = None


@dataclass(frozen=True)
class TableReadsInformation(Result):
    """All reads of a table, the most frequent first.

    Attributes:
        table: The table.
        cluster_key: Its key.
        blocks: Its blocks.
        share_wasted: Share of the blocks that reads waste, by their weight; None if no read restricts the key.
        share_skipped: Share of the table's blocks that reads skip, by their weight; None if no read restricts the key.
        reads: The reads.
        left_out: Declared reads that cannot be understood, a line for each.
    """

    table: str
    cluster_key: str
    blocks: int
    share_wasted: float | None
    share_skipped: float | None
    reads: list[ReadInformation] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def reads_information(table: ClusteredTable) -> TableReadsInformation:
    """Return the reads that a table follows, and the blocks that they open, without partition pruning."""
    metadata, figures = table.current_blocks().metadata, dict[int, Any]()
    if (costs := read_costs_of(table, metadata)) is not None:
        columns = (costs.opened, costs.wasted.round(2), costs.bytes, np.rint(costs.bytes_wasted).astype(np.int64))
        of_key = map(id, table.reads.for_key(table.key).ranges)
        figures = dict(zip(of_key, zip(*(column.tolist() for column in columns), strict=True), strict=True))
    reads = []
    for read in table.reads.ranges:
        ends = {column: list(of_column) for column, of_column in read.columns.items()}
        read_figures, source = figures.get(id(read), ()), "declared" if read.imported_from is None else "recorded"
        reads.append(ReadInformation(source, read.imported_from, read.weight, ends, *read_figures))
    opened = [read for read in reads if read.blocks is not None]
    wasted = sum(read.weight * (read.blocks_wasted or 0.0) for read in opened)
    total = sum(read.weight * (read.blocks or 0) for read in opened)
    possible = sum(read.weight for read in opened) * len(metadata)
    return TableReadsInformation(
        table.name,
        str(table.key),
        len(metadata),
        round(wasted / total, 4) if total else None,
        round(1 - total / possible, 4) if possible else None,
        sorted(reads, key=lambda read: (-read.weight, read.blocks is None)),
        list(table.reads.left_out),
    )


def read_costs_of(table: ClusteredTable, metadata: BlockMetadata) -> ReadCosts | None:
    """Return the costs of each read that restricts the key, or None if none does."""
    key, blocks, reads = table.key, metadata, table.reads.for_key(table.key).reads
    if reads is None or (key.curve and not len(blocks)):
        return None
    if key.curve:
        return curve_read_costs(table.key_curve.blocks(blocks), blocks.bytes, reads)
    return read_costs(blocks.lower, blocks.upper, blocks.bytes, reads, blocks.partition, blocks.unbounded)
