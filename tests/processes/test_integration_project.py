"""The integration project: every model, and every data test of it, which compares each table with its source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "integration_tests"


def test_six_loads(tmp_path: Path) -> None:
    """`make project` runs ten, and the demo twenty of ten times as many rows."""
    options = ["--loads", "6", "--scale", "0.01", "--block-rows", "2000"]
    done = subprocess.run(
        [sys.executable, "loads.py", "--build", *options, "--lakehouse", str(tmp_path / "lakehouse")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
