"""Block sets of every strategy, on tables small enough to check by hand and against naive twins."""

import itertools
from dataclasses import asdict

import block_tables
import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import STRATEGIES, Blocks, Policy, PolicyError, plan
from dbt_recluster.planner.arrays import Intervals
from dbt_recluster.planner.strategies import block_widths

BOUNDS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair))))


def planned_sets(blocks, **policy):
    """The positions of each set, in the plan's order."""
    return [block_set.blocks.tolist() for block_set in plan(blocks, Policy(**policy)).block_sets]


def build(bounds, **more):
    return Blocks.build([low for low, _ in bounds], [high for _, high in bounds], **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_average_depth_may_exceed_the_threshold_by_the_tolerance(strategy):
    blocks = build(
        [(0, 10), (5, 20), (30, 40), (35, 50), (60, 70), (62, 72), (80, 90), (91, 92)], level=[1] * 8
    )
    assert planned_sets(blocks, strategy=strategy, depth=1.7)
    planned = plan(blocks, Policy(strategy=strategy, depth=1.7, tolerance=1.05))
    assert planned.block_sets == ()
    assert planned.reason == "reducible depth 1.75 is at most 1.785"
    # A threshold that is a share of eight blocks.
    assert planned_sets(blocks, strategy=strategy, depth=0.2)
    assert planned_sets(blocks, strategy=strategy, depth=0.2, tolerance=1.1) == []


@pytest.mark.parametrize("strategy", ["peak", "above_average"])
def test_levels_are_compared_and_merged_by_themselves(strategy):
    """As in the RFC and the article, blocks of other levels do not count; the reason says so."""
    stacked = build([(0, 10)] * 12, level=range(12))
    planned = plan(stacked, Policy(strategy=strategy))
    assert planned.block_sets == ()
    assert planned.reason == "reducible depth 1 of one level's blocks is at most 4"
    assert plan(stacked, Policy()).reason == "reducible depth 12 is above 4"
    two = build([(0, 10)] * 6 + [(0, 10)], level=[3] * 6 + [0], partition=list("aaaaaab"))
    planned = plan(two, Policy(strategy=strategy))
    assert planned.reason == "reducible depth 6 of one level's blocks in the worst partition is above 4"
    assert planned_sets(two, strategy=strategy) == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ({"level": [64, 64, 70]}, "merging ends at level 64, reached by 3 blocks"),
        ({"fixed": [1, 1, 1]}, "none may be rewritten"),
        ({"level": [64, 64, 1], "unbounded": [0, 0, 1], "upper": [9, 9, None]},
         "a merge did not narrow the bounds of 1 block, or merging ends at level 64, reached by 2 blocks"),
        ({"upper": [1, 1, 1], "level": [0, 64, 0]},
         "all are full blocks of a single key, or merging ends at level 64, reached by 1 block"),
    ],
)  # fmt: skip
def test_why_no_block_can_be_narrowed(blocks, reason):
    planned = plan(Blocks.build(**{"lower": [1, 1, 1], "upper": [9, 9, 9]} | blocks), Policy(depth=1))
    assert (planned.block_sets, planned.reason) == ((), f"no block can be narrowed: {reason}")


def test_blocks_at_the_greatest_level_are_named_beside_others():
    planned = plan(build([(0, 9), (5, 12), (0, 9)], level=[64, 64, 0]), Policy(depth=1))
    assert (
        planned.reason == "reducible depth 1 is at most 1, and merging ends at level 64, reached by 2 blocks"
    )


