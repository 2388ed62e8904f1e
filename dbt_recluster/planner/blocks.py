"""Blocks: bounds, sizes, levels and runs of a table's blocks, which every metric and strategy reads.

Bounds are ranks. Partitions follow one another on one axis of ranks, so blocks of different partitions never overlap.

Planning trusts only a part of each block's bounds, its extent. Iceberg keeps the least and greatest value of each
column separately. So the bounds of a compound key describe a range only up to the first column in which they differ: a
query for a value of that column opens the block for any values of the columns after it. No merge changes that. Of two
blocks that share a value of this column only at their ends, it would write two such blocks again. An extent therefore
excludes both end values and later columns.

Bounds may also be wider than the keys in a block because they are truncated, rounded or missing. The blocks of one run
are disjoint by construction. If their bounds overlap nevertheless, no merge makes them disjoint, so extents end before
such an overlap. A block that the others of its run cover completely was not narrowed by the merge that wrote it, and
another merge would not narrow it either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, Codes, IntArray, Intervals, Segments, arrays_at, combined_ranks
from dbt_recluster.planner.curves import Layout
from dbt_recluster.planner.ranks import Keys, number_partitions, whole_numbers
from dbt_recluster.planner.reads import ReadEnds, Reads, place_reads, ranked_columns

# Unknown runs: any number up to 0.
_LEAST_RUN = np.iinfo(np.int64).min


@dataclass(frozen=True)
class FullBlock:
    """Capacity of a full block."""

    rows: int  # at least 1
    bytes: int | None = None  # at least 1; if unknown, rows alone count

    def is_small(self, rows: IntArray, size: IntArray) -> BoolArray:
        """Blocks with less than half of the rows and of the bytes, given those of n blocks: bool (n,)."""
        small: BoolArray = rows < self.rows / 2
        if self.bytes is not None:
            small &= size < self.bytes / 2
        return small

    def equivalent_rows(self, rows: IntArray, size: IntArray) -> IntArray:
        """Size of n blocks in rows, where a block full in bytes counts as full in rows: int64 (n,), at least 1.

        Whole numbers, so that ten blocks of a tenth are exactly one.
        """
        equivalent = np.maximum(rows.astype(np.int64), 1)
        if self.bytes is not None:
            by_bytes = np.ceil(size.astype(np.float64) * self.rows / self.bytes)
            np.maximum(equivalent, by_bytes.astype(np.int64), out=equivalent)
        return equivalent

    def count(self, rows: IntArray, size: IntArray) -> IntArray:
        """The fewest full blocks that hold these rows and bytes, (n,): int64 (n,), at least 1."""
        count = np.maximum(-(-rows // self.rows), 1)
        return count if self.bytes is None else np.maximum(count, -(-size // self.bytes))


class Extents(NamedTuple):
    """Ranges of ranks of n blocks, without their ends unless they are single keys: int64 (n,) each."""

    lower: IntArray  # at least the rank of the lower bound
    upper: IntArray  # at most the rank of the upper bound; equal to `lower` for a constant block only
    shown_lower: IntArray  # `lower` without the knowledge of runs
    shown_upper: IntArray  # `upper` without it
    unnarrowed: BoolArray  # blocks whose bounds a merge did not narrow, bool (n,)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The n blocks of a table, made with `Blocks.build`. Position i of every array describes block i."""

    lower: IntArray  # ranks of the lower bounds, int64 (n,)
    upper: IntArray  # ranks of the upper bounds, int64 (n,), at least `lower`
    points: int  # number of ranks: distinct bounds, counted separately in each partition
    rows: IntArray | None  # int64 (n,), or None if unknown
    bytes: IntArray | None  # int64 (n,), or None if unknown
    level: IntArray  # how much merging is in a block, int64 (n,); 0 for new data
    # Blocks with the same positive number were written together and are disjoint; 0 or less is unknown, int64 (n,).
    run: IntArray
    partition: IntArray  # codes from 0, int64 (n,)
    unbounded: BoolArray  # where an upper bound is unknown or above every value, (n,)
    fixed: BoolArray  # blocks that no plan may rewrite, (n,)
    extents: Extents  # the part of each block's bounds that planning trusts
    deleted: IntArray | None = None  # deleted rows, int64 (n,), or None if unknown
    reads: ReadEnds | None = None  # where reads end, or None if no reads are known
    layout: Layout | None = None  # the boxes of blocks under a curve

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def constant(self) -> BoolArray:
        """Blocks that hold a single key, which reclustering cannot narrow: bool (n,)."""
        constant: BoolArray = self.lower == self.upper
        return constant

    @property
    def bytes_or_0(self) -> IntArray:
        """Size in bytes, 0 if unknown: int64 (n,)."""
        return np.zeros(len(self), np.int64) if self.bytes is None else self.bytes

    @property
    def intervals(self) -> Intervals:
        """The ranks that the blocks cover."""
        return Intervals(self.lower, self.upper + 1, self.points)

    @property
    def cells(self) -> Intervals:
        """The ranks that the blocks cover, and the gaps after each: the cells of `candidates`, with those of bounds."""
        return Intervals(2 * self.lower, 2 * self.upper + 1, 2 * self.points)

    def small(self, full_block: FullBlock) -> BoolArray:
        """Small blocks: bool (n,). Blocks whose rows are unknown count as full."""
        if self.rows is None:
            return np.zeros(len(self), np.bool_)
        return full_block.is_small(self.rows, self.bytes_or_0)

    def deleted_at_least(self, share: float) -> BoolArray:
        """Blocks of which this share of the rows, or more, is deleted: bool (n,)."""
        if self.deleted is None or self.rows is None:
            return np.zeros(len(self), np.bool_)
        return self.deleted / np.maximum(self.rows, 1) >= share  # the quotient of `Candidates.deleted_share`

    def take(self, positions: IntArray) -> Blocks:
        """Return the blocks at ``positions``, int64 (m,), on the same axis of ranks."""
        extents = Extents._make(array[positions] for array in self.extents)
        layout = None if self.layout is None else self.layout.take(positions)
        return replace(self, extents=extents, layout=layout, **arrays_at(self, positions))

    @classmethod
    def build(
        cls,
        lower: Keys,
        upper: Keys,
        rows: Keys | None = None,
        bytes: Keys | None = None,
        level: Keys | None = None,
        run: Keys | None = None,
        partition: Keys | None = None,
        unbounded: Keys | None = None,
        deleted: Keys | None = None,
        reads: Reads | None = None,
        fixed: Keys | None = None,
        layout: Layout | None = None,
    ) -> Blocks:
        """Describe n blocks by their bounds.

        Args:
            lower: Least cluster keys: a list, NumPy array or Arrow array of length n; for a compound key a list of
                them, one for each column. Tuples compare left to right; NULL (None) is least, NaN greatest.
            upper: Greatest cluster keys, in the same form.
            rows: int (n,). Without it, planning takes every block for a full one.
            bytes: int (n,).
            level: int (n,), 0 by default.
            run: int (n,), 0 (unknown) by default.
            partition: n values of any type; blocks of different partitions are never compared.
            unbounded: bool (n,), or one such mask for each key column. An unbounded block's upper bound is ignored.
                A block without bounds has lower None and unbounded True: it covers its whole partition.
            deleted: int (n,), how many of the rows are deleted. Needs ``rows``.
            reads: Ranges of the key that queries read.
            fixed: bool (n,), true for blocks that no plan may rewrite; none by default.
            layout: The boxes of blocks under a curve, of which ``lower`` and ``upper`` have the intervals.

        Raises:
            BoundsError: Lengths differ, keys cannot be compared, a figure is negative, or lower exceeds upper.
        """
        n, masks, columns = ranked_columns(lower, upper, unbounded, reads)
        codes, partitions = number_partitions(partition, n)
        runs = whole_numbers("run", run, n, _LEAST_RUN)
        # Lower and then upper bounds: partitions, and the codes of each key column.
        bounds = [(np.tile(codes, 2), partitions), *((column[: 2 * n], size) for column, size in columns)]
        ranks, points = combined_ranks(bounds[1:] if partitions == 1 else bounds)
        inverted = np.flatnonzero(ranks[:n] > ranks[n:])
        if len(inverted):
            raise BoundsError(
                f"lower bound above upper in {len(inverted)} of {n} blocks, first at position {inverted[0]}; "
                "pass a block whose bounds are not known with lower None and unbounded True"
            )
        row_counts = None if rows is None else whole_numbers("rows", rows, n)
        return cls(
            lower=ranks[:n],
            upper=ranks[n:],
            points=points,
            rows=row_counts,
            bytes=None if bytes is None else whole_numbers("bytes", bytes, n),
            level=whole_numbers("level", level, n),
            run=runs,
            partition=codes,
            unbounded=np.logical_or.reduce(masks),
            fixed=whole_numbers("fixed", fixed, n).astype(np.bool_),
            extents=_extents(*_first_differing_column(ranks, bounds), runs),
            # Two delete files may delete the same row.
            deleted=None
            if deleted is None or row_counts is None
            else np.minimum(whole_numbers("deleted", deleted, n), row_counts),
            reads=None if reads is None else ReadEnds.from_reads(reads, place_reads(columns, n), ranks, points),
            layout=layout,
        )


