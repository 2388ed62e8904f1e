"""What this process knows of tables from earlier operations and builds: each opens its table anew.

What belongs to one opened table is kept by :class:`ClusteredTable`, up to its next refresh.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.planner import Plan

# By manifest list, snapshot, schema, partition spec and key: a copy shares the table's uuid, and two entries of a
# catalog for one table may evolve apart under equal ids of a schema.
Place = tuple[str, int, str, int, str]
# They take 46 MB with paths of 110 characters and a key of one number.
_MOST_BLOCKS = 250_000


class ProcessCache:
    """The blocks of snapshots, the last used last, and the last plan of each table that was empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[Place, BlockMetadata] = {}
        self._empty_plans: dict[str, tuple[str, int, Plan]] = {}

    def clear(self) -> None:
        """Forget everything, as a new process."""
        with self._lock:
            self._blocks.clear()
            self._empty_plans.clear()

    def blocks(self, place: Place, read: Callable[[], BlockMetadata]) -> BlockMetadata:
        """Return the blocks of a snapshot, read unless they are known."""
        with self._lock:
            cached = self._blocks.get(place)
        blocks = read() if cached is None else cached
        if len(blocks) <= _MOST_BLOCKS:
            with self._lock:
                self._blocks.pop(place, None)
                self._blocks[place] = blocks
                while sum(map(len, self._blocks.values())) > _MOST_BLOCKS:
                    del self._blocks[next(iter(self._blocks))]
        return blocks

    def empty_plan(self, uuid: str, rules: str) -> tuple[int, Plan] | None:
        """Return the snapshot and the plan of a table for which nothing was left to do by these rules, or None."""
        entry = self._empty_plans.get(uuid)
        return entry[1:] if entry is not None and entry[0] == rules else None

    def remember_empty_plan(self, uuid: str, rules: str, snapshot_id: int, planned: Plan) -> None:
        """Remember that a plan of a snapshot was empty by these rules."""
        self._empty_plans[uuid] = rules, snapshot_id, planned


CACHE = ProcessCache()