class TestPeak:
    def test_takes_the_range_of_the_greatest_depth(self):
        bounds = [(0, 10), (5, 20), (8, 12), (9, 11), (30, 40), (35, 45)]
        assert planned_sets(build(bounds), strategy="peak", depth=1) == [[0, 1, 2, 3]]

    def test_takes_every_range_of_the_greatest_depth(self):
        bounds = [(0, 10), (5, 20), (30, 40), (35, 45), (60, 70)]
        assert planned_sets(build(bounds), strategy="peak", depth=1) == [[0, 1], [2, 3]]

    def test_is_content_with_an_average_depth_at_the_threshold(self):
        bounds = [(0, 10), (5, 20), (30, 40), (50, 60)]
        planned = plan(build(bounds), Policy(strategy="peak", depth=1.5))
        assert planned.block_sets == ()
        assert planned.reason == "reducible depth 1.5 is at most 1.5"
        assert planned_sets(build(bounds), strategy="peak", depth=1.4) == [[0, 1]]

    def test_a_depth_below_one_is_a_part_of_the_blocks(self):
        bounds = [(0, 10)] * 3 + [(20 * i, 20 * i + 5) for i in range(1, 8)]
        assert planned_sets(build(bounds), strategy="peak", depth=0.15) == [[0, 1, 2]]
        assert planned_sets(build(bounds), strategy="peak", depth=0.2) == []

    def test_the_lowest_level_with_work_comes_first(self):
        bounds = [(0, 10), (5, 20), (0, 20), (1, 19), (2, 18)]
        levels = [1, 1, 2, 2, 2]
        assert planned_sets(build(bounds, level=levels), strategy="peak", depth=1) == [[0, 1]]
        planned = plan(build(bounds, level=levels), Policy(strategy="peak", depth=1))
        assert [block_set.level for block_set in planned.block_sets] == [2]

    def test_each_partition_goes_through_its_own_levels(self):
        bounds = [(0, 10), (5, 20), (0, 10), (5, 20)]
        blocks = build(bounds, level=[0, 0, 3, 3], partition=["a", "a", "b", "b"], rows=[9] * 4)
        assert planned_sets(blocks, strategy="peak", depth=1) == [[0, 1]]
        blocks = build([*bounds, (6, 7)], level=[0, 0, 3, 3, 3], partition=["a", "a", "b", "b", "b"])
        assert sorted(planned_sets(blocks, strategy="peak", depth=1)) == [[0, 1], [2, 3, 4]]

    def test_a_pair_rewritten_twice_is_left_alone(self):
        bounds = [(0, 10), (5, 20)]
        assert planned_sets(build(bounds, level=[1, 1]), strategy="peak", depth=1) == [[0, 1]]
        assert planned_sets(build(bounds, level=[2, 2]), strategy="peak", depth=1) == []


class TestAboveAverage:
    def test_one_set_for_each_peak(self):
        # Depths at the ends: 1, 2, 3, 3, 2, 1 then 1, 2, 2, 1; the average over points where blocks meet is
        # 2.33.
        bounds = [(0, 10), (1, 9), (2, 8), (20, 30), (25, 35)]
        assert planned_sets(build(bounds), strategy="above_average", depth=1) == [[0, 1, 2]]

    def test_a_peak_is_as_wide_as_the_points_above_the_average(self):
        # Two tops of depth 4 and between them depth 3, above the average of 2.86.
        bounds = [(0, 100), (10, 45), (46, 90), (20, 80), (25, 35), (60, 70)]
        bounds += [(200, 210), (205, 215), (300, 310), (305, 315)]
        assert planned_sets(build(bounds), strategy="above_average", depth=1) == [[0, 1, 2, 3, 4, 5]]
        assert planned_sets(build(bounds), strategy="peak", depth=1) == [[0, 1, 3, 4], [2, 5]]

    def test_identical_blocks_are_one_peak(self):
        assert planned_sets(build([(0, 1)] * 5), strategy="above_average", depth=2) == [[0, 1, 2, 3, 4]]


# Eight sorted partitions of hexadecimal digits and four new ones: paragraphs 107-115 of US patent 10,817,540.
HEXADECIMAL = [(digit, digit + 1) for digit in range(0, 16, 2)]
HEXADECIMAL += [(0x0, 0xE), (0x2, 0xF), (0x1, 0xC), (0x2, 0xD)]


