"""The blocks that each read of a table opens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dbt_recluster.clustering.curve_blocks import curve_over
from dbt_recluster.clustering.reads.recorded import ReadRange
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.planner import ReadCosts, read_costs
from dbt_recluster.planner.curve_information import Bounds, curve_groups, curve_read_costs


@dataclass(frozen=True)
class ReadInformation:
    """A read.

    Attributes:
        source: ``declared`` or ``recorded``.
        imported_from: Where a recorded read was imported from, ``project`` or ``event log``; None for a declared one.
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
class ReadsInformation:
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

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, those of reads too."""
        return asdict(self)


def reads_information(table: ClusteredTable) -> ReadsInformation:
    """Return the reads that a table follows, by its blocks' bounds of the key; partitions are not pruned.

    Under a key with a curve, a read opens the blocks whose bounds of every column of the key meet its range.
    """
    metadata, restricting = table.current_blocks().metadata, table.reads.restricting(table.key)
    opened = _opened(table, metadata)
    of_key = set(map(id, restricting.ranges)) if opened else set()
    others = [_information(read) for read in table.reads.ranges if id(read) not in of_key]
    wasted = sum(read.weight * (read.blocks_wasted or 0.0) for read in opened)
    total = sum(read.weight * (read.blocks or 0) for read in opened)
    possible = sum(read.weight for read in opened) * len(metadata)
    return ReadsInformation(
        table.name,
        str(table.key),
        len(metadata),
        round(wasted / total, 4) if total else None,
        round(1 - total / possible, 4) if possible else None,
        sorted([*opened, *others], key=lambda read: -read.weight),
        list(table.reads.left_out),
    )


def daily_wasted_bytes(table: ClusteredTable, metadata: BlockMetadata) -> tuple[float, float]:
    """Return the bytes that the reads of a table waste each day.

    Args:
        table: The table.
        metadata: The blocks that they open.

    Returns:
        The bytes, and the bytes for each unit of depth above 1; under a key with a curve, those that they open in a
        table sorted at once.
    """
    costs, recorded = _costs(table, metadata), table.reads.recorded
    if costs is None or not len(metadata):
        return 0.0, 0.0
    daily = np.array([recorded.daily(read) for read in table.reads.restricting(table.key).ranges])
    return float(daily @ costs.bytes_wasted), float(daily @ costs.bytes_per_depth)


def _costs(table: ClusteredTable, metadata: BlockMetadata) -> ReadCosts | None:
    """Return what the reads that restrict the key open, in their order; None if there are none."""
    key, reads = table.key, table.reads.restricting(table.key).reads
    if reads is None:
        return None
    if not key.curve:
        return read_costs(
            metadata.lower, metadata.upper, metadata.bytes, reads, metadata.partition, metadata.unbounded
        )
    if not len(metadata):
        return None
    curve = curve_over(table.curve, key, metadata)
    block_rows = metadata.rows.mean()
    group = curve_groups(metadata.partition, metadata.lower[: len(key.leading)], metadata.rows, block_rows)
    bounds = Bounds(metadata.lower, metadata.upper, metadata.unbounded)
    return curve_read_costs(curve, bounds, metadata.rows, metadata.bytes, reads, group)


def _opened(table: ClusteredTable, metadata: BlockMetadata) -> list[ReadInformation]:
    costs = _costs(table, metadata)
    if costs is None:
        return []
    return [
        _information(
            read,
            blocks=int(costs.opened[place]),
            blocks_wasted=round(float(costs.wasted[place]), 2),
            bytes=int(costs.bytes[place]),
            bytes_wasted=round(float(costs.bytes_wasted[place])),
        )
        for place, read in enumerate(table.reads.restricting(table.key).ranges)
    ]


def _information(read: ReadRange, **opened: Any) -> ReadInformation:
    columns = {column: list(ends) for column, ends in read.columns.items()}
    return ReadInformation(read.source, read.imported_from, read.weight, columns, **opened)
