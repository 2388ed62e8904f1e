"""Metrics against their definitions."""

import naive
import numpy as np
import pytest
from block_tables import build
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.planner import clustering_information
from dbt_recluster.planner.metrics import rounded

PAIRS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: tuple(sorted(pair)))
TALL = st.integers(1, 200).map(lambda count: [(0, 1)] * count + [(5, 6)] * 7)
BOUNDS = st.lists(PAIRS, max_size=40) | TALL
# Small numbers for the blocks of a table, one for each.
NUMBERS = st.lists(st.integers(0, 3), min_size=207, max_size=207)


@given(BOUNDS)
@example([(0, 9)] * 5)
def test_every_metric_equals_its_naive_twin(bounds):
    blocks = build(bounds)
    metrics = clustering_information(blocks).as_dict()
    expected = naive.information(bounds, [low == high for low, high in bounds])
    assert metrics.keys() - expected.keys() == {"levels", "total_rows", "total_bytes"}
    for name, value in expected.items():
        assert metrics[name] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), name
    for name in ("average_overlaps", "average_depth"):
        assert metrics[name] == expected[name], name
    at_points = [depth for _, depth in sorted(naive.point_depths(bounds).items())]
    assert blocks.intervals.depth().tolist() == at_points


@given(BOUNDS, NUMBERS, NUMBERS)
def test_partitions_never_meet_and_a_level_has_the_figures_of_its_blocks_alone(bounds, levels, partitions):
    n = len(bounds)
    placed = [((part, low), (part, high)) for (low, high), part in zip(bounds, partitions, strict=False)]
    levels, rows = levels[:n], [7 * place for place in range(n)]
    blocks = build(bounds, level=levels, rows=rows, partition=partitions[:n])
    assert blocks.intervals.depths().tolist() == naive.depths(placed)
    assert blocks.intervals.overlaps().tolist() == naive.overlaps(placed)
    members = {level: [n for n, own in enumerate(levels) if own == level] for level in sorted(set(levels))}
    metrics = clustering_information(blocks)
    assert metrics.total_rows == sum(rows)
    assert metrics.levels == {
        str(level): {
            "blocks": len(of_level),
            "rows": sum(rows[n] for n in of_level),
            "average_depth": naive.mean(naive.depths([placed[n] for n in of_level])),
        }
        for level, of_level in members.items()
    }


@pytest.mark.parametrize(
    ("bounds", "ratio"),
    [
        ([(0, 9)] * 5, 30.1),
        ([(0, 2)] * 3 + [(4, 5), (7, 8)], 71.4),
        ([(0, 2), (1, 4), (3, 6), (8, 9), (11, 12)], 81.9),
        ([(2 * i, 2 * i + 1) for i in range(5)], 100.0),
    ],
)
def test_ratios_are_those_of_figure_5_of_the_patent(bounds, ratio):
    """Of five partitions, all, three, a chain of three, and none overlap."""
    metrics = clustering_information(build(bounds))
    assert round(metrics.clustering_ratio, 1) == ratio


def test_the_reducible_ratio_leaves_out_full_constant_blocks():
    """Ten days of four full blocks each have a ratio of 39.8 for ever, although no merge can change them."""
    days = [(day, day) for day in range(10)] * 4
    metrics = clustering_information(build(days, rows=[10] * 40), block_rows=10)
    assert (metrics.clustering_ratio, metrics.reducible_ratio) == (39.794, 100.0)
    # A small constant block and two wide ones count, and overlap each other alone.
    metrics = clustering_information(build([*days, (3, 3), (0, 9), (2, 5)], rows=[10] * 40 + [4, 9, 9]), block_rows=10)
    assert metrics.reducible_ratio == round(100 - 100 * np.log10(3), 4)


@given(
    st.lists(st.tuples(PAIRS, st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=30),
    st.integers(1, 20),
    st.booleans(),
)
@example([((0, 9), 40, 0)] * 3, 4, True)
@example([((5, 5), 40, 0), ((6, 9), 3, 0)], 4, True)  # all rows of a constant block are asked for
def test_the_read_of_one_key_equals_its_naive_twin(given_blocks, row_group_bytes, is_sorted):
    bounds, sizes, levels = zip(*given_blocks, strict=True)
    blocks = build(bounds, bytes=sizes, level=levels)
    metrics = clustering_information(blocks, row_group_bytes=row_group_bytes, is_sorted=is_sorted)
    plain = [(*pair, size, level) for pair, size, level in given_blocks]
    expected = naive.key_read(plain, row_group_bytes, is_sorted)
    assert (metrics.key_read_bytes, metrics.total_bytes) == (expected, sum(sizes))
    unknown = clustering_information(build(bounds), row_group_bytes=row_group_bytes)
    assert unknown.key_read_bytes is None


def test_averages_are_rounded_half_away_from_zero():
    assert str(rounded(-1e-17)) == "0.0"
    # 160,000 blocks of which 40,008 meet in pairs: 1.25005, whose binary fraction lies below the half.
    pairs, alone = 20_004, 119_992
    bounds = [(i, i) for i in range(pairs)] * 2 + [(pairs + i, pairs + i) for i in range(alone)]
    assert clustering_information(build(bounds)).average_depth == 1.2501
