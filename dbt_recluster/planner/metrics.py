"""Clustering metrics: how well a table is clustered, in numbers, and the blocks that reads of a curve's columns open.

The depth of intervals along a curve says how much overlap merges can remove, and not how many blocks a filter on one
column opens. Both figures of a curve are estimates by bounds and rows of blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.key.box_tree import cut_into_boxes, hulls, points_in_boxes, tile_sides
from dbt_recluster.key.types import value_type
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, Segments
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.box_sets import MOST_BLOCKS_OF_BOXES
from dbt_recluster.planner.curves import CurveBlocks
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
            is, and the mean over blocks. A sorted block is opened in one row group, others as a whole. None, and
            not in JSON, if the size of a row group is not given.
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
    levels: dict[str, dict[str, float]]
    total_rows: int
    total_bytes: int
    small_block_count: int | None = None
    fragmentation: float | None = None
    max_fragmentation: float | None = None
    reducible_ratio: float | None = None
    read_depth: float | None = None
    key_read_bytes: int | None = None

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
        row_group_bytes: Bytes in a row group, for `key_read_bytes`. Without it or the blocks' bytes that is None.
        is_sorted: Whether new blocks, those of level 0, are sorted by the key. Merged ones are.
    """
    intervals, constant, n = blocks.intervals, blocks.constant, len(blocks)
    depths = intervals.depths()
    counts = np.bincount(depths)
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
        levels=_levels(blocks),
        total_rows=0 if blocks.rows is None else int(blocks.rows.sum()),
        total_bytes=int(blocks.bytes_or_0.sum()),
        read_depth=None if blocks.reads is None else rounded(read_depth(blocks)),
        **({} if block_rows is None else _small_block_metrics(blocks, FullBlock(block_rows, block_bytes))),
        key_read_bytes=None if row_group_bytes is None else _key_read_bytes(blocks, row_group_bytes, is_sorted),
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
    depths = Segments.from_intervals(blocks.lower, blocks.upper + 1, of_block).covered.depths()
    rows = np.zeros(len(blocks)) if blocks.rows is None else blocks.rows
    # Sums of rows, and those of bytes below, are less than 2**53, so floats hold them exactly.
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


