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

TIMES = st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2100, 1, 1))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6)
# Long common prefixes and zero bytes are what a comparison eight bytes at a time could get wrong.
TEXT = st.one_of(st.text(), st.text("ab\0é", max_size=40), st.integers(0, 20).map(lambda n: "a" * n))
INTEGERS = st.integers(-(2**63), 2**63 - 1)

TYPES = {
    "booleans": (st.booleans(), pa.bool_()),
    "integers": (INTEGERS, pa.int64()),
    "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
    "small integers": (st.integers(-5, 5), pa.int32()),
    "floats": (st.floats(), pa.float64()),
    "text": (TEXT, pa.string()),
    "large text": (TEXT, pa.large_string()),
    "binary": (st.binary(), pa.binary()),
    "dates": (st.dates(), pa.date32()),
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
    forms = [
        lambda keys: keys,
        lambda keys: pa.array(keys, arrow_type),
        lambda keys: pa.chunked_array([keys[:2], keys[2:]], arrow_type),
        lambda keys: pa.array([None, *keys], arrow_type)[1:],
        *([lambda keys: pa.array(keys, arrow_type).dictionary_encode()] if name == "integers" else []),
    ]
    for form in forms:
        assert_ranks(Blocks.build(form(lower), form(upper)), bounds)


@given(pairs(st.integers(-50, 50)))
def test_numpy_arrays_keep_their_order(bounds):
    bounds = [pair for pair in bounds if None not in pair]
    lower, upper = [low for low, _ in bounds], [high for _, high in bounds]
    for kind in (np.int8, np.int32, np.int64, np.float32, np.float64):
        assert_ranks(Blocks.build(np.array(lower, kind), np.array(upper, kind)), bounds)
    days = np.array(lower, "datetime64[D]"), np.array(upper, "datetime64[D]").astype("datetime64[s]")
    assert_ranks(Blocks.build(*days), bounds)


@given(
    st.lists(
        st.tuples(*[st.tuples(st.integers(0, 3) | st.none(), st.integers(0, 3) | st.none())] * 2, st.integers(0, 2)),
        max_size=12,
    )
)
def test_compound_keys_compare_left_to_right_in_their_partition(rows):
    ends = [sorted(pair, key=naive.tuple_order) for *pair, _ in rows]
    lower, upper = ([[key[side][column] for key in ends] for column in (0, 1)] for side in (0, 1))
    blocks = Blocks.build(lower, upper, partition=[part for *_, part in rows])
    assert_ranks(blocks, [((part, *low), (part, *high)) for (low, high), (*_, part) in zip(ends, rows, strict=True)])


def test_partitions_may_be_anything_and_do_not_depend_on_order():
    values = ["b", None, ("x", 1), "b", None, ("x", 1)]
    forward = Blocks.build([1] * 6, [2] * 6, partition=values).partition
    backward = Blocks.build([1] * 6, [2] * 6, partition=values[::-1]).partition
    assert forward.tolist() == backward.tolist()[::-1]
    assert len(set(forward.tolist())) == 3


NAN, INFINITY = float("nan"), float("inf")
DAYS = np.array(["NaT", "2020-01-01", "2019-01-01"], "datetime64[D]")
MASKED = np.ma.masked_array([9, 1], [True, False])


@pytest.mark.parametrize(
    ("lower", "upper", "more", "ranks"),
    [
        # Masked and missing values are NULL.
        (MASKED, MASKED, {}, [0, 1, 0, 1]),
        (DAYS[:2], DAYS[[2, 1]], {}, [0, 2, 1, 2]),
        # Integers too large for floats stay exact.
        ([2**53, 2**53 + 1], [2**53 + 1, 2.0**60], {}, [0, 1, 1, 2]),
        ([10**30, -(10**30)], [10**30, 10**30 + 1], {}, [1, 0, 1, 2]),
        # NULL is below every number, and NaN above.
        ([None, -1e308, INFINITY], [None, INFINITY, NAN], {}, [0, 1, 2, 0, 2, 3]),
        ([0.0, NAN], [-0.0, NAN], {}, [0, 1, 0, 1]),
        # An unknown upper bound is above everything in its partition, or in its column.
        ([1, None, 5], [7, None, 2], {"unbounded": [False, True, True]}, [1, 0, 2, 3, 4, 4]),
        ([None, 1], [None, 9], {"unbounded": [True, False], "partition": [0, 1]}, [0, 2, 1, 3]),
        ([[1, 1], [5, 6]], [[1, 1], [None, 9]], {"unbounded": [[False] * 2, [True, False]]}, [0, 1, 3, 2]),
        # A side without any value takes the type of the other.
        ([None, None], ["a", None], {}, [0, 0, 1, 0]),
        ([None], [Decimal("1.5")], {}, [0, 1]),
        (pa.nulls(1), pa.array([3]), {}, [0, 1]),
    ],
)
def test_unusual_bounds_have_the_ranks_of_their_order(lower, upper, more, ranks):
    blocks = Blocks.build(lower, upper, **more)
    assert [*blocks.lower.tolist(), *blocks.upper.tolist()] == ranks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": [1, 2]}, "one length"),
        ({"lower": [3]}, "above upper in 1 of 1 blocks, first at position 0"),
        ({"upper": [None]}, "unbounded True"),
        ({"lower": ["a"]}, "cannot be compared"),
        ({"lower": [1, "a"], "upper": [2, "b"]}, "cannot be compared"),
        ({"lower": [[1], [2]], "upper": [[1]]}, "2 key columns"),
        ({"lower": 3, "upper": 4}, "list"),
        ({"rows": [1, 2]}, "rows must have 1 values"),
        ({"rows": [-1]}, "rows must be at least 0"),
        ({"bytes": [1.5]}, "bytes must be whole numbers"),
        ({"partition": [1, 2]}, "partition must have 1 values"),
        ({"unbounded": [True, False]}, "unbounded must have 1 values"),
        ({"lower": [[1]] * 3, "upper": [[1]] * 3, "unbounded": [[True], [True]]}, "2 masks for 3"),
    ],
)
def test_input_that_does_not_fit_is_an_error_that_says_so(arguments, message):
    with pytest.raises(BoundsError, match=message):
        Blocks.build(**{"lower": [1], "upper": [2], **arguments})
