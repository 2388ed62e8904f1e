"""Strategies: how a plan selects block sets. `payback` is the default; the others follow published designs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, Selection
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies.above_average import above_average
from dbt_recluster.planner.strategies.levels import written_levels
from dbt_recluster.planner.strategies.payback import payback
from dbt_recluster.planner.strategies.peak import peak
from dbt_recluster.planner.strategies.width import width


@dataclass(frozen=True)
class Strategy:
    """A way to select block sets.

    Attributes:
        select: Takes candidates, the threshold of each partition's average depth, float64 (partitions,), and the
            policy.
        written_levels: Returns the level of the blocks that merging each set writes, int64 (sets,).
        compacts: Whether small blocks are joined too. The strategies of the sources stay as published.
    """

    select: Callable[[Candidates, FloatArray, Policy], Selection]
    written_levels: Callable[[Candidates, BlockSets], IntArray]
    compacts: bool = False


def _one_level_up(candidates: Candidates, sets: BlockSets) -> IntArray:
    """One more than the greatest level in each set."""
    return sets.greatest(candidates.level).astype(np.int64) + 1


BY_NAME = {
    "payback": Strategy(payback, written_levels, compacts=True),
    "peak": Strategy(peak, _one_level_up),
    "above_average": Strategy(above_average, _one_level_up),
    "width": Strategy(width, _one_level_up),
}
