from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.clustering import table


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_MOST_BLOCKS", 10)
    monkeypatch.setattr(table, "_BLOCKS", {})


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


def test_what_was_used_last_is_kept() -> None:
    assert read_again((1, 4), (2, 4), (1, 4), (3, 4), (1, 4), (2, 4)) == [1, 2, 3, 2]


def test_more_than_all_is_not_kept() -> None:
    assert read_again((2, 10), (1, 11), (1, 11), (2, 10)) == [2, 1, 1]
