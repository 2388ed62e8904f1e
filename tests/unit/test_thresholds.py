import re
from statistics import geometric_mean, mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import BENCHMARKS

from dbt_recluster.advice.cost_model import (
    MOST,
    REWRITTEN,
    SCAN,
    THRESHOLDS,
    best_threshold,
    costs_by_threshold,
    relative_rewriting,
)
from dbt_recluster.planner import Policy, plan

BYTES = st.floats(1, 1e15)


# The curve is the mean of four seeds; one seed comes this near.
@pytest.mark.alike
@pytest.mark.parametrize("threshold", sorted(THRESHOLDS, key=lambda threshold: threshold != 8))
def test_the_curve_is_what_the_planner_does(threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import workloads

    policy = Policy(depth=threshold, block_rows=workloads.BLOCK_ROWS)

    def step(table: workloads.Table) -> None:
        while (planned := plan(table.blocks(), policy)).block_sets:
            table.merge(planned)

    points = [
        workloads.simulate(name, threshold, step, loads=100, seed=0)
        for name in workloads.WORKLOADS
        if name.endswith(", sorted") and not name.startswith(("in order", "few values"))
    ]
    work = [point.write_amplification for point in points]
    place = THRESHOLDS.index(threshold)
    assert geometric_mean(work) == pytest.approx(REWRITTEN[0][place], rel=0.1)
    assert mean(point.scan for point in points) == pytest.approx(SCAN[0][place], rel=0.02)
    assert max(work) < MOST * REWRITTEN[0][place]


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_the_figures_of_a_curve_are_those_of_its_design(columns: int) -> None:
    """Means over the three workloads of as many columns whose loads overlap."""
    design = (BENCHMARKS.parent / "docs" / "design" / "curves.md").read_text()
    table = design.split("### What a threshold means")[1].split("\n#")[0]
    lines = [
        re.findall(r"([\d.]+) / ([\d.]+)", line)
        for line in table.splitlines()
        if re.match(rf"\| (?!in order)[\w ]+ \| {columns} \|", line)
    ]
    assert len(lines) == 3
    for place, (scan, work) in enumerate(zip(SCAN[columns], REWRITTEN[columns], strict=True)):
        assert mean(float(line[place][0]) for line in lines) == pytest.approx(scan, abs=0.006)
        assert geometric_mean(float(line[place][1]) for line in lines) == pytest.approx(work, abs=0.006)
    heading = re.findall(r"depth ([\d.]+)", table)
    assert tuple(map(float, heading)) == THRESHOLDS[: len(SCAN[columns])]


@given(
    loaded=BYTES,
    rewriting=st.floats(0.1, 4),
    wasted=BYTES,
    more=st.floats(1, 1e6),
    columns=st.sampled_from([0, 2, 3, 4]),
)
def test_more_reads_want_a_lower_threshold_and_more_loads_a_higher(
    loaded: float, rewriting: float, wasted: float, more: float, columns: int
) -> None:
    best = best_threshold(costs_by_threshold(loaded, rewriting, wasted, columns))
    assert best_threshold(costs_by_threshold(loaded, rewriting, more * wasted, columns)) <= best
    assert best_threshold(costs_by_threshold(more * loaded, rewriting, wasted, columns)) >= best
    assert best in THRESHOLDS


@given(loaded=BYTES, wasted=BYTES, current=st.sampled_from(THRESHOLDS))
def test_a_threshold_moves_only_for_a_tenth(loaded: float, wasted: float, current: float) -> None:
    costs = costs_by_threshold(loaded, 1, wasted)
    kept = best_threshold(costs, current)
    least = min(costs.values())
    assert costs[kept] == least or (kept == current and costs[kept] <= least / 0.9 * 1.0001)
    # Once moved, it stays.
    assert best_threshold(costs, kept) == kept


def test_the_history_places_a_table_beside_the_curve() -> None:
    assert costs_by_threshold(100, 1, 10)[4] == pytest.approx(145 + 10 * 2.25)
    # At a depth of 1, every load rewrites every table.
    twice = costs_by_threshold(100, 2, 10)
    assert twice[4] == pytest.approx(145 * 2**0.75 + 10 * 2.25)
    assert twice[1] == costs_by_threshold(100, 1, 10)[1]
    assert relative_rewriting(100, 145, 20, 4) == pytest.approx(1)
    # One merge more of four loads of five on both sides.
    assert relative_rewriting(100, 70, 20, 4) == pytest.approx((90 / 165) ** (4 / 3))
    assert costs_by_threshold(100, relative_rewriting(100, 70, 20, 4), 0)[4] == pytest.approx(145 * 90 / 165)
    # A few loads without a merge do not mean that merges cost nothing.
    assert 0.7 < relative_rewriting(100, 0, 7, 16) < 1
    assert relative_rewriting(100, 0, 1e9, 4) == 0.1
    # A first clustering of all that was loaded before is not what each day costs.
    assert relative_rewriting(100, 1e9, 20, 4) == 4
    assert relative_rewriting(0, 7, 20, 4) == relative_rewriting(100, 7, 20, 1) == 1
