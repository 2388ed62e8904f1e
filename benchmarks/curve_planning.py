"""Ways to plan for a curve, of benchmarks/curves.py: what the planner takes for a block, and the plans that follow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from curve_boxes import plan_boxes
from curve_layout import IntArray, Table, arrow

from dbt_recluster.curve import Curve
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.curves import CURVE_TOLERANCE, Boxes, CurveBlocks

MOST_ROUNDS = 50


def rank_boxes(table: Table, curve: Curve) -> Boxes:
    """Ranks of the bounds of every block."""
    return CurveBlocks(curve, *table.bounds).boxes


def by_boxes(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """(a) The places of a block's box."""
    return rank_boxes(table, curve).places


def by_runs(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """(a') The same, made disjoint within runs."""
    return rank_boxes(table, curve).intervals(table.run)


def by_rows(table: Table, curve: Curve) -> tuple[IntArray, IntArray]:
    """The places of a block's rows, which nobody knows without reading them, or recording them for every block."""
    places = [curve.index(arrow([column[rows] for column in table.columns])) for rows in table.rows]
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
    return float(eligible.cells().depths().mean()) if len(eligible) else 1.0


def recluster(
    table: Table, curve: Curve, way: str, depth: float, cells: bool = True, until_empty: bool = False
) -> int:
    """Plan and merge until the plan is empty or, but for `until_empty`, the average depth no longer falls.

    Returns:
        The number of rounds, `MOST_ROUNDS` where there was no end.
    """
    extents = WAYS[way]
    sets: list[tuple[IntArray, int, int]]
    policy = Policy(depth=depth, block_rows=table.block_rows, tolerance=CURVE_TOLERANCE)
    least = np.inf
    for done in range(MOST_ROUNDS):
        if extents is None:
            boxes = rank_boxes(table, curve)
            planned = plan_boxes(
                boxes.lower, boxes.upper, table.sizes, table.level, table.run, curve.bits, depth
            )
            sets = [(members, level, run) for run, (members, level) in enumerate(planned)]
        else:
            blocks = blocks_of(table, curve, extents)
            reached = average_depth(blocks, policy)
            if reached >= least and not until_empty:
                return done
            least = reached
            sets = [
                (block_set.blocks, block_set.level, block_set.run)
                for block_set in plan(blocks, policy).block_sets
            ]
        if not sets:
            return done
        table.merge(sets, curve, cells)
    return MOST_ROUNDS
