"""The sets of a plan: those of the strategy, those that join small blocks, and those of one block with deleted rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, Measured, fit_into_bytes
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.compaction import select_compactions
from dbt_recluster.planner.deleted_rows import select_purges
from dbt_recluster.planner.gain import Gain, reveals_less
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.small_blocks import full_blocks
from dbt_recluster.planner.strategies import BY_NAME
from dbt_recluster.planner.strategies.axis import Intervals, Prices

# Kinds of sets.
MERGE, COMPACTION, PURGE = range(3)


@dataclass(frozen=True, eq=False)
class SelectedSets:
    """The sets of a plan.

    Attributes:
        sets: Those of the strategy, those that join small blocks, and those of one block with many deleted rows, best
            first.
        kind: Which of the three each is: `MERGE`, `COMPACTION` or `PURGE`, int64 (sets,).
        measured: What the strategy compared with a threshold.
    """

    sets: BlockSets
    kind: IntArray
    measured: Measured

    def of(self, kind: int) -> BlockSets:
        """The sets of one kind."""
        return self.sets.only(self.kind == kind)


def select_sets(blocks: Blocks, eligible: Candidates, thresholds: FloatArray, policy: Policy) -> SelectedSets:
    """Select the strategy's sets and those beside it, as far as they fit into the budget."""
    strategy = BY_NAME[policy.strategy]
    sets, measured = strategy.select(eligible, thresholds, policy)
    sets = _worthwhile(blocks, eligible, sets, policy)
    kind = np.full(len(sets), MERGE)
    if strategy.compacts:
        joins = select_compactions(blocks, eligible, sets.member, policy)
        purges = select_purges(blocks, eligible, np.concatenate([sets.member, joins.member]), policy)
        kind = np.repeat([MERGE, COMPACTION, PURGE], [len(sets), len(joins), len(purges)])
        sets = sets.then(joins).then(purges)
        # The order of the strategy, or along the key, where there is nothing to compare.
        if len(purges) or len(np.unique(kind)) > 1:
            order = np.argsort(-_savings(eligible, sets, policy), kind="stable")
            sets, kind = sets.in_order(order), kind[order]
    fits = fit_into_bytes(eligible, sets, policy.max_bytes)
    return SelectedSets(sets.only(fits), kind[fits], measured)


def _worthwhile(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> BlockSets:
    """The sets that lower a depth, leave fewer blocks, or rewrite a block with many deleted rows."""
    sets = sets.only(reveals_less(blocks, eligible.position[sets.member], sets))
    if len(sets) == 0:
        return sets
    gain = Gain.of(blocks, eligible.position[sets.member], sets)
    expected = expected_blocks(eligible, sets, policy)
    worth = gain.lowers_average(expected, policy.block_rows) | gain.lowers_reads() | (expected < sets.size)
    return sets.only(worth | (sets.total(eligible.deleted_share >= policy.deleted_share) > 0))


def _savings(eligible: Candidates, sets: BlockSets, policy: Policy) -> FloatArray:
    """Blocks that reads need not open after each set is merged, for each byte rewritten: float64 (sets,).

    A read of one key opens every block over it, and a read of a range, or planning a scan, every block in it. So a set
    saves the coverage that it removes, in lengths of blocks, and the blocks that it leaves fewer. Both count alike, as
    if there were a read of a range as long as a block for each read of one key. Of a block with deleted rows, both
    kinds of read waste that share.
    """
    intervals = Intervals.of(eligible.first, eligible.last)
    prices = Prices.of(intervals, eligible, np.arange(len(eligible))).take(sets.member)
    intervals = intervals.take(sets.member)
    hull = np.maximum.reduceat(prices.high, sets.start) - np.minimum.reduceat(prices.low, sets.start)
    # A block alone on the axis is two units long.
    removed = (np.add.reduceat(prices.length.astype(np.float64), sets.start) - hull) / 2
    fewer = np.maximum(sets.size - expected_blocks(eligible, sets, policy), 0)
    wasted = eligible.deleted_share[sets.member] * (intervals.length / 2 + 1)
    cost = sets.total(eligible.bytes if eligible.bytes.any() else eligible.rows)
    saved = np.maximum(removed, 0) + fewer + np.add.reduceat(wasted, sets.start)
    savings: FloatArray = saved / np.maximum(cost, 1)
    return savings


def expected_blocks(eligible: Candidates, sets: BlockSets, policy: Policy) -> IntArray:
    """Blocks that merging each set will write: int64 (sets,)."""
    rows, size = sets.total(eligible.live_rows), sets.total(eligible.live_bytes)
    return full_blocks(rows, size, policy.block_rows, policy.block_bytes)


def depth_thresholds(blocks: Blocks, policy: Policy) -> FloatArray:
    """Threshold of each partition's average depth, float64 (partitions,)."""
    count = np.bincount(blocks.partition)
    if policy.depth >= 1:
        return np.full(len(count), float(policy.depth))
    thresholds: FloatArray = np.maximum(1.0, policy.depth * count)
    return thresholds
