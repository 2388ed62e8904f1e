"""Strategies: how a plan selects block sets. `payback` is the default; the others follow published designs.

`peak` and `above_average` of Databend go level by level, each partition by itself, and merge peaks at the lowest level
that is not well clustered. `width` of Snowflake's patent needs no level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, Intervals, ranges_where
from dbt_recluster.planner.candidates import (
    BlockSets,
    Candidates,
    Selected,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
    own_depth,
)
from dbt_recluster.planner.strategies.age_groups import written_levels
from dbt_recluster.planner.strategies.payback import payback

# Two blocks of this level that still overlap stay as they are: two merges have not separated them. Source: Databend
# (databend#19151).
_GIVE_UP_LEVEL = 2
# Base of the buckets of widths, unless merges have a limit of blocks.
_FAN_OUT = 4


def peaks(
    candidates: Candidates, threshold: FloatArray, limits: SetLimits, *, above_average: bool
) -> Selected:
    """Select the blocks over each peak, at the lowest level of each partition that is not well clustered.

    A level is well clustered when the average depth of its blocks is at most the threshold. Peaks are ranges of
    neighbouring points of a partition that are as deep as its deepest one, or deeper than the average of the points
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
        of_level = WorstDepth.of(average, threshold)
        worst = max(worst, of_level, key=lambda one: one.depth / one.limit)
        stuck = (np.bincount(partition, minlength=partitions) == 2) & (level >= _GIVE_UP_LEVEL)
        deep = (average > threshold) & ~stuck
        if deep.any():
            of_point = np.zeros(cells.size, np.int64)
            of_point[cells.begin] = of_point[cells.end - 1] = partition
            bar = _peak_bars(depth, of_point, partitions, above_average)
            on_peak = (depth > bar[of_point]) & (depth > 1) & deep[of_point]
            first, last = ranges_where(on_peak, of_point)
            # Each block is in the set of the first peak that it covers a point of.
            peak = np.searchsorted(last, cells.begin)
            covers = np.append(first, cells.size)[peak] < cells.end
            formed = form_sets(candidates, member[covers], peak[covers], limits)
            sets = sets.then(formed.in_order(np.argsort(-own_depth(candidates, formed), kind="stable")))
            waiting[candidates.partition[formed.member]] = False
    return sets, worst


def _peak_bars(depth: IntArray, partition: IntArray, partitions: int, above_average: bool) -> FloatArray:
    """The depth above which points of each partition are a peak, given those of each point: float64 (partitions,)."""
    bar = np.zeros(partitions)
    np.maximum.at(bar, partition, depth - 1.0)
    if above_average:
        shared = depth >= 2
        count = np.bincount(partition[shared], minlength=partitions)
        total = np.bincount(partition[shared], depth[shared], partitions)
        np.minimum(bar, total / np.maximum(count, 1), out=bar)
    return bar


def width(candidates: Candidates, threshold: FloatArray, limits: SetLimits) -> Selected:
    """Select the overlapping blocks of the widest bucket, in partitions above the threshold.

    A block's width is the number of blocks of a sorted table that hold keys within its bounds: those of the longest
    sequence of disjoint blocks that it overlaps. Buckets are powers of the most blocks in a merge. Where the widest
    bucket has no overlap, the next narrower one is added to it. Narrower buckets wait for a later round: to take all of
    them at once rewrites up to five times as much, because it is not known yet how much overlap the wide merges leave.

    Source: US patent 10,817,540, "Incremental clustering maintenance of a table".
    """
    average = average_depths(candidates.cells().depths(), candidates.partition, len(threshold))
    waiting = average > threshold
    # Bounds that touch count here, as they do in the depth that is reported.
    widths = block_widths(Intervals.of_closed(candidates.first // 2, (candidates.last + 1) // 2))
    sets, narrowest = no_sets(), 1
    base = limits.blocks or _FAN_OUT
    while narrowest * base <= int(widths.max()):
        narrowest *= base
    while narrowest:
        member = np.flatnonzero(waiting[candidates.partition] & (widths >= narrowest))
        formed = form_sets(candidates, member, np.zeros(len(member), np.int64), limits)
        sets = sets.then(formed)
        waiting[candidates.partition[formed.member]] = False
        narrowest //= base
    return sets, WorstDepth.of(average, threshold)


def block_widths(intervals: Intervals) -> IntArray:
    """Members of the longest sequence of disjoint intervals that each one overlaps: int64 (n,), at least 1."""
    # The longest sequence always takes next the interval that ends first among those that start after its last member.
    # `following` leads from the end of one member to the end of the next, or beyond the axis.
    beyond = intervals.size + 1
    following: IntArray = np.full(beyond, beyond)
    np.minimum.at(following, intervals.begin, intervals.end)
    following = np.minimum.accumulate(following[::-1])[::-1]
    members, end = list[int](), int(following[0])
    while end < beyond:
        members.append(end)
        end = following.item(end)
    ends = np.array(members)
    # Of several intervals with one end, the shortest is the member.
    begin_of_end = np.zeros(beyond, np.int64)
    np.maximum.at(begin_of_end, intervals.end, intervals.begin)
    widths: IntArray = np.searchsorted(begin_of_end[ends], intervals.end)
    widths -= np.searchsorted(ends, intervals.begin, side="right")
    return widths


@dataclass(frozen=True)
class Strategy:
    """A strategy for selecting block sets.

    Attributes:
        select: Selects among candidates, given the threshold of each partition's average depth, float64 (partitions,),
            and the most of a set.
        written_levels: Returns the level of the blocks that merging each set writes, int64 (sets,).
        compacts: Whether the plan compacts small blocks too. The other strategies stay as published.
        by_level: Whether blocks of different levels are neither compared nor merged, as in the RFC and the article.
    """

    select: Callable[[Candidates, FloatArray, SetLimits], Selected]
    written_levels: Callable[[Candidates, BlockSets], IntArray]
    compacts: bool = False
    by_level: bool = False


def _one_level_up(candidates: Candidates, sets: BlockSets) -> IntArray:
    """One more than the greatest level in each set."""
    return sets.greatest(candidates.level).astype(np.int64) + 1


BY_NAME = {
    "payback": Strategy(payback, written_levels, compacts=True),
    "peak": Strategy(partial(peaks, above_average=False), _one_level_up, by_level=True),
    "above_average": Strategy(partial(peaks, above_average=True), _one_level_up, by_level=True),
    "width": Strategy(width, _one_level_up),
}
STRATEGIES = tuple(BY_NAME)
