"""Blocks along a curve: intervals of boxes, loads that are runs, and boundaries from bounds."""

import itertools
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.curve import Curve, hilbert_index, hilbert_range
from dbt_recluster.planner.curves import Boxes, CurveBlocks, curve_of_bounds, renewed, unevenness

BITS = 3


@st.composite
def boxes(draw, most=12):
    """Lower and upper ranks of blocks, for each column, and their runs."""
    dimensions = draw(st.integers(2, 4))
    rank = st.integers(0, (1 << BITS) - 1)
    corners = st.tuples(*[st.tuples(rank, rank).map(sorted)] * dimensions)
    blocks = draw(st.lists(st.tuples(corners, st.integers(-1, 2)), min_size=1, max_size=most))
    lower = [np.array([corner[d][0] for corner, _ in blocks]) for d in range(dimensions)]
    upper = [np.array([corner[d][1] for corner, _ in blocks]) for d in range(dimensions)]
    return lower, upper, np.array([run for _, run in blocks])


def places(lower, upper, block):
    """The places of all cells of a box."""
    sides = [range(low[block], high[block] + 1) for low, high in zip(lower, upper, strict=True)]
    cells = np.array(list(itertools.product(*sides)))
    return sorted(hilbert_index(list(cells.T), BITS).tolist())


@given(boxes())
def test_a_block_without_a_run_has_the_places_of_its_box(table):
    lower, upper, run = table
    first, last = Boxes(lower, upper, BITS).intervals(run)
    for block in np.flatnonzero(run <= 0):
        inside = places(lower, upper, block)
        assert (first[block], last[block]) == (inside[0], inside[-1])


@given(boxes())
def test_blocks_of_a_run_are_disjoint_within_their_boxes(table):
    lower, upper, run = table
    first, last = Boxes(lower, upper, BITS).intervals(run)
    begin, end = hilbert_range(lower, upper, BITS)
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


@given(boxes(), st.randoms())
def test_the_order_of_blocks_makes_no_difference(table, random):
    lower, upper, run = table
    order = np.array(random.sample(range(len(run)), len(run)))
    shuffled = [column[order] for column in lower], [column[order] for column in upper]
    before = zip(*(a.tolist() for a in Boxes(lower, upper, BITS).intervals(run)), strict=True)
    after = zip(*(a.tolist() for a in Boxes(*shuffled, BITS).intervals(run[order])), strict=True)
    of_blocks = zip(*(c.tolist() for c in [*lower, *upper, run]), strict=True)
    of_shuffled = zip(*(c[order].tolist() for c in [*lower, *upper, run]), strict=True)
    # Blocks with the same box and run may change places.
    assert sorted(zip(of_blocks, before, strict=True)) == sorted(zip(of_shuffled, after, strict=True))
    loads = np.maximum(run, 1)
    is_sorted = Boxes(lower, upper, BITS).is_sorted(loads)
    assert is_sorted[order].tolist() == Boxes(*shuffled, BITS).is_sorted(loads[order]).tolist()


def table_of(columns, order, block_rows=64):
    """Bounds of blocks of rows in this order."""
    starts = np.arange(0, len(order), block_rows)
    lower = [pa.array(np.minimum.reduceat(column[order], starts)) for column in columns]
    upper = [pa.array(np.maximum.reduceat(column[order], starts)) for column in columns]
    unbounded = [np.zeros(len(starts), bool)] * len(columns)
    return lower, upper, unbounded, np.full(len(starts), block_rows)


def curve_over(columns):
    return Curve.of([pa.array(column) for column in columns])


def rows_of(kind, dimensions, rows=64 * 64, seed=0):
    random = np.random.default_rng(seed)
    if kind == "skewed":
        return [np.minimum(random.zipf(1.3, rows), 1 << 20) for _ in range(dimensions)]
    first = random.random(rows)
    if kind == "correlated":
        return [first + (place > 0) * random.normal(0, 0.05, rows) for place in range(dimensions)]
    return [random.random(rows) for _ in range(dimensions)]


