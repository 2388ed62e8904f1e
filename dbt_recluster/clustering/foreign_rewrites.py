"""Rewrites of other writers that merged blocks which reclustering had written: work that is undone, and done again.

A nightly `rewrite_data_files`, or the compaction of a catalog's service, takes each file below three quarters of its
target size, whatever the cluster key, and puts it together with files from elsewhere along the key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dbt_recluster.clustering.checkpoint import PROPERTY
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.iceberg.recorded_levels import level_properties, reclustered_rows_removed

logger = logging.getLogger(__name__)

# The last snapshot that a warning was about, in the property that records the checkpoint.
_WARNED = "warned"
# The driver holds an object for each of them in memory; of more, nothing is said.
_MOST_REMOVED = 100_000


@dataclass(frozen=True)
class ForeignRewrite:
    """A commit of another writer that merged blocks of ours.

    Attributes:
        snapshot: Its snapshot.
        blocks: Blocks in it that reclustering had written.
        rows: Rows in them.
    """

    snapshot: Snapshot
    blocks: int
    rows: int


def foreign_rewrites(table: ClusteredTable, *, only_new: bool = False) -> list[ForeignRewrite]:
    """Return the rewrites of other writers that merged blocks of ours, oldest first, as far as snapshots are kept.

    A commit that removes no blocks is none, nor one that writes each block anew by itself, as one that applies deletes
    may.

    Args:
        table: The table.
        only_new: Return only those since the last recluster, and since the last one that was warned of.
    """
    warned = _recorded(table).get(_WARNED)
    replacements, rounds, is_new = [], [], True
    for snapshot in reversed(table.iceberg.snapshots()):
        is_ours = any(name.startswith("recluster.") for name in snapshot.summary)
        if is_ours:
            rounds.append(snapshot.sequence_number)
        is_new = is_new and not is_ours and snapshot.id != warned
        if snapshot.operation == "replace" and not is_ours and (is_new or not only_new):
            replacements.append(snapshot)
    if not rounds and not level_properties(table.iceberg.properties):
        return []  # nothing is ours
    rewrites = [_rewrite(table, snapshot, rounds) for snapshot in reversed(replacements)]
    return [rewrite for rewrite in rewrites if rewrite is not None]


def record_warning(table: ClusteredTable, rewrites: Sequence[ForeignRewrite]) -> None:
    """Record that rewrites were warned of, if there are any; the commit of a recluster records it without that."""
    if rewrites:
        recorded = {**_recorded(table), _WARNED: rewrites[-1].snapshot.id}
        table.iceberg.set_property(PROPERTY, json.dumps(recorded))


def warnings(rewrites: Sequence[ForeignRewrite]) -> list[str]:
    """Return what each rewrite cost, and what to switch off."""
    return [
        f"{engine(rewrite.snapshot)} merged {rewrite.blocks:,} blocks with {rewrite.rows:,} rows that reclustering had "
        f"written, in snapshot {rewrite.snapshot.id} of {rewrite.snapshot.at:%Y-%m-%d %H:%M} UTC. "
        "Leave this table out of rewrite_data_files, or switch off its compaction by S3 Tables, AWS Glue, R2 or Amoro "
        '(self-optimizing.enabled=false): "Who else writes to the table" in the documentation has the commands'
        for rewrite in rewrites
    ]


def engine(snapshot: Snapshot) -> str:
    """Return the engine that made a commit, if its summary says so."""
    return snapshot.summary.get("engine-name", "another writer")


def _rewrite(table: ClusteredTable, snapshot: Snapshot, rounds: Collection[int]) -> ForeignRewrite | None:
    added, removed = (snapshot.count(f"{name}-data-files") or 0 for name in ("added", "deleted"))
    if added >= removed or removed > _MOST_REMOVED:
        return None
    try:
        blocks, rows = reclustered_rows_removed(table.iceberg, snapshot.id, rounds)
    except Exception:  # such as manifests that are gone; the caller has other work to do
        logger.debug("%s: what snapshot %s removed cannot be read", table.name, snapshot.id, exc_info=True)
        return None
    return ForeignRewrite(snapshot, blocks, rows) if blocks else None


def _recorded(table: ClusteredTable) -> dict[str, object]:
    try:
        recorded = json.loads(table.iceberg.properties.get(PROPERTY, "{}"))
    except (ValueError, RecursionError):
        return {}
    return recorded if isinstance(recorded, dict) else {}
