"""Small blocks: their metrics against definitions, and their joins against quadratic twins and the promises."""

import math
from dataclasses import replace

import block_tables
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import Blocks, Policy, PolicyError, clustering_information, plan
from dbt_recluster.planner.compaction import select_compactions
from dbt_recluster.planner.merges import simulate
from dbt_recluster.planner.strategies.age_groups import compacted_levels

# Blocks of `block_tables` hold 1 to 9 rows of 10 bytes each, so many of them are small here.
POLICIES = st.builds(
    Policy,
    depth=st.sampled_from([1, 2, 4, 100]),
    block_rows=st.integers(4, 40),
    block_bytes=st.none() | st.integers(40, 400),
    max_bytes=st.none() | st.integers(0, 600),
    max_merge_bytes=st.none() | st.integers(1, 300),
)
# Only joins: no table is that deep.
DEEP = 1e6


def in_order(rows, **more):
    """Blocks side by side with gaps between them."""
    places = range(len(rows))
    return Blocks.build([10 * n for n in places], [10 * n + 5 for n in places], rows=list(rows), **more)


def sets_of(blocks, **policy):
    policy = Policy(**{"depth": 4, "block_rows": 100, **policy})
    return [block_set.blocks.tolist() for block_set in plan(blocks, policy).block_sets]


class TestMetrics:
    @given(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300), st.integers(0, 2)), max_size=30),
        st.integers(1, 40),
        st.none() | st.integers(1, 400),
    )
    def test_small_blocks_and_fragmentation_equal_their_definitions(self, table, block_rows, block_bytes):
        rows, size, partition = (list(column) for column in zip(*table, strict=True)) if table else ([],) * 3
        n = len(table)
        blocks = Blocks.build(list(range(n)), list(range(n)), rows=rows, bytes=size, partition=partition)
        metrics = clustering_information(blocks, block_rows, block_bytes)
        small = [
            2 * r < block_rows and (block_bytes is None or 2 * b < block_bytes)
            for r, b in zip(rows, size, strict=True)
        ]
        assert metrics.small_block_count == sum(small)
        full = {}
        for part in set(partition):
            r = sum(r for r, _, p in table if p == part)
            b = sum(b for _, b, p in table if p == part)
            full[part] = max(1, math.ceil(r / block_rows), math.ceil(b / block_bytes) if block_bytes else 1)
        expected = n / sum(full.values()) if n else 0.0
        assert metrics.fragmentation == pytest.approx(expected, abs=1e-4)
        worst = max((partition.count(part) / full[part] for part in full), default=0.0)
        assert metrics.max_fragmentation == pytest.approx(worst, abs=1e-4)

    def test_they_are_left_out_where_the_size_of_a_full_block_is_not_given(self):
        metrics = clustering_information(in_order([10, 100]))
        assert (metrics.small_block_count, metrics.fragmentation, metrics.max_fragmentation) == (None,) * 3
        assert not {"small_block_count", "fragmentation", "max_fragmentation"} & set(metrics.as_dict())

    def test_blocks_of_unknown_rows_count_as_full(self):
        metrics = clustering_information(Blocks.build([1, 2], [1, 2]), 100)
        assert (metrics.small_block_count, metrics.fragmentation, metrics.max_fragmentation) == (0, 1.0, 1.0)

    def test_the_bytes_of_a_full_block_are_checked(self):
        with pytest.raises(PolicyError, match="block_bytes must be a whole number of at least 1"):
            Policy(block_bytes=0)


def naive_joins(weights, small, full):
    """The segments to join of neighbours that nothing lies between, one by one."""

    def worth(start, end):
        if end - start < 2 or not any(small[start:end]):
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

    return sorted(search(0, len(weights)))


