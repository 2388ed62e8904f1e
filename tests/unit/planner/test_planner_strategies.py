"""Block sets of every strategy, on tables small enough to check by hand and against naive twins."""

import itertools

import block_tables
import naive
import numpy as np
import pytest
from block_tables import build, in_order, planned_sets
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.clustering.verdict import Facts, decide, reason_text
from dbt_recluster.planner import STRATEGIES, Blocks, Policy, PolicyError, plan
from dbt_recluster.planner.candidates import SetLimits
from dbt_recluster.planner.strategies.strategy import BY_NAME, block_widths

BOUNDS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair))))

# What the naive twins below know nothing of. Two pairs, one for each partition; a pair, and three blocks over it.
PAIRS = [(0, 10), (5, 20), (0, 10), (5, 20), (6, 7)]
APART = {"level": [0, 0, 3, 3, 3], "partition": [0, 0, 1, 1, 1]}
OVER = [(0, 10), (5, 20), (0, 20), (1, 19), (2, 18)]
NARROW = [(5.5, 5.8), (5.6, 5.7), *[(i, i + 0.9) for i in range(20)]]
NEXT_LEVEL = [(5, 15), (12, 18), (18, 24), (2, 5), (19, 25)]


@pytest.mark.parametrize(
    ("promise", "strategy", "bounds", "more", "sets"),
    [
        ("the lowest level first", "peak", OVER, {"level": [1, 1, 2, 2, 2]}, [[0, 1]]),
        ("partitions apart", "peak", PAIRS, APART, [[0, 1], [2, 3, 4]]),
        ("a pair is merged twice", "peak", [(0, 10), (5, 20)], {"level": [1, 1]}, [[0, 1]]),
        ("and not again", "peak", [(0, 10), (5, 20)], {"level": [2, 2]}, []),
        ("a merge of level 0 gains nothing", "peak", NEXT_LEVEL, {"level": [0, 0, 1, 1, 1]}, [[2, 4]]),
    ],
)
def test_sets_of_the_published_strategies(promise, strategy, bounds, more, sets):
    assert planned_sets(build(bounds, **more), strategy=strategy, depth=1) == sets, promise


# Three blocks of which each overlaps the next. Blocks of two keys. Ten blocks over one another, and two pairs of them.
THREE = [(0, 10), (5, 20), (15, 30)]
FOUR = [*THREE, (16, 30)]
KEYS = [(1, 1)] * 3 + [(2, 2)] * 2
STAIRS = [(i, 100 + i) for i in range(10)]
TWICE = [(0, 10)] * 2 + [(20, 30)] * 2
RUNS_OF_TWO = {"run": [3, 4, 3, 3, 3], "partition": [0, 0, 1, 1, 1]}
HALVES = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
SMALL_ROWS = {"rows": [5, 5], "bytes": [60, 60]}
BOTH_KEYS = [[0, 1, 2], [3, 4]]


def written(levels, runs, rows=(12, 11, 11, 14, 14)):
    return {"level": levels, "run": runs, "rows": rows}


