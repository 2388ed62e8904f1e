"""Going through levels, as the RFC and the article do: lowest first, each partition by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy

# A pair of blocks that has been rewritten twice is left alone, as in Databend (databend#19151): strings cut
# to a common prefix would otherwise be merged for ever.
_PAIR_LEVEL = 2


@dataclass(frozen=True, eq=False)
class LevelGroup:
    """The candidates of one level, in the partitions that have not yet found work at a lower one.

    Attributes:
        candidates: all candidates.
        member: those of this level, places in the candidates, int64 (m,).
        partition: their partitions, int64 (m,).
        sweep: over their cells.
        deep: whether each partition's average depth at this level is above its threshold, bool (partitions,).
    """

    candidates: Candidates
    member: IntArray
    partition: IntArray
    sweep: Sweep
    deep: BoolArray

    @property
    def partition_of_point(self) -> IntArray:
        """The partition of each point of the sweep: int64 (points,)."""
        partition = np.zeros(len(self.sweep.started), np.int64)
        partition[self.sweep.lower] = self.partition
        partition[self.sweep.upper] = self.partition
        return partition

    def greatest_depth(self) -> IntArray:
        """The greatest depth of each partition at this level, 0 without blocks: int64 (partitions,)."""
        greatest = np.zeros(len(self.deep), np.int64)
        np.maximum.at(greatest, self.partition, self.sweep.point_depth()[self.sweep.lower])
        return greatest


def level_by_level(
    candidates: Candidates,
    threshold: FloatArray,
    policy: Policy,
    choose: Callable[[LevelGroup, Policy], BlockSets],
) -> tuple[BlockSets, float]:
    """Let each partition find work at the lowest of its levels that is not well clustered.

    Args:
        candidates: c candidates.
        threshold: float64 (partitions,), greatest average depth of a well clustered level.
        policy: handed on.
        choose: finds the sets of the partitions that are deep at one level.

    Returns:
        The sets, and the greatest average depth that was compared with the threshold.
    """
    sets, worst = no_sets(), 0.0
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
        worst = max(worst, float(average.max()))
        deep = (average > threshold) & ~((blocks == 2) & (level >= _PAIR_LEVEL))
        if deep.any():
            found = choose(LevelGroup(candidates, member, partition, sweep, deep), policy)
            sets = sets.then(found)
            waiting[candidates.partition[found.member]] = False
    return sets, worst


def ranges(chosen: BoolArray, partition_of_point: IntArray) -> tuple[IntArray, IntArray]:
    """First and last of each row of neighbouring chosen points of one partition: int64 (ranges,) each."""
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
    place = np.searchsorted(end, sweep.lower)
    covers = place < len(begin)
    covers[covers] = begin[place[covers]] <= sweep.upper[covers]
    return np.flatnonzero(covers), place[covers]
