from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.clustering import table


def read_again(*lengths: tuple[int, int]) -> list[int]:
    """Ask for snapshots of so many blocks; return those that were read."""
    read = []
    for key, length in lengths:

        def blocks(key: int = key, length: int = length) -> Any:
            read.append(key)
            return [key] * length

        kept: Any = table._kept_blocks(("", key, "", ""), blocks)
        assert kept == [key] * length
    return read


def test_blocks_that_were_used_last_are_kept_unless_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "_MOST_BLOCKS", 10)
    monkeypatch.setattr(table, "_BLOCKS", {})
    assert read_again((1, 4), (2, 4), (1, 4), (3, 4), (1, 4), (2, 4)) == [1, 2, 3, 2]
    assert read_again((4, 10), (5, 11), (5, 11), (4, 10)) == [4, 5, 5]