@pytest.mark.parametrize(
    ("promise", "bounds", "more", "policy", "sets"),
    [
        ("full constant blocks stay", KEYS, {"rows": [50, 50, 100, 49, 49]}, {"block_rows": 100}, [[3, 4]]),
        ("so do those of unknown rows", [(1, 1)] * 3, {}, {}, []),
        ("a split key is not merged again", KEYS, written([3] * 5, [7] * 5), {"block_rows": 30}, [[3, 4]]),
        ("but of several runs", KEYS, written([3] * 5, [7, 8, 9, 7, 8]), {"block_rows": 30}, BOTH_KEYS),
        ("or as loaded", KEYS, written([0] * 5, [7] * 5), {"block_rows": 30}, BOTH_KEYS),
        ("blocks full in bytes stay", [(1, 1)] * 2, SMALL_ROWS, {"block_rows": 100, "block_bytes": 100}, []),
        ("small ones do not", [(1, 1)] * 2, SMALL_ROWS, {"block_rows": 100}, [[0, 1]]),
        ("levels at the cap stay", [(1, 9)] * 4, {"level": [63, 63, 64, 65]}, {}, [[0, 1]]),
        ("blocks of one run are disjoint", THREE, {"run": [7, 7, 7]}, {}, []),
        ("others overlap", THREE, {"run": [0, 0, 0]}, {}, [[0, 1, 2]]),
        ("block 1 would overlap block 0", THREE, {"run": [7, 7, 0]}, {}, []),
        ("at that price the set gains more", FOUR, {"run": [7, 7, 0, 0]}, {}, [[1, 2, 3]]),
        ("a run has one partition", PAIRS, RUNS_OF_TWO, {}, [[0, 1]]),
        ("sets are cut along the key", STAIRS, {"bytes": [10] * 10}, {"max_merge_bytes": 50}, HALVES),
        ("the deepest set first", TWICE, {"bytes": [10, 10, 1, 1]}, {"max_bytes": 20}, [[0, 1]]),
        ("or what fits", TWICE, {"bytes": [10, 10, 1, 1]}, {"max_bytes": 19}, [[2, 3]]),
        ("or both", TWICE, {"bytes": [10, 10, 1, 1]}, {"max_bytes": 22}, [[0, 1], [2, 3]]),
    ],
)
def test_the_default_strategy_chooses_these_sets(promise, bounds, more, policy, sets):
    assert planned_sets(build(bounds, **more), **{"depth": 1, **policy}) == sets, promise


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_average_depth_may_exceed_the_threshold_by_the_tolerance(strategy):
    bounds = [(0, 10), (5, 20), (30, 40), (35, 50), (60, 70), (62, 72), (80, 90), (91, 92)]
    blocks = build(bounds, level=[1] * 8)
    assert planned_sets(blocks, strategy=strategy, depth=1.7)
    planned = plan(blocks, Policy(strategy=strategy, depth=1.7, tolerance=1.05))
    assert planned.block_sets == ()
    assert reason_text(planned.reasons) == "depth 1.667 is at most 1.7"


SAME, THRICE = [(0, 10)] * 12, [(1, 9)] * 3
LEVELS, PEAK = build(SAME, level=range(12)), {"strategy": "peak"}
TWO_PARTITIONS = build(SAME[:7], level=[3] * 6 + [0], partition=[0] * 6 + [1])
UNBOUNDED = build([*THRICE[:2], (1, None)], level=[64, 64, 1], unbounded=[0, 0, 1])
DEEP, SMALL = [(1000 + n, 1100 + n) for n in range(6)], [(10 * n, 10 * n + 5) for n in range(10)]
BOTH = build([*DEEP, *SMALL], rows=[100] * 6 + [10] * 10, bytes=[900] * 6 + [90] * 10)


