"""The blocks that this process has read, kept for the next call on the same snapshot of a table.

A snapshot never changes, so what was read of it stays right. Several operations on one table, and the look of a test
or of ``dbt docs`` after a build, read its metadata once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from dbt_recluster.iceberg.block_metadata import BlockMetadata

# 46 MB with paths of 110 characters and a key of one number.
MOST_BLOCKS = 250_000

# Where the snapshot's manifests are listed, the snapshot, the schema that bounds are read by, and the key. Not the
# table's uuid: a copy at another place has the same one, and the same snapshots. The schema as a whole and not its id:
# two entries of a catalog for one table may evolve apart.
SnapshotKey = tuple[str, int, str, str]


class BlockCache:
    """The blocks that were used last, of all tables together.

    Args:
        most_blocks: How many to keep.
    """

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._kept: OrderedDict[SnapshotKey, BlockMetadata] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: SnapshotKey, read: Callable[[], BlockMetadata]) -> BlockMetadata:
        """Return the blocks of a snapshot, as they were read before or by ``read``."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        blocks = read()
        if len(blocks) > self._most_blocks:
            return blocks
        with self._lock:
            self._kept[key] = blocks
            while sum(map(len, self._kept.values())) > self._most_blocks:
                self._kept.popitem(last=False)
        return blocks
