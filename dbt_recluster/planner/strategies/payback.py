"""Strategy `payback`, the default: merge first where a rewritten row saves most reads.

docs/design/planner.md explains its fifteen steps; the functions here and in the modules beside this one bear their
names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, narrow
from dbt_recluster.planner.candidates import (
    BlockSets,
    Candidates,
    Selected,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
)
from dbt_recluster.planner.reads import EVEN_SHARE
from dbt_recluster.planner.strategies.age_groups import LEVEL_GROWTH, AgeGroups

# This many times the overlap that the threshold allows may stay, because the share of overlap that a merge removes is
# an estimate. Without it, an estimate that misses the threshold by a hair merges an old run too early: uniform sorted
# loads cost 5 % more work (four seeds).
_TOLERANCE = 1.05
# Blocks across the cut of `split_keys` may leave nothing to merge on either side, with the average a hair above the
# threshold. Then the cut moves up by these shares of the blocks until there is something to merge. If all keys were
# merged at once instead, a threshold of 1.5 would rewrite two full runs rather than half of them.
_CUT_STEPS = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)


def payback(candidates: Candidates, threshold: FloatArray, limits: SetLimits) -> Selected:
    """Select block sets that bring the average depth of every partition down to its threshold, for the fewest rows.

    A read of an old block also opens the younger blocks over the same keys. Merging them into it saves these reads and
    costs the rewrite of its rows. Groups of blocks of one age (`AgeGroups`) are merged in the order of that
    benefit-cost ratio, together with all younger blocks over them, until the threshold is met.

    On loads that cover all keys this is close to the schedule of least work for a number of sorted runs, in which an
    older run is merged once the younger ones have paid for it (Bentley and Saxe, "Decomposable searching problems",
    1980; Mathieu, Staelin, Young and Yousefi, "Bigtable merge compaction", 2014). One cutoff for all groups of a
    partition, instead of that schedule's counters, lets every key range have a schedule of its own.

    Sets come in the order of the coverage that they remove for each row. Arguments are those of `Strategy.select`.
    """
    depth = candidates.reducible_depths()
    depths = PartDepths.of(candidates, depth, candidates.partition, threshold)
    deep = depths.is_deep
    if not deep.any():
        return no_sets(), depths.worst
    # The lower and the upper part of each partition, see `split_keys`.
    allowed = np.column_stack([np.ones(len(threshold)), np.maximum(threshold, 2.0)])
    allowed[~deep] = np.inf
    share = np.where(deep, np.clip(2 - threshold, 0.0, 1.0), 0.0)
    # Measuring the gain takes memory, so it comes last.
    sets, sizes = no_sets(), limits._replace(worthwhile=None)
    for step in _CUT_STEPS:
        cut = np.where(share > 0, np.minimum(share + step, 1.0), 0.0)
        sets = _sets_down_to(candidates, depth, split_keys(candidates, cut), allowed.ravel(), sizes)
        sets = limits.gainful(sets)
        if len(sets) or (cut % 1 == 0).all():
            break
    return sets, depths.worst


@dataclass(frozen=True, eq=False)
class PartDepths:
    """The depth that the threshold limits in each part of a plan.

    Where no reads are known, that is the average depth. Otherwise it is the read depth; and the average depth against a
    much higher limit, so that keys that no read asks for do not overlap without bound.
    """

    depth: FloatArray  # float64 (parts,)
    limit: FloatArray  # the greatest depth allowed, float64 (parts,)
    by_reads: BoolArray  # whether it is the read depth, (parts,)
    worst: WorstDepth  # the read depth if it is known, unless the average depth alone exceeds its limit

    @property
    def is_deep(self) -> BoolArray:
        """Whether the depth exceeds its limit: bool (parts,)."""
        return self.depth > self.limit

    @classmethod
    def of(cls, candidates: Candidates, depth: IntArray, part: IntArray, allowed: FloatArray) -> PartDepths:
        """Measure parts with these depths of blocks, int32 (c,), against what is allowed, float64 (parts,)."""
        average = average_depths(depth, part, len(allowed))
        if candidates.blocks.reads is None:
            return cls(average, allowed, np.zeros(len(allowed), np.bool_), WorstDepth.of(average, allowed))
        read = np.round(read_depths(candidates, part, len(allowed)), 4)
        by_reads = read > allowed
        compared, limit = np.where(by_reads, read, average), np.where(by_reads, allowed, allowed / EVEN_SHARE)
        worst = WorstDepth.of(read, allowed, by_reads=True)
        if (compared > limit).any() and not by_reads.any():
            worst = WorstDepth.of(compared, limit)
        return cls(compared, limit, by_reads, worst)


def read_depths(candidates: Candidates, part: IntArray, parts: int) -> FloatArray:
    """Mean depth at the ends of reads in each part, 1 if no read ends there: float64 (parts,)."""
    reads = candidates.blocks.reads
    assert reads is not None
    order = np.argsort(part, kind="stable")
    first, last, part = candidates.first[order], candidates.last[order], part[order]
    low = reads.below_cells(first)
    high = reads.below_cells(last + 1)
    weight = np.bincount(part, high - low, parts)
    # Each part gets a range of weights of its own, in the order of parts.
    offset = part * (1.0 + float(high.max()))
    low, high = low + offset, high + offset
    high_before = np.append(-np.inf, np.maximum.accumulate(high)[:-1])
    covered = np.bincount(part, np.maximum(high - np.maximum(low, high_before), 0.0), parts)
    return np.divide(weight, covered, out=np.ones(parts), where=covered > 0)


def split_keys(candidates: Candidates, share: FloatArray) -> IntArray:
    """Split every partition into a lower part with this share of its blocks, and an upper part with the others.

    Where every load covers all keys, a table has one run or two. A threshold of 1.5 would mean one run, as 1 does.
    So the lower part is merged down to 1, the upper part to 2, and the mean over both is right. Above 2 a cut costs
    more than it gains, because blocks across it are merged with both parts. Where reads are known, the lower part is
    that of the blocks over the keys at which most of them end, and has this share of the price.

    Args:
        candidates: c candidates.
        share: Share of the lower part, float64 (partitions,), from 0 to 1.

    Returns:
        The part of each candidate, int32 (c,): twice its partition, and 1 more in the upper part.
    """
    partition = candidates.partition
    if (share % 1 == 0).all():
        uncut: IntArray = (2 * np.arange(len(share), dtype=np.int32) + (share == 0))[partition]
        return uncut
    middle = candidates.first.astype(np.int64) + candidates.last
    weight: FloatArray = np.ones(len(partition))
    keys = [middle, partition]
    if candidates.blocks.reads is not None:
        prices = candidates.prices(candidates.units())
        weight = prices.length.astype(np.float64)
        keys.insert(1, -prices.dearest_power)
    order = np.lexsort(keys)
    of_place, weight = partition[order], weight[order]
    total = np.bincount(of_place, weight, len(share))
    before = np.cumsum(weight) - weight - (np.cumsum(total) - total)[of_place]
    part = np.empty(len(order), np.int32)
    part[order] = 2 * of_place + (before >= (share * total)[of_place])
    return part


def _sets_down_to(
    candidates: Candidates, depth: IntArray, part: IntArray, allowed: FloatArray, limits: SetLimits
) -> BlockSets:
    """Select sets that bring every part down to the average depth allowed in it, float64 (parts,)."""
    depths = PartDepths.of(candidates, depth, part, allowed)
    deep = depths.is_deep
    member = narrow(np.flatnonzero(deep[part] & (depth > 1)))
    if len(member) == 0:
        return no_sets()
    part = part[member]
    by_reads = depths.by_reads[0::2] | depths.by_reads[1::2]
    groups = AgeGroups.of(candidates, member, part, by_reads)
    merged, cutoff = merge_to_cutoff(groups, surplus_overlap(depths.depth, depths.limit))
    sets = rank_sets(groups, merged, limits)
    # Limits may drop all sets of a part. Then the part falls back to any overlap.
    idle = deep
    idle[part[np.searchsorted(member, sets.member)]] = False
    rest = idle[part] & (groups.prices.length > 0)
    if rest.any():
        sets = sets.then(rank_sets(groups, rest, limits))
    if not len(sets):
        return sets
    cutoff[idle] = 0
    return replace(sets, benefit_cost=ratios_of_sets(groups, sets, merged | rest, cutoff))


def surplus_overlap(average: FloatArray, allowed: FloatArray) -> FloatArray:
    """Share of the overlap to remove for the average depth to fall to the allowed one: float64 (parts,)."""
    stays = np.divide(
        _TOLERANCE * (allowed - 1), average - 1, out=np.ones_like(average), where=average > allowed
    )
    surplus: FloatArray = np.maximum(1 - stays, 0.0)
    return surplus


def merge_to_cutoff(groups: AgeGroups, surplus: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Lower the cutoff of the benefit-cost ratio until merges remove this share of the removable coverage.

    Shares are those of each part, float64 (parts,). Returns the blocks to merge, bool (n,), and the cutoffs, (parts,).
    """
    parts = len(surplus)
    wanted = surplus * removed_coverage(groups, np.ones(len(groups), np.bool_), parts)
    # Prices have rounding errors.
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
        enough = removed_coverage(groups, trial, parts) >= wanted
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        merged = np.where(enough[groups.part], trial, merged)
    return merged, cutoffs[low]


