"""Blocks along a curve: intervals of boxes, loads that are runs, chains, and boundaries from bounds."""

import itertools
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from curve_tables import along, arrow, curve_over, rows_of, table_of
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.key.curve import Curve, hilbert_range
from dbt_recluster.planner.curves import Boxes, CurveBlocks, curve_of_bounds

BITS = 3


@st.composite
def boxes(draw, most=12):
    """Lower and upper ranks of blocks, for each column, and their runs."""
    dimensions = draw(st.integers(2, 4))
    rank = st.integers(0, (1 << BITS) - 1)
    corners = st.tuples(*[st.tuples(rank, rank).map(sorted)] * dimensions)
    repeated = st.sampled_from(draw(st.lists(corners, min_size=1, max_size=3)))
    of_block = st.tuples(corners | repeated, st.integers(-1, 2))
    blocks = draw(st.lists(of_block, min_size=1, max_size=most))
    lower = [np.array([corner[d][0] for corner, _ in blocks]) for d in range(dimensions)]
    upper = [np.array([corner[d][1] for corner, _ in blocks]) for d in range(dimensions)]
    return lower, upper, np.array([run for _, run in blocks])


@given(boxes())
@example(
    (
        [np.array([3, 3, 6]), np.array([1, 1, 3])],
        [np.array([5, 5, 6]), np.array([7, 7, 5])],
        np.ones(3, np.int64),
    )
)
def test_blocks_of_a_run_are_disjoint_within_their_boxes(table):
    lower, upper, run = table
    first, last = Boxes(lower, upper, BITS).intervals(run)
    begin, end = hilbert_range(lower, upper, BITS)
    assert (first[run <= 0] == begin[run <= 0]).all()
    assert (last[run <= 0] == end[run <= 0]).all()
    assert (first <= last).all()
    assert (first >= begin).all()
    # A block for which its run leaves no place of its box has one place beside it.
    squeezed = first > end
    assert (last[~squeezed] <= end[~squeezed]).all()
    assert (first[squeezed] == last[squeezed]).all()
    for one, other in itertools.combinations(range(len(run)), 2):
        if run[one] == run[other] > 0:
            # They may touch, which does not count as overlap.
            assert last[one] <= first[other] or last[other] <= first[one]


@pytest.mark.parametrize("dimensions", [2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_sorted_loads_are_runs_and_unsorted_ones_are_not(kind, dimensions):
    columns = rows_of(kind, dimensions)
    curve = curve_over(columns)
    # In four columns of correlated rows every order but the curve's own is far from it.
    orders = [along(curve, columns), np.arange(len(columns[0])), np.argsort(columns[1], kind="stable")]
    blocks = CurveBlocks(curve, *table_of(columns, np.concatenate(orders)))
    added_by, none = np.repeat([7, 8, 9], len(blocks.rows) // 3), np.zeros(len(blocks.rows), int)
    layout = blocks.layout(none, added_by, none)
    assert layout.run.tolist() == np.where(added_by == 7, 7, 0).tolist()
    assert layout.load.tolist() == np.where(added_by == 7, 0, added_by).tolist()


def test_null_nan_and_unknown_bounds_are_at_the_ends():
    curve = curve_over([np.arange(4096.0), np.arange(4096.0)])
    lower = [pa.array([None, 100.0, 100.0, math.nan, None]), pa.array([1.0] * 5)]
    upper = [pa.array([50.0, math.nan, 200.0, math.nan, None]), pa.array([1.0] * 5)]
    unbounded = [np.array([False, False, True, False, False]), np.zeros(5, bool)]
    boxes = CurveBlocks(curve, lower, upper, unbounded, np.ones(5, int)).boxes
    assert boxes.lower[0].tolist() == [0, 24, 24, 1023, 0]  # 100 is a boundary
    assert boxes.upper[0].tolist() == [12, 1023, 1023, 1023, 0]


@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_boundaries_from_bounds_of_narrow_blocks_are_those_of_their_rows(kind):
    columns = rows_of(kind, 2, 64 * 400)
    curve = curve_over(columns)
    drawn = curve_of_bounds(*table_of(columns, along(curve, columns)))
    ranks = (of.ranks(arrow(columns)) for of in (drawn, curve))
    for by_bounds, by_rows in zip(*ranks, strict=True):
        shares, exact = (np.bincount(rank >> 6, minlength=16) for rank in (by_bounds, by_rows))
        assert shares.max() <= 1.5 * exact.max()


def test_large_blocks_count_more_and_unknown_ends_do_not():
    ends = pa.array([0, 10, 20, 30])
    none = np.zeros(4, bool)
    even = curve_of_bounds([ends], [ends], [none], np.ones(4, int))
    uneven = curve_of_bounds([ends], [ends], [none], np.array([1, 1, 1, 997]))
    assert [even.boundaries[0].to_pylist().count(end) for end in (0, 10, 20, 30)] == [255, 256, 256, 256]
    assert uneven.boundaries[0].to_pylist().count(30) > 1_015
    unknown = curve_of_bounds([ends], [pa.array([1_000] * 4)], [~none], np.ones(4, int))
    assert unknown.boundaries[0].to_pylist() == even.boundaries[0].to_pylist()


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["a", "é", "zz"], pa.string()),
        ([b"", b"\xff", b"\x00"], pa.binary()),
        ([True, False, True], pa.bool_()),
        ([date(1, 1, 1), date(9999, 12, 31), None], pa.date32()),
        ([-(2**63), 2**63 - 1, None], pa.int64()),
        ([-math.inf, math.inf, math.nan], pa.float64()),
        ([Decimal(1), Decimal("9" * 18), Decimal(10**17)], pa.decimal128(18, 0)),  # rounds beyond its type
        ([Decimal("-9" + "9" * 35), Decimal("9" * 36), None], pa.decimal128(38, 2)),
    ],
)
def test_bounds_of_any_type_draw_boundaries(values, type_):
    column = pa.array(values, type_)
    least, greatest = column.take(pa.array([0, 0])), column.take(pa.array([1, 2]))
    curve = curve_of_bounds([least] * 2, [greatest] * 2, [np.zeros(2, bool)] * 2, np.array([1, 1]))
    assert curve.boundaries[0].type == type_