class TestWidth:
    def test_the_widths_of_the_patent(self):
        assert naive.widths(HEXADECIMAL) == [1] * 8 + [8, 7, 7, 6]
        ends = [np.array(side) for side in zip(*HEXADECIMAL, strict=True)]
        assert block_widths(Intervals.of_closed(*ends)).tolist() == naive.widths(HEXADECIMAL)

    def test_the_scenario_of_the_patent(self):
        """The whole run, two to a merge: four merges sort the new partitions, and others put them between the old ones.

        Each block has real rows, and each round's sets are those of a naive twin that would lower a depth.
        """
        policy = Policy(strategy="width", depth=1, block_rows=60, max_merge_blocks=2)
        table = [
            block_tables.Block(tuple(np.linspace(*bounds, 60).round(6).tolist())) for bounds in HEXADECIMAL
        ]
        tables = block_tables.final(table, policy)
        rounds = []
        for before in tables[:-1]:
            planned = planned_sets(block_tables.describe(before), **asdict(policy))
            of_twin = naive.width_sets([(block.keys[0], block.keys[-1]) for block in before], 2)
            assert planned == [one for one in of_twin if one in planned]
            rounds.append(planned)
        assert rounds[0] == [[8, 10], [9, 11]]
        assert sum(map(len, rounds[:3])) == 4
        # Of the new partitions no more than two overlap by then.
        assert max(naive.depths([(block.keys[0], block.keys[-1]) for block in tables[3][8:]])) == 2
        end = sorted((block.keys[0], block.keys[-1]) for block in tables[-1])
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(end))
        assert sorted(key for block in tables[-1] for key in block.keys) == sorted(
            key for block in table for key in block.keys
        )

    def test_the_next_narrower_bucket_joins_where_the_widest_has_no_overlap(self):
        bounds = [(0, 100), (0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]
        assert planned_sets(build(bounds), strategy="width", depth=1) == [[0, 1, 2, 3, 4, 5]]

    def test_the_widest_bucket_comes_first(self):
        narrow = [(i, i + 0.9) for i in range(20)]
        bounds = [(0, 18), (1, 19), (5.5, 5.8), (5.6, 5.7), *narrow]
        assert planned_sets(build(bounds), strategy="width", depth=1) == [[0, 1]]
        assert planned_sets(build(bounds[2:]), strategy="width", depth=1) == [[0, 1, 7]]

    @given(BOUNDS)
    def test_width_counts_the_sorted_blocks_that_are_overlapped(self, bounds):
        if bounds:
            ends = [np.array(side) for side in zip(*bounds, strict=True)]
            assert block_widths(Intervals.of_closed(*ends)).tolist() == naive.widths(bounds)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, most=st.integers(2, 5))
def test_no_merge_takes_more_blocks_than_it_may(strategy, table, most):
    # No block is small, so none is put together with its neighbours beyond what overlaps.
    policy = Policy(depth=1, strategy=strategy, block_rows=1, max_merge_blocks=most)
    for before in block_tables.final(table, policy)[:-1]:
        planned = plan(block_tables.describe(before), policy)
        assert all(len(one.blocks) <= most for one in planned.block_sets if one.is_merge)


class TestPlanningCells:
    @given(block_tables.TABLES)
    def test_only_more_than_a_touch_counts(self, table):
        """Cells overlap exactly where bounds share more than one boundary value."""
        blocks = block_tables.describe(table)
        eligible = Policy().candidates(blocks)
        first, last = np.empty(len(table), int), np.empty(len(table), int)
        first[eligible.position], last[eligible.position] = eligible.first, eligible.last
        positions = set(eligible.position.tolist())
        for i, j in itertools.permutations(positions, 2):
            one, other = table[i], table[j]
            low, high = max(one.keys[0], other.keys[0]), min(one.keys[-1], other.keys[-1])
            if one.partition != other.partition or low > high:
                expected = False
            elif low < high:
                expected = True
            else:  # one key in common: more than a touch for equal constants, or inside the other one
                constant, wide = sorted((one, other), key=lambda block: block.keys[-1] - block.keys[0])
                expected = constant.keys[0] == constant.keys[-1] and (
                    wide.keys[0] < low < wide.keys[-1] or wide.keys[0] == wide.keys[-1]
                )
            assert (first[i] <= last[j] and first[j] <= last[i]) == expected

    def test_full_constant_blocks_are_left_alone(self):
        blocks = build([(1, 1)] * 3 + [(2, 2)] * 2, rows=[50, 50, 100, 49, 49])
        assert planned_sets(blocks, depth=1, block_rows=100) == [[3, 4]]
        assert planned_sets(build([(1, 1)] * 3), depth=1) == []

    def test_a_key_that_a_merge_split_is_not_merged_again(self):
        """A merge splits the rows of one key by chance, and may leave each part less than half full."""
        bounds, rows = [(1, 1)] * 3 + [(2, 2)] * 2, [12, 11, 11, 14, 14]
        assert planned_sets(build(bounds, rows=rows, level=[3] * 5, run=[7] * 5), depth=1, block_rows=30) == [
            [3, 4]
        ]
        # Of several runs, or as loaded, they may make fewer blocks.
        for written in ({"level": [3] * 5, "run": [7, 8, 9, 7, 8]}, {"run": [7] * 5}):
            assert planned_sets(build(bounds, rows=rows, **written), depth=1, block_rows=30)[0][:3] == [
                0,
                1,
                2,
            ]

    def test_a_constant_block_full_in_bytes_is_left_alone(self):
        blocks = build([(1, 1)] * 2, rows=[5, 5], bytes=[60, 60])
        assert planned_sets(blocks, depth=1, block_rows=100, block_bytes=100) == []
        assert planned_sets(blocks, depth=1, block_rows=100) == [[0, 1]]

    def test_levels_at_the_cap_are_left_alone(self):
        blocks = build([(1, 9)] * 4, level=[63, 63, 64, 65], rows=[9] * 4)
        assert Policy().candidates(blocks).position.tolist() == [0, 1]
        assert Policy(max_level=63).candidates(blocks).position.tolist() == []

    def test_blocks_of_one_run_count_as_disjoint(self):
        bounds = [(0, 10), (5, 20), (15, 30)]
        assert planned_sets(build(bounds, run=[7, 7, 7]), depth=1) == []
        assert planned_sets(build(bounds, run=[0, 0, 0]), depth=1) == [[0, 1, 2]]

    def test_no_merge_that_reveals_as_much_overlap_as_it_removes(self):
        """Block 1 overlaps block 2, and, if it leaves their run, block 0."""
        bounds = [(0, 10), (5, 20), (15, 30)]
        assert planned_sets(build(bounds, run=[7, 7, 0]), depth=1) == []
        assert planned_sets(build([*bounds, (16, 30)], run=[7, 7, 0, 0]), depth=1) == [[1, 2, 3]]


