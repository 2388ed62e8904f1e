"""Plans under a key that is a curve, or ends in one: real rows, cut into boxes by every merge.

Borders along a curve are estimates, so a merge may not lower the depth that it was made for. The blocks that it wrote
then rest, until others arrive (see `checkpoint.SettledBlocks`).
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from block_tables import check_sets
from curve_tables import WIDTH, Block, CurveTable, curve_over, cut_at_once, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import examples

from dbt_recluster.clustering.verdict import reason_text
from dbt_recluster.planner import Policy, plan
from dbt_recluster.planner.curves import CURVE_TOLERANCE

BLOCK_ROWS = 16
KINDS = ["uniform", "skewed", "correlated", "in order", "late", "few values"]
LOADS = st.lists(st.tuples(st.integers(1, 10 * BLOCK_ROWS), st.booleans(), st.integers(0, 1)), min_size=1, max_size=8)
DEPTHS = st.sampled_from([1, 1.5, 2, 4])
POLICIES = st.builds(
    Policy,
    depth=DEPTHS,
    max_bytes=st.none() | st.integers(1, 60 * BLOCK_ROWS * WIDTH),
    max_merge_bytes=st.none() | st.integers(1, 30 * BLOCK_ROWS * WIDTH),
    max_merge_blocks=st.none() | st.integers(2, 30),
)


def make_table(columns, curve=None, depth=4, **more):
    policy = more.pop("policy", Policy(depth))
    policy = replace(policy, block_rows=BLOCK_ROWS, tolerance=CURVE_TOLERANCE)
    return CurveTable(columns, curve or curve_over(columns), policy, **more)


@st.composite
def tables(draw, leading, policies=POLICIES):
    """An empty table, and the loads that it gets: their rows, whether they are sorted, and their partitions."""
    loads = draw(LOADS)
    total, seed = sum(rows for rows, _, _ in loads), draw(st.integers(0, 10**6))
    columns = rows_of(draw(st.sampled_from(KINDS)), draw(st.integers(2, 4)), total, seed)
    tenants = [np.random.default_rng(seed).integers(0, 3, total) for _ in range(draw(leading))]
    more = {"leading": len(tenants), "samples": draw(st.booleans()), "seed": seed, "policy": draw(policies)}
    table = make_table([*tenants, *columns], curve_over(columns, bits=6), **more)
    ends = np.cumsum([rows for rows, _, _ in loads])
    return table, [
        (np.arange(end - rows, end), is_sorted, partition)
        for end, (rows, is_sorted, partition) in zip(ends, loads, strict=True)
    ]


def load(table, rows, is_sorted=False, partition=0):
    table.load(rows, BLOCK_ROWS, is_sorted, partition)


@pytest.mark.parametrize("leading", [st.just(0), st.integers(1, 2)], ids=["curve alone", "leading columns"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_recluster_after_each_load_ends_within_limits_and_loses_no_row(leading, data):
    table, loads = data.draw(tables(leading))

    def check(blocks, planned):
        check_sets(blocks, planned, table.policy)
        for one in planned.block_sets:
            assert table.leading or len(set(blocks.layout.group[one.blocks].tolist())) == 1

    for number, one in enumerate(loads, 1):
        load(table, *one)
        table.recluster(check)
        held = np.concatenate([block.rows for block in table.blocks])
        assert Counter(held.tolist()) == Counter(np.concatenate([rows for rows, _, _ in loads[:number]]))
        # Nothing is left, until something comes.
        assert table.recluster() == 0


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


# A limit may part blocks of equal boxes and rows, which the planner cannot tell apart.
@settings(max_examples=examples(60))
@given(tables(st.just(0), st.builds(Policy, depth=DEPTHS)), st.booleans(), st.randoms())
def test_the_same_blocks_give_the_same_plan_in_any_order(table, recluster, random):
    table, loads = table
    for one in loads:
        if recluster and table.blocks:
            table.recluster()
        load(table, *one)
    first, again = (plan(table.described(), table.policy) for _ in range(2))
    assert [s.blocks.tolist() for s in first.block_sets] == [s.blocks.tolist() for s in again.block_sets]
    before = described_sets(table, first)
    random.shuffle(table.blocks)
    shuffled = plan(table.described(), table.policy)
    assert described_sets(table, shuffled) == before
    assert reason_text(shuffled.reasons) == reason_text(first.reasons)


def sorted_table(kind, dimensions, blocks, depth):
    """A table that one merge has written."""
    columns = rows_of(kind, dimensions, BLOCK_ROWS * blocks)
    table = make_table(columns, depth=depth)
    table.blocks = [Block(rows, 6, 1, 1) for rows in cut_at_once(table.curve, columns, BLOCK_ROWS)]
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
        assert "is above" not in reason_text(planned.reasons)
        assert "saves reads" not in reason_text(planned.reasons)
        table.recluster()


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("kind", ["uniform", "correlated", "late"])
def test_loads_end_near_a_table_that_is_sorted_at_once(kind, dimensions):
    """And lower thresholds end nearer, also that of a recluster of a table which had a higher one before."""
    columns = rows_of(kind, dimensions, 8 * 12 * BLOCK_ROWS)
    curve = curve_over(columns)
    best = sorted_table(kind, dimensions, 8 * 12, 4).cost()
    ends = []
    for depth in (4, 1):
        table = make_table(columns, curve, depth)
        for rows in np.split(np.arange(len(columns[0])), 8):
            load(table, rows)
            table.recluster()
        ends.append(table.cost() / best)
        table.policy = replace(table.policy, depth=1)
        table.recluster()
        assert table.cost() <= 1.3 * best
    # Four copies of a table over each other cost this many times as much.
    assert ends[0] <= 1.5 * 4 ** (1 / dimensions)
    assert ends[1] <= min(1.3, 1.01 * ends[0])


@pytest.mark.parametrize(("is_sorted", "files"), [(False, 20), (False, 1), (True, 20)])
def test_an_unsorted_load_is_cut_by_itself_and_a_sorted_one_left_alone(is_sorted, files):
    """So the whole table need not be rewritten for it."""
    table = make_table(rows_of("in order", 2, 100 * BLOCK_ROWS))
    load(table, np.arange(80 * BLOCK_ROWS))
    table.recluster()
    before = {block.path for block in table.blocks}
    table.load(np.arange(80 * BLOCK_ROWS, 100 * BLOCK_ROWS), 20 // files * BLOCK_ROWS, is_sorted)
    _, planned, _ = table.planned()
    if is_sorted:
        assert planned.block_sets == ()
        return
    (block_set,) = planned.block_sets
    assert {table.blocks[place].path for place in block_set.blocks}.isdisjoint(before)
    assert len(block_set.blocks) == files
    assert reason_text(planned.reasons) == "merging 1 block set saves reads of single columns more than it costs"


@pytest.mark.parametrize("kind", ["uniform", "correlated", "skewed", "in order"])
def test_loads_of_one_large_file_do_not_rewrite_the_whole_table(kind):
    """Each is cut by itself, the first one too, and merged with others once the table is deep."""
    loads, rows = 16, 10 * BLOCK_ROWS
    columns = rows_of(kind, 2, loads * rows)
    table, rewritten = make_table(columns), 0
    for number in range(loads):
        table.load(np.arange(number * rows, (number + 1) * rows), rows)
        _, planned, rest = table.planned()
        rewritten += planned.rows
        table.merge(planned, rest)
        assert max(len(block.rows) for block in table.blocks) <= BLOCK_ROWS
    assert rewritten <= 1.9 * loads * rows
    assert table.cost() <= 2.5 * sorted_table(kind, 2, loads * 10, 4).cost()


def test_settled_blocks_are_merged_only_with_new_ones():
    table = make_table(rows_of("uniform", 2, 60 * BLOCK_ROWS), depth=1)
    load(table, np.arange(40 * BLOCK_ROWS))
    table.recluster()
    settled = np.ones(len(table.blocks), bool)
    assert plan(table.described(settled), table.policy).block_sets == ()
    load(table, np.arange(40 * BLOCK_ROWS, 60 * BLOCK_ROWS))
    settled = np.append(settled, np.zeros(len(table.blocks) - len(settled), bool))
    sets = plan(table.described(settled), table.policy).block_sets
    assert sets
    assert not any(settled[block_set.blocks].all() for block_set in sets)


def test_fixed_blocks_are_in_no_set_and_other_strategies_know_no_boxes():
    table = make_table(rows_of("uniform", 2, 40 * BLOCK_ROWS), depth=1)
    load(table, np.arange(40 * BLOCK_ROWS))
    blocks, policy = table.described(), table.policy
    fixed = plan(replace(blocks, fixed=np.arange(40) < 10), policy).block_sets
    assert sorted(np.concatenate([one.blocks for one in fixed]).tolist()) == list(range(10, 40))
    assert plan(replace(blocks, fixed=np.ones(40, bool)), policy).block_sets == ()
    for strategy in ("peak", "width", "above_average"):
        assert "single columns" not in reason_text(plan(blocks, replace(policy, strategy=strategy)).reasons)
