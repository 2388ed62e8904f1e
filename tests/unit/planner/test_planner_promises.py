"""The promises that every strategy keeps, whatever the table."""

import itertools
from dataclasses import replace
from functools import partial

import block_tables
import numpy as np
import pytest
from block_tables import Block, any_table, check_sets, describe, in_order, planned_sets
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.clustering.verdict import Facts, cause_text, decide, reason_text
from dbt_recluster.planner import STRATEGIES, Blocks, Policy, PolicyError, clustering_information, plan
from dbt_recluster.planner.merges import simulate

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def blocks_of(*columns):
    """Blocks of (keys, level, partition, deleted)."""
    return [Block(keys, level, 0, partition, 0, deleted) for keys, level, partition, deleted in columns]


# A cut that rounding put beyond the last key took a row with it.
ENDS_WITH_A_CUT = blocks_of(
    ((0,), 0, 0, 0), ((4,), 0, 1, 0), ((1, 1), 0, 1, 1), ((0, 0, 3), 0, 1, 0), ((2, 5), 0, 1, 0)
)

# The average depth of the whole table falls by another set than that of a partition.
AVERAGES = blocks_of(
    *[((0,), 0, 0, 0), ((0,), 0, 0, 0), ((0,), 0, 1, 0), ((0,), 1, 0, 0), ((0,), 1, 1, 0), ((0,), 2, 1, 0)],
    *[((1,), 0, 0, 0), ((2,), 1, 0, 0), ((2,), 0, 0, 0), ((0, 0), 0, 0, 0), ((0, 2), 0, 0, 0)],
    ((0, 0, 0, 0, 0, 3), 0, 0, 0),
)


