"""Reads: ranges of keys that queries ask for, and the depth where they end.

A read opens every block within its range, which it needs, and the blocks over the two ends of the range, which also
hold rows beyond it. Overlap costs only at these ends: the deeper they are, the more blocks are wasted.
Source: Liu, Zhou, Yan and Zhang, "Workload-Aware Incremental Reclustering in Cloud Data Warehouses", 2026
(arXiv 2602.23289), whose boundary partitions are these blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import (
    BoolArray,
    Codes,
    FloatArray,
    IntArray,
    Intervals,
    combined_ranks,
    numbers_within,
    range_max,
)
from dbt_recluster.planner.ranks import Keys, key_columns, length, rank_column, unbounded_masks

# Set on seeds 0 to 3 of `python benchmarks/reads.py`, which measures what other values cost.

# Planning assumes that this share of the reads is spread evenly over the table. Otherwise keys at which no known read
# ends would overlap without bound.
EVEN_SHARE = 0.05
# Two stretches of the axis differ if chance would make them so in fewer than one of 370 cases.
_SIGMAS = 3.0
# With fewer ends, assume this many: a handful of reads is the workload, not a sample of it.
_FEW_ENDS = 300.0
# Avoids division by zero.
_LEAST = np.finfo(np.float64).tiny
# Blocks of a group whose weights are in different powers of this are decided on apart. 4 or 16 in its place is better
# for some reads and worse for others, by a twentieth to a sixth of the work (benchmarks/reads.py).
_WEIGHT_STEP = 8.0
# Weights below this share of the mean are alike.
_LEAST_RATE = 0.002


@dataclass(frozen=True, eq=False)
class Reads:
    """Closed ranges of keys that queries read.

    For a compound key, bounds may have fewer columns than the key: then the range holds all keys that begin so.
    """

    lower: Keys  # least keys, as in `Blocks.build`, length m; None where a range has no lower end
    upper: Keys  # greatest keys; None where it has no upper end
    weight: Keys | None = None  # how often each range is read, float (m,), or None for once each


@dataclass(frozen=True, eq=False)
class ReadEnds:
    """The weight of the ends of reads along the key, at the ranks of the blocks' bounds.

    A range of a single key has one end; other ranges have two, unless they are open. A lower end lies right below its
    key, and an upper end right above: blocks that begin or end there hold no rows beyond the range.
    """

    # Of the ends below each rank, of these and its lower ends, of these and the ranges of this one key, and of these
    # and its upper ends: float64 (points, 4). It starts again in every partition.
    below: FloatArray

    @classmethod
    def from_reads(cls, reads: Reads, placed: PlacedReads, ranks: IntArray, points: int) -> ReadEnds:
        """Weigh the ends of placed reads at the ranks of the blocks' lower and then upper bounds, int64 (2n,)."""
        weight = _weights(reads.weight, len(placed.lower))
        single = placed.lower == placed.upper
        lower, upper = placed.has_lower | single, placed.has_upper & ~single
        ends = np.concatenate([(3 * placed.lower + single)[lower], 3 * placed.upper[upper] + 2])
        weight = np.concatenate([weight[lower], weight[upper]])
        order = np.lexsort((weight, ends))
        total = np.append(0.0, np.cumsum(weight[order]))
        key_of_rank = np.zeros((points, 1), np.int64)
        key_of_rank[ranks, 0] = placed.blocks
        return cls(total[np.searchsorted(ends[order], 3 * key_of_rank + np.arange(4))])

    @property
    def in_cells(self) -> FloatArray:
        """Weight of the ends at each rank, and between it and the next one of its partition: float64 (2 * points,)."""
        between = np.maximum(np.append(self.below[1:, 0], 0.0) - self.below[:, 3], 0.0)
        return np.column_stack([self.below[:, 3] - self.below[:, 0], between]).ravel()

    def below_cells(self, cell: IntArray) -> FloatArray:
        """Weight of the ends below each cell (see `candidates`): float64 (c,)."""
        below: FloatArray = self.below.ravel()[2 * cell + 1 - cell % 2]
        return below

    def moved(self, places: FloatArray) -> ReadEnds:
        """The ends at other places on the axis of ranks, float64 (k,). Ends between two ranks lie evenly."""
        rank = np.floor(places).astype(np.int64)
        inside = places - rank
        between = self.below[rank, 3] + inside * self.in_cells[2 * rank + 1]
        return ReadEnds(np.where(inside[:, None] > 0, between[:, None], self.below[rank]))


