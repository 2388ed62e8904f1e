"""The known reads of a table, and the blocks that each opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dbt_recluster.clustering.known_reads import Read, reads_of_key
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.block_metadata import BlockMetadata
from dbt_recluster.iceberg.reads.column_ranges import ranges_as_json
from dbt_recluster.planner import ReadCosts, Reads, read_costs


@dataclass(frozen=True)
class ReadInformation:
    """A known read.

    Attributes:
        source: Where it is known from: ``declared``, ``project`` or ``event log``.
        weight: How often the query runs, relative to the others.
        columns: The least and the greatest value that it reads of each column; None where the range is open.
        blocks: Blocks that its range of the key opens, or None if it does not restrict the key.
        blocks_wasted: Those of them that it would not open in a sorted table, estimated, or None.
        bytes: Bytes of the blocks, or None.
        bytes_wasted: Bytes of those wasted, or None.
    """

    source: str
    weight: float
    columns: dict[str, list[Any]]
    blocks: int | None = None
    blocks_wasted: float | None = None
    bytes: int | None = None
    bytes_wasted: int | None = None


@dataclass(frozen=True)
class ReadsInformation:
    """All known reads, the most frequent first.

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


def reads_information(table: ClusteredTable, left_out: Sequence[str] = ()) -> ReadsInformation:
    """Return the known reads of a table, by its blocks' bounds of the key; partitions are not pruned.

    Args:
        table: The table, whose reads are those of :meth:`ClusteredTable.know`.
        left_out: The warnings of that call.
    """
    metadata = table.current_blocks().metadata
    of_key, ranges = reads_of_key(table, table.known_reads)
    opened = [] if ranges is None else _opened(metadata, of_key, ranges)
    with_ends = set(map(id, of_key))
    others = [
        ReadInformation(read.source, read.weight, ranges_as_json(read.box))
        for read in table.known_reads
        if id(read) not in with_ends
    ]
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
        list(left_out),
    )


def daily_wasted_bytes(table: ClusteredTable, metadata: BlockMetadata) -> tuple[float, float]:
    """Return the bytes that known reads waste each day.

    Args:
        table: The table, whose reads are those of :meth:`ClusteredTable.know`.
        metadata: The blocks that they open.

    Returns:
        The bytes, and the bytes for each unit of depth above 1.
    """
    of_key, ranges = reads_of_key(table, table.known_reads)
    if ranges is None or not len(metadata):
        return 0.0, 0.0
    costs, daily = _costs(metadata, ranges), np.array([read.daily for read in of_key])
    return float(daily @ costs.bytes_wasted), float(daily @ costs.bytes_per_depth)


def _costs(metadata: BlockMetadata, ranges: Reads) -> ReadCosts:
    return read_costs(
        metadata.lower, metadata.upper, metadata.bytes, ranges, metadata.partition, metadata.unbounded
    )


def _opened(metadata: BlockMetadata, reads: Sequence[Read], ranges: Reads) -> list[ReadInformation]:
    costs = _costs(metadata, ranges)
    return [
        ReadInformation(
            read.source,
            read.weight,
            ranges_as_json(read.box),
            int(costs.opened[place]),
            round(float(costs.wasted[place]), 2),
            int(costs.bytes[place]),
            round(float(costs.bytes_wasted[place])),
        )
        for place, read in enumerate(reads)
    ]
