"""Strategy `peak`, the RFC's: level by level, merge the range or ranges of keys where most blocks meet."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, form_sets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.levels import LevelGroup, level_by_level
from dbt_recluster.planner.policy import Policy


def peak(candidates: Candidates, threshold: FloatArray, policy: Policy) -> tuple[BlockSets, float]:
    """Choose block sets as Databend's RFC does.

    Levels are looked at from 0 upwards. A level is well clustered when the average depth of its blocks is at
    most the threshold. In the first level that is not, each range of neighbouring points of the greatest
    depth gives one block set: all blocks that cover a point of it. Every partition goes through its levels by
    itself. Source: Databend's RFC on reclustering, and notes on its first implementation (databend#6858).

    Args:
        candidates: c candidates.
        threshold: float64 (partitions,), greatest average depth of a well clustered level.
        policy: limits of a set.

    Returns:
        The sets, deepest first; and the greatest average depth seen.
    """
    return level_by_level(candidates, threshold, policy, _peaks)


def _peaks(group: LevelGroup, policy: Policy) -> BlockSets:
    sweep, deep = group.sweep, group.deep
    partition_of_point = np.zeros(len(sweep.started), np.int64)
    partition_of_point[sweep.lower] = group.partition
    partition_of_point[sweep.upper] = group.partition
    depth = sweep.point_depth()
    greatest = np.zeros(len(deep), np.int64)
    np.maximum.at(greatest, group.partition, depth[sweep.lower])
    on_peak = (
        deep[partition_of_point]
        & (depth == greatest[partition_of_point])
        & (depth > policy.overlap_threshold)
    )
    member, label = first_range(sweep, *ranges(on_peak, partition_of_point))
    by_depth = np.lexsort((group.member[member], label, -greatest[group.partition[member]]))
    return form_sets(group.candidates, group.member[member][by_depth], _renumbered(label[by_depth]), policy)


def ranges(chosen: BoolArray, partition_of_point: IntArray) -> tuple[IntArray, IntArray]:
    """First and last of each run of neighbouring chosen points of one partition: int64 (ranges,) each."""
    if not chosen.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins, ends = chosen.copy(), chosen.copy()
    together = chosen[1:] & chosen[:-1] & (partition_of_point[1:] == partition_of_point[:-1])
    begins[1:] &= ~together
    ends[:-1] &= ~together
    return np.flatnonzero(begins), np.flatnonzero(ends)


def first_range(sweep: Sweep, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Give every interval to the first of these ranges that it covers a point of.

    Returns:
        The intervals that cover any, int64 (m,), and for each the place of its range, int64 (m,).
    """
    if len(begin) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.searchsorted(end, sweep.lower)
    covers = place < len(begin)
    covers[covers] = begin[place[covers]] <= sweep.upper[covers]
    return np.flatnonzero(covers), place[covers]


def _renumbered(label: IntArray) -> IntArray:
    """Labels that ascend in the order in which they stand."""
    return np.cumsum(np.concatenate([[0], label[1:] != label[:-1]])).astype(np.int64) if len(label) else label


__all__ = ["first_range", "no_sets", "peak", "ranges"]
