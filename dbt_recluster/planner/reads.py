"""Reads: ranges of keys that queries ask for, and the depth where they end.

A read opens every block within its range, which it needs, and the blocks over the two ends of the range, which also
hold rows beyond it. Overlap costs only at these ends: the deeper they are, the more blocks are wasted.
Source: Liu, Zhou, Yan and Zhang, "Workload-Aware Incremental Reclustering in Cloud Data Warehouses", 2026
(arXiv 2602.23289), whose boundary partitions are these blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, combined_ranks
from dbt_recluster.planner.ranks import (
    Keys,
    key_columns,
    length,
    number_partitions,
    rank_column,
    unbounded_masks,
    whole_numbers,
)

# Planning assumes that this share of the reads is spread evenly over the table. Otherwise keys at which no known read
# ends would overlap without bound.
EVEN_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Reads:
    """Closed ranges of keys that queries read.

    Attributes:
        lower: Least keys, of the types of `Blocks.build`, length m; None where a range has no lower end. For a compound
            key, a list of columns, which may be fewer than the key has: then the range holds all keys that begin so.
        upper: Greatest keys, likewise.
        weight: How often each range is read, float (m,), or None for once each.
    """

    lower: Keys
    upper: Keys
    weight: Keys | None = None


@dataclass(frozen=True, eq=False)
class ReadEnds:
    """The weight of the ends of reads along the key, at the ranks of the blocks' bounds: float64 (points,) each.

    A range of a single key has one end; other ranges have two, unless they are open.
    """

    below: FloatArray  # of the ends below each rank; it starts again in every partition
    lower: FloatArray  # of the lower ends at each rank
    single: FloatArray  # of the ranges of this one key
    upper: FloatArray  # of the upper ends at each rank

    @property
    def at(self) -> FloatArray:
        """Weight of the ends at each rank: float64 (points,)."""
        return self.lower + self.single + self.upper

    @property
    def after(self) -> FloatArray:
        """Weight of the ends between each rank and the next: float64 (points,), 0 at the last one of a partition."""
        after = np.zeros_like(self.below)
        after[:-1] = np.maximum(np.diff(self.below) - self.at[:-1], 0.0)
        return after

    def below_cells(self, cell: IntArray) -> FloatArray:
        """Weight of the ends below each cell (see `candidates`): float64 (c,).

        A lower end lies right below its key, and an upper end right above: blocks that begin or end there hold no rows
        beyond the range.
        """
        rank = cell // 2
        return self.below[rank] + self.lower[rank] + (cell % 2) * self.single[rank]

    def in_cells(self, cell: IntArray) -> FloatArray:
        """Weight of the ends in each cell: float64 (c,). The cell must lie within a partition."""
        rank = cell // 2
        following = np.minimum(rank + 1, len(self.below) - 1)
        gap = self.below[following] + self.lower[following] - (self.below + self.lower + self.single)[rank]
        return np.where(cell % 2 == 0, self.single[rank], np.maximum(gap, 0.0))

    def moved(self, places: FloatArray) -> ReadEnds:
        """The ends at other places on the axis of ranks, float64 (k,). Ends between two ranks lie evenly."""
        rank = np.floor(places).astype(np.int64)
        inside = places - rank
        passed = np.where(inside > 0, self.at[rank] + inside * self.after[rank], 0.0)
        at = [np.where(inside == 0, ends[rank], 0.0) for ends in (self.lower, self.single, self.upper)]
        return ReadEnds(self.below[rank] + passed, *at)


def ranked_columns(
    lower: Keys, upper: Keys, unbounded: Keys | None, reads: Reads | None
) -> tuple[int, list[BoolArray], list[tuple[IntArray, int]]]:
    """Rank the bounds of n blocks and of m reads, column by column. Arguments and errors are those of `Blocks.build`.

    Returns:
        The number n; the mask of unknown upper bounds of each key column, bool (n,); and for each key column the codes
        of `rank_column`, int64 (2n + 2m,) or (2n,) where reads do not have it, and a number greater than all of them.
    """
    lowers, uppers = key_columns(lower, upper)
    n = length(lowers[0])
    masks = unbounded_masks(unbounded, n, len(lowers))
    ends = _end_columns(reads, len(lowers))
    return n, masks, [rank_column(*column) for column in zip(lowers, uppers, masks, ends, strict=True)]


def _end_columns(reads: Reads | None, columns: int) -> list[tuple[Keys, Keys] | None]:
    """Split the bounds of reads into the columns of a key; None for a column that they do not have."""
    if reads is None:
        return [None] * columns
    lowers, uppers = key_columns(reads.lower, reads.upper)
    if len(lowers) > columns:
        raise BoundsError(f"reads have {len(lowers)} key columns, and the key has {columns}")
    lengths = {length(column) for column in (*lowers, *uppers)}
    if len(lengths) > 1:
        raise BoundsError(
            f"bounds of reads must be of one length, not of {', '.join(map(str, sorted(lengths)))}"
        )
    return [*zip(lowers, uppers, strict=True), *[None] * (columns - len(lowers))]


@dataclass(frozen=True, eq=False)
class PlacedReads:
    """Bounds of m reads and of n blocks as numbers that compare as the keys do."""

    lower: IntArray  # lower bounds of the reads, int64 (m,)
    upper: IntArray  # upper bounds; equal to `lower` only where a read asks for one key
    has_lower: BoolArray  # whether a read has a lower end, (m,)
    has_upper: BoolArray  # whether it has an upper end, (m,)
    blocks: IntArray  # lower and then upper bounds of the blocks, int64 (2n,)


def place_reads(columns: list[tuple[IntArray, int]], n: int) -> PlacedReads:
    """Place the ends of m reads among the bounds of n blocks.

    ``columns`` are those of `ranked_columns`. A read without a value of a column leaves the later ones open too.
    """
    m = len(columns[0][0]) // 2 - n
    ends = [np.resize(codes[2 * n :], 2 * m) for codes, _ in columns]
    beyond = np.zeros(2 * m, np.bool_)
    for codes, (given, size) in zip(ends, columns, strict=True):
        beyond |= len(given) == 2 * n
        codes[beyond] = np.repeat([0, size - 1], m)[beyond]
        beyond |= (codes == 0) | (codes == size - 1)
    keys, _ = combined_ranks(
        [
            (np.concatenate([codes[: 2 * n], of_ends]), size)
            for (codes, size), of_ends in zip(columns, ends, strict=True)
        ]
    )
    lower, upper = keys[2 * n : 2 * n + m], keys[2 * n + m :]
    inverted = np.flatnonzero(lower > upper)
    if len(inverted):
        raise BoundsError(
            f"lower bound above upper in {len(inverted)} of {m} reads, first at position {inverted[0]}"
        )
    # An end beyond all values of the first column is open.
    return PlacedReads(
        lower, upper, ends[0][:m] > 0, ends[0][m:] < columns[0][1] - 1, keys[: 2 * n].astype(np.int64)
    )


def read_ends(reads: Reads, placed: PlacedReads, ranks: IntArray, points: int) -> ReadEnds:
    """Weigh the ends of placed reads at the ranks of the blocks' lower and then upper bounds, int64 (2n,)."""
    weight = _weights(reads.weight, len(placed.lower))
    single = placed.lower == placed.upper
    key_of_rank = np.zeros(points, np.int64)
    key_of_rank[ranks] = placed.blocks
    kinds = [
        (placed.lower, placed.has_lower & ~single),
        (placed.lower, single),
        (placed.upper, placed.has_upper & ~single),
    ]
    weights = [_along(end[counts], weight[counts], key_of_rank) for end, counts in kinds]
    return ReadEnds(weights[0][0] + weights[1][0] + weights[2][0], *(at for _, at in weights))


