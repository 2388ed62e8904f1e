"""Strategies by name: how a plan selects block sets. `payback` is the default; the others follow published designs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.candidates import Candidates, Selected, SetArrays, SetLimits
from dbt_recluster.planner.strategies.payback import payback, written_levels
from dbt_recluster.planner.strategies.peaks import peaks
from dbt_recluster.planner.strategies.width import width


@dataclass(frozen=True)
class Strategy:
    """A strategy for selecting block sets."""

    # Selects among candidates, given the threshold of each partition's average depth, float64 (partitions,).
    select: Callable[[Candidates, FloatArray, SetLimits], Selected]
    # The level of the blocks that merging each set writes, int64 (sets,).
    written_levels: Callable[[Candidates, SetArrays], IntArray]
    compacts: bool = False  # whether the plan compacts small blocks too; the others stay as published
    by_level: bool = False  # whether it compares the depth of each level with the threshold


def _one_level_up(candidates: Candidates, sets: SetArrays) -> IntArray:
    """One more than the greatest level in each set."""
    return sets.greatest(candidates.level).astype(np.int64) + 1


BY_NAME = {
    "payback": Strategy(payback, written_levels, compacts=True),
    "peak": Strategy(partial(peaks, above_average=False), _one_level_up, by_level=True),
    "above_average": Strategy(partial(peaks, above_average=True), _one_level_up, by_level=True),
    "width": Strategy(width, _one_level_up),
}
STRATEGIES = tuple(BY_NAME)
