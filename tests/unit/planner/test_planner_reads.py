"""Reads: depth where they end, the weights that follow from it, and plans that leave the rest of the keys alone."""

import datetime
import itertools

import naive
import numpy as np
import pyarrow as pa
import pytest
from block_tables import planned_sets
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.verdict import reason_text
from dbt_recluster.planner import (
    Blocks,
    BoundsError,
    Policy,
    Reads,
    clustering_information,
    plan,
    read_costs,
    read_depth,
)
from dbt_recluster.planner.reads import smooth

# A key of two columns, NULL among them; a range may name the first column only.
KEYS = st.tuples(st.none() | st.integers(0, 4), st.none() | st.sampled_from("abc"))
BLOCKS = st.lists(st.tuples(KEYS, KEYS).map(lambda pair: sorted(pair, key=naive.tuple_order)), max_size=8)
ENDS = st.tuples(st.none() | st.integers(-1, 5), st.none() | st.sampled_from("abc"))


def order_of_end(end, columns, is_upper):
    """Where an end lies among keys: a column without a value, and all that follow it, lie beyond all values."""
    known = []
    for value in end[:columns]:
        if value is None:
            break
        known.append(naive.key_order(value))
    return tuple(known + [(9, 0) if is_upper else (-1, 0)] * (2 - len(known)))


def ends_of(reads, columns):
    """The ends that count, as sort keys, with their weights."""
    for lower, upper, weight in reads:
        low, high = order_of_end(lower, columns, False), order_of_end(upper, columns, True)
        if lower[0] is not None:
            yield low, weight
        if upper[0] is not None and (low != high or lower[0] is None):
            yield high, weight


@st.composite
def tables(draw):
    """Blocks with a partition and bytes each, and reads of the first column or of both, with weights."""
    blocks = draw(BLOCKS)
    columns = draw(st.sampled_from([1, 2]))
    ranges = st.tuples(ENDS, ENDS, st.sampled_from([0, 0.5, 1, 3])).filter(
        lambda read: order_of_end(read[0], columns, False) <= order_of_end(read[1], columns, True)
    )
    reads = draw(st.lists(ranges, max_size=8))
    numbers = st.lists(st.integers(0, 9), min_size=len(blocks), max_size=len(blocks))
    partition, sizes = draw(numbers.map(lambda given: [n % 3 for n in given])), draw(numbers)
    bounds = [[[block[side][column] for block in blocks] for column in (0, 1)] for side in (0, 1)]
    asked = [[[read[side][column] for read in reads] for column in range(columns)] for side in (0, 1)]
    return blocks, partition, sizes, bounds, reads, Reads(*asked, [weight for *_, weight in reads]), columns


@given(tables())
def test_read_depth_is_the_weighted_mean_at_the_ends(table):
    """Each partition has the ends that lie among its blocks."""
    blocks, partition, _, bounds, reads, asked, columns = table
    total = weighted = 0
    for (end, weight), part in itertools.product(ends_of(reads, columns), range(3)):
        depth = sum(
            naive.tuple_order(low) <= end <= naive.tuple_order(high)
            for (low, high), own in zip(blocks, partition, strict=True)
            if own == part
        )
        total += weight * (depth > 0)
        weighted += weight * depth
    described = Blocks.build(*bounds, reads=asked, partition=partition)
    assert read_depth(described) == pytest.approx(weighted / total if total else 0)


@given(tables())
def test_what_a_read_opens_and_wastes(table):
    blocks, partition, sizes, columns_bounds, reads, asked, columns = table
    costs = read_costs(*columns_bounds, sizes, asked, partition)
    bounds = [(naive.tuple_order(low), naive.tuple_order(high)) for low, high in blocks]
    for read, (lower, upper, _) in enumerate(reads):
        low, high = order_of_end(lower, columns, False), order_of_end(upper, columns, True)
        opened = [place for place, (first, last) in enumerate(bounds) if first <= high and last >= low]
        assert costs.opened[read] == len(opened)
        assert costs.bytes[read] == sum(sizes[place] for place in opened)
        if low == high:
            ends = [(1, opened)]
        else:
            ends = [(0.5, [place for place in opened if lower[0] is not None and bounds[place][0] < low])]
            ends += [(0.5, [place for place in opened if upper[0] is not None and bounds[place][1] > high])]
        wasted = [share * (len(over) - len({partition[place] for place in over})) for share, over in ends]
        assert costs.wasted[read] == sum(wasted)
        mean = [sum(sizes[place] for place in over) / max(1, len(over)) for _, over in ends]
        assert costs.bytes_wasted[read] == pytest.approx(sum(np.multiply(wasted, mean)))


