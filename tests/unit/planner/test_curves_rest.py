"""Plan and merge along a curve: every recluster ends, and no row is lost on the way.

Borders along a curve are estimates, so a merge may not lower the depth that it was made for. Hence the rule of the
product: where a round did not, nothing more is planned until other blocks arrive.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dbt_recluster.curve import Curve
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.curves import CURVE_TOLERANCE, CurveBlocks

BLOCK_ROWS = 16
MOST_ROUNDS = 50
# Bytes of a row.
WIDTH = 10


def columns_of(kind, dimensions, rows, random):
    """The columns of all loads."""
    if kind == "skewed":
        return [np.minimum(random.zipf(1.3, rows), 10**6) for _ in range(dimensions)]
    first = random.random(rows)
    if kind == "correlated":
        return [first + (place > 0) * random.normal(0, 0.05, rows) for place in range(dimensions)]
    if kind == "in order":
        first = np.arange(rows) + first
    return [first, *(random.random(rows) for _ in range(dimensions - 1))]


class Table:
    """Blocks of rows, given as positions in columns."""

    def __init__(self, columns):
        self.columns = columns
        self.rows, self.level, self.run = [], [], []

    def add(self, rows, level, run):
        """Cut rows into blocks, all of which have about the same size."""
        for part in np.array_split(rows, -(-len(rows) // BLOCK_ROWS)):
            self.rows.append(part)
            self.level.append(level)
            self.run.append(run)

    def places(self, curve, rows):
        return curve.index([pa.array(column[rows]) for column in self.columns])

    def boxes(self, curve, begin=0):
        bounds = [
            [pa.array([end(column[rows]) for rows in self.rows[begin:]]) for column in self.columns]
            for end in (np.min, np.max)
        ]
        none = np.zeros(len(self.rows) - begin, bool)
        return CurveBlocks(curve, *bounds, [none] * len(self.columns), np.ones(len(none))).boxes

    def load(self, rows, curve, is_sorted):
        """A load is a run only if its boxes show so."""
        begin, run = len(self.rows), max(self.run, default=0) + 1
        self.add(rows[np.argsort(self.places(curve, rows), kind="stable")] if is_sorted else rows, 0, run)
        boxes = self.boxes(curve, begin)
        self.run[begin:] = np.where(boxes.is_sorted(np.array(self.run[begin:])), run, 0).tolist()
        # An unknown run must not come again as a known one.
        self.last_run = run

    def blocks(self, curve):
        run = np.array(self.run)
        first, last = self.boxes(curve).intervals(run)
        sizes = np.array([len(rows) for rows in self.rows])
        return Blocks.build(first, last, rows=sizes, bytes=WIDTH * sizes, level=self.level, run=run)

    def merge(self, planned, curve):
        gone = {int(place) for block_set in planned.block_sets for place in block_set.blocks}
        old, begin = self.rows, max(self.last_run, *self.run) + 1
        for name in ("rows", "level", "run"):
            setattr(self, name, [one for place, one in enumerate(getattr(self, name)) if place not in gone])
        for block_set in planned.block_sets:
            rows = np.concatenate([old[place] for place in block_set.blocks])
            self.add(
                rows[np.argsort(self.places(curve, rows), kind="stable")],
                block_set.level,
                begin + block_set.run,
            )
            self.last_run = max(self.last_run, begin + block_set.run)


def average_depth(blocks, policy):
    """Average depth of the blocks that a plan may rewrite."""
    candidates = policy.candidates(blocks)
    return float(candidates.reducible_depths().mean()) if len(candidates) else 1.0


def recluster(table, curve, policy):
    """Plan and merge until the plan is empty or a round has not lowered the depth; return the number of rounds."""
    before = np.inf
    for rounds in range(MOST_ROUNDS):
        blocks = table.blocks(curve)
        depth = average_depth(blocks, policy)
        planned = plan(blocks, policy)
        if depth >= before or not planned.block_sets:
            return rounds
        before = depth
        positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
        assert len(positions) == len(set(positions))
        assert policy.max_bytes is None or planned.bytes <= policy.max_bytes
        table.merge(planned, curve)
    raise AssertionError(f"no end after {MOST_ROUNDS} rounds")


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["uniform", "skewed", "correlated", "in order"]),
    dimensions=st.integers(2, 4),
    depth=st.sampled_from([1, 1.5, 2, 4]),
    budget=st.none() | st.integers(1, 40 * BLOCK_ROWS * WIDTH),
    seed=st.integers(0, 10**6),
    loads=st.lists(st.tuples(st.integers(1, 10 * BLOCK_ROWS), st.booleans()), min_size=1, max_size=8),
)
def test_a_recluster_after_each_load_ends_and_loses_no_row(kind, dimensions, depth, budget, seed, loads):
    random = np.random.default_rng(seed)
    total = sum(rows for rows, _ in loads)
    table = Table(columns_of(kind, dimensions, total, random))
    curve = Curve.of([pa.array(column) for column in table.columns], bits=6)
    policy = Policy(depth=depth, block_rows=BLOCK_ROWS, max_bytes=budget, tolerance=CURVE_TOLERANCE)
    loaded = 0
    for rows, is_sorted in loads:
        table.load(np.arange(loaded, loaded + rows), curve, is_sorted)
        loaded += rows
        recluster(table, curve, policy)
        assert Counter(np.concatenate(table.rows).tolist()) == Counter(range(loaded))
