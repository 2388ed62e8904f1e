"""Ranks: every accepted type gives the order that Python's own sort gives."""

import datetime
import itertools
from decimal import Decimal

import naive
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import Blocks, BoundsError

DATES = st.dates()
TIMES = st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2100, 1, 1))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6)
# Long common prefixes and zero bytes are what a comparison eight bytes at a time could get wrong.
TEXT = st.one_of(st.text(), st.text("ab\0é", max_size=40), st.integers(0, 20).map(lambda n: "a" * n))
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats()

TYPES = {
    "booleans": (st.booleans(), pa.bool_()),
    "integers": (INTEGERS, pa.int64()),
    "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
    "small integers": (st.integers(-5, 5), pa.int32()),
    "floats": (FLOATS, pa.float64()),
    "text": (TEXT, pa.string()),
    "large text": (TEXT, pa.large_string()),
    "binary": (st.binary(), pa.binary()),
    "dates": (DATES, pa.date32()),
    "timestamps": (TIMES, pa.timestamp("us")),
    "decimals": (DECIMALS, pa.decimal128(20, 2)),
    "times": (st.times(), pa.time64("us")),
}


def pairs(values):
    """(lower, upper) pairs with None among them."""
    optional = st.none() | values
    return st.lists(st.tuples(optional, optional), max_size=12).map(
        lambda rows: [tuple(sorted(row, key=naive.key_order)) for row in rows]
    )


def assert_ranks(blocks, bounds):
    """Ranks compare as the keys do, and are dense."""
    ranks = [*blocks.lower.tolist(), *blocks.upper.tolist()]
    keys = [naive.tuple_order(low) for low, _ in bounds] + [naive.tuple_order(high) for _, high in bounds]
    for (rank, key), (other_rank, other_key) in itertools.combinations(zip(ranks, keys, strict=True), 2):
        assert (rank < other_rank) == (key < other_key)
        assert (rank == other_rank) == (key == other_key)
    assert sorted(set(ranks)) == list(range(blocks.points))


@pytest.mark.thorough
@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_every_type_keeps_its_order_in_lists_and_arrow(name, data):
    values, arrow_type = TYPES[name]
    bounds = data.draw(pairs(values))
    lower, upper = [low for low, _ in bounds], [high for _, high in bounds]
    assert_ranks(Blocks.build(lower, upper), bounds)
    arrow = Blocks.build(pa.array(lower, arrow_type), pa.array(upper, arrow_type))
    assert_ranks(arrow, bounds)
    chunks = [pa.chunked_array([keys[:2], keys[2:]], arrow_type) for keys in (lower, upper)]
    assert_ranks(Blocks.build(*chunks), bounds)
    sliced = Blocks.build(pa.array([None, *lower], arrow_type)[1:], pa.array([None, *upper], arrow_type)[1:])
    assert_ranks(sliced, bounds)


@given(pairs(INTEGERS))
def test_dictionary_encoded_arrow(bounds):
    lower = pa.array([low for low, _ in bounds], pa.int64()).dictionary_encode()
    upper = pa.array([high for _, high in bounds], pa.int64()).dictionary_encode()
    assert_ranks(Blocks.build(lower, upper), bounds)


@given(pairs(st.integers(-50, 50)))
def test_numpy_arrays(bounds):
    bounds = [pair for pair in bounds if None not in pair]
    lower, upper = [low for low, _ in bounds], [high for _, high in bounds]
    for kind in (np.int8, np.int32, np.int64, np.float32, np.float64):
        assert_ranks(Blocks.build(np.array(lower, kind), np.array(upper, kind)), bounds)
    days = np.array(lower, "datetime64[D]"), np.array(upper, "datetime64[D]").astype("datetime64[s]")
    assert_ranks(Blocks.build(*days), bounds)


def test_masked_and_missing_numpy_values_are_null():
    keys = np.ma.masked_array([9, 1], [True, False])
    assert Blocks.build(keys, keys).lower.tolist() == [0, 1]
    lower = np.array(["NaT", "2020-01-01"], "datetime64[D]")
    dates = Blocks.build(lower, np.array(["2019-01-01", "2020-01-01"], "datetime64[D]"))
    assert (dates.lower.tolist(), dates.upper.tolist()) == ([0, 2], [1, 2])


def test_integers_too_large_for_floats_stay_exact():
    blocks = Blocks.build([2**53, 2**53 + 1], [2**53 + 1, 2.0**60])
    assert (blocks.lower.tolist(), blocks.upper.tolist()) == ([0, 1], [1, 2])
    huge = Blocks.build([10**30, -(10**30)], [10**30, 10**30 + 1])
    assert (huge.lower.tolist(), huge.upper.tolist()) == ([1, 0], [1, 2])


