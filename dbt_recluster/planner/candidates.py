"""Candidates: the blocks that a plan may rewrite, the cells of the key axis that they cover, and block sets of them.

Reported depth counts touching bounds as overlap. Planning must not: a sorted table whose blocks share boundary values
would be merged forever. Planning therefore works on cells: every distinct bound is a cell, and so is every gap between
neighbouring bounds. A block covers the cells strictly between its bounds; a constant block covers the cell of its only
key. So blocks that only share a boundary value have no cell in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dbt_recluster.planner.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Intervals,
    arrays_at,
    combined_ranks,
    dense_ranks,
    narrow,
    numbers_within,
    places_within,
)
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.reads import WeightedAxis


@dataclass(frozen=True, eq=False)
class Candidates:
    """Blocks that a plan may rewrite, in an order that does not depend on the order of the input.

    Integers are int32 (c,); rows and bytes are int64 if one does not fit.
    """

    blocks: Blocks  # all blocks
    position: IntArray  # positions of the candidates among them
    first: IntArray  # first cells, ascending
    last: IntArray  # last cells, at least `first`
    level: IntArray
    rows: IntArray  # a full block's if unknown
    bytes: IntArray  # 0 if unknown
    deleted: IntArray  # rows that are deleted, 0 if unknown
    partition: IntArray

    @classmethod
    def from_blocks(cls, blocks: Blocks, full_block: FullBlock, max_level: int, deleted_share: float) -> Candidates:
        """Select the blocks that a plan may rewrite.

        Fixed blocks and levels from ``max_level`` up are excluded. So are blocks that no merge narrows or makes fuller:
        constant blocks, those whose bounds a merge did not narrow, and those with an unknown upper bound after a merge;
        unless ``deleted_share`` of their rows are deleted.
        """
        eligible = ~_finished(blocks, full_block) & (~blocks.unbounded | (blocks.level == 0))
        eligible |= blocks.deleted_at_least(deleted_share)
        eligible &= ~blocks.fixed & (blocks.level < max_level)
        return cls.at(blocks, eligible, full_block)

    @classmethod
    def at(cls, blocks: Blocks, eligible: BoolArray, full_block: FullBlock) -> Candidates:
        """Make candidates of the blocks that are ``eligible``, bool (n,)."""
        position = narrow(np.flatnonzero(eligible))
        first, last = map(narrow, cells_of(blocks, position))
        order = _order(blocks, position, first, last)
        position = position[order]
        return cls(
            blocks,
            position,
            first[order],
            last[order],
            narrow(blocks.level[position]),
            _values(blocks.rows, position, full_block.rows),
            _values(blocks.bytes, position, 0),
            _values(blocks.deleted, position, 0),
            _values(blocks.partition if blocks.partition.any() else None, position, 0),
        )

    def __len__(self) -> int:
        return len(self.position)

    def take(self, member: IntArray | BoolArray) -> Candidates:
        """The candidates at these positions, ascending."""
        return replace(self, **arrays_at(self, member))

    @property
    def deleted_share(self) -> FloatArray:
        """Share of the rows that is deleted: float64 (c,)."""
        return self.deleted / np.maximum(self.rows, 1)

    def sets_of(self, sets: Sequence[IntArray]) -> SetArrays:
        """Make block sets of positions in all blocks, of candidates only: int64 (k,) each."""
        place = np.full(len(self.blocks), -1)
        place[self.position] = np.arange(len(self))
        size = np.array([len(member) for member in sets], np.int64)
        member = np.concatenate([np.zeros(0, np.int64), *(np.sort(place[member]) for member in sets)])
        return SetArrays(member, np.cumsum(size) - size)

    def cells(self, member: IntArray | slice = slice(None)) -> Intervals:
        """Cells of all candidates, or of those at these positions, (m,), on the axis of their own ends."""
        return Intervals.from_closed(self.first[member], self.last[member])

    def units(self, member: IntArray | slice = slice(None)) -> Intervals:
        """Units of all candidates, or of those at these positions, (m,), ascending, on the axis of their own 2m units.

        There is one unit for each lower and one for each upper bound, in the order of the bounds. A block covers those
        of all bounds within its own, these two included. So lengths are comparable for every type of key, and the mean
        number of blocks over a unit is the mean depth at the ends of blocks.
        """
        first, last = self.first[member], self.last[member]
        ends = 2 * len(first)
        least = int(first[0]) if ends else 0
        cells = int(last.max(initial=least)) - least + 1
        both = np.concatenate([first, last])
        if cells > 8 * ends:  # few candidates of a large table; an array of its cells would take longer than the plan
            both.sort()
            begin, end = np.searchsorted(both, first), np.searchsorted(both, last, side="right")
            return Intervals(begin.astype(np.int32), end.astype(np.int32), ends)
        before = np.zeros(cells + 1, np.int32)
        np.cumsum(np.bincount(both - least, minlength=cells), out=before[1:])
        return Intervals(before[first - least], before[last - least + 1], ends)

    def weighted_axis(
        self, units: Intervals, member: IntArray | slice = slice(None), by_reads: BoolArray | None = None
    ) -> WeightedAxis:
        """Weigh the `units` of these candidates by where reads end.

        Weights are even without reads, and in partitions where ``by_reads``, bool (partitions,), is given and false.
        """
        if self.blocks.reads is None or (by_reads is not None and not by_reads.any()):
            return WeightedAxis(units, None, units.begin, units.end)
        cells = np.sort(np.concatenate([self.first[member], self.last[member]]))
        return WeightedAxis.by_reads(units, cells, self.blocks.reads, self.partition[member], by_reads)

    def reducible_depths(self) -> IntArray:
        """Depth of each candidate without what no merge can reduce, int32 (c,), at least 1.

        It is the most candidates over any one key within the bounds. If everything were merged, one block that ends at
        a value, one that begins there and one over it would remain, so each of these kinds counts one less.
        """
        lower, upper = (narrow(ends[self.position]) for ends in (self.blocks.lower, self.blocks.upper))
        if not self._some_meet(lower, upper):
            return self.cells().depths()
        begin, end = 2 * lower, 2 * upper + 1
        cells = int(end.max())
        depth = np.ones(cells, np.int32)
        for of_kind in ((begin, self.first), (self.first, self.last + 1), (self.last + 1, end)):
            kind = Intervals(*of_kind, cells).depth()
            depth += kind
            depth -= kind > 0
        return Intervals(begin, end, cells).greatest(depth)

    def _some_meet(self, lower: IntArray, upper: IntArray) -> bool:
        """Whether two candidates share a bound, or planning does not trust all of a candidate's bounds."""
        wide = lower < upper
        if (self.first != 2 * lower + wide).any() or (self.last != 2 * upper - wide).any():
            return True
        ends = np.bincount(lower, minlength=1 + int(upper.max(initial=0)))
        return bool((ends + np.bincount(upper[wide], minlength=len(ends)) > 1).any())


