"""Blocks along a curve: their boxes of ranks, the interval of the curve that each stands for, and chains of them.

Iceberg stores the bounds of each column, so a block is a box of ranks (see `dbt_recluster.key.curve`). Depth needs an
order: everything after this step takes a block for an interval of the curve, as it takes one of a plain key.
docs/design/curves.md says why, and what is decided by boxes instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.key.box_tree import Points, hulls
from dbt_recluster.key.curve import Curve, hilbert_index, hilbert_range
from dbt_recluster.planner.arrays import BoolArray, IntArray, arrays_at, combined_ranks, dense_ranks, fewest_chains
from dbt_recluster.planner.ranks import rank_column

# Not tuned: no figures of other values are kept. `python benchmarks/curves.py thresholds` measures them.

# `Policy.tolerance` of a curve. Where loads cover all keys, average depth is a whole number; a slightly wrong border
# would trigger the merge one load early.
CURVE_TOLERANCE = 1.05
# Made disjoint, the blocks of a load that was sorted along the curve keep at least this share of the places of their
# boxes, and this many times the share that unsorted blocks keep.
_KEPT_BY_RUN, _OVER_UNSORTED = 0.45, 1.2
# A block is thin if its rows are this much less dense in its box than those of its group are on average, and than those
# of its run: late rows. So is a run whose rows are this much less dense than its group's: a small load that covers
# everything.
_THIN = 0.25


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of n blocks: the ranks of their bounds in each column of a curve."""

    lower: IntArray  # int64 (columns, n)
    upper: IntArray
    bits: int  # of each rank
    rows: IntArray | None = None  # tells equal boxes apart, so that plans do not depend on the order of blocks

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """First and last places on the curve of the cells of each box: int64 (n,) each."""
        return hilbert_range(self.lower, self.upper, self.bits)

    @cached_property
    def middles(self) -> IntArray:
        """The place on the curve around which each block lies: int64 (n,).

        It is the mean of the two middle ones among the places of the centres of the box's 2**d quarters. The centre of
        the box itself may belong to a neighbour, where a block is three quarters of a cell.
        """
        lower, side = np.asarray(self.lower), np.subtract(self.upper, self.lower)
        corners = np.array(list(product((1, 3), repeat=len(lower))))[:, :, None]
        quarters = (lower + (side * corner + 2) // 4 for corner in corners)
        places = np.sort(np.stack([hilbert_index(quarter, self.bits) for quarter in quarters]), axis=0)
        half = len(places) // 2
        middle: IntArray = (places[half - 1] + places[half]) // 2
        return middle

    def intervals(self, run: IntArray) -> tuple[IntArray, IntArray]:
        """First and last places on the curve of each block, disjoint within a run: int64 (n,) each.

        A block without a run has the places of its box. In a run, blocks follow one another in the order of their
        middles, and where the boxes of two neighbours share places, the border lies half way between their middles.
        Runs, int64 (n,), are positive where known.
        """
        first, last = (ends.copy() for ends in self.places)
        rows = [] if self.rows is None else [self.rows]
        order = np.lexsort([*rows, *self.lower, *self.upper, last, first, self.middles, run])
        begin, end, middle, runs = first[order], last[order], self.middles[order], run[order]
        same = (runs[1:] == runs[:-1]) & (runs[1:] > 0)
        border = np.clip((middle[1:] + middle[:-1]) // 2, np.minimum(begin[1:], end[:-1]), end[:-1])
        # Borders ascend within a run, also where a box reaches over more than one neighbour; and so do first places,
        # also after a block for which its neighbours leave no place of its box.
        offset = np.cumsum(~same).astype(np.int64) << (len(self.lower) * self.bits + 1)
        border = np.maximum.accumulate(np.where(same, border, -1) + offset) - offset
        begin[1:] = np.where(same & (begin[1:] < border), border + 1, begin[1:])
        begin[1:] = np.maximum.accumulate(np.append(begin[:1], begin[1:] + offset))[1:] - offset
        end[:-1] = np.where(same, np.minimum(end[:-1], border), end[:-1])
        first[order], last[order] = begin, np.maximum(begin, end)
        return first, last

    def is_sorted(self, load: IntArray) -> BoolArray:
        """Blocks of a load, int64 (n,), that was sorted along the curve: bool (n,).

        Made disjoint, the blocks of such a load keep half of the places of their boxes or more. Of k unsorted blocks
        each keeps one part in k, and so do those of a load that is sorted by one column.
        """
        first, last = self.places
        begin, end = self.intervals(load)
        code, _ = dense_ranks(load)
        count = np.bincount(code)
        kept = np.bincount(code, (end - begin + 1) / (last - first + 1)) / count
        return (kept >= np.maximum(_KEPT_BY_RUN, _OVER_UNSORTED / count))[code] & (load > 0)


@dataclass(frozen=True, eq=False)
class Layout:
    """Boxes and runs of n blocks under a curve, beside their intervals."""

    lower: IntArray  # ranks of their boxes, int64 (n, columns)
    upper: IntArray
    rank: IntArray  # the least rank of a row, int64 (n, columns): at least `lower`, if a value fills several parts
    group: IntArray  # partition and value of the leading columns, int64 (n,), or -1 for several values
    run: IntArray  # int64 (n,), 0 where unknown
    load: IntArray  # the load of a block that no merge has written, int64 (n,), or 0
    thin: BoolArray  # (n,)
    chain: IntArray  # chains of runs whose boxes are disjoint, int64 (n,), 0 for blocks without a run
    settled: BoolArray  # settled blocks, (n,), which are merged with others only
    parts: int  # of each column
    samples: Mapping[int, Points]  # rows of loads, by their number

    def take(self, positions: IntArray) -> Layout:
        """The layout of the blocks at these positions."""
        return replace(self, **arrays_at(self, positions))


@dataclass(frozen=True, eq=False)
class CurveBlocks:
    """n blocks under a key that ends in a curve."""

    curve: Curve  # over the last columns of the key; the others lead
    lower: Sequence[pa.Array]  # lower bounds, (n,) for each column of the key
    upper: Sequence[pa.Array]  # upper bounds
    unbounded: Sequence[BoolArray]  # where the upper bound is unknown, (n,) for each column
    rows: IntArray  # int64 (n,)
    partition: IntArray | None = None  # codes from 0, int64 (n,), or None for one partition

    @property
    def leading(self) -> int:
        """Number of columns before those of the curve."""
        return len(self.lower) - len(self.curve.boundaries)

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes of the blocks. NULL is in the first part of a column, NaN and an unknown bound in the last."""
        items, curve = slice(self.leading, None), self.curve
        low = curve.ranks(self.lower[items], first=True)
        high = np.maximum(low, curve.ranks(self.upper[items]))
        return Boxes(low, np.where(self.unbounded[items], curve.parts - 1, high), curve.bits, self.rows)

    @cached_property
    def rank(self) -> IntArray:
        """The least rank of a row of each block, int64 (n, columns): above its box's if a value fills several parts."""
        ranks = self.curve.ranks(self.lower[self.leading :])
        return np.ascontiguousarray(np.clip(ranks, self.boxes.lower, self.boxes.upper).T)

    @cached_property
    def _leading_keys(self) -> tuple[IntArray, BoolArray]:
        """Ranks of partitions and leading columns, int64 (n,), and where blocks have one value, (n,)."""
        n = len(self.rows)
        partition = np.zeros(n, np.int64) if self.partition is None else self.partition
        keys, is_one = [dense_ranks(partition)], np.ones(n, np.bool_)
        for place in range(self.leading):
            codes, size = rank_column(self.lower[place], self.upper[place], self.unbounded[place])
            keys.append((codes[:n], size))
            is_one &= codes[:n] == codes[n:]
        return combined_ranks(keys)[0], is_one

    def layout(
        self,
        run: IntArray,
        added_by: IntArray,
        level: IntArray,
        settled: BoolArray | None = None,
        samples: Mapping[int, Points] | None = None,
    ) -> Layout:
        """Describe the blocks for the planner.

        A load whose bounds show that it came sorted along the curve is a run. Runs whose boxes are disjoint form a
        chain: a block of one is not deepened by blocks of another, however the curve winds through their boxes.
        Settled blocks count as one run. Runs and the numbers of loads, ``added_by``, are positive where known; samples
        are rows of loads by their number.
        """
        key, is_one = self._leading_keys
        group, boxes = np.where(is_one, key, -1), self.boxes
        lower, upper = (np.ascontiguousarray(ends.T) for ends in (boxes.lower, boxes.upper))
        is_load = (run <= 0) & (added_by > 0)
        if (is_one & is_load).any():
            load, _ = combined_ranks([dense_ranks(key), dense_ranks(added_by)])
            # Rows lie along the curve by the last part that their value fills.
            of_rows = Boxes(self.rank.T, boxes.upper, boxes.bits, self.rows)
            run = np.where(of_rows.is_sorted(np.where(is_one & is_load, load + 1, 0)), added_by, run)
        thin = self._are_thin(group, np.maximum(run, 0), lower, upper)
        settled = np.zeros(len(run), np.bool_) if settled is None else settled
        chain = _chains(2 * key + thin, np.where(is_one & (run > 0), run, 0), lower, upper)
        return Layout(
            lower=lower,
            upper=upper,
            rank=self.rank,
            group=group,
            run=np.maximum(run, 0),
            load=np.where(is_load & (run <= 0) & (level == 0), added_by, 0),
            thin=thin,
            chain=np.where(settled, int(chain.max(initial=0)) + 1 + key, chain),
            settled=settled,
            parts=self.curve.parts,
            samples=samples or {},
        )

    def along_curve(self, chain: IntArray) -> tuple[list[pa.Array], list[pa.Array], list[BoolArray]]:
        """Lower and upper bounds for the planner, and where the latter are unknown, disjoint within a chain.

        The columns are the leading ones and the place on the curve.
        """
        begin, end = self.boxes.intervals(chain)
        lower, upper, unbounded = (part[: self.leading] for part in (self.lower, self.upper, self.unbounded))
        none = np.zeros(len(chain), np.bool_)
        return [*lower, pa.array(begin)], [*upper, pa.array(end)], [*unbounded, none]

    def groups(self, block_rows: float) -> IntArray:
        """Number the blocks that the curve sorts together, by partition and leading columns: int64 (n,), from 0.

        Values of leading columns that share full blocks, of ``block_rows``, are one group.
        """
        key, _ = self._leading_keys
        order = np.argsort(key, kind="stable")
        rows = self.rows[order]
        partition = np.zeros(len(order)) if self.partition is None else self.partition[order]
        before = np.cumsum(rows) - rows
        is_first = np.diff(partition, prepend=-1) != 0
        # Where its partition and its value begin, in full blocks.
        begins = np.maximum.accumulate(np.where(np.diff(key[order], prepend=-1) != 0, before, 0))
        share = (begins - np.maximum.accumulate(np.where(is_first, before, 0))) // block_rows
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(is_first | (np.diff(share, prepend=-1) != 0)) - 1
        return group

    def _are_thin(self, group: IntArray, run: IntArray, lower: IntArray, upper: IntArray) -> BoolArray:
        """Blocks whose rows are few for their box, beside those of their run or group: bool (n,)."""
        (code, _), (of_run, _) = dense_ranks(group), combined_ranks([dense_ranks(group), dense_ranks(run)])
        least, greatest = hulls(code, lower, upper)
        density = self.rows / np.prod((upper - lower + 1).astype(np.float64), axis=1)
        of_group = np.bincount(code, self.rows) / np.prod((greatest - least + 1).astype(np.float64), axis=1)
        mean = np.bincount(of_run, self.rows * density) / np.maximum(np.bincount(of_run, self.rows), 1)
        # A run is thin as a whole, or its depth would count twice where it is nearly thin.
        run_density = np.where(run > 0, mean[of_run], density)
        of_group = of_group[code]
        thin: BoolArray = (density < _THIN * np.minimum(run_density, of_group)) | (run_density < _THIN * of_group)
        return thin & (group >= 0)


def _chains(group: IntArray, run: IntArray, lower: IntArray, upper: IntArray) -> IntArray:
    """Number chains of the runs of each group, from 1; 0 for blocks without a run: int64 (n,).

    Runs of a chain follow one another along one column: the one by which the group has the fewest chains.
    """
    in_runs = np.flatnonzero(run > 0)
    chain = np.zeros(len(run), np.int64)
    if not len(in_runs):
        return chain
    code, count = combined_ranks([dense_ranks(group[in_runs]), dense_ranks(run[in_runs])])
    least, greatest = hulls(code, lower[in_runs], upper[in_runs])
    of_run = np.zeros(count, np.int64)
    of_run[code] = group[in_runs]
    fewest = np.full(int(of_run.max()) + 1, count + 1)
    number, numbers = np.zeros(count, np.int64), 0
    for column in range(lower.shape[1]):
        by_column = np.array(fewest_chains(of_run, 2 * least[:, column], 2 * greatest[:, column] + 1), np.int64)
        used = np.unique(np.column_stack([of_run, by_column]), axis=0)
        here = np.bincount(used[:, 0], minlength=len(fewest))
        is_better = here < fewest
        number = np.where(is_better[of_run], numbers + by_column, number)
        fewest = np.where(is_better, here, fewest)
        numbers += int(by_column.max()) + 1
    chain[in_runs] = number[code] + 1
    return chain


def curve_of_bounds(
    lower: Sequence[pa.Array], upper: Sequence[pa.Array], unbounded: Sequence[BoolArray], rows: IntArray
) -> Curve:
    """Cut columns into equal shares of the bounds of blocks, of which each stands for half of the rows of its block.

    Arguments are those of `CurveBlocks`.
    """
    columns, weight = [], np.maximum(rows, 1).astype(np.float64)
    for low, high, unknown in zip(lower, upper, unbounded, strict=True):
        high = pc.if_else(pa.array(~unknown), high, pa.scalar(None, high.type)) if unknown.any() else high
        columns.append(pa.concat_arrays([low, high]))
    return Curve.from_columns(columns, np.concatenate([weight, weight]))
