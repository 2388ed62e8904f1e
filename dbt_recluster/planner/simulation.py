"""Simulation: predicts the blocks that a plan will leave behind, from bounds and row counts alone.

Dry runs, cost estimates and benchmarks use it. It assumes that rows lie evenly between a block's bounds, measured in
ranks, which exist for every type of key.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.planning import Plan
from dbt_recluster.planner.planning import plan as next_plan
from dbt_recluster.planner.policy import Policy


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
    written = _written(blocks, plan, policy)
    kept = np.ones(len(blocks), np.bool_)
    kept[np.concatenate([block_set.blocks for block_set in plan.block_sets])] = False
    lower = np.concatenate([blocks.lower[kept].astype(np.float64), written.lower])
    upper = np.concatenate([blocks.upper[kept].astype(np.float64), written.upper])
    points = np.unique(np.concatenate([lower, upper]))
    extent_lower = np.concatenate([blocks.extent_lower[kept].astype(np.float64), written.lower])
    extent_upper = np.concatenate([blocks.extent_upper[kept].astype(np.float64), written.upper])

    def joined(old: IntArray, of_sets: list[int]) -> IntArray:
        return np.concatenate([old[kept], np.array(of_sets, np.int64)[written.block_set]])

    written_blocks = np.bincount(written.block_set, minlength=len(plan.block_sets)).tolist()
    sizes = [s.bytes // max(1, n) for s, n in zip(plan.block_sets, written_blocks, strict=True)]
    next_run = max(0, int(blocks.run.max())) + 1
    return Blocks(
        lower=np.searchsorted(points, lower),
        upper=np.searchsorted(points, upper),
        points=len(points),
        rows=None if blocks.rows is None else np.concatenate([blocks.rows[kept], written.rows]),
        bytes=None if blocks.bytes is None else joined(blocks.bytes, sizes),
        level=joined(blocks.level, [block_set.level for block_set in plan.block_sets]),
        run=joined(blocks.run, [next_run + block_set.run for block_set in plan.block_sets]),
        partition=joined(blocks.partition, [block_set.partition for block_set in plan.block_sets]),
        unbounded=np.concatenate([blocks.unbounded[kept], np.zeros(len(written.rows), np.bool_)]),
        # An extent may end at a bound that no longer exists; it shrinks to the nearest one left.
        extent_lower=np.searchsorted(points, extent_lower),
        extent_upper=np.searchsorted(points, extent_upper, side="right") - 1,
        deleted=None if blocks.deleted is None else joined(blocks.deleted, [0] * len(plan.block_sets)),
        reads=None if blocks.reads is None else blocks.reads.moved(points),
    )


@dataclass(frozen=True, eq=False)
class _Written:
    """New blocks: bounds on the old axis of ranks, whole rows, and the index of the set that each comes from."""

    lower: FloatArray
    upper: FloatArray
    rows: IntArray
    block_set: IntArray


def _written(blocks: Blocks, plan: Plan, policy: Policy) -> _Written:
    """Cut the rows of all sets into blocks. Offsets give every set a range of the axis of its own."""
    member = np.concatenate([block_set.blocks for block_set in plan.block_sets])
    set_of_member = np.repeat(np.arange(len(plan.block_sets)), [len(s.blocks) for s in plan.block_sets])
    offset = set_of_member * float(blocks.points + 1)
    lower, upper = blocks.extent_lower[member] + offset, blocks.extent_upper[member] + offset
    rows = np.full(len(member), policy.block_rows) if blocks.rows is None else blocks.rows[member]
    if blocks.deleted is not None:
        rows = rows - blocks.deleted[member]
    distribution = _Distribution.of(lower, upper, rows.astype(np.float64), set_of_member)

    total = np.bincount(set_of_member, rows).astype(np.int64)
    parts = np.array([block_set.expected_blocks for block_set in plan.block_sets])
    set_of_part = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(set_of_part)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins, ends = number == 0, number == parts[set_of_part] - 1
    share = distribution.total[set_of_part[~ends]] / parts[set_of_part[~ends]]
    before, after, filled = distribution.cut(
        set_of_part[~ends], share * (number[~ends] + 1), policy.block_rows
    )

    new_lower, new_upper = np.empty(len(set_of_part)), np.empty(len(set_of_part))
    new_lower[begins], new_upper[ends] = distribution.start, distribution.end
    new_upper[~ends], new_lower[~begins] = before, after
    rows_up_to = np.empty(len(set_of_part))
    rows_up_to[ends], rows_up_to[~ends] = total, filled
    whole = np.rint(rows_up_to).astype(np.int64)
    new_rows = np.diff(whole, prepend=0)
    new_rows[begins] = whole[begins]
    offset = set_of_part * float(blocks.points + 1)
    some = new_lower <= new_upper
    if blocks.deleted is not None:
        some &= new_rows > 0
    return _Written((new_lower - offset)[some], (new_upper - offset)[some], new_rows[some], set_of_part[some])


@dataclass(frozen=True, eq=False)
class _Distribution:
    """Rows of a set below each key: linear between bounds, with a step at every constant block.

    Attributes:
        at: Distinct bounds of all sets, float64 (p,), ascending.
        below: Rows of the same set below each bound, float64 (p,).
        step: Rows with exactly this key, float64 (p,).
        slope: Rows per unit of the axis up to the next bound, float64 (p,).
        first: Position of each set's first bound, int64 (sets,).
        total: Rows of each set, float64 (sets,).
    """

    at: FloatArray
    below: FloatArray
    step: FloatArray
    slope: FloatArray
    first: IntArray
    total: FloatArray

    @classmethod
    def of(cls, lower: FloatArray, upper: FloatArray, rows: FloatArray, block_set: IntArray) -> _Distribution:
        at = np.unique(np.concatenate([lower, upper]))
        low, high = np.searchsorted(at, lower), np.searchsorted(at, upper)
        wide = low < high
        density = np.where(wide, rows / np.where(wide, upper - lower, 1.0), 0.0)
        slope = np.cumsum(np.bincount(low, density, len(at)) - np.bincount(high, density, len(at)))
        step = np.bincount(low[~wide], rows[~wide], len(at)).astype(np.float64)
        first = np.full(int(block_set[-1]) + 1, len(at))
        np.minimum.at(first, block_set, low)
        # No rows lie between two sets; rounding errors of the sum may say otherwise.
        last = np.append(first[1:], len(at)) - 1
        slope[last] = 0.0
        between = np.maximum(slope[:-1], 0.0) * np.diff(at) + step[:-1]
        below = np.concatenate([[0.0], np.cumsum(between)])
        total = below[last] + step[last] - below[first]
        below -= np.repeat(below[first], last - first + 1)
        return cls(at, below, step, slope, first, total)

    @property
    def start(self) -> FloatArray:
        """Least key of each set: float64 (sets,)."""
        start: FloatArray = self.at[self.first]
        return start

    @property
    def end(self) -> FloatArray:
        """Greatest key of each set: float64 (sets,)."""
        end: FloatArray = self.at[np.append(self.first[1:], len(self.at)) - 1]
        return end

    def cut(
        self, block_set: IntArray, rows: FloatArray, block_rows: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cut sets where this number of rows lies below.

        A cut within a step moves to the nearer side of the step, unless the step alone fills more than a block.

        Args:
            block_set: Index of the set to cut, int64 (cuts,).
            rows: Rows below each cut, float64 (cuts,).
            block_rows: Rows in a full block.

        Returns:
            Greatest key below each cut, least key above it, and rows below it, float64 (cuts,) each.
        """
        # Rows below restart at 0 with every set, so cuts are looked up on a sum over all sets.
        before_set = np.cumsum(np.append(0.0, self.total))
        sum_below = self.below + np.repeat(before_set[:-1], np.diff(np.append(self.first, len(self.at))))
        place = np.searchsorted(sum_below, before_set[block_set] + rows, side="right") - 1
        last = np.append(self.first[1:], len(self.at))[block_set] - 1
        place = np.clip(place, self.first[block_set], last)
        inside = rows - self.below[place]
        step, at = self.step[place], self.at[place]
        following = self.at[np.minimum(place + 1, last)]
        slope = self.slope[place]
        beyond = np.where(slope > 0, np.maximum(inside - step, 0.0) / np.where(slope > 0, slope, 1.0), 0.0)
        before = np.minimum(at + beyond, following)
        after = np.nextafter(before, np.inf)
        filled = rows.copy()
        in_step = (inside < step) & (step > 0)
        split = in_step & (step > block_rows)
        left = in_step & ~split & (inside < step / 2)
        right = in_step & ~split & ~left
        before = np.where(split | right, at, np.where(left, np.nextafter(at, -np.inf), before))
        after = np.where(split | left, at, np.where(right, np.nextafter(at, np.inf), after))
        filled[left] = self.below[place][left]
        filled[right] = (self.below[place] + step)[right]
        return before, after, filled
