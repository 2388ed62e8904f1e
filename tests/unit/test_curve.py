"""Ranks of values on a curve, and the Hilbert curve itself, against brute force."""

import bisect
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbt_recluster.key.curve import Curve, hilbert_index, hilbert_range

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=True)),
    "text": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary()),
    "date": (pa.date32(), st.dates()),
    "decimal": (
        pa.decimal128(38, 2),
        st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**30, min_value=-(10**30)),
    ),
    "boolean": (pa.bool_(), st.booleans()),
}


def place(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def rank(ends: list[Any], value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and math.isnan(value):
        return len(ends)
    return bisect.bisect_right(list(map(place, ends)), place(value))


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_rank_is_the_number_of_boundaries_that_are_not_above_it(kind: str, data: st.DataObject) -> None:
    type_, strategy = VALUES[kind]
    sample = data.draw(st.lists(st.none() | strategy, max_size=40))
    values = data.draw(st.lists(st.none() | strategy, max_size=20))
    curve = Curve.from_columns([pa.array(sample, type_)], bits=3)
    (ends,) = (column.to_pylist() for column in curve.boundaries)
    assert len(ends) == 7
    assert list(map(place, ends)) == sorted(map(place, ends))
    (ranks,) = curve.ranks([pa.array(values, type_)])
    assert ranks.tolist() == [rank(ends, value) for value in values]


def test_rows_beyond_an_ascending_column_follow_all_others() -> None:
    columns = [pa.array([1, 8, 9, 2, None, 9]), pa.array([7.0, 1.0, 2.0, math.nan, 9.0, None])]
    drawn = Curve.from_columns([pa.array(range(9)), pa.array(np.arange(9.0))], bits=2)
    assert [above.tolist() for above in drawn.beyond(columns)] == [
        [False, True, True, False, False, True],
        [True, False, False, True, True, False],
    ]
    place = drawn.index(columns)
    for ascending, new in [
        ((), []),
        ((False, False), []),
        ((True, False), [1, 2, 5]),
        ((True, True), [0, 1, 2, 3, 4, 5]),
    ]:
        expected = place + 16 * np.isin(range(6), new)
        assert replace(drawn, ascending=ascending).index_of_load(columns).tolist() == expected.tolist()


def test_parts_have_equal_shares_of_rows_for_which_weights_stand() -> None:
    column = pa.array(np.random.default_rng(0).lognormal(size=100_000))
    (ranks,) = Curve.from_columns([column], bits=4).ranks([column])
    assert np.abs(np.bincount(ranks, minlength=16) - 6_250).max() <= 1
    weighted = Curve.from_columns([pa.array([1, 2, 3])], np.array([1.0, 1.0, 2.0]), bits=2)
    assert weighted.boundaries[0].to_pylist() == [2, 3, 3]


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
    # A cell of a coarser grid is a range of the curve.
    coarser = hilbert_index(list(grid >> 1), bits - 1)
    assert (place >> dimensions == coarser).all()


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
