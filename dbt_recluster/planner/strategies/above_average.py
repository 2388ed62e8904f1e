"""Strategy `above_average`: level by level, merge everything under each peak above the average depth."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray
from dbt_recluster.planner.block_sets import Selection
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies.lowest_level import LevelDepths, select_peaks


def above_average(candidates: Candidates, threshold: FloatArray, policy: Policy) -> Selection:
    """Select the blocks over each range of points deeper than average, at each partition's lowest deep level.

    The average is that of the points where at least two blocks meet. These peaks are wider than those of `peak`, so a
    merge covers the full width of an overlap. Where all points are equally deep, all of them are a peak.

    Source: sundy-li, "Snowflake auto clustering", https://sundy-li.github.io/posts/探索snowflake-auto-clustering/.

    Args:
        candidates: c candidates.
        threshold: Greatest average depth of a well clustered level, float64 (partitions,).
        policy: Its limits on a set.

    Returns:
        The sets, deepest first.
    """
    return select_peaks(candidates, threshold, policy, _deeper_than_average)


def _deeper_than_average(level: LevelDepths) -> BoolArray:
    shared = level.depth >= 2
    partitions = len(level.greatest)
    count = np.bincount(level.partition[shared], minlength=partitions)
    total = np.bincount(level.partition[shared], level.depth[shared], partitions)
    average = total / np.maximum(count, 1)
    deepest = level.depth == level.greatest[level.partition]
    deeper: BoolArray = deepest | (level.depth > average[level.partition])
    return deeper
