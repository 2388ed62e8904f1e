"""Benchmarks in short: two reclusters, other writers, lost workers and kills cost no row."""

import sys
from pathlib import Path

import pytest
from programs import BENCHMARKS, figures, run


def test_two_reclusters_share_one_table(tmp_path: Path) -> None:
    found = figures(BENCHMARKS / "two_reclusters.py", json_file=tmp_path / "found.json")
    alone, together = found["alone"], found["together"]
    assert [worker["error"] for worker in together["workers"]] == ["ended", "ended"]
    assert sum(worker["conflicts"] for worker in together["workers"]) >= 1
    assert together["depth_after"] <= 1.5
    assert together["rows_rewritten"] <= 1.1 * alone["rows_rewritten"]


@pytest.mark.alike
@pytest.mark.parametrize("catalog", ["jdbc", "rest"])
def test_nothing_is_lost_next_to_another_writer(catalog: str, tmp_path: Path) -> None:
    """`make writers` does the same for ten minutes and 500 commits."""
    options = [
        *["--seconds", "20", "--commits", "20", "--alone", "5"],
        *(["--rest"] if catalog == "rest" else []),
    ]
    found = figures(BENCHMARKS / "other_writers.py", *options, json_file=tmp_path / "found.json")
    assert found["differences"] == []
    assert found["shared"]["commits"] >= 20
    assert found["recluster"]["rounds"] >= 1


def test_two_workers_recluster_and_a_lost_one_costs_no_row(tmp_path: Path) -> None:
    """`make cluster` does the same with larger tables."""
    found = figures(BENCHMARKS / "cluster.py", "--mb", "40", json_file=tmp_path / "found.json")
    assert all(tasks > 0 for tasks in found["whole"]["tasks"])
    for writer in ("native", "spark"):
        lost = found[f"lost executor, {writer}"]
        assert lost["killed"]
        assert lost["writer"].startswith(writer)


@pytest.mark.alike
@pytest.mark.parametrize("more", [[], ["--expiry"]], ids=["recluster", "expiry"])
def test_a_killed_recluster_loses_nothing(more: list[str], tmp_path: Path) -> None:
    """`python benchmarks/killed.py` does the same fifty times; what it finds wrong is an error."""
    found = figures(BENCHMARKS / "killed.py", "--kills", "4", *more, json_file=tmp_path / "found.json")
    assert found["before"] >= 1  # killed as it began
    assert found["after"] >= 1  # let end
    assert found["removed"] == found["orphans"]
    assert found["orphans"] >= 1  # killed when it had written


def test_the_integration_project_keeps_every_row(tmp_path: Path) -> None:
    """Five loads with every data test; `make project` runs ten, and the demo twenty of ten times as many rows."""
    project = BENCHMARKS.with_name("integration_tests")
    options = [
        *("--loads", "5", "--scale", "0.01"),
        *("--block-rows", "2000", "--lakehouse", tmp_path / "lakehouse"),
    ]
    run(sys.executable, "loads.py", "--build", *options, cwd=project, timeout=1800)
