"""What reads open on a curve: estimates by bounds, against counts of real rows."""

import json

import numpy as np
import pyarrow as pa
import pytest
from curve_tables import bounds_of, curve_over, cut_at_once, rows_of, table_of

from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import curve_information
from dbt_recluster.planner.curves import CurveBlocks

BLOCK_ROWS = 64


def along(curve, columns, partition=None):
    """The order of rows sorted along a curve, each partition by itself."""
    place = curve.index([pa.array(column) for column in columns])
    return np.lexsort((place, np.zeros(len(place), int) if partition is None else partition))


def opened(table, columns, queries=400):
    """Blocks that a point of each column and a box of 1 % a side open, at the places of rows."""
    lower, upper = ([bound.to_numpy() for bound in bounds] for bounds in table[:2])
    random = np.random.default_rng(1)
    row = random.integers(0, len(columns[0]), queries)
    points, box = [], np.ones((len(lower[0]), queries), bool)
    for low, high, column in zip(lower, upper, columns, strict=True):
        value = column[row]
        points.append(((low[:, None] <= value) & (high[:, None] >= value)).sum(axis=0).mean())
        ordered = np.sort(column)
        middle = (np.searchsorted(ordered, value) + np.searchsorted(ordered, value, side="right")) // 2
        half = len(ordered) // 200
        least, most = (
            ordered[np.maximum(middle - half, 0)],
            ordered[np.minimum(middle + half, len(ordered) - 1)],
        )
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
def test_runs_over_each_other_open_more(kind):
    columns = rows_of(kind, 2, BLOCK_ROWS * 400)
    curve = curve_over(columns)
    # Eight runs over all keys.
    table = table_of(columns, along(curve, columns, np.arange(len(columns[0])) % 8))
    information = curve_information(CurveBlocks(curve, *table), BLOCK_ROWS)
    *points, box = opened(table, columns)
    assert information.point_blocks == pytest.approx(points, rel=0.15)
    assert information.box_blocks == pytest.approx(box, rel=0.3)
    once = opened(bounds_of(columns, cut_at_once(curve, columns, BLOCK_ROWS)), columns)
    # Of values that fill several blocks, the boxes of wide blocks show little.
    error = 0.4 if kind == "skewed" else 0.15
    assert sum(information.sorted_point_blocks) == pytest.approx(sum(once[:-1]), rel=error)


def test_partitions_are_sorted_each_by_itself():
    columns = rows_of("uniform", 2, BLOCK_ROWS * 256)
    curve, of_row = curve_over(columns), np.repeat([0, 1, 2, 3], BLOCK_ROWS * 64)
    parts = cut_at_once(curve, columns, BLOCK_ROWS, of_row)
    table = bounds_of(columns, parts)
    *points, _ = opened(table, columns)
    partition = np.array([of_row[rows[0]] for rows in parts])
    information = curve_information(CurveBlocks(curve, *table, partition), BLOCK_ROWS)
    assert information.sorted_point_blocks == pytest.approx(points, rel=0.3)
    assert information.sorted_block_count == pytest.approx(len(parts), rel=0.1)
    together = curve_information(CurveBlocks(curve, *table), BLOCK_ROWS)
    assert together.sorted_point_blocks[0] < 0.75 * points[0]


def test_small_blocks_make_full_ones():
    columns = rows_of("uniform", 2, BLOCK_ROWS * 64)
    curve = curve_over(columns)
    table = table_of(columns, along(curve, columns), 8)
    information = curve_information(CurveBlocks(curve, *table), BLOCK_ROWS)
    assert information.total_block_count == 512
    parts = cut_at_once(curve, columns, BLOCK_ROWS)
    assert information.sorted_block_count == pytest.approx(len(parts), rel=0.15)
    *points, _ = opened(bounds_of(columns, parts), columns)
    assert information.sorted_point_blocks == pytest.approx(points, rel=0.3)


def test_the_order_of_blocks_makes_little_difference():
    columns = rows_of("skewed", 2, BLOCK_ROWS * 200)
    curve = curve_over(columns)
    lower, upper, unbounded, rows = table_of(columns, along(curve, columns))
    order = np.random.default_rng(0).permutation(200)
    one = curve_information(CurveBlocks(curve, lower, upper, unbounded, rows), BLOCK_ROWS)
    shuffled = ([column.take(pa.array(order)) for column in ends] for ends in (lower, upper))
    other = curve_information(CurveBlocks(curve, *shuffled, unbounded, rows), 64)
    assert one.point_blocks == other.point_blocks
    assert one.sorted_point_blocks == pytest.approx(other.sorted_point_blocks, rel=0.05)


def test_figures_are_json_and_none_are_missing():
    curve = Curve.of([pa.array(["a", "b"]), pa.array([1, 2])])
    assert curve is not None
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
    nothing = curve_information(none, 10)
    assert nothing.as_dict()["point_blocks"] == [0, 0]
