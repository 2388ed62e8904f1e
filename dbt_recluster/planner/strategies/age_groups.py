"""Age groups: overlapping blocks grouped by age, and the benefit of merging a group against its cost.

Wide is young: merges make blocks narrow, so a block that holds few of the rows within its bounds has been
through few merges. This is the measure of US patent 10,817,540, "Incremental clustering maintenance of a table".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import (
    BoolArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    dense_ranks,
    narrow,
)
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.strategies.axis import Coverage, Intervals, Prices, price_steps, total_over
from dbt_recluster.planner.strategies.levels import (
    GREATEST_LEVEL,
    LEVEL_GROWTH,
    loads_of_level,
)

# Two groups of one level are apart where widths, in ascending order, grow by more than `LEVEL_GROWTH`; and by this many
# times more over the number of units that a block covers, because chance makes the widths of short blocks differ.
# Without it, uniform unsorted loads cost 4 % more work (four seeds).
_FEW_UNITS = 8.0
# The oldest groups of a component beyond this many have one age, because every age costs a pass over the axis. One age
# for all groups in one power of `LEVEL_GROWTH` would need no limit, but costs 6 % more work on uniform sorted loads.
_MOST_AGES = 48
# Younger blocks at less than this share of the mean price stay behind: no read ends there. Where reads are of whole
# months, this takes a third to a half off the work; 0.1 in its place changes nothing.
_LEAST_PRICE = 0.02
# Blocks whose loads are worked out at a time. Without pieces a plan of a million blocks takes 20 % more memory.
_PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class AgeGroups:
    """n overlapping blocks in groups of one level and like width, each in one connected range of keys.

    Attributes:
        intervals: Intervals of the blocks.
        prices: The same on an axis of prices.
        rows: float32 (n,), at least 1.
        group: Code of each block's group, int32 (n,).
        by_age: Positions of the blocks of one age, int32, for each age from the youngest to the oldest.
        covered: bool (n,), true for blocks under another block of the same age or younger.
        benefit_cost: Benefit-cost ratio of merging each group, float64 (groups,); 0 if no block of it is covered.
    """

    intervals: Intervals
    prices: Prices
    rows: Float32Array
    group: Int32Array
    by_age: list[Int32Array]
    covered: BoolArray
    benefit_cost: FloatArray

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.intervals)

    @classmethod
    def of(
        cls, candidates: Candidates, member: Int32Array, part: Int32Array, by_reads: BoolArray | None = None
    ) -> AgeGroups:
        """Group some candidates by age, and weigh the benefit of merging each group against its cost.

        Args:
            candidates: c candidates.
            member: Positions of the blocks in the candidates, int32 (n,), ascending, n at least 1.
            part: Part of each block, int32 (n,): twice its partition, or one more. No group is in two parts.
            by_reads: Partitions in which overlap costs where reads end, bool (partitions,), or None for all of them;
                in others, and if no reads are known, it costs the same everywhere.
        """
        intervals = Intervals.of(candidates.first[member], candidates.last[member])
        # A block without rows would cost nothing, and be infinitely wide.
        rows = np.maximum(candidates.rows[member], 1).astype(np.float32)
        level = candidates.level[member]
        total = rows_over(intervals, rows)
        # A component lies in one partition, so the last bit of the part tells its two parts apart.
        component = 2 * intervals.components() + (part & 1)
        group, order, starts = form_groups(component, level, total / rows, intervals.length)
        width = np.add.reduceat(total[order], starts, dtype=np.float64)
        width /= np.add.reduceat(rows[order], starts, dtype=np.float64)
        by_age = order_by_age(component[order[starts]] // 2, width, group)
        del order, component
        if level.any():
            loads = loads_of_level(level).astype(np.float32)
        else:
            loads = estimate_loads(intervals, width[group], by_age)
        del level
        even, prices = (
            Prices.even(intervals),
            Prices.of(intervals, candidates, member, by_reads),
        )
        younger = younger_loads(even, loads, by_age)
        covered = younger > 0
        if prices.weight is not None:
            younger = np.maximum(younger_loads(prices, loads, by_age), 0) * covered
            rate = prices.length / intervals.length
            total = (total * rate).astype(np.float32)
            group = split_by_price(group, rate)
        benefit = np.bincount(group, younger * total)
        cost = np.bincount(group, rows * covered)
        return cls(intervals, prices, rows, group, by_age, covered, benefit / np.maximum(cost, 1.0))

    def with_younger(self, merged: BoolArray) -> BoolArray:
        """Add the blocks of the same age or younger over the merged ones: bool (n,)."""
        result = np.zeros(len(self), np.bool_)
        # For each unit, the last unit reached by the merged blocks that begin there or before, of all ages so far.
        reach = np.zeros(2 * len(self), np.int32)
        for blocks in reversed(self.by_age):
            oldest = blocks[merged[blocks]]
            if len(oldest):
                np.maximum.at(reach, self.intervals.begin[oldest], self.intervals.end[oldest])
                np.maximum.accumulate(reach, out=reach)
            if reach[-1]:
                result[blocks] = reach[self.intervals.end[blocks] - 1] > self.intervals.begin[blocks]
        if self.prices.weight is not None:
            result &= merged | (self.prices.length >= _LEAST_PRICE * self.intervals.length)
        return result


def rows_over(intervals: Intervals, rows: Float32Array) -> Float32Array:
    """Rows of all blocks within the interval of each block, spread evenly over intervals: float32 (n,)."""
    coverage = Coverage(2 * len(intervals))
    coverage.add(intervals, rows / intervals.length)
    return total_over(coverage.integral(), intervals).astype(np.float32)


def form_groups(
    component: Int32Array, level: Int32Array, width: Float32Array, length: Int32Array
) -> tuple[Int32Array, Int32Array, IntArray]:
    """Group the blocks of one component and level whose widths follow one another without a gap.

    Args:
        component: Codes of connected ranges of keys, int32 (n,).
        level: int32 (n,).
        width: float32 (n,), positive.
        length: Units that each block covers, int32 (n,).

    Returns:
        Codes of the groups, int32 (n,); the blocks in the order of groups, int32 (n,); and the position in that order
        at which each group starts, int64 (groups,).
    """
    key = component.astype(np.int64) * (GREATEST_LEVEL + 1) + np.minimum(level, GREATEST_LEVEL)
    # The bits of positive floats have the order of the floats, so one sort orders by width last.
    key <<= 32
    key |= width.view(np.int32)
    order = narrow(np.argsort(key, kind="stable"))
    key = key[order]
    key >>= 32
    new = np.ones(len(order), np.bool_)
    new[1:] = key[1:] != key[:-1]
    del key
    width = width[order]
    gap: Float32Array = np.float32(_FEW_UNITS) / length[order[1:]].astype(np.float32)
    gap += np.float32(LEVEL_GROWTH)
    gap *= width[:-1]
    new[1:] |= width[1:] > gap
    group = np.empty(len(order), np.int32)
    group[order] = np.cumsum(new, dtype=np.int32) - 1
    return group, order, np.flatnonzero(new)


def order_by_age(component: Int32Array, width: FloatArray, group: Int32Array) -> list[Int32Array]:
    """Positions of the blocks of each age, int32, the youngest first: the widest group of every component.

    ``component`` and ``width`` are those of each group, (groups,), and ``group`` is the code of each block's, (n,).
    """
    order = np.lexsort((-width, component))
    start = np.flatnonzero(np.diff(component[order], prepend=-1))
    age = np.empty(len(order), np.int64)
    age[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    age_of_block = np.minimum(age, _MOST_AGES - 1).astype(np.int8)[group]
    blocks = np.argsort(age_of_block, kind="stable").astype(np.int32)
    return np.split(blocks, np.cumsum(np.bincount(age_of_block))[:-1])


def younger_loads(prices: Prices, loads: Float32Array, by_age: list[Int32Array]) -> Float32Array:
    """Mean over each block, by price, of the loads in other blocks of its age or younger: float32 (n,)."""
    younger = np.zeros(len(loads), np.float32)
    coverage = Coverage(2 * len(loads) if prices.weight is None else len(prices.weight), prices.weight)
    for blocks in by_age:
        for piece in _pieces(blocks):
            coverage.add(prices.intervals.take(piece), loads[piece])
        integral = coverage.integral()
        for piece in _pieces(blocks):
            own = prices.take(piece)
            # Loads are whole numbers, so at even prices the difference is exactly 0 where nothing else is.
            others = total_over(integral, own.intervals) - loads[piece] * own.length
            younger[piece] = np.divide(others, own.length, out=np.zeros(len(piece)), where=own.length > 0)
        del integral
    return younger


def split_by_price(group: Int32Array, rate: FloatArray) -> Int32Array:
    """Split groups where the mean prices of blocks' units, (n,), differ much: codes of the parts, int32 (n,).

    So part of a run is merged and the rest left.
    """
    step = price_steps(rate)
    step -= step.min()
    parts, _ = dense_ranks(group.astype(np.int64) * (int(step.max()) + 1) + step)
    return parts.astype(np.int32)


def _pieces(blocks: Int32Array) -> list[Int32Array]:
    return np.array_split(blocks, -(-len(blocks) // _PIECE))


def estimate_loads(intervals: Intervals, width: FloatArray, by_age: list[Int32Array]) -> Float32Array:
    """Loads in each block if no level is known: float32 (n,), whole numbers of at least 1.

    It is how often the block would fit into the youngest blocks over its keys, by the widths of their groups, (n,).
    """
    youngest = np.zeros(2 * len(intervals))
    for blocks in by_age:
        count, widths = Coverage(len(youngest)), Coverage(len(youngest))
        count.add(intervals.take(blocks), np.ones(len(blocks)))
        widths.add(intervals.take(blocks), width[blocks])
        covers = count.values()
        first = (youngest == 0) & (covers > 0)
        youngest[first] = widths.values()[first] / covers[first]
    integral = np.append(0.0, np.cumsum(youngest))
    loads = total_over(integral, intervals) / intervals.length / width
    return np.maximum(np.round(loads), 1.0).astype(np.float32)
