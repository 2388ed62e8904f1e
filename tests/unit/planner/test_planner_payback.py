"""The default strategy: its arithmetic against quadratic twins, and what it chooses."""

import block_tables
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import Blocks, Policy, block_depths, plan
from dbt_recluster.planner.candidates import candidates
from dbt_recluster.planner.payback import _one_and_two, _removed, with_younger
from dbt_recluster.planner.simulation import simulate_final
from dbt_recluster.planner.stacks import Stacks, level_of_loads, loads_of_level


def stacked(table, part=None):
    """Stacks over all candidates of a table, or None without any."""
    found = candidates(block_tables.describe(table), Policy(block_rows=100))
    if len(found) == 0:
        return found, None
    return found, Stacks.over(found, np.arange(len(found)), found.partition if part is None else part(found))


def units(stacks):
    """The set of units of each block."""
    return [
        set(range(begin, end)) for begin, end in zip(stacks.begin.tolist(), stacks.end.tolist(), strict=True)
    ]


class TestStacks:
    @given(block_tables.TABLES)
    def test_units_are_the_bounds_within(self, table):
        found, stacks = stacked(table)
        if stacks is None:
            return
        bounds = found.first.tolist() + found.last.tolist()
        for first, last, of in zip(found.first.tolist(), found.last.tolist(), units(stacks), strict=True):
            before = sum(bound < first for bound in bounds)
            assert of == set(range(before, before + sum(first <= bound <= last for bound in bounds)))

    @given(block_tables.TABLES)
    def test_score_is_what_younger_loads_cost_for_each_row(self, table):
        found, stacks = stacked(table)
        if stacks is None:
            return
        of, rows, loads = units(stacks), stacks.rows, stacks.loads
        cost, paid = [0.0] * len(stacks.score), [0.0] * len(stacks.score)
        for place in range(len(found)):
            younger = sum(
                loads[other] * len(of[other] & of[place])
                for other in range(len(found))
                if other != place and stacks.layer[other] <= stacks.layer[place]
            ) / len(of[place])
            inside = sum(
                rows[other] * len(of[other] & of[place]) / len(of[other]) for other in range(len(found))
            )
            assert stacks.under[place] == (younger > 0)
            if younger:
                cost[stacks.group[place]] += younger * max(inside / rows[place], 1.0) * rows[place]
                paid[stacks.group[place]] += rows[place]
        for group, score in enumerate(stacks.score.tolist()):
            assert score == pytest.approx(cost[group] / max(paid[group], 1.0), rel=1e-5, abs=1e-5)

    @given(block_tables.TABLES)
    def test_a_group_has_one_component_level_and_layer(self, table):
        def halves(found):
            return 2 * found.partition + (np.arange(len(found)) % 2).astype(np.int32)

        found, stacks = stacked(table, halves)
        if stacks is None:
            return
        for group in np.unique(stacks.group):
            of = stacks.group == group
            assert len(np.unique(halves(found)[of])) == 1
            assert len(np.unique(found.level[of])) == 1
            assert len(np.unique(stacks.layer[of])) == 1
        assert sorted(np.concatenate(stacks.members).tolist()) == list(range(len(found)))
        for layer, members in enumerate(stacks.members):
            assert (stacks.layer[members] == layer).all()

    @given(block_tables.TABLES, st.data())
    def test_younger_blocks_over_a_taken_one_come_along(self, table, data):
        _, stacks = stacked(table)
        if stacks is None:
            return
        n = len(stacks)
        taken = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        of = units(stacks)
        expected = [
            any(
                taken[other] and stacks.layer[place] <= stacks.layer[other] and of[place] & of[other]
                for other in range(n)
            )
            for place in range(n)
        ]
        assert with_younger(stacks, taken).tolist() == expected

    @given(block_tables.TABLES, st.data())
    def test_removed_coverage(self, table, data):
        found, stacks = stacked(table)
        if stacks is None:
            return
        chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found))))
        of = units(stacks)
        for partition in (0, 1):
            some = [of[place] for place in np.flatnonzero(chosen & (found.partition == partition)).tolist()]
            expected = sum(map(len, some)) - len(set().union(*some))
            assert _removed(stacks, chosen, found.partition, 2)[partition] == expected


