"""Plans under a key of only a curve: real rows, cut into boxes by every merge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from curve_tables import WIDTH, Block, CurveTable, curve_over, cut_at_once, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dbt_recluster.planner import Policy, plan
from dbt_recluster.planner.curves import CURVE_TOLERANCE

BLOCK_ROWS = 16
KINDS = ["uniform", "skewed", "correlated", "in order", "late", "few values"]
LOADS = st.lists(
    st.tuples(st.integers(1, 10 * BLOCK_ROWS), st.booleans(), st.integers(0, 1)), min_size=1, max_size=8
)


POLICIES = st.builds(Policy, depth=st.sampled_from([1, 1.5, 2, 4]))


@st.composite
def tables(draw, policy=POLICIES):
    """An empty table, and the loads that it gets: their rows, whether they are sorted, and their partitions."""
    loads = draw(LOADS)
    total, seed = sum(rows for rows, _, _ in loads), draw(st.integers(0, 10**6))
    columns = rows_of(draw(st.sampled_from(KINDS)), draw(st.integers(2, 4)), total, seed)
    rules = replace(draw(policy), block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    table = CurveTable(columns, curve_over(columns, bits=6), rules, samples=draw(st.booleans()), seed=seed)
    ends = np.cumsum([rows for rows, _, _ in loads])
    return table, [
        (np.arange(end - rows, end), is_sorted, partition)
        for end, (rows, is_sorted, partition) in zip(ends, loads, strict=True)
    ]


def load(table, loads, recluster=True, check=lambda blocks, planned: None):
    for rows, is_sorted, partition in loads:
        table.load(rows, BLOCK_ROWS, is_sorted, partition)
        if recluster:
            table.recluster(check)


LIMITED = st.builds(
    Policy,
    depth=st.sampled_from([1, 2, 4]),
    max_bytes=st.none() | st.integers(1, 60 * BLOCK_ROWS * WIDTH),
    max_merge_bytes=st.none() | st.integers(1, 30 * BLOCK_ROWS * WIDTH),
    max_merge_blocks=st.none() | st.integers(2, 30),
)


@settings(max_examples=25)
@given(tables())
def test_a_recluster_after_each_load_ends_and_loses_no_row(table):
    table, loads = table
    for number, one in enumerate(loads, 1):
        load(table, [one])
        held = np.concatenate([block.rows for block in table.blocks])
        assert Counter(held.tolist()) == Counter(np.concatenate([rows for rows, _, _ in loads[:number]]))
        # Nothing is left, until something comes.
        assert table.recluster() == 0


@settings(max_examples=15)
@given(tables(LIMITED))
def test_sets_keep_the_limits_and_their_partitions(table):
    table, loads = table
    policy = table.policy

    def check(blocks, planned):
        positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
        assert len(positions) == len(set(positions))
        assert policy.max_bytes is None or planned.bytes <= policy.max_bytes
        for block_set in planned.block_sets:
            members = block_set.blocks
            assert set(blocks.partition[members].tolist()) == {block_set.partition}
            assert set(blocks.layout.group[members].tolist()) == {int(blocks.layout.group[members[0]])}
            assert block_set.bytes == blocks.bytes[members].sum()
            assert block_set.rows == blocks.rows[members].sum()
            limit = policy.max_merge_bytes
            assert limit is None or block_set.bytes <= limit
            # The limit on blocks is not for compactions, which leave fewer blocks.
            limit, leaves_fewer = policy.max_merge_blocks, block_set.expected_blocks < len(members)
            assert limit is None or leaves_fewer or len(members) <= limit

    load(table, loads, check=check)
    load(table, loads[:1], recluster=False)
    table.recluster(check)


def described_sets(table, planned):
    """Sets of a plan, by what their blocks look like."""
    blocks = [
        (
            *(tuple(sorted(column[block.rows].tolist())) for column in table.columns),
            block.commit,
            block.partition,
        )
        for block in table.blocks
    ]
    return sorted(
        (sorted(blocks[place] for place in one.blocks), one.level, one.is_merge, one.expected_blocks)
        for one in planned.block_sets
    )


@settings(max_examples=60)
@given(tables(), st.booleans(), st.randoms())
def test_the_same_blocks_give_the_same_plan_in_any_order(table, recluster, random):
    table, loads = table
    load(table, loads[:-1], recluster)
    load(table, loads[-1:], recluster=False)
    first = plan(table.described(), table.policy)
    again = plan(table.described(), table.policy)
    assert [one.blocks.tolist() for one in first.block_sets] == [
        one.blocks.tolist() for one in again.block_sets
    ]
    before = described_sets(table, first)
    random.shuffle(table.blocks)
    shuffled = plan(table.described(), table.policy)
    assert described_sets(table, shuffled) == before
    assert shuffled.reason == first.reason


def sorted_table(kind, dimensions, blocks, depth):
    """A table that one merge has written."""
    columns = rows_of(kind, dimensions, BLOCK_ROWS * blocks)
    curve = curve_over(columns)
    table = CurveTable(columns, curve, Policy(depth, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE))
    table.blocks = [Block(rows, 6, 1, 1) for rows in cut_at_once(curve, columns, BLOCK_ROWS)]
    table.commits = 1
    return table


@pytest.mark.parametrize("blocks", [1, 4, 30, 200])
@pytest.mark.parametrize("dimensions", [2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "correlated", "in order", "late"])
def test_a_sorted_table_gets_no_plan(kind, dimensions, blocks):
    for depth in (1, 2, 4):
        _, planned, _ = sorted_table(kind, dimensions, blocks, depth).planned()
        assert planned.block_sets == ()


@pytest.mark.parametrize("blocks", [1, 4, 30])
@pytest.mark.parametrize("kind", ["skewed", "few values"])
def test_a_sorted_table_of_heavy_values_gets_compactions_at_most(kind, blocks):
    for dimensions in (2, 3, 4):
        table = sorted_table(kind, dimensions, blocks, 2)
        _, planned, _ = table.planned()
        assert "is above" not in planned.reason
        assert "saves reads" not in planned.reason
        table.recluster()


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("kind", ["uniform", "correlated", "late"])
def test_loads_end_near_a_table_that_is_sorted_at_once(kind, dimensions):
    """And lower thresholds end nearer."""
    loads, size = 8, 12 * BLOCK_ROWS
    columns = rows_of(kind, dimensions, loads * size)
    curve = curve_over(columns)
    best = sorted_table(kind, dimensions, 12 * loads, 4).cost()
    ends = []
    for depth in (4, 1):
        policy = Policy(depth, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
        table = CurveTable(columns, curve, policy)
        load(table, [(np.arange(n * size, (n + 1) * size), False, 0) for n in range(loads)])
        ends.append(table.cost() / best)
    # Four copies of a table over each other cost this many times as much.
    assert ends[0] <= 1.5 * 4 ** (1 / dimensions)
    assert ends[1] <= min(1.3, ends[0])


def test_an_unsorted_load_is_cut_by_itself():
    """So the whole table need not be rewritten for it."""
    columns = rows_of("in order", 2, 100 * BLOCK_ROWS)
    policy = Policy(depth=4, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    table = CurveTable(columns, curve_over(columns), policy)
    load(table, [(np.arange(80 * BLOCK_ROWS), False, 0)])
    before = {block.path for block in table.blocks}
    load(table, [(np.arange(80 * BLOCK_ROWS, 100 * BLOCK_ROWS), False, 0)], recluster=False)
    _, planned, _ = table.planned()
    (block_set,) = planned.block_sets
    assert {table.blocks[place].path for place in block_set.blocks}.isdisjoint(before)
    assert len(block_set.blocks) == 20
    assert planned.reason == "merging 1 block set saves reads of single columns more than it costs"


def test_a_load_sorted_along_the_curve_is_left_alone():
    columns = rows_of("in order", 2, 100 * BLOCK_ROWS)
    policy = Policy(depth=4, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    table = CurveTable(columns, curve_over(columns), policy)
    load(table, [(np.arange(80 * BLOCK_ROWS), False, 0)])
    load(table, [(np.arange(80 * BLOCK_ROWS, 100 * BLOCK_ROWS), True, 0)], recluster=False)
    _, planned, _ = table.planned()
    assert planned.block_sets == ()


def test_blocks_at_rest_wait_for_others():
    columns = rows_of("uniform", 2, 60 * BLOCK_ROWS)
    policy = Policy(depth=1, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    table = CurveTable(columns, curve_over(columns), policy)
    load(table, [(np.arange(40 * BLOCK_ROWS), False, 0)])
    settled = np.ones(len(table.blocks), bool)
    assert plan(table.described(settled), policy).block_sets == ()
    load(table, [(np.arange(40 * BLOCK_ROWS, 60 * BLOCK_ROWS), False, 0)], recluster=False)
    settled = np.append(settled, np.zeros(len(table.blocks) - len(settled), bool))
    members = np.concatenate([one.blocks for one in plan(table.described(settled), policy).block_sets])
    assert not settled[members].all()


def test_other_strategies_and_fixed_blocks():
    columns = rows_of("uniform", 2, 40 * BLOCK_ROWS)
    policy = Policy(depth=1, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    table = CurveTable(columns, curve_over(columns), policy)
    table.load(np.arange(40 * BLOCK_ROWS), BLOCK_ROWS)
    blocks = table.described()
    fixed = replace(blocks, fixed=np.arange(40) < 10)
    members = np.concatenate([one.blocks for one in plan(fixed, policy).block_sets])
    assert sorted(members.tolist()) == list(range(10, 40))
    assert plan(replace(blocks, fixed=np.ones(40, bool)), policy).block_sets == ()
    for strategy in ("peak", "width", "above_average"):
        planned = plan(blocks, replace(policy, strategy=strategy))
        assert "single columns" not in planned.reason