def merge_at(groups: AgeGroups, cutoff: FloatArray) -> BoolArray:
    """The blocks to merge at this cutoff for every group, float64 (groups,): bool (n,).

    Groups are merged as a whole. A run of which single blocks stay behind is never one run again: they lie under new
    blocks, are above the cutoff at once, and take young runs with them. Levels tell numbers of loads apart only up to
    `LEVEL_GROWTH`, so groups whose ratios differ by less are merged together; exact ratios cost 6 % more work.
    """
    pays = (groups.benefit_cost > 0) & (groups.benefit_cost * LEVEL_GROWTH >= cutoff)
    return groups.with_younger(pays[groups.group] & groups.covered)


def ratios_of_sets(groups: AgeGroups, sets: BlockSets, merged: BoolArray, cutoff: FloatArray) -> FloatArray:
    """The two ratios of `BlockSet` for each set, at these cutoffs of parts; NaN if there is none: float64 (sets, 2)."""
    ratio = np.where(groups.covered, groups.benefit_cost[groups.group], 0)
    left = np.zeros(len(cutoff))
    np.maximum.at(left, groups.part[~merged], ratio[~merged])
    place = np.searchsorted(groups.member, sets.member)
    pays = (ratio > 0) & (ratio * LEVEL_GROWTH >= cutoff[groups.part])
    least = np.minimum.reduceat(np.where(pays, ratio, np.inf)[place], sets.start)
    found = np.column_stack([least, left[groups.part[place[sets.start]]]])
    # A set that limits cut may have none of the groups that pay.
    return np.where((found > 0) & (least < np.inf)[:, None], found, np.nan)


