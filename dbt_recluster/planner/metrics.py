"""Clustering metrics: how well a table is clustered, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, Segments
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.ranks import Keys, number_partitions, whole_numbers
from dbt_recluster.planner.reads import Reads, place_reads, ranked_columns

# Snowflake's and Databend's histograms show depths up to 16 one by one.
_EXACT_BUCKETS = 16


@dataclass(frozen=True)
class ClusteringInformation:
    """Clustering metrics. Touching bounds overlap, and constant blocks count like others.

    Attributes:
        total_block_count: Number of blocks.
        constant_block_count: Number of blocks whose lower and upper bounds are equal.
        average_overlaps: Mean overlap of the blocks (Snowflake, Databend).
        average_depth: Mean depth of the blocks (Snowflake, Databend).
        p95_depth: Depth that 95 % of the blocks do not exceed, by nearest rank (Databend); 0 without blocks.
        p99_depth: Depth that 99 % of the blocks do not exceed.
        max_depth: Greatest depth; 0 without blocks.
        block_depth_histogram: Number of blocks by depth: exact up to 16, then in buckets named by the next power of
            two (Snowflake, Databend).
        clustering_ratio: 0 to 100, where 100 means no overlap: 100 * (1 - mean of log10 depth) (US patent
            10,817,540, "Incremental clustering maintenance of a table", figure 5).
        relative_clustering_ratio: 0 to 1, where 1 means no overlap: 1 - sum(log d) / (c + n log(mean d)) over the
            depths of the n blocks that overlap others, beside c that overlap none (US patent 10,817,540, equation 1).
        overlap_point_depth: Mean depth of the bounds where at least two blocks meet, 1 if there are none
            (sundy-li, "Snowflake auto clustering", https://sundy-li.github.io/posts/探索snowflake-auto-clustering/).
        levels: By level, the number of its blocks, their rows (0 if unknown) and their average depth among themselves.
        total_rows: Rows in all blocks; 0 if unknown.
        total_bytes: Bytes in all blocks; 0 if unknown.
        small_block_count: Number of blocks with less than half the rows and bytes of a full one. This and the next
            three are None, and not in JSON, if the size of a full block is not given.
        fragmentation: Blocks, over the full blocks that the rows and bytes of all partitions would make.
        max_fragmentation: The same for the partition where it is greatest.
        reducible_ratio: `clustering_ratio` without the full constant blocks, which no merge narrows. The condition
            `ratio` and `min_ratio` of the test compare it.
        read_depth: Weighted mean depth at the ends of reads; None, and not in JSON, if no reads are known.
        key_read_bytes: Bytes that a read of one key opens, estimated: the most at one of a block's keys, as its depth
            is, and the mean over blocks. A sorted block is opened in one row group, others as a whole. This and the
            next are None, and not in JSON, if the size of a row group is not given.
        key_read_row_groups: Row groups that it opens, likewise.
    """

    total_block_count: int
    constant_block_count: int
    average_overlaps: float
    average_depth: float
    p95_depth: int
    p99_depth: int
    max_depth: int
    block_depth_histogram: dict[str, int]
    clustering_ratio: float
    relative_clustering_ratio: float
    overlap_point_depth: float
    levels: dict[str, dict[str, float]]
    total_rows: int
    total_bytes: int
    small_block_count: int | None = None
    fragmentation: float | None = None
    max_fragmentation: float | None = None
    reducible_ratio: float | None = None
    read_depth: float | None = None
    key_read_bytes: int | None = None
    key_read_row_groups: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, with values that JSON can hold; without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def clustering_information(
    blocks: Blocks,
    block_rows: int | None = None,
    block_bytes: int | None = None,
    row_group_bytes: int | None = None,
    is_sorted: bool = True,
) -> ClusteringInformation:
    """Measure how well blocks are clustered, in O(n log n).

    Averages are rounded to 4 decimals, half away from zero. To try another key, build blocks from that key's bounds.

    Args:
        blocks: n blocks.
        block_rows: Rows in a full block, for the metrics of small blocks. Without it they are None.
        block_bytes: Bytes in a full block, or None if unknown.
        row_group_bytes: Bytes in a row group, for the metrics of a read of one key. Without it they are None, as they
            are if the blocks' bytes are unknown.
        is_sorted: Whether new blocks, those of level 0, are sorted by the key. Merged ones are.
    """
    intervals, constant, n = blocks.intervals, blocks.constant, len(blocks)
    depth = intervals.depth()
    depths = intervals.greatest(depth)
    counts = np.bincount(depths)
    shared = depth[depth >= 2]
    return ClusteringInformation(
        total_block_count=n,
        constant_block_count=int(np.count_nonzero(constant)),
        average_overlaps=_average(int(intervals.overlaps().sum()), n),
        average_depth=_average(int(depths.sum()), n),
        p95_depth=_percentile(counts, 95),
        p99_depth=_percentile(counts, 99),
        max_depth=len(counts) - 1 if n else 0,
        block_depth_histogram=_depth_histogram(counts),
        clustering_ratio=_clustering_ratio(counts),
        relative_clustering_ratio=_relative_clustering_ratio(counts),
        overlap_point_depth=_average(int(shared.sum()), len(shared)) if len(shared) else 1.0,
        levels=_levels(blocks),
        total_rows=0 if blocks.rows is None else int(blocks.rows.sum()),
        total_bytes=int(blocks.bytes_or_0.sum()),
        read_depth=None if blocks.reads is None else rounded(read_depth(blocks)),
        **({} if block_rows is None else _small_block_metrics(blocks, FullBlock(block_rows, block_bytes))),
        **({} if row_group_bytes is None else _key_read_metrics(blocks, row_group_bytes, is_sorted)),
    )


def read_depth(blocks: Blocks) -> float:
    """Weighted mean depth at the ends of reads, touching included; 0 if no read ends within a block.

    A block over the end of a read holds rows beyond it, so the read wastes part of it; it needs the blocks between its
    ends anyway. An end that no block covers costs nothing, and does not count.

    Raises:
        ValueError: The blocks have no reads.
    """
    if blocks.reads is None:
        raise ValueError("no reads are known; pass them to Blocks.build")
    depth = blocks.cells.depth()
    weight = blocks.reads.in_cells[depth > 0]
    total = float(weight.sum())
    return float(weight @ depth[depth > 0]) / total if total > 0 else 0.0


def _levels(blocks: Blocks) -> dict[str, dict[str, float]]:
    levels, of_block = np.unique(blocks.level, return_inverse=True)
    depths = Segments.of(blocks.lower, blocks.upper + 1, of_block).covered.depths()
    rows = np.zeros(len(blocks)) if blocks.rows is None else blocks.rows
    # Sums of rows stay below 2**53, so floats hold them exactly.
    columns = (np.bincount(of_block, values).astype(np.int64).tolist() for values in (None, rows, depths))
    return {
        str(level): {"blocks": count, "rows": of_level, "average_depth": _average(depth, count)}
        for level, count, of_level, depth in zip(levels.tolist(), *columns, strict=True)
    }


def _small_block_metrics(blocks: Blocks, full_block: FullBlock) -> dict[str, Any]:
    # The blocks of each partition, and the full blocks that its rows and bytes would make.
    count = np.bincount(blocks.partition)
    full = np.maximum(count, 1)
    if blocks.rows is not None:
        # Sums of bytes stay below 2**53, so floats hold them exactly.
        rows, size = (
            np.bincount(blocks.partition, values.astype(np.float64)).astype(np.int64)
            for values in (blocks.rows, blocks.bytes_or_0)
        )
        full = full_block.count(rows, size)
    small = blocks.small(full_block)
    reducible = blocks.intervals.take(small | ~blocks.constant)
    return {
        "small_block_count": int(np.count_nonzero(small)),
        "fragmentation": _average(int(count.sum()), int(full.sum())),
        "max_fragmentation": rounded(float((count / full).max(initial=0.0))),
        "reducible_ratio": _clustering_ratio(np.bincount(reducible.depths())),
    }


def _key_read_metrics(blocks: Blocks, row_group_bytes: int, is_sorted: bool) -> dict[str, Any]:
    if blocks.bytes is None or len(blocks) == 0:
        return {}
    row_groups = np.maximum(-(-blocks.bytes // row_group_bytes), 1)
    whole = blocks.constant if is_sorted else blocks.constant | (blocks.level == 0)
    opened = np.where(whole, row_groups, 1)
    return {
        "key_read_bytes": round(_mean_of_greatest(blocks, -(-blocks.bytes * opened // row_groups))),
        "key_read_row_groups": rounded(_mean_of_greatest(blocks, opened)),
    }


def _mean_of_greatest(blocks: Blocks, values: IntArray) -> float:
    """Greatest total of the values of the blocks over one of a block's keys, the mean over n > 0 blocks."""
    started = np.bincount(blocks.lower, values, blocks.points)
    ended = np.bincount(blocks.upper + 1, values, blocks.points + 1)[:-1]
    # Sums of bytes stay below 2**53, so floats hold them exactly.
    total = np.cumsum(started - ended).astype(np.int64)
    return float(blocks.intervals.greatest(total).mean())


def rounded(value: float | Decimal) -> float:
    """Round to 4 decimals, half away from zero, as every reported average is."""
    # A difference of sums may be -0.0; adding 0.0 makes it 0.0.
    return float(Decimal(value).quantize(Decimal("0.0001"), ROUND_HALF_UP)) + 0.0


def _average(total: int, count: int) -> float:
    # A float quotient of exactly half a unit may be rounded the wrong way.
    return rounded(Decimal(total) / Decimal(count)) if count else 0.0


def _percentile(counts: IntArray, percent: int) -> int:
    """Smallest depth that at least this share of the blocks do not exceed; 0 without blocks."""
    blocks = int(counts.sum())
    return int(np.searchsorted(np.cumsum(counts), -(-blocks * percent // 100))) if blocks else 0


def _depth_histogram(counts: IntArray) -> dict[str, int]:
    histogram: Counter[str] = Counter()
    for depth in np.flatnonzero(counts).tolist():
        bucket = depth if depth <= _EXACT_BUCKETS else 1 << (depth - 1).bit_length()
        histogram[f"{bucket:05d}"] += int(counts[depth])
    return dict(histogram)


def _clustering_ratio(counts: IntArray) -> float:
    depths = np.flatnonzero(counts)
    blocks = int(counts.sum())
    if blocks <= 1:
        return 100.0
    return rounded(max(0.0, 100 * (1 - float(counts[depths] @ np.log10(depths)) / blocks)))


def _relative_clustering_ratio(counts: IntArray) -> float:
    alone, blocks, depths = int(counts[1:2].sum()), counts[2:], np.arange(2, len(counts))
    overlapping = int(blocks.sum())
    if not overlapping:
        return 1.0
    mean = float(blocks @ depths) / overlapping
    return rounded(1 - float(blocks @ np.log(depths)) / (alone + overlapping * np.log(mean)))


@dataclass(frozen=True, eq=False)
class ReadCosts:
    """The blocks and bytes that m reads open.

    Attributes:
        opened: Blocks, int64 (m,).
        wasted: Those that the read would not open in a sorted table of as many blocks, float64 (m,).
        bytes: Bytes of the blocks, int64 (m,).
        bytes_wasted: Bytes of the wasted blocks, float64 (m,).
        bytes_per_depth: Wasted bytes for each unit of depth above 1 at the ends, float64 (m,).
    """

    opened: IntArray
    wasted: FloatArray
    bytes: IntArray
    bytes_wasted: FloatArray
    bytes_per_depth: FloatArray


def read_costs(
    lower: Keys,
    upper: Keys,
    bytes: Keys,
    reads: Reads,
    partition: Keys | None = None,
    unbounded: Keys | None = None,
) -> ReadCosts:
    """Count the blocks that reads open, by their bounds.

    Of d blocks over one end of a range, a half lies within it on average, and sorted they would be d blocks one after
    the other: (d - 1) / 2 are wasted. Of d blocks over a single key all but one are.

    Args:
        lower: Least keys of n blocks, as in `Blocks.build`; so are the other arguments.
        upper: Greatest keys.
        bytes: Sizes, int (n,).
        reads: m ranges of the key. Each takes O(n).
        partition: Values of the blocks' partitions; each partition is sorted for itself.
        unbounded: Masks of upper bounds that are not known.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(lower, upper, unbounded, reads)
    placed = place_reads(columns, n)
    codes, _ = number_partitions(partition, n)
    sizes = whole_numbers("bytes", bytes, n)
    first, last = placed.blocks[:n], placed.blocks[n:]
    m = len(placed.lower)
    costs = ReadCosts(np.zeros(m, np.int64), np.zeros(m), np.zeros(m, np.int64), np.zeros(m), np.zeros(m))
    for read, (lower, upper) in enumerate(zip(placed.lower, placed.upper, strict=True)):
        touched = (last >= lower) & (first <= upper)
        costs.opened[read], costs.bytes[read] = np.count_nonzero(touched), sizes[touched].sum()
        # A block that begins or ends where the range does holds no rows beyond it.
        over_ends = [touched & (first < lower), touched & (last > upper)]
        share, over_ends = (1.0, [touched]) if lower == upper else (0.5, over_ends)
        for blocks in over_ends:
            count = np.count_nonzero(blocks)
            if count:
                partitions = len(np.unique(codes[blocks]))
                mean_size = float(sizes[blocks].mean())
                costs.wasted[read] += share * (count - partitions)
                costs.bytes_wasted[read] += share * (count - partitions) * mean_size
                costs.bytes_per_depth[read] += share * partitions * mean_size
    return costs