def test_levels_stand_for_loads():
    levels = np.arange(60)
    loads = loads_of_level(levels)
    assert loads[:6].tolist() == [1, 2, 3, 4, 5, 6.25]
    assert level_of_loads(loads).tolist() == levels.tolist()
    assert level_of_loads(np.array([0.1, 1.4, 1.6, 5.5, 5.7])).tolist() == [0, 0, 1, 4, 5]
    # Right on the average, however the loads lie between two levels.
    chance = (np.arange(1000) + 0.5) / 1000
    for many in (1.3, 4.9, 5.1, 8.3, 77.7):
        counted = loads_of_level(level_of_loads(np.full(1000, many), chance))
        assert counted.mean() == pytest.approx(many, rel=1e-3)
    assert loads_of_level(np.array([64])) > 3_000_000


def run(blocks, level, width=100.0):
    """Bounds and levels of one sorted run over (0, width)."""
    ends = np.linspace(0, width, blocks + 1) + 0.001 * level
    return [(a, b, level) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def build(parts, **more):
    lower, upper, level = zip(*parts, strict=True)
    return Blocks.build(list(lower), list(upper), level=list(level), rows=[100] * len(parts), **more)


def chosen(blocks, depth, **policy):
    policy = Policy(depth=depth, block_rows=100, **policy)
    return [sorted(task.blocks.tolist()) for task in plan(blocks, policy).tasks]


class TestChoice:
    def test_nothing_while_the_average_depth_is_at_most_the_threshold(self):
        blocks = build(run(40, 6) + run(8, 0))
        assert chosen(blocks, 2) == []
        assert plan(blocks, Policy(depth=2, block_rows=100)).reason == "average depth 2 is at most 2"

    def test_young_runs_go_first_and_the_old_one_stays(self):
        blocks = build(run(400, 12) + run(8, 0) + [(a + 0.3, b + 0.3, 0) for a, b, _ in run(8, 0)])
        assert chosen(blocks, 2) == [list(range(400, 416))]

    def test_an_old_run_is_merged_once_the_young_have_paid_for_it(self):
        young = [(a + 0.1 * nth, b + 0.1 * nth, 0) for nth in range(1, 7) for a, b, _ in run(8, 0)]
        blocks = build(run(16, 1) + young)
        (members,) = chosen(blocks, 1.5)
        assert set(range(16)) & set(members)

    def test_a_run_is_decided_on_as_a_whole(self):
        """Blocks that only the newest load lies over go along with their run, or they would be a rest for ever."""
        young = [(a, b, 13) for a, b, _ in run(40, 0) if not 40 <= a < 60]
        newest = [(a + 0.3, b + 0.3, 0) for a, b, _ in run(8, 0, 99.0)]
        (members,) = chosen(build(run(400, 14) + young + newest), 1.4)
        assert set(range(400)) <= set(members)

    def test_a_well_clustered_range_is_left_alone(self):
        deep = [(200 + 0.1 * nth, 210 + 0.1 * nth, 0) for nth in range(20)]
        blocks = build(run(10, 3) + deep)
        (members,) = chosen(blocks, 2)
        assert min(members) == 10

    def test_each_partition_has_its_own_threshold(self):
        deep = [(float(nth), 50.0 + nth, 0) for nth in range(10)]
        blocks = build(deep + run(10, 0), partition=["a"] * 10 + ["b"] * 10)
        (members,) = chosen(blocks, 3)
        assert max(members) < 10

    @pytest.mark.parametrize(("depth", "share"), [(1.25, 0.75), (1.5, 0.5), (1.75, 0.25)])
    def test_between_one_and_two_a_part_of_the_keys_becomes_one_run(self, depth, share):
        """All would be one run otherwise, at the price of 1."""
        blocks = build(run(400, 12) + run(400, 0))
        (members,) = chosen(blocks, depth)
        assert len(members) == pytest.approx(800 * share, abs=2)
        lower = np.array([blocks.lower[place] for place in members])
        assert lower.max() <= np.quantile(blocks.lower, share) + 2
        policy = Policy(depth=depth, block_rows=100)
        final = simulate_final(blocks, policy)
        assert final.rows == pytest.approx(80_000 * share, rel=0.2)
        assert "is at most" in plan(final.blocks, policy).reason

    @given(block_tables.TABLES, st.sampled_from([1.1, 1.5, 1.9]))
    def test_the_parts_of_the_keys_may_have_no_more_together(self, table, depth):
        found = candidates(block_tables.describe(table), Policy(block_rows=100))
        if len(found) == 0:
            return
        allowed = np.array([depth, np.inf])
        part, in_parts = _one_and_two(found, allowed, 0.0)
        assert (part // 2 == found.partition).all()
        for partition in np.unique(found.partition):
            assert in_parts[part[found.partition == partition]].mean() <= allowed[partition] + 1e-9
        middle = found.first.astype(np.int64) + found.last
        upper, lower = middle[part == 1], middle[part == 0]
        assert not len(upper) or not len(lower) or lower.max() <= upper.min()

    def test_where_no_part_helps_the_whole_is_merged(self):
        """One block over all keys is not over a half of them."""
        blocks = build([*run(8, 3), (0.5, 99.5, 0)])
        policy = Policy(depth=1.5, block_rows=100)
        assert "is at most" in plan(simulate_final(blocks, policy).blocks, policy).reason

    def test_the_level_written_stands_for_the_loads_merged(self):
        three = [(a + 0.01 * nth, b + 0.01 * nth, 0) for nth in range(3) for a, b, _ in run(8, 0)]
        (task,) = plan(build(three), Policy(depth=1, block_rows=100)).tasks
        assert task.level == 2
        assert loads_of_level(np.array([task.level])) == 3

    def test_an_old_block_under_a_new_one_over_more_keys_does_not_make_it_old(self):
        (task,) = plan(build([(0, 100, 0), (40, 60, 19)]), Policy(depth=1, block_rows=100)).tasks
        assert task.level == 1
        # As dense as the new one, it is what it was, and one load more.
        (task,) = plan(build([(0, 100, 0), *run(40, 12)]), Policy(depth=1, block_rows=100)).tasks
        assert task.level >= 12

    @given(block_tables.TABLES, st.sampled_from([1.0, 1.5, 2.0, 3.0]))
    def test_without_limits_it_ends_at_the_threshold(self, table, depth):
        """Unless rows of one key fill blocks, or blocks cannot be told apart."""
        distinct = [
            block_tables.Block((2 * place, 2 * place + 60 + len(block.keys)), partition=block.partition)
            for place, block in enumerate(table)
        ]
        final = simulate_final(block_tables.describe(distinct), Policy(depth=depth, block_rows=2)).blocks
        for partition in np.unique(final.partition):
            assert block_depths(final)[final.partition == partition].mean() <= max(depth, 2.0)

    def test_null_nan_and_compound_keys(self):
        nan = float("nan")
        text = [None, "a", "a", "b", None, "c"] * 5
        number = [1.0, nan, None, 2.0, 3.0, 0.5] * 5
        top = ["z"] * 30
        blocks = Blocks.build([text, number], [top, [nan] * 30], rows=[100] * 30)
        assert plan(blocks, Policy(depth=2, block_rows=100)).tasks
        assert simulate_final(blocks, Policy(depth=2, block_rows=100)).plans


def test_the_default_strategy():
    assert Policy().strategy == "payback"
