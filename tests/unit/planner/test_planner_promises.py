"""The promises that every strategy keeps, whatever the table."""

from dataclasses import replace

import block_tables
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.planner import STRATEGIES, Policy, PolicyError, plan
from dbt_recluster.planner.merges import simulate

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)

# A cut that rounding put beyond the last key took a row with it.
ENDS_WITH_A_CUT = [
    block_tables.Block(keys, level=0, run=0, partition=partition, bytes=0, deleted=deleted)
    for keys, partition, deleted in (
        ((0,), 0, 0),
        ((4,), 1, 0),
        ((1, 1), 1, 1),
        ((0, 0, 3), 1, 0),
        ((2, 5), 1, 0),
    )
]


@every_strategy
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
def test_sets_are_disjoint_and_within_budget(strategy, table, policy, reads):
    policy = replace(policy, strategy=strategy)
    blocks = block_tables.describe(table, reads=reads)
    planned = plan(blocks, policy)
    positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
    assert len(positions) == len(set(positions))
    for block_set in planned.block_sets:
        members = block_set.blocks.tolist()
        assert members == sorted(members)
        live = block_set.rows - int(blocks.deleted[members].sum())
        if len(members) == 1:
            assert strategy == "payback"
            assert live <= (1 - policy.deleted_share) * block_set.rows
            assert block_set.level == blocks.level[members[0]]
        assert block_set.bytes == blocks.bytes[members].sum()
        assert block_set.rows == blocks.rows[members].sum()
        if policy.max_merge_bytes is not None:
            assert block_set.bytes <= policy.max_merge_bytes
        least = blocks.level[members]
        if strategy == "payback":  # neighbours of one level keep it
            assert block_set.level >= least.min() + (block_set.depth > 1 and least.min() < least.max())
        else:
            assert len(members) >= 2
            assert block_set.level > least.max()
        assert {table[place].partition for place in members} == {table[members[0]].partition}
        assert block_set.partition == blocks.partition[members[0]]
        assert block_set.expected_blocks == max(1, -(-live // policy.block_rows))
        assert (1 if strategy == "payback" else 2) <= block_set.depth <= len(members)
    assert planned.bytes == sum(block_set.bytes for block_set in planned.block_sets)
    assert planned.rows == sum(block_set.rows for block_set in planned.block_sets)
    if policy.max_bytes is not None:
        assert planned.bytes <= policy.max_bytes


@every_strategy
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
def test_a_plan_is_limited_if_it_would_not_be_empty_without_limits(strategy, table, policy, reads):
    policy = replace(policy, strategy=strategy)
    blocks = block_tables.describe(table, reads=reads)
    planned = plan(blocks, policy)
    without_limits = plan(blocks, replace(policy, max_bytes=None, max_merge_bytes=None))
    assert planned.limited == (not planned.block_sets and len(without_limits.block_sets) > 0)
    assert not without_limits.limited
    assert (planned.needed is not None) == planned.limited
    if planned.needed is not None:
        assert plan(blocks, replace(policy, max_bytes=planned.needed, max_merge_bytes=None)).block_sets


@every_strategy
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
def test_a_merge_raises_the_depth_nowhere(strategy, table, policy, reads):
    policy = replace(policy, strategy=strategy)
    planned = plan(block_tables.describe(table, reads=reads), policy)
    after = block_tables.merge(table, planned, policy, 1)
    heavy = block_tables.heavy_keys(table, policy.block_rows)
    for partition in (0, 1):
        for point in block_tables.points(table + after):
            if (partition, point) not in heavy:
                depth = block_tables.depth_at(table, partition, point)
                # A gap between neighbours that are joined may be covered, by one block.
                allowed = max(depth, 1) if strategy == "payback" else depth
                assert block_tables.depth_at(after, partition, point) <= allowed, point


@every_strategy
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
@example(  # two sets that begin at the same key
    table=[block_tables.Block(keys) for keys in ((0,), (0,), (0, 2), (1,))],
    policy=Policy(block_rows=3, depth=1),
    reads=None,
)
def test_sets_of_one_run_share_a_level_and_at_most_touch(strategy, table, policy, reads):
    blocks = block_tables.describe(table, reads=reads)
    sets = plan(blocks, replace(policy, strategy=strategy)).block_sets
    for place, one in enumerate(sets):
        for other in sets[:place]:
            if one.run == other.run:
                assert one.level == other.level
                (_, end), (start, _) = sorted(
                    (blocks.lower[block_set.blocks].min(), blocks.upper[block_set.blocks].max())
                    for block_set in (one, other)
                )
                assert end <= start


@every_strategy
@given(
    table=block_tables.TABLES,
    policy=block_tables.POLICIES,
    reads=block_tables.READS,
    levels=st.booleans(),
    runs=st.booleans(),
)
def test_plan_and_merge_reach_an_empty_plan(strategy, table, policy, reads, levels, runs):
    policy = replace(policy, strategy=strategy, max_bytes=None)
    last = block_tables.final(table, policy, levels, runs, reads=reads)[-1]
    assert sum(len(block.live) for block in last) == sum(len(block.live) for block in table)
    if strategy == "payback" and policy.max_merge_bytes is None:
        assert all(block.deleted < policy.deleted_share * len(block.keys) for block in last)


@every_strategy
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
@example(table=ENDS_WITH_A_CUT, policy=Policy(depth=1, block_rows=1), reads=None)
def test_predicted_merges_reach_an_empty_plan_and_keep_every_row(strategy, table, policy, reads):
    blocks = block_tables.describe(table, reads=reads)
    policy = replace(policy, strategy=strategy)
    plans, final = block_tables.simulate_final(blocks, policy)
    assert np.sum(final.rows - final.deleted) == np.sum(blocks.rows - blocks.deleted)
    assert not plan(final, policy).block_sets
    if policy.max_bytes is not None:
        assert all(planned.bytes <= policy.max_bytes for planned in plans)


@every_strategy
@given(
    table=block_tables.TABLES,
    policy=block_tables.POLICIES,
    reads=block_tables.READS,
    seed=st.integers(0, 2**32 - 1),
)
def test_the_order_of_blocks_does_not_matter(strategy, table, policy, reads, seed):
    policy = replace(policy, strategy=strategy)
    order = np.random.default_rng(seed).permutation(len(table))

    def contents(blocks):
        sets = plan(block_tables.describe(blocks, reads=reads), policy).block_sets
        return [(s.level, s.run, sorted(map(repr, (blocks[i] for i in s.blocks)))) for s in sets]

    # The planner can only tell blocks apart by the figures that it is given.
    reduced = [
        replace(block, keys=block.keys[:1] * (len(block.keys) - 1) + block.keys[-1:]) for block in table
    ]
    assert contents(reduced) == contents([reduced[place] for place in order])


@every_strategy
@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([(1, 2)] * 50, id="identical ranges"),
        pytest.param([(7,)] * 50, id="one key, tiny blocks"),
        pytest.param([(7,) * 4] * 50, id="one key, full blocks"),
        pytest.param([(1, 5), (4, 9)], id="two blocks"),
        pytest.param([(1, 2)], id="one block"),
        pytest.param([], id="no block"),
        pytest.param([(i, 500) for i in range(500)] + [(500, 501 + i) for i in range(500)], id="one shared"),
        pytest.param([(i, i + 1) for i in range(200)], id="a chain of touching blocks"),
        pytest.param([(0, 1000), *[(i, i + 1) for i in range(0, 900, 2)]], id="one block over many"),
        pytest.param([(i, 1000 - i) for i in range(300)], id="nested blocks"),
    ],
)
def test_hard_tables_come_to_rest(strategy, keys, runs):
    policy = Policy(depth=1, strategy=strategy, block_rows=4)
    table = [block_tables.Block(tuple(pair)) for pair in keys]
    block_tables.final(table, policy, levels=runs, runs=runs)


