"""A recluster on a standalone cluster of two workers, and one that loses an executor in the middle."""

from __future__ import annotations

from pathlib import Path

from programs import BENCHMARKS, figures


def test_two_workers_recluster_and_a_lost_one_costs_no_row(tmp_path: Path) -> None:
    """`make cluster` does the same with larger tables."""
    found = figures(BENCHMARKS / "cluster.py", "--mb", "40", json_file=tmp_path / "found.json")
    assert all(size > 0 for size in found["whole"]["read_mb"])
    assert found["lost executor"]["killed"]
