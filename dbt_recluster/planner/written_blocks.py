"""The blocks that merges will write, predicted from bounds and row counts alone.

Rows are assumed to lie evenly between a block's bounds, measured in ranks, which exist for every type of key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks


@dataclass(frozen=True, eq=False)
class WrittenBlocks:
    """Blocks that merges will write, in the order of their sets and of the key.

    Attributes:
        lower: Lower bounds on the axis of ranks, float64 (w,); whole numbers are bounds of the merged blocks.
        upper: Upper bounds, likewise.
        rows: int64 (w,).
        block_set: Index of the set that each comes from, int64 (w,).
    """

    lower: FloatArray
    upper: FloatArray
    rows: IntArray
    block_set: IntArray


def written_blocks(
    blocks: Blocks, sets: Sequence[IntArray], expected: Sequence[int] | IntArray, block_rows: int
) -> WrittenBlocks:
    """Predict the blocks that merging some sets will write.

    Args:
        blocks: n blocks.
        sets: Positions of the members of each set, int64 (k,) each.
        expected: How many blocks each set is cut into.
        block_rows: Rows in a full block.
    """
    # Offsets give every set a range of the axis of its own.
    member = np.concatenate(sets)
    set_of_member = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
    offset = set_of_member * float(blocks.points + 1)
    lower, upper = blocks.extents.lower[member] + offset, blocks.extents.upper[member] + offset
    rows = np.full(len(member), block_rows) if blocks.rows is None else blocks.rows[member]
    if blocks.deleted is not None:
        rows = rows - blocks.deleted[member]
    distribution = _Distribution.of(lower, upper, rows.astype(np.float64), set_of_member)

    total = np.bincount(set_of_member, rows).astype(np.int64)
    parts = np.asarray(expected)
    set_of_part = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(set_of_part)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins, ends = number == 0, number == parts[set_of_part] - 1
    share = distribution.total[set_of_part[~ends]] / parts[set_of_part[~ends]]
    before, after, filled = distribution.cut(set_of_part[~ends], share * (number[~ends] + 1), block_rows)

    new_lower, new_upper = np.empty(len(set_of_part)), np.empty(len(set_of_part))
    new_lower[begins], new_upper[ends] = distribution.start, distribution.end
    new_upper[~ends], new_lower[~begins] = before, after
    rows_up_to = np.empty(len(set_of_part))
    rows_up_to[ends], rows_up_to[~ends] = total, filled
    whole = np.rint(rows_up_to).astype(np.int64)
    new_rows = np.diff(whole, prepend=0)
    new_rows[begins] = whole[begins]
    offset = set_of_part * float(blocks.points + 1)
    # A cut that rounding has put at the end of its set leaves rows there, and not beyond.
    beyond = (new_lower > new_upper) & (new_rows > 0)
    new_lower[beyond] = new_upper[beyond]
    some = new_lower <= new_upper
    if blocks.deleted is not None:
        some &= new_rows > 0
    return WrittenBlocks(
        (new_lower - offset)[some], (new_upper - offset)[some], new_rows[some], set_of_part[some]
    )


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
        """Cut sets, given by index, int64 (cuts,), where these numbers of rows, float64 (cuts,), lie below.

        A cut within a step moves to the nearer side of the step, unless the step alone fills more than a block.

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