@every_strategy
def test_unknown_upper_bounds_are_rewritten_once(strategy):
    from dbt_recluster.planner import Blocks

    def blocks(level):
        return Blocks.build([None] * 9, [None] * 9, rows=[5] * 9, level=[level] * 9, unbounded=[True] * 9)

    policy = Policy(depth=1, strategy=strategy, block_rows=5)
    assert plan(blocks(0), policy).block_sets
    assert not plan(blocks(1), policy).block_sets


def test_limits_in_bytes_need_bytes():
    from dbt_recluster.planner import Blocks

    blocks = Blocks.build([1, 1], [2, 2])
    with pytest.raises(PolicyError, match="need the blocks' bytes"):
        plan(blocks, Policy(max_bytes=5))
    with pytest.raises(PolicyError, match="need the blocks' bytes"):
        plan(blocks, Policy(max_merge_bytes=5))


@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
def test_prediction_keeps_levels_runs_and_partitions(table, policy, reads):
    blocks = block_tables.describe(table, reads=reads)
    planned = plan(blocks, policy)
    after = simulate(blocks, planned, policy)
    touched = {int(place) for block_set in planned.block_sets for place in block_set.blocks}
    kept = [place for place in range(len(table)) if place not in touched]
    n = len(kept)
    for name in ("rows", "bytes", "level", "run", "partition"):
        assert getattr(after, name)[:n].tolist() == getattr(blocks, name)[kept].tolist()
    assert (after.lower <= after.upper).all()
    assert (after.rows > 0).all()
    written = 0
    for block_set in planned.block_sets:
        start = n + written
        live = block_set.rows - blocks.deleted[block_set.blocks].sum()
        new = slice(start, start + np.count_nonzero(after.rows[start:].cumsum() <= live))
        assert after.rows[new].sum() == live
        assert not after.deleted[new].any()
        assert (after.level[new] == block_set.level).all()
        assert (after.partition[new] == block_set.partition).all()
        assert (after.run[new] > blocks.run.max()).all()
        # In the order of the key, and apart but for keys that fill a block.
        assert (after.upper[new][:-1] <= after.lower[new][1:]).all()
        written = new.stop - n
    assert n + written == len(after)
