"""Metrics against their definitions."""

import naive
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import (
    Blocks,
    clustering_information,
)
from dbt_recluster.planner.metrics import rounded

PAIRS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: tuple(sorted(pair)))
BOUNDS = st.lists(PAIRS, max_size=40)


def build(bounds, **more):
    return Blocks.build([low for low, _ in bounds], [high for _, high in bounds], **more)


@given(BOUNDS)
def test_every_metric_equals_its_naive_twin(bounds):
    metrics = clustering_information(build(bounds)).as_dict()
    expected = naive.information(bounds, [low == high for low, high in bounds])
    for name, value in expected.items():
        assert metrics[name] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), name
    for name in ("average_overlaps", "average_depth", "overlap_point_depth"):
        assert metrics[name] == expected[name], name


@given(BOUNDS)
def test_depth_and_overlap_of_each_block(bounds):
    blocks = build(bounds)
    assert blocks.intervals.depths().tolist() == naive.depths(bounds)
    assert blocks.intervals.overlaps().tolist() == naive.overlaps(bounds)


@given(BOUNDS)
def test_depth_curve(bounds):
    depths = build(bounds).intervals.depth()
    assert depths.tolist() == [depth for _, depth in sorted(naive.point_depths(bounds).items())]


LEVELS = st.lists(st.integers(0, 3), min_size=40, max_size=40)


@given(BOUNDS, LEVELS, LEVELS)
def test_the_figures_of_a_level_are_those_of_its_blocks_alone(bounds, levels, partitions):
    placed = [((part, low), (part, high)) for (low, high), part in zip(bounds, partitions, strict=False)]
    levels, rows = levels[: len(bounds)], [7 * n for n in range(len(bounds))]
    blocks = build(bounds, level=levels, rows=rows, partition=partitions[: len(bounds)])
    members = {level: [n for n, own in enumerate(levels) if own == level] for level in sorted(set(levels))}
    assert clustering_information(blocks).levels == {
        str(level): {
            "blocks": len(of_level),
            "rows": sum(rows[n] for n in of_level),
            "average_depth": naive.mean(naive.depths([placed[n] for n in of_level])),
        }
        for level, of_level in members.items()
    }


