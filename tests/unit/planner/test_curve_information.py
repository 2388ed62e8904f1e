"""What reads open on a curve, now and in a sorted table: estimates by bounds, against counts of real rows."""

import json

import numpy as np
import pyarrow as pa
import pytest
from curve_tables import along, bounds_of, curve_over, cut_at_once, rows_of, table_of
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import Reads, curve_information
from dbt_recluster.planner.curves import CurveBlocks
from dbt_recluster.planner.metrics import curve_read_costs

BLOCK_ROWS = 64


def opened(table, columns, queries=400):
    """Blocks that a point of each column and a box of 1 % a side open, at the places of rows."""
    lower, upper = ([bound.to_numpy() for bound in bounds] for bounds in table[:2])
    random = np.random.default_rng(1)
    row = random.integers(0, len(columns[0]), queries)
    points, box = [], np.ones((len(lower[0]), queries), bool)
    for low, high, column in zip(lower, upper, columns, strict=True):
        value, ordered = column[row], np.sort(column)
        points.append(((low[:, None] <= value) & (high[:, None] >= value)).sum(axis=0).mean())
        middle = (np.searchsorted(ordered, value) + np.searchsorted(ordered, value, side="right")) // 2
        half, end = len(ordered) // 200, len(ordered) - 1
        least, most = ordered[np.maximum(middle - half, 0)], ordered[np.minimum(middle + half, end)]
        box &= (low[:, None] <= most) & (high[:, None] >= least)
    return [*points, box.sum(axis=0).mean()]


