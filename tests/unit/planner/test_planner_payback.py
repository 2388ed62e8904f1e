"""The default strategy: its arithmetic against quadratic twins, and the block sets it selects."""

import block_tables
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.strategies.age_groups import AgeGroups, level_of_loads, loads_of_level
from dbt_recluster.planner.strategies.payback import removed_coverage, split_keys
from dbt_recluster.report import recluster_text


def grouped(table, part=None):
    """Candidates of a table and their age groups, or None without candidates."""
    eligible = Policy(block_rows=100).candidates(block_tables.describe(table))
    if len(eligible) == 0:
        return eligible, None
    part = 2 * eligible.partition if part is None else part(eligible)
    return eligible, AgeGroups.of(eligible, np.arange(len(eligible)), part)


def units(groups):
    """The set of units of each block."""
    bounds = zip(groups.intervals.begin.tolist(), groups.intervals.end.tolist(), strict=True)
    return [set(range(begin, end)) for begin, end in bounds]


def ages(groups):
    """The age of each block, 0 for the youngest."""
    age = np.empty(len(groups), int)
    for number, blocks in enumerate(groups.by_age):
        age[blocks] = number
    return age.tolist()


class TestAgeGroups:
    @given(block_tables.TABLES)
    def test_units_are_the_bounds_within(self, table):
        eligible, groups = grouped(table)
        if groups is None:
            return
        firsts, lasts = eligible.first.tolist(), eligible.last.tolist()
        bounds = firsts + lasts
        for first, last, covered in zip(firsts, lasts, units(groups), strict=True):
            before = sum(bound < first for bound in bounds)
            assert covered == set(range(before, before + sum(first <= bound <= last for bound in bounds)))

    @given(block_tables.TABLES)
    def test_benefit_is_what_younger_loads_cost_reads(self, table):
        eligible, groups = grouped(table)
        if groups is None:
            return
        covers, rows, age = units(groups), groups.rows, ages(groups)
        loads = loads_of_level(eligible.level)
        if not eligible.level.any():
            return
        benefit, cost = [0.0] * len(groups.benefit_cost), [0.0] * len(groups.benefit_cost)
        for place in range(len(eligible)):
            others = [other for other in range(len(eligible)) if other != place and age[other] <= age[place]]
            younger = sum(loads[other] * len(covers[other] & covers[place]) for other in others)
            younger /= len(covers[place])
            rows_over = sum(
                rows[other] * len(covers[other] & covers[place]) / len(covers[other])
                for other in range(len(eligible))
            )
            assert groups.covered[place] == (younger > 0)
            benefit[groups.group[place]] += younger * rows_over
            cost[groups.group[place]] += rows[place] * (younger > 0)
        expected = [total / max(rows, 1.0) for total, rows in zip(benefit, cost, strict=True)]
        assert groups.benefit_cost.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)

    @given(block_tables.TABLES)
    def test_a_group_has_one_part_level_and_age(self, table):
        def halves(eligible):
            return 2 * eligible.partition + (np.arange(len(eligible)) % 2).astype(np.int32)

        eligible, groups = grouped(table, halves)
        if groups is None:
            return
        age = np.array(ages(groups))
        for group in np.unique(groups.group):
            of_group = groups.group == group
            assert len(np.unique(halves(eligible)[of_group])) == 1
            assert len(np.unique(eligible.level[of_group])) == 1
            assert len(np.unique(age[of_group])) == 1
        assert sorted(np.concatenate(groups.by_age).tolist()) == list(range(len(eligible)))

    @given(block_tables.TABLES, st.data())
    def test_younger_blocks_over_a_merged_one_are_merged_too(self, table, data):
        _, groups = grouped(table)
        if groups is None:
            return
        n = len(groups)
        merged = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        covers, age = units(groups), ages(groups)
        expected = [
            any(
                merged[other] and age[place] <= age[other] and covers[place] & covers[other]
                for other in range(n)
            )
            for place in range(n)
        ]
        assert groups.with_younger(merged).tolist() == expected

    @given(block_tables.TABLES, st.data())
    def test_removed_coverage(self, table, data):
        eligible, groups = grouped(table)
        if groups is None:
            return
        n = len(groups)
        merged = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        covers = units(groups)
        removed = removed_coverage(groups, merged, 4)[::2]
        for partition in (0, 1):
            places = np.flatnonzero(merged & (eligible.partition == partition)).tolist()
            some = [covers[place] for place in places]
            assert removed[partition] == sum(map(len, some)) - len(set().union(*some))

    def test_without_levels_loads_follow_from_width(self):
        """Eight runs in one, and one load over it: no level says so."""
        old = [(a, b, 0) for a, b, _ in run(64, 0)]
        blocks = build(old + [(a + 0.3, b + 0.3, 0) for a, b, _ in run(8, 0)])
        eligible = Policy(block_rows=100).candidates(blocks)
        groups = AgeGroups.of(eligible, np.arange(len(eligible)), 2 * eligible.partition)
        assert [len(blocks) for blocks in groups.by_age] == [8, 64]