@any_table()
def test_sets_are_disjoint_and_within_limits(table, policy, reads):
    blocks = describe(table, reads=reads)
    planned = plan(blocks, policy)
    check_sets(blocks, planned, policy)
    for block_set in planned.block_sets:
        members = block_set.blocks
        live, level = block_set.rows - int(blocks.deleted[members].sum()), blocks.level[members]
        if policy.strategy != "payback":
            assert len(members) >= 2
            assert block_set.level > level.max()
        elif len(members) == 1:
            assert live <= (1 - policy.deleted_share) * block_set.rows
            assert block_set.level == level[0]
        else:  # neighbours of one level keep it
            assert block_set.level >= level.min() + (level.min() < level.max())
        by_rows = max(1, -(-live // policy.block_rows))
        assert block_set.expected_blocks >= by_rows
        assert block_set.expected_blocks == by_rows or policy.block_bytes is not None
        assert (1 if policy.strategy == "payback" else 2) <= block_set.depth <= len(members)


@any_table()
def test_a_plan_is_limited_if_it_would_not_be_empty_without_limits(table, policy, reads):
    blocks = describe(table, reads=reads)
    planned = plan(blocks, policy)
    without_limits = plan(blocks, replace(policy, max_bytes=None, max_merge_bytes=None))
    assert planned.limited == (not planned.block_sets and len(without_limits.block_sets) > 0)
    assert not without_limits.limited
    assert (planned.needed is not None) == planned.limited
    if planned.needed is not None:
        assert plan(blocks, replace(policy, max_bytes=planned.needed, max_merge_bytes=None)).block_sets


@every_strategy
@given(table=block_tables.TABLES, most=st.integers(2, 5))
def test_no_merge_takes_more_blocks_than_it_may(strategy, table, most):
    # No block is small, so none is put together with its neighbours beyond what overlaps.
    policy = Policy(depth=1, strategy=strategy, block_rows=1, max_merge_blocks=most)
    for _, planned in block_tables.rounds(table, policy):
        assert all(len(one.blocks) <= most for one in planned.block_sets if one.is_merge)


@any_table()
def test_a_merge_raises_the_depth_nowhere(table, policy, reads):
    after = block_tables.merge(table, plan(describe(table, reads=reads), policy), policy, 1)
    heavy = block_tables.heavy_keys(table, policy.block_rows)
    for partition, point in itertools.product((0, 1), block_tables.points(table + after)):
        if (partition, point) not in heavy:
            depth = block_tables.depth_at(table, partition, point)
            # A gap between neighbours that are joined may be covered, by one block.
            allowed = max(depth, 1) if policy.strategy == "payback" else depth
            assert block_tables.depth_at(after, partition, point) <= allowed, point


@any_table()
def test_every_merge_has_a_gain(table, policy, reads):
    """Each by itself lowers a figure that users are shown, as far as bounds and rows tell."""
    blocks = describe(table, reads=reads)
    planned = plan(blocks, policy)
    before = clustering_information(blocks)
    for block_set in planned.block_sets:
        alone = replace(planned, block_sets=(block_set,))
        after = clustering_information(simulate(blocks, alone, policy))
        rewritten = [table[place] for place in block_set.blocks]
        assert (
            after.average_depth < before.average_depth
            or block_set.expected_blocks < len(block_set.blocks)
            or any(block.deleted >= policy.deleted_share * len(block.keys) for block in rewritten)
            or (reads is not None and _ends_where_they_overlap(blocks, block_set))
        )


def _ends_where_they_overlap(blocks, block_set):
    lower, upper = blocks.lower[block_set.blocks], blocks.upper[block_set.blocks]
    over = [np.count_nonzero((lower <= rank) & (rank <= upper)) for rank in range(blocks.points)]
    between = [np.count_nonzero((lower <= rank) & (rank < upper)) for rank in range(blocks.points)]
    return any(
        (at > 0 and here > 1) or (after > 0 and there > 1)
        for (at, after), here, there in zip(blocks.reads.in_cells.reshape(-1, 2), over, between, strict=True)
    )


@any_table()
@example(  # two sets that begin at the same key
    table=[Block(keys) for keys in ((0,), (0,), (0, 2), (1,))],
    policy=Policy(block_rows=3, depth=1),
    reads=None,
)
def test_sets_of_one_run_share_a_level_and_at_most_touch(table, policy, reads):
    blocks = describe(table, reads=reads)
    sets = plan(blocks, policy).block_sets
    for one, other in itertools.combinations(sets, 2):
        if one.run == other.run:
            assert one.level == other.level
            (_, end), (start, _) = sorted(
                (blocks.lower[block_set.blocks].min(), blocks.upper[block_set.blocks].max())
                for block_set in (one, other)
            )
            assert end <= start


@any_table(levels=st.booleans(), runs=st.booleans())
def test_plan_and_merge_reach_an_empty_plan(table, policy, reads, levels, runs):
    policy = replace(policy, max_bytes=None)
    described = partial(describe, levels=levels, runs=runs, reads=reads)
    *_, (last, _) = block_tables.rounds(table, policy, described)
    assert sum(len(block.live) for block in last) == sum(len(block.live) for block in table)
    if policy.strategy == "payback" and policy.max_merge_bytes is None:
        assert all(block.deleted < policy.deleted_share * len(block.keys) for block in last)


@every_strategy
@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([(1, 2)] * 50, id="identical ranges"),
        pytest.param([(7,)] * 50, id="one key, tiny blocks"),
        pytest.param([(7,) * 4] * 50, id="one key, full blocks"),
        pytest.param([(i, 500) for i in range(500)] + [(500, 501 + i) for i in range(500)], id="one shared"),
        pytest.param([(i, i + 1) for i in range(200)], id="a chain of touching blocks"),
        pytest.param([(0, 1000), *[(i, i + 1) for i in range(0, 900, 2)]], id="one block over many"),
        pytest.param([(i, 1000 - i) for i in range(300)], id="nested blocks"),
    ],
)
def test_degenerate_tables_end_at_the_threshold(strategy, keys, runs):
    policy = Policy(depth=1, strategy=strategy, block_rows=4)
    described = partial(describe, levels=runs, runs=runs)
    *_, (_, last) = block_tables.rounds(list(map(Block, keys)), policy, described)
    assert last.depth <= last.threshold