def ranked_columns(
    lower: Keys, upper: Keys, unbounded: Keys | None, reads: Reads | None
) -> tuple[int, list[BoolArray], list[Codes]]:
    """Rank the bounds of n blocks and of m reads, column by column. Arguments and errors are those of `Blocks.build`.

    Returns:
        The number n; for each key column the mask of unknown upper bounds, bool (n,); and for each the codes of
        `rank_column`, (2n + 2m,), or (2n,) where reads do not have it.
    """
    lowers, uppers = key_columns(lower, upper)
    n = length(lowers[0])
    masks = unbounded_masks(unbounded, n, len(lowers))
    ends: list[tuple[Keys, Keys] | None] = []
    if reads is not None:
        lows, highs = key_columns(reads.lower, reads.upper)
        if len(lows) > len(lowers):
            raise BoundsError(f"reads have {len(lows)} key columns, and the key has {len(lowers)}")
        lengths = {length(column) for column in (*lows, *highs)}
        if len(lengths) > 1:
            raise BoundsError(f"bounds of reads must be of one length, not of {', '.join(map(str, sorted(lengths)))}")
        ends += zip(lows, highs, strict=True)
    ends += [None] * (len(lowers) - len(ends))
    return n, masks, [rank_column(*column) for column in zip(lowers, uppers, masks, ends, strict=True)]


@dataclass(frozen=True, eq=False)
class PlacedReads:
    """Bounds of m reads and of n blocks as numbers that compare as the keys do."""

    lower: IntArray  # lower bounds of the reads, int64 (m,)
    upper: IntArray  # upper bounds; equal to `lower` only where a read is of one key
    has_lower: BoolArray  # whether a read has a lower end, (m,)
    has_upper: BoolArray  # whether it has an upper end, (m,)
    blocks: IntArray  # lower and then upper bounds of the blocks, int64 (2n,)


