"""Extents: the part of each block's bounds that planning trusts.

Iceberg keeps the least and greatest value of each column separately. So the bounds of a compound key describe a range
only up to the first column in which they differ: a query for a value of that column opens the block, whatever the
columns after it hold. No merge changes that. Given two blocks that share a value of this column only at their ends, a
merge would write two such blocks again. An extent therefore leaves out the values at both ends, and everything that the
later columns say of them.

Bounds may also be wider than the keys in a block because they are truncated, rounded or missing. Runs show where: the
blocks of one run are disjoint by construction. If their bounds overlap nevertheless, no merge makes them disjoint, so
extents end before such an overlap. A block that the others of its run cover completely was not narrowed by the merge
that wrote it, and another merge would not narrow it either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, combined_ranks, dense_ranks


class Extents(NamedTuple):
    """Ranges of ranks of n blocks, without their ends unless they are single keys.

    Attributes:
        lower: int64 (n,), at least the rank of the lower bound.
        upper: int64 (n,), at most the rank of the upper bound; equal to ``lower`` for a constant block only.
        shown_lower: ``lower`` without the knowledge of runs, int64 (n,).
        shown_upper: ``upper`` without it.
        unnarrowed: Blocks whose bounds a merge did not narrow, bool (n,).
    """

    lower: IntArray
    upper: IntArray
    shown_lower: IntArray
    shown_upper: IntArray
    unnarrowed: BoolArray

    def take(self, positions: IntArray) -> Extents:
        """The extents of the blocks at these positions, int64 (m,)."""
        return Extents._make(array[positions] for array in self)


def block_extents(
    lower: IntArray,
    upper: IntArray,
    columns: list[tuple[IntArray, IntArray]],
    partition: IntArray,
    run: IntArray,
) -> Extents:
    """Find the extents of blocks.

    Args:
        lower: Ranks of the lower bounds, int64 (n,).
        upper: Ranks of the upper bounds, int64 (n,).
        columns: For each key column the codes of its lower and of its upper bounds, int64 (n,) each.
        partition: int64 (n,).
        run: int64 (n,), positive where known.
    """
    lower, upper = _first_differing_column(lower, upper, columns, partition)
    unnarrowed = np.zeros(len(run), np.bool_)
    known = np.flatnonzero((run > 0) & (lower < upper))
    segments = Segments.of(lower[known], upper[known], run[known])
    depth = segments.depth()
    if (depth <= 1).all():
        return Extents(lower, upper, lower, upper, unnarrowed)
    first, last = segments.first_and_last(depth == 1)
    alone = first <= last
    unnarrowed[known[~alone]] = True
    alone_lower, alone_upper = lower.copy(), upper.copy()
    alone_lower[known[alone]] = segments.begins[first[alone]]
    alone_upper[known[alone]] = segments.begins[last[alone] + 1]
    return Extents(alone_lower, alone_upper, lower, upper, unnarrowed)


def _first_differing_column(
    lower: IntArray, upper: IntArray, columns: list[tuple[IntArray, IntArray]], partition: IntArray
) -> tuple[IntArray, IntArray]:
    """Move both ends of each block inwards, past all ranks that share the columns up to the first in which they differ.

    Arguments are those of `block_extents`.

    Returns:
        New lower and upper ranks, int64 (n,) each.
    """
    n = len(lower)
    ranks = np.concatenate([lower, upper])
    shared = np.concatenate([partition, partition])
    count = int(partition.max(initial=0)) + 1
    undecided = np.ones(n, np.bool_)
    for low, high in columns[:-1]:
        codes = np.concatenate([low, high])
        shared, count = combined_ranks([(shared, count), (codes, int(codes.max(initial=0)) + 1)])
        differs = undecided & (low != high)
        undecided &= low == high
        if not differs.any():
            continue
        first = np.full(count + 1, int(ranks.max()) + 1)
        np.minimum.at(first, shared, ranks)
        lower = np.where(differs, first[shared[:n] + 1] - 1, lower)
        upper = np.where(differs, first[shared[n:]], upper)
    return lower, upper


class Segments(NamedTuple):
    """The axis, once for each group of intervals and cut at their ends.

    Attributes:
        group: Rank of the group of each segment, int64 (segments,), ascending.
        begins: Where each segment begins, int64 (segments,); the last one of a group is empty.
        first: First segment of each of m intervals, int64 (m,).
        end: First segment after each interval, int64 (m,), greater than ``first``.
    """

    group: IntArray
    begins: IntArray
    first: IntArray
    end: IntArray

    @classmethod
    def of(cls, lower: IntArray, upper: IntArray, group: IntArray) -> Segments:
        """Cut the axis of each group of m half-open intervals: begins, greater ends, and groups, int64 (m,) each."""
        groups, count = dense_ranks(group)
        both, places = np.concatenate([groups, groups]), np.concatenate([lower, upper])
        ends, segments = combined_ranks([(both, count), (places, int(places.max(initial=0)) + 1)])
        group_of, begins = np.empty(segments, np.int64), np.empty(segments, np.int64)
        group_of[ends], begins[ends] = both, places
        return cls(group_of, begins, ends[: len(group)], ends[len(group) :])

    @property
    def length(self) -> IntArray:
        """Length of each segment: int64 (segments,)."""
        length = np.diff(self.begins, append=0)
        length[np.diff(self.group, append=-1) != 0] = 0
        return length

    def depth(self, blocks: BoolArray | slice = slice(None)) -> IntArray:
        """Number of intervals over each segment, of all or of those of a mask, bool (m,): int64 (segments,)."""
        begun = np.bincount(self.first[blocks], minlength=len(self.begins))
        depth: IntArray = np.cumsum(begun - np.bincount(self.end[blocks], minlength=len(self.begins)))
        return depth

    def total(self, values: IntArray | BoolArray) -> IntArray:
        """Sum of a value of each segment, (segments,), over those of each interval: int64 (m,)."""
        before = np.append(0, np.cumsum(values))
        total: IntArray = before[self.end] - before[self.first]
        return total

    def at(self, group: IntArray, place: IntArray) -> IntArray:
        """The segments of these groups, given by rank, in which these places are: int64 (k,)."""
        size = int(self.begins.max()) + 1
        return np.searchsorted(self.group * size + self.begins, group * size + place, side="right") - 1

    def first_and_last(self, where: BoolArray) -> tuple[IntArray, IntArray]:
        """First and last segment of each interval where ``where``, bool (segments,), is true: int64 (m,) each.

        The first one lies behind the last one if there is none.
        """
        place = np.arange(len(where))
        following = np.minimum.accumulate(np.where(where, place, len(where))[::-1])[::-1]
        preceding = np.maximum.accumulate(np.where(where, place, -1))
        first, last = following[self.first], preceding[self.end - 1]
        return first, np.where(first < self.end, last, -1)
