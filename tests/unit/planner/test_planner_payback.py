"""The default strategy: its arithmetic against quadratic twins, and the block sets it selects."""

import itertools

import block_tables
import numpy as np
import pytest
from block_tables import build, describe, planned_sets
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.verdict import reason_text
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.candidates import average_depths
from dbt_recluster.planner.strategies.payback import (
    AgeGroups,
    level_of_loads,
    loads_of_level,
    merge_to_cutoff,
    rank_sets,
    removed_overlap,
    rows_over,
    split_keys,
    surplus_overlap,
    written_levels,
    younger_loads,
)


@st.composite
def age_groups(draw, parts=1):
    """Candidates, their age groups, and a choice of them; a partition has this many parts."""
    table = draw(block_tables.TABLES)
    eligible = Policy(block_rows=100).candidates(describe(table))
    n = len(eligible)
    chosen = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    part = 2 * eligible.partition + (np.arange(n) % parts).astype(np.int32)
    return eligible, AgeGroups.from_candidates(eligible, np.arange(n), part) if n else None, chosen


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


SOME = age_groups().filter(lambda drawn: drawn[1] is not None)


@given(SOME)
def test_the_units_of_a_block_are_the_bounds_within_it(drawn):
    eligible, groups, _ = drawn
    firsts, lasts = eligible.first.tolist(), eligible.last.tolist()
    bounds = firsts + lasts
    for first, last, covered in zip(firsts, lasts, units(groups), strict=True):
        before = sum(bound < first for bound in bounds)
        assert covered == set(range(before, before + sum(first <= bound <= last for bound in bounds)))


@given(SOME.filter(lambda drawn: drawn[0].level.any()))
def test_benefit_is_what_younger_loads_cost_reads(drawn):
    eligible, groups, _ = drawn
    covers, rows, age = units(groups), groups.rows, ages(groups)
    loads = loads_of_level(eligible.level)
    benefit, cost = [0.0] * len(groups.benefit_cost), [0.0] * len(groups.benefit_cost)
    for place in range(len(eligible)):
        others = [other for other in range(len(eligible)) if other != place and age[other] <= age[place]]
        younger = sum(loads[other] * len(covers[other] & covers[place]) for other in others)
        younger /= len(covers[place])
        rows_over = sum(
            rows[other] * len(covers[other] & covers[place]) / len(covers[other]) for other in range(len(eligible))
        )
        assert groups.covered[place] == (younger > 0)
        benefit[groups.group[place]] += younger * rows_over
        cost[groups.group[place]] += rows[place] * (younger > 0)
    expected = [total / max(rows, 1.0) for total, rows in zip(benefit, cost, strict=True)]
    assert groups.benefit_cost.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(age_groups(parts=2).filter(lambda drawn: drawn[1] is not None))
def test_a_group_has_one_part_level_and_age(drawn):
    eligible, groups, _ = drawn
    age = np.array(ages(groups))
    for group in np.unique(groups.group):
        of_group = groups.group == group
        for figure in (groups.part, eligible.level, age):
            assert len(np.unique(figure[of_group])) == 1
    assert sorted(np.concatenate(groups.by_age).tolist()) == list(range(len(eligible)))


@given(SOME)
def test_younger_blocks_over_a_merged_one_are_merged_too(drawn):
    _, groups, merged = drawn
    covers, age = units(groups), ages(groups)
    expected = [
        any(
            merged[other] and age[place] <= age[other] and covers[place] & covers[other] for other in range(len(groups))
        )
        for place in range(len(groups))
    ]
    assert groups.with_younger(merged).tolist() == expected


@given(SOME)
def test_removed_overlap_is_what_blocks_cover_more_than_once(drawn):
    eligible, groups, merged = drawn
    covers = units(groups)
    removed = removed_overlap(groups, merged, 4)[::2]
    for partition in (0, 1):
        places = np.flatnonzero(merged & (eligible.partition == partition)).tolist()
        some = [covers[place] for place in places]
        assert removed[partition] == sum(map(len, some)) - len(set().union(*some))


