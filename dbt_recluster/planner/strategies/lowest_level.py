"""Peaks at the lowest level that is not well clustered, each partition by itself; for `peak` and `above_average`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.block_sets import Measured, Selection, form_sets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy

# Two blocks of this level that still overlap stay as they are: two merges have not separated them. Source: Databend
# (databend#19151).
_GIVE_UP_LEVEL = 2


@dataclass(frozen=True, eq=False)
class LevelDepths:
    """Depths at the bounds of the candidates of one level.

    Attributes:
        depth: Depth of each point, int64 (points,).
        partition: Partition of each point, int64 (points,).
        greatest: Greatest depth in each partition, int64 (partitions,).
    """

    depth: IntArray
    partition: IntArray
    greatest: IntArray

    @classmethod
    def of(cls, sweep: Sweep, partition: IntArray) -> LevelDepths:
        """Collect the depths of a sweep over blocks of these partitions, int64 (m,)."""
        depth = sweep.point_depth()
        of_point = np.zeros(len(depth), np.int64)
        of_point[sweep.lower] = partition
        of_point[sweep.upper] = partition
        greatest = np.zeros(int(partition.max()) + 1, np.int64)
        np.maximum.at(greatest, of_point, depth)
        return cls(depth, of_point, greatest)


def select_peaks(
    candidates: Candidates,
    threshold: FloatArray,
    policy: Policy,
    on_peak: Callable[[LevelDepths], BoolArray],
) -> Selection:
    """Select the blocks over each peak, at the lowest level of each partition that is not well clustered.

    A level is well clustered when the average depth of its blocks is at most the threshold.

    Args:
        candidates: c candidates.
        threshold: Greatest average depth of a well clustered level, float64 (partitions,).
        policy: Its limits on a set.
        on_peak: Returns the points on a peak, bool (points,). Neighbouring points of a partition form one peak.

    Returns:
        The sets, deepest first.
    """
    sets, measured = no_sets(), Measured()
    waiting = np.ones(len(threshold), np.bool_)
    for level in np.unique(candidates.level).tolist():
        member = np.flatnonzero((candidates.level == level) & waiting[candidates.partition])
        if len(member) == 0:
            continue
        partition = candidates.partition[member].astype(np.int64)
        sweep = candidates.sweep(member)
        blocks = np.bincount(partition, minlength=len(threshold))
        depth = np.bincount(partition, sweep.depths(), minlength=len(threshold))
        average = np.round(depth / np.maximum(blocks, 1), 4)
        of_level = Measured.worst(average, threshold)
        measured = max(measured, of_level, key=lambda one: one.depth / one.limit)
        deep = (average > threshold) & ~((blocks == 2) & (level >= _GIVE_UP_LEVEL))
        if deep.any():
            depths = LevelDepths.of(sweep, partition)
            block, peak = _blocks_over_peaks(sweep, depths, on_peak(depths) & deep[depths.partition])
            del depths
            formed = form_sets(candidates, member[block], peak, policy)
            sets = sets.then(formed)
            waiting[candidates.partition[formed.member]] = False
    return Selection(sets, measured)


def _blocks_over_peaks(sweep: Sweep, depths: LevelDepths, on_peak: BoolArray) -> tuple[IntArray, IntArray]:
    """Assign every block to the first peak that it covers a point of.

    Returns:
        The blocks over a peak, int64 (m,), and the rank of each one's peak by height, int64 (m,), 0 for the deepest.
    """
    on_peak &= depths.depth > 1
    begin, end = _ranges(on_peak, depths.partition)
    size = end - begin + 1
    height = np.maximum.reduceat(depths.depth[on_peak], np.cumsum(size) - size)
    rank = np.empty(len(begin), np.int64)
    rank[np.lexsort((begin, -height))] = np.arange(len(begin))
    peak = np.searchsorted(end, sweep.lower)
    covers = peak < len(begin)
    covers[covers] = begin[peak[covers]] <= sweep.upper[covers]
    return np.flatnonzero(covers), rank[peak[covers]]


def _ranges(where: BoolArray, partition: IntArray) -> tuple[IntArray, IntArray]:
    """First and last point of each range of neighbouring true points of one partition: int64 (ranges,) each."""
    begins, ends = where.copy(), where.copy()
    together = where[1:] & where[:-1] & (partition[1:] == partition[:-1])
    begins[1:] &= ~together
    ends[:-1] &= ~together
    return np.flatnonzero(begins), np.flatnonzero(ends)
