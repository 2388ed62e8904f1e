"""The axis on which overlap is summed and priced: intervals of units, coverage and prices.

The axis has one unit for each lower and one for each upper bound, in the order of the bounds. A block covers the units
of all bounds within its own, these two included. So lengths are comparable for every type of key, and the mean
coverage of a unit is the mean depth at the ends of blocks.

Without known reads every unit costs the same. With reads, overlap costs where they end: the price of a stretch of the
axis is the weight of the ends in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, numbers_within, range_max
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.reads import ReadEnds

# Two stretches of the axis differ if chance would make them so in fewer than one of 370 cases.
_SIGMAS = 3.0
# Fewer ends than this count as this many: a handful of reads are the workload itself, not a sample of it.
_FEW_ENDS = 300.0
# Keeps a quotient finite where there is nothing to divide.
_LEAST = np.finfo(np.float64).tiny
# Blocks of a group whose prices are in different powers of this are decided on apart. 4 or 16 in its place is better
# for some reads and worse for others, by a twentieth to a sixth of the work (benchmarks/reads.py).
_PRICE_STEP = 8.0
# Prices below this share of the mean are alike.
_LEAST_RATE = 0.002


@dataclass(frozen=True, eq=False)
class Intervals:
    """Ranges of units that n blocks cover."""

    begin: IntArray  # first unit of each block, int32 (n,), ascending in the order of the candidates
    end: IntArray  # first unit after each block, int32 (n,), greater than `begin`

    @classmethod
    def of(cls, first: IntArray, last: IntArray) -> Intervals:
        """Place n blocks on the axis of their own 2n units, by their first cells, ascending, and their last cells."""
        lasts = np.sort(last)
        begin = np.searchsorted(first, first).astype(np.int32)
        begin += np.searchsorted(lasts, first).astype(np.int32)
        end = np.searchsorted(first, last, side="right").astype(np.int32)
        end += np.searchsorted(lasts, last, side="right").astype(np.int32)
        return cls(begin, end)

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.begin)

    @property
    def length(self) -> IntArray:
        """Number of units that each block covers: int32 (n,)."""
        return self.end - self.begin

    def take(self, blocks: IntArray) -> Intervals:
        """The intervals of some blocks, given by position."""
        return Intervals(self.begin[blocks], self.end[blocks])

    def components(self) -> IntArray:
        """Number the ranges that blocks cover without a gap, in the order of the axis: int32 (n,) for each block."""
        component = np.zeros(len(self), np.int32)
        np.cumsum(self.begin[1:] >= np.maximum.accumulate(self.end)[:-1], out=component[1:])
        return component


class Coverage:
    """Sum over blocks of a value that a block has in each of its units.

    Args:
        units: Length of the axis.
        weight: Price of each unit, float64 (units,), or None if all cost 1.
    """

    def __init__(self, units: int, weight: FloatArray | None = None) -> None:
        self._steps = np.zeros(units + 1)
        self._weight = weight

    def add(self, intervals: Intervals, value: FloatArray) -> None:
        """Add n blocks with these values for each unit, (n,)."""
        # `np.add.at` is several times slower if it has to convert.
        value = value.astype(np.float64, copy=False)
        np.add.at(self._steps, intervals.begin, value)
        np.subtract.at(self._steps, intervals.end, value)

    def values(self) -> FloatArray:
        """Sum over blocks in each unit: float64 (units,)."""
        return np.cumsum(self._steps[:-1])

    def integral(self) -> FloatArray:
        """Sum over all units before each, times their price: float64 (units + 1,)."""
        integral = np.empty_like(self._steps)
        integral[0] = 0.0
        np.cumsum(self._steps[:-1], out=integral[1:])
        if self._weight is not None:
            integral[1:] *= self._weight
        return np.cumsum(integral, out=integral)


def total_over(integral: FloatArray, intervals: Intervals) -> FloatArray:
    """Sum over each block's units, given a coverage's integral: float64 (n,)."""
    total = integral[intervals.end]
    total -= integral[intervals.begin]
    return total


@dataclass(frozen=True, eq=False)
class Prices:
    """An axis on which the length of the stretch that each of n blocks covers is the price of overlap over it."""

    intervals: Intervals  # steps that each block covers
    weight: FloatArray | None  # price of each step, float64 (steps,), or None if all cost 1
    low: FloatArray | IntArray  # price of all steps before each block, int32 or float64 (n,)
    high: FloatArray | IntArray  # price of all steps before the end of each block, of the same type

    @classmethod
    def even(cls, intervals: Intervals) -> Prices:
        """Make an axis whose steps are the units of these intervals, at 1 each."""
        return cls(intervals, None, intervals.begin, intervals.end)

    @classmethod
    def of(
        cls,
        intervals: Intervals,
        candidates: Candidates,
        member: IntArray | slice = slice(None),
        by_reads: BoolArray | None = None,
    ) -> Prices:
        """Price the axis of some blocks by where reads end; the mean unit in each partition costs 1.

        Steps are the units and, after each, the gap up to the next one. Gaps that no block covers are free.

        Args:
            intervals: Intervals of n blocks.
            candidates: The candidates, with the ends of known reads.
            member: Their positions in the candidates, (n,), ascending; all by default.
            by_reads: Partitions whose prices follow reads, bool (partitions,), or None for all. Elsewhere all units
                cost the same.
        """
        if candidates.reads is None or (by_reads is not None and not by_reads.any()):
            return cls.even(intervals)
        cells = np.sort(np.concatenate([candidates.first[member], candidates.last[member]]))
        weight = _end_weights(intervals, cells, candidates.reads)
        units = 2 * np.bincount(candidates.partition[member])
        partition = np.repeat(np.arange(len(units)), units)
        count = weight.sum(axis=1)
        total = np.bincount(partition, count, len(units))
        scale = np.divide(units, total, out=np.zeros(len(units)), where=total > 0)
        rate = smooth(count, units) * scale[partition]
        # The share of the ends in the unit and in the gap after it. Without ends, all of it is the unit's.
        inside = np.divide(
            weight, count[:, None], out=np.tile([1.0, 0.0], (len(count), 1)), where=count[:, None] > 0
        )
        weight = rate[:, None] * inside
        if by_reads is not None:
            weight = np.where(by_reads[partition, None], weight, [1.0, 0.0])
        places = np.append(0.0, np.cumsum(weight))
        steps = Intervals(2 * intervals.begin, 2 * intervals.end - 1)
        return cls(steps, weight.ravel(), places[steps.begin], places[steps.end])

    @property
    def length(self) -> FloatArray | IntArray:
        """Price of the steps that each block covers: (n,)."""
        return np.subtract(self.high, self.low)

    @property
    def dearest_step(self) -> IntArray:
        """The step (see `price_steps`) of the dearest unit that each block covers: (n,)."""
        if self.weight is None:
            return np.zeros(len(self.intervals), np.int64)
        of_unit = price_steps(self.weight.reshape(-1, 2).sum(axis=1)).astype(np.int32)
        return range_max(of_unit, self.intervals.begin // 2, self.intervals.end // 2)

    def take(self, blocks: IntArray) -> Prices:
        """The axis of some blocks, given by position."""
        return Prices(self.intervals.take(blocks), self.weight, self.low[blocks], self.high[blocks])


def price_steps(rate: FloatArray) -> IntArray:
    """Round prices to powers of `_PRICE_STEP`: the exponents, int64 (n,). The least ones count as alike."""
    steps: IntArray = np.rint(np.log(np.maximum(rate, _LEAST_RATE)) / np.log(_PRICE_STEP)).astype(np.int64)
    return steps


def smooth(count: FloatArray, units: IntArray) -> FloatArray:
    """Smooth the number of ends in each unit where differences may be chance.

    Reads are a sample of those to come. Where two neighbouring stretches of a partition differ by no more than samples
    of one rate do, their rates become equal: from the halves of a partition down to single units (Kolaczyk, "Bayesian
    multiscale models for Poisson processes", 1999). A handful of reads are the workload itself rather than a sample of
    it, and get the weight of `_FEW_ENDS`.

    Args:
        count: How often a read ended in each unit, float64 (u,), partition after partition.
        units: Number of units in each partition, int64 (partitions,).

    Returns:
        float64 (u,), with the same total in every partition.
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
            rate = _halves(rate, counts[level - 1], lengths[level - 1])
    smoothed: FloatArray = rate[place]
    return smoothed


def _halves(rate: FloatArray, count: FloatArray, length: FloatArray) -> FloatArray:
    """Rates of the halves of stretches: their own where they differ, else that of the whole: float64 (2s,)."""
    count, length = count[: 2 * len(rate)].reshape(-1, 2), length[: 2 * len(rate)].reshape(-1, 2)
    whole = np.maximum(count.sum(axis=1, keepdims=True), _LEAST)
    share = length / np.maximum(length.sum(axis=1, keepdims=True), _LEAST)
    differ = (count - whole * share) ** 2 > _SIGMAS**2 * whole * share[:, ::-1] * share
    own = count / whole / np.maximum(share, _LEAST)
    halves: FloatArray = (rate[:, None] * np.where(differ, own, 1.0)).ravel()
    return halves


def _end_weights(intervals: Intervals, cells: IntArray, reads: ReadEnds) -> FloatArray:
    """Weight of the ends in each unit, and in the gap after it: float64 (2n, 2); 0 where no block is."""
    own = reads.in_cells(cells)
    own[1:][cells[1:] == cells[:-1]] = 0.0
    below = reads.below_cells(cells)
    gap = np.zeros(len(cells))
    np.maximum(below[1:] - below[:-1] - reads.in_cells(cells[:-1]), 0.0, out=gap[:-1])
    begun = np.bincount(intervals.begin, minlength=len(cells))
    gap[np.cumsum(begun - np.bincount(intervals.end - 1, minlength=len(cells))) == 0] = 0.0
    return np.stack([own, gap], axis=1)