class TestRuns:
    def test_column_bounds_of_a_sorted_compound_run(self):
        """A run sorted by (tenant, time), cut into blocks, known only by its column bounds."""
        rng = np.random.default_rng(1)
        for _ in range(50):
            rows = sorted(zip(rng.integers(0, 4, 60).tolist(), rng.integers(0, 30, 60).tolist(), strict=True))
            parts = [rows[i : i + 6] for i in range(0, 60, 6)]
            lower = [[min(r[c] for r in part) for part in parts] for c in (0, 1)]
            upper = [[max(r[c] for r in part) for part in parts] for c in (0, 1)]
            shuffled = rng.permutation(10)
            lower = [[column[i] for i in shuffled] for column in lower]
            upper = [[column[i] for i in shuffled] for column in upper]
            for run in (5, 0):  # the order in a run is plain from the bounds
                blocks = Blocks.build(lower, upper, run=[run] * 10, rows=[6] * 10)
                assert plan(blocks, Policy(depth=1, block_rows=6)).block_sets == ()
                assert not blocks.extents.unnarrowed.any()
                order = np.argsort(shuffled)
                first, last = blocks.extents.lower[order], blocks.extents.upper[order]
                assert (np.diff(first) >= 0).all()
                assert (last[:-1] <= first[1:]).all()
                # Extents lie within the bounds, and where the first column is constant they are the bounds.
                assert (first >= blocks.lower[order]).all()
                assert (last <= blocks.upper[order]).all()
                for place, part in enumerate(parts):
                    if part[0][0] == part[-1][0] and part[0] != part[-1]:
                        assert first[place] == blocks.lower[order][place]
                        assert last[place] == blocks.upper[order][place]

    def test_strings_cut_to_a_common_prefix(self):
        blocks = Blocks.build(["abc"] * 6, ["abd"] * 6, run=[1, 1, 1, 2, 2, 2], rows=[9] * 6)
        assert blocks.extents.unnarrowed.all()
        assert len(Policy(block_rows=9).candidates(blocks)) == 0
        # A merge makes fuller blocks, though no narrower ones.
        assert planned_sets(blocks, depth=1, block_rows=100) == [[0, 1, 2, 3, 4, 5]]

    def test_runs_of_different_partitions_are_different_runs(self):
        bounds = [(0, 10), (5, 20)] * 2
        blocks = build(bounds, run=[3, 4, 3, 3], partition=[0, 0, 1, 1])
        assert planned_sets(blocks, depth=1) == [[0, 1]]


def assert_limited(planned, depth, size, needed):
    assert planned.block_sets == ()
    assert planned.limited
    assert planned.reason == (
        f"reducible depth {depth} is above 1, and no block set fits into {size}; {needed} would do"
    )


