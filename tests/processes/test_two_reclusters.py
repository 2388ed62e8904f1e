"""Two reclusters of one table in two processes: both end, and the second does not do the first one's work again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "two_reclusters.py"


def test_two_reclusters_of_one_table(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json", str(result)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(result.read_text())
    alone, together = figures["alone"], figures["together"]
    assert [worker["error"] for worker in together["workers"]] == ["ended", "ended"]
    assert together["depth_after"] <= 1.5
    assert together["rows_rewritten"] <= 1.1 * alone["rows_rewritten"]
