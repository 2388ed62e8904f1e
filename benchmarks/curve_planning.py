"""Ways to plan for a curve, of benchmarks/curves.py: what the planner takes for a block, and the plans that follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from curve_boxes import plan_boxes
from curve_layout import Curve, IntArray, Table

from dbt_recluster.hilbert import hilbert_index, hilbert_range
from dbt_recluster.planner import Blocks, Policy, plan

# A plan is due above this many times the threshold. Where loads cover all keys, the average depth is a whole number,
# and a border that is off by a hair would have the table merged one load too early.
DUE = 1.05
MOST_ROUNDS = 50


def rank_boxes(table: Table, curve: Curve) -> tuple[list[IntArray], list[IntArray]]:
    """Ranks of the bounds of every block: int64 (blocks,) for each column."""
    return curve.ranks(list(table.lower.T)), curve.ranks(list(table.upper.T))


def middles(lower: Sequence[IntArray], upper: Sequence[IntArray], bits: int) -> IntArray:
    """The place on the curve around which each block lies: int64 (n,).

    It is the mean of the two middle ones among the places of the centres of the box's 2**d quarters. The centre of the
    box itself may belong to a neighbour, where a block is three quarters of a cell.
    """
    quarters = [
        [
            low + ((high - low) * quarter + 2) // 4
            for low, high, quarter in zip(lower, upper, corner, strict=True)
        ]
        for corner in product((1, 3), repeat=len(lower))
    ]
    places = np.sort(np.stack([hilbert_index(quarter, bits) for quarter in quarters]), axis=0)
    half = len(places) // 2
    middle: IntArray = (places[half - 1] + places[half]) // 2
    return middle


def extents_along_curve(
    lower: Sequence[IntArray], upper: Sequence[IntArray], run: IntArray, bits: int
) -> tuple[IntArray, IntArray]:
    """First and last places on the curve of each block, disjoint within a run: int64 (n,) each.

    A block without a run has the places of its box. In a run, blocks follow one another in the order of their middles,
    and where the boxes of two neighbours share places, the border lies half way between their middles.

    Args:
        lower: Ranks of the lower bounds, int64 (n,) for each column.
        upper: Ranks of the upper bounds, likewise.
        run: int64 (n,), positive where known.
        bits: Bits of a rank.
    """
    first, last = hilbert_range(lower, upper, bits)
    middle = middles(lower, upper, bits)
    order = np.lexsort((last, first, middle, run))
    begin, end, middle, runs = first[order], last[order], middle[order], run[order]
    same = (runs[1:] == runs[:-1]) & (runs[1:] > 0)
    border = np.clip((middle[1:] + middle[:-1]) // 2, np.minimum(begin[1:], end[:-1]), end[:-1])
    # Borders ascend within a run, also where a box reaches over more than one neighbour.
    offset = np.cumsum(~same).astype(np.int64) << (len(lower) * bits + 1)
    border = np.maximum.accumulate(np.where(same, border, -1) + offset) - offset
    begin[1:] = np.where(same & (begin[1:] < border), border + 1, begin[1:])
    end[:-1] = np.where(same, np.minimum(end[:-1], border), end[:-1])
    first[order], last[order] = begin, np.maximum(begin, end)
    return first, last


def loads_as_runs(
    lower: Sequence[IntArray], upper: Sequence[IntArray], load: IntArray, bits: int
) -> IntArray:
    """Loads that were sorted along the curve, as numbers of runs: int64 (n,), 0 elsewhere.

    Made disjoint, the blocks of such a load keep half of the places of their boxes or more. Of k unsorted blocks each
    keeps one part in k, and so do those of a load that is sorted by one column.

    Args:
        lower: Ranks of the lower bounds, int64 (n,) for each column.
        upper: Ranks of the upper bounds, likewise.
        load: The load of each block, int64 (n,), positive.
        bits: Bits of a rank.
    """
    first, last = hilbert_range(lower, upper, bits)
    begin, end = extents_along_curve(lower, upper, load, bits)
    _, code, count = np.unique(load, return_inverse=True, return_counts=True)
    kept = np.bincount(code, (end - begin + 1) / (last - first + 1)) / count
    is_run = kept >= np.maximum(0.45, 1.2 / count)
    return np.where(is_run[code], load, 0)


def by_boxes(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """(a) The places of a block's box."""
    return hilbert_range(*rank_boxes(table, curve), curve.bits)


def by_runs(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """(a') The same, made disjoint within runs."""
    return extents_along_curve(*rank_boxes(table, curve), table.run, curve.bits)


def by_rows(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """The places of a block's rows, which nobody knows without reading them, or recording them for every block."""
    places = [curve.index([column[rows] for column in table.columns]) for rows in table.rows]
    return np.array([place.min() for place in places]), np.array([place.max() for place in places])


Extents = Callable[[Table, Curve], tuple[IntArray, IntArray]]
WAYS: dict[str, Extents | None] = {"a": by_boxes, "a'": by_runs, "true": by_rows, "b": None}


def blocks_of(table: Table, curve: Curve, extents: Extents) -> Blocks:
    """Describe a table to the planner as it is for a plain key: one interval for each block."""
    first, last = extents(table, curve)
    return Blocks.build(first, last, rows=table.sizes, level=table.level, run=table.run)


def average_depth(blocks: Blocks, policy: Policy) -> float:
    """Average depth of the blocks that a plan may rewrite; touching does not count."""
    eligible = policy.candidates(blocks)
    return float(eligible.sweep().depths().mean()) if len(eligible) else 1.0


def recluster(
    table: Table, curve: Curve, way: str, depth: float, cells: bool = True, until_empty: bool = False
) -> int:
    """Plan and merge until the plan is empty or, but for `until_empty`, the average depth no longer falls.

    Returns:
        The number of rounds, `MOST_ROUNDS` where there was no end.
    """
    extents = WAYS[way]
    policy = Policy(depth=depth, block_rows=table.block_rows)
    least = np.inf
    for done in range(MOST_ROUNDS):
        if extents is None:
            boxes = rank_boxes(table, curve)
            sets = plan_boxes(*boxes, table.sizes, table.level, table.run, curve.bits, depth)
        else:
            blocks = blocks_of(table, curve, extents)
            reached = average_depth(blocks, policy)
            if reached <= DUE * depth or (reached >= least and not until_empty):
                return done
            least = reached
            sets = [(block_set.blocks, block_set.level) for block_set in plan(blocks, policy).block_sets]
        if not sets:
            return done
        table.merge(sets, curve, cells)
    return MOST_ROUNDS
