"""Where to cut, without Spark: sizes hold whatever the counts are."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbt_recluster.iceberg.cuts import Cut, choose_cuts, share_limit


def sizes(counts: list[int], cuts: list[Cut]) -> list[float]:
    """Rows in each block when shares are exact."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = [float(starts[cut.value] + cut.share * counts[cut.value]) for cut in cuts]
    return list(np.diff([0.0, *places, float(starts[-1])]))


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 200))
def test_blocks_are_neither_too_large_nor_too_small(counts: list[int], limit: int) -> None:
    cuts = choose_cuts(np.array(counts), float(sum(counts)), limit)
    found = sizes(counts, cuts)
    assert math.isclose(sum(found), sum(counts))
    assert all(size <= limit + 1e-6 for size in found)
    # Shares of one value keep a distance from the limit, which small blocks feel.
    least = limit / 2 if share_limit(limit) > 0.9 * limit else share_limit(limit) / 2
    assert all(size >= least - 1e-6 for size in found[:-1])


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
@example([2, 4], 5)  # blocks that would begin before the value that is split
def test_cuts_ascend_and_split_a_value_only_if_it_must_be(counts: list[int], limit: int) -> None:
    cuts = choose_cuts(np.array(counts), float(sum(counts)), limit)
    places = [(cut.value, cut.share) for cut in cuts]
    assert places == sorted(set(places))
    assert all(0 <= cut.share < 1 for cut in cuts)
    if max(counts) <= limit / 2:
        assert all(cut.share == 0 for cut in cuts)


def test_a_value_of_many_blocks() -> None:
    counts = [50, 900, 50]
    cuts = choose_cuts(np.array(counts), 10_000, 1000)
    split = [cut for cut in cuts if cut.share]
    assert {cut.value for cut in split} == {1}
    assert len(split) >= 9


def test_nothing_to_cut() -> None:
    assert choose_cuts(np.array([], dtype=np.int64), 0, 10) == []
    assert choose_cuts(np.array([5, 5]), 10, 10) == []


def test_equal_blocks_rather_than_full_ones() -> None:
    assert sizes([1] * 21, choose_cuts(np.ones(21, dtype=np.int64), 21, 10)) == [7, 7, 7]