def cells_of(blocks: Blocks, position: IntArray | slice) -> tuple[IntArray, IntArray]:
    """First and last cells of the blocks at these positions, (m,): int64 (m,) each."""
    lower, upper = blocks.extents.lower[position], blocks.extents.upper[position]
    wide = lower < upper
    return 2 * lower + wide, 2 * upper - wide


def _order(blocks: Blocks, position: IntArray, first: IntArray, last: IntArray) -> IntArray:
    """Order blocks, given by position, by their cells, and where these are equal by everything else: int64 (c,)."""
    key = first * np.int64(2 * blocks.points) + last
    order = np.argsort(key)
    equal = np.diff(key[order]) == 0
    place = np.flatnonzero(np.append(False, equal) | np.append(equal, False))
    if len(place):
        tied = order[place]
        others = (blocks.deleted, blocks.run, blocks.bytes, blocks.rows, blocks.level)
        values = (values[position[tied]] for values in others if values is not None)
        order[place] = tied[np.lexsort([tied, *values, key[tied]])]
    return order


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
    key = np.where(blocks.extents.unnarrowed, 0, blocks.lower + 1)[place]
    group, _ = combined_ranks([dense_ranks(blocks.run[place]), (key, blocks.points + 1)])
    rows = full_block.equivalent_rows(blocks.rows[place], blocks.bytes_or_0[place])
    finished[place] |= np.bincount(group, rows)[group] > full_block.rows
    return finished


