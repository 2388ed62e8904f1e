"""Simulation: the blocks that a plan will leave behind, predicted from bounds and row counts alone.

A dry run, a cost estimate and the benchmarks all ask what a table will look like after a merge that has not
been done. Rows are taken to lie evenly between a block's bounds, measured in ranks, which exist for every
type of key.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.planning import Plan, plan
from dbt_recluster.planner.policy import Policy


@dataclass(frozen=True)
class Final:
    """What repeating plan and merge comes to.

    Attributes:
        blocks: the blocks at the end.
        plans: the plans in their order, all of which have tasks.
        rows: rows rewritten in all of them.
        bytes: bytes read in all of them.
    """

    blocks: Blocks
    plans: tuple[Plan, ...]
    rows: int
    bytes: int


def simulate_final(blocks: Blocks, policy: Policy, rounds: int | None = None) -> Final:
    """Repeat plan and merge until there is nothing left to do.

    Args:
        blocks: n blocks.
        policy: its `max_bytes` holds for all rounds together.
        rounds: stop after that many; None for no limit.

    Returns:
        The blocks and plans.
    """
    plans: list[Plan] = []
    spent = 0
    while rounds is None or len(plans) < rounds:
        left = (
            policy
            if policy.max_bytes is None
            else dataclasses.replace(policy, max_bytes=policy.max_bytes - spent)
        )
        found = plan(blocks, left)
        if not found.block_sets:
            break
        plans.append(found)
        spent += found.bytes
        blocks = simulate(blocks, found, policy)
    return Final(blocks, tuple(plans), sum(found.rows for found in plans), spent)


def simulate(blocks: Blocks, found: Plan, policy: Policy) -> Blocks:
    """Predict the blocks after a plan's merges.

    Each set's rows are cut into ceil(rows / `Policy.block_rows`) blocks, as equal as can be. A merge cuts
    between keys: the rows of one key stay in one block, unless they fill more than one by themselves.

    Args:
        blocks: the n blocks that were planned.
        found: their plan.
        policy: its `block_rows` is the size to cut to.

    Returns:
        The blocks that no task touches, in their order, then each task's new ones, in the order of the key.
    """
    if not found.block_sets:
        return blocks
    written = _written(blocks, found, policy)
    kept = np.ones(len(blocks), np.bool_)
    kept[np.concatenate([task.blocks for task in found.block_sets])] = False
    lower = np.concatenate([blocks.lower[kept].astype(np.float64), written.lower])
    upper = np.concatenate([blocks.upper[kept].astype(np.float64), written.upper])
    distinct = np.unique(np.concatenate([lower, upper]))
    extent_lower = np.concatenate([blocks.extent_lower[kept].astype(np.float64), written.lower])
    extent_upper = np.concatenate([blocks.extent_upper[kept].astype(np.float64), written.upper])

    def of_tasks(values: list[int]) -> IntArray:
        return np.array(values, np.int64)[written.task]

    def joined(old: IntArray, new: IntArray) -> IntArray:
        return np.concatenate([old[kept], new])

    blocks_of_task = np.bincount(written.task)[written.task]
    return Blocks(
        lower=np.searchsorted(distinct, lower),
        upper=np.searchsorted(distinct, upper),
        points=len(distinct),
        rows=None if blocks.rows is None else joined(blocks.rows, written.rows),
        bytes=None
        if blocks.bytes is None
        else joined(blocks.bytes, of_tasks([task.bytes for task in found.block_sets]) // blocks_of_task),
        level=joined(blocks.level, of_tasks([task.level for task in found.block_sets])),
        run=joined(
            blocks.run, max(0, int(blocks.run.max())) + 1 + of_tasks([task.run for task in found.block_sets])
        ),
        partition=joined(blocks.partition, of_tasks([task.partition for task in found.block_sets])),
        unbounded=np.concatenate([blocks.unbounded[kept], np.zeros(len(written.task), np.bool_)]),
        # An extent may end at a bound of a block that is gone; it shrinks to the nearest one left.
        extent_lower=np.searchsorted(distinct, extent_lower),
        extent_upper=np.searchsorted(distinct, extent_upper, side="right") - 1,
    )


@dataclass(frozen=True, eq=False)
class _Written:
    """New blocks: bounds on the old axis of ranks, whole rows, and the place of the task that writes each."""

    lower: FloatArray
    upper: FloatArray
    rows: IntArray
    task: IntArray


def _written(blocks: Blocks, found: Plan, policy: Policy) -> _Written:
    """Cut every task's rows into blocks, all tasks at once on an axis where each has a stretch of its own."""
    member = np.concatenate([task.blocks for task in found.block_sets])
    task = np.repeat(np.arange(len(found.block_sets)), [len(task.blocks) for task in found.block_sets])
    offset = task * float(blocks.points + 1)
    lower, upper = blocks.extent_lower[member] + offset, blocks.extent_upper[member] + offset
    rows = np.full(len(member), policy.block_rows) if blocks.rows is None else blocks.rows[member]
    mass = _Mass.of(lower, upper, rows.astype(np.float64), task)

    total = np.bincount(task, rows).astype(np.int64)
    parts = np.maximum(1, -(-total // policy.block_rows))
    part_task = np.repeat(np.arange(len(parts)), parts)
    nth = np.arange(len(part_task)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins, ends = nth == 0, nth == parts[part_task] - 1
    share = mass.total[part_task[~ends]] / parts[part_task[~ends]]
    before, after, filled = mass.cut(part_task[~ends], share * (nth[~ends] + 1), policy.block_rows)

    new_lower, new_upper = np.empty(len(part_task)), np.empty(len(part_task))
    new_lower[begins], new_upper[ends] = mass.start, mass.end
    new_upper[~ends], new_lower[~begins] = before, after
    whole = np.empty(len(part_task))
    whole[ends], whole[~ends] = total, filled
    up_to = np.rint(whole).astype(np.int64)
    new_rows = np.diff(up_to, prepend=0)
    new_rows[begins] = up_to[begins]
    offset = part_task * float(blocks.points + 1)
    some = new_lower <= new_upper
    return _Written((new_lower - offset)[some], (new_upper - offset)[some], new_rows[some], part_task[some])


@dataclass(frozen=True, eq=False)
class _Mass:
    """How many rows of a task lie below a key: linear between bounds, with a step at every constant block.

    Attributes:
        at: distinct bounds of all tasks, float64 (p,), ascending.
        below: rows of the same task below each bound, float64 (p,).
        step: rows with exactly this key, float64 (p,).
        slope: rows per unit of the axis from here to the next bound, float64 (p,).
        first: place of each task's first bound, int64 (tasks,).
        total: rows of each task, float64 (tasks,).
    """

    at: FloatArray
    below: FloatArray
    step: FloatArray
    slope: FloatArray
    first: IntArray
    total: FloatArray

    @classmethod
    def of(cls, lower: FloatArray, upper: FloatArray, rows: FloatArray, task: IntArray) -> _Mass:
        at = np.unique(np.concatenate([lower, upper]))
        low, high = np.searchsorted(at, lower), np.searchsorted(at, upper)
        wide = low < high
        density = np.where(wide, rows / np.where(wide, upper - lower, 1.0), 0.0)
        slope = np.cumsum(np.bincount(low, density, len(at)) - np.bincount(high, density, len(at)))
        step = np.bincount(low[~wide], rows[~wide], len(at)).astype(np.float64)
        first = np.full(int(task[-1]) + 1, len(at))
        np.minimum.at(first, task, low)
        # Nothing lies between two tasks, whatever rounding has left there.
        last = np.append(first[1:], len(at)) - 1
        slope[last] = 0.0
        between = np.maximum(slope[:-1], 0.0) * np.diff(at) + step[:-1]
        below = np.concatenate([[0.0], np.cumsum(between)])
        total = below[last] + step[last] - below[first]
        below -= np.repeat(below[first], last - first + 1)
        return cls(at, below, step, slope, first, total)

    @property
    def start(self) -> FloatArray:
        """Each task's least key: float64 (tasks,)."""
        start: FloatArray = self.at[self.first]
        return start

    @property
    def end(self) -> FloatArray:
        """Each task's greatest key: float64 (tasks,)."""
        end: FloatArray = self.at[np.append(self.first[1:], len(self.at)) - 1]
        return end

    def cut(
        self, task: IntArray, rows: FloatArray, block_rows: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Where to cut a task so that about so many rows lie below.

        Returns:
            Greatest key below the cut, least key above it, and rows below it, float64 (cuts,) each. A step
            moves the cut to its nearer side, unless it is more than a block by itself.
        """
        # Rows below restart at 0 with every task, so look each cut up on an axis that goes on.
        along = np.cumsum(np.append(0.0, self.total))
        whole = self.below + np.repeat(along[:-1], np.diff(np.append(self.first, len(self.at))))
        place = np.searchsorted(whole, along[task] + rows, side="right") - 1
        last = np.append(self.first[1:], len(self.at))[task] - 1
        place = np.clip(place, self.first[task], last)
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
