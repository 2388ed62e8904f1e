"""A recluster that is killed at a random moment leaves the table as before or as after."""

from __future__ import annotations

from pathlib import Path

from programs import BENCHMARKS, figures


def test_a_killed_recluster_loses_nothing(tmp_path: Path) -> None:
    """`python benchmarks/killed.py` does the same fifty times."""
    found = figures(BENCHMARKS / "killed.py", "--kills", "3", json_file=tmp_path / "found.json")
    assert found["before"] + found["after"] == 3
    assert found["after"] >= 1  # the first may end
    assert found["removed"] == found["orphans"]


def test_a_killed_expiry_loses_nothing(tmp_path: Path) -> None:
    """`python benchmarks/killed.py --expiry` does the same fifty times."""
    found = figures(BENCHMARKS / "killed.py", "--kills", "3", "--expiry", json_file=tmp_path / "found.json")
    assert found["before"] + found["after"] == 3
    assert found["after"] >= 1
    assert found["removed"] == found["orphans"]
