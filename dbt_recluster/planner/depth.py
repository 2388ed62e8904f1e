"""Depth and overlap of closed intervals, by one sweep over the sorted bounds. Touching counts as overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import Int32Array, IntArray, dense_ranks, range_max
from dbt_recluster.planner.blocks import Blocks


@dataclass(frozen=True, eq=False)
class Sweep:
    """Result of a sweep over closed intervals of ranks.

    Attributes:
        lower: First ranks of the intervals, int64 or int32 (n,).
        upper: Last ranks of the intervals, of the same type, (n,), at least ``lower``.
        started: Number of intervals that start at each rank or before it, int32 (points,).
        ended: Number of intervals that end before each rank, int32 (points + 1,).
    """

    lower: IntArray | Int32Array
    upper: IntArray | Int32Array
    started: Int32Array
    ended: Int32Array

    @classmethod
    def over(cls, lower: IntArray | Int32Array, upper: IntArray | Int32Array, points: int) -> Sweep:
        """Sweep over n closed intervals of ranks below ``points``, in O(n + points)."""
        started = np.cumsum(np.bincount(lower, minlength=points), dtype=np.int32)
        ended = np.cumsum(np.bincount(upper + 1, minlength=points + 1), dtype=np.int32)
        return cls(lower, upper, started, ended)

    @classmethod
    def over_cells(cls, cells: Int32Array) -> Sweep:
        """Sweep over n closed intervals of numbers that need not be dense: first and then last cells, int32 (2n,)."""
        ranks, points = dense_ranks(cells)
        n = len(cells) // 2
        return cls.over(ranks[:n], ranks[n:], points)

    def point_depth(self) -> IntArray:
        """Number of intervals that cover each rank: int64 (points,)."""
        return np.subtract(self.started, self.ended[:-1], dtype=np.int64)

    def overlaps(self) -> Int32Array:
        """Number of other intervals that share a rank with each interval: int32 (n,)."""
        return self.started[self.upper] - self.ended[self.lower] - 1

    def depths(self, first: int | None = None) -> Int32Array:
        """Greatest depth of a rank inside each interval, or each of the ``first`` ones only: int32."""
        return range_max(self.started - self.ended[:-1], self.lower[:first], self.upper[:first])


def block_overlaps(blocks: Blocks) -> IntArray:
    """Number of other blocks whose bounds intersect each block's, touching included: int64 (n,)."""
    return Sweep.over(blocks.lower, blocks.upper, blocks.points).overlaps().astype(np.int64)


def block_depths(blocks: Blocks) -> IntArray:
    """Most blocks that cover any one bound inside each block, itself included: int64 (n,)."""
    return Sweep.over(blocks.lower, blocks.upper, blocks.points).depths().astype(np.int64)


def read_depth(blocks: Blocks) -> float:
    """Weighted mean depth at the ends of reads, touching included; 0 if no read ends within a block.

    A block over the end of a read holds rows beyond it, so it is wasted for a part; blocks between the ends are
    needed anyway. An end that no block covers costs nothing, and does not count.

    Raises:
        ValueError: The blocks have no reads.
    """
    if blocks.reads is None:
        raise ValueError("no reads are known; pass them to Blocks.build")
    sweep = Sweep.over(blocks.lower, blocks.upper, blocks.points)
    depth = np.concatenate([sweep.point_depth(), sweep.started - sweep.ended[1:]])
    weight = np.concatenate([blocks.reads.at, blocks.reads.after])[depth > 0]
    total = float(weight.sum())
    return float(weight @ depth[depth > 0]) / total if total > 0 else 0.0


def depth_curve(blocks: Blocks) -> tuple[IntArray, IntArray]:
    """Depth at each bound, for plots.

    Returns:
        Points and depths, int64 (points,) each. A point is a rank of `Blocks.lower` and `Blocks.upper`; partitions
        follow one another.
    """
    return np.arange(blocks.points), Sweep.over(blocks.lower, blocks.upper, blocks.points).point_depth()
