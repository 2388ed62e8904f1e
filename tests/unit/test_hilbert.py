"""The Hilbert curve, against brute force over whole grids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.key.curve import curve_states, hilbert_index, hilbert_range

GRIDS = [(1, 5), (2, 5), (3, 3), (4, 2)]


def cells(dimensions: int, bits: int) -> np.ndarray:
    return np.indices((1 << bits,) * dimensions).reshape(dimensions, -1)


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_the_curve_visits_every_cell_once_and_only_goes_to_neighbours(dimensions: int, bits: int) -> None:
    grid = cells(dimensions, bits)
    place = hilbert_index(list(grid), bits)
    assert sorted(place) == list(range(grid.shape[1]))
    steps = np.abs(np.diff(grid[:, np.argsort(place)], axis=1)).sum(axis=0)
    assert (steps == 1).all()


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_a_cell_of_a_coarser_grid_is_a_range_of_the_curve(dimensions: int, bits: int) -> None:
    grid = cells(dimensions, bits)
    place = hilbert_index(list(grid), bits)
    coarser = hilbert_index(list(grid >> 1), bits - 1)
    assert (place >> dimensions == coarser).all()


def test_in_one_dimension_the_curve_is_the_axis() -> None:
    values = np.arange(1 << 10)
    assert (hilbert_index([values], 10) == values).all()
    lower, upper = hilbert_range([values], [np.maximum(values, 700)], 10)
    assert (lower == values).all()
    assert (upper == np.maximum(values, 700)).all()


def test_the_first_cells_in_two_dimensions() -> None:
    x, y = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 0])
    assert hilbert_index([x, y], 2).tolist() in ([0, 1, 2, 3, 4], [0, 3, 2, 1, 14])


@given(st.sampled_from(GRIDS), st.data())
def test_the_range_of_a_box_is_that_of_its_cells(grid: tuple[int, int], data: st.DataObject) -> None:
    dimensions, bits = grid
    corner = st.integers(0, (1 << bits) - 1)
    ends = np.sort(np.array([data.draw(st.tuples(corner, corner)) for _ in range(dimensions)]), axis=1)
    every = cells(dimensions, bits)
    inside = ((every >= ends[:, :1]) & (every <= ends[:, 1:])).all(axis=0)
    place = hilbert_index(list(every[:, inside]), bits)
    lower, upper = hilbert_range(list(ends[:, :1]), list(ends[:, 1:]), bits)
    assert (lower.tolist(), upper.tolist()) == ([place.min()], [place.max()])


def test_corners_of_large_grids_stay_within_int64() -> None:
    for dimensions, bits in ((2, 31), (3, 20), (4, 15)):
        end = np.array([(1 << bits) - 1])
        everything = hilbert_range([end * 0] * dimensions, [end] * dimensions, bits)
        assert [int(place[0]) for place in everything] == [0, (1 << dimensions * bits) - 1]


def test_arguments_are_left_alone() -> None:
    lower, upper = [np.array([1]), np.array([2])], [np.array([5]), np.array([6])]
    hilbert_range(lower, upper, 3)
    assert [*lower, *upper] == [np.array([1]), np.array([2]), np.array([5]), np.array([6])]


def test_states_are_few() -> None:
    assert [len(curve_states(dimensions).place) for dimensions in (1, 2, 3, 4)] == [1, 4, 12, 32]
