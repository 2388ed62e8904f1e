"""Strategy `peak`, the RFC's: level by level, merge the range or ranges of keys where most blocks meet."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray
from dbt_recluster.planner.block_sets import BlockSets, form_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.levels import LevelGroup, first_range, level_by_level, ranges
from dbt_recluster.planner.policy import Policy


def peak(candidates: Candidates, threshold: FloatArray, policy: Policy) -> tuple[BlockSets, float]:
    """Choose block sets as Databend's RFC does.

    Levels are looked at from 0 upwards. A level is well clustered when the average depth of its blocks is at
    most the threshold. In the first level that is not, each range of neighbouring points of the greatest
    depth gives one block set: all blocks that cover a point of it. Every partition goes through its levels by
    itself.
    Source: Databend's RFC on reclustering, and its first implementation (databend#6858).

    Args:
        candidates: c candidates.
        threshold: float64 (partitions,), greatest average depth of a well clustered level.
        policy: limits of a set.

    Returns:
        The sets, deepest first; and the greatest average depth seen.
    """
    return level_by_level(candidates, threshold, policy, _peaks)


def _peaks(group: LevelGroup, policy: Policy) -> BlockSets:
    depth, partition = group.sweep.point_depth(), group.partition_of_point
    greatest = group.greatest_depth()
    on_peak = group.deep[partition] & (depth == greatest[partition]) & (depth > policy.overlap_threshold)
    begin, end = ranges(on_peak, partition)
    member, found = first_range(group.sweep, begin, end)
    place = np.empty(len(begin), np.int64)
    place[np.lexsort((begin, -depth[begin]))] = np.arange(len(begin))
    return form_sets(group.candidates, group.member[member], place[found], policy)
