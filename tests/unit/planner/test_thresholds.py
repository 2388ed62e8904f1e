from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean, mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.planner import best_threshold, costs_by_threshold, relative_rewriting
from dbt_recluster.planner.thresholds import REWRITTEN, SCAN, THRESHOLDS

FRONTIER = Path(__file__).parents[3] / "benchmarks" / "results" / "frontier.json"
BYTES = st.floats(1, 1e15)


def test_the_curve_is_the_measured_one() -> None:
    workloads = [
        {threshold: (scan, work) for threshold, scan, work in strategies["payback"]}
        for of_seed in json.loads(FRONTIER.read_text())["curves"].values()
        for name, strategies in of_seed.items()
        if name.endswith(", sorted") and not name.startswith("in order")
    ]
    assert len(workloads) > 20
    for threshold, work, scan in zip(THRESHOLDS, REWRITTEN, SCAN, strict=True):
        assert work == pytest.approx(geometric_mean(of[threshold][1] for of in workloads), abs=0.006)
        assert scan == pytest.approx(mean(of[threshold][0] for of in workloads), abs=0.006)
        assert max(of[threshold][1] for of in workloads) < 4 * work


@given(loaded=BYTES, rewriting=st.floats(0.1, 4), in_vain=BYTES, more=st.floats(1, 1e6))
def test_more_reads_want_a_lower_threshold_and_more_loads_a_higher(
    loaded: float, rewriting: float, in_vain: float, more: float
) -> None:
    best = best_threshold(costs_by_threshold(loaded, rewriting, in_vain))
    assert best_threshold(costs_by_threshold(loaded, rewriting, more * in_vain)) <= best
    assert best_threshold(costs_by_threshold(more * loaded, rewriting, in_vain)) >= best
    assert best in THRESHOLDS


@given(loaded=BYTES, in_vain=BYTES, current=st.sampled_from(THRESHOLDS))
def test_a_threshold_moves_only_for_a_tenth(loaded: float, in_vain: float, current: float) -> None:
    costs = costs_by_threshold(loaded, 1, in_vain)
    kept = best_threshold(costs, current)
    least = min(costs.values())
    assert costs[kept] == least or (kept == current and costs[kept] <= least / 0.9 * 1.0001)
    # Once moved, it stays.
    assert best_threshold(costs, kept) == kept


def test_the_history_places_a_table_beside_the_curve() -> None:
    assert costs_by_threshold(100, 1, 10)[4] == pytest.approx(145 + 10 * 2.25)
    assert costs_by_threshold(100, 2, 10)[4] == pytest.approx(290 + 10 * 2.25)
    assert relative_rewriting(100, 145, 4) == pytest.approx(1)
    assert relative_rewriting(100, 70, 4) == pytest.approx(70 / 145)
    assert relative_rewriting(100, 1.25, 40) == 0.1
    # A first clustering of all that was loaded before is not what each day costs.
    assert relative_rewriting(100, 1e9, 4) == 4
    assert relative_rewriting(0, 7, 4) == 1
