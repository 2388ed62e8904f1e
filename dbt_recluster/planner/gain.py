"""Gain: whether merging a set changes anything for a query.

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

from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray, range_max
from dbt_recluster.planner.block_sets import BlockSets
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.extents import Segments
from dbt_recluster.planner.written_blocks import written_blocks


def reveals_less(blocks: Blocks, position: IntArray | Int32Array, sets: BlockSets) -> BoolArray:
    """Whether merging each set removes more overlap, in ranks, than it reveals: bool (sets,); true if it reveals none.

    Args:
        blocks: n blocks.
        position: Positions of the sets' members in ``blocks``, (m,).
        sets: The sets.
    """
    extents = blocks.extents
    hidden = (extents.shown_lower != extents.lower) | (extents.shown_upper != extents.upper)
    if len(sets) == 0 or not (hidden | extents.unnarrowed).any():
        return np.ones(len(sets), np.bool_)
    known = np.flatnonzero((blocks.run > 0) & (extents.shown_lower < extents.shown_upper))
    segments = Segments.of(extents.shown_lower[known], extents.shown_upper[known], blocks.run[known])
    stays = np.ones(len(blocks), np.bool_)
    stays[position] = False
    # Several blocks of the run overlap here now, and only one of them stays.
    shown = (segments.depth() > 1) & (segments.depth(stays[known]) == 1)
    of_block = np.zeros(len(blocks), np.int64)
    of_block[known] = segments.total(np.where(shown, segments.length, 0))
    revealed = np.add.reduceat(of_block[position], sets.start)
    lower, upper = extents.lower[position], extents.upper[position]
    hull = np.maximum.reduceat(upper, sets.start) - np.minimum.reduceat(lower, sets.start)
    removed = np.add.reduceat(upper - lower, sets.start) - hull
    less: BoolArray = (revealed == 0) | (revealed < removed)
    return less


@dataclass(frozen=True, eq=False)
class Gain:
    """The changes that merging each set, by itself, would make.

    Bounds, and the gaps between them, are cells as in `candidates`. Here blocks also cover the cells of their bounds,
    as they do for queries.

    Attributes:
        blocks: n blocks.
        sets: The sets.
        position: Positions of the sets' members in ``blocks``, (m,).
        segments: The cells of each set, cut where its members begin and end.
        surplus: Members over each segment, but one: int64 (segments,).
        depth: Blocks over each cell, int32 (cells,).
    """

    blocks: Blocks
    sets: BlockSets
    position: IntArray | Int32Array
    segments: Segments
    surplus: IntArray
    depth: Int32Array

    @classmethod
    def of(cls, blocks: Blocks, position: IntArray | Int32Array, sets: BlockSets) -> Gain:
        """Weigh sets of blocks at these positions, (m,)."""
        set_of_member = np.repeat(np.arange(len(sets)), sets.size)
        segments = Segments.of(2 * blocks.lower[position], 2 * blocks.upper[position] + 1, set_of_member)
        sweep = blocks.sweep()
        depth = np.column_stack([sweep.started - sweep.ended[:-1], sweep.started - sweep.ended[1:]]).ravel()
        return cls(blocks, sets, position, segments, np.maximum(segments.depth() - 1, 0), depth)

    def lowers_average(self, expected: IntArray, block_rows: int) -> BoolArray:
        """Whether the average depth of the blocks of its partition falls: bool (sets,).

        Args:
            expected: How many blocks each set is cut into, int64 (sets,).
            block_rows: Rows in a full block.
        """
        blocks, sets, segments = self.blocks, self.sets, self.segments
        greatest = range_max(
            self.depth, segments.begins, segments.begins + np.maximum(segments.length - 1, 0)
        )
        members = np.split(self.position.astype(np.int64), sets.start[1:])
        written = written_blocks(blocks, members, expected, block_rows)
        depth = range_max(
            (greatest - self.surplus).astype(np.int32),
            segments.at(written.block_set, _cells(written.lower)),
            segments.at(written.block_set, _cells(written.upper)),
        )
        of_block = range_max(self.depth, 2 * blocks.lower, 2 * blocks.upper)
        change = np.bincount(written.block_set, depth, len(sets)).astype(np.int64)
        change -= np.add.reduceat(of_block[self.position], sets.start, dtype=np.int64)
        more = np.bincount(written.block_set, minlength=len(sets)) - sets.size
        # Compare with the average of the set's partition, so that no partition depends on another.
        _, partition = np.unique(blocks.partition, return_inverse=True)
        count, total = np.bincount(partition), np.bincount(partition, of_block).astype(np.int64)
        own = partition[self.position[sets.start]]
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
        other[self.position] = False
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
        some = self.surplus > 0
        new = np.diff(self.segments.group, prepend=-1) != 0
        first = np.flatnonzero(some & (new | ~np.append(False, some[:-1])))
        last = np.flatnonzero(some & ~np.append(some[1:] & ~new[1:], False))
        end = self.segments.begins[last] + self.segments.length[last]
        return self.segments.begins[first], end, self.segments.group[first]


def _cells(places: FloatArray) -> IntArray:
    """Cells of places on the axis of ranks."""
    rank = np.floor(places)
    cells: IntArray = (2 * rank + (places > rank)).astype(np.int64)
    return cells
