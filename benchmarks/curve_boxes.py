"""Way (b) of benchmarks/curves.py: plans by the depth of boxes, without a curve.

Databend plans so for two columns (databend#20313): it takes the deepest points of a sweep over boxes, and the blocks
over them. Here the sweep is a grid, blocks of one run count once at a point, and the set around a point is the one of
the youngest levels that takes most depth away for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from curve_layout import BoolArray, FloatArray, IntArray

from dbt_recluster.planner.strategies.age_groups import level_of_loads, loads_of_level

# Points in each dimension.
_POINTS = {2: 128, 3: 32, 4: 12}


def plan_boxes(
    lower: Sequence[IntArray],
    upper: Sequence[IntArray],
    rows: IntArray,
    level: IntArray,
    run: IntArray,
    bits: int,
    depth: float,
) -> list[tuple[IntArray, int]]:
    """Select block sets until the average depth is at most `depth`: positions and the level to write."""
    first, last = on_grid(lower, upper, bits)
    grid = depth_of_runs(first, last, run)
    deepest = np.array([grid[box].max() for box in boxes(first, last)])
    left = float((deepest - 1).sum()) - (depth - 1) * len(rows)
    free = np.ones(len(rows), np.bool_)
    sets: list[tuple[IntArray, int]] = []
    while left > 0 and grid.max() > 1:
        peak = np.array(np.unravel_index(grid.argmax(), grid.shape))
        members = _best_set(first, last, peak, rows, level, free)
        grid[tuple(peak)] = 1
        if len(members) < 2:
            continue
        free[members] = False
        for box in boxes(first[members], last[members]):
            grid[box] = 1
        left -= float((deepest[members] - 1).sum())
        volume = (last[members] - first[members] + 1).prod(axis=1)
        around = (last[members].max(axis=0) - first[members].min(axis=0) + 1).prod()
        loads = float((loads_of_level(level[members]) * volume).sum()) / float(around)
        written = int(level_of_loads(np.array([loads]))[0])
        sets.append((members, max(written, int(level[members].min()) + 1)))
    return sets


def on_grid(lower: Sequence[IntArray], upper: Sequence[IntArray], bits: int) -> tuple[IntArray, IntArray]:
    """First and last grid points within each box, or the nearest one: int64 (n, dimensions) each."""
    points = _POINTS[len(lower)]
    scale = points / (1 << bits)
    first = np.ceil(np.stack(lower, axis=1) * scale - 0.5).astype(np.int64)
    last = np.floor((np.stack(upper, axis=1) + 1) * scale - 0.5).astype(np.int64)
    nearest = np.clip((first + last) // 2, 0, points - 1)
    none = first > last
    return np.where(none, nearest, np.minimum(first, points - 1)), np.where(
        none, nearest, np.maximum(last, 0)
    )


def boxes(first: IntArray, last: IntArray) -> list[tuple[slice, ...]]:
    """Boxes as slices of the grid."""
    return [
        tuple(slice(low, high + 1) for low, high in zip(*box, strict=True))
        for box in zip(first.tolist(), last.tolist(), strict=True)
    ]


def coverage(first: IntArray, last: IntArray) -> IntArray:
    """Boxes over each grid point."""
    dimensions = first.shape[1]
    steps = np.zeros((_POINTS[dimensions] + 1,) * dimensions, np.int64)
    for corner in product((0, 1), repeat=dimensions):
        at = np.where(np.array(corner, np.bool_), last + 1, first)
        np.add.at(steps, tuple(at.T), (-1) ** sum(corner))
    for axis in range(dimensions):
        steps = np.cumsum(steps, axis=axis)
    return steps[(slice(-1),) * dimensions]


def depth_of_runs(first: IntArray, last: IntArray, run: IntArray) -> IntArray:
    """Runs over each grid point; blocks without a run count one by one."""
    alone = run <= 0
    depth = coverage(first[alone], last[alone])
    for number in np.unique(run[~alone]):
        depth += coverage(first[run == number], last[run == number]) > 0
    return depth


def _best_set(
    first: IntArray,
    last: IntArray,
    peak: IntArray,
    rows: IntArray,
    level: IntArray,
    free: BoolArray,
) -> IntArray:
    """The set around a point that takes most depth away for each row: positions, int64 (m,)."""
    over = free & (first <= peak).all(axis=1) & (last >= peak).all(axis=1)
    best, ratio = np.zeros(0, np.int64), 0.0
    for most in np.unique(level[over]):
        members = _connected(first, last, free & (level <= most), over & (level <= most))
        covers = coverage(first[members], last[members])
        removed = float(np.maximum(covers - 1, 0).sum()) / float((covers > 0).sum())
        value = removed / float(rows[members].sum())
        if len(members) > 1 and value > ratio:
            best, ratio = members, value
    return best


def _connected(first: IntArray, last: IntArray, among: BoolArray, start: BoolArray) -> IntArray:
    """Boxes connected with the first ones through shared grid points."""
    found, new = start.copy(), np.flatnonzero(start)
    while len(new):
        reached = np.zeros(len(found), np.bool_)
        for box in new:
            reached |= ((first <= last[box]) & (last >= first[box])).all(axis=1)
        new = np.flatnonzero(reached & among & ~found)
        found[new] = True
    return np.flatnonzero(found)


def boxes_depth(lower: Sequence[IntArray], upper: Sequence[IntArray], bits: int) -> FloatArray:
    """Depth of each box among all of them, of whatever run: int64 (n,)."""
    first, last = on_grid(lower, upper, bits)
    grid = coverage(first, last)
    return np.array([grid[box].max() for box in boxes(first, last)])
