"""Blocks of which many rows are deleted are rewritten alone, in the order of what that saves for each byte."""

import block_tables
import pytest

from dbt_recluster.planner import STRATEGIES, Blocks, BoundsError, Policy, PolicyError, plan

POLICY = Policy(block_rows=100)


def in_order(deleted, rows=None, **more):
    """Describe full blocks side by side."""
    count = len(deleted)
    lower = [10 * place for place in range(count)]
    rows = rows or [100] * count
    return Blocks.build(
        lower,
        [bound + 5 for bound in lower],
        rows=rows,
        bytes=[10 * r for r in rows],
        deleted=deleted,
        **more,
    )


def alone(planned):
    return [block_set.blocks.tolist() for block_set in planned.block_sets]


def test_from_the_share_of_the_policy_on():
    blocks = in_order([29, 30, 0, 100])
    planned = plan(blocks, POLICY)
    assert sorted(alone(planned)) == [[1], [3]]
    assert planned.reason == "2 blocks have 30% or more of the rows deleted"
    assert plan(in_order([30]), POLICY).reason == "1 block has 30% or more of the rows deleted"
    assert alone(plan(blocks, Policy(block_rows=100, deleted_share=1))) == [[3]]
    assert plan(in_order([0, 0]), POLICY).block_sets == ()


def test_the_more_is_deleted_the_sooner():
    assert alone(plan(in_order([40, 90, 60]), POLICY)) == [[1], [2], [0]]
    assert alone(plan(in_order([40, 90, 60]), Policy(block_rows=100, max_bytes=2500))) == [[1], [2]]
    assert alone(plan(in_order([90, 90], rows=[400, 100]), Policy(block_rows=400))) == [[1]]


def test_levels_stay_and_the_new_block_is_left_alone():
    (block_set,) = plan(in_order([50, 0], level=[7, 3]), POLICY).block_sets
    assert (block_set.level, block_set.expected_blocks, block_set.rows, block_set.depth) == (7, 1, 100, 1)
    plans, final = block_tables.simulate_final(in_order([50, 100, 0]), POLICY)
    assert len(plans) == 1
    assert final.rows.tolist() == [100, 50]
    assert final.deleted.tolist() == [0, 0]


def test_what_the_planner_may_not_touch_stays():
    blocks = in_order([50, 50, 50], level=[0, 64, 0], fixed=[True, False, False])
    assert alone(plan(blocks, POLICY)) == [[2]]
    assert plan(in_order([50]), Policy(block_rows=100, max_merge_bytes=999)).limited


def test_full_blocks_of_one_key_and_blocks_without_bounds_count_too():
    constant = Blocks.build([1, 1], [1, 1], rows=[100, 100], deleted=[50, 0])
    assert alone(plan(constant, POLICY)) == [[0]]
    unbounded = Blocks.build([1], [9], rows=[100], deleted=[50], level=[3], unbounded=[True])
    assert alone(plan(unbounded, POLICY)) == [[0]]


def test_a_merge_takes_its_deleted_rows_along():
    deep = Blocks.build([0] * 8, [9] * 8, rows=[100] * 8, bytes=[1000] * 8, deleted=[50] * 8)
    (block_set,) = plan(deep, POLICY).block_sets
    assert (len(block_set.blocks), block_set.expected_blocks) == (8, 4)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "payback"])
def test_the_strategies_of_the_sources_stay_as_published(strategy):
    assert plan(in_order([90]), Policy(block_rows=100, strategy=strategy)).block_sets == ()


def test_bad_input():
    for share in (0, -1, 1.1):
        with pytest.raises(PolicyError, match="deleted_share must be above 0"):
            Policy(deleted_share=share)
    with pytest.raises(BoundsError, match="deleted"):
        in_order([-1])
    assert in_order([250]).deleted.tolist() == [100]  # two delete files may name one row
