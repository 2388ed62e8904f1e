"""A recluster on a standalone cluster of two workers, and one that loses an executor in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cluster.py"


def test_two_workers_recluster_and_a_lost_one_costs_no_row(tmp_path: Path) -> None:
    """`make cluster` does the same with larger tables."""
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--mb", "40", "--json", str(result)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(result.read_text())
    assert all(size > 0 for size in figures["whole"]["read_mb"])
    assert figures["lost executor"]["killed"]