@any_table()
@example(table=ENDS_WITH_A_CUT, policy=Policy(depth=1, block_rows=1), reads=None)
def test_predicted_merges_reach_an_empty_plan_and_keep_every_row(table, policy, reads):
    blocks = describe(table, reads=reads)
    plans, final = block_tables.simulate_final(blocks, policy)
    assert np.sum(final.rows - final.deleted) == np.sum(blocks.rows - blocks.deleted)
    assert not plan(final, policy).block_sets
    if policy.max_bytes is not None:
        assert all(planned.bytes <= policy.max_bytes for planned in plans)


@any_table()
def test_prediction_keeps_levels_runs_and_partitions(table, policy, reads):
    blocks = describe(table, reads=reads)
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


@any_table()
def test_the_verdict_follows_from_the_depth_beside_its_threshold(table, policy, reads):
    planned = plan(describe(table, reads=reads), policy)
    is_above = planned.depth > planned.threshold
    merges = plan(describe(table, reads=reads), replace(policy, max_bytes=None)).block_sets
    rest = "well clustered" if planned.by_level else "stuck"
    assert decide(Facts(plan=planned)).verdict == ("well clustered" if not is_above else "deep" if merges else rest)
    assert not planned.by_level or policy.strategy in ("peak", "above_average")
    assert (f"is above {planned.threshold:.4g}" in reason_text(planned.reasons)) <= is_above
    assert reason_text(planned.reasons).endswith(cause_text(planned.reasons))
    if policy.depth >= 1:
        assert planned.threshold == policy.depth


@any_table(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_blocks_does_not_matter(table, policy, reads, seed):
    order = np.random.default_rng(seed).permutation(len(table))

    def contents(blocks):
        planned = plan(describe(blocks, reads=reads), policy)
        sets = [(s.level, s.run, sorted(map(repr, (blocks[i] for i in s.blocks)))) for s in planned.block_sets]
        return sets, reason_text(planned.reasons)

    # The planner can only tell blocks apart by the figures that it is given.
    reduced = [replace(block, keys=block.keys[:1] * (len(block.keys) - 1) + block.keys[-1:]) for block in table]
    assert contents(reduced) == contents([reduced[place] for place in order])


# At a threshold between 1 and 2 `payback` may put partitions off while others have cheaper sets.
@any_table(depth=st.sampled_from([1, 1.5, 2, 0.3]))
@example(table=AVERAGES, policy=Policy(block_rows=3, max_merge_bytes=70), reads=None, depth=1)
def test_what_is_to_be_done_in_a_partition_does_not_depend_on_others(table, policy, reads, depth):
    """So a check may leave partitions out."""
    policy = replace(policy, depth=depth)
    unlimited = replace(policy, max_bytes=None)
    blocks = describe(table, reads=reads)
    to_do = {
        partition
        for partition in np.unique(blocks.partition).tolist()
        if plan(blocks.take(np.flatnonzero(blocks.partition == partition)), unlimited).block_sets
    }
    assert bool(plan(blocks, unlimited).block_sets) == bool(to_do)
    assert {block_set.partition for block_set in plan(blocks, policy).block_sets} <= to_do


@every_strategy
def test_unknown_upper_bounds_are_rewritten_once(strategy):
    def sets(level):
        blocks = Blocks.build([None] * 9, [None] * 9, rows=[5] * 9, level=[level] * 9, unbounded=[True] * 9)
        return planned_sets(blocks, depth=1, strategy=strategy, block_rows=5)

    assert sets(0)
    assert not sets(1)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "payback"])
def test_strategies_of_the_sources_stay_as_published(strategy):
    """They neither join small blocks nor rewrite those with many deleted rows."""
    assert planned_sets(in_order([10] * 50), block_rows=100, strategy=strategy) == []
    assert planned_sets(in_order([100], deleted=[90]), block_rows=100, strategy=strategy) == []


@pytest.mark.parametrize("limit", ["max_bytes", "max_merge_bytes"])
def test_limits_in_bytes_need_bytes(limit):
    with pytest.raises(PolicyError, match="need the blocks' bytes"):
        plan(Blocks.build([1, 1], [2, 2]), Policy(**{limit: 5}))
