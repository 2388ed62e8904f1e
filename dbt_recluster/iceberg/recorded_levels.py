"""The level and run of each block, recorded in table properties.

Every manifest entry keeps the id of the snapshot that added its file, also when manifests are rewritten. So a run is
one of our snapshots, and its level is a single property of the table. A lost property makes its blocks level 0, which
costs work and never rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.block_metadata import BlockMetadata, IntArray
from dbt_recluster.iceberg.iceberg_table import whole_number
from dbt_recluster.iceberg.sort_order import is_cluster_key

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

PREFIX = "recluster.level."


def level_property(snapshot_id: int) -> str:
    """Return the name of the property that records the level of the blocks that ``snapshot_id`` added."""
    return f"{PREFIX}{snapshot_id}"


def recorded_levels(properties: Mapping[str, str]) -> dict[int, int]:
    """Return the recorded level of each snapshot; malformed properties are ignored."""
    levels = {}
    for name, value in properties.items():
        if name.startswith(PREFIX):
            snapshot, level = whole_number(name.removeprefix(PREFIX)), whole_number(value)
            if snapshot is not None and level is not None:
                levels[snapshot] = level
    return levels


def levels_and_runs(table: IcebergTable, blocks: BlockMetadata, key: ClusterKey) -> tuple[IntArray, IntArray]:
    """Return the level and the run of each block, int64 (n,) each.

    Level 0 and run 0 mean that nothing is known. They apply to blocks that other writers added, to blocks that were
    sorted by another key than the table has today, and to all blocks if ``key`` is not the table's.
    """
    unknown = np.zeros(len(blocks), dtype=np.int64)
    levels = recorded_levels(table.properties)
    snapshots = np.array(sorted(levels), dtype=np.int64)
    if not len(snapshots) or not is_cluster_key(table, key):
        return unknown, unknown
    place = np.minimum(np.searchsorted(snapshots, blocks.added_by), len(snapshots) - 1)
    sort_order_id = int(table.java.sortOrder().orderId())
    ours = (snapshots[place] == blocks.added_by) & (blocks.sort_order_id == sort_order_id)
    level = np.array([levels[int(snapshot)] for snapshot in snapshots], dtype=np.int64)[place]
    return np.where(ours, level, unknown), np.where(ours, blocks.added_by, unknown)


def obsolete_properties(properties: Mapping[str, str], live_snapshots: IntArray) -> list[str]:
    """Return the level properties of snapshots that added none of the live blocks."""
    live = set(live_snapshots.tolist())
    return [level_property(snapshot) for snapshot in recorded_levels(properties) if snapshot not in live]