def test_read_depth_is_among_the_metrics_if_reads_are_known():
    bounds = [0, 5], [10, 15]
    assert "read_depth" not in clustering_information(Blocks.build(*bounds)).as_dict()
    reads = Reads([7, 1, None], [7, 20, 12], [4, 2, 1])
    # 7 once at depth 2, 1 at depth 1, 12 at depth 1; 20 lies beyond all blocks, and one end is open.
    assert clustering_information(Blocks.build(*bounds, reads=reads)).read_depth == round(11 / 7, 4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([datetime.date(2026, 1, 1), datetime.date(2026, 2, 1)], [datetime.date(2026, 3, 1)] * 2),
        (pa.array(["a", "b"]), pa.array(["c", "d"])),
        (np.array([1, 2], "datetime64[us]"), np.array([3, 3], "datetime64[us]")),
    ],
)
def test_reads_have_the_types_of_bounds(first, second):
    blocks = Blocks.build(first, second, reads=Reads(first, second))
    assert read_depth(blocks) > 1


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        (Reads([5], [4]), "lower bound above upper in 1 of 1 reads, first at position 0"),
        (Reads(["a"], ["b"]), "bounds cannot be compared"),
        (Reads([1, 2], [3]), "one length, not of 1, 2"),
        (Reads([[1], [2]], [[1], [3]]), "reads have 2 key columns, and the key has 1"),
        (Reads([[1], [2]], [3]), "lower has 2 key columns, upper has 1"),
        (Reads([1], [2], [-1]), "at least 0, and their sum finite"),
        (Reads([1, 1], [2, 2], [1e308, 1e308]), "at least 0, and their sum finite"),
        (Reads([1], [2], [1, 2]), "weight must have 1 values, one for each read"),
        (Reads([1], [2], ["often"]), "weights of reads must be numbers"),
    ],
)
def test_reads_that_make_no_sense_are_refused(reads, message):
    with pytest.raises(BoundsError, match=message):
        Blocks.build([0], [10], reads=reads)


def loads(count, reads=None, per_load=8):
    """Disjoint blocks of several loads that cover all keys, of which the first has been merged before."""
    lower = np.tile(np.arange(per_load) * 100.0, count) + np.repeat(np.arange(count), per_load)
    level, run = (np.repeat(each, per_load) for each in ([5] + [0] * (count - 1), np.arange(count) + 1))
    return Blocks.build(lower, lower + 90, rows=[100] * len(lower), level=level, run=run, reads=reads)


def test_only_keys_at_which_reads_end_are_merged():
    def merged(blocks):
        return sorted(itertools.chain(*planned_sets(blocks, depth=2, block_rows=100)))

    assert merged(loads(4)) == list(range(32))
    blocks = loads(4, Reads([310.0], [350.0], [1000]))
    assert merged(blocks) == [3, 11, 19, 27]
    assert "at the ends of reads" in reason_text(plan(blocks, Policy(depth=2, block_rows=100)).reasons)
    # What is in the range between two ends is needed anyway.
    around = loads(4, Reads([10.0], [750.0], [1000]))
    assert merged(around) == [0, 7, 8, 15, 16, 23, 24, 31]


@pytest.mark.parametrize(("count", "is_planned"), [(5, False), (80, False), (81, True)])
def test_what_no_read_asks_for_does_not_overlap_without_bound(count, is_planned):
    """The average depth may be twenty times the threshold."""
    assert planned_sets(loads(count), depth=4, block_rows=100)
    beyond = loads(count, Reads([9000.0], [9001.0]))
    assert bool(planned_sets(beyond, depth=4, block_rows=100)) == is_planned


@given(st.lists(st.lists(st.sampled_from([0, 0, 1, 2, 500, 0.25]), max_size=40), max_size=6))
def test_smoothing_keeps_the_total_of_each_partition_apart(partitions):
    units = np.array([len(counts) for counts in partitions], np.int64)
    together = smooth(np.array([c for counts in partitions for c in counts], np.float64), units)
    parts = np.split(together, np.cumsum(units)[:-1]) if len(units) else []
    for counts, rates in zip(partitions, parts, strict=True):
        assert (rates >= 0).all()
        assert rates.sum() == pytest.approx(sum(counts))
        np.testing.assert_array_equal(rates, smooth(np.array(counts, np.float64), np.array([len(counts)])))


def test_chance_is_evened_out_and_what_is_asked_for_is_not():
    random = np.random.default_rng(0)
    even = smooth(random.poisson(3, 4096).astype(float), np.array([4096]))
    assert np.unique(np.round(even, 6)).size < 20
    assert np.abs(even / even.mean() - 1).mean() < 0.05
    months = np.zeros(4096)
    months[::512] = 60
    assert (smooth(months, np.array([4096])) == months).all()
    rate = np.where(np.arange(4096) // 410 == 4, 9, 1 / 9)
    hot = smooth(random.poisson(rate).astype(float), np.array([4096]))
    assert hot[1700:2000].mean() / hot[:1500].mean() > 40