@pytest.mark.parametrize("dimensions", [2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_sorted_loads_are_runs_and_unsorted_ones_are_not(kind, dimensions):
    columns = rows_of(kind, dimensions)
    curve = curve_over(columns)
    orders = {
        "curve": np.argsort(curve.index([pa.array(column) for column in columns]), kind="stable"),
        "unsorted": np.arange(len(columns[0])),
        "second column": np.argsort(columns[1], kind="stable"),
    }
    # In four columns of correlated rows every order but the curve's own is far from it.
    for name, order in orders.items():
        blocks = CurveBlocks(curve, *table_of(columns, order))
        is_sorted = blocks.boxes.is_sorted(np.full(len(blocks.rows), 7))
        assert set(is_sorted.tolist()) == {name == "curve"}, name


def test_loads_are_judged_one_by_one():
    columns = rows_of("uniform", 2)
    curve = curve_over(columns)
    by_curve = np.argsort(curve.index([pa.array(column) for column in columns]), kind="stable")
    table = table_of(columns, np.concatenate([by_curve, np.arange(len(by_curve))]))
    is_sorted = CurveBlocks(curve, *table).boxes.is_sorted(np.repeat([3, 4, 0], [64, 60, 4]))
    assert is_sorted.tolist() == [True] * 64 + [False] * 64


def test_null_nan_and_unknown_bounds_are_at_the_ends():
    curve = curve_over([np.arange(4096.0), np.arange(4096.0)])
    lower = [pa.array([None, 100.0, 100.0, math.nan, None]), pa.array([1.0] * 5)]
    upper = [pa.array([50.0, math.nan, 200.0, math.nan, None]), pa.array([1.0] * 5)]
    unbounded = [np.array([False, False, True, False, False]), np.zeros(5, bool)]
    boxes = CurveBlocks(curve, lower, upper, unbounded, np.ones(5, int)).boxes
    assert boxes.lower[0].tolist() == [0, 25, 25, 1023, 0]
    assert boxes.upper[0].tolist() == [12, 1023, 1023, 1023, 0]


@pytest.mark.parametrize(
    "type_",
    [
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.decimal128(38, 2),
    ],
    ids=str,
)
def test_first_boundaries_follow_the_rows_of_wide_blocks(type_):
    """Every block covers all values, as those of an unsorted load do."""
    number = pa.int32() if type_ == pa.date32() else pa.int64()
    lower, upper = (pa.array([value] * 20, number).cast(type_) for value in (0, 10_240))
    curve = curve_of_bounds([lower] * 2, [upper] * 2, [np.zeros(20, bool)] * 2, np.full(20, 5))
    assert curve.boundaries[0].type == type_
    (ranks, _) = curve.ranks([pa.array(np.arange(0, 10_240, 2_560), number).cast(type_)] * 2)
    assert np.abs(ranks - [0, 256, 512, 768]).max() <= 70


@pytest.mark.parametrize("kind", ["uniform", "correlated"])
def test_first_boundaries_of_an_unsorted_load_are_even(kind):
    columns = rows_of(kind, 2, 64 * 400)
    curve = curve_of_bounds(*table_of(columns, np.arange(len(columns[0]))))
    assert curve is not None
    ranks = curve.ranks([pa.array(column) for column in columns])
    assert (unevenness(ranks, [np.ones(len(columns[0]))] * 2, curve.bits, 400) < 1.05).all()


def test_first_boundaries_of_narrow_blocks_are_those_of_their_rows():
    columns = rows_of("skewed", 2, 64 * 400)
    order = np.argsort(curve_over(columns).index([pa.array(column) for column in columns]), kind="stable")
    table = table_of(columns, order)
    curve = curve_of_bounds(*table)
    assert renewed(CurveBlocks(curve, *table), most=2.0) is None


def test_bounds_of_any_type_draw_boundaries():
    values = {
        "text": pa.array(["a", "é", "zz"]),
        "binary": pa.array([b"", b"\xff", b"\x00"]),
        "boolean": pa.array([True, False, True]),
        "date": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
        "long": pa.array([-(2**63), 2**63 - 1, None]),
        "double": pa.array([-math.inf, math.inf, math.nan]),
        "decimal that rounds beyond its type": pa.array(
            [Decimal(1), Decimal("9" * 18), Decimal(10**17)], pa.decimal128(18, 0)
        ),
        "decimal": pa.array([Decimal("-9" * 1 + "9" * 35), Decimal("9" * 36), None], pa.decimal128(38, 2)),
    }
    for column in values.values():
        least, greatest = column.take(pa.array([0, 0])), column.take(pa.array([1, 2]))
        none = [np.zeros(2, bool)] * 2
        curve = curve_of_bounds([least, least], [greatest, greatest], none, np.array([1, 1]))
        assert curve.boundaries[0].type == column.type


def test_a_column_without_values_is_cut_anywhere():
    null = pa.array([None, None], pa.int64())
    some, none = pa.array([1, 2]), np.zeros(2, bool)
    curve = curve_of_bounds([some, null], [some, null], [none, none], np.array([1, 1]))
    assert [rank.tolist() for rank in curve.ranks([some, null])][1] == [0, 0]
    empty = pa.array([], pa.int64())
    curve_of_bounds([empty] * 2, [empty] * 2, [none[:0]] * 2, np.array([], int))


@pytest.mark.parametrize("beyond", [0.01, 0.33])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_boundaries_are_renewed_only_where_rows_have_become_uneven(kind, beyond):
    columns = rows_of(kind, 2, 64 * 400)
    curve = curve_over(columns)

    def renewal(curve, rows):
        order = np.argsort(curve.index([pa.array(column) for column in rows]), kind="stable")
        return renewed(CurveBlocks(curve, *table_of(rows, order)))

    assert renewal(curve, columns) is None
    # These rows move beyond the last boundary.
    end = columns[0].max()
    later = np.random.default_rng(1).random(len(columns[0])) < beyond
    moved = [np.where(later, columns[0] + end, columns[0]), columns[1]]
    fresh = renewal(curve, moved)
    assert (fresh is None) == (beyond < 0.1)
    # Rows of blocks that span both are taken for evenly spread, so the first renewal need not be the last one.
    for _ in range(4):
        if fresh is not None:
            assert fresh.boundaries[0][-1].as_py() > end
            fresh = renewal(fresh, moved)
    assert fresh is None


@pytest.mark.parametrize("dimensions", [2, 3, 4])
@pytest.mark.parametrize("order", ["curve", "unsorted", "first column"])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_renewals_of_the_same_blocks_end(kind, order, dimensions):
    columns = rows_of(kind, dimensions)
    orders = {
        "curve": np.argsort(curve_over(columns).index([pa.array(column) for column in columns])),
        "unsorted": np.arange(len(columns[0])),
        "first column": np.argsort(columns[0], kind="stable"),
    }
    table = table_of(columns, orders[order])
    curve = curve_of_bounds(*table)
    renewals = 0
    while curve is not None:
        curve = renewed(CurveBlocks(curve, *table))
        renewals += 1
        assert renewals <= 5


@pytest.mark.parametrize("kind", ["uniform", "skewed"])
def test_text_is_renewed_as_numbers_are(kind):
    columns = rows_of(kind, 2, 64 * 100)
    numbers = [(column / column.max() * 10**9).astype(np.int64) for column in columns]
    curve = curve_over(numbers)
    order = np.argsort(curve.index([pa.array(column) for column in numbers]), kind="stable")
    numbers = [column // (2 - place) for place, column in enumerate(numbers)]

    def as_text(column):
        return pa.array([f"{value:012d}" for value in column.to_pylist()])

    table = table_of(numbers, order)
    text = [*([as_text(column) for column in bounds] for bounds in table[:2]), *table[2:]]
    of_numbers = renewed(CurveBlocks(curve, *table))
    of_text = renewed(CurveBlocks(Curve(tuple(map(as_text, curve.boundaries))), *text))
    assert (of_numbers is None) == (of_text is None)
    if of_numbers is not None:
        for ends, texts in zip(of_numbers.boundaries, of_text.boundaries, strict=True):
            # Of text, no values between bounds are known.
            ranks = np.searchsorted(ends.to_numpy(), [int(text) for text in texts.to_pylist()])
            assert np.abs(ranks - np.arange(len(ends))).mean() < 16


@given(boxes(most=30), st.data())
def test_renewal_does_not_depend_on_the_order_of_blocks(table, data):
    lower, upper, run = table
    rows = np.array(data.draw(st.lists(st.integers(0, 10**9), min_size=len(run), max_size=len(run))))
    unbounded = [np.array(data.draw(st.lists(st.booleans(), min_size=len(run), max_size=len(run))))] * len(
        lower
    )
    order = np.array(data.draw(st.permutations(range(len(run)))))
    curve = Curve(tuple(pa.array(range(1, 8)) for _ in lower), BITS)

    def boundaries(places):
        bounds = [[pa.array(column[places]) for column in ends] for ends in (lower, upper)]
        masks = [mask[places] for mask in unbounded]
        drawn = [
            renewed(CurveBlocks(curve, *bounds, masks, rows[places]), most=1.0),
            curve_of_bounds(*bounds, masks, rows[places]),
        ]
        return [one and [column.to_pylist() for column in one.boundaries] for one in drawn]

    assert boundaries(order) == boundaries(np.arange(len(run)))


def test_equal_shares_are_even():
    ranks = np.arange(1024)
    assert unevenness([ranks, ranks], [np.ones(1024)] * 2, 10, 100) == pytest.approx([1, 1])
    assert unevenness([ranks // 2, ranks], [np.ones(1024)] * 2, 10, 100) == pytest.approx([2**0.5, 1])