def test_a_column_without_values_is_cut_anywhere():
    null = pa.array([None, None], pa.int64())
    some, none = pa.array([1, 2]), np.zeros(2, bool)
    curve = curve_of_bounds([some, null], [some, null], [none, none], np.array([1, 1]))
    assert [rank.tolist() for rank in curve.ranks([some, null])][1] == [0, 0]
    empty = pa.array([], pa.int64())
    curve_of_bounds([empty] * 2, [empty] * 2, [none[:0]] * 2, np.array([], int))


@given(boxes(most=30), st.data())
def test_boundaries_from_bounds_do_not_depend_on_the_order_of_blocks(table, data):
    lower, upper, run = table
    rows = np.array(data.draw(st.lists(st.integers(0, 10**9), min_size=len(run), max_size=len(run))))
    unknown = np.array(data.draw(st.lists(st.booleans(), min_size=len(run), max_size=len(run))))
    order = np.array(data.draw(st.permutations(range(len(run)))))

    def boundaries(places):
        bounds = [[pa.array(column[places]) for column in ends] for ends in (lower, upper)]
        drawn = curve_of_bounds(*bounds, [unknown[places]] * len(lower), rows[places])
        return [column.to_pylist() for column in drawn.boundaries]

    assert boundaries(order) == boundaries(np.arange(len(run)))


def curve_blocks(lower, upper, partition, rows, leading=()):
    """Blocks whose bounds are ranks."""
    curve = Curve(tuple(pa.array(range(1, 1 << BITS)) for _ in lower), BITS)
    bounds = [
        [*map(pa.array, ends), *map(pa.array, side)]
        for ends, side in zip(leading or ((), ()), (lower, upper), strict=True)
    ]
    none = [np.zeros(len(rows), bool)] * len(bounds[0])
    return CurveBlocks(curve, *bounds, none, np.array(rows), np.unique(partition, return_inverse=True)[1])


@st.composite
def described(draw):
    """Blocks with partitions and rows, and the arguments of a layout."""
    lower, upper, run = draw(boxes(most=20))
    n = len(run)

    def numbers(least, most):
        return np.array(draw(st.lists(st.integers(least, most), min_size=n, max_size=n)))

    blocks = curve_blocks(lower, upper, numbers(0, 1), numbers(1, 50))
    return blocks, run, numbers(0, 3), numbers(0, 1), numbers(0, 1).astype(bool)


def hull(lower, upper, members):
    return lower[members].min(axis=0), upper[members].max(axis=0)


@given(described())
def test_runs_of_a_chain_follow_one_another_along_a_column(table):
    """And no column would make do with fewer chains."""
    blocks, run, added_by, level, settled = table
    layout = blocks.layout(run, added_by, level, settled)
    key = list(zip(layout.group.tolist(), layout.thin.tolist(), strict=True))
    own = {}
    for place in np.flatnonzero((layout.run > 0) & ~settled).tolist():
        own.setdefault(int(layout.chain[place]), set()).add((key[place], int(layout.run[place])))
    # All blocks of a run, also the settled ones, which are of another chain.
    members = {}
    for place in np.flatnonzero(layout.run > 0).tolist():
        members.setdefault((key[place], int(layout.run[place])), []).append(place)
    hulls = {one: hull(layout.lower, layout.upper, places) for one, places in members.items()}
    columns = range(layout.lower.shape[1])
    for chain, runs in own.items():
        assert chain > 0
        assert len({of for of, _ in runs}) == 1
        assert any(
            all(
                hulls[one][1][column] < hulls[other][0][column] or hulls[other][1][column] < hulls[one][0][column]
                for one, other in itertools.combinations(runs, 2)
            )
            for column in columns
        )
    if settled.any():
        return
    for group in set(key):
        of_group = [ends for (of, _), ends in hulls.items() if of == group]
        fewest = min(
            max(sum(low[column] <= place <= high[column] for low, high in of_group) for place in range(1 << BITS))
            for column in columns
        )
        assert fewest == len({chain for chain, runs in own.items() if group in {of for of, _ in runs}})


