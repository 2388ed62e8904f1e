"""Strategy `peak`: level by level, merge the key ranges where most blocks meet."""

from __future__ import annotations

from dbt_recluster.planner.arrays import BoolArray, FloatArray
from dbt_recluster.planner.block_sets import Selection
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies.lowest_level import LevelDepths, select_peaks


def peak(candidates: Candidates, threshold: FloatArray, policy: Policy) -> Selection:
    """Select the blocks over each range of points of the greatest depth, at each partition's lowest deep level.

    Source: Databend's RFC "recluster table" (databend#6905) and its first implementation (databend#6858).

    Args:
        candidates: c candidates.
        threshold: Greatest average depth of a well clustered level, float64 (partitions,).
        policy: Its limits on a set.

    Returns:
        The sets, deepest first.
    """
    return select_peaks(candidates, threshold, policy, _deepest)


def _deepest(level: LevelDepths) -> BoolArray:
    deepest: BoolArray = level.depth == level.greatest[level.partition]
    return deepest
