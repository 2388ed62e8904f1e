"""Block sets: selected blocks, split into connected sets within the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray, places_within
from dbt_recluster.planner.candidates import Candidates


@dataclass(frozen=True, eq=False)
class BlockSets:
    """Disjoint block sets, best first.

    Attributes:
        member: Positions in the candidates, int64 (m,), set after set, each set in the order of the candidates.
        start: Position in ``member`` at which each set begins, int64 (sets,).
    """

    member: IntArray
    start: IntArray

    def __len__(self) -> int:
        """Number of sets."""
        return len(self.start)

    @property
    def size(self) -> IntArray:
        """Number of blocks in each set: int64 (sets,)."""
        return np.diff(np.append(self.start, len(self.member)))

    def total(self, values: IntArray | Int32Array | BoolArray) -> IntArray:
        """Sum of a candidates' value over each set: int64 (sets,)."""
        if len(self) == 0:
            return np.zeros(0, np.int64)
        return np.add.reduceat(values[self.member], self.start, dtype=np.int64)

    def least(self, values: Int32Array) -> Int32Array:
        """Least of a candidates' value in each set: int32 (sets,)."""
        return np.minimum.reduceat(values[self.member], self.start) if len(self) else values[:0]

    def greatest(self, values: Int32Array) -> Int32Array:
        """Greatest of a candidates' value in each set: int32 (sets,)."""
        return np.maximum.reduceat(values[self.member], self.start) if len(self) else values[:0]

    def only(self, kept: BoolArray) -> BlockSets:
        """The sets where ``kept``, bool (sets,), is true."""
        return self if kept.all() else self.in_order(np.flatnonzero(kept))

    def in_order(self, order: IntArray) -> BlockSets:
        """The sets at these positions, int64 (k,), in their order."""
        size = self.size[order]
        place, _ = places_within(self.start[order], self.start[order] + size)
        return BlockSets(self.member[place], np.cumsum(size) - size)

    def then(self, later: BlockSets) -> BlockSets:
        """These sets followed by others."""
        start = np.concatenate([self.start, later.start + len(self.member)])
        return BlockSets(np.concatenate([self.member, later.member]), start)


class WorstDepth(NamedTuple):
    """The depth that decides whether anything is to be done, in the partition that exceeds its limit the most.

    Attributes:
        depth: Its reducible depth, the mean over its candidates; 0 without candidates.
        limit: The greatest depth allowed.
        by_reads: Whether it is the read depth instead.
    """

    depth: float = 0.0
    limit: float = 1.0
    by_reads: bool = False

    @classmethod
    def of(cls, depth: FloatArray, limit: FloatArray, by_reads: bool = False) -> WorstDepth:
        """Choose among k partitions or levels, float64 (k,) each, k at least 1."""
        place = int(np.argmax(depth / limit))
        return cls(float(depth[place]), float(limit[place]), by_reads)


def average_depths(depth: Int32Array, part: Int32Array | IntArray, parts: int) -> FloatArray:
    """Mean depth of the blocks in each part, to 4 decimals, or 0 without blocks: float64 (parts,)."""
    mean = np.bincount(part, depth, parts) / np.maximum(np.bincount(part, minlength=parts), 1)
    return np.round(mean, 4)


def no_sets() -> BlockSets:
    """An empty selection of block sets."""
    return BlockSets(np.zeros(0, np.int64), np.zeros(0, np.int64))


def form_sets(candidates: Candidates, member: IntArray, label: IntArray, max_bytes: int | None) -> BlockSets:
    """Make block sets of the blocks that a strategy selected.

    The blocks of one label become one set, or several: one for each connected range of cells, because a merge across
    a gap would add depth in the gap, and one for each part within the limit, cut along the key. Sets of one
    block and sets without overlap are dropped.

    Args:
        candidates: c candidates.
        member: Positions in the candidates, int64 (m,), each at most once.
        label: int64 (m,). Sets of lower labels are better and come first.
        max_bytes: Most bytes of one set, or None for no limit.

    Returns:
        The sets, in the order of their labels and then along the key.
    """
    order = np.argsort(label * len(candidates) + member)
    sets = _connected(candidates, member[order], label[order])
    if max_bytes is not None:
        sets = _connected(candidates, sets.member, cut_by_bytes(sets, candidates.bytes, max_bytes))
    sets = sets.only(sets.size > 1)
    return sets.only(own_depth(candidates, sets) > 1)


def own_depth(candidates: Candidates, sets: BlockSets) -> IntArray:
    """Most blocks of each set that cover one cell: int64 (sets,)."""
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    # Offsets give every set a range of cells of its own. Depth is greatest where some block starts. There it is the
    # number of blocks started less the number ended, and blocks of earlier sets count equally in both.
    offset = np.repeat(np.arange(len(sets)), sets.size) * (int(candidates.last.max()) + 1)
    first = candidates.first[sets.member] + offset
    started = np.searchsorted(first, first, side="right")
    ended = np.searchsorted(np.sort(candidates.last[sets.member] + offset), first)
    return np.maximum.reduceat(started - ended, sets.start)


def fit_into_bytes(candidates: Candidates, sets: BlockSets, max_bytes: int | None) -> BoolArray:
    """Take sets in order while they fit into the budget: bool (sets,). A set that does not fit is skipped."""
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


def _connected(candidates: Candidates, member: IntArray, label: IntArray) -> BlockSets:
    """Split labels, which ascend, where the cells of their blocks leave a gap."""
    if len(member) == 0:
        return no_sets()
    # The cells of a label lie above those of all labels before it, so a new label always begins a set.
    offset = label * (int(candidates.last.max()) + 1)
    first, last = candidates.first[member] + offset, candidates.last[member] + offset
    begins = np.ones(len(member), np.bool_)
    begins[1:] = first[1:] > np.maximum.accumulate(last)[:-1]
    return BlockSets(member, np.flatnonzero(begins))


def cut_by_bytes(sets: BlockSets, size: IntArray | Int32Array, max_bytes: int) -> IntArray:
    """Cut sets along the key into parts of at most ``max_bytes``, or of one block: labels, int64 (m,), ascending."""
    size = size[sets.member].astype(np.int64)
    large = np.add.reduceat(size, sets.start) > max_bytes if len(sets) else np.zeros(0, np.bool_)
    begins = np.zeros(len(sets.member), np.bool_)
    begins[sets.start] = True
    total = np.cumsum(size)
    ends = np.append(sets.start[1:], len(sets.member))
    for start, end in zip(sets.start[large].tolist(), ends[large].tolist(), strict=True):
        place = start
        while place < end:
            begins[place] = True
            before = int(total[place - 1]) if place else 0
            place = max(place + 1, int(np.searchsorted(total[:end], before + max_bytes, side="right")))
    return np.cumsum(begins)