def _key_read_bytes(blocks: Blocks, row_group_bytes: int, is_sorted: bool) -> int | None:
    if blocks.bytes is None or len(blocks) == 0:
        return None
    row_groups = np.maximum(-(-blocks.bytes // row_group_bytes), 1)
    whole = blocks.constant if is_sorted else blocks.constant | (blocks.level == 0)
    opened = np.where(whole, row_groups, 1)
    size = -(-blocks.bytes * opened // row_groups)
    started = np.bincount(blocks.lower, size, blocks.points)
    ended = np.bincount(blocks.upper + 1, size, blocks.points + 1)[:-1]
    total = np.cumsum(started - ended).astype(np.int64)
    return round(float(blocks.intervals.greatest(total).mean()))


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


@dataclass(frozen=True, eq=False)
class ReadCosts:
    """The blocks and bytes that m reads open."""

    opened: IntArray  # blocks, int64 (m,)
    wasted: FloatArray  # those that the read would not open in a sorted table of as many blocks, float64 (m,)
    bytes: IntArray  # of the blocks, int64 (m,)
    bytes_wasted: FloatArray  # of the wasted blocks, float64 (m,)
    bytes_per_depth: FloatArray  # wasted bytes for each unit of depth above 1 at the ends, float64 (m,)


def read_costs(
    lower: Keys, upper: Keys, bytes: Keys, reads: Reads, partition: Keys | None = None, unbounded: Keys | None = None
) -> ReadCosts:
    """Count the blocks that reads open, by their bounds. Arguments and errors are those of `Blocks.build`.

    Of d blocks over one end of a range, a half lies within it on average, and sorted they would be d blocks one after
    the other: (d - 1) / 2 are wasted. Of d blocks over a single key all but one are. Each partition is sorted
    separately. A read takes O(n).
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


# Not tuned: points that stand for the rows of a block in an estimate; reads of boxes, and their share of each column.
_ESTIMATE_POINTS = 12
_QUERIES, _SIDE = 256, 0.01

# Least and greatest values of n ranges of each column, int64 (columns, n) each.
Ranges = Sequence[IntArray]


@dataclass(frozen=True)
class CurveInformation:
    """Blocks that reads of a table on a curve open, in the mean over places where rows are.

    Attributes:
        total_block_count: Number of blocks.
        point_blocks: Blocks that a read of one value of each column opens.
        box_blocks: Blocks that a read of 1 % of the rows of every column opens.
        sorted_block_count: Number of blocks if the whole table were sorted along the curve at once.
        sorted_point_blocks: What a read of one value of each column would open then.
        sorted_box_blocks: What a read of 1 % of the rows of every column would.
    """

    total_block_count: int
    point_blocks: tuple[float, ...]
    box_blocks: float
    sorted_block_count: int
    sorted_point_blocks: tuple[float, ...]
    sorted_box_blocks: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, with values that JSON can hold."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def curve_information(blocks: CurveBlocks, block_rows: int) -> CurveInformation:
    """Estimate the blocks that reads of a table on a curve open; averages are rounded to 4 decimals.

    Args:
        blocks: n blocks.
        block_rows: Rows in a full block. No block of the sorted table would have rows of two partitions.
    """
    columns = len(blocks.curve.boundaries)
    if len(blocks.rows) == 0:
        none = (0.0,) * columns
        return CurveInformation(0, none, 0.0, 0, none, 0.0)
    at_once, _ = _sorted_at_once(blocks, blocks.groups(block_rows), block_rows)
    now, reads = (blocks.boxes.lower, blocks.boxes.upper), _sample_reads(blocks)
    return CurveInformation(
        len(blocks.rows),
        _point_blocks(now, blocks.curve.parts),
        _mean_opened(now, reads),
        at_once[0].shape[1],
        _point_blocks(at_once, blocks.curve.parts),
        _mean_opened(at_once, reads),
    )


def _point_blocks(boxes: Ranges, parts: int) -> tuple[float, ...]:
    """Mean blocks over a value of each column: parts have equal shares of the rows."""
    lower, upper = boxes
    return tuple(rounded(float(total / parts)) for total in (upper - lower + 1).sum(axis=1))


def _sample_reads(blocks: CurveBlocks) -> Ranges:
    """Ranks of reads of `_SIDE` of each column around rows."""
    total = np.cumsum(np.maximum(blocks.rows, 1))
    block = np.searchsorted(total, (np.arange(_QUERIES) + 0.5) / _QUERIES * total[-1])
    lower, upper = (ends.T[block] for ends in (blocks.boxes.lower, blocks.boxes.upper))
    centre = points_in_boxes(lower, lower, upper, np.ones(_QUERIES, np.int64), 1).rank.T
    half = int(_SIDE / 2 * blocks.curve.parts)
    return centre - half, centre + half


def _sorted_at_once(blocks: CurveBlocks, group: IntArray, block_rows: float) -> tuple[Ranges, IntArray]:
    """Ranks that each block would have if each group were merged at once, and how many blocks each group has."""
    lower, upper = (np.ascontiguousarray(ends.T) for ends in (blocks.boxes.lower, blocks.boxes.upper))
    parts, order = blocks.curve.parts, np.argsort(group, kind="stable")
    boxes: list[tuple[IntArray, IntArray]] = []
    for member in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        rows = np.maximum(blocks.rows[member], 1)
        count = float(np.ceil(rows.sum() / block_rows - 1e-9))
        (least,), (greatest,) = hulls(np.zeros(len(member), np.int64), lower[member], upper[member])
        width = (greatest - least + 1) / parts
        side = tile_sides(np.array([count]), width[None])[0]
        if max(count, len(member)) > MOST_BLOCKS_OF_BOXES:
            boxes.append(_tiles(least, greatest, np.maximum(np.rint(width / side), 1).astype(np.int64)))
            continue
        points = points_in_boxes(lower[member], blocks.rank[member], upper[member], rows, _ESTIMATE_POINTS)
        tree = cut_into_boxes(points, block_rows, parts, float(np.minimum(width, side).sum()))
        boxes.append((tree.lower, tree.upper))
    least, greatest = (np.ascontiguousarray(np.concatenate(ends).T) for ends in zip(*boxes, strict=True))
    return (least, greatest), np.array([len(low) for low, _ in boxes])


def _tiles(lower: IntArray, upper: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Cut a box, (columns,) each, into ``counts`` equal parts of each column: int64 (tiles, columns) each."""
    number: IntArray = np.stack(np.unravel_index(np.arange(counts.prod()), counts), axis=1).astype(np.int64)
    size = upper - lower + 1
    first = lower + np.floor_divide(number * size, counts, dtype=np.int64)
    last = lower + np.floor_divide((number + 1) * size, counts, dtype=np.int64) - 1
    return first, np.maximum(last, first)


def _opened(blocks: Ranges, reads: Ranges, read: int) -> BoolArray:
    """Blocks whose box intersects the read in every column: bool (n,)."""
    (lower, upper), (least, greatest) = blocks, reads
    opened: BoolArray = np.logical_and.reduce((lower <= greatest[:, [read]]) & (upper >= least[:, [read]]))
    return opened


def _mean_opened(blocks: Ranges, reads: Ranges) -> float:
    """Mean number of blocks opened by a read."""
    count = reads[0].shape[1]
    return rounded(sum(np.count_nonzero(_opened(blocks, reads, read)) for read in range(count)) / count)


def curve_read_costs(blocks: CurveBlocks, bytes: IntArray, reads: Reads) -> ReadCosts:
    """Count the blocks, at least one and int64 (n,) bytes each, opened by reads that have a range in every column.

    A read wastes the blocks beyond those that it would open in a table of as many blocks, sorted at once. That table is
    estimated from the boxes of the blocks; `bytes_per_depth` has the bytes that each read opens in it.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(blocks.lower, blocks.upper, blocks.unbounded, reads)
    placed = [place_reads([column], n) for column in columns]
    now = [np.stack([column.blocks[ends] for column in placed]) for ends in (slice(n), slice(n, None))]
    ranges = np.stack([column.lower for column in placed]), np.stack([column.upper for column in placed])
    group, leading = blocks.groups(blocks.rows.mean()), blocks.leading
    block_rows = -(-int(np.maximum(blocks.rows, 1).sum()) // n)
    sorted_blocks, count = _sorted_at_once(blocks, group, block_rows)
    # A block of a group may have any of its values of the leading columns.
    of_groups = zip(hulls(group, *(ends[:leading].T for ends in now)), sorted_blocks, strict=True)
    at_once = [np.concatenate([np.repeat(hull.T, count, axis=1), ends]) for hull, ends in of_groups]
    with_parts = zip(ranges, _parts_read(blocks, reads), strict=True)
    ranges_at_once = [np.concatenate([ends[:leading], parts]) for ends, parts in with_parts]
    costs = [
        (np.flatnonzero(_opened(now, ranges, read)), np.count_nonzero(_opened(at_once, ranges_at_once, read)))
        for read in range(len(placed[0].lower))
    ]
    opened = np.array([len(of_read) for of_read, _ in costs], np.int64)
    least = np.minimum(np.array([count for _, count in costs], np.float64), opened)
    size = np.array([bytes[of_read].sum() for of_read, _ in costs], np.int64)
    mean_size = size / np.maximum(opened, 1)
    wasted = (opened - least).astype(np.float64)
    return ReadCosts(opened, wasted, size, wasted * mean_size, least * mean_size)


def _parts_read(blocks: CurveBlocks, reads: Reads) -> Ranges:
    """The first and the last part of each column of the curve that each read covers."""
    curve, leading = blocks.curve, blocks.leading
    types = [value_type(ends.type).wide or ends.type for ends in curve.boundaries]
    lower, upper = (list(map(pa.array, side[leading:], types)) for side in (reads.lower, reads.upper))
    is_open = np.stack([np.asarray(ends.is_null()) for ends in upper])
    last = np.where(is_open, curve.parts - 1, curve.ranks(upper))
    return curve.ranks(lower, first=True), last
