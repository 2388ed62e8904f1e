"""The level and run of each block, kept in table properties (DESIGN.md, section 6).

Iceberg keeps the id of the snapshot that added each file through every rewrite of the manifests. So a run is
a snapshot of ours, and its level one property of the table. Losing a property makes its blocks level 0, which
costs work and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray

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


def levels_and_runs(
    blocks: BlockMetadata, properties: Mapping[str, str], sort_order_id: int
) -> tuple[IntArray, IntArray]:
    """Return the level and the run of each block, both of shape (n,).

    A block of a snapshot that is not ours, or sorted by another key than today's (``sort_order_id``), has
    level 0 and run 0, which means that nothing is known of it.
    """
    levels = recorded_levels(properties)
    known = np.array(sorted(levels), dtype=np.int64)
    if not len(known):
        return np.zeros(len(blocks), dtype=np.int64), np.zeros(len(blocks), dtype=np.int64)
    place = np.minimum(np.searchsorted(known, blocks.added_by), len(known) - 1)
    ours = (known[place] == blocks.added_by) & (blocks.sort_order_id == sort_order_id)
    level = np.array([levels[int(snapshot)] for snapshot in known], dtype=np.int64)[place]
    return np.where(ours, level, 0), np.where(ours, blocks.added_by, 0)


def obsolete_properties(properties: Mapping[str, str], live_snapshots: IntArray) -> list[str]:
    """Return the level properties of snapshots that no live block came from."""
    live = set(live_snapshots.tolist())
    return [property_name(snapshot) for snapshot in recorded_levels(properties) if snapshot not in live]