@given(st.lists(st.tuples(*[st.integers(0, 3) | st.none()] * 4), max_size=12))
def test_compound_keys_compare_left_to_right(rows):
    bounds = []
    for a, b, c, d in rows:
        bounds.append(tuple(sorted([(a, b), (c, d)], key=naive.tuple_order)))
    lower = [[low[column] for low, _ in bounds] for column in (0, 1)]
    upper = [[high[column] for _, high in bounds] for column in (0, 1)]
    assert_ranks(Blocks.build(lower, upper), bounds)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_partitions_follow_one_another(rows):
    bounds = [((part, min(a, b)), (part, max(a, b))) for a, b, part in rows]
    lower, upper = [low for (_, low), _ in bounds], [high for _, (_, high) in bounds]
    assert_ranks(Blocks.build(lower, upper, partition=[part for _, _, part in rows]), bounds)


def test_partitions_may_be_anything_and_do_not_depend_on_order():
    values = ["b", None, ("x", 1), "b", None, ("x", 1)]
    forward = Blocks.build([1] * 6, [2] * 6, partition=values).partition
    backward = Blocks.build([1] * 6, [2] * 6, partition=values[::-1]).partition
    assert forward.tolist() == backward.tolist()[::-1]
    assert len(set(forward.tolist())) == 3


def test_unbounded_is_above_everything():
    blocks = Blocks.build([1, None, 5], [7, None, 2], unbounded=[False, True, True])
    assert blocks.lower.tolist() == [1, 0, 2]
    assert blocks.upper.tolist() == [3, 4, 4]
    assert blocks.constant.tolist() == [False, False, False]


def test_unbounded_by_column():
    blocks = Blocks.build([[1, 1], [5, 6]], [[1, 1], [None, 9]], unbounded=[[False, False], [True, False]])
    assert blocks.upper.tolist() == [3, 2]


def test_unbounded_stays_within_its_partition():
    blocks = Blocks.build([None, 1, 1], [None, 9, 9], unbounded=[True, False, False], partition=[0, 0, 1])
    assert blocks.upper[0] < blocks.lower[2]


def test_null_is_below_and_nan_above_every_number():
    nan = float("nan")
    blocks = Blocks.build([None, -1e308, float("inf")], [None, float("inf"), nan])
    assert (blocks.lower.tolist(), blocks.upper.tolist()) == ([0, 1, 2], [0, 2, 3])
    assert Blocks.build([0.0], [-0.0]).constant.tolist() == [True]
    assert Blocks.build([nan], [nan]).constant.tolist() == [True]


def test_one_side_without_any_value_takes_the_other_type():
    assert Blocks.build([None, None], ["a", None]).upper.tolist() == [1, 0]
    assert Blocks.build([None], [Decimal("1.5")]).upper.tolist() == [1]
    assert Blocks.build(pa.nulls(1), pa.array([3])).upper.tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": [1, 2], "upper": [1]}, "one length"),
        ({"lower": [3], "upper": [2]}, "above upper in 1 of 1 blocks, first at position 0"),
        ({"lower": [1], "upper": [None]}, "unbounded True"),
        ({"lower": ["a"], "upper": [2]}, "cannot be compared"),
        ({"lower": [1, "a"], "upper": [2, "b"]}, "cannot be compared"),
        ({"lower": [[1], [2]], "upper": [[1]]}, "2 key columns"),
        ({"lower": 3, "upper": 4}, "list"),
        ({"lower": [1], "upper": [2], "rows": [1, 2]}, "rows must have 1 values"),
        ({"lower": [1], "upper": [2], "rows": [-1]}, "rows must be at least 0"),
        ({"lower": [1], "upper": [2], "bytes": [1.5]}, "bytes must be whole numbers"),
        ({"lower": [1], "upper": [2], "level": [-1]}, "level must be at least 0"),
        ({"lower": [1], "upper": [2], "partition": [1, 2]}, "partition must have 1 values"),
        ({"lower": [1], "upper": [2], "unbounded": [True, False]}, "unbounded must have 1 values"),
        (
            {"lower": [[1], [1], [1]], "upper": [[1], [1], [1]], "unbounded": [[True], [True]]},
            "2 masks for 3",
        ),
    ],
)
def test_input_that_does_not_fit_is_an_error_that_says_so(arguments, message):
    with pytest.raises(BoundsError, match=message):
        Blocks.build(**arguments)
