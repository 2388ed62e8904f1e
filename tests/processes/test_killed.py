"""A recluster that is killed at a random moment leaves the table as before or as after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "killed.py"


def test_a_killed_recluster_loses_nothing(tmp_path: Path) -> None:
    """`python benchmarks/killed.py` does the same fifty times."""
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--kills", "3", "--json", str(result)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(result.read_text())
    assert figures["before"] + figures["after"] == 3
    assert figures["after"] >= 1  # the first may end
    assert figures["removed"] == figures["orphans"]
