"""Where sorted sets are split, without Spark: sizes hold whatever the counts are."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.iceberg.rewrite.sample import SplitPoint, choose_split_points
from dbt_recluster.key.box_tree import rows_of_one_value


def sizes(counts: list[int], points: list[SplitPoint]) -> list[float]:
    """Rows in each block when shares are exact."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = [float(starts[point.value] + point.share * counts[point.value]) for point in points]
    return list(np.diff([0.0, *places, float(starts[-1])]))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 200))
def test_blocks_are_neither_too_large_nor_too_small(counts: list[int], limit: int) -> None:
    points = choose_split_points(np.array(counts), float(sum(counts)), limit)
    actual = sizes(counts, points)
    assert math.isclose(sum(actual), sum(counts))
    assert all(size <= limit + 1e-6 for size in actual)
    # Shares of one value keep a distance from the limit, which small blocks feel.
    least = limit / 2 if rows_of_one_value(limit) > 0.9 * limit else rows_of_one_value(limit) / 2
    assert all(size >= least - 1e-6 for size in actual[:-1])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
@example([2, 4], 5)  # blocks that would begin before the value that is split
def test_points_ascend_and_split_a_value_only_if_it_must_be(counts: list[int], limit: int) -> None:
    points = choose_split_points(np.array(counts), float(sum(counts)), limit)
    places = [(point.value, point.share) for point in points]
    assert places == sorted(set(places))
    assert all(0 <= point.share < 1 for point in points)
    if max(counts) <= limit / 2:
        assert all(point.share == 0 for point in points)


def test_blocks_are_equal_rather_than_full() -> None:
    assert sizes([1] * 21, choose_split_points(np.ones(21, dtype=np.int64), 21, 10)) == [7, 7, 7]
    assert choose_split_points(np.array([5, 5]), 10, 10) == []
    assert choose_split_points(np.array([], dtype=np.int64), 0, 10) == []
