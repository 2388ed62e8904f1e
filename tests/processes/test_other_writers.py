"""A recluster and a busy writer in two processes, over a catalog in PostgreSQL: nothing is lost, doubled or back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "other_writers.py"
NO_POSTGRES = 77


def test_nothing_is_lost_next_to_another_writer(tmp_path: Path) -> None:
    """`make writers` does the same for ten minutes and 500 commits."""
    result = tmp_path / "result.json"
    options = ["--seconds", "30", "--commits", "20", "--alone", "5", "--json", str(result)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode == NO_POSTGRES:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(result.read_text())
    assert figures["differences"] == []
    assert figures["shared"]["commits"] >= 20
    assert figures["recluster"]["rounds"] >= 1
