"""Age groups: overlapping blocks grouped by age, and the benefit of merging a group against its cost; and levels.

A level stands for the number of loads that merges have put into a block. Where none is known, wide is young: merges
make blocks narrow, so a block that holds few of the rows within its bounds has been through few merges. This is the
measure of US patent 10,817,540, "Incremental clustering maintenance of a table".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbt_recluster.planner.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Intervals,
    dense_ranks,
    narrow,
    numbers_within,
)
from dbt_recluster.planner.candidates import BlockSets, Candidates
from dbt_recluster.planner.reads import Prices, price_powers

# A level stands for this many times the loads of the level below, and for at least one load more: 1, 2, 3, 4, 5, 6, 8,
# 10, 12, ... Levels in steps of 1.5 cost 4 % more work, and tables in use hold levels in steps of 1.25.
LEVEL_GROWTH = 1.25
# The greatest level that stands for a number of loads of its own, and the default of `Policy.max_level`.
GREATEST_LEVEL = 64
_GOLDEN_RATIO = 0.6180339887498949
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


def _loads_by_level() -> FloatArray:
    loads = [1.0]
    while len(loads) <= GREATEST_LEVEL:
        loads.append(max(loads[-1] + 1, float(round(LEVEL_GROWTH * loads[-1]))))
    return np.array(loads)


# Whole numbers, so that sums over blocks and units are exact.
_LOADS = _loads_by_level()


@dataclass(frozen=True, eq=False)
class AgeGroups:
    """n overlapping blocks in groups of one level and like width, each in one connected range of keys."""

    candidates: Candidates
    member: IntArray  # positions of the blocks in the candidates, int32 (n,), ascending
    part: IntArray  # part of each block, int32 (n,): twice its partition, or one more
    intervals: Intervals  # the units that each block covers
    prices: Prices  # the intervals on an axis of prices
    rows: FloatArray  # float32 (n,), at least 1
    group: IntArray  # code of each block's group, int32 (n,)
    by_age: list[IntArray]  # positions of the blocks of each age, int32, from the youngest to the oldest
    covered: BoolArray  # blocks under another block of the same age or younger, (n,)
    benefit_cost: (
        FloatArray  # ratio for merging each group, float64 (groups,); 0 if no block of it is covered
    )

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.intervals)

    @classmethod
    def of(
        cls, candidates: Candidates, member: IntArray, part: IntArray, by_reads: BoolArray | None = None
    ) -> AgeGroups:
        """Group some candidates by age, and weigh the benefit of merging each group against its cost.

        Args:
            candidates: c candidates.
            member: Positions of the blocks in the candidates, int32 (n,), ascending, n at least 1.
            part: Part of each block, int32 (n,). No group is in two parts.
            by_reads: Partitions in which overlap costs where reads end, bool (partitions,), or None for all of them;
                in others, and if no reads are known, it costs the same everywhere.
        """
        intervals = candidates.units(member)
        # A block without rows would cost nothing, and be infinitely wide.
        rows = np.maximum(candidates.rows[member], 1).astype(np.float32)
        level = candidates.level[member]
        total = rows_over(intervals, rows)
        # A component lies in one partition, so the last bit of the part is enough to separate its two parts.
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
        prices = candidates.prices(intervals, member, by_reads)
        covered = meets_younger(intervals, by_age)
        younger = np.maximum(younger_loads(prices, loads, by_age), 0) * covered
        if prices.weight is not None:
            rate = prices.length / intervals.length
            total = (total * rate).astype(np.float32)
            group = split_by_price(group, rate)
        benefit = np.bincount(group, younger * total)
        cost = np.bincount(group, rows * covered)
        ratio = benefit / np.maximum(cost, 1.0)
        return cls(candidates, member, part, intervals, prices, rows, group, by_age, covered, ratio)

    @cached_property
    def last_begun(self) -> IntArray:
        """The last block, in the order of begins, that begins before each block ends: int32 (n,)."""
        return np.searchsorted(self.intervals.begin, self.intervals.end).astype(np.int32) - 1

    def with_younger(self, merged: BoolArray) -> BoolArray:
        """Add the blocks of the same age or younger over the merged ones: bool (n,)."""
        result: BoolArray = merged.copy()
        # For each block, the end of the merged blocks up to it in the order of begins, of all ages so far.
        reach, begin, end = np.zeros(len(self), np.int32), self.intervals.begin, self.intervals.end
        for blocks in reversed(self.by_age):
            oldest, others = blocks[merged[blocks]], blocks[~merged[blocks]]
            if len(oldest):
                reach[oldest] = np.maximum(reach[oldest], end[oldest])
                np.maximum.accumulate(reach, out=reach)
            if reach[-1]:
                result[others] = reach[self.last_begun[others]] > begin[others]
        if self.prices.weight is not None:
            result &= merged | (self.prices.length >= _LEAST_PRICE * self.intervals.length)
        return result


def _add(steps: FloatArray, intervals: Intervals, value: FloatArray) -> None:
    """Add a value, (n,), to all places of each block. Steps are differences of places, float64 (size + 1,)."""
    # `np.add.at` is several times slower if it has to convert.
    value = value.astype(np.float64, copy=False)
    np.add.at(steps, intervals.begin, value)
    np.subtract.at(steps, intervals.end, value)


def _total_before(steps: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """Total of all places before each one, times their weight, float64 (size,), or 1: float64 (size + 1,)."""
    total = np.empty_like(steps)
    total[0] = 0.0
    np.cumsum(steps[:-1], out=total[1:])
    if weight is not None:
        total[1:] *= weight
    return np.cumsum(total, out=total)


def rows_over(intervals: Intervals, rows: FloatArray) -> FloatArray:
    """Rows of all blocks within the interval of each block, spread evenly over intervals: float32 (n,)."""
    steps = np.zeros(intervals.size + 1)
    _add(steps, intervals, rows / intervals.length)
    return intervals.total_between(_total_before(steps)).astype(np.float32)


def form_groups(
    component: IntArray, level: IntArray, width: FloatArray, length: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Group the blocks of one component and level whose widths, float32 (n,), follow one another without a gap.

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
    gap: FloatArray = np.float32(_FEW_UNITS) / length[order[1:]].astype(np.float32)
    gap += np.float32(LEVEL_GROWTH)
    gap *= width[:-1]
    new[1:] |= width[1:] > gap
    group = np.empty(len(order), np.int32)
    group[order] = np.cumsum(new, dtype=np.int32) - 1
    return group, order, np.flatnonzero(new)


def order_by_age(component: IntArray, width: FloatArray, group: IntArray) -> list[IntArray]:
    """Positions of the blocks of each age, int32, the youngest first: the widest group of every component.

    ``component`` and ``width`` are those of each group, (groups,), and ``group`` is the code of each block's, (n,).
    """
    age = np.empty(len(component), np.int64)
    age[np.lexsort((-width, component))] = numbers_within(np.bincount(component))
    age_of_block = np.minimum(age, _MOST_AGES - 1).astype(np.int8)[group]
    blocks = np.argsort(age_of_block, kind="stable").astype(np.int32)
    return np.split(blocks, np.cumsum(np.bincount(age_of_block))[:-1])


def meets_younger(intervals: Intervals, by_age: list[IntArray]) -> BoolArray:
    """Whether each block, in the order of begins, overlaps another of its age or younger: bool (n,)."""
    result, meets, so_far = (np.zeros(len(intervals), np.bool_) for _ in range(3))
    for blocks in by_age:
        so_far[blocks] = True
        place = np.flatnonzero(so_far)
        begin, end = intervals.begin[place], intervals.end[place]
        of_place = np.append(False, begin[1:] < np.maximum.accumulate(end)[:-1])
        of_place[:-1] |= begin[1:] < end[:-1]
        meets[place] = of_place
        result[blocks] = meets[blocks]
    return result


def younger_loads(prices: Prices, loads: FloatArray, by_age: list[IntArray]) -> FloatArray:
    """Mean over each block, by price, of the loads in other blocks of its age or younger: float32 (n,)."""
    younger = np.zeros(len(loads), np.float32)
    steps = np.zeros(prices.steps.size + 1)
    for blocks in by_age:
        pieces = np.array_split(blocks, -(-len(blocks) // _PIECE))
        for piece in pieces:
            _add(steps, prices.steps.take(piece), loads[piece])
        before = _total_before(steps, prices.weight)
        for piece in pieces:
            own = prices.take(piece)
            # Loads are whole numbers, so at even prices the difference is exactly 0 where nothing else is.
            others = own.steps.total_between(before) - loads[piece] * own.length
            younger[piece] = np.divide(others, own.length, out=np.zeros(len(piece)), where=own.length > 0)
        del before
    return younger


def split_by_price(group: IntArray, rate: FloatArray) -> IntArray:
    """Split groups where the mean prices of blocks' units, (n,), differ much: codes of the parts, int32 (n,).

    So part of a run is merged and the rest left.
    """
    step = price_powers(rate)
    step -= step.min()
    parts, _ = dense_ranks(group.astype(np.int64) * (int(step.max()) + 1) + step)
    return parts.astype(np.int32)


def estimate_loads(intervals: Intervals, width: FloatArray, by_age: list[IntArray]) -> FloatArray:
    """Loads in each block if no level is known: float32 (n,), whole numbers of at least 1.

    It is how often the block would fit into the youngest blocks over its keys, by the widths of their groups, (n,).
    """
    youngest = np.zeros(intervals.size)
    for blocks in by_age:
        of_age, widths = intervals.take(blocks), np.zeros(intervals.size + 1)
        _add(widths, of_age, width[blocks])
        count = of_age.depth()
        first = (youngest == 0) & (count > 0)
        youngest[first] = np.cumsum(widths[:-1])[first] / count[first]
    loads = intervals.total(youngest) / intervals.length / width
    return np.maximum(np.round(loads), 1.0).astype(np.float32)


def loads_of_level(level: IntArray) -> FloatArray:
    """Number of loads that each level stands for: float64 (n,), whole numbers."""
    loads: FloatArray = _LOADS[np.minimum(level, GREATEST_LEVEL)]
    return loads


def level_of_loads(loads: FloatArray, chance: float = 0.5) -> IntArray:
    """The level that stands for this number of loads, int64 (n,): the inverse of `loads_of_level`.

    Chance, from 0 to below 1, decides between two levels, so that levels are right on average. The nearest level would
    never count a single load merged into many: late rows at depth 2 cost 1.6 times the work over 1,000 loads. This is
    the counter of Morris, "Counting large numbers of events in small registers", 1978.
    """
    # Sums of shares may miss a whole number by a rounding error.
    lower = np.clip(np.searchsorted(_LOADS, loads + 1e-9, side="right") - 1, 0, GREATEST_LEVEL - 1)
    above = (loads - _LOADS[lower]) / (_LOADS[lower + 1] - _LOADS[lower])
    levels: IntArray = lower + (above > chance)
    return levels


def written_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The level of the blocks that merging each set by depth writes: int64 (sets,).

    It stands for the mean loads of `mean_levels`, and is at least one more than the least level in the set, so that
    repeating plan and merge ends even if merges never narrow a bound.
    """
    levels: IntArray = np.maximum(mean_levels(candidates, sets), sets.least(candidates.level) + 1)
    return levels


