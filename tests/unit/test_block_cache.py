from __future__ import annotations

from typing import Any

from dbt_recluster.clustering.block_cache import BlockCache, SnapshotKey


class Reader:
    """Returns lists in the place of blocks: the cache asks for their length only."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __call__(self, cache: BlockCache, snapshot: int, blocks: int) -> Any:
        def read() -> Any:
            self.read.append(snapshot)
            return [snapshot] * blocks

        key: SnapshotKey = ("snap.avro", snapshot, "{}", "k")
        return cache.get(key, read)


def test_what_was_used_last_is_kept() -> None:
    cache, reader = BlockCache(most_blocks=10), Reader()
    for snapshot in (1, 2, 1, 3, 1, 2):
        assert reader(cache, snapshot, 4) == [snapshot] * 4
    assert reader.read == [1, 2, 3, 2]


def test_more_than_all_is_not_kept() -> None:
    cache, reader = BlockCache(most_blocks=10), Reader()
    for _ in range(2):
        reader(cache, 1, 11)
    assert reader.read == [1, 1]
    reader(cache, 2, 10)
    reader(cache, 2, 10)
    assert reader.read == [1, 1, 2]
