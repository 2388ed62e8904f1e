"""Blocks that are rewritten whatever their depth: small neighbours, together, and blocks with many deleted rows."""

import math

import block_tables
import pytest
from block_tables import Block, build, describe, in_order, merge, planned_sets
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.verdict import reason_text
from dbt_recluster.planner import Blocks, BoundsError, Policy, clustering_information, plan

POLICY = Policy(depth=4, block_rows=100)


def sets_of(blocks, **policy):
    return planned_sets(blocks, **{"depth": 4, "block_rows": 100, **policy})


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300), st.integers(0, 2)), max_size=30),
    st.integers(1, 40),
    st.none() | st.integers(1, 400),
)
def test_small_blocks_and_fragmentation_equal_their_definitions(table, block_rows, block_bytes):
    rows, size, partition = (list(column) for column in zip(*table, strict=True)) if table else ([],) * 3
    metrics = clustering_information(in_order(rows, bytes=size, partition=partition), block_rows, block_bytes)
    assert metrics.small_block_count == sum(
        2 * r < block_rows and (block_bytes is None or 2 * b < block_bytes) for r, b, _ in table
    )
    full = {}
    for part in set(partition):
        r, b = (sum(block[column] for block in table if block[2] == part) for column in (0, 1))
        full[part] = max(1, math.ceil(r / block_rows), math.ceil(b / block_bytes) if block_bytes else 1)
    expected = len(table) / sum(full.values()) if table else 0.0
    assert metrics.fragmentation == pytest.approx(expected, abs=1e-4)
    worst = max((partition.count(part) / full[part] for part in full), default=0.0)
    assert metrics.max_fragmentation == pytest.approx(worst, abs=1e-4)


def test_fragmentation_needs_rows_and_the_size_of_a_full_block():
    metrics = clustering_information(in_order([10, 100]))
    named = {"small_block_count", "fragmentation", "max_fragmentation", "reducible_ratio"}
    assert not named & set(metrics.as_dict())
    # Blocks of unknown rows count as full.
    metrics = clustering_information(Blocks.build([1, 2], [1, 2]), 100)
    assert (metrics.small_block_count, metrics.fragmentation, metrics.max_fragmentation) == (0, 1.0, 1.0)


def naive_compactions(weights, full):
    """The segments to put together of neighbours that nothing lies between, one by one."""

    def worth(start, end):
        if end - start < 2 or not any(2 * weight < full for weight in weights[start:end]):
            return False
        total = sum(weights[start:end])
        blocks = math.ceil(total / full)
        fills = 4 * total >= 3 * blocks * full
        grows = 2 * total < full and total >= 4 * max(weights[start:end])
        return end - start > blocks and (fills or grows)

    def search(start, end):
        if end - start < 2:
            return []
        if worth(start, end):
            return [(start, end)]
        total, greatest = sum(weights[start:end]), max(weights[start:end])
        wanted = total // full * full if total > full else (full - 1) // 2 if total >= 4 * greatest else 0
        head = start
        while head < end and sum(weights[start : head + 1]) <= wanted:
            head += 1
        if worth(start, head):
            return [(start, head), *search(head, end)]
        tail = end
        while tail > start and sum(weights[tail - 1 : end]) <= wanted:
            tail -= 1
        if worth(tail, end):
            return [*search(start, tail), (tail, end)]
        largest = [place for place in range(start, end) if weights[place] == greatest]
        pieces = zip([start, *(place + 1 for place in largest)], [*largest, end], strict=True)
        return [found for piece in pieces for found in search(*piece)]

    return [list(range(start, end)) for start, end in sorted(search(0, len(weights)))]


@given(st.lists(st.integers(1, 66) | st.integers(1, 5) | st.just(10), max_size=60))
def test_neighbours_are_joined_as_their_naive_twin_says(rows):
    assert sorted(sets_of(in_order(rows))) == naive_compactions(rows, 100)


@pytest.mark.parametrize(
    ("bounds", "rows"),
    [
        ([(0, 9)] * 7, 100),  # one large file a load
        ([(n, n) for n in range(40)], 1),  # many small files of loads in order
        ([(0, 9)] * 40, 1),  # unsorted
        ([(n % 3, n % 3) for n in range(40)], 1),  # few values
    ],
)
def test_a_small_table_is_not_merged_for_its_depth_and_compacted_from_16_small_blocks_on(bounds, rows):
    blocks = build(bounds, rows=[rows] * len(bounds))
    for count in (7, 15, len(bounds)):
        few = blocks.take(list(range(min(count, len(bounds)))))
        planned = plan(few, Policy(depth=1, block_rows=100, is_small_table=True))
        assert (sum(len(s.blocks) for s in planned.block_sets) >= 16) == (count == 40)
        if not planned.block_sets and planned.depth > 1:
            assert reason_text(planned.reasons).endswith(
                "above 1, and the table has fewer than 8 full blocks, so its depth matters little"
            )
    deleted = build([(0, 9)] * 3, rows=[100] * 3, deleted=[0, 50, 0])
    assert sets_of(deleted, depth=1, is_small_table=True) == [[1]]


FOUR, FIVE = [(0, 5), (10, 15), (20, 25), (30, 35)], [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("other", "more", "sets"),
    [
        ((11, 14), {}, FIVE),  # over a block, and not over the gap between two
        ((17, 18), {}, []),
        ((17, 17), {}, []),
        ((12, 22), {}, []),
        ((-5, 50), {}, []),
        ((15, 20), {}, []),
        # Nor are blocks crossed that are never rewritten.
        ((17, 18), {"fixed": [False] * 4 + [True]}, []),
        ((17, None), {"level": [0] * 4 + [1], "unbounded": [False] * 4 + [True]}, []),
    ],
)
def test_nothing_is_joined_across_a_block_between_or_over_them(other, more, sets):
    assert sets_of(build([*FOUR, other], rows=[25] * 4 + [100], **more)) == sets


