"""Candidates: the blocks that a plan may rewrite, and the cells of the key axis that they cover.

Reported depth counts touching bounds as overlap. Planning must not, or a perfectly sorted table whose blocks share
boundary values would never come to rest. Planning therefore works on cells: every distinct bound is a cell, and so is
every gap between neighbouring bounds. A block covers the cells strictly between its bounds; a constant block covers the
cell of its only key. So blocks that only share a boundary value have no cell in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray, Sweep, narrow, range_max
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.reads import ReadEnds


@dataclass(frozen=True, eq=False)
class Candidates:
    """Blocks that a plan may rewrite, in an order that does not depend on the order of the input.

    Attributes:
        position: Positions in the `Blocks` they come from, int32 (c,).
        first: First cells, int32 (c,), ascending.
        last: Last cells, int32 (c,), at least ``first``.
        lower: Ranks of the lower bounds, int32 (c,).
        upper: Ranks of the upper bounds, int32 (c,).
        level: int32 (c,).
        rows: int32 (c,), int64 if one does not fit; a full block's rows if unknown.
        bytes: int32 (c,), int64 if one does not fit; 0 if unknown.
        deleted: Rows that are deleted, int32 (c,), int64 if one does not fit; 0 if unknown.
        partition: int32 (c,).
        reads: Where reads end, by the ranks that cells stand for, or None if no reads are known.
    """

    position: Int32Array
    first: Int32Array
    last: Int32Array
    lower: Int32Array
    upper: Int32Array
    level: Int32Array
    rows: IntArray | Int32Array
    bytes: IntArray | Int32Array
    deleted: IntArray | Int32Array
    partition: Int32Array
    reads: ReadEnds | None = None

    @classmethod
    def of(cls, blocks: Blocks, full_block: FullBlock, max_level: int, deleted_share: float) -> Candidates:
        """Find the blocks that a plan may rewrite.

        Fixed blocks and levels from ``max_level`` up are excluded. So are blocks that no merge narrows or makes fuller:
        constant blocks, those whose bounds a merge did not narrow, and those with an unknown upper bound after a merge;
        unless ``deleted_share`` of their rows are deleted.
        """
        eligible = ~_finished(blocks, full_block) & (~blocks.unbounded | (blocks.level == 0))
        eligible |= blocks.deleted_at_least(deleted_share)
        eligible &= ~blocks.fixed & (blocks.level < max_level)
        position = narrow(np.flatnonzero(eligible))
        first, last = map(narrow, cells_of(blocks, position))
        tie_breakers = [
            array
            for array in (blocks.level, blocks.rows, blocks.bytes, blocks.run, blocks.deleted)
            if array is not None
        ]
        order = _order(first, last, position, tie_breakers)
        position = position[order]
        return cls(
            position,
            first[order],
            last[order],
            narrow(blocks.lower[position]),
            narrow(blocks.upper[position]),
            narrow(blocks.level[position]),
            _values(blocks.rows, position, full_block.rows),
            _values(blocks.bytes, position, 0),
            _values(blocks.deleted, position, 0),
            # One value for all blocks takes no memory.
            narrow(blocks.partition[position])
            if blocks.partition.any()
            else np.broadcast_to(np.int32(0), len(position)),
            blocks.reads,
        )

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self.position)

    @property
    def deleted_share(self) -> FloatArray:
        """Share of the rows that is deleted: float64 (c,)."""
        share: FloatArray = self.deleted / np.maximum(self.rows, 1)
        return share

    @property
    def live_rows(self) -> IntArray | Int32Array:
        """Rows that are not deleted: (c,)."""
        return self.rows - self.deleted

    @property
    def live_bytes(self) -> IntArray:
        """Bytes of the rows that are not deleted, rounded up: int64 (c,)."""
        live: IntArray = np.ceil(self.bytes * (1 - self.deleted_share)).astype(np.int64)
        return live

    def sweep(self, member: IntArray | None = None) -> Sweep:
        """Sweep over the cells of all candidates, or of those at these positions, int64 (m,)."""
        if member is None:
            return Sweep.over_cells(np.concatenate([self.first, self.last]))
        return Sweep.over_cells(np.concatenate([self.first[member], self.last[member]]))

    def reducible_depths(self) -> Int32Array:
        """Depth of each candidate as far as merges can reduce it, int32 (c,), at least 1.

        It is the most candidates over any one key within the bounds. If everything were merged, one block that ends at
        a value, one that begins there and one over it would remain, so each of these kinds counts one less.
        """
        if not self._some_meet():
            return self.sweep().depths()
        cells = 2 * int(self.upper.max()) + 1
        depth = np.ones(cells, np.int32)
        for first, last in (
            (2 * self.lower, self.first - 1),
            (self.first, self.last),
            (self.last + 1, 2 * self.upper),
        ):
            kind = _cover(first, last, cells)
            depth += kind
            depth -= kind > 0
        return range_max(depth, 2 * self.lower, 2 * self.upper)

    def _some_meet(self) -> bool:
        """Whether two candidates share a bound, or planning does not trust all of a candidate's bounds."""
        wide = self.lower < self.upper
        if (self.first != 2 * self.lower + wide).any() or (self.last != 2 * self.upper - wide).any():
            return True
        ends = np.bincount(self.lower, minlength=1 + int(self.upper.max(initial=0)))
        return bool((ends + np.bincount(self.upper[wide], minlength=len(ends)) > 1).any())


