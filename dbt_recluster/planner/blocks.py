"""Blocks: bounds, sizes, levels and runs of a table's blocks, which every metric and strategy reads.

Bounds are ranks. Partitions follow one another on one axis of ranks, so blocks of different partitions never overlap
and a sweep needs to know nothing about partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, Int32Array, IntArray, Sweep, combined_ranks
from dbt_recluster.planner.extents import Extents, block_extents
from dbt_recluster.planner.ranks import Keys, number_partitions, whole_numbers
from dbt_recluster.planner.reads import ReadEnds, Reads, place_reads, ranked_columns, read_ends

# Any number may stand for an unknown run.
_LEAST_RUN = np.iinfo(np.int64).min


@dataclass(frozen=True)
class FullBlock:
    """What a full block holds.

    Attributes:
        rows: Rows, at least 1.
        bytes: Bytes, at least 1, or None if unknown; then rows alone count.
    """

    rows: int
    bytes: int | None = None

    def is_small(self, rows: IntArray | Int32Array, size: IntArray | Int32Array) -> BoolArray:
        """Blocks with less than half of the rows and of the bytes, given those of n blocks: bool (n,)."""
        small: BoolArray = rows < self.rows / 2
        if self.bytes is not None:
            small &= size < self.bytes / 2
        return small

    def equivalent_rows(self, rows: IntArray | Int32Array, size: IntArray | Int32Array) -> IntArray:
        """Size of n blocks in rows, where a block full in bytes counts as full in rows: int64 (n,), at least 1.

        Whole numbers, so that ten blocks of a tenth are exactly one.
        """
        equivalent = np.maximum(rows.astype(np.int64), 1)
        if self.bytes is not None:
            by_bytes = np.ceil(size.astype(np.float64) * self.rows / self.bytes)
            np.maximum(equivalent, by_bytes.astype(np.int64), out=equivalent)
        return equivalent

    def count(self, rows: IntArray, size: IntArray | Int32Array) -> IntArray:
        """The fewest full blocks that hold these rows and bytes, (n,): int64 (n,), at least 1."""
        count = np.maximum(-(-rows // self.rows), 1)
        return count if self.bytes is None else np.maximum(count, -(-size // self.bytes))


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a table, made with `Blocks.build`. Position i of every array describes block i.

    Attributes:
        lower: Ranks of the lower bounds, int64 (n,).
        upper: Ranks of the upper bounds, int64 (n,), at least ``lower``.
        points: Number of ranks: distinct bounds, counted separately in each partition.
        rows: Number of rows, int64 (n,), or None if unknown.
        bytes: Size in bytes, int64 (n,), or None if unknown.
        level: How much merging is in a block, int64 (n,); 0 for new data.
        run: int64 (n,). Blocks with the same positive number were written together and are disjoint; 0 or less means
            unknown.
        partition: Codes from 0, int64 (n,).
        unbounded: bool (n,), true where an upper bound is unknown or above every value.
        fixed: bool (n,), true for blocks that no plan may rewrite.
        extents: The part of each block's bounds that planning trusts.
        deleted: Rows of each block that delete files delete, int64 (n,), or None if there are none.
        reads: Where reads end, or None if no reads are known.
    """

    lower: IntArray
    upper: IntArray
    points: int
    rows: IntArray | None
    bytes: IntArray | None
    level: IntArray
    run: IntArray
    partition: IntArray
    unbounded: BoolArray
    fixed: BoolArray
    extents: Extents
    deleted: IntArray | None = None
    reads: ReadEnds | None = None

    def __len__(self) -> int:
        """Number of blocks."""
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

    def sweep(self) -> Sweep:
        """Sweep over the bounds: depths, overlaps and the depth at each rank."""
        return Sweep.over(self.lower, self.upper, self.points)

    def small(self, full_block: FullBlock) -> BoolArray:
        """Small blocks: bool (n,). Blocks whose rows are unknown count as full."""
        if self.rows is None:
            return np.zeros(len(self), np.bool_)
        return full_block.is_small(self.rows, self.bytes_or_0)

    def deleted_at_least(self, share: float) -> BoolArray:
        """Blocks of which this share of the rows, or more, is deleted: bool (n,)."""
        if self.deleted is None or self.rows is None:
            return np.zeros(len(self), np.bool_)
        deleted: BoolArray = self.deleted >= share * np.maximum(self.rows, 1)
        return deleted

    def take(self, positions: IntArray) -> Blocks:
        """Return the blocks at ``positions``, int64 (m,), on the same axis of ranks."""
        arrays: dict[str, Any] = {
            f.name: getattr(self, f.name)[positions]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        return replace(self, extents=self.extents.take(positions), **arrays)

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
    ) -> Blocks:
        """Describe n blocks by their bounds.

        Args:
            lower: Least cluster keys: a list, NumPy array or Arrow array of length n; for a compound key a list of
                them, one for each column. Tuples compare left to right; NULL (None) is least, NaN greatest.
            upper: Greatest cluster keys, likewise.
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

        Raises:
            BoundsError: Lengths differ, keys cannot be compared, a figure is negative, or lower exceeds upper.
        """
        n, masks, columns = ranked_columns(lower, upper, unbounded, reads)
        codes, partitions = number_partitions(partition, n)
        runs = np.zeros(n, np.int64) if run is None else whole_numbers("run", run, n, _LEAST_RUN)
        rank_lower, rank_upper, points = _bound_ranks(
            [(column[: 2 * n], size) for column, size in columns], codes, partitions
        )
        bounds_by_column = [(column[:n], column[n : 2 * n]) for column, _ in columns]
        return cls(
            lower=rank_lower,
            upper=rank_upper,
            points=points,
            rows=None if rows is None else whole_numbers("rows", rows, n),
            bytes=None if bytes is None else whole_numbers("bytes", bytes, n),
            level=np.zeros(n, np.int64) if level is None else whole_numbers("level", level, n),
            run=runs,
            partition=codes,
            unbounded=np.logical_or.reduce(masks),
            fixed=np.zeros(n, np.bool_)
            if fixed is None
            else whole_numbers("fixed", fixed, n).astype(np.bool_),
            extents=block_extents(rank_lower, rank_upper, bounds_by_column, codes, runs),
            deleted=_deleted_rows(deleted, rows, n),
            reads=None
            if reads is None
            else read_ends(reads, place_reads(columns, n), np.concatenate([rank_lower, rank_upper]), points),
        )


def _deleted_rows(deleted: Keys | None, rows: Keys | None, n: int) -> IntArray | None:
    if deleted is None or rows is None:
        return None
    # Two delete files may delete the same row.
    return np.minimum(whole_numbers("deleted", deleted, n), whole_numbers("rows", rows, n))


def _bound_ranks(
    columns: list[tuple[IntArray, int]], partition: IntArray, partitions: int
) -> tuple[IntArray, IntArray, int]:
    """Rank the bounds of n blocks, partition by partition, by the codes of each key column (see `combined_ranks`).

    Returns:
        Ranks of the lower and of the upper bounds, int64 (n,) each, and the number of ranks.

    Raises:
        BoundsError: A lower bound exceeds its upper bound.
    """
    n = len(partition)
    parts = columns if partitions == 1 else [(np.concatenate([partition, partition]), partitions), *columns]
    ranks, points = combined_ranks(parts)
    lower, upper = ranks[:n], ranks[n:]
    inverted = np.flatnonzero(lower > upper)
    if len(inverted):
        raise BoundsError(
            f"lower bound above upper in {len(inverted)} of {n} blocks, first at position {inverted[0]}; "
            "pass a block whose bounds are not known with lower None and unbounded True"
        )
    return lower, upper, points