def _values(values: IntArray | None, position: IntArray, default: int) -> IntArray:
    """Values at these positions, or the default if unknown, as a view that takes no memory."""
    if values is None:
        return np.broadcast_to(narrow(np.array([default])), len(position))
    return narrow(values[position])


@dataclass(frozen=True, eq=False)
class SetArrays:
    """Disjoint block sets, best first, as arrays of their members."""

    member: IntArray  # positions in the candidates, int64 (m,), set after set, each in the order of the candidates
    start: IntArray  # position in `member` at which each set begins, int64 (sets,)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def size(self) -> IntArray:
        """Number of blocks in each set: int64 (sets,)."""
        return np.diff(np.append(self.start, len(self.member)))

    @property
    def members(self) -> list[IntArray]:
        """Members of each set."""
        return np.split(self.member, self.start[1:]) if len(self) else []

    @property
    def set_of_member(self) -> IntArray:
        """Index of the set of each member: int64 (m,)."""
        return np.repeat(np.arange(len(self)), self.size)

    def total(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum of a value of the candidates over each set: int64 or float64 (sets,)."""
        return np.add.reduceat(values[self.member], self.start, dtype=np.result_type(values, np.int64))

    def least(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Least value of the candidates in each set, of the values' type: (sets,)."""
        return np.minimum.reduceat(values[self.member], self.start)

    def greatest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Greatest value of the candidates in each set, of the values' type: (sets,)."""
        return np.maximum.reduceat(values[self.member], self.start)

    def only(self, kept: BoolArray) -> SetArrays:
        """The sets where ``kept``, bool (sets,), is true."""
        return self if kept.all() else self.in_order(np.flatnonzero(kept))

    def in_order(self, order: IntArray) -> SetArrays:
        """The sets at these positions, int64 (k,), in their order."""
        return SetArrays.from_ranges(self.start[order], self.start[order] + self.size[order], self.member)

    def at(self, position: IntArray) -> SetArrays:
        """The sets with these positions of the candidates, (c,), for members."""
        return replace(self, member=position[self.member].astype(np.int64))

    def then(self, later: SetArrays) -> SetArrays:
        """These sets followed by others."""
        start = np.concatenate([self.start, later.start + len(self.member)])
        return SetArrays(np.concatenate([self.member, later.member]), start)

    @classmethod
    def from_ranges(cls, start: IntArray, end: IntArray, member: IntArray) -> SetArrays:
        """A set of each range of places in ``member``, int64 (sets,) each."""
        return cls(member[places_within(start, end)[0]], np.cumsum(end - start) - (end - start))


class WorstDepth(NamedTuple):
    """The depth that decides whether to merge: that of the partition furthest above its threshold."""

    depth: float = 0.0  # its reducible depth, the mean over its candidates; 0 without candidates
    threshold: float = 1.0
    by_reads: bool = False  # whether it is the read depth instead
    by_level: bool = False  # whether only blocks of different levels exceed it, which the strategy does not merge
    partition: int | None = None  # its code; None without candidates

    @property
    def excess(self) -> float:
        """How many times the threshold the depth is."""
        return self.depth / self.threshold

    @classmethod
    def from_partitions(cls, depth: FloatArray, threshold: FloatArray, by_reads: bool = False) -> WorstDepth:
        """Choose among k partitions, float64 (k,) each, k at least 1."""
        code = int(np.argmax(depth / threshold))
        return cls(float(depth[code]), float(threshold[code]), by_reads, partition=code)


# Sets of a strategy, best first, and the depth that it compared with a threshold.
Selected: TypeAlias = tuple[SetArrays, WorstDepth]


def average_depths(depth: IntArray, part: IntArray, parts: int) -> FloatArray:
    """Mean depth of the blocks in each part, rounded to 4 decimals, 0 without blocks: float64 (parts,)."""
    mean = np.bincount(part, depth, parts) / np.maximum(np.bincount(part, minlength=parts), 1)
    return np.round(mean, 4)


def no_sets() -> SetArrays:
    """An empty selection of block sets."""
    return SetArrays(np.zeros(0, np.int64), np.zeros(0, np.int64))


class SetLimits(NamedTuple):
    """Limits of one block set; None for no limit."""

    bytes: int | None = None
    blocks: int | None = None
    pays: Callable[[SetArrays], BoolArray] | None = None  # whether each set pays, bool (sets,)

    def paying(self, sets: SetArrays) -> SetArrays:
        """The sets that pay."""
        return sets.only(self.pays(sets)) if self.pays and len(sets) else sets

    def reached(self, sets: SetArrays, size: IntArray) -> BoolArray:
        """Whether sets have no room for as much again, or one more block: bool (sets,)."""
        reached = sets.size >= (self.blocks or np.inf)
        return reached | (2 * sets.total(size) > (self.bytes or np.inf))


def form_sets(candidates: Candidates, member: IntArray, label: IntArray, limits: SetLimits) -> SetArrays:
    """Make block sets of candidates, given by position, int64 (m,), in the order of their labels and then of the key.

    The blocks of one label become one set, or several: one for each connected range of cells, because a merge across
    a gap would add depth in the gap, and one for each part within the limits, cut along the key. Sets of one
    block, without overlap or that do not pay are dropped, so that a strategy can select others.
    """
    order = np.argsort(label * len(candidates) + member)
    sets = _connected(candidates, member[order], label[order])
    if limits.blocks is not None:
        sets = _connected(candidates, sets.member, np.cumsum(numbers_within(sets.size) % limits.blocks == 0))
    if limits.bytes is not None:
        sets = _connected(candidates, sets.member, cut_by_bytes(sets, candidates.bytes, limits.bytes))
    sets = sets.only(sets.size > 1)
    sets = sets.only(own_depth(candidates, sets) > 1)
    return limits.paying(sets)


def own_depth(candidates: Candidates, sets: SetArrays) -> IntArray:
    """Most blocks of each set that cover one cell: int64 (sets,)."""
    # Depth is greatest where some block starts. There it is the number of blocks started less the number ended, and
    # blocks of earlier sets count equally in both.
    cells = _cells_apart(candidates, sets.member, sets.set_of_member)
    started = np.searchsorted(cells.begin, cells.begin, side="right")
    ended = np.searchsorted(np.sort(cells.end), cells.begin, side="right")
    return np.maximum.reduceat(started - ended, sets.start)


def fit_into_bytes(candidates: Candidates, sets: SetArrays, max_bytes: int | None) -> BoolArray:
    """Select sets in order within the budget, skipping those that do not fit: bool (sets,)."""
    size = sets.total(candidates.bytes)
    if max_bytes is None or int(size.sum()) <= max_bytes:
        return np.ones(len(sets), np.bool_)
    left = max_bytes
    kept = np.zeros(len(sets), np.bool_)
    for place, size_of_set in enumerate(size.tolist()):
        if size_of_set <= left:
            kept[place] = True
            left -= size_of_set
    return kept


def _connected(candidates: Candidates, member: IntArray, label: IntArray) -> SetArrays:
    """Split labels, which ascend, where the cells of their blocks leave a gap."""
    component = _cells_apart(candidates, member, label).components()
    return SetArrays(member, np.flatnonzero(np.diff(component, prepend=-1)))


def _cells_apart(candidates: Candidates, member: IntArray, label: IntArray) -> Intervals:
    """Cells of blocks, moved so that those of a label lie above those of all labels before it."""
    cells = int(candidates.last.max(initial=0)) + 1
    offset = label * cells
    first, last = candidates.first[member] + offset, candidates.last[member] + offset
    return Intervals(first, last + 1, (int(label.max(initial=0)) + 1) * cells)


def cut_by_bytes(sets: SetArrays, size: IntArray, max_bytes: int) -> IntArray:
    """Cut sets along the key into parts of at most ``max_bytes``, or of one block: labels, int64 (m,), ascending."""
    large = sets.total(size) > max_bytes
    total = np.cumsum(size[sets.member], dtype=np.int64)
    begins = np.zeros(len(sets.member), np.bool_)
    begins[sets.start] = True
    ends = sets.start + sets.size
    for start, end in zip(sets.start[large].tolist(), ends[large].tolist(), strict=True):
        place = start
        while place < end:
            begins[place] = True
            before = int(total[place - 1]) if place else 0
            place = max(place + 1, int(np.searchsorted(total[:end], before + max_bytes, side="right")))
    return np.cumsum(begins)