@given(described())
def test_a_layout_has_the_box_and_load_of_each_block(table):
    blocks, run, added_by, level, settled = table
    layout = blocks.layout(run, added_by, level, settled)
    assert layout.group.tolist() == blocks.partition.tolist()
    assert (layout.lower <= layout.rank).all()
    assert (layout.rank <= layout.upper).all()
    volume = np.prod(layout.upper - layout.lower + 1, axis=1)
    for place in range(len(run)):
        # A load that came sorted along the curve is a run.
        is_sorted = run[place] <= 0 < layout.run[place]
        assert layout.run[place] in ({added_by[place]} if is_sorted else {max(run[place], 0)})
        is_load = run[place] <= 0 and added_by[place] > 0 and level[place] == 0 and not is_sorted
        assert layout.load[place] == (added_by[place] if is_load else 0)
        members = np.flatnonzero(layout.group == layout.group[place])
        least, greatest = hull(layout.lower, layout.upper, members)
        density = blocks.rows[members].sum() / np.prod(greatest - least + 1)
        own, rows = blocks.rows[place] / volume[place], blocks.rows
        if layout.run[place] > 0:
            run_of_block = members[layout.run[members] == layout.run[place]]
            mean = np.average(rows[run_of_block] / volume[run_of_block], weights=rows[run_of_block])
            is_thin = mean < 0.25 * density or own < 0.25 * min(mean, density)
        else:
            is_thin = own < 0.25 * density
        assert layout.thin[place] == is_thin
        # What rests in a partition counts as one chain, and nothing else does.
        assert (layout.chain[place] == layout.chain[members[settled[members]]]).all() or not settled[place]
        assert settled[place] or not (layout.chain[place] == layout.chain[settled]).any()
        assert layout.chain[place] > 0 or not (layout.run[place] > 0 or settled[place])
    ((begin,), (end,), _) = blocks.along_curve(layout.chain)
    begin, end = begin.to_numpy(), end.to_numpy()
    for one, other in itertools.combinations(range(len(run)), 2):
        if layout.chain[one] == layout.chain[other] > 0:
            assert end[one] <= begin[other] or end[other] <= begin[one]


@given(described(), st.randoms())
def test_a_layout_does_not_depend_on_the_order_of_blocks(table, random):
    blocks, *arguments = table
    order = np.array(random.sample(range(len(blocks.rows)), len(blocks.rows)))
    ends = ([column.take(pa.array(order)) for column in side] for side in (blocks.lower, blocks.upper))
    shuffled = CurveBlocks(blocks.curve, *ends, blocks.unbounded, blocks.rows[order], blocks.partition[order])
    before = blocks.layout(*arguments).take(order)
    after = shuffled.layout(*(argument[order] for argument in arguments))
    for name in ("lower", "upper", "rank", "group", "run", "load", "thin", "chain", "settled"):
        assert getattr(before, name).tolist() == getattr(after, name).tolist()

    def contents(of, layout):
        ((begin,), (end,), _) = of.along_curve(layout.chain)
        columns = [*layout.lower.T, *layout.upper.T, of.rows, layout.chain, begin.to_numpy(), end.to_numpy()]
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    # Blocks of a chain with the same box and rows may change places.
    assert contents(shuffled, after) == contents(blocks, blocks.layout(*arguments))


def test_blocks_of_several_leading_values_are_of_no_group():
    corners = [np.array([0, 0, 4, 4])] * 2
    leading = ([[1, 1, 2, 1]], [[1, 1, 2, 2]])
    blocks = curve_blocks(corners, corners, [0] * 4, [1] * 4, leading)
    layout = blocks.layout(np.array([5, 6, 5, 6]), np.zeros(4, int), np.ones(4, int))
    assert layout.group[0] == layout.group[1] != layout.group[2] > 0
    assert layout.group[3] == -1
    assert layout.chain[3] == 0


def test_a_value_of_several_parts_begins_with_its_last():
    curve = Curve((pa.array([3] * 6 + [8]), pa.array(range(7))), BITS)
    ends = [pa.array([3, 3]), pa.array([2, 2])], [pa.array([3, 8]), pa.array([2, 5])]
    blocks = CurveBlocks(curve, *ends, [np.zeros(2, bool)] * 2, np.array([1, 1]))
    layout = blocks.layout(np.zeros(2, int), np.zeros(2, int), np.zeros(2, int))
    assert layout.lower[:, 0].tolist() == [0, 0]
    assert layout.rank[:, 0].tolist() == [6, 6]
    assert layout.upper[:, 0].tolist() == [6, 7]
