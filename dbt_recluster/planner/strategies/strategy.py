"""Strategies by name: how a plan selects block sets. `payback` is the default; the others follow published designs.

`peak` and `above_average` are Databend's: level by level in each partition, the blocks over its peaks. `width` is that
of Snowflake's patent, which needs no level: overlapping blocks of like width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, Intervals, dense_ranks, ranges_where
from dbt_recluster.planner.candidates import (
    Candidates,
    Selected,
    SetArrays,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
    own_depth,
)
from dbt_recluster.planner.strategies.payback import payback, surplus_overlap, written_levels

# Two overlapping blocks of this level stay as they are: two merges have not separated them. Source: databend#19151.
_GIVE_UP_LEVEL = 2
# Base of the buckets of widths, unless merges have a limit of blocks. Not tuned; `python benchmarks/frontier.py --only
# 'width of whole buckets'` measures it.
_FAN_OUT = 4


def peaks(candidates: Candidates, threshold: FloatArray, limits: SetLimits, *, above_average: bool) -> Selected:
    """Select the blocks over each peak, at the lowest level of each partition that is not well clustered.

    A level is well clustered when the average depth of its blocks is at most the threshold. Peaks are ranges of
    neighbouring points of a partition that are as deep as its deepest one, or deeper than the average of the bounds
    where at least two blocks meet. The latter are wider, so a merge covers the full width of an overlap; where all
    points are equally deep, all of them are a peak. Sets come deepest first.

    Sources: of the former, Databend's RFC "recluster table" (databend#6905) and its first implementation
    (databend#6858); of the latter, sundy-li, "Snowflake auto clustering",
    https://sundy-li.github.io/posts/探索snowflake-auto-clustering/.
    """
    sets, worst = no_sets(), WorstDepth()
    partitions = len(threshold)
    waiting = np.ones(partitions, np.bool_)
    for level in np.unique(candidates.level).tolist():
        member = np.flatnonzero((candidates.level == level) & waiting[candidates.partition])
        if len(member) == 0:
            continue
        partition = candidates.partition[member]
        cells = candidates.cells(member)
        depth = cells.depth()
        average = average_depths(cells.greatest(depth), partition, partitions)
        worst = max(worst, WorstDepth.from_partitions(average, threshold), key=lambda one: one.excess)
        stuck = (np.bincount(partition, minlength=partitions) == 2) & (level >= _GIVE_UP_LEVEL)
        deep = (average > threshold) & ~stuck
        if deep.any():
            of_point = np.zeros(cells.size, np.int64)
            of_point[cells.begin] = of_point[cells.end - 1] = partition
            bar = np.zeros(partitions)
            np.maximum.at(bar, of_point, depth - 1.0)
            if above_average:
                bar = np.minimum(bar, _bound_depths(candidates.take(member), cells, depth, partitions))
            on_peak = (depth > bar[of_point]) & (depth > 1) & deep[of_point]
            first, last = ranges_where(on_peak, of_point)
            # Each block is in the set of the first peak that it covers a point of.
            peak = np.searchsorted(last, cells.begin)
            covers = np.append(first, cells.size)[peak] < cells.end
            formed = form_sets(candidates, member[covers], peak[covers], limits)
            sets = sets.then(formed.in_order(np.argsort(-own_depth(candidates, formed), kind="stable")))
            waiting[candidates.partition[formed.member]] = False
    average = average_depths(candidates.cells().depths(), candidates.partition, partitions)
    of_all = WorstDepth.from_partitions(average, threshold)
    if of_all.excess > 1 or worst.excess <= 1:
        worst = of_all._replace(by_level=worst.excess <= 1 < of_all.excess)
    return sets, worst


def _bound_depths(candidates: Candidates, cells: Intervals, depth: IntArray, partitions: int) -> FloatArray:
    """Mean depth of the bounds of each partition where at least two blocks meet: float64 (partitions,).

    Every distinct bound counts once, although two neighbouring ones may lie in one cell, and one bound in several.
    """
    bounds = np.concatenate([candidates.first // 2, (candidates.last + 1) // 2])
    of_bound, count = dense_ranks(bounds)
    greatest, partition = np.zeros((2, count), np.int64)
    np.maximum.at(greatest, of_bound, depth[np.concatenate([cells.begin, cells.end - 1])])
    partition[of_bound] = np.tile(candidates.partition, 2)
    shared = greatest >= 2
    total = np.bincount(partition[shared], greatest[shared], partitions)
    return total / np.maximum(np.bincount(partition[shared], minlength=partitions), 1)


def width(candidates: Candidates, threshold: FloatArray, limits: SetLimits) -> Selected:
    """Select overlapping blocks of like width, widest first, until their merges meet the threshold of each partition.

    Buckets of widths end at powers of the most blocks in a merge. Narrower buckets take their turn in the same round
    only where wider ones remove too little overlap. The blocks of wider buckets join them, except those of full sets.

    Source: US patent 10,817,540, "Incremental clustering maintenance of a table", paragraph 82.
    """
    average = average_depths(candidates.cells().depths(), candidates.partition, len(threshold))
    units, partition = candidates.units(), candidates.partition

    def removed(sets: SetArrays) -> FloatArray:
        """Overlap that merging sets removes from each partition, in units: float64 (partitions,)."""
        overlap = sets.total(units.length) - (sets.greatest(units.end) - sets.least(units.begin))
        return np.bincount(partition[sets.member[sets.start]], overlap, len(threshold)).astype(np.float64)

    all_overlaps = SetArrays(np.arange(len(units)), np.flatnonzero(np.diff(units.components(), prepend=-1)))
    wanted = np.maximum(surplus_overlap(average, threshold) * removed(all_overlaps), average > threshold)
    widths, ends = block_widths(candidates), [1]
    while ends[-1] < int(widths.max()):
        ends.append(ends[-1] * (limits.blocks or _FAN_OUT))
    bucket = np.searchsorted(ends, widths).astype(np.int8)

    def select(limits: SetLimits) -> SetArrays:
        sets = no_sets()
        for narrowest in reversed(range(1 + int(bucket.max()))):
            deep = removed(sets) < wanted
            sets = sets.only(~deep[partition[sets.member[sets.start]]] | limits.reached(sets, candidates.bytes))
            waiting = deep[partition] & (bucket >= narrowest)
            waiting[sets.member] = False
            member = np.flatnonzero(waiting)
            sets = sets.then(form_sets(candidates, member, np.zeros(len(member), np.int64), limits))
        return sets

    sets = limits.paying(select(limits._replace(pays=None)))
    if (removed(sets)[average > threshold] == 0).any():
        # Measuring the gain of every bucket lets the next one have its turn, but takes time.
        sets = select(limits)
    return sets, WorstDepth.from_partitions(average, threshold)


def block_widths(candidates: Candidates) -> IntArray:
    """Blocks of the longest sequence of disjoint blocks that each block overlaps: int64 (c,), 1 for those within it.

    Blocks that touch may follow each other in the sequence, although a touch is an overlap with it.

    Source: US patent 10,817,540, paragraph 100.
    """
    # The longest sequence always takes next the block that ends first among those that start after its last one.
    # `following` leads from the end of one member to the end of the next, or beyond the axis.
    cells = candidates.cells()
    beyond = cells.size + 1
    following: IntArray = np.full(beyond, beyond)
    np.minimum.at(following, cells.begin, cells.end)
    following = np.minimum.accumulate(following[::-1])[::-1]
    members, end = list[int](), int(following[0])
    while end < beyond:
        members.append(end)
        end = following.item(end)
    ends = np.array(members)
    # Of several blocks with one end, the shortest is the member. Candidates are in the order of their begins.
    last_with_end = np.zeros(beyond, np.int64)
    last_with_end[cells.end] = np.arange(len(cells))
    sequence = last_with_end[ends]
    lower, upper = candidates.first // 2, (candidates.last + 1) // 2
    widths: IntArray = np.searchsorted(lower[sequence], upper, side="right")
    widths -= np.searchsorted(upper[sequence], lower)
    widths[np.isin(cells.end, ends) & (cells.begin == cells.begin[last_with_end[cells.end]])] = 1
    return widths


@dataclass(frozen=True)
class Strategy:
    """A strategy for selecting block sets."""

    # Selects among candidates, given the threshold of each partition's average depth, float64 (partitions,).
    select: Callable[[Candidates, FloatArray, SetLimits], Selected]
    # The level of the blocks that merging each set writes, int64 (sets,).
    written_levels: Callable[[Candidates, SetArrays], IntArray]
    compacts: bool = False  # whether the plan compacts small blocks too; the others stay as published
    by_level: bool = False  # whether it compares the depth of each level with the threshold


def _one_level_up(candidates: Candidates, sets: SetArrays) -> IntArray:
    return sets.greatest(candidates.level).astype(np.int64) + 1


BY_NAME = {
    "payback": Strategy(payback, written_levels, compacts=True),
    "peak": Strategy(partial(peaks, above_average=False), _one_level_up, by_level=True),
    "above_average": Strategy(partial(peaks, above_average=True), _one_level_up, by_level=True),
    "width": Strategy(width, _one_level_up),
}
STRATEGIES = tuple(BY_NAME)
