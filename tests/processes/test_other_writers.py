"""A recluster and a busy writer in two processes, over a catalog that both share: nothing is lost, doubled or back."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import BENCHMARKS, figures


@pytest.mark.alike
@pytest.mark.parametrize("catalog", ["jdbc", "rest"])
def test_nothing_is_lost_next_to_another_writer(catalog: str, tmp_path: Path) -> None:
    """`make writers` does the same for ten minutes and 500 commits."""
    options = [
        "--seconds",
        "20",
        "--commits",
        "20",
        "--alone",
        "5",
        *(["--rest"] if catalog == "rest" else []),
    ]
    found = figures(BENCHMARKS / "other_writers.py", *options, json_file=tmp_path / "found.json")
    assert found["differences"] == []
    assert found["shared"]["commits"] >= 20
    assert found["recluster"]["rounds"] >= 1