@pytest.mark.parametrize(
    ("blocks", "policy", "reason"),
    [
        (LEVELS, {}, "depth 12 is above 4"),
        (LEVELS, {"depth": 12}, "depth 12 is at most 12"),
        (LEVELS, PEAK, "depth 12 is above 4, and that of each level is at most 4"),
        (TWO_PARTITIONS, PEAK, "depth 6 in partition 0 is above 4"),
        (build(SAME[:2], level=[2, 2]), {**PEAK, "depth": 1}, "is above 1, and no merge would lower it"),
        (build(SAME, bytes=[600] * 12), {"depth": 12, "max_bytes": 1}, "depth 12 is at most 12"),
        (
            build(SAME, bytes=[600] * 12),
            {"max_bytes": 1024},
            "no block set fits into 1.0 KB; it needs 1.2 KB",
        ),
        (build(SAME, bytes=[10] * 12), {"max_merge_bytes": 19}, "fits into 19 bytes; it needs 20 bytes"),
        (build(THRICE, level=[64, 64, 70]), {}, "narrowed: merging ends at level 64, reached by 3 blocks"),
        (
            build(THRICE, level=[64, 64, 0]),
            {},
            "at most 4, and merging ends at level 64, reached by 2 blocks",
        ),
        (build(THRICE, fixed=[1, 1, 1]), {}, "no block can be narrowed: none may be rewritten"),
        (UNBOUNDED, {}, "of 1 block, or merging ends at level 64, reached by 2 blocks"),
        (build([(1, 1)] * 3), {}, "no block can be narrowed: all are full blocks of a single key"),
        (in_order([100] * 15), {"depth": 1}, "depth 1 is at most 1"),
        (in_order([12] * 50), {}, "50 small blocks make 6 full ones"),
        (in_order([20] * 5), {}, "5 small blocks make 1 full one"),
        (in_order([5] * 4), {}, "4 small blocks make 1 larger one"),
        (in_order([60, 40]), {}, "2 blocks, 1 of them small, make 1 full one"),
        (in_order([10] * 100, bytes=[7] * 100), {"max_bytes": 10}, "fits into 10 bytes; it needs 28 bytes"),
        (in_order([100], deleted=[30]), {}, "1 block has 30% or more of the rows deleted"),
        (in_order([100] * 4, deleted=[29, 30, 0, 100]), {}, "2 blocks have 30% or more of the rows deleted"),
        (BOTH, {"depth": 2}, "is above 2, and 10 small blocks make 1 full one"),
    ],
)
def test_a_plan_gives_its_reason(blocks, policy, reason):
    assert reason_text(plan(blocks, Policy(**{"block_rows": 100, **policy})).reasons).endswith(reason)


@pytest.mark.parametrize(
    ("blocks", "policy", "verdict"),
    [
        (SAME, {}, (12, 4, "deep")),
        (SAME, {"depth": 12}, (12, 12, "well clustered")),
        (SAME, {"level": 64}, (12, 4, "stuck")),
        (SAME, {"level": 64, "depth": 0.5}, (12, 6, "stuck")),
        (SAME, {"depth": 0.1}, (12, 4, "deep")),  # a share of few blocks stands for 4
        (SAME, {"is_small_table": True}, (12, 4, "well clustered")),
        ([*SAME, (20, 30)], {"level": [64] * 12 + [0]}, (11.1538, 4, "stuck")),
        (SAME, {"bytes": [9] * 12, "max_bytes": 5}, (12, 4, "deep")),
        (SAME, {"bytes": [9] * 12, "max_merge_bytes": 5}, (12, 4, "stuck")),
        (SAME[:2], {"level": [2, 2], "strategy": "peak", "depth": 1}, (2, 1, "stuck")),
        ([(1, 1)] * 12, {}, (1, 4, "well clustered")),
        (SAME, {"tolerance": 1.05}, (11.4286, 4, "deep")),
        (SAME[:4], {"depth": 4, "tolerance": 1.05}, (3.8095, 4, "well clustered")),
        ([], {}, (0, 4, "well clustered")),
    ],
)
def test_one_function_gives_the_verdict_by_the_threshold_as_it_was_set(blocks, policy, verdict):
    """Blocks above it that no plan may merge are stuck; single keys that fill blocks are not deep."""
    given = {name: policy.pop(name) for name in ("level", "bytes") if name in policy}
    level = np.broadcast_to(given.pop("level", 0), len(blocks))
    planned = plan(build(blocks, level=level, rows=[100] * len(blocks), **given), Policy(block_rows=100, **policy))
    assert (planned.depth, planned.threshold, decide(Facts(plan=planned)).verdict) == verdict


