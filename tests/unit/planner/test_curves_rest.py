"""Plan and merge along a curve after a leading column: every recluster ends, and no row is lost on the way.

Borders along a curve are estimates, so a merge may not lower the depth that it was made for. The blocks that it wrote
then rest, until others arrive (see `checkpoint.SettledBlocks`). test_box_sets.py has the same of curves alone.
"""

from collections import Counter

import numpy as np
from curve_tables import WIDTH, CurveTable, curve_over, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dbt_recluster.planner import Policy
from dbt_recluster.planner.curves import CURVE_TOLERANCE

BLOCK_ROWS = 16


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["uniform", "skewed", "correlated", "in order"]),
    dimensions=st.integers(2, 4),
    leading=st.integers(1, 2),
    depth=st.sampled_from([1, 1.5, 2, 4]),
    budget=st.none() | st.integers(1, 40 * BLOCK_ROWS * WIDTH),
    seed=st.integers(0, 10**6),
    loads=st.lists(st.tuples(st.integers(1, 10 * BLOCK_ROWS), st.booleans()), min_size=1, max_size=8),
)
def test_a_recluster_after_each_load_ends_and_loses_no_row(
    kind, dimensions, leading, depth, budget, seed, loads
):
    total = sum(rows for rows, _ in loads)
    columns = rows_of(kind, dimensions, total, seed)
    tenants = [np.random.default_rng(seed).integers(0, 3, total) for _ in range(leading)]
    policy = Policy(depth=depth, block_rows=BLOCK_ROWS, max_bytes=budget, tolerance=CURVE_TOLERANCE)
    table = CurveTable([*tenants, *columns], curve_over(columns, bits=6), policy, leading, seed=seed)

    def check(blocks, planned):
        positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
        assert len(positions) == len(set(positions))
        assert budget is None or planned.bytes <= budget

    loaded = 0
    for rows, is_sorted in loads:
        table.load(np.arange(loaded, loaded + rows), BLOCK_ROWS, is_sorted)
        loaded += rows
        table.recluster(check)
        held = np.concatenate([block.rows for block in table.blocks])
        assert Counter(held.tolist()) == Counter(range(loaded))
