"""Depth and overlap: one sweep over the sorted bounds, closed intervals, touching counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, PlaceArray
from dbt_recluster.planner.blocks import Blocks


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep over closed intervals of ranks finds.

    Attributes:
        lower: int64 or int32 (n,), the intervals' first ranks.
        upper: of the same type, (n,), their last ranks, each at least its lower.
        started: int32 (points,), intervals that start at this rank or before.
        ended: int32 (points + 1,), intervals that end before this rank.
    """

    lower: IntArray | PlaceArray
    upper: IntArray | PlaceArray
    started: PlaceArray
    ended: PlaceArray

    @classmethod
    def over(cls, lower: IntArray | PlaceArray, upper: IntArray | PlaceArray, points: int) -> Sweep:
        """Sweep n closed intervals of ranks below ``points``, in O(n + points)."""
        started = np.cumsum(np.bincount(lower, minlength=points), dtype=np.int32)
        ended = np.cumsum(np.bincount(upper + 1, minlength=points + 1), dtype=np.int32)
        return cls(lower, upper, started, ended)

    def point_depth(self) -> IntArray:
        """How many intervals cover each rank: int64 (points,)."""
        return np.subtract(self.started, self.ended[:-1], dtype=np.int64)

    def overlaps(self) -> PlaceArray:
        """For each interval the number of others it has a rank in common with: int32 (n,)."""
        return self.started[self.upper] - self.ended[self.lower] - 1

    def depths(self, first: int | None = None) -> PlaceArray:
        """For each of the first so many intervals the greatest depth of a rank inside it: int32 (first,)."""
        return range_max(self.started - self.ended[:-1], self.lower[:first], self.upper[:first])


def range_max(values: PlaceArray, first: IntArray | PlaceArray, last: IntArray | PlaceArray) -> PlaceArray:
    """Greatest of ``values[first[i]:last[i] + 1]`` for each i.

    A sparse table, one row of which is enough at a time: queries are answered in the order of their lengths'
    powers of two while the rows are made, so memory stays O(points + n).

    Args:
        values: int32 (points,).
        first: int64 or int32 (n,), places in values.
        last: of the same type, (n,), places in values, each at least its first.

    Returns:
        int32 (n,).
    """
    result = np.zeros(len(first), np.int32)
    if len(first) == 0:
        return result
    # frexp is exact here: a length is below 2**53.
    power = np.frexp((last - first + 1).astype(np.float64))[1].astype(np.int8) - 1
    by_power = np.argsort(power, kind="stable")
    borders = np.searchsorted(power[by_power], np.arange(int(power.max()) + 2))
    row = values
    for exponent in range(len(borders) - 1):
        if exponent:
            half = 1 << (exponent - 1)
            row = np.maximum(row[:-half], row[half:])
        chosen = by_power[borders[exponent] : borders[exponent + 1]]
        result[chosen] = np.maximum(row[first[chosen]], row[last[chosen] - (1 << exponent) + 1])
    return result


def block_overlaps(blocks: Blocks) -> IntArray:
    """For each block the number of others whose bounds intersect its own, touching included: int64 (n,)."""
    return Sweep.over(blocks.lower, blocks.upper, blocks.points).overlaps().astype(np.int64)


def block_depths(blocks: Blocks) -> IntArray:
    """For each block the most blocks that cover any one bound inside it, itself included: int64 (n,)."""
    return Sweep.over(blocks.lower, blocks.upper, blocks.points).depths().astype(np.int64)


def depth_curve(blocks: Blocks) -> tuple[IntArray, IntArray]:
    """The curve that plots of clustering draw: how many blocks cover each bound.

    Returns:
        Points and depths, int64 (points,) each. A point is a rank of `Blocks.lower` and `Blocks.upper`;
        partitions follow one another.
    """
    return np.arange(blocks.points), Sweep.over(blocks.lower, blocks.upper, blocks.points).point_depth()


def covering(blocks: Blocks, point: int) -> BoolArray:
    """Which blocks cover this rank: bool (n,)."""
    return (blocks.lower <= point) & (blocks.upper >= point)