@pytest.mark.parametrize("strategy", ["peak", "above_average"])
def test_strategies_by_level_end_with_the_depth_of_the_table(strategy):
    """It may be above the threshold, since they merge no level with another."""
    random, above = np.random.default_rng(0), set()
    for _ in range(30):
        lower = random.integers(0, 300, 12)
        upper = lower + random.integers(20, 300, 12)
        table = [
            block_tables.Block(tuple(np.linspace(*ends, 10).tolist()), level=run % 3, run=run)
            for run, ends in enumerate(zip(lower.tolist(), upper.tolist(), strict=True), 1)
        ]
        *_, (table, planned) = block_tables.rounds(table, Policy(strategy=strategy, depth=2, block_rows=10))
        of_all = plan(block_tables.describe(table), Policy(strategy="width", depth=2, block_rows=10))
        assert planned.depth == of_all.depth
        above.add(planned.depth > 2)
        found = decide(Facts(plan=planned))
        assert found.verdict == "well clustered"
        assert ("that of each level is at most 2" in found.cause) == (planned.depth > 2)
    assert above == {False, True}


def test_sets_are_ordered_by_what_a_byte_saves():
    assert planned_sets(BOTH, depth=2, block_rows=100) == [list(range(6, 16)), list(range(6))]


# Eight sorted partitions of hexadecimal digits and four new ones: paragraphs 107-115 of US patent 10,817,540.
HEXADECIMAL = [(digit, digit + 1) for digit in range(0, 16, 2)]
HEXADECIMAL += [(0x0, 0xE), (0x2, 0xF), (0x1, 0xC), (0x2, 0xD)]


TOUCHING = [(i, i + 1) for i in range(1000)] + [(i, i + 990) for i in range(10)]
MEAN_OF_3 = [(8, 68), (2, 38), (4, 90), (32, 46), (47, 57)]


def small_blocks(bounds):
    """Candidates of one row each, so that single keys are candidates too."""
    return Policy(block_rows=100).candidates(build(bounds, rows=[1] * len(bounds)))


def selected_sets(strategy, bounds, most=None):
    """The positions of each set that a strategy selects to reach depth 1."""
    candidates = small_blocks(bounds)
    sets, _ = BY_NAME[strategy].select(candidates, np.ones(1), SetLimits(blocks=most))
    return [sorted(members.tolist()) for members in sets.at(candidates.position).members]


@given(BOUNDS.filter(len))
@example(HEXADECIMAL)
@example(TOUCHING)
def test_width_counts_the_sorted_blocks_that_are_overlapped(bounds):
    candidates, widths = small_blocks(bounds), np.zeros(len(bounds), np.int64)
    widths[candidates.position] = block_widths(candidates)
    assert widths.tolist() == naive.widths(bounds)


@given(BOUNDS.filter(len), st.integers(2, 5))
@example(HEXADECIMAL, 2)
@example([*HEXADECIMAL[:8], (0, 7), (8, 14), (2, 7), (8, 15)], 2)
def test_sets_by_width_are_those_of_the_patent(bounds, most):
    assert selected_sets("width", bounds, most) == naive.width_sets(bounds, most)


@given(BOUNDS.filter(len))
@example(MEAN_OF_3)
@example([(0, 100), (10, 45), (46, 90), (20, 80), (25, 35), (60, 70), (200, 210), (205, 215), (300, 310), (305, 315)])
def test_sets_of_peaks_are_those_of_the_sources(bounds):
    assert selected_sets("peak", bounds) == naive.peak_sets(bounds, above_average=False)
    assert selected_sets("above_average", bounds) == naive.peak_sets(bounds, above_average=True)


def test_sets_by_hand_of_widths_and_of_the_average():
    assert naive.widths(TOUCHING) == [1] * 1000 + [991, *[992] * 9]
    assert selected_sets("above_average", MEAN_OF_3) == [[0, 1, 2, 3]]


def test_narrower_buckets_wait_where_the_widest_ones_remove_enough():
    blocks = build([(0, 18), (1, 19), *NARROW])
    assert planned_sets(blocks, strategy="width", depth=2.5) == [[0, 1]]
    assert planned_sets(blocks, strategy="width", depth=1) == [list(range(23))]
    assert planned_sets(blocks, strategy="width", depth=1, max_merge_blocks=2) == [[0, 1], [2, 9]]
    assert planned_sets(build(NARROW), strategy="width", depth=1) == [[0, 1, 7]]