@given(BOUNDS, st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_partitions_never_meet(bounds, partitions):
    partitions = partitions[: len(bounds)]
    placed = [((part, low), (part, high)) for (low, high), part in zip(bounds, partitions, strict=True)]
    blocks = build(bounds, partition=partitions)
    assert blocks.intervals.depths().tolist() == naive.depths(placed)
    assert blocks.intervals.overlaps().tolist() == naive.overlaps(placed)


@given(st.integers(1, 200))
def test_histogram_and_percentiles_of_a_tall_stack(count):
    bounds = [(0, 1)] * count + [(5, 6)] * 7
    metrics = clustering_information(build(bounds)).as_dict()
    expected = naive.information(bounds, [False] * len(bounds))
    for name in ("block_depth_histogram", "p95_depth", "p99_depth", "max_depth"):
        assert metrics[name] == expected[name], name


@pytest.mark.parametrize(
    ("bounds", "ratio", "relative"),
    [
        ([(0, 9)] * 5, 30.1, 0.0),
        ([(0, 2)] * 3 + [(4, 5), (7, 8)], 71.4, 0.378),
        ([(0, 2), (1, 4), (3, 6), (8, 9), (11, 12)], 81.9, 0.490),
        ([(2 * i, 2 * i + 1) for i in range(5)], 100.0, 1.0),
    ],
)
def test_figure_5_of_the_patent(bounds, ratio, relative):
    """Of five partitions, all, three, a chain of three, and none overlap; the ratios by equation 1 are rounded."""
    metrics = clustering_information(build(bounds))
    assert round(metrics.clustering_ratio, 1) == ratio
    assert round(metrics.relative_clustering_ratio, 3) == relative


def test_values_of_databends_own_tests():
    blocks = build([(1, 2), (2, 3), (4, 5)])
    assert (blocks.intervals.overlaps().tolist(), blocks.intervals.depths().tolist()) == (
        [1, 1, 0],
        [2, 2, 1],
    )


def test_empty_and_single():
    assert clustering_information(build([])).as_dict() == {
        "total_block_count": 0,
        "constant_block_count": 0,
        "average_overlaps": 0.0,
        "average_depth": 0.0,
        "p95_depth": 0,
        "p99_depth": 0,
        "max_depth": 0,
        "block_depth_histogram": {},
        "clustering_ratio": 100.0,
        "relative_clustering_ratio": 1.0,
        "overlap_point_depth": 1.0,
        "levels": {},
        "total_rows": 0,
        "total_bytes": 0,
    }
    one = clustering_information(build([(1, 3)], rows=[7], bytes=[70], level=[2]))
    assert (one.average_overlaps, one.average_depth, one.block_depth_histogram) == (0.0, 1.0, {"00001": 1})
    assert one.levels == {"2": {"blocks": 1, "rows": 7, "average_depth": 1.0}}
    assert (one.total_rows, one.total_bytes) == (7, 70)
    assert one.clustering_ratio == 100.0


@given(
    st.lists(st.tuples(PAIRS, st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=30),
    st.integers(1, 20),
    st.booleans(),
)
def test_the_read_of_one_key_equals_its_naive_twin(given_blocks, row_group_bytes, is_sorted):
    bounds, sizes, levels = zip(*given_blocks, strict=True)
    blocks = build(bounds, bytes=sizes, level=levels)
    metrics = clustering_information(blocks, row_group_bytes=row_group_bytes, is_sorted=is_sorted)
    plain = [(*pair, size, level) for pair, size, level in given_blocks]
    expected = naive.key_read(plain, row_group_bytes, is_sorted)
    assert (metrics.key_read_bytes, metrics.key_read_row_groups) == expected


def test_a_read_of_one_key_opens_a_row_group_of_each_sorted_block():
    def opened(bounds, sizes, **more):
        metrics = clustering_information(build(bounds, bytes=sizes), row_group_bytes=4, **more)
        return metrics.key_read_bytes, metrics.key_read_row_groups

    assert opened([(0, 9)] * 3, [40, 40, 40]) == (12, 3.0)
    assert opened([(0, 9), (10, 19), (20, 29)], [40, 40, 40]) == (4, 1.0)
    assert opened([(0, 9), (10, 19), (20, 29)], [40, 40, 40], is_sorted=False) == (40, 10.0)
    assert opened([(5, 5), (6, 9)], [40, 3]) == (22, 5.5)  # all rows of a constant block are asked for
    assert clustering_information(build([(0, 9)]), row_group_bytes=4).key_read_bytes is None


def test_blocks_of_equal_depth_have_a_relative_ratio_of_zero_and_not_minus_zero():
    metrics = clustering_information(build([(n // 7, 10 + n // 7) for n in range(7)] * 7))
    assert str(metrics.relative_clustering_ratio) == "0.0"
    assert str(rounded(-1e-17)) == "0.0"


def test_averages_are_rounded_half_away_from_zero():
    # 160,000 blocks of which 40,008 meet in pairs: 1.25005, whose binary fraction lies below the half.
    pairs, alone = 20_004, 119_992
    bounds = [(i, i) for i in range(pairs)] * 2 + [(pairs + i, pairs + i) for i in range(alone)]
    assert clustering_information(build(bounds)).average_depth == 1.2501


def test_the_ratio_is_never_below_zero():
    assert clustering_information(build([(0, 1)] * 20)).clustering_ratio == 0.0


def test_constant_blocks_count_as_others_do():
    bounds = [(1, 1), (1, 1), (4, 6), (5, 7), (9, 9)]
    metrics = clustering_information(build(bounds)).relative_clustering_ratio
    assert metrics == pytest.approx(1 - 4 * 0.693147 / (1 + 4 * 0.693147), abs=1e-4)


def test_another_key_is_tried_with_its_own_bounds():
    # One table of three blocks, ordered by day and not at all by user.
    by_day = clustering_information(build([(1, 2), (3, 4), (5, 6)]))
    by_user = clustering_information(build([(0, 98), (1, 99), (0, 99)]))
    assert (by_day.average_depth, by_user.average_depth) == (1.0, 3.0)