def test_levels_stand_for_loads():
    levels = np.arange(65)
    loads = loads_of_level(levels)
    assert loads[:10].tolist() == [1, 2, 3, 4, 5, 6, 8, 10, 12, 15]
    assert (loads % 1 == 0).all()
    assert (np.diff(loads) > 0).all()
    assert level_of_loads(loads).tolist() == levels.tolist()
    assert level_of_loads(np.array([0.1, 1.4, 1.6, 5.4, 6.9, 7.1])).tolist() == [0, 0, 1, 4, 5, 6]
    # Right on average, wherever the loads lie between two levels.
    for many in (1.3, 4.9, 5.1, 8.3, 77.7):
        counted = [
            loads_of_level(level_of_loads(np.array([many]), chance))[0]
            for chance in np.linspace(0, 0.999, 1000)
        ]
        assert np.mean(counted) == pytest.approx(many, rel=2e-3)
    assert loads[64] > 3_000_000
    assert loads_of_level(np.array([1000])) == loads[64]


def run(blocks, level, width=100.0):
    """Bounds and levels of one sorted run over (0, width)."""
    ends = np.linspace(0, width, blocks + 1) + 0.001 * level
    return [(a, b, level) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def build(parts, **more):
    lower, upper, level = zip(*parts, strict=True)
    return Blocks.build(list(lower), list(upper), level=list(level), rows=[100] * len(parts), **more)


def members_of_sets(blocks, depth, **policy):
    policy = Policy(depth=depth, block_rows=100, **policy)
    return [sorted(block_set.blocks.tolist()) for block_set in plan(blocks, policy).block_sets]


class TestSelection:
    def test_nothing_while_the_average_depth_is_at_most_the_threshold(self):
        blocks = build(run(40, 6) + run(8, 0))
        assert members_of_sets(blocks, 2) == []
        assert plan(blocks, Policy(depth=2, block_rows=100)).reason == "reducible depth 2 is at most 2"

    def test_young_runs_go_first_and_the_old_one_stays(self):
        blocks = build(run(400, 12) + run(8, 0) + [(a + 0.3, b + 0.3, 0) for a, b, _ in run(8, 0)])
        assert members_of_sets(blocks, 2) == [list(range(400, 416))]

    def test_an_old_run_is_merged_once_the_young_have_paid_for_it(self):
        young = [(a + 0.1 * nth, b + 0.1 * nth, 0) for nth in range(1, 7) for a, b, _ in run(8, 0)]
        blocks = build(run(16, 1) + young)
        (members,) = members_of_sets(blocks, 1.5)
        assert set(range(16)) & set(members)

    def test_a_set_says_why_it_was_selected(self):
        # The example of docs/design/planner.md.
        lower, upper = [0, 4, 8, 11, 1, 2, 5], [3, 7, 10, 13, 9, 6, 12]
        blocks = Blocks.build(lower, upper, rows=[100] * 7, level=[5] * 4 + [0] * 3, run=[1] * 4 + [0] * 3)
        (young,) = plan(blocks, Policy(depth=3, block_rows=100)).block_sets
        assert (young.blocks.tolist(), young.benefit_cost) == ([4, 5, 6], 4.5684)
        (everything,) = plan(blocks, Policy(depth=1, block_rows=100)).block_sets
        assert young.benefit_cost_left == everything.benefit_cost == 2.9277
        assert everything.benefit_cost_left is None

    @given(block_tables.TABLES, block_tables.POLICIES, block_tables.READS)
    def test_texts_know_what_a_reason_compares(self, table, policy, reads):
        """Answers say the depth and its threshold by themselves, and of the reason what is left."""
        reason = plan(block_tables.describe(table, reads=reads), policy).reason
        assert "reducible" not in recluster_text._COMPARISON.sub("", reason, count=1)

    @given(block_tables.TABLES, block_tables.POLICIES, block_tables.READS)
    def test_what_is_left_is_worth_less(self, table, policy, reads):
        for block_set in plan(block_tables.describe(table, reads=reads), policy).block_sets:
            if block_set.benefit_cost_left is not None:
                assert block_set.benefit_cost >= block_set.benefit_cost_left

    def test_a_run_is_decided_on_as_a_whole(self):
        """Blocks that only the newest load lies over go along with their run, or they would be a rest for ever."""
        young = [(a, b, 13) for a, b, _ in run(40, 0) if not 40 <= a < 60]
        newest = [(a + 0.3, b + 0.3, 0) for a, b, _ in run(8, 0, 99.0)]
        (members,) = members_of_sets(build(run(400, 14) + young + newest), 1.4)
        assert set(range(400)) <= set(members)

    def test_a_well_clustered_range_is_left_alone(self):
        deep = [(200 + 0.1 * nth, 210 + 0.1 * nth, 0) for nth in range(20)]
        blocks = build(run(10, 3) + deep)
        (members,) = members_of_sets(blocks, 2)
        assert min(members) == 10

    def test_each_partition_has_its_own_threshold(self):
        deep = [(float(nth), 50.0 + nth, 0) for nth in range(10)]
        blocks = build(deep + run(10, 0), partition=["a"] * 10 + ["b"] * 10)
        (members,) = members_of_sets(blocks, 3)
        assert max(members) < 10

    @pytest.mark.parametrize(("depth", "share"), [(1.25, 0.75), (1.5, 0.5), (1.75, 0.25)])
    def test_between_one_and_two_a_part_of_the_keys_becomes_one_run(self, depth, share):
        """All would be one run otherwise, at the price of 1."""
        blocks = build(run(400, 12) + run(400, 0))
        (members,) = members_of_sets(blocks, depth)
        assert len(members) == pytest.approx(800 * share, abs=2)
        lower = np.array([blocks.lower[place] for place in members])
        assert lower.max() <= np.quantile(blocks.lower, share) + 2
        policy = Policy(depth=depth, block_rows=100)
        plans, final = block_tables.simulate_final(blocks, policy)
        assert sum(planned.rows for planned in plans) == pytest.approx(80_000 * share, rel=0.2)
        assert "is at most" in plan(final, policy).reason

    @given(block_tables.TABLES, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    def test_the_lower_part_has_its_share_of_the_blocks(self, table, share):
        eligible = Policy(block_rows=100).candidates(block_tables.describe(table))
        if len(eligible) == 0:
            return
        part = split_keys(eligible, np.array([share, 0.0]))
        assert (part // 2 == eligible.partition).all()
        in_first = eligible.partition == 0
        assert (part[in_first] == 0).sum() == int(np.ceil(share * in_first.sum()))
        assert (part[~in_first] == 3).all()
        middle = eligible.first.astype(np.int64) + eligible.last
        upper, lower = middle[part == 1], middle[part == 0]
        assert not len(upper) or not len(lower) or lower.max() <= upper.min()

    def test_where_no_part_helps_the_whole_is_merged(self):
        """One block over all keys is not over a half of them."""
        blocks = build([*run(8, 3), (0.5, 99.5, 0)])
        policy = Policy(depth=1.5, block_rows=100)
        _, final = block_tables.simulate_final(blocks, policy)
        assert "is at most" in plan(final, policy).reason

    def test_the_level_written_stands_for_the_loads_merged(self):
        three = [(a + 0.01 * nth, b + 0.01 * nth, 0) for nth in range(3) for a, b, _ in run(8, 0)]
        (block_set,) = plan(build(three), Policy(depth=1, block_rows=100)).block_sets
        assert block_set.level == 2
        assert loads_of_level(np.array([block_set.level])) == 3

    def test_an_old_block_under_a_new_one_over_more_keys_does_not_make_it_old(self):
        (block_set,) = plan(build([(0, 100, 0), (40, 60, 19)]), Policy(depth=1, block_rows=100)).block_sets
        assert block_set.level == 1
        # As dense as the new one, it is what it was, and one load more.
        (block_set,) = plan(build([(0, 100, 0), *run(40, 12)]), Policy(depth=1, block_rows=100)).block_sets
        assert block_set.level >= 12

    @given(block_tables.TABLES, st.sampled_from([1.0, 1.5, 2.0, 3.0]))
    def test_without_limits_it_ends_at_the_threshold(self, table, depth):
        """Unless rows of one key fill blocks, or blocks cannot be told apart."""
        distinct = [
            block_tables.Block((2 * place, 2 * place + 60 + len(block.keys)), partition=block.partition)
            for place, block in enumerate(table)
        ]
        policy = Policy(depth=depth, block_rows=2)
        _, final = block_tables.simulate_final(block_tables.describe(distinct), policy)
        for partition in np.unique(final.partition):
            assert final.intervals.depths()[final.partition == partition].mean() <= max(depth, 2.0)

    def test_null_nan_and_compound_keys(self):
        nan = float("nan")
        text = [None, "a", "a", "b", None, "c"] * 5
        number = [1.0, nan, None, 2.0, 3.0, 0.5] * 5
        top = ["z"] * 30
        blocks = Blocks.build([text, number], [top, [nan] * 30], rows=[100] * 30)
        assert plan(blocks, Policy(depth=2, block_rows=100)).block_sets
        plans, _ = block_tables.simulate_final(blocks, Policy(depth=2, block_rows=100))
        assert plans


def test_the_default_strategy():
    assert Policy().strategy == "payback"
