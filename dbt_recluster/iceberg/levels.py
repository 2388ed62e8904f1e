"""The level and run of each block, kept in table properties (DESIGN.md, section 6).

Iceberg keeps the id of the snapshot that added each file through every rewrite of the manifests. So a run is
a snapshot of ours, and its level one property of the table. Losing a property makes its blocks level 0, which
costs work and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray
from dbt_recluster.iceberg.sorting import is_cluster_key

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable

PREFIX = "recluster.level."


def property_name(snapshot_id: int) -> str:
    """Return the property that holds the level of the blocks that ``snapshot_id`` added."""
    return f"{PREFIX}{snapshot_id}"


def recorded_levels(properties: Mapping[str, str]) -> dict[int, int]:
    """Return the level of each snapshot that has one; what cannot be read is left out."""
    levels = {}
    for name, value in properties.items():
        snapshot = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and snapshot.isdigit() and value.isdigit():
            levels[int(snapshot)] = int(value)
    return levels


def levels_and_runs(table: IcebergTable, blocks: BlockMetadata, key: ClusterKey) -> tuple[IntArray, IntArray]:
    """Return the level and the run of each block, both of shape (n,).

    A block of a snapshot that is not ours, or sorted by another key than the table's of today, has level 0 and
    run 0, which means that nothing is known of it. So have all blocks under another ``key`` than the table's.
    """
    none = np.zeros(len(blocks), dtype=np.int64)
    levels = recorded_levels(table.properties)
    known = np.array(sorted(levels), dtype=np.int64)
    if not len(known) or not is_cluster_key(table, key):
        return none, none
    place = np.minimum(np.searchsorted(known, blocks.added_by), len(known) - 1)
    ours = (known[place] == blocks.added_by) & (blocks.sort_order_id == int(table.java.sortOrder().orderId()))
    level = np.array([levels[int(snapshot)] for snapshot in known], dtype=np.int64)[place]
    return np.where(ours, level, none), np.where(ours, blocks.added_by, none)


def obsolete_properties(properties: Mapping[str, str], live_snapshots: IntArray) -> list[str]:
    """Return the level properties of snapshots that no live block came from."""
    live = set(live_snapshots.tolist())
    return [property_name(snapshot) for snapshot in recorded_levels(properties) if snapshot not in live]