def test_a_block_whose_bounds_its_run_accounts_for_is_not_crossed():
    assert sets_of(build([*FOUR, *[(17, 18)] * 3], rows=[25] * 4 + [100] * 3, run=[0] * 4 + [1] * 3)) == []


@pytest.mark.parametrize(
    ("blocks", "policy", "sets"),
    [
        (build([*FOUR[:3], (0, 25)], rows=[20] * 4), {}, FIVE),  # a small block over others goes along
        (in_order([10] * 8, partition=[0] * 4 + [1] * 4), {}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (in_order([10] * 4, bytes=[60] * 4), {}, FIVE),
        (in_order([10] * 4, bytes=[60] * 4), {"block_bytes": 100}, []),  # full in bytes
    ],
)
def test_small_blocks_are_joined_with_their_neighbours(blocks, policy, sets):
    assert sets_of(blocks, **policy) == sets


def test_full_blocks_are_counted_in_rows_and_bytes():
    blocks = in_order([10] * 40, bytes=[20] * 40)
    (block_set,) = plan(blocks, Policy(block_rows=100, block_bytes=100)).block_sets
    assert block_set.expected_blocks == 8


@pytest.mark.parametrize(
    ("level", "expected"),
    # Old blocks as dense as the young ones stay young, and none keeps the least of several levels.
    [([0] * 4, 0), ([60] * 40, 60), ([0, 4] * 4, 1), ([0] * 9 + [1], 1)],
)
def test_neighbours_of_one_level_keep_it_and_others_get_the_mean(level, expected):
    (block_set,) = plan(in_order([10] * len(level), level=level), Policy(block_rows=1000)).block_sets
    assert block_set.level == expected


@given(rows=st.integers(1, 9), depth=st.sampled_from([1.0, 4.0]))
def test_ordered_loads_stay_few_blocks_of_one_age_for_little_work(rows, depth):
    """What benchmarks/small_blocks.py measures, on a small scale."""
    policy, table, rewritten = Policy(depth=depth, block_rows=60), [], 0
    for load in range(200):
        table.append(Block(tuple(10 * load + n for n in range(rows))))
        planned = plan(describe(table), policy)
        rewritten += planned.rows
        table = merge(table, planned, policy, 1000 * (load + 1))
        if (load + 1) * rows >= 15 * 60:
            assert len(table) <= 2.0 * (load + 1) * rows / 60
    # Once for each power of 4 between a load and a block, and once to fill it.
    assert rewritten <= 200 * rows * (math.log(60 / rows, 4) + 1)
    # Later loads over all keys would tear the table apart otherwise.
    assert all(block.level == 0 for block in table)


def with_deleted(*deleted, rows=100, **more):
    """Full blocks side by side."""
    count = len(deleted)
    return in_order([rows] * count, bytes=[10 * rows] * count, deleted=deleted, **more)


UNBOUNDED = Blocks.build([1], [9], rows=[100], deleted=[50], level=[3], unbounded=[True])


@pytest.mark.parametrize(
    ("blocks", "policy", "sets"),
    [
        (with_deleted(29, 0, 100, 30), {}, [[2], [3]]),  # the more is deleted, the sooner
        (with_deleted(29, 0, 100, 99), {"deleted_share": 1}, [[2]]),
        (with_deleted(55, 7), {"deleted_share": 0.55}, [[0]]),  # 0.55 * 100 is more than 55
        (with_deleted(40, 90, 60), {"max_bytes": 2500}, [[1], [2]]),
        (in_order([400, 100], deleted=[90, 90]), {"block_rows": 400}, [[1]]),
        (with_deleted(50, 50, 50, level=[0, 64, 0], fixed=[True, False, False]), {}, [[2]]),
        (with_deleted(50), {"max_merge_bytes": 999}, []),
        (build([(1, 1)] * 2, rows=[100] * 2, deleted=[50, 0]), {}, [[0]]),  # full blocks of one key too
        (UNBOUNDED, {}, [[0]]),
    ],
)
def test_blocks_with_many_deleted_rows_are_rewritten_alone(blocks, policy, sets):
    assert sets_of(blocks, **policy) == sets


def test_a_rewrite_for_deleted_rows_keeps_the_level_and_is_the_last():
    (block_set,) = plan(with_deleted(50, 0, level=[7, 3]), POLICY).block_sets
    assert (block_set.level, block_set.expected_blocks, block_set.rows, block_set.depth) == (7, 1, 100, 1)
    plans, final = block_tables.simulate_final(with_deleted(50, 100, 0), POLICY)
    assert len(plans) == 1
    assert final.rows.tolist() == [100, 50]
    assert final.deleted.tolist() == [0, 0]


def test_a_merge_takes_its_deleted_rows_along():
    deep = build([(0, 9)] * 8, rows=[100] * 8, bytes=[1000] * 8, deleted=[50] * 8)
    (block_set,) = plan(deep, POLICY).block_sets
    assert (len(block_set.blocks), block_set.expected_blocks) == (8, 4)


def test_deleted_rows_are_at_least_none_and_at_most_all():
    with pytest.raises(BoundsError, match="deleted"):
        with_deleted(-1)
    assert with_deleted(250).deleted.tolist() == [100]  # two delete files may name one row
