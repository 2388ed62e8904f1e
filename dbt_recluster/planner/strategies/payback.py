"""Strategy `payback`, the default: merge first where a rewritten row saves most reads.

Functions stand in the order of the steps of docs/design/planner.md, which explains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, Intervals, dense_ranks, narrow, numbers_within
from dbt_recluster.planner.candidates import (
    Candidates,
    Selected,
    SetArrays,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
)
from dbt_recluster.planner.reads import EVEN_SHARE, WeightedAxis, weight_powers

# Constants. What another value costs is the work at equal scan; `python benchmarks/frontier.py --only payback` measures
# it again, `python benchmarks/reads.py` where reads are known, and `python benchmarks/planner_scale.py` memory.

# Step 4: blocks across the cut may leave nothing to merge on either side, with the average just above the threshold.
# Then the cut moves up by these shares of the blocks until there is something to merge. If all keys were merged at once
# instead, a threshold of 1.5 would rewrite two full runs rather than half of them.
_CUT_STEPS = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# Steps 7, 9 and 13: a level stands for this many times the loads of the level below, and for at least one load more: 1,
# 2, 3, 4, 5, 6, 8, 10, 12, ... Steps of 1.5 cost 4 % more work. Tables in use hold levels in these steps.
LEVEL_GROWTH = 1.25
# Levels above this one stand for no more loads; the default of `Policy.max_level`.
GREATEST_LEVEL = 64
# Step 7: two groups of one level are apart where widths, in ascending order, grow by a factor of more than
# `LEVEL_GROWTH`, plus this over the block's length in units, since widths of short blocks are noisy. Without it,
# uniform unsorted loads cost 4 % more work (four seeds), and tenants 7 % less.
_FEW_UNITS = 8.0
# Step 8: further groups of a component share the oldest age, since each costs a pass over the axis. One age for each
# power of `LEVEL_GROWTH` would need no limit, but costs 6 % more work on uniform sorted loads.
_MOST_AGES = 48
# Step 10: blocks that are weighed at a time. Without pieces, a plan of a million blocks takes 20 % more memory.
_PIECE = 1 << 16
# Step 12: this many times the overlap that the threshold allows may stay. Without it, an estimate just above the
# threshold merges an old run too early: uniform sorted loads cost 5 % more work (four seeds).
_TOLERANCE = 1.05
# Step 13: younger blocks at less than this share of the mean weight stay behind: no read ends there. Where reads are of
# whole months, this takes a third to a half off the work; 0.1 in its place changes nothing.
_LEAST_WEIGHT = 0.02
_GOLDEN_RATIO = 0.6180339887498949


def payback(candidates: Candidates, threshold: FloatArray, limits: SetLimits) -> Selected:
    """Select block sets that bring the average depth of every partition down to its threshold, for the fewest rows.

    A read of an old block also opens the younger blocks over the same keys. Merging them into it saves these reads and
    costs the rewrite of its rows. Groups of blocks of one age (`AgeGroups`) are merged in the order of that
    benefit-cost ratio, together with all younger blocks over them, until the threshold is met. Arguments are
    those of `Strategy.select`.

    Sources: the schedule of least work for a number of sorted runs (Bentley and Saxe, "Decomposable searching
    problems", 1980; Mathieu, Staelin, Young and Yousefi, "Bigtable merge compaction", 2014). One cutoff for all groups
    of a partition, instead of its counters, lets every key range have its own schedule.
    """
    depth = candidates.reducible_depths()
    depths = PartDepths.from_candidates(candidates, depth, candidates.partition, threshold)
    deep = depths.depth > depths.threshold
    if not deep.any():
        return no_sets(), depths.worst
    # The lower and the upper part of each partition, see `split_keys`.
    by_part = np.column_stack([np.ones(len(threshold)), np.maximum(threshold, 2.0)])
    by_part[~deep] = np.inf
    share = np.where(deep, np.clip(2 - threshold, 0.0, 1.0), 0.0)
    # Measuring the gain takes memory, so it comes last.
    sets, sizes = no_sets(), limits._replace(pays=None)
    for step in _CUT_STEPS:
        cut = np.where(share > 0, np.minimum(share + step, 1.0), 0.0)
        sets = _sets_down_to(candidates, depth, split_keys(candidates, cut), by_part.ravel(), sizes)
        sets = limits.paying(sets)
        if len(sets) or (cut % 1 == 0).all():
            break
    return sets, depths.worst


@dataclass(frozen=True, eq=False)
class PartDepths:
    """Step 3: the depth that the threshold limits in each part of a plan.

    Where no reads are known, that is the average depth. Otherwise it is the read depth; and the average depth against a
    much higher threshold, so that keys where no read ends do not overlap without bound.
    """

    depth: FloatArray  # float64 (parts,)
    threshold: FloatArray  # float64 (parts,)
    by_reads: BoolArray  # whether it is the read depth, (parts,)
    worst: WorstDepth  # the read depth if it is known, unless the average depth alone exceeds its threshold

    @classmethod
    def from_candidates(
        cls, candidates: Candidates, depth: IntArray, part: IntArray, threshold: FloatArray
    ) -> PartDepths:
        """Compare parts with these depths of blocks, int32 (c,), with their thresholds, float64 (parts,)."""
        average = average_depths(depth, part, len(threshold))
        if candidates.blocks.reads is None:
            return cls(
                average, threshold, np.zeros(len(threshold), np.bool_), WorstDepth.from_partitions(average, threshold)
            )
        read = np.round(read_depths(candidates, part, len(threshold)), 4)
        by_reads, worst = read > threshold, WorstDepth.from_partitions(read, threshold, by_reads=True)
        compared, threshold = np.where(by_reads, read, average), np.where(by_reads, threshold, threshold / EVEN_SHARE)
        if (compared > threshold).any() and not by_reads.any():
            worst = WorstDepth.from_partitions(compared, threshold)
        return cls(compared, threshold, by_reads, worst)


def read_depths(candidates: Candidates, part: IntArray, parts: int) -> FloatArray:
    """Mean depth at the ends of reads in each part, 1 if no read ends there: float64 (parts,)."""
    reads = candidates.blocks.reads
    assert reads is not None
    order = np.argsort(part, kind="stable")
    first, last, part = candidates.first[order], candidates.last[order], part[order]
    low, high = reads.below_cells(first), reads.below_cells(last + 1)
    weight = np.bincount(part, high - low, parts)
    # Offsets separate the weights of parts.
    offset = part * (1.0 + float(high.max()))
    low, high = low + offset, high + offset
    high_before = np.append(-np.inf, np.maximum.accumulate(high)[:-1])
    covered = np.bincount(part, np.maximum(high - np.maximum(low, high_before), 0.0), parts)
    return np.divide(weight, covered, out=np.ones(parts), where=covered > 0)


def split_keys(candidates: Candidates, share: FloatArray) -> IntArray:
    """Step 4: split every partition into a lower part with this share of its blocks, and an upper part with the others.

    Where every load covers all keys, a table has one run or two. A threshold of 1.5 would mean one run, as 1 does.
    So the lower part is merged down to 1, the upper part to 2, and the mean over both is right. Above 2 a cut costs
    more than it gains, because blocks across it are merged with both parts. Where reads are known, the lower part is
    that of the blocks over the keys at which most of them end, and has this share of the weight.

    Shares are float64 (partitions,), from 0 to 1. Returns the part of each candidate, int32 (c,): twice its partition,
    and 1 more in the upper part.
    """
    partition = candidates.partition
    if (share % 1 == 0).all():
        uncut: IntArray = (2 * np.arange(len(share), dtype=np.int32) + (share == 0))[partition]
        return uncut
    middle = candidates.first.astype(np.int64) + candidates.last
    weight: FloatArray = np.ones(len(partition))
    keys = [middle, partition]
    if candidates.blocks.reads is not None:
        axis = candidates.weighted_axis(candidates.units())
        weight = axis.length.astype(np.float64)
        keys.insert(1, -axis.heaviest_power)
    order = np.lexsort(keys)
    of_place, weight = partition[order], weight[order]
    total = np.bincount(of_place, weight, len(share))
    before = np.cumsum(weight) - weight - (np.cumsum(total) - total)[of_place]
    part = np.empty(len(order), np.int32)
    part[order] = 2 * of_place + (before >= (share * total)[of_place])
    return part


def _sets_down_to(
    candidates: Candidates, depth: IntArray, part: IntArray, threshold: FloatArray, limits: SetLimits
) -> SetArrays:
    """Select sets that bring every part down to its threshold, float64 (parts,)."""
    depths = PartDepths.from_candidates(candidates, depth, part, threshold)
    deep = depths.depth > depths.threshold
    member = narrow(np.flatnonzero(deep[part] & (depth > 1)))
    if len(member) == 0:
        return no_sets()
    part = part[member]
    by_reads = depths.by_reads[0::2] | depths.by_reads[1::2]
    groups = AgeGroups.from_candidates(candidates, member, part, by_reads)
    merged = merge_to_cutoff(groups, surplus_overlap(depths.depth, depths.threshold))
    sets = rank_sets(groups, merged, limits)
    # Limits may drop all sets of a part. Then the part falls back to any overlap.
    idle = deep
    idle[part[np.searchsorted(member, sets.member)]] = False
    rest = idle[part] & (groups.axis.length > 0)
    if rest.any():
        sets = sets.then(rank_sets(groups, rest, limits))
    return sets


@dataclass(frozen=True, eq=False)
class AgeGroups:
    """Steps 5 to 11: n blocks in groups of one level and like width, each in one connected range of keys."""

    candidates: Candidates
    member: IntArray  # positions of the blocks in the candidates, int32 (n,), ascending
    part: IntArray  # part of each block, int32 (n,): twice its partition, or one more
    intervals: Intervals  # the units that each block covers
    axis: WeightedAxis  # the intervals on an axis of weights
    rows: FloatArray  # float32 (n,), at least 1
    group: IntArray  # code of each block's group, int32 (n,)
    by_age: list[IntArray]  # positions of the blocks of each age, int32, from the youngest to the oldest
    covered: BoolArray  # blocks under another block of the same age or younger, (n,)
    benefit_cost: FloatArray  # ratio of each group, float64 (groups,); 0 if no block of it is covered

    def __len__(self) -> int:
        return len(self.intervals)

    @classmethod
    def from_candidates(
        cls, candidates: Candidates, member: IntArray, part: IntArray, by_reads: BoolArray | None = None
    ) -> AgeGroups:
        """Steps 5 to 11: group one or more candidates by age, and weigh the benefit of merging each against its cost.

        No group is in two parts. Overlap costs where reads end in the partitions ``by_reads``, bool (partitions,), or
        in all of them; in others, and if no reads are known, it costs the same everywhere.
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
        axis = candidates.weighted_axis(intervals, member, by_reads)
        covered = meets_younger(intervals, by_age)
        younger = np.maximum(younger_loads(axis, loads, by_age), 0) * covered
        if axis.weight is not None:
            rate = axis.length / intervals.length
            total = (total * rate).astype(np.float32)
            # Groups are split where weights differ much, so that part of a run is merged and the rest left.
            step = weight_powers(rate)
            group, _ = dense_ranks(group.astype(np.int64) * (int(np.ptp(step)) + 1) + step - step.min())
            group = group.astype(np.int32)
        benefit = np.bincount(group, younger * total)
        cost = np.bincount(group, rows * covered)
        ratio = benefit / np.maximum(cost, 1.0)
        return cls(candidates, member, part, intervals, axis, rows, group, by_age, covered, ratio)

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
        if self.axis.weight is not None:
            result &= merged | (self.axis.length >= _LEAST_WEIGHT * self.intervals.length)
        return result


def rows_over(intervals: Intervals, rows: FloatArray) -> FloatArray:
    """Step 6: rows of all blocks within the interval of each block, spread evenly over intervals: float32 (n,)."""
    steps = np.zeros(intervals.size + 1)
    _add(steps, intervals, rows / intervals.length)
    return intervals.total_between(_total_before(steps)).astype(np.float32)


def form_groups(
    component: IntArray, level: IntArray, width: FloatArray, length: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Step 7: group the blocks of one component and level whose widths, float32 (n,), follow one another without a gap.

    Returns codes of the groups, int32 (n,); the blocks in the order of groups, int32 (n,); and the position in that
    order at which each group starts, int64 (groups,).
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
    """Step 8: positions of the blocks of each age, int32, the youngest first: the widest group of every component.

    ``component`` and ``width`` are those of each group, (groups,), and ``group`` is the code of each block's, (n,).
    """
    age = np.empty(len(component), np.int64)
    age[np.lexsort((-width, component))] = numbers_within(np.bincount(component))
    age_of_block = np.minimum(age, _MOST_AGES - 1).astype(np.int8)[group]
    blocks = np.argsort(age_of_block, kind="stable").astype(np.int32)
    return np.split(blocks, np.cumsum(np.bincount(age_of_block))[:-1])


# By level. Whole numbers, so that sums over blocks and units are exact.
_LOADS = np.ones(GREATEST_LEVEL + 1)
for _level in range(GREATEST_LEVEL):
    _LOADS[_level + 1] = max(_LOADS[_level] + 1, round(LEVEL_GROWTH * _LOADS[_level]))


def loads_of_level(level: IntArray) -> FloatArray:
    """Step 9: number of loads that each level stands for: float64 (n,), whole numbers."""
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


def estimate_loads(intervals: Intervals, width: FloatArray, by_age: list[IntArray]) -> FloatArray:
    """Step 9, if no level is known: loads in each block, float32 (n,), whole numbers of at least 1.

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


def meets_younger(intervals: Intervals, by_age: list[IntArray]) -> BoolArray:
    """Step 10: whether each block, in the order of begins, overlaps another of its age or younger: bool (n,)."""
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


def younger_loads(axis: WeightedAxis, loads: FloatArray, by_age: list[IntArray]) -> FloatArray:
    """Step 10: mean over each block, by weight, of the loads in other blocks of its age or younger: float32 (n,)."""
    younger = np.zeros(len(loads), np.float32)
    steps = np.zeros(axis.steps.size + 1)
    for blocks in by_age:
        pieces = np.array_split(blocks, -(-len(blocks) // _PIECE))
        for piece in pieces:
            _add(steps, axis.steps.take(piece), loads[piece])
        before = _total_before(steps, axis.weight)
        for piece in pieces:
            of_age = axis.take(piece)
            # Loads are whole numbers, so at even weights the difference is exactly 0 where nothing else is.
            others = of_age.steps.total_between(before) - loads[piece] * of_age.length
            younger[piece] = np.divide(others, of_age.length, out=np.zeros(len(piece)), where=of_age.length > 0)
        del before
    return younger


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


def surplus_overlap(average: FloatArray, threshold: FloatArray) -> FloatArray:
    """Step 12: share of the overlap to remove for the average depth to fall to the threshold: float64 (parts,)."""
    stays = np.divide(_TOLERANCE * (threshold - 1), average - 1, out=np.ones_like(average), where=average > threshold)
    surplus: FloatArray = np.maximum(1 - stays, 0.0)
    return surplus


def merge_to_cutoff(groups: AgeGroups, surplus: FloatArray) -> BoolArray:
    """Step 13: lower the cutoff of the benefit-cost ratio until merges remove this share of the removable overlap.

    Shares are those of each part, float64 (parts,). Returns the blocks to merge, bool (n,).
    """
    parts = len(surplus)
    wanted = surplus * removed_overlap(groups, np.ones(len(groups), np.bool_), parts)
    # Weights have rounding errors.
    wanted *= 1 - 1e-9
    part_of_group = np.zeros(len(groups.benefit_cost), np.int64)
    part_of_group[groups.group] = groups.part
    # Binary search among the ratios of each part's groups. The lowest merges everything that overlaps.
    useful = np.flatnonzero(groups.benefit_cost > 0)
    order = useful[np.lexsort((groups.benefit_cost[useful], part_of_group[useful]))]
    cutoffs = np.append(groups.benefit_cost[order], np.inf)
    ends = np.cumsum(np.bincount(part_of_group[order], minlength=parts))
    low = np.append(0, ends[:-1])
    low[low == ends] = len(order)
    high = np.maximum(low, ends - 1)
    merged = merge_at(groups, cutoffs[low][part_of_group])
    while (low < high).any():
        middle = (low + high + 1) // 2
        trial = merge_at(groups, cutoffs[middle][part_of_group])
        enough = removed_overlap(groups, trial, parts) >= wanted
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        merged = np.where(enough[groups.part], trial, merged)
    return merged


def merge_at(groups: AgeGroups, cutoff: FloatArray) -> BoolArray:
    """The blocks to merge at this cutoff for every group, float64 (groups,): bool (n,).

    Groups are merged as a whole. Blocks of a run that stay behind end up under the new blocks, exceed the cutoff in the
    next round, and pull young runs in. Levels tell numbers of loads apart only up to
    `LEVEL_GROWTH`, so groups whose ratios differ by less are merged together; exact ratios cost 6 % more work.
    """
    pays = (groups.benefit_cost > 0) & (groups.benefit_cost * LEVEL_GROWTH >= cutoff)
    return groups.with_younger(pays[groups.group] & groups.covered)


def removed_overlap(groups: AgeGroups, merged: BoolArray, parts: int) -> FloatArray:
    """Weight of the overlap that merging these blocks removes: float64 (parts,)."""
    place = narrow(np.flatnonzero(merged))
    low, high = groups.axis.low[place], groups.axis.high[place]
    reach = np.maximum.accumulate(high)[:-1]
    # Blocks are in the order of their begins. What a block shares with those before it goes.
    shared = np.minimum(high[1:], reach)
    shared -= np.minimum(low[1:], reach)
    return np.bincount(groups.part[place[1:]], shared, parts).astype(np.float64)


def rank_sets(groups: AgeGroups, merged: BoolArray, limits: SetLimits) -> SetArrays:
    """Step 14: make one set of every connected range of blocks to merge, most overlap removed for each row first."""
    place = narrow(np.flatnonzero(merged))
    label = groups.intervals.take(place).components()
    ranges = SetArrays(place, np.flatnonzero(np.diff(label, prepend=-1)))
    hull = ranges.greatest(groups.axis.high) - ranges.least(groups.axis.low)
    removed = ranges.total(groups.axis.length) - hull
    rank = np.empty(len(ranges), np.int64)
    rank[np.argsort(-removed / ranges.total(groups.rows), kind="stable")] = np.arange(len(ranges))
    return form_sets(groups.candidates, groups.member[place].astype(np.int64), rank[label], limits)


def written_levels(candidates: Candidates, sets: SetArrays) -> IntArray:
    """Step 15: the level of the blocks that merging each set by depth writes: int64 (sets,).

    It stands for the mean loads of `mean_levels`, and is at least one more than the least level in the set, so that
    repeating plan and merge ends even if merges never narrow a bound.
    """
    levels: IntArray = np.maximum(mean_levels(candidates, sets), sets.least(candidates.level) + 1)
    return levels


def compacted_levels(candidates: Candidates, sets: SetArrays) -> IntArray:
    """The level of the blocks that compacting each set of neighbours writes: int64 (sets,).

    Neighbours of one level keep it: over each key there are as many loads as before, and blocks that were loaded in
    order become what one larger load would have written. Neighbours of several levels get their mean, but no block
    the least level that others of them have: then fewer rows are left at that level after a merge of either kind, or
    as many in fewer blocks, so repeating plan and merge ends.
    """
    least, greatest = sets.least(candidates.level), sets.greatest(candidates.level)
    levels: IntArray = np.maximum(mean_levels(candidates, sets), least + (greatest > least))
    return levels


def mean_levels(candidates: Candidates, sets: SetArrays) -> IntArray:
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
