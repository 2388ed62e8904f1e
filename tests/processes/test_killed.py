"""A recluster that is killed leaves the table as before or as after, and the next one succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import BENCHMARKS, figures


@pytest.mark.parametrize("more", [[], ["--expiry"]], ids=["recluster", "expiry"])
def test_what_is_killed_loses_nothing(more: list[str], tmp_path: Path) -> None:
    """`python benchmarks/killed.py` does the same fifty times; what it finds wrong is an error."""
    found = figures(BENCHMARKS / "killed.py", "--kills", "4", *more, json_file=tmp_path / "found.json")
    assert found["before"] >= 1  # killed as it began
    assert found["after"] >= 1  # let end
    assert found["removed"] == found["orphans"]
    assert found["orphans"] >= 1  # killed when it had written
