"""Run a program that starts Spark sessions of its own, and take its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# How a program says that something it needs cannot be had here.
_SKIPPED = 77


def figures(program: Path, *options: str, json_file: Path) -> Any:
    """Run a program with ``--json`` and return what it wrote; skip the test, saying why, when the program does."""
    done = subprocess.run(
        [sys.executable, str(program), *options, "--json", str(json_file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    if done.returncode == _SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(json_file.read_text())
