"""Strategies: how a plan selects block sets. `payback` is the default; the others follow published designs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.candidates import BlockSets, Candidates, Selected, SetLimits
from dbt_recluster.planner.strategies.age_groups import written_levels
from dbt_recluster.planner.strategies.payback import payback
from dbt_recluster.planner.strategies.published import peaks, width


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
