"""Where sorted sets are split, without Spark: sizes hold whatever the counts are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbt_recluster.iceberg.rewrite.split_points import (
    CellBorders,
    SplitPoint,
    choose_split_points,
    rows_of_one_value,
)


def sizes(counts: list[int], points: list[SplitPoint]) -> list[float]:
    """Rows in each block when shares are exact."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = [float(starts[point.value] + point.share * counts[point.value]) for point in points]
    return list(np.diff([0.0, *places, float(starts[-1])]))


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 200))
def test_blocks_are_neither_too_large_nor_too_small(counts: list[int], limit: int) -> None:
    points = choose_split_points(np.array(counts), float(sum(counts)), limit)
    actual = sizes(counts, points)
    assert math.isclose(sum(actual), sum(counts))
    assert all(size <= limit + 1e-6 for size in actual)
    # Shares of one value keep a distance from the limit, which small blocks feel.
    least = limit / 2 if rows_of_one_value(limit) > 0.9 * limit else rows_of_one_value(limit) / 2
    assert all(size >= least - 1e-6 for size in actual[:-1])


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
@example([2, 4], 5)  # blocks that would begin before the value that is split
def test_points_ascend_and_split_a_value_only_if_it_must_be(counts: list[int], limit: int) -> None:
    points = choose_split_points(np.array(counts), float(sum(counts)), limit)
    places = [(point.value, point.share) for point in points]
    assert places == sorted(set(places))
    assert all(0 <= point.share < 1 for point in points)
    if max(counts) <= limit / 2:
        assert all(point.share == 0 for point in points)


def test_a_value_of_many_blocks() -> None:
    counts = [50, 900, 50]
    points = choose_split_points(np.array(counts), 10_000, 1000)
    split = [point for point in points if point.share]
    assert {point.value for point in split} == {1}
    assert len(split) >= 9


def test_nothing_to_split() -> None:
    assert choose_split_points(np.array([], dtype=np.int64), 0, 10) == []
    assert choose_split_points(np.array([5, 5]), 10, 10) == []


def test_equal_blocks_rather_than_full_ones() -> None:
    assert sizes([1] * 21, choose_split_points(np.ones(21, dtype=np.int64), 21, 10)) == [7, 7, 7]


KEYS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 255)), min_size=1, max_size=60, unique=True)


def cells_of(keys: list[tuple[int, int]]) -> CellBorders:
    leading, place = (np.array(column, dtype=np.int64) for column in zip(*sorted(keys), strict=True))
    return CellBorders.of(place, leading != np.roll(leading, 1), 2, 4)


@given(KEYS)
def test_a_cell_begins_between_two_keys(keys: list[tuple[int, int]]) -> None:
    """Against all cells of the grid: the largest one that begins above one key and not above the next."""
    keys = sorted(keys)
    cells = cells_of(keys)
    for position in range(1, len(keys)):
        (before, low), (leading, high) = keys[position - 1 : position + 1]
        level, start = int(cells.level[position]), int(cells.start[position])
        if leading != before:
            assert (level, start) == (5, 0)
            continue
        begin = {
            size: [first for first in range(0, 256, 4**size) if low < first <= high] for size in range(4)
        }
        largest = max(size for size in begin if begin[size])
        assert level == largest + 1
        assert start in begin[largest]


@settings(deadline=None)
@given(KEYS, st.integers(1, 200), st.data())
def test_blocks_of_a_curve_keep_the_limits(
    keys: list[tuple[int, int]], limit: int, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.integers(1, 100), min_size=len(keys), max_size=len(keys)))
    cells = cells_of(keys)
    points = choose_split_points(np.array(counts), float(sum(counts)), limit, cells)
    places = [(point.value, point.share) for point in points]
    assert places == sorted(set(places))
    actual = sizes(counts, points)
    assert math.isclose(sum(actual), sum(counts))
    assert all(size <= limit + 1e-6 for size in actual)
    least = limit / 2 if rows_of_one_value(limit) > 0.9 * limit else rows_of_one_value(limit) / 2
    assert all(size >= least - 1e-6 for size in actual[:-1])


@pytest.mark.parametrize("seed", range(3))
def test_a_curve_is_cut_at_the_border_of_the_largest_cell_in_reach(seed: int) -> None:
    place = np.sort(np.random.default_rng(seed).integers(0, 1 << 20, 40_000))
    place, counts = np.unique(place, return_counts=True)
    cells = CellBorders.of(place, np.zeros(len(place), dtype=bool), 2, 10)
    points = choose_split_points(counts, 40_000.0, 1000, cells)
    ends = np.cumsum(counts)
    actual = sizes(counts.tolist(), points)
    assert all(size >= 700 - 1e-6 for size in actual[:-2])
    assert all(size >= 500 - 1e-6 for size in actual)
    begin = 0
    for point in points[:-1]:
        reach = np.flatnonzero((ends - begin >= 700) & (ends - begin <= 1000)) + 1
        assert cells.level[point.value] == cells.level[reach].max()
        begin = int(ends[point.value - 1])
