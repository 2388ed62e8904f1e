"""Extents of blocks within their runs.

Iceberg keeps the least and greatest value of each column separately. Bounds of a compound key made from them are wider
than the keys in the block, so neighbours in a sorted run seem to overlap. Planning by such bounds would merge the
same neighbours again and again. The blocks of one run are disjoint by construction, so planning ends each block where
the next one of its run begins.
"""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import IntArray


def extents_within_runs(
    lower: IntArray,
    upper: IntArray,
    columns: list[tuple[IntArray, IntArray]],
    partition: IntArray,
    run: IntArray,
) -> tuple[IntArray, IntArray]:
    """Narrow the bounds of the blocks of each run until they no longer overlap.

    In a sorted run the lower and upper bounds of the first column ascend, then those of the second column, and so on.
    Sorting by them restores the order in which the blocks were written. Where the bounds of two neighbours overlap,
    the block with more leading constant columns sets the border, because its bound is the tighter one.

    Args:
        lower: Ranks of the lower bounds, int64 (n,).
        upper: Ranks of the upper bounds, int64 (n,).
        columns: For each key column the codes of its lower and of its upper bounds, int64 (n,) each.
        partition: int64 (n,).
        run: int64 (n,), positive where known.

    Returns:
        New lower and upper ranks, int64 (n,) each. A block has no extent, and upper < lower, where its neighbours
        account for all of its bounds, as with strings cut to one common prefix.
    """
    known = np.flatnonzero(run > 0)
    if len(known) < 2:
        return lower, upper
    keys = [codes[known] for pair in columns for codes in pair]
    order = known[np.lexsort([*reversed(keys), run[known], partition[known]])]
    before, after = order[:-1], order[1:]
    overlap = (
        (run[before] == run[after]) & (partition[before] == partition[after]) & (lower[after] < upper[before])
    )
    if not overlap.any():
        return lower, upper
    constants = _leading_constants(columns, order)
    border = np.where(constants[:-1] >= constants[1:], upper[before], lower[after])
    new_lower, new_upper = lower.copy(), upper.copy()
    new_lower[after[overlap]] = np.maximum(lower[after], border)[overlap]
    new_upper[before[overlap]] = np.minimum(upper[before], border)[overlap]
    empty = (new_lower >= new_upper) & (lower < upper)
    new_upper[empty] = new_lower[empty] - 1
    return new_lower, new_upper


def _leading_constants(columns: list[tuple[IntArray, IntArray]], order: IntArray) -> IntArray:
    """Number of leading key columns with a single value, for the blocks at these positions."""
    count = np.zeros(len(order), np.int64)
    constant = np.ones(len(order), np.bool_)
    for low, high in columns:
        constant &= low[order] == high[order]
        count += constant
    return count
