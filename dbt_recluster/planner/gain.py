"""Gain: what a merge writes, predicted from bounds and row counts alone, and whether that changes anything for a query.

Rows are assumed to lie evenly between a block's bounds, measured in ranks, which exist for every type of key.

Two kinds of sets are not worth a merge, although their blocks overlap.

If bounds are wider than the keys in a block, the bounds of a run's blocks overlap, and only the run says that the
blocks do not. A merge moves some of them to another run, so the others lose that protection. Without `reveals_less`,
planning would merge two neighbours, then one of them with the next, and then the first two again.

A set may also remove overlap only where none of its blocks is deepest, or where other blocks overlap them anyway.
Limits on bytes make such sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Segments,
    numbers_within,
    range_max,
    ranges_where,
)
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import BlockSets


def reveals_less(blocks: Blocks, sets: BlockSets) -> BoolArray:
    """Whether merging each set removes more overlap, in ranks, than it reveals, or reveals none: bool (sets,)."""
    extents = blocks.extents
    hidden = (extents.shown_lower != extents.lower) | (extents.shown_upper != extents.upper)
    if not (hidden | extents.unnarrowed).any():
        return np.ones(len(sets), np.bool_)
    known = np.flatnonzero((blocks.run > 0) & (extents.shown_lower < extents.shown_upper))
    segments = Segments.of(extents.shown_lower[known], extents.shown_upper[known], blocks.run[known])
    stays = np.ones(len(blocks), np.bool_)
    stays[sets.member] = False
    # Several blocks of the run overlap here now, and only one of them stays.
    shown = (segments.depth() > 1) & (segments.depth(stays[known]) == 1)
    of_block = np.zeros(len(blocks), np.int64)
    of_block[known] = segments.total(np.where(shown, segments.length, 0))
    revealed = sets.total(of_block)
    hull = sets.greatest(extents.upper) - sets.least(extents.lower)
    removed = sets.total(extents.upper - extents.lower) - hull
    less: BoolArray = (revealed == 0) | (revealed < removed)
    return less


@dataclass(frozen=True, eq=False)
class Gain:
    """The changes that merging each set, by itself, would make.

    Bounds, and the gaps between them, are cells as in `candidates`. Here blocks also cover the cells of their bounds,
    as they do for queries.
    """

    blocks: Blocks
    sets: BlockSets  # members are positions in the blocks
    segments: Segments  # the cells of each set, cut where its members begin and end
    surplus: IntArray  # members over each segment, but one: int64 (segments,)
    depth: IntArray  # blocks over each cell, int32 (cells,)

    @classmethod
    def of(cls, blocks: Blocks, sets: BlockSets) -> Gain:
        """Weigh sets of blocks."""
        lower, upper = blocks.lower[sets.member], blocks.upper[sets.member]
        segments = Segments.of(2 * lower, 2 * upper + 1, sets.set_of_member)
        sweep = blocks.sweep()
        depth = np.column_stack([sweep.started - sweep.ended[:-1], sweep.started - sweep.ended[1:]]).ravel()
        return cls(blocks, sets, segments, np.maximum(segments.depth() - 1, 0), depth)

    def lowers_average(self, expected: IntArray, block_rows: int) -> BoolArray:
        """Whether the average depth of the blocks of its partition falls: bool (sets,).

        Args:
            expected: How many blocks each set is cut into, int64 (sets,).
            block_rows: Rows in a full block.
        """
        blocks, sets, segments = self.blocks, self.sets, self.segments
        ends = segments.begins + np.maximum(segments.length - 1, 0)
        greatest = range_max(self.depth, segments.begins, ends)
        written = written_blocks(blocks, sets, expected, block_rows)
        depth = range_max(
            (greatest - self.surplus).astype(np.int32),
            segments.at(written.block_set, _cells(written.lower)),
            segments.at(written.block_set, _cells(written.upper)),
        )
        of_block = range_max(self.depth, 2 * blocks.lower, 2 * blocks.upper)
        change = np.bincount(written.block_set, depth, len(sets)).astype(np.int64) - sets.total(of_block)
        more = np.bincount(written.block_set, minlength=len(sets)) - sets.size
        # Compare with the average of the set's partition, so that no partition depends on another.
        _, partition = np.unique(blocks.partition, return_inverse=True)
        count, total = np.bincount(partition), np.bincount(partition, of_block).astype(np.int64)
        own = partition[sets.member[sets.start]]
        lowers: BoolArray = change * count[own] < total[own] * more
        return lowers if lowers.all() else lowers | self._lowers_others()

    def lowers_reads(self) -> BoolArray:
        """Whether reads end where members overlap: bool (sets,)."""
        reads = self.blocks.reads
        if reads is None:
            return np.zeros(len(self.sets), np.bool_)
        before = np.append(0.0, np.cumsum(np.column_stack([reads.at, reads.after])))
        begin, end, of_set = self._overlaps()
        return np.bincount(of_set, before[end] - before[begin], len(self.sets)) > 0

    def _lowers_others(self) -> BoolArray:
        """Whether the depth of a block in no set falls: bool (sets,)."""
        cells = len(self.depth)
        other = np.ones(len(self.blocks), np.bool_)
        other[self.sets.member] = False
        lower, upper = 2 * self.blocks.lower[other], 2 * self.blocks.upper[other]
        # The first and the last cell where each is deepest.
        place = np.arange(cells)
        rank = self.depth.astype(np.int64) * cells
        first = cells - 1 - range_max(rank + place[::-1], lower, upper) % cells
        last = range_max(rank + place, lower, upper) % cells
        least_last = np.full(cells + 1, cells)
        np.minimum.at(least_last, first, last)
        least_last = np.minimum.accumulate(least_last[::-1])[::-1]
        begin, end, of_set = self._overlaps()
        return np.bincount(of_set, least_last[begin] < end, len(self.sets)) > 0

    def _overlaps(self) -> tuple[IntArray, IntArray, IntArray]:
        """Ranges of cells where members of a set overlap: first cells, cells behind, and sets, int64 (k,) each."""
        segments = self.segments
        first, last = ranges_where(self.surplus > 0, segments.group)
        return segments.begins[first], segments.begins[last] + segments.length[last], segments.group[first]


def _cells(places: FloatArray) -> IntArray:
    """Cells of places on the axis of ranks."""
    rank = np.floor(places)
    return (2 * rank + (places > rank)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class WrittenBlocks:
    """Blocks that merges will write, in the order of their sets and of the key."""

    lower: FloatArray  # lower bounds on the axis of ranks, float64 (w,); whole numbers are bounds of merged blocks
    upper: FloatArray  # upper bounds, likewise
    rows: IntArray  # int64 (w,)
    block_set: IntArray  # index of the set that each comes from, int64 (w,)


def written_blocks(blocks: Blocks, sets: BlockSets, expected: IntArray, block_rows: int) -> WrittenBlocks:
    """Predict the blocks that merging some sets will write.

    Args:
        blocks: n blocks.
        sets: Sets of positions of these blocks.
        expected: How many blocks each set is cut into, int64 (sets,).
        block_rows: Rows in a full block.
    """
    # Offsets give every set a range of the axis of its own.
    member, set_of_member = sets.member, sets.set_of_member
    offset = set_of_member * float(blocks.points + 1)
    lower, upper = blocks.extents.lower[member] + offset, blocks.extents.upper[member] + offset
    rows = np.full(len(member), block_rows) if blocks.rows is None else blocks.rows[member]
    if blocks.deleted is not None:
        rows = rows - blocks.deleted[member]
    distribution = _Distribution.of(lower, upper, rows.astype(np.float64), set_of_member)

    total = np.bincount(set_of_member, rows).astype(np.int64)
    set_of_part, number = np.repeat(np.arange(len(sets)), expected), numbers_within(expected)
    begins, ends = number == 0, number == expected[set_of_part] - 1
    share = distribution.total[set_of_part[~ends]] / expected[set_of_part[~ends]]
    before, after, filled = distribution.cut(set_of_part[~ends], share * (number[~ends] + 1), block_rows)

    new_lower, new_upper = np.empty(len(set_of_part)), np.empty(len(set_of_part))
    new_lower[begins], new_upper[ends] = (
        distribution.at[distribution.first],
        distribution.at[distribution.last],
    )
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
    """Rows of a set below each key: linear between bounds, with a step at every constant block."""

    at: FloatArray  # distinct bounds of all sets, float64 (p,), ascending
    below: FloatArray  # rows of the same set below each bound, (p,)
    step: FloatArray  # rows with exactly this key, (p,)
    slope: FloatArray  # rows per unit of the axis up to the next bound, (p,)
    first: IntArray  # position of each set's first bound, int64 (sets,)
    last: IntArray  # position of its last bound
    total: FloatArray  # rows of each set, float64 (sets,)

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
        below = np.append(0.0, np.cumsum(between))
        total = below[last] + step[last] - below[first]
        below -= np.repeat(below[first], last - first + 1)
        return cls(at, below, step, slope, first, last, total)

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
        sum_below = self.below + np.repeat(before_set[:-1], self.last - self.first + 1)
        place = np.searchsorted(sum_below, before_set[block_set] + rows, side="right") - 1
        last = self.last[block_set]
        place = np.clip(place, self.first[block_set], last)
        inside = rows - self.below[place]
        step, at, slope = self.step[place], self.at[place], self.slope[place]
        following = self.at[np.minimum(place + 1, last)]
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
