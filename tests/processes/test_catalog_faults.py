"""A catalog that fails at the commit: no row is lost, and the error says what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import figures

PROGRAM = Path(__file__).with_name("catalog_faults.py")


def run(mode: str, tmp_path: Path) -> Any:
    found = figures(PROGRAM, mode, json_file=tmp_path / "found.json")
    assert found["same_rows"]
    assert found["same_rows_later"]
    assert found["depth_after"] <= 2
    return found


def test_a_catalog_that_is_down(tmp_path: Path) -> None:
    found = run("down", tmp_path)
    assert found["raised"] == "CommitFailedError"
    assert "This round changed nothing" in found["message"]
    assert not found["took_place"]
    assert found["orphans"] == 0


def test_a_commit_whose_answer_is_lost(tmp_path: Path) -> None:
    """Iceberg asks the catalog again, and finds that it took place."""
    found = run("mute", tmp_path)
    assert found["raised"] is None
    assert found["took_place"]
    assert found["orphans"] == 0


def test_a_commit_whose_outcome_stays_unknown(tmp_path: Path) -> None:
    """The answer is lost and the catalog gone: the files may be the table's, so they stay."""
    found = run("lost", tmp_path)
    assert found["raised"] == "CommitStateUnknownError"
    assert found["took_place"]
    assert found["orphans"] == 0
