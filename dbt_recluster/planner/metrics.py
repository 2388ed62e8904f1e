"""Clustering metrics: the numbers that say how well a table is clustered."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, PlaceArray
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.depth import Sweep

_EXACT_BUCKETS = 16


@dataclass(frozen=True)
class ClusteringInformation:
    """How well blocks are clustered. Touching bounds overlap, and constant blocks count like others.

    Attributes:
        total_block_count: number of blocks.
        constant_block_count: blocks whose lower and upper bound are equal.
        average_overlaps: mean over blocks of how many others each one overlaps (Snowflake, Databend).
        average_depth: mean over blocks of each one's depth (Snowflake, Databend).
        p95_depth: depth that 95 % of the blocks do not exceed, nearest rank (Databend); 0 without blocks.
        p99_depth: likewise for 99 %.
        max_depth: greatest depth; 0 without blocks.
        block_depth_histogram: number of blocks for each depth, exact up to 16, above that in buckets named by
            the next power of two.
        clustering_ratio: 0 to 100, 100 for no overlap: 100 * (1 - mean of log10 depth) (the patent's figure
            5).
        relative_clustering_ratio: the patent's equation 1, for which see `relative_clustering_ratio`.
        overlap_point_depth: mean depth of the bounds where at least two blocks meet (the article's average
            depth); 1 if none.
        level_histogram: number of blocks of each level.
        total_rows: rows in all blocks; 0 when they are not known.
        total_bytes: bytes in all blocks; 0 when they are not known.
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
    level_histogram: dict[str, int]
    total_rows: int
    total_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return asdict(self)


def clustering_information(blocks: Blocks) -> ClusteringInformation:
    """Measure how well these blocks are clustered.

    To try another key, build blocks from that key's bounds. For a range of keys, see ``between`` of
    `Blocks.build`.

    Args:
        blocks: n blocks.

    Returns:
        All metrics, averages rounded to 4 decimals, half away from zero.
    """
    sweep = Sweep.over(blocks.lower, blocks.upper, blocks.points)
    depths, overlaps, constant = sweep.depths(), sweep.overlaps(), blocks.constant
    n = len(blocks)
    counts = np.bincount(depths)
    met = sweep.point_depth()
    met = met[met >= 2]
    return ClusteringInformation(
        total_block_count=n,
        constant_block_count=int(np.count_nonzero(constant)),
        average_overlaps=_average(int(overlaps.sum()), n),
        average_depth=_average(int(depths.sum()), n),
        p95_depth=_percentile(counts, 95),
        p99_depth=_percentile(counts, 99),
        max_depth=len(counts) - 1 if n else 0,
        block_depth_histogram=_depth_histogram(counts),
        clustering_ratio=_clustering_ratio(counts),
        relative_clustering_ratio=_relative_clustering_ratio(depths, constant),
        overlap_point_depth=_average(int(met.sum()), len(met)) if len(met) else 1.0,
        level_histogram=_level_histogram(blocks.level),
        total_rows=0 if blocks.rows is None else int(blocks.rows.sum()),
        total_bytes=0 if blocks.bytes is None else int(blocks.bytes.sum()),
    )


def rounded(value: float | Decimal) -> float:
    """Rounded to 4 decimals, half away from zero, as every reported average is."""
    # Adding 0 makes 0 of -0, which a difference of sums may come to.
    return float(Decimal(value).quantize(Decimal("0.0001"), ROUND_HALF_UP)) + 0.0


def _average(total: int, count: int) -> float:
    # In decimals: a float quotient of exactly half a unit may fall to the wrong side.
    return rounded(Decimal(total) / Decimal(count)) if count else 0.0


def _percentile(counts: IntArray, percent: int) -> int:
    """Nearest rank: the smallest depth up to which at least this part of the blocks lie; 0 without blocks."""
    blocks = int(counts.sum())
    return int(np.searchsorted(np.cumsum(counts), -(-blocks * percent // 100))) if blocks else 0


def _depth_histogram(counts: IntArray) -> dict[str, int]:
    histogram: dict[str, int] = {}
    for depth in np.flatnonzero(counts).tolist():
        bucket = depth if depth <= _EXACT_BUCKETS else 1 << (depth - 1).bit_length()
        key = f"{bucket:05d}"
        histogram[key] = histogram.get(key, 0) + int(counts[depth])
    return histogram


def _level_histogram(levels: IntArray) -> dict[str, int]:
    values, counts = np.unique(levels, return_counts=True)
    return {str(value): count for value, count in zip(values.tolist(), counts.tolist(), strict=True)}


def _clustering_ratio(counts: IntArray) -> float:
    depths = np.flatnonzero(counts)
    blocks = int(counts.sum())
    if blocks <= 1:
        return 100.0
    return rounded(max(0.0, 100 * (1 - float(counts[depths] @ np.log10(depths)) / blocks)))


def _relative_clustering_ratio(depths: PlaceArray, constant: BoolArray) -> float:
    """The patent's equation 1: how even the depths are, 1 - sum(log d) / (c + n log(mean d)).

    The sum runs over the n blocks that overlap others; the c constant blocks are well clustered by definition
    and counted apart.
    """
    overlapping = depths[~constant & (depths > 1)]
    divisor = np.count_nonzero(constant) + (
        len(overlapping) * np.log(overlapping.mean()) if len(overlapping) else 0.0
    )
    return rounded(1 - float(np.log(overlapping).sum()) / divisor) if divisor > 0 else 1.0
