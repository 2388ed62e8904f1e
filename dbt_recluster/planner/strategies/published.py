"""Strategies of published designs: `peak` and `above_average` of Databend, `width` of Snowflake's patent.

The first two go level by level, each partition by itself, and merge peaks at the lowest level that is not well
clustered. `width` needs no level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, Sweep, range_max, ranges_where
from dbt_recluster.planner.candidates import (
    BlockSets,
    Candidates,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
)

# Two blocks of this level that still overlap stay as they are: two merges have not separated them. Source: Databend
# (databend#19151).
_GIVE_UP_LEVEL = 2
# Base of the buckets of widths.
_FAN_OUT = 4


def peak(
    candidates: Candidates, threshold: FloatArray, max_bytes: int | None
) -> tuple[BlockSets, WorstDepth]:
    """Select the blocks over each range of points of the greatest depth, at each partition's lowest deep level.

    Source: Databend's RFC "recluster table" (databend#6905) and its first implementation (databend#6858).
    """
    return _select_peaks(candidates, threshold, max_bytes, _below_greatest)


def above_average(
    candidates: Candidates, threshold: FloatArray, max_bytes: int | None
) -> tuple[BlockSets, WorstDepth]:
    """Select the blocks over each range of points deeper than average, at each partition's lowest deep level.

    The average is that of the points where at least two blocks meet. These peaks are wider than those of `peak`, so a
    merge covers the full width of an overlap. Where all points are equally deep, all of them are a peak.

    Source: sundy-li, "Snowflake auto clustering", https://sundy-li.github.io/posts/探索snowflake-auto-clustering/.
    """
    return _select_peaks(candidates, threshold, max_bytes, _average_or_below_greatest)


def width(
    candidates: Candidates, threshold: FloatArray, max_bytes: int | None
) -> tuple[BlockSets, WorstDepth]:
    """Select the overlapping blocks of the widest bucket, in partitions above the threshold.

    A block's width is the number of blocks that it would become part of if the table were sorted: the number of
    members that it covers of the longest sequence of disjoint blocks. Buckets are powers of the fan-out. Where the
    widest bucket has no overlap, the next narrower one is added to it.

    Source: US patent 10,817,540, "Incremental clustering maintenance of a table".
    """
    sweep = candidates.sweep()
    average = average_depths(sweep.depths(), candidates.partition, len(threshold))
    waiting = average > threshold
    bucket = np.zeros(len(candidates), np.int64)
    power = _FAN_OUT
    widths = block_widths(sweep)
    while power <= int(widths.max()):
        bucket += widths >= power
        power *= _FAN_OUT
    sets = no_sets()
    for narrowest in range(int(bucket.max()), -1, -1):
        member = np.flatnonzero((bucket >= narrowest) & waiting[candidates.partition])
        formed = form_sets(candidates, member, np.zeros(len(member), np.int64), max_bytes)
        sets = sets.then(formed)
        waiting[candidates.partition[formed.member]] = False
    return sets, WorstDepth.of(average, threshold)


def _below_greatest(depth: IntArray, partition: IntArray, partitions: int) -> IntArray:
    greatest = np.zeros(partitions, np.int64)
    np.maximum.at(greatest, partition, depth)
    return greatest - 1


def _average_or_below_greatest(depth: IntArray, partition: IntArray, partitions: int) -> FloatArray:
    shared = depth >= 2
    count = np.bincount(partition[shared], minlength=partitions)
    average = np.bincount(partition[shared], depth[shared], partitions) / np.maximum(count, 1)
    bar: FloatArray = np.minimum(average, _below_greatest(depth, partition, partitions))
    return bar


def _select_peaks(
    candidates: Candidates,
    threshold: FloatArray,
    max_bytes: int | None,
    bar: Callable[[IntArray, IntArray, int], FloatArray | IntArray],
) -> tuple[BlockSets, WorstDepth]:
    """Select the blocks over each peak, at the lowest level of each partition that is not well clustered.

    A level is well clustered when the average depth of its blocks is at most the threshold. Peaks are ranges of
    neighbouring points of a partition that are deeper than its bar. ``bar`` takes the depth and the partition of each
    point, int64 (points,), and returns one for each of so many partitions. Sets come deepest first.
    """
    sets, worst = no_sets(), WorstDepth()
    partitions = len(threshold)
    waiting = np.ones(partitions, np.bool_)
    for level in np.unique(candidates.level).tolist():
        member = np.flatnonzero((candidates.level == level) & waiting[candidates.partition])
        if len(member) == 0:
            continue
        partition = candidates.partition[member]
        sweep = candidates.sweep(member)
        blocks = np.bincount(partition, minlength=partitions)
        average = average_depths(sweep.depths(), partition, partitions)
        of_level = WorstDepth.of(average, threshold)
        worst = max(worst, of_level, key=lambda one: one.depth / one.limit)
        deep = (average > threshold) & ~((blocks == 2) & (level >= _GIVE_UP_LEVEL))
        if deep.any():
            depth = sweep.point_depth()
            of_point = np.zeros(len(depth), np.int64)
            of_point[sweep.lower] = of_point[sweep.upper] = partition
            on_peak = (depth > bar(depth, of_point, partitions)[of_point]) & (depth > 1) & deep[of_point]
            block, peak = _blocks_over_peaks(sweep, depth, *ranges_where(on_peak, of_point))
            formed = form_sets(candidates, member[block], peak, max_bytes)
            sets = sets.then(formed)
            waiting[candidates.partition[formed.member]] = False
    return sets, worst


def _blocks_over_peaks(
    sweep: Sweep, depth: IntArray, begin: IntArray, last: IntArray
) -> tuple[IntArray, IntArray]:
    """Assign every block to the first peak that it covers a point of, given the first and last points of peaks.

    Returns:
        The blocks over a peak, int64 (m,), and the rank of each one's peak by height, int64 (m,), 0 for the deepest.
    """
    height = range_max(depth, begin, last)
    rank = np.empty(len(begin), np.int64)
    rank[np.lexsort((begin, -height))] = np.arange(len(begin))
    peak = np.searchsorted(last, sweep.lower)
    covers = peak < len(begin)
    covers[covers] = begin[peak[covers]] <= sweep.upper[covers]
    return np.flatnonzero(covers), rank[peak[covers]]


def block_widths(sweep: Sweep) -> IntArray:
    """Members of the longest sequence of disjoint intervals that end within each: int64 (n,), at least 1."""
    # The longest sequence always takes next the interval that ends first among those that start after its last member.
    # `following` leads from the end of one member to the end of the next, or to `points`.
    points = len(sweep.started)
    first_end: IntArray = np.full(points + 1, points)
    np.minimum.at(first_end, sweep.lower, sweep.upper)
    first_end = np.minimum.accumulate(first_end[::-1])[::-1]
    following = np.append(first_end[1:], points)
    # Jumps of 1, 2, 4, ... members reach all of them in O(log n) passes.
    member = np.zeros(points + 1, np.bool_)
    reached = first_end[:1]
    while not member[reached].all():
        member[reached] = True
        reached = following[np.flatnonzero(member)]
        following = following[following]
    passed = np.cumsum(np.append(0, member[:points]))
    widths: IntArray = np.maximum(1, passed[sweep.upper + 1] - passed[sweep.lower])
    return widths
