"""Simulation: predicts the blocks that a plan will leave behind, from bounds and row counts alone.

Dry runs, cost estimates and benchmarks use it. See `written_blocks` for what it assumes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import IntArray
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.extents import Extents
from dbt_recluster.planner.planning import Plan
from dbt_recluster.planner.planning import plan as next_plan
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.written_blocks import written_blocks


@dataclass(frozen=True)
class Simulation:
    """Result of repeating plan and merge.

    Attributes:
        blocks: The blocks at the end.
        plans: The plans in order, without empty ones.
        rows: Rows rewritten in all of them.
        bytes: Bytes read in all of them.
    """

    blocks: Blocks
    plans: tuple[Plan, ...]
    rows: int
    bytes: int


def simulate_final(blocks: Blocks, policy: Policy, rounds: int | None = None) -> Simulation:
    """Repeat plan and merge until the plan is empty.

    Args:
        blocks: n blocks.
        policy: Its `max_bytes` limits all rounds together.
        rounds: Most rounds, or None for no limit.
    """
    plans: list[Plan] = []
    spent = 0
    while rounds is None or len(plans) < rounds:
        left = None if policy.max_bytes is None else policy.max_bytes - spent
        plan = next_plan(blocks, dataclasses.replace(policy, max_bytes=left))
        if not plan.block_sets:
            break
        plans.append(plan)
        spent += plan.bytes
        blocks = simulate(blocks, plan, policy)
    return Simulation(blocks, tuple(plans), sum(plan.rows for plan in plans), spent)


def simulate(blocks: Blocks, plan: Plan, policy: Policy) -> Blocks:
    """Predict the blocks after a plan's merges.

    Each set's rows are cut into its `expected_blocks` of nearly equal size. The rows of one key stay
    in one block unless they fill more than one.

    Args:
        blocks: The n blocks that were planned.
        plan: Their plan.
        policy: Its `block_rows` is the size to cut to.

    Returns:
        The blocks in no set, in their order, then the new blocks of each set, in the order of the key.
    """
    if not plan.block_sets:
        return blocks
    written = written_blocks(
        blocks,
        [block_set.blocks for block_set in plan.block_sets],
        [block_set.expected_blocks for block_set in plan.block_sets],
        policy.block_rows,
    )
    kept = np.ones(len(blocks), np.bool_)
    kept[np.concatenate([block_set.blocks for block_set in plan.block_sets])] = False
    lower = np.concatenate([blocks.lower[kept].astype(np.float64), written.lower])
    upper = np.concatenate([blocks.upper[kept].astype(np.float64), written.upper])
    points = np.unique(np.concatenate([lower, upper]))

    # An end may lie at a bound that no longer exists; it moves outwards, as far as the block's own bound at most.
    def lower_ends(ends: IntArray) -> IntArray:
        ends_now = np.concatenate([ends[kept].astype(np.float64), written.lower])
        return np.searchsorted(points, ends_now, side="right") - 1

    def upper_ends(ends: IntArray) -> IntArray:
        return np.searchsorted(points, np.concatenate([ends[kept].astype(np.float64), written.upper]))

    def values(kept_from: IntArray, of_sets: list[int]) -> IntArray:
        return np.concatenate([kept_from[kept], np.array(of_sets, np.int64)[written.block_set]])

    counts = np.bincount(written.block_set, minlength=len(plan.block_sets)).tolist()
    sizes = [s.bytes // max(1, n) for s, n in zip(plan.block_sets, counts, strict=True)]
    old, no_block = blocks.extents, np.zeros(len(written.rows), np.bool_)
    next_run = max(0, int(blocks.run.max())) + 1
    return Blocks(
        lower=np.searchsorted(points, lower),
        upper=np.searchsorted(points, upper),
        points=len(points),
        rows=None if blocks.rows is None else np.concatenate([blocks.rows[kept], written.rows]),
        bytes=None if blocks.bytes is None else values(blocks.bytes, sizes),
        level=values(blocks.level, [block_set.level for block_set in plan.block_sets]),
        run=values(blocks.run, [next_run + block_set.run for block_set in plan.block_sets]),
        partition=values(blocks.partition, [block_set.partition for block_set in plan.block_sets]),
        unbounded=np.append(blocks.unbounded[kept], no_block),
        fixed=np.append(blocks.fixed[kept], no_block),
        extents=Extents(
            lower_ends(old.lower),
            upper_ends(old.upper),
            lower_ends(old.shown_lower),
            upper_ends(old.shown_upper),
            np.append(old.unnarrowed[kept], no_block),
        ),
        deleted=None if blocks.deleted is None else values(blocks.deleted, [0] * len(plan.block_sets)),
        reads=None if blocks.reads is None else blocks.reads.moved(points),
    )
