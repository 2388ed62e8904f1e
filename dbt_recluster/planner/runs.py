"""Extents of blocks within their runs.

Iceberg keeps the least and greatest value of each column by itself. Of a compound key these make bounds wider
than the keys a block really holds, and neighbours in a sorted run then seem to overlap. Planning by them
would merge such neighbours again and again without ever parting them. So within a run, whose blocks are
disjoint by construction, each block's extent ends where the next one's begins.
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
    """Narrow the bounds of blocks that stand in one run until they overlap no more.

    Sorted tuples have, column by column, ascending least and greatest values, so sorting a run's blocks by
    both of the first column, then both of the second, and so on, puts them in the order in which they were
    written. Between two neighbours whose bounds overlap, the end that is known better decides: that of the
    block with more leading columns constant.

    Args:
        lower: ranks of the lower bounds, int64 (n,).
        upper: ranks of the upper bounds, int64 (n,).
        columns: for each key column the codes of its lower and of its upper bounds, each int64 (n,).
        partition: int64 (n,).
        run: int64 (n,), positive where known.

    Returns:
        New lower and upper ranks, int64 (n,) each. Where nothing is left of a block (its neighbours explain
        all of its bounds, as with strings cut to one common prefix) the new upper is less than the new lower.
    """
    chosen = np.flatnonzero(run > 0)
    if len(chosen) < 2:
        return lower, upper
    keys = [code[chosen] for pair in columns for code in pair]
    order = chosen[np.lexsort([*reversed(keys), run[chosen], partition[chosen]])]
    before, after = order[:-1], order[1:]
    overlap = (
        (run[before] == run[after]) & (partition[before] == partition[after]) & (lower[after] < upper[before])
    )
    if not overlap.any():
        return lower, upper
    known = _leading_constants(columns, order)
    border = np.where(known[:-1] >= known[1:], upper[before], lower[after])
    new_lower, new_upper = lower.copy(), upper.copy()
    new_lower[after[overlap]] = np.maximum(lower[after], border)[overlap]
    new_upper[before[overlap]] = np.minimum(upper[before], border)[overlap]
    nothing_left = (new_lower >= new_upper) & (lower < upper)
    new_upper[nothing_left] = new_lower[nothing_left] - 1
    return new_lower, new_upper


def _leading_constants(columns: list[tuple[IntArray, IntArray]], order: IntArray) -> IntArray:
    """How many columns, from the first one on, hold a single value in each of these blocks."""
    count = np.zeros(len(order), np.int64)
    still = np.ones(len(order), np.bool_)
    for low, high in columns:
        still &= low[order] == high[order]
        count += still
    return count
