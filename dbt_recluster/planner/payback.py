"""Strategy `payback`, the default: merge first where a row rewritten saves most reads."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, PlaceArray, narrow
from dbt_recluster.planner.block_sets import BlockSets, form_sets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.stacks import LEVEL_GROWTH, Stacks, extent_on_axis, level_of_loads, loads_of_level

# Overlap may stay that is this many times the threshold's.
_TOLERANCE = 1.05
# Blocks that reach across the cut between keys kept at 1 and at 2 may leave a hair above the threshold. Then the cut
# moves up by these parts of the blocks, before all is merged.
_MORE_AT_ONE = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5)


def payback(candidates: Candidates, threshold: FloatArray, policy: Policy) -> tuple[BlockSets, float]:
    """Choose block sets so that a partition's average depth falls to the threshold for the fewest rows.

    A read that comes to a block also opens the younger blocks over the same keys. What these cost over a
    block, for each of its rows, is its score: the loads merged in the younger blocks, times the block's
    share of the table's keys, over its share of the table's rows. The greater the score, the sooner a
    rewrite of the block, together with all younger ones over it, pays back. Blocks that have gone through the
    same merges are a group (`Stacks`), and are decided on together by their mean. While the average depth of a
    partition is at most the threshold, nothing is done. When it is above, the highest price is looked for at
    which merging all groups that score at least the price brings it down to the threshold. A threshold between
    1 and 2 is that of 1 for lower keys and of 2 for the others (`_one_and_two`).

    On loads that cover all keys this comes near the schedule of least work for a number of sorted runs
    (Bentley and Saxe 1980; Mathieu, Staelin, Young and Yousefi, "Bigtable merge compaction", 2014): an older
    run is merged once the younger ones have paid for it. The price instead of that schedule's counters
    lets every range of keys have its own, for one price over all of them is what least work in total means.

    Args:
        candidates: c candidates.
        threshold: float64 (partitions,), greatest average depth of a well clustered partition.
        policy: limits of a set.

    Returns:
        The sets, those that pay back soonest first; and the greatest average depth seen.
    """
    if len(candidates) == 0:
        return no_sets(), 0.0
    if ((threshold > 1) & (threshold < 2)).any():
        depth = candidates.sweep(np.arange(len(candidates))).depths()
        average = _average_depth(depth, candidates.partition, len(threshold))
        allowed = np.where(average > threshold, threshold, np.inf)
        for more in _MORE_AT_ONE:
            part, in_parts = _one_and_two(candidates, allowed, more)
            sets, _ = _down_to(candidates, part, in_parts, policy)
            if len(sets):
                return sets, float(average.max())
    return _down_to(candidates, candidates.partition, threshold, policy)


def _one_and_two(candidates: Candidates, allowed: FloatArray, more: float) -> tuple[PlaceArray, FloatArray]:
    """Cut partitions that are allowed between 1 and 2 into lower keys kept at 1 and upper keys kept at 2.

    Where every load covers all keys a table has one run or two, and 1.5 would mean one everywhere, as 1 does.
    Between greater numbers the blocks that lie across the cut cost more than this gains.

    Args:
        candidates: c candidates.
        allowed: average depth allowed in each partition, float64 (partitions,); infinite where it may stay.
        more: part of the blocks that is kept at 1 beyond what the threshold asks for.

    Returns:
        The part of each candidate, int32 (c,), twice its partition and 1 more in the upper keys; and what is
        allowed in each part, float64 (2 * partitions,), over its blocks at most as much as in the partition.
    """
    between = (allowed > 1) & (allowed < 2)
    count = np.bincount(candidates.partition, minlength=len(allowed))
    at_one = count.astype(np.float64)
    at_one[between] *= np.minimum(2 - allowed[between] + more, 1.0)
    middle = candidates.first.astype(np.int64) + candidates.last
    order = np.lexsort((middle, candidates.partition))
    partition = candidates.partition[order]
    place = np.arange(len(order)) - (np.cumsum(count) - count)[partition]
    part = np.empty(len(order), np.int32)
    part[order] = 2 * partition + (place >= np.ceil(at_one)[partition])
    in_parts = np.repeat(allowed, 2)
    in_parts[::2][between], in_parts[1::2][between] = 1.0, 2.0
    return part, in_parts


def _down_to(
    candidates: Candidates, part: PlaceArray, allowed: FloatArray, policy: Policy
) -> tuple[BlockSets, float]:
    """The sets that bring every part down to the average depth allowed in it; and the greatest that one has."""
    depth = candidates.sweep(np.arange(len(candidates))).depths()
    average = _average_depth(depth, part, len(allowed))
    deep = average > allowed
    worst = float(average.max())
    member = narrow(np.flatnonzero(deep[part] & (depth > max(policy.overlap_threshold, 1))))
    del depth
    if len(member) == 0:
        return no_sets(), worst
    # The part of all overlap that has to go. A little more than what is allowed may stay: missing it by a hair
    # would merge an old run that is not due.
    stays = np.where(deep, _TOLERANCE * (allowed - 1) / np.maximum(average - 1, 1e-9), 1.0)
    stacks = Stacks.over(candidates, member, part)
    chosen = _chosen(stacks, part[member], np.maximum(1 - stays, 1e-6))
    sets = _sets(candidates, stacks, member, chosen, policy)
    # Where limits or guards have dropped all that scores best, anything else is better than nothing.
    idle = deep.copy()
    idle[part[sets.member]] = False
    rest = idle[part[member]]
    if rest.any():
        sets = sets.then(_sets(candidates, stacks, member, rest, policy))
    return sets, worst


def _average_depth(depth: PlaceArray, part: PlaceArray, parts: int) -> FloatArray:
    """Mean depth of the blocks of each part, to 4 decimals, 0 where it has none: float64 (parts,)."""
    mean = np.bincount(part, depth, parts) / np.maximum(np.bincount(part, minlength=parts), 1)
    return np.round(mean, 4)


def written_levels(candidates: Candidates, sets: BlockSets) -> IntArray:
    """The levels of the blocks that sets will write: int64 (sets,).

    A level stands for the loads merged in a block, see `stacks.loads_of_level`. A set's is that of the mean,
    over its keys, of its blocks' loads; or, where that is clearly less, of as many loads as it has rows, if all
    were as dense as the youngest of its blocks. For a new block over all keys and an old one over few are little
    more than one load, but the old one's blocks would count for many over the new one's keys. A level is at least
    one more than the least level read, so that there is an end even where rewrites never narrow a bound.
    """
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    begin, end = extent_on_axis(candidates.first, candidates.last)
    level, extent = candidates.level[sets.member], (end - begin)[sets.member]
    hull = np.maximum.reduceat(end[sets.member], sets.start)
    hull -= np.minimum.reduceat(begin[sets.member], sets.start)
    loads = np.add.reduceat(loads_of_level(level) * extent, sets.start) / hull
    least = sets.least(candidates.level)
    youngest = level == np.repeat(least, sets.size)
    rows = np.maximum(candidates.rows[sets.member], 1).astype(np.float64)
    density = np.add.reduceat(rows * youngest, sets.start) / np.add.reduceat(extent * youngest, sets.start)
    by_rows = loads_of_level(least) * np.add.reduceat(rows, sets.start) / hull / density
    loads = np.where(by_rows * LEVEL_GROWTH < loads, by_rows, loads)
    # Chance that depends on the blocks alone: multiples of the golden ratio are spread evenly. One for the whole
    # plan, for neighbours of different level would not be merged together again.
    chance = float(sets.total(candidates.rows).sum()) * 0.6180339887498949 % 1.0
    levels: IntArray = np.maximum(level_of_loads(loads, chance), least + 1)
    return levels


def _chosen(stacks: Stacks, partition: PlaceArray, surplus: FloatArray) -> BoolArray:
    """Find each partition's price, and what is merged at it: bool (n,).

    Args:
        stacks: of n blocks.
        partition: int32 (n,).
        surplus: float64 (partitions,), part of the overlap that has to go.

    Returns:
        Which blocks are due, or younger than one that is and over the same keys.
    """
    wanted = surplus * _removed(stacks, np.ones(len(stacks), np.bool_), partition, len(surplus))
    # A group lies in one partition, and the prices that differ are those of its groups. At the lowest, all that
    # has younger blocks over it is due.
    of_group = np.zeros(len(stacks.score), np.int64)
    of_group[stacks.group] = partition
    scored = np.flatnonzero(stacks.score > 0)
    order = scored[np.lexsort((stacks.score[scored], of_group[scored]))]
    prices = np.append(stacks.score[order], np.inf)
    low = np.searchsorted(of_group[order], np.arange(len(surplus)))
    high = np.searchsorted(of_group[order], np.arange(len(surplus)), side="right") - 1
    # A partition without any has nothing that a price could find.
    low = np.where(high < low, len(order), low)
    high = np.maximum(low, high)
    chosen = _at_price(stacks, prices[low][of_group])
    while (low < high).any():
        middle = (low + high + 1) // 2
        tried = _at_price(stacks, prices[middle][of_group])
        enough = _removed(stacks, tried, partition, len(surplus)) >= wanted
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        chosen = np.where(enough[partition], tried, chosen)
    return chosen


def _at_price(stacks: Stacks, price: FloatArray) -> BoolArray:
    """What is merged at each group's price, float64 (groups,): bool (n,).

    A group is due as a whole. A run of which single blocks stay behind is never one run again: what is left of
    it lies under new blocks, is due at once, and takes young runs with it. For the same reason groups are due
    together whose scores differ by less than levels tell apart.
    """
    due = (stacks.score > 0) & (stacks.score * LEVEL_GROWTH >= price)
    return with_younger(stacks, due[stacks.group] & stacks.under)


def with_younger(stacks: Stacks, taken: BoolArray) -> BoolArray:
    """Blocks that are taken, and those over them that are as young or younger: bool (n,)."""
    result = np.zeros(len(stacks), np.bool_)
    # How far those blocks reach that are taken in the layers gone through, and begin at each unit or before.
    reach = np.zeros(2 * len(stacks), np.int32)
    some = False
    for blocks in stacks.from_old_to_young():
        oldest = blocks[taken[blocks]]
        if len(oldest):
            np.maximum.at(reach, stacks.begin[oldest], stacks.end[oldest])
            np.maximum.accumulate(reach, out=reach)
            some = True
        if some:
            result[blocks] = reach[stacks.end[blocks] - 1] > stacks.begin[blocks]
    return result


def _removed(stacks: Stacks, chosen: BoolArray, partition: PlaceArray, partitions: int) -> FloatArray:
    """Units of coverage that merging the chosen blocks takes away: float64 (partitions,)."""
    place = narrow(np.flatnonzero(chosen))
    begin, end = stacks.begin[place], stacks.end[place]
    before = np.maximum.accumulate(end)[:-1]
    # Of each block, in the order of their begins, what lies under those before it.
    twice = np.minimum(end[1:], before)
    twice -= np.minimum(begin[1:], before)
    return np.bincount(partition[place[1:]], twice, partitions).astype(np.float64)


def _sets(
    candidates: Candidates, stacks: Stacks, member: PlaceArray, chosen: BoolArray, policy: Policy
) -> BlockSets:
    """One set for each connected stretch of chosen blocks, most coverage removed for a row first."""
    place = np.flatnonzero(chosen)
    if len(place) == 0:
        return no_sets()
    begin, end = stacks.begin[place], stacks.end[place]
    reach = np.maximum.accumulate(end)
    starts = np.append(0, np.flatnonzero(begin[1:] >= reach[:-1]) + 1)
    label = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(place))))
    hull = np.maximum.reduceat(end, starts) - begin[starts]
    removed = np.add.reduceat(end - begin, starts) - hull
    rows = np.add.reduceat(stacks.rows[place], starts, dtype=np.float64)
    order = np.argsort(-removed / rows, kind="stable")
    rank = np.empty(len(starts), np.int64)
    rank[order] = np.arange(len(starts))
    return form_sets(candidates, member[place].astype(np.int64), rank[label], policy)
