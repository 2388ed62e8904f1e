"""Two reclusters of one table in two processes: both end, and the second does not do the first one's work again."""

from __future__ import annotations

from pathlib import Path

from programs import BENCHMARKS, figures


def test_two_reclusters_of_one_table(tmp_path: Path) -> None:
    found = figures(BENCHMARKS / "two_reclusters.py", json_file=tmp_path / "found.json")
    alone, together = found["alone"], found["together"]
    assert [worker["error"] for worker in together["workers"]] == ["ended", "ended"]
    assert sum(worker["conflicts"] for worker in together["workers"]) >= 1
    assert together["depth_after"] <= 1.5
    assert together["rows_rewritten"] <= 1.1 * alone["rows_rewritten"]