def cells_of(blocks: Blocks, position: IntArray | Int32Array) -> tuple[IntArray, IntArray]:
    """First and last cells of the blocks at these positions, (m,): int64 (m,) each."""
    lower, upper = blocks.extents.lower[position], blocks.extents.upper[position]
    wide = lower < upper
    return 2 * lower + wide, 2 * upper - wide


def _cover(first: Int32Array, last: Int32Array, cells: int) -> Int32Array:
    """Number of ranges over each cell, int32 (cells,); a range with ``last`` less than ``first`` covers none."""
    some = first <= last
    change = np.bincount(first[some], minlength=cells + 1).astype(np.int32)
    change -= np.bincount(last[some] + 1, minlength=cells + 1)
    return np.cumsum(change[:cells], out=change[:cells])


def _finished(blocks: Blocks, full_block: FullBlock) -> BoolArray:
    """Blocks that a merge could neither narrow nor make fuller, bool (n,): Databend's level -1.

    Two constant blocks of one key that are at least half full do not fit into one block. A block whose rows are unknown
    counts as full. Nor would another merge do better with a key that a merge has split among several blocks: how small
    they are is chance where a block has few rows. The same goes for the blocks whose bounds a merge did not narrow.
    Source: Databend's RFC "recluster table" (databend#6905).
    """
    narrowest = blocks.constant | blocks.extents.unnarrowed
    if blocks.rows is None:
        return narrowest
    finished = narrowest & ~blocks.small(full_block)
    place = np.flatnonzero(narrowest & ~blocks.fixed & (blocks.level > 0) & (blocks.run > 0))
    if len(place) == 0:
        return finished
    key, run = np.where(blocks.extents.unnarrowed, -1, blocks.lower)[place], blocks.run[place]
    order = np.lexsort((run, key))
    is_first = np.append(True, (np.diff(key[order]) != 0) | (np.diff(run[order]) != 0))
    rows = full_block.equivalent_rows(blocks.rows[place], blocks.bytes_or_0[place])[order]
    together = np.add.reduceat(rows, np.flatnonzero(is_first))[np.cumsum(is_first) - 1]
    finished[place[order]] |= together > full_block.rows
    return finished


def _values(values: IntArray | None, position: Int32Array, default: int) -> IntArray | Int32Array:
    """Values at these positions, or the default if they are unknown."""
    return np.broadcast_to(np.int64(default), len(position)) if values is None else narrow(values[position])


def _order(
    first: Int32Array, last: Int32Array, position: Int32Array, tie_breakers: list[IntArray]
) -> IntArray:
    """Order candidates by first and last cell, (c,) each, then by the tie breakers, (n,) each: int64 (c,).

    Tie breakers are read only for tied blocks, at their positions in all n blocks.
    """
    if len(first) == 0:
        return np.zeros(0, np.int64)
    key = first.astype(np.int64)
    key *= int(last.max()) + 1
    key += last
    order = np.argsort(key)
    ordered = key[order]
    same = ordered[1:] == ordered[:-1]
    del ordered
    if same.any():
        tied = np.zeros(len(order), np.bool_)
        tied[1:] |= same
        tied[:-1] |= same
        block = order[tied]
        keys = [*(values[position[block]] for values in reversed(tie_breakers)), key[block]]
        order[tied] = block[np.lexsort(keys)]
    return order