@pytest.mark.parametrize("dimensions", [2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_a_sorted_table_is_as_good_as_one_sorted_at_once(kind, dimensions):
    columns = rows_of(kind, dimensions, BLOCK_ROWS * 400)
    curve = curve_over(columns)
    table = bounds_of(columns, cut_at_once(curve, columns, BLOCK_ROWS))
    information = curve_information(CurveBlocks(curve, *table), BLOCK_ROWS)
    *points, box = opened(table, columns)
    assert information.total_block_count == len(table[-1])
    assert information.sorted_block_count == pytest.approx(len(table[-1]), rel=0.1)
    assert information.point_blocks == pytest.approx(points, rel=0.15)
    assert information.box_blocks == pytest.approx(box, rel=0.3)
    # Which column is cut more finely is a matter of chance.
    assert sum(information.sorted_point_blocks) == pytest.approx(sum(points), rel=0.3)
    assert information.sorted_box_blocks == pytest.approx(box, rel=0.45)


@pytest.mark.parametrize("kind", ["uniform", "skewed", "correlated"])
def test_runs_over_each_other_open_more_in_any_order_of_blocks(kind):
    columns = rows_of(kind, 2, BLOCK_ROWS * 400)
    curve = curve_over(columns)
    # Eight runs over all keys.
    lower, upper, unbounded, rows = table_of(columns, along(curve, columns, np.arange(len(columns[0])) % 8))
    information = curve_information(CurveBlocks(curve, lower, upper, unbounded, rows), BLOCK_ROWS)
    *points, box = opened((lower, upper), columns)
    assert information.point_blocks == pytest.approx(points, rel=0.15)
    assert information.box_blocks == pytest.approx(box, rel=0.3)
    once = opened(bounds_of(columns, cut_at_once(curve, columns, BLOCK_ROWS)), columns)
    # Of values that fill several blocks, the boxes of wide blocks show little.
    error = 0.4 if kind == "skewed" else 0.15
    assert sum(information.sorted_point_blocks) == pytest.approx(sum(once[:-1]), rel=error)
    order = pa.array(np.random.default_rng(0).permutation(len(rows)))
    shuffled = ([column.take(order) for column in ends] for ends in (lower, upper))
    other = curve_information(CurveBlocks(curve, *shuffled, unbounded, rows), BLOCK_ROWS)
    assert information.point_blocks == other.point_blocks
    # Which column is cut more finely is a matter of chance.
    sums = (sum(one.sorted_point_blocks) for one in (information, other))
    assert next(sums) == pytest.approx(next(sums), rel=0.05)


@pytest.mark.parametrize("block_rows", [BLOCK_ROWS, 8])
def test_partitions_are_sorted_each_by_itself_and_small_blocks_make_full_ones(block_rows):
    columns = rows_of("uniform", 2, BLOCK_ROWS * 256)
    curve, of_row = curve_over(columns), np.repeat([0, 1, 2, 3], BLOCK_ROWS * 64)
    parts = cut_at_once(curve, columns, BLOCK_ROWS, of_row)
    *points, _ = opened(bounds_of(columns, parts), columns)
    if block_rows == BLOCK_ROWS:
        table, partition = bounds_of(columns, parts), np.array([of_row[rows[0]] for rows in parts])
    else:
        table = table_of(columns, along(curve, columns, of_row), block_rows)
        partition = of_row[::block_rows]
    information = curve_information(CurveBlocks(curve, *table, partition), BLOCK_ROWS)
    assert information.total_block_count == len(table[-1])
    assert information.sorted_block_count == pytest.approx(len(parts), rel=0.15)
    assert information.sorted_point_blocks == pytest.approx(points, rel=0.3)
    together = curve_information(CurveBlocks(curve, *table), BLOCK_ROWS)
    assert together.sorted_point_blocks[0] < 0.75 * points[0]


def test_figures_are_json_and_none_are_missing():
    curve = curve_over([["a", "b"], [1, 2]])
    lower, upper = [pa.array(["a", None]), pa.array([1, None])], [pa.array(["b", None]), pa.array([2, None])]
    unbounded = [np.array([False, True])] * 2
    information = curve_information(CurveBlocks(curve, lower, upper, unbounded, np.array([0, 0])), 10)
    assert json.loads(json.dumps(information.as_dict())) == information.as_dict()
    # The second block may have any value.
    assert all(1.5 < blocks <= 2 for blocks in information.point_blocks)
    assert information.sorted_block_count == 1
    # The points that stand for rows do not reach the ends of their boxes.
    assert all(0.8 < blocks <= 1 for blocks in information.sorted_point_blocks)
    empty = [column[:0] for column in lower]
    none = CurveBlocks(curve, empty, empty, [np.zeros(0, bool)] * 2, np.zeros(0, int))
    assert curve_information(none, 10).as_dict()["point_blocks"] == [0, 0]


def costs_of(columns, parts, curve, reads):
    """What reads cost of blocks that hold these rows; a row has 10 bytes."""
    bounds = bounds_of(columns, parts)
    return curve_read_costs(CurveBlocks(curve, *bounds), 10 * bounds[-1], reads)


@pytest.mark.parametrize("leading", [0, 1])
def test_what_reads_waste_is_what_a_sort_would_spare(leading):
    """Twin: the same rows really cut at once, those of each leading value by themselves."""
    rows, block_rows = 40_000, 400
    random = np.random.default_rng(0)
    columns = [random.integers(0, 10_000, rows), random.zipf(1.2, rows) % 5_000]
    curve = curve_over(columns)
    tenants = [random.integers(0, 3, rows)] * leading
    everything = [*tenants, *columns]
    values = random.integers(0, rows, 40)
    points = [[None] * 40 for _ in everything]
    points[leading] = columns[0][values].tolist()
    if leading:
        points[0] = [1 if place % 2 else None for place in range(40)]
    reads = Reads(points, points)
    best = costs_of(everything, cut_at_once(curve, columns, block_rows, *tenants), curve, reads)
    worst = costs_of(everything, np.split(np.arange(rows), rows // block_rows), curve, reads)
    assert worst.opened.mean() > 0.95 * rows // block_rows
    # The estimate for a sorted table is near the truth, so little of it seems wasted.
    assert best.wasted.sum() <= 0.15 * best.opened.sum()
    spared = (worst.opened - best.opened).sum()
    assert worst.wasted.sum() == pytest.approx(spared, rel=0.1)
    assert worst.bytes.tolist() == (10 * block_rows * worst.opened).tolist()
    assert worst.bytes_wasted == pytest.approx(10 * block_rows * worst.wasted)
    assert worst.bytes_wasted + worst.bytes_per_depth == pytest.approx(worst.bytes)


ENDS = st.tuples(st.none() | st.integers(-2, 12), st.none() | st.integers(-2, 12)).filter(
    lambda ends: None in ends or ends[0] <= ends[1]
)
BOUNDS = st.tuples(st.none() | st.integers(0, 10), st.integers(0, 10)).map(
    lambda ends: ends if ends[0] is None else tuple(sorted(ends))
)


@given(
    blocks=st.lists(st.tuples(BOUNDS, BOUNDS, BOUNDS), min_size=1, max_size=8),
    reads=st.lists(st.tuples(ENDS, ENDS, ENDS), max_size=5),
    data=st.data(),
)
def test_a_read_opens_the_boxes_that_it_meets(blocks, reads, data):
    """By brute force; NULL is below all values, and the first column leads."""
    n = len(blocks)
    lower, upper = (
        [pa.array([block[column][side] for block in blocks], pa.int64()) for column in range(3)] for side in (0, 1)
    )
    unknown = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    unbounded = [np.zeros(n, np.bool_), np.array(unknown), np.zeros(n, np.bool_)]
    curve = curve_over([range(11), range(11)], bits=4)
    asked = [[[read[column][side] for read in reads] for column in range(3)] for side in (0, 1)]
    rows = np.arange(n) + 1
    table = CurveBlocks(curve, lower, upper, unbounded, rows, np.arange(n) % 2)
    costs = curve_read_costs(table, rows, Reads(*asked))

    for place, read in enumerate(reads):
        opened = [
            number
            for number, block in enumerate(blocks)
            if all(
                (least is None or high >= least or unbounded[column][number])
                and (greatest is None or low is None or low <= greatest)
                for column, ((low, high), (least, greatest)) in enumerate(zip(block, read, strict=True))
            )
        ]
        assert costs.opened[place] == len(opened)
        assert costs.bytes[place] == sum(rows[number] for number in opened)
        assert 0 <= costs.wasted[place] <= len(opened)


ROWS_OF_VALUES = st.tuples(st.integers(0, 1), st.none() | st.integers(0, 5), st.integers(1, 40))


@given(st.lists(ROWS_OF_VALUES, min_size=1, max_size=12))
def test_groups_hold_whole_values_and_about_a_full_block(blocks):
    partition, values, rows = (list(column) for column in zip(*blocks, strict=True))
    column, none = pa.array(values, pa.int64()), np.zeros(len(rows), np.bool_)
    ends, codes = [column] * 2, np.unique(partition, return_inverse=True)[1]
    group = CurveBlocks(curve_over([column]), ends, ends, [none] * 2, np.array(rows), codes).groups(20)
    assert sorted(set(group.tolist())) == list(range(group.max() + 1))
    keys = [(part, -1 if value is None else value) for part, value in zip(partition, values, strict=True)]
    of_key = {}
    for key, number in zip(keys, group.tolist(), strict=True):
        assert of_key.setdefault(key, number) == number
    # In the order of the keys, and never two partitions in one.
    assert [of_key[key] for key in sorted(of_key)] == sorted(of_key[key] for key in of_key)
    for number in range(group.max() + 1):
        assert len({part for part, of in zip(partition, group.tolist(), strict=True) if of == number}) == 1