def removed_coverage(groups: AgeGroups, merged: BoolArray, parts: int) -> FloatArray:
    """Price of the coverage that merging these blocks removes: float64 (parts,)."""
    place = narrow(np.flatnonzero(merged))
    low, high = groups.prices.low[place], groups.prices.high[place]
    reach = np.maximum.accumulate(high)[:-1]
    # Blocks are in the order of their begins. What a block shares with those before it goes.
    shared = np.minimum(high[1:], reach)
    shared -= np.minimum(low[1:], reach)
    return np.bincount(groups.part[place[1:]], shared, parts).astype(np.float64)


def rank_sets(groups: AgeGroups, merged: BoolArray, limits: SetLimits) -> BlockSets:
    """Make one set of every connected range of blocks to merge, most coverage removed for each row first."""
    place = narrow(np.flatnonzero(merged))
    label = groups.intervals.take(place).components()
    ranges = BlockSets(place, np.flatnonzero(np.diff(label, prepend=-1)))
    hull = ranges.greatest(groups.prices.high) - ranges.least(groups.prices.low)
    removed = ranges.total(groups.prices.length) - hull
    rank = np.empty(len(ranges), np.int64)
    rank[np.argsort(-removed / ranges.total(groups.rows), kind="stable")] = np.arange(len(ranges))
    return form_sets(groups.candidates, groups.member[place].astype(np.int64), rank[label], limits)