class TestSelection:
    @given(st.lists(st.integers(1, 66) | st.integers(1, 5) | st.just(10), max_size=60))
    def test_neighbours_are_joined_as_their_naive_twin_says(self, rows):
        expected = naive_joins(rows, [2 * r < 100 for r in rows], 100)
        planned = plan(in_order(rows), Policy(depth=4, block_rows=100))
        assert sorted((int(s.blocks[0]), int(s.blocks[-1]) + 1) for s in planned.block_sets) == expected
        assert all(len(s.blocks) == s.blocks[-1] - s.blocks[0] + 1 for s in planned.block_sets)

    @given(table=block_tables.TABLES, policy=POLICIES)
    def test_a_join_has_a_small_block_and_leaves_fewer(self, table, policy):
        policy = replace(policy, depth=DEEP)
        for block_set in plan(block_tables.describe(table), policy).block_sets:
            members = [table[place] for place in block_set.blocks]
            if len(members) == 1:
                continue  # for its deleted rows
            full_bytes = policy.block_bytes or math.inf
            assert any(2 * len(m.keys) < policy.block_rows and 20 * len(m.keys) < full_bytes for m in members)
            assert all(3 * len(m.keys) < 2 * policy.block_rows for m in members)
            assert block_set.expected_blocks < len(members)

    @given(table=block_tables.TABLES, policy=POLICIES)
    def test_a_set_covers_no_key_that_only_other_blocks_cover(self, table, policy):
        for block_set in plan(block_tables.describe(table), policy).block_sets:
            members = [table[place] for place in block_set.blocks]
            partition = members[0].partition
            others = [
                block for place, block in enumerate(table) if place not in set(block_set.blocks.tolist())
            ]
            for point in block_tables.points(table):
                if min(m.keys[0] for m in members) <= point <= max(
                    m.keys[-1] for m in members
                ) and not block_tables.depth_at(members, partition, point):
                    assert block_tables.depth_at(others, partition, point) == 0

    @pytest.mark.parametrize("count", [2, 15, 200])
    def test_full_blocks_in_order_are_never_touched(self, count):
        planned = plan(in_order([100] * count), Policy(depth=1, block_rows=100))
        assert not planned.block_sets
        assert planned.reason == "reducible depth 1 is at most 1"

    def test_the_strategies_of_the_sources_join_nothing(self):
        for strategy in ("peak", "above_average", "width"):
            assert sets_of(in_order([10] * 50), strategy=strategy) == []

    def test_a_tail_too_small_to_be_worth_it_waits(self):
        assert sets_of(in_order([100, 100, 10, 10, 10])) == []
        assert sets_of(in_order([100, 100, 10, 10, 10, 10])) == [[2, 3, 4, 5]]

    def test_nothing_is_joined_across_a_block_between_or_over_them(self):
        lower, upper = [0, 10, 20, 30], [5, 15, 25, 35]
        assert sets_of(Blocks.build(lower, upper, rows=[25] * 4)) == [[0, 1, 2, 3]]
        for between in ((17, 18), (17, 17), (12, 22), (-5, 50), (15, 20)):
            blocks = Blocks.build([*lower, between[0]], [*upper, between[1]], rows=[25] * 4 + [100])
            assert sets_of(blocks) == []
        # Over the blocks, and not over the gap between them.
        assert sets_of(Blocks.build([*lower, 11], [*upper, 14], rows=[25] * 4 + [100])) == [[0, 1, 2, 3]]

    @pytest.mark.parametrize(
        "other", ["full constant", "not to be merged", "unknown upper bound", "no extent"]
    )
    def test_blocks_that_are_never_rewritten_are_not_crossed_either(self, other):
        lower, upper, rows = [0, 10, 20, 30, 17], [5, 15, 25, 35, 18], [25] * 4 + [100]
        level, unbounded, run, fixed = [0] * 5, [False] * 5, [0] * 5, [False] * 5
        if other == "full constant":
            upper[4] = 17
        if other == "not to be merged":
            fixed[4] = True
        if other == "unknown upper bound":
            level[4], unbounded[4] = 1, True
        if other == "no extent":
            # Two more blocks of its run account for all of its bounds.
            lower += [17, 17]
            upper += [18, 18]
            rows += [100, 100]
            level, unbounded, run, fixed = [0] * 7, [False] * 7, [0] * 4 + [1] * 3, [False] * 7
        blocks = Blocks.build(lower, upper, rows=rows, level=level, unbounded=unbounded, run=run, fixed=fixed)
        assert sets_of(blocks) == []

    def test_a_small_block_over_others_is_joined_with_them(self):
        blocks = Blocks.build([0, 10, 20, 0], [5, 15, 25, 25], rows=[20] * 4)
        assert sets_of(blocks) == [[0, 1, 2, 3]]

    def test_partitions_are_joined_each_by_itself(self):
        assert sets_of(in_order([10] * 8, partition=[0] * 4 + [1] * 4)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert sets_of(in_order([10] * 6, partition=[0] * 3 + [1] * 3)) == []

    def test_a_block_full_in_bytes_is_not_small(self):
        blocks = in_order([10] * 4, bytes=[60] * 4)
        assert sets_of(blocks) == [[0, 1, 2, 3]]
        assert sets_of(blocks, block_bytes=100) == []
        (block_set,) = plan(
            in_order([10] * 40, bytes=[20] * 40), Policy(block_rows=100, block_bytes=100)
        ).block_sets
        assert block_set.expected_blocks == 8

    def test_limits_hold(self):
        blocks = in_order([10] * 100, bytes=[7] * 100)
        assert all(len(members) * 7 <= 90 for members in sets_of(blocks, max_merge_bytes=90))
        planned = plan(blocks, Policy(block_rows=100, max_bytes=200))
        assert 0 < planned.bytes <= 200
        planned = plan(blocks, Policy(block_rows=100, max_bytes=10))
        assert planned.limited
        assert planned.reason == (
            "100 small blocks make 10 full ones, and no block set fits into 10 bytes; 28 bytes would do"
        )

    def test_a_partner_is_taken_along_once(self):
        _, blocks = block_tables.simulate_final(in_order([60, 40]), Policy(block_rows=100))
        assert blocks.rows.tolist() == [100]
        assert sets_of(in_order([70, 10, 10])) == []
        assert sets_of(in_order([60, 10])) == []

    def test_depth_sets_and_joins_are_disjoint_and_ordered_by_what_a_byte_saves(self):
        deep = [(1000 + n, 1100 + n) for n in range(6)]
        small = [(10 * n, 10 * n + 5) for n in range(10)]
        lower, upper = zip(*deep, *small, strict=True)
        blocks = Blocks.build(
            list(lower), list(upper), rows=[100] * 6 + [10] * 10, bytes=[900] * 6 + [90] * 10
        )
        planned = plan(blocks, Policy(depth=2, block_rows=100))
        assert [s.blocks.tolist() for s in planned.block_sets] == [list(range(6, 16)), list(range(6))]
        assert [s.depth for s in planned.block_sets] == [1, 6]
        assert "is above 2, and 10 small blocks make 1 full one" in planned.reason


class TestReason:
    @pytest.mark.parametrize(
        ("rows", "reason"),
        [
            ([12] * 50, "50 small blocks make 6 full ones"),
            ([20] * 5, "5 small blocks make 1 full one"),
            ([5] * 4, "4 small blocks make 1 larger one"),
            ([60, 40], "2 blocks, 1 of them small, make 1 full one"),
        ],
    )
    def test_it_says_what_is_joined(self, rows, reason):
        assert plan(in_order(rows), Policy(block_rows=100)).reason == reason


class TestLevels:
    @given(st.integers(0, 60), st.integers(4, 40))
    def test_neighbours_of_one_level_keep_it(self, level, count):
        (block_set,) = plan(in_order([10] * count, level=[level] * count), Policy(block_rows=1000)).block_sets
        assert block_set.level == level

    def test_old_blocks_as_dense_as_the_young_ones_do_not_make_them_old(self):
        (block_set,) = plan(in_order([10] * 8, level=[0, 4] * 4), Policy(block_rows=1000)).block_sets
        assert block_set.level == 1

    def test_a_table_loaded_in_order_has_one_age(self):
        """However often parts of it were joined, or later loads over all keys would tear it apart."""
        policy, blocks = Policy(block_rows=100), in_order([10] * 3)
        for count in range(3, 60):
            rows = np.append(blocks.rows, 10)
            lower, upper = np.append(blocks.lower, 10**6), np.append(blocks.upper, 10**6 + 5)
            levels, runs = np.append(blocks.level, 0), np.append(blocks.run, 0)
            blocks = Blocks.build(lower, upper, rows=rows, level=levels, run=runs)
            blocks = simulate(blocks, plan(blocks, policy), policy)
            assert blocks.rows.sum() == 10 * (count + 1)
            assert (blocks.level == 0).all()

    @given(table=block_tables.TABLES, policy=POLICIES)
    def test_a_join_never_lowers_all_levels_nor_keeps_the_least_of_several(self, table, policy):
        blocks = block_tables.describe(table)
        eligible = policy.candidates(blocks)
        sets = select_compactions(eligible, np.zeros(0, np.int64), policy)
        for members, level in zip(
            np.split(sets.member, sets.start[1:]), compacted_levels(eligible, sets).tolist(), strict=False
        ):
            levels = eligible.level[members]
            assert level >= levels.min() + (levels.min() < levels.max())


class TestPromises:
    @given(table=block_tables.TABLES, policy=POLICIES)
    def test_sets_are_disjoint_and_within_limits(self, table, policy):
        planned = plan(block_tables.describe(table), policy)
        positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
        assert len(positions) == len(set(positions))
        assert policy.max_bytes is None or planned.bytes <= policy.max_bytes
        assert all(s.bytes <= (policy.max_merge_bytes or s.bytes) for s in planned.block_sets)

    @given(table=block_tables.TABLES, policy=POLICIES)
    def test_no_key_becomes_deeper(self, table, policy):
        after = block_tables.merge(table, plan(block_tables.describe(table), policy), policy, 1)
        heavy = block_tables.heavy_keys(table, policy.block_rows)
        for partition in (0, 1):
            for point in block_tables.points(table + after):
                if (partition, point) not in heavy:
                    before = block_tables.depth_at(table, partition, point)
                    assert block_tables.depth_at(after, partition, point) <= max(before, 1), point

    @given(table=block_tables.TABLES, policy=POLICIES, levels=st.booleans(), runs=st.booleans())
    def test_final_comes_to_rest(self, table, policy, levels, runs):
        policy = replace(policy, max_bytes=None)
        last = block_tables.final(table, policy, levels, runs)[-1]
        assert sum(len(block.live) for block in last) == sum(len(block.live) for block in table)

    @given(table=block_tables.TABLES, policy=POLICIES, seed=st.integers(0, 2**32 - 1))
    def test_the_order_of_blocks_does_not_matter(self, table, policy, seed):
        reduced = [
            replace(block, keys=block.keys[:1] * (len(block.keys) - 1) + block.keys[-1:]) for block in table
        ]

        def contents(blocks):
            planned = plan(block_tables.describe(blocks), policy)
            sets = [
                (s.level, s.run, sorted(map(repr, (blocks[i] for i in s.blocks)))) for s in planned.block_sets
            ]
            return sets, planned.reason

        order = np.random.default_rng(seed).permutation(len(table))
        assert contents(reduced) == contents([reduced[place] for place in order])

    @given(rows=st.integers(1, 9), policy_depth=st.sampled_from([1.0, 4.0]))
    def test_ordered_loads_stay_few_blocks_for_little_work(self, rows, policy_depth):
        """What benchmarks/small_blocks.py measures, on a small scale."""
        policy, table, rewritten = Policy(depth=policy_depth, block_rows=60), [], 0
        for load in range(200):
            table.append(block_tables.Block(tuple(10 * load + n for n in range(rows))))
            planned = plan(block_tables.describe(table), policy)
            rewritten += planned.rows
            table = block_tables.merge(table, planned, policy, 1000 * (load + 1))
            if (load + 1) * rows >= 15 * 60:
                assert len(table) <= 2.0 * (load + 1) * rows / 60
        # Once for each power of 4 between a load and a block, and once to fill it.
        assert rewritten <= 200 * rows * (math.log(60 / rows, 4) + 1)
