"""Strategy `above_average`, the article's: level by level, merge all under each peak above the average."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray
from dbt_recluster.planner.block_sets import BlockSets, form_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.levels import LevelGroup, first_range, level_by_level, ranges
from dbt_recluster.planner.policy import Policy


def above_average(candidates: Candidates, threshold: FloatArray, policy: Policy) -> tuple[BlockSets, float]:
    """Choose block sets as the article on Snowflake's automatic clustering does.

    As in `peak`, the lowest level whose blocks have an average depth above the threshold is worked on. Every
    longest row of neighbouring points deeper than the level's average point is a peak, and every block that
    covers a point of it belongs to its set. Peaks so cut are wide, and a merge reaches as far as it helps.
    The level's average is the article's: over the points where at least two blocks meet. Where all points are
    equally deep, all of them are a peak.

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
    met = depth >= 2
    count = np.bincount(partition[met], minlength=len(group.deep))
    average = np.bincount(partition[met], depth[met], len(group.deep)) / np.maximum(count, 1)
    greatest = group.greatest_depth()[partition]
    deeper = (depth > average[partition]) | (depth == greatest)
    begin, end = ranges(group.deep[partition] & deeper & (depth > policy.overlap_threshold), partition)
    member, peak = first_range(group.sweep, begin, end)
    if len(member) == 0:
        return form_sets(group.candidates, member, peak, policy)
    height = np.maximum.reduceat(depth, np.column_stack([begin, end + 1]).ravel()[:-1])[::2]
    place = np.empty(len(begin), np.int64)
    place[np.lexsort((begin, -height))] = np.arange(len(begin))
    return form_sets(group.candidates, group.member[member], place[peak], policy)