def _along(end: IntArray, weight: FloatArray, key_of_rank: IntArray) -> tuple[FloatArray, FloatArray]:
    """Weight of the ends below each key, and at each key: float64 (points,) each."""
    order = np.lexsort((weight, end))
    total = np.append(0.0, np.cumsum(weight[order]))
    below = np.searchsorted(end[order], key_of_rank)
    through = np.searchsorted(end[order], key_of_rank, side="right")
    return total[below], total[through] - total[below]


def _weights(weight: Keys | None, m: int) -> FloatArray:
    if weight is None:
        return np.ones(m)
    try:
        weights: FloatArray = np.asarray(weight, np.float64)
    except (TypeError, ValueError):
        raise BoundsError("weights of reads must be numbers") from None
    if weights.shape != (m,):
        raise BoundsError(f"weight must have {m} values, one for each read, not {weights.shape}")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total) or (weights < 0).any():
        raise BoundsError("weights of reads must be at least 0, and their sum finite")
    return weights


@dataclass(frozen=True, eq=False)
class ReadCosts:
    """The blocks and bytes that m reads open.

    Attributes:
        opened: Blocks, int64 (m,).
        wasted: Those that the read would not open in a sorted table of as many blocks, float64 (m,).
        bytes: Bytes of the blocks, int64 (m,).
        bytes_wasted: Bytes of the wasted blocks, float64 (m,).
        bytes_per_depth: Wasted bytes for each unit of depth above 1 at the ends, float64 (m,).
    """

    opened: IntArray
    wasted: FloatArray
    bytes: IntArray
    bytes_wasted: FloatArray
    bytes_per_depth: FloatArray


def read_costs(
    lower: Keys,
    upper: Keys,
    bytes: Keys,
    reads: Reads,
    partition: Keys | None = None,
    unbounded: Keys | None = None,
) -> ReadCosts:
    """Count the blocks that reads open, by their bounds.

    Of d blocks over one end of a range, a half lies within it on average, and sorted they would be d blocks one after
    the other: (d - 1) / 2 are wasted. Of d blocks over a single key all but one are.

    Args:
        lower: Least keys of n blocks, as in `Blocks.build`; so are the other arguments.
        upper: Greatest keys.
        bytes: Sizes, int (n,).
        reads: m ranges of the key. Each takes O(n).
        partition: Values of the blocks' partitions; each partition is sorted for itself.
        unbounded: Masks of upper bounds that are not known.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(lower, upper, unbounded, reads)
    placed = place_reads(columns, n)
    codes, _ = number_partitions(partition, n)
    sizes = whole_numbers("bytes", bytes, n)
    first, last = placed.blocks[:n], placed.blocks[n:]
    m = len(placed.lower)
    costs = ReadCosts(np.zeros(m, np.int64), np.zeros(m), np.zeros(m, np.int64), np.zeros(m), np.zeros(m))
    for read, (lower, upper) in enumerate(zip(placed.lower, placed.upper, strict=True)):
        touched = (last >= lower) & (first <= upper)
        costs.opened[read], costs.bytes[read] = np.count_nonzero(touched), sizes[touched].sum()
        # A block that begins or ends where the range does holds no rows beyond it.
        over_ends = [touched & (first < lower), touched & (last > upper)]
        share, over_ends = (1.0, [touched]) if lower == upper else (0.5, over_ends)
        for blocks in over_ends:
            count = np.count_nonzero(blocks)
            if count:
                partitions = len(np.unique(codes[blocks]))
                mean_size = float(sizes[blocks].mean())
                costs.wasted[read] += share * (count - partitions)
                costs.bytes_wasted[read] += share * (count - partitions) * mean_size
                costs.bytes_per_depth[read] += share * partitions * mean_size
    return costs
