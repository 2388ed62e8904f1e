"""Reads of a key with a curve: the blocks that they open, and how many a sorted table would have them open."""

import numpy as np
import pyarrow as pa
import pytest
from curve_tables import bounds_of, cut_at_once
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import Reads
from dbt_recluster.planner.curve_information import curve_read_costs
from dbt_recluster.planner.curves import CurveBlocks

ROWS, BLOCK = 40_000, 400


def costs_of(columns, parts, curve, reads):
    """What reads cost of blocks that hold these rows; a row has 10 bytes."""
    bounds = bounds_of(columns, parts)
    return curve_read_costs(CurveBlocks(curve, *bounds), 10 * bounds[-1], reads)


@pytest.mark.parametrize("leading", [0, 1])
def test_what_is_wasted_is_what_a_sort_would_spare(leading):
    """Twin: the same rows really cut at once, those of each leading value by themselves."""
    random = np.random.default_rng(0)
    columns = [random.integers(0, 10_000, ROWS), random.zipf(1.2, ROWS) % 5_000]
    curve = Curve.of([pa.array(column) for column in columns])
    tenants = [random.integers(0, 3, ROWS)] * leading
    everything = [*tenants, *columns]
    values = random.integers(0, ROWS, 40)
    points = [[None] * 40 for _ in everything]
    points[leading] = columns[0][values].tolist()
    if leading:
        points[0] = [1 if place % 2 else None for place in range(40)]
    reads = Reads(points, points)
    best = costs_of(everything, cut_at_once(curve, columns, BLOCK, *tenants), curve, reads)
    worst = costs_of(everything, np.split(np.arange(ROWS), ROWS // BLOCK), curve, reads)
    assert worst.opened.mean() > 0.95 * ROWS // BLOCK
    # The estimate for a sorted table is near the truth, so little of it seems wasted.
    assert best.wasted.sum() <= 0.15 * best.opened.sum()
    spared = (worst.opened - best.opened).sum()
    assert worst.wasted.sum() == pytest.approx(spared, rel=0.1)
    assert worst.bytes.tolist() == (10 * BLOCK * worst.opened).tolist()
    assert worst.bytes_wasted == pytest.approx(10 * BLOCK * worst.wasted)
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
        [pa.array([block[column][side] for block in blocks], pa.int64()) for column in range(3)]
        for side in (0, 1)
    )
    unknown = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    unbounded = [np.zeros(n, np.bool_), np.array(unknown), np.zeros(n, np.bool_)]
    curve = Curve.of([pa.array(range(11)), pa.array(range(11))], bits=4)
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


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.none() | st.integers(0, 5), st.integers(1, 40)),
        min_size=1,
        max_size=12,
    )
)
def test_groups_hold_whole_values_and_about_a_full_block(blocks):
    partition, values, rows = (list(column) for column in zip(*blocks, strict=True))
    column, none = pa.array(values, pa.int64()), np.zeros(len(rows), np.bool_)
    curve = Curve.of([column])
    blocks = CurveBlocks(
        curve,
        [column] * 2,
        [column] * 2,
        [none] * 2,
        np.array(rows),
        np.unique(partition, return_inverse=True)[1],
    )
    group = blocks.groups(20)
    assert sorted(set(group.tolist())) == list(range(group.max() + 1))
    keys = [(part, -1 if value is None else value) for part, value in zip(partition, values, strict=True)]
    of_key = {}
    for key, number in zip(keys, group.tolist(), strict=True):
        assert of_key.setdefault(key, number) == number
    # In the order of the keys, and never two partitions in one.
    assert [of_key[key] for key in sorted(of_key)] == sorted(of_key[key] for key in of_key)
    for number in range(group.max() + 1):
        assert len({part for part, of in zip(partition, group.tolist(), strict=True) if of == number}) == 1
