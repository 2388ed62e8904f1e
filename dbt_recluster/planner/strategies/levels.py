"""Levels of `payback`: a level stands for the number of loads that merges have put into a block."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, Int32Array, IntArray
from dbt_recluster.planner.block_sets import BlockSets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.strategies.axis import Intervals

# A level stands for this many times the loads of the level below, and for at least one load more: 1, 2, 3, 4, 5, 6, 8,
# 10, 12, ... Levels in steps of 1.5 cost 4 % more work, and tables in use hold levels in steps of 1.25.
LEVEL_GROWTH = 1.25
# The greatest level that stands for a number of loads of its own, and the default of `Policy.max_level`.
GREATEST_LEVEL = 64
_GOLDEN_RATIO = 0.6180339887498949


def _loads_by_level() -> FloatArray:
    loads = [1.0]
    while len(loads) <= GREATEST_LEVEL:
        loads.append(max(loads[-1] + 1, float(round(LEVEL_GROWTH * loads[-1]))))
    return np.array(loads)


# Whole numbers, so that sums over blocks and units are exact.
_LOADS = _loads_by_level()


def loads_of_level(level: IntArray | Int32Array) -> FloatArray:
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
    least = sets.least(candidates.level)
    return np.maximum(mean_levels(candidates, sets), least + 1) if len(sets) else np.zeros(0, np.int64)


def compacted_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The level of the blocks that compacting each set of neighbours writes: int64 (sets,).

    Neighbours of one level keep it: over each key there are as many loads as before, and blocks that were loaded in
    order become what one larger load would have written. Neighbours of several levels get their mean, but no block
    the least level that others of them have: then fewer rows are left at that level after a merge of either kind, or
    as many in fewer blocks, so repeating plan and merge ends.
    """
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    least, greatest = sets.least(candidates.level), sets.greatest(candidates.level)
    return np.maximum(mean_levels(candidates, sets), least + (greatest > least))


def mean_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The level that stands for the mean, over each set's units, of its blocks' loads: int64 (sets,).

    Old blocks with few rows would lift that mean for all keys of the set. So where the set's rows make clearly fewer
    loads as dense as its youngest blocks, the level stands for these. Without this rule, 10 % late rows cost 15 % more
    work over 1,000 loads.
    """
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    intervals = Intervals.of(candidates.first, candidates.last).take(sets.member)
    level, length = candidates.level[sets.member], intervals.length
    hull = np.maximum.reduceat(intervals.end, sets.start) - np.minimum.reduceat(intervals.begin, sets.start)
    loads = np.add.reduceat(loads_of_level(level) * length, sets.start) / hull
    least = sets.least(candidates.level)
    youngest = level == np.repeat(least, sets.size)
    rows = np.maximum(candidates.rows[sets.member], 1).astype(np.float64)
    density = np.add.reduceat(rows * youngest, sets.start) / np.add.reduceat(length * youngest, sets.start)
    loads_by_rows = loads_of_level(least) * np.add.reduceat(rows, sets.start) / hull / density
    loads = np.where(loads_by_rows * LEVEL_GROWTH < loads, loads_by_rows, loads)
    # Multiples of the golden ratio are spread evenly, and depend on the blocks alone. The whole plan has one chance,
    # because neighbours of different levels would never be one group again.
    chance = float(sets.total(candidates.rows).sum()) * _GOLDEN_RATIO % 1.0
    return level_of_loads(loads, chance)