class TestBudgets:
    def test_sets_are_cut_along_the_key(self):
        bounds = [(i, 100 + i) for i in range(10)]
        blocks = build(bounds, bytes=[10] * 10)
        assert planned_sets(blocks, depth=1, max_merge_bytes=40) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert planned_sets(blocks, depth=1, max_merge_bytes=50) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    def test_the_whole_budget_goes_to_the_deepest_sets_first(self):
        bounds = [(0, 10)] * 2 + [(20, 30)] * 2
        blocks = build(bounds, bytes=[10, 10, 1, 1])
        assert planned_sets(blocks, depth=1, max_bytes=20) == [[0, 1]]
        assert planned_sets(blocks, depth=1, max_bytes=19) == [[2, 3]]
        assert planned_sets(blocks, depth=1, max_bytes=22) == [[0, 1], [2, 3]]

    def test_a_budget_too_small_for_any_set(self):
        blocks = build([(0, 10)] * 3, bytes=[10] * 3)
        assert_limited(plan(blocks, Policy(depth=1, max_bytes=19)), 3, "19 bytes", "20 bytes")
        assert_limited(
            plan(blocks, Policy(depth=1, max_merge_bytes=19, max_bytes=1000)), 3, "19 bytes", "20 bytes"
        )
        assert not plan(blocks, Policy(depth=1, max_bytes=20)).limited

    def test_bytes_in_a_reason_are_sizes_and_what_is_needed_suffices(self):
        blocks = build([(0, 10)] * 12, bytes=[600] * 12)
        planned = plan(blocks, Policy(depth=4, max_bytes=1024))
        assert planned.reason == (
            "reducible depth 12 is above 4, and no block set fits into 1.0 KB; 1.2 KB would do"
        )

    def test_a_small_budget_does_not_limit_a_well_clustered_table(self):
        planned = plan(build([(0, 10)] * 2, bytes=[10] * 2), Policy(depth=2, max_bytes=1))
        reason = "reducible depth 2 is at most 2, and a depth of 1 would merge further"
        assert (planned.limited, planned.reason) == (False, reason)

    def test_an_empty_plan_that_no_limit_explains(self):
        """Two merges have not separated these blocks."""
        blocks = build([(0, 10)] * 2, bytes=[10] * 2, level=[2] * 2)
        planned = plan(blocks, Policy(depth=1, max_bytes=1, strategy="peak"))
        assert not planned.limited
        assert planned.reason == "reducible depth 2 is above 1, but no merge would lower it"


def test_the_plan_tells_what_it_expects():
    bounds = [(0, 10), (5, 20), (8, 30)]
    blocks = build(bounds, rows=[60, 60, 60], bytes=[600, 600, 600], level=[0, 0, 2])
    planned = plan(blocks, Policy(strategy="peak", depth=1, block_rows=50))
    (block_set,) = planned.block_sets
    assert (block_set.blocks.tolist(), block_set.level, block_set.rows, block_set.bytes) == (
        [0, 1],
        1,
        120,
        1200,
    )
    assert (block_set.depth, block_set.expected_depth, block_set.expected_blocks) == (2, 2, 3)
    assert (block_set.partition, block_set.run) == (0, 0)
    assert (planned.rows, planned.bytes, planned.reason) == (
        120,
        1200,
        "reducible depth 2 of one level's blocks is above 1",
    )


@given(BOUNDS)
def test_expected_depth_is_that_of_disjoint_results(bounds):
    blocks, policy = build(bounds, rows=[9] * len(bounds)), Policy(depth=1, block_rows=9)
    planned, eligible = plan(blocks, policy), policy.candidates(blocks)
    cells = dict(
        zip(eligible.position.tolist(), zip(eligible.first, eligible.last, strict=True), strict=True)
    )
    after = [
        (
            min(cells[place][0] for place in block_set.blocks),
            max(cells[place][1] for place in block_set.blocks),
        )
        for block_set in planned.block_sets
    ]
    touched = {place for block_set in planned.block_sets for place in block_set.blocks}
    after += [interval for place, interval in cells.items() if place not in touched]
    assert [block_set.expected_depth for block_set in planned.block_sets] == naive.depths(after)[
        : len(planned.block_sets)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, or between 0 and 1"),
        ({"depth": -3}, "depth must be at least 1"),
        ({"depth": float("nan")}, "depth must be a number"),
        ({"depth": "4"}, "depth must be a number"),
        ({"depth": True}, "depth must be a number"),
        ({"strategy": "best"}, "strategy must be one of"),
        ({"max_bytes": -1}, "max_bytes must be a whole number of at least 0"),
        ({"max_merge_bytes": 0}, "max_merge_bytes must be a whole number of at least 1"),
        ({"block_rows": 0}, "block_rows must be a whole number of at least 1"),
        ({"max_level": 0}, "max_level"),
        ({"tolerance": 0.99}, "tolerance must be a number of at least 1"),
        ({"tolerance": float("inf")}, "tolerance must be a number of at least 1"),
        ({"tolerance": True}, "tolerance must be a number of at least 1"),
    ],
)
def test_a_policy_out_of_range_is_an_error_that_says_so(arguments, message):
    with pytest.raises(PolicyError, match=message):
        Policy(**arguments)