@given(SOME, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_the_lower_part_has_its_share_of_the_blocks(drawn, share):
    eligible, *_ = drawn
    part = split_keys(eligible, np.array([share, 0.0]))
    assert (part // 2 == eligible.partition).all()
    in_first = eligible.partition == 0
    assert (part[in_first] == 0).sum() == int(np.ceil(share * in_first.sum()))
    assert (part[~in_first] == 3).all()
    middle = eligible.first.astype(np.int64) + eligible.last
    upper, lower = middle[part == 1], middle[part == 0]
    assert not len(upper) or not len(lower) or lower.max() <= upper.min()


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
            loads_of_level(level_of_loads(np.array([many]), chance))[0] for chance in np.linspace(0, 0.999, 1000)
        ]
        assert np.mean(counted) == pytest.approx(many, rel=2e-3)
    assert loads[64] > 3_000_000
    assert loads_of_level(np.array([1000])) == loads[64]


def run(blocks, level, width=100.0, shift=0.0):
    """Bounds and levels of one sorted run over (0, width)."""
    ends = (np.linspace(0, width, blocks + 1) + 0.001 * level + shift).tolist()
    return [(a, b, level) for a, b in itertools.pairwise(ends)]


def of_runs(parts, **more):
    bounds = [(low, high) for low, high, _ in parts]
    return build(bounds, level=[level for *_, level in parts], rows=[100] * len(parts), **more)


def sets_of(parts, depth, **more):
    sets = planned_sets(of_runs(parts, **more), depth=depth, block_rows=100)
    return [sorted(members) for members in sets]


def test_without_levels_loads_follow_from_width():
    """Eight runs in one, and one load over it: no level says so."""
    blocks = of_runs([(a, b, 0) for a, b, _ in run(64, 0)] + run(8, 0, shift=0.3))
    eligible = Policy(block_rows=100).candidates(blocks)
    groups = AgeGroups.from_candidates(eligible, np.arange(len(eligible)), 2 * eligible.partition)
    assert [len(blocks) for blocks in groups.by_age] == [8, 64]


DEEP = [(200 + 0.1 * nth, 210 + 0.1 * nth, 0) for nth in range(20)]
SHIFTED = [(float(nth), 50.0 + nth, 0) for nth in range(10)]


@pytest.mark.parametrize(
    ("promise", "parts", "partition", "depth", "sets"),
    [
        ("nothing below the threshold", run(40, 6) + run(8, 0), 48 * [0], 2, []),
        ("young first", run(400, 12) + run(8, 0) + run(8, 0, shift=0.3), 416 * [0], 2, [range(400, 416)]),
        ("well clustered ranges stay", run(10, 3) + DEEP, 30 * [0], 2, [range(10, 30)]),
        ("by partition", SHIFTED + run(10, 0), [0] * 10 + [1] * 10, 3, [range(10)]),
    ],
)
def test_block_sets_by_age_and_threshold(promise, parts, partition, depth, sets):
    assert sets_of(parts, depth, partition=partition) == list(map(list, sets)), promise


def test_an_old_run_is_merged_once_the_young_have_paid_for_it():
    young = [block for nth in range(1, 7) for block in run(8, 0, shift=0.1 * nth)]
    (members,) = sets_of(run(16, 1) + young, 1.5)
    assert set(range(16)) & set(members)


def test_a_run_is_decided_on_as_a_whole():
    """Blocks that only the newest load lies over go along with their run, or they would be a rest for ever."""
    young = [(a, b, 13) for a, b, _ in run(40, 0) if not 40 <= a < 60]
    (members,) = sets_of(run(400, 14) + young + run(8, 0, 99.0, shift=0.3), 1.4)
    assert set(range(400)) <= set(members)


def example(**others):
    """The blocks A to G of docs/design/planner.md."""
    lower, upper = [0, 4, 8, 11, 1, 2, 5], [3, 7, 10, 13, 9, 6, 12]
    return Blocks.build(lower, upper, level=[5] * 4 + [0] * 3, run=[1] * 4 + [0] * 3, **others)


def test_the_steps_of_the_documented_example():
    policy = Policy(depth=3, block_rows=100)
    candidates = policy.candidates(example())
    assert candidates.position.tolist() == [0, 4, 5, 1, 6, 2, 3]
    depth, units = candidates.reducible_depths(), candidates.units()
    assert average_depths(depth, candidates.partition, 1).tolist() == [3.4286]  # step 3
    part = split_keys(candidates, np.zeros(1))  # step 4
    assert (units.begin[0], units.end[0]) == (0, 4)  # step 5, of A
    assert rows_over(units, candidates.rows)[:2] / 100 == pytest.approx([1.7, 5.0], abs=0.05)  # step 6, of A and E
    groups = AgeGroups.from_candidates(candidates, np.arange(7), part)  # steps 7 and 8
    assert groups.group.tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert [age.tolist() for age in groups.by_age] == [[1, 2, 4], [0, 3, 5, 6]]
    loads = loads_of_level(candidates.level)
    assert younger_loads(groups.axis, loads, groups.by_age)[0] == 1.25  # steps 9 and 10, of A
    assert groups.benefit_cost.round(1).tolist() == [4.6, 2.9]  # step 11
    surplus = surplus_overlap(average_depths(depth, part, 2), np.array([1.0, 3.0]))  # step 12
    assert surplus.round(2).tolist() == [0.0, 0.14]
    assert removed_overlap(groups, np.ones(7, bool), 2).tolist() == [0.0, 22.0]
    merged = merge_to_cutoff(groups, surplus)  # step 13
    assert removed_overlap(groups, merged, 2).tolist() == [0.0, 10.0]
    sets = rank_sets(groups, merged, policy.set_limits)  # steps 14 and 15
    assert (sets.member.tolist(), written_levels(candidates, sets).tolist()) == ([1, 2, 4], [1])


@pytest.mark.parametrize(("depth", "share"), [(1.25, 0.75), (1.5, 0.5), (1.75, 0.25)])
def test_between_one_and_two_a_part_of_the_keys_becomes_one_run(depth, share):
    """All would be one run otherwise, at a weight of 1."""
    blocks, policy = of_runs(run(400, 12) + run(400, 0)), Policy(depth=depth, block_rows=100)
    (block_set,) = plan(blocks, policy).block_sets
    assert len(block_set.blocks) == pytest.approx(800 * share, abs=2)
    assert blocks.lower[block_set.blocks].max() <= np.quantile(blocks.lower, share) + 2
    plans, final = block_tables.simulate_final(blocks, policy)
    assert sum(planned.rows for planned in plans) == pytest.approx(80_000 * share, rel=0.2)
    assert "is at most" in reason_text(plan(final, policy).reasons)


def test_where_no_part_helps_the_whole_is_merged():
    """One block over all keys is not over a half of them."""
    policy = Policy(depth=1.5, block_rows=100)
    _, final = block_tables.simulate_final(of_runs([*run(8, 3), (0.5, 99.5, 0)]), policy)
    assert "is at most" in reason_text(plan(final, policy).reasons)


THREE_LOADS = [block for nth in range(3) for block in run(8, 0, shift=0.01 * nth)]


@pytest.mark.parametrize(
    ("parts", "least", "most"),
    [
        (THREE_LOADS, 2, 2),  # which stands for three loads
        # An old block under a new one over more keys does not make it old.
        ([(0, 100, 0), (40, 60, 19)], 1, 1),
        # As dense as the new one, it is what it was, and one load more.
        ([(0, 100, 0), *run(40, 12)], 12, 64),
    ],
)
def test_the_level_written_stands_for_the_loads_merged(parts, least, most):
    (block_set,) = plan(of_runs(parts), Policy(depth=1, block_rows=100)).block_sets
    assert least <= block_set.level <= most


@given(block_tables.TABLES, st.sampled_from([1.0, 1.5, 2.0, 3.0]))
def test_without_limits_every_partition_ends_at_its_threshold(table, depth):
    """Unless rows of one key fill blocks, or blocks cannot be told apart."""
    distinct = [
        block_tables.Block((2 * place, 2 * place + 60 + len(block.keys)), partition=block.partition)
        for place, block in enumerate(table)
    ]
    _, final = block_tables.simulate_final(describe(distinct), Policy(depth=depth, block_rows=2))
    for partition in np.unique(final.partition):
        assert final.intervals.depths()[final.partition == partition].mean() <= max(depth, 2.0)