def place_reads(columns: Sequence[Codes], n: int) -> PlacedReads:
    """Place the ends of m reads among the bounds of n blocks.

    ``columns`` are those of `ranked_columns`. A read without a value of a column leaves the later ones open too.
    """
    m = len(columns[0][0]) // 2 - n
    ends = [np.resize(codes[2 * n :], 2 * m) for codes, _ in columns]
    beyond = np.zeros(2 * m, np.bool_)
    for codes, (of_column, size) in zip(ends, columns, strict=True):
        beyond |= len(of_column) == 2 * n
        codes[beyond] = np.repeat([0, size - 1], m)[beyond]
        beyond |= (codes == 0) | (codes == size - 1)
    placed = zip(columns, ends, strict=True)
    keys, _ = combined_ranks([(np.concatenate([codes[: 2 * n], of_ends]), size) for (codes, size), of_ends in placed])
    lower, upper = keys[2 * n : 2 * n + m], keys[2 * n + m :]
    inverted = np.flatnonzero(lower > upper)
    if len(inverted):
        raise BoundsError(f"lower bound above upper in {len(inverted)} of {m} reads, first at position {inverted[0]}")
    # An end beyond all values of the first column is open.
    return PlacedReads(lower, upper, ends[0][:m] > 0, ends[0][m:] < columns[0][1] - 1, keys[: 2 * n].astype(np.int64))


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
class WeightedAxis:
    """An axis on which the length of the stretch that each of n blocks covers is the cost of overlap over it.

    Without known reads every unit costs the same. With reads, overlap costs where they end: the weight of a stretch of
    the axis is that of the ends in it.
    """

    steps: Intervals  # steps of the axis that each block covers
    weight: FloatArray | None  # weight of each step, float64 (steps,), or None if all cost 1
    low: FloatArray | IntArray  # weight of all steps before each block, int32 or float64 (n,)
    high: FloatArray | IntArray  # weight of all steps before the end of each block, of the same type

    @classmethod
    def by_reads(
        cls, units: Intervals, cells: IntArray, reads: ReadEnds, partition: IntArray, chosen: BoolArray | None = None
    ) -> WeightedAxis:
        """Weigh the units that n blocks cover by where reads end; the mean unit in each partition costs 1.

        Steps are the units and, after each, the gap up to the next one. Gaps that no block covers are free. Blocks are
        in the order of their begins, and of their partitions, (n,). ``cells`` are those of the units, (2n,), ascending
        (see `candidates`). Weights follow reads in the ``chosen`` partitions, bool (partitions,), or in all;
        elsewhere all units cost the same.
        """
        steps = Intervals(2 * units.begin, 2 * units.end - 1, 2 * units.size)
        ends = reads.below_cells(np.column_stack([cells, cells + 1]).ravel())
        ends[:-1] = np.maximum(np.diff(ends), 0.0)
        ends[-1] = 0.0
        ends[2::2][cells[1:] == cells[:-1]] = 0.0
        reach = np.maximum.accumulate(units.end)[:-1]
        ends[2 * reach[units.begin[1:] >= reach] - 1] = 0.0
        ends = ends.reshape(-1, 2)
        count, units_of = ends[:, 0] + ends[:, 1], 2 * np.bincount(partition)
        of_unit = np.repeat(np.arange(len(units_of)), units_of)
        total = np.bincount(of_unit, count, len(units_of))
        scale = np.divide(units_of, total, out=np.zeros(len(units_of)), where=total > 0)
        rate = smooth(count, units_of) * scale[of_unit]
        # The share of the ends in the unit and in the gap after it. Without ends, all of it is the unit's.
        even = np.array([1.0, 0.0])
        weight = np.tile(even, (len(count), 1))
        some = np.flatnonzero(count)
        weight[some] = ends[some] / count[some, None]
        del ends
        weight *= rate[:, None]
        if chosen is not None:
            weight[~chosen[of_unit]] = even
        places = np.append(0.0, np.cumsum(weight))
        return cls(steps, weight.ravel(), places[steps.begin], places[steps.end])

    @property
    def length(self) -> FloatArray | IntArray:
        """Weight of the steps that each block covers: (n,)."""
        return np.subtract(self.high, self.low)

    @property
    def heaviest_power(self) -> IntArray:
        """The power (see `weight_powers`) of the heaviest unit that each block covers: (n,)."""
        assert self.weight is not None  # only where reads are known
        of_unit = weight_powers(self.weight[0::2] + self.weight[1::2]).astype(np.int32)
        return range_max(of_unit, self.steps.begin // 2, self.steps.end // 2)

    def take(self, blocks: IntArray) -> WeightedAxis:
        """The axis of some blocks, given by position."""
        return WeightedAxis(self.steps.take(blocks), self.weight, self.low[blocks], self.high[blocks])


def weight_powers(rate: FloatArray) -> IntArray:
    """Round weights to powers of `_WEIGHT_STEP`: the exponents, int64 (n,). The least ones count as alike."""
    powers: IntArray = np.rint(np.log(np.maximum(rate, _LEAST_RATE)) / np.log(_WEIGHT_STEP)).astype(np.int64)
    return powers


def smooth(count: FloatArray, units: IntArray) -> FloatArray:
    """Smooth the number of ends in each unit where differences may be chance: float64 (u,), with the same totals.

    Reads are a sample of those to come. Where two neighbouring stretches of a partition differ by no more than samples
    of one rate do, their rates become equal: from the halves of a partition down to single units (Kolaczyk, "Bayesian
    multiscale models for Poisson processes", 1999).

    Args:
        count: How often a read ended in each unit, float64 (u,), partition after partition.
        units: Number of units in each partition, int64 (partitions,).
    """
    size = np.where(units > 0, 1 << np.ceil(np.log2(np.maximum(units, 1))).astype(np.int64), 0)
    # In descending order of size, each partition begins at a multiple of its size, so no pair lies in two of them.
    order = np.argsort(-size, kind="stable")
    start = np.empty_like(size)
    start[order] = np.cumsum(size[order]) - size[order]
    place = numbers_within(units) + np.repeat(start, units)
    of_partition = np.bincount(np.repeat(np.arange(len(units)), units), count, len(units))
    share = count / np.maximum(np.repeat(of_partition, units), _LEAST)
    counts, lengths = [np.zeros(int(size.sum()))], [np.zeros(int(size.sum()))]
    counts[0][place], lengths[0][place] = share * np.repeat(np.maximum(of_partition, _FEW_ENDS), units), 1.0
    while len(counts[-1]) > 1:
        pairs = len(counts[-1]) // 2 * 2
        counts.append(counts[-1][0:pairs:2] + counts[-1][1:pairs:2])
        lengths.append(lengths[-1][0:pairs:2] + lengths[-1][1:pairs:2])
    rate: FloatArray = np.zeros(0)
    mean = of_partition / np.maximum(units, 1)
    for level in reversed(range(len(counts))):
        rate = np.append(rate, mean[order][size[order] == 1 << level])
        if level:
            rate = _halves(rate, counts[level], counts[level - 1], lengths[level - 1])
    smoothed: FloatArray = rate[place]
    return smoothed


def _halves(rate: FloatArray, total: FloatArray, count: FloatArray, length: FloatArray) -> FloatArray:
    """Rates of the halves of stretches: their own where they differ, else that of the whole: float64 (2s,)."""
    halves: FloatArray = np.repeat(rate, 2)
    some = np.flatnonzero(total[: len(rate)])
    count, length = count[: len(halves)].reshape(-1, 2)[some], length[: len(halves)].reshape(-1, 2)[some]
    whole = np.maximum(total[some, None], _LEAST)
    share = length / np.maximum(length.sum(axis=1, keepdims=True), _LEAST)
    differ = (count - whole * share) ** 2 > _SIGMAS**2 * whole * share[:, ::-1] * share
    factor = count / whole / np.maximum(share, _LEAST)
    halves.reshape(-1, 2)[some] *= np.where(differ, factor, 1.0)
    return halves