def compacted_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The level of the blocks that compacting each set of neighbours writes: int64 (sets,).

    Neighbours of one level keep it: over each key there are as many loads as before, and blocks that were loaded in
    order become what one larger load would have written. Neighbours of several levels get their mean, but no block
    the least level that others of them have: then fewer rows are left at that level after a merge of either kind, or
    as many in fewer blocks, so repeating plan and merge ends.
    """
    least, greatest = sets.least(candidates.level), sets.greatest(candidates.level)
    levels: IntArray = np.maximum(mean_levels(candidates, sets), least + (greatest > least))
    return levels


def mean_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The level that stands for the mean, over each set's units, of its blocks' loads: int64 (sets,).

    Old blocks with few rows would lift that mean for all keys of the set. So where the set's rows make clearly fewer
    loads as dense as its youngest blocks, the level stands for these. Without this rule, 10 % late rows cost 15 % more
    work over 1,000 loads.
    """
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    intervals = candidates.units()
    length, rows = intervals.length, np.maximum(candidates.rows, 1)
    hull = sets.greatest(intervals.end) - sets.least(intervals.begin)
    loads = sets.total(loads_of_level(candidates.level) * length) / hull
    least, is_youngest = sets.least(candidates.level), np.zeros(len(candidates), np.bool_)
    is_youngest[sets.member] = candidates.level[sets.member] == np.repeat(least, sets.size)
    density = sets.total(rows * is_youngest) / sets.total(length * is_youngest)
    loads_by_rows = loads_of_level(least) * sets.total(rows) / hull / density
    loads = np.where(loads_by_rows * LEVEL_GROWTH < loads, loads_by_rows, loads)
    # Multiples of the golden ratio are spread evenly, and depend on the blocks alone. The whole plan has one chance,
    # because neighbours of different levels would never be one group again.
    chance = float(sets.total(candidates.rows).sum()) * _GOLDEN_RATIO % 1.0
    return level_of_loads(loads, chance)