def test_merges_of_two_blocks_sort_the_example_of_the_patent():
    """The whole run, two to a merge: four merges sort the new partitions, and others put them between the old ones.

    Each block has real rows, and each round's sets are those of a naive twin that would lower a depth.
    """
    assert naive.widths(HEXADECIMAL) == [1] * 8 + [8, 7, 7, 6]
    policy = Policy(strategy="width", depth=1, block_rows=60, max_merge_blocks=2)
    table = [block_tables.Block(tuple(np.linspace(*bounds, 60).round(6).tolist())) for bounds in HEXADECIMAL]
    tables, sets = [], []
    for before, planned in block_tables.rounds(table, policy):
        tables.append([(block.keys[0], block.keys[-1]) for block in before])
        sets.append([block_set.blocks.tolist() for block_set in planned.block_sets])
    assert sets[:2] == [[[8, 10], [9, 11]]] * 2
    assert [one for one in naive.width_sets(tables[1], 2) if one in sets[1]] == sets[1]
    # Of the new partitions no more than two overlap by then.
    assert max(naive.depths(tables[2][8:])) == 2
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(tables[-1])))
    assert sorted(key for block in before for key in block.keys) == sorted(key for block in table for key in block.keys)


@pytest.mark.parametrize("strategy", ["payback", "width"])
def test_the_next_sets_have_their_turn_where_the_first_ones_gain_nothing(strategy):
    """Loads of unique integers over parts of the keys, two blocks to a merge."""
    for seed in range(60):
        random = np.random.default_rng(seed)
        keys = random.permutation(400)
        table = []
        for load in range(1, random.integers(5, 14)):
            low, length = random.integers(0, 300), random.integers(20, 300)
            rows = keys[(keys >= low) & (keys < low + length)][:10].tolist()
            keys = keys[~np.isin(keys, rows)]
            table.append(block_tables.Block(tuple(sorted(rows)), run=load))
        policy = Policy(strategy=strategy, depth=1.5, block_rows=10, max_merge_blocks=2)
        *_, (_, planned) = block_tables.rounds(table, policy)
        assert planned.depth <= 1.5, (seed, reason_text(planned.reasons))


@pytest.mark.parametrize("most", [None, 8, 2])
def test_one_round_after_each_load_holds_the_threshold_by_width(most):
    """Forty loads that cover all keys: narrower buckets do not wait until no load brings wide blocks."""
    random, table = np.random.default_rng(0), []
    policy = Policy(strategy="width", block_rows=16, max_merge_blocks=most)
    for _ in range(40):
        keys, run = np.sort(random.random(128)).tolist(), 1 + max((block.run for block in table), default=0)
        table += [block_tables.Block(tuple(keys[i : i + 16]), run=run) for i in range(0, 128, 16)]
        table = block_tables.merge(table, plan(block_tables.describe(table), policy), policy, run + 1)
    # A pair at a time removes a little less than planned.
    assert block_tables.describe(table).intervals.depths().mean() <= (4.2 if most == 2 else 4)


@pytest.mark.parametrize(("strategy", "mixes"), [("payback", True), ("peak", False)])
def test_payback_alone_merges_older_blocks_before_level_0_is_merged(strategy, mixes):
    """A decision of docs/design/planner.md: loads in order of time, a tenth of them late."""
    random, policy = np.random.default_rng(0), Policy(strategy=strategy, block_rows=16)
    table, sets, mixed = [], 0, 0
    for load in range(40):
        keys = np.where(random.random(128) < 0.1, random.random(128) * load, load + random.random(128))
        run = 1 + max((block.run for block in table), default=0)
        parts = np.sort(keys).reshape(8, 16).tolist()
        table += [block_tables.Block(tuple(part), run=run) for part in parts]
        planned = plan(block_tables.describe(table), policy)
        merged = [{table[place].level for place in block_set.blocks} for block_set in planned.block_sets]
        stays = sum(block.level == 0 for block in table) > sum(
            table[place].level == 0 for block_set in planned.block_sets for place in block_set.blocks
        )
        sets, mixed = sets + len(merged), mixed + sum(stays and levels != {0} for levels in merged)
        assert mixes or all(len(levels) == 1 for levels in merged)
        table = block_tables.merge(table, planned, policy, run + 1)
    assert (mixed > sets / 2) == mixes