def _first_differing_column(ranks: IntArray, columns: Sequence[Codes]) -> tuple[IntArray, IntArray]:
    """Move both ends of n blocks inwards, past all ranks that share the columns up to the first in which they differ.

    ``ranks``, int64 (2n,), are those of the ``columns``, of which the first has partitions.
    """
    n = len(ranks) // 2
    lower, upper = ranks[:n], ranks[n:]
    shared, count = columns[0]
    undecided = np.ones(n, np.bool_)
    for codes, size in columns[1:-1]:
        shared, count = combined_ranks([(shared, count), (codes, size)])
        differs = undecided & (codes[:n] != codes[n:])
        undecided &= ~differs
        if differs.any():
            first = np.full(count + 1, int(ranks.max()) + 1)
            np.minimum.at(first, shared, ranks)
            lower = np.where(differs, first[shared[:n] + 1] - 1, lower)
            upper = np.where(differs, first[shared[n:]], upper)
    return lower, upper


def _extents(lower: IntArray, upper: IntArray, run: IntArray) -> Extents:
    """Find the extents of blocks whose bounds differ in one column, by their ranks and runs."""
    unnarrowed = np.zeros(len(run), np.bool_)
    in_runs = np.flatnonzero((run > 0) & (lower < upper))
    segments = Segments.from_intervals(lower[in_runs], upper[in_runs], run[in_runs])
    depth, place = segments.covered.depth(), np.arange(len(segments.begins))
    if (depth <= 1).all():
        return Extents(lower, upper, lower, upper, unnarrowed)
    # The first and the last segment where each block is alone.
    first = -segments.covered.greatest(np.where(depth == 1, -place, -len(place)))
    last = segments.covered.greatest(np.where(depth == 1, place, -1))
    alone = last >= 0
    unnarrowed[in_runs[~alone]] = True
    alone_lower, alone_upper = lower.copy(), upper.copy()
    alone_lower[in_runs[alone]] = segments.begins[first[alone]]
    alone_upper[in_runs[alone]] = segments.begins[last[alone] + 1]
    return Extents(alone_lower, alone_upper, lower, upper, unnarrowed)
