"""Strategies of Databend, `peak` and `above_average`: level by level in each partition, the blocks over its peaks."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, Intervals, dense_ranks, ranges_where
from dbt_recluster.planner.candidates import (
    Candidates,
    Selected,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
    own_depth,
)

# Two overlapping blocks of this level stay as they are: two merges have not separated them. Source: databend#19151.
_GIVE_UP_LEVEL = 2


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
        worst = max(worst, WorstDepth.of(average, threshold), key=lambda one: one.excess)
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
    of_all = WorstDepth.of(average, threshold)
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
