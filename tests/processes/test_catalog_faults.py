"""A catalog that fails at the commit: no row is lost, and the error says what is known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("catalog_faults.py")
NO_POSTGRES = 77


def run(mode: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), mode], capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode == NO_POSTGRES:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["same_rows"]
    assert found["same_rows_later"]
    assert found["depth_after"] <= 2
    return found


def test_a_catalog_that_is_down() -> None:
    found = run("down")
    assert found["raised"] == "CommitFailedError"
    assert "This round changed nothing" in found["message"]
    assert not found["took_place"]
    assert found["orphans"] == 0


def test_a_commit_whose_answer_is_lost() -> None:
    """Iceberg asks the catalog again, and finds that it took place."""
    found = run("mute")
    assert found["raised"] is None
    assert found["took_place"]
    assert found["orphans"] == 0


def test_a_commit_whose_outcome_stays_unknown() -> None:
    """The answer is lost and the catalog gone: the files may be the table's, so they stay."""
    found = run("lost")
    assert found["raised"] == "CommitStateUnknownError"
    assert found["took_place"]
    assert found["orphans"] == 0
