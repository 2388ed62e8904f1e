"""Block sets: what a strategy chose, made fit to be merged: connected, within budget, worth a rewrite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, PlaceArray
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy

# From this level on, blocks with equal bounds are given up: two rewrites have not told them apart. Databend
# has the same guard for two blocks (databend#19151).
_STUBBORN_LEVEL = 2


@dataclass(frozen=True, eq=False)
class BlockSets:
    """Disjoint block sets, best first.

    Attributes:
        member: places in the candidates, int64 (m,), set after set, each set in the order of the candidates.
        start: place in `member` at which each set begins, int64 (sets,).
    """

    member: IntArray
    start: IntArray

    def __len__(self) -> int:
        """Number of sets."""
        return len(self.start)

    @property
    def size(self) -> IntArray:
        """Number of blocks of each set: int64 (sets,)."""
        return np.diff(np.append(self.start, len(self.member)))

    def total(self, values: IntArray | PlaceArray) -> IntArray:
        """Sum over each set's blocks of a value that candidates have: int64 (sets,)."""
        if len(self) == 0:
            return np.zeros(0, np.int64)
        return np.add.reduceat(values[self.member], self.start, dtype=np.int64)

    def least(self, values: PlaceArray) -> PlaceArray:
        """Least over each set's blocks of a value that candidates have: int32 (sets,)."""
        return np.minimum.reduceat(values[self.member], self.start) if len(self) else values[:0]

    def greatest(self, values: PlaceArray) -> PlaceArray:
        """Greatest over each set's blocks of a value that candidates have: int32 (sets,)."""
        return np.maximum.reduceat(values[self.member], self.start) if len(self) else values[:0]

    def only(self, kept: BoolArray) -> BlockSets:
        """The sets where ``kept``, bool (sets,), is true."""
        if kept.all():
            return self
        size = self.size
        return BlockSets(self.member[np.repeat(kept, size)], (np.cumsum(size[kept]) - size[kept]))

    def then(self, later: BlockSets) -> BlockSets:
        """These sets, and after them some others."""
        start = np.concatenate([self.start, later.start + len(self.member)])
        return BlockSets(np.concatenate([self.member, later.member]), start)


def no_sets() -> BlockSets:
    """No sets at all."""
    return BlockSets(np.zeros(0, np.int64), np.zeros(0, np.int64))


def form_sets(candidates: Candidates, member: IntArray, label: IntArray, policy: Policy) -> BlockSets:
    """Make block sets of what a strategy chose.

    Blocks of one label become one set, or several: one for each stretch of cells they cover without a gap, so
    that no merge writes a block across a gap, where it would add depth; and one for each part that the
    policy's limits on a single set ask for, cut along the key. Sets of a single block are dropped, and so are
    those that a rewrite has been shown not to help.

    Args:
        candidates: c candidates.
        member: places in the candidates, int64 (m,), each at most once.
        label: int64 (m,), the sets chosen; lower labels are better and come first.
        policy: its `max_merge_bytes`, `max_blocks` and, as no set can be larger than the whole plan,
            `max_bytes`.

    Returns:
        The sets, in the order of their labels and then along the key.
    """
    order = np.argsort(label * len(candidates) + member)
    sets = _connected(candidates, member[order], label[order])
    limits = [limit for limit in (policy.max_merge_bytes, policy.max_bytes) if limit is not None]
    if limits or policy.max_blocks is not None:
        parts = _parts(sets, candidates.bytes, min(limits, default=None), policy.max_blocks)
        sets = _connected(candidates, sets.member, parts)
    kept = sets.size > 1
    same = (sets.least(candidates.first) == sets.greatest(candidates.first)) & (
        sets.least(candidates.last) == sets.greatest(candidates.last)
    )
    kept &= ~same | (sets.least(candidates.level) < _STUBBORN_LEVEL)
    sets = sets.only(kept)
    return sets.only(own_depth(candidates, sets) > policy.overlap_threshold)


def own_depth(candidates: Candidates, sets: BlockSets) -> IntArray:
    """Most blocks of each set that cover one cell: int64 (sets,)."""
    if len(sets) == 0:
        return np.zeros(0, np.int64)
    # The cells of each set get a stretch of their own. Depth is greatest where some block starts: there it is
    # the number of blocks started less that of blocks ended, of which earlier sets have as many of both.
    offset = np.repeat(np.arange(len(sets)), sets.size) * (int(candidates.last.max()) + 1)
    first = candidates.first[sets.member] + offset
    started = np.searchsorted(first, first, side="right")
    ended = np.searchsorted(np.sort(candidates.last[sets.member] + offset), first)
    return np.maximum.reduceat(started - ended, sets.start)


def within_bytes(candidates: Candidates, sets: BlockSets, max_bytes: int | None) -> BlockSets:
    """The sets that fit into a budget, taken in order; one that does not fit leaves its room to others."""
    size = sets.total(candidates.bytes)
    if max_bytes is None or int(size.sum()) <= max_bytes:
        return sets
    left = max_bytes
    kept = np.zeros(len(sets), np.bool_)
    for place, size_of_set in enumerate(size.tolist()):
        if size_of_set <= left:
            kept[place] = True
            left -= size_of_set
    return sets.only(kept)


def _connected(candidates: Candidates, member: IntArray, label: IntArray) -> BlockSets:
    """Split labels, given in order, where the cells of their blocks leave a gap."""
    if len(member) == 0:
        return no_sets()
    offset = label * (int(candidates.last.max()) + 1)
    first, last = candidates.first[member] + offset, candidates.last[member] + offset
    begins = np.ones(len(member), np.bool_)
    # A label's cells lie above those of all labels before it, so a new label always begins a set.
    begins[1:] = first[1:] > np.maximum.accumulate(last)[:-1]
    return BlockSets(member, np.flatnonzero(begins))


def _parts(
    sets: BlockSets, size: IntArray | PlaceArray, max_bytes: int | None, max_blocks: int | None
) -> IntArray:
    """Labels that cut sets, along the key, into parts within the limits; int64 (m,), ascending."""
    blocks = len(sets.member) if max_blocks is None else max_blocks
    size = size[sets.member].astype(np.int64)
    large = sets.size > blocks
    if max_bytes is not None:
        large |= np.add.reduceat(size, sets.start) > max_bytes if len(sets) else False
    begins = np.zeros(len(sets.member), np.bool_)
    begins[sets.start] = True
    filled = np.cumsum(size)
    ends = np.append(sets.start[1:], len(sets.member))
    for start, end in zip(sets.start[large].tolist(), ends[large].tolist(), strict=True):
        place = start
        while place < end:
            begins[place] = True
            before = int(filled[place - 1]) if place else 0
            fits = (
                end
                if max_bytes is None
                else int(np.searchsorted(filled[:end], before + max_bytes, side="right"))
            )
            place = max(place + 1, min(fits, place + blocks))
    return np.cumsum(begins)