@given(block_tables.TABLES)
def test_only_more_than_a_touch_counts_when_planning(table):
    """Cells overlap exactly where bounds share more than one boundary value."""
    eligible = Policy().candidates(block_tables.describe(table))
    cells = dict(zip(eligible.position.tolist(), zip(eligible.first, eligible.last, strict=True), strict=True))
    for i, j in itertools.permutations(cells, 2):
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
        assert (cells[i][0] <= cells[j][1] and cells[j][0] <= cells[i][1]) == expected


def test_column_bounds_of_a_sorted_compound_run():
    """A run sorted by (tenant, time), cut into blocks, known only by its column bounds."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        rows = sorted(zip(rng.integers(0, 4, 60).tolist(), rng.integers(0, 30, 60).tolist(), strict=True))
        parts = [rows[i : i + 6] for i in range(0, 60, 6)]
        shuffled = rng.permutation(10)
        lower, upper = (
            [[end(row[column] for row in parts[i]) for i in shuffled] for column in (0, 1)] for end in (min, max)
        )
        for run in (5, 0):  # the order in a run is plain from the bounds
            blocks = Blocks.build(lower, upper, run=[run] * 10, rows=[6] * 10)
            assert planned_sets(blocks, depth=1, block_rows=6) == []
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


def test_truncated_equal_bounds_are_merged_only_to_fill_blocks():
    blocks = Blocks.build(["abc"] * 6, ["abd"] * 6, run=[1, 1, 1, 2, 2, 2], rows=[9] * 6)
    assert planned_sets(blocks, depth=1, block_rows=9) == []
    # A merge makes fuller blocks, though no narrower ones.
    assert planned_sets(blocks, depth=1, block_rows=100) == [[0, 1, 2, 3, 4, 5]]


@given(BOUNDS)
def test_expected_depth_is_that_of_disjoint_results(bounds):
    blocks, policy = build(bounds, rows=[9] * len(bounds)), Policy(depth=1, block_rows=9)
    sets, eligible = plan(blocks, policy).block_sets, policy.candidates(blocks)
    cells = dict(zip(eligible.position.tolist(), zip(eligible.first, eligible.last, strict=True), strict=True))
    members = [[cells.pop(place) for place in block_set.blocks.tolist()] for block_set in sets]
    after = [(min(first for first, _ in of), max(last for _, last in of)) for of in members]
    expected = naive.depths([*after, *cells.values()])[: len(sets)]
    assert [block_set.expected_depth for block_set in sets] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, or between 0 and 1"),
        ({"depth": float("nan")}, "depth must be a number"),
        ({"depth": "4"}, "depth must be a number"),
        ({"depth": True}, "depth must be a number"),
        ({"strategy": "best"}, "strategy must be one of"),
        ({"max_bytes": -1}, "max_bytes must be a whole number of at least 0"),
        ({"max_merge_bytes": 0}, "max_merge_bytes must be a whole number of at least 1"),
        ({"block_rows": 0}, "block_rows must be a whole number of at least 1"),
        ({"block_bytes": 0}, "block_bytes must be a whole number of at least 1"),
        ({"max_level": 0}, "max_level"),
        ({"tolerance": 0.99}, "tolerance must be a number of at least 1"),
        ({"tolerance": float("inf")}, "tolerance must be a number of at least 1"),
        ({"deleted_share": 0}, "deleted_share must be above 0"),
        ({"deleted_share": 1.1}, "deleted_share must be above 0"),
    ],
)
def test_a_policy_out_of_range_is_an_error_that_says_so(arguments, message):
    with pytest.raises(PolicyError, match=message):
        Policy(**arguments)
