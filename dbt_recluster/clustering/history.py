"""The history of a table's clustering: the summaries of its snapshots, as far back as these are kept."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from dbt_recluster.clustering.checkpoint import warned_of
from dbt_recluster.clustering.options import parse_number
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import Snapshot, whole_number
from dbt_recluster.iceberg.recorded_levels import reclustered_rows_removed
from dbt_recluster.iceberg.table_properties import LEVELS, PREFIX

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HistoryEntry(Result):
    """A round of reclustering, or a commit of another writer.

    Attributes:
        at: When it was committed, UTC.
        snapshot_ids: Its snapshots, in order; a round makes one for each run it writes.
        kind: ``recluster``, or for others Iceberg's operation: ``append``, ``overwrite``, ``delete``, ``replace``; or
            ``key`` for a key that ``auto`` chose, which has no snapshot.
        by: For a recluster its trigger, ``run`` or ``manual``; for others the engine, if it is recorded.
        cluster_by: The key. It and the following fields are None for other writers, unless they say otherwise.
        where: The predicate that restricted the recluster, and under which its depths are measured.
        levels: The levels of the blocks that it wrote.
        sets: Block sets merged.
        blocks_in, blocks_out: Blocks removed from and added to the table, by any writer.
        bytes_in, bytes_out: Their bytes.
        rows_in, rows_out: Their rows.
        rows_loaded: Rows of another writer's commit that are new: those that it added, less those of the blocks that it
            replaced, which a merge, an update or a delete by copy-on-write writes again. Only a commit that replaces
            partitions says of itself that all its rows are new.
        rows_undone: Rows of blocks that reclustering had written, and that another writer's rewrite merged.
        seconds: Time that reading, sorting and writing took.
        spent: Money for it; None without a price or if it is not recorded.
        conflicts: How often the round started again because another writer was faster.
        writer: What wrote the blocks: ``native``, or ``spark`` and why in a word or more: ``spark: deletes``.
        depth_before: The depth that was compared with the threshold when the round was planned, as in ``recluster``.
        depth_after: The same after the round, by the bounds of the blocks that it wrote.
        saved_bytes, key_bytes, reads: Of a choice of ``auto``: bytes that known reads open less in 30 days, bytes
            rewritten for it in that time, and the reads that had run.
        write_amplification: Rows rewritten by reclustering for each row loaded, up to here, as far back as snapshots
            are kept. The rows of the oldest snapshot count as loaded.
    """

    at: datetime
    snapshot_ids: tuple[int, ...]
    kind: str
    by: str = ""
    cluster_by: str | None = None
    where: str | None = None
    levels: tuple[int, ...] = ()
    sets: int | None = None
    blocks_in: int = 0
    blocks_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_loaded: int = 0
    rows_undone: int = 0
    seconds: float | None = None
    spent: float | None = None
    conflicts: int | None = None
    writer: str | None = None
    depth_before: float | None = None
    depth_after: float | None = None
    saved_bytes: int | None = None
    key_bytes: int | None = None
    reads: float | None = None
    write_amplification: float = 0.0

    @property
    def is_recluster(self) -> bool:
        """Whether this is a round of reclustering."""
        return self.kind == "recluster"

    @property
    def is_change(self) -> bool:
        """Whether this is a commit of another writer that changed rows, not only files."""
        return self.kind not in ("recluster", "replace") and bool(self.blocks_in or self.blocks_out)

    @property
    def bytes_loaded(self) -> int:
        """Bytes of the new rows, as a share of those of all rows that the commit added."""
        return round(self.bytes_out * self.rows_loaded / self.rows_out) if self.rows_out else 0


@dataclass(frozen=True)
class RoundSummary:
    """The figures of a round. Each of its snapshots records all of them, so they survive the expiry of the first ones.

    Attributes:
        sets: Block sets merged.
        blocks_in, blocks_out: Blocks removed and added.
        bytes_in, bytes_out: Their bytes.
        rows: Rows rewritten.
        trigger: ``run`` after a build, otherwise ``manual``.
        cluster_by: The key.
        depth_before: The depth that was compared with the threshold.
        depth_after, average_depth_after: This depth and the average depth after the round, by the bounds of its
            new blocks.
        read_depth_after, fragmentation_after: Likewise, only if nothing was then left to do.
        seconds: Time that reading, sorting and writing took.
        conflicts: How often the round started again because another writer was faster.
        writer: What wrote the blocks, as in ``clustering_history``.
        where: The predicate that restricted the recluster, if any.
        round: A random id that all snapshots of the round share.
        planned: The snapshot that the first round of the call planned; later loads wait for the next call.
    """

    sets: int = 0
    blocks_in: int = 0
    blocks_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    trigger: str = ""
    cluster_by: str | None = None
    depth_before: float | None = None
    depth_after: float | None = None
    average_depth_after: float | None = None
    read_depth_after: float | None = None
    fragmentation_after: float | None = None
    seconds: float | None = None
    conflicts: int = 0
    writer: str | None = None
    where: str | None = None
    round: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    planned: int = 0

    def as_summary(self) -> dict[str, str]:
        """Return the entries of a snapshot's summary."""
        return {f"{PREFIX}{name}": str(value) for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> RoundSummary:
        """Read the summary of a snapshot; what is missing or unreadable has its default."""
        texts = {f: snapshot.summary.get(f"{PREFIX}{f.name}") for f in fields(cls)}
        read: dict[Any, Any] = {"int": lambda text: whole_number(text) or 0, "float | None": parse_number}
        return cls(**{f.name: read.get(f.type, str)(text) for f, text in texts.items() if text is not None})


@dataclass(frozen=True)
class ForeignRewrite:
    """A rewrite by another writer that replaced blocks we had clustered; only these count, and their rows.

    A nightly `rewrite_data_files`, or the compaction of a catalog's service, merges all files below three quarters of
    its target size, whatever the cluster key.
    """

    snapshot: Snapshot
    blocks: int
    rows: int


def table_history(table: ClusteredTable, since: datetime | None = None) -> list[HistoryEntry]:
    """Return every round and every other commit, oldest first; those before ``since`` still count for amplification."""
    snapshots = table.snapshots()
    undone = {rewrite.snapshot.id: rewrite.rows for rewrite in foreign_rewrites(table)}
    rewritten, loaded = 0, rows_before(snapshots)
    result = []
    for entry in history_entries(snapshots):
        rewritten += entry.rows_in if entry.is_recluster else 0
        loaded += entry.rows_loaded
        amplification = round(rewritten / loaded, 4) if loaded else 0.0
        of_entry = undone.get(entry.snapshot_ids[0], 0)
        result.append(replace(entry, rows_undone=of_entry, write_amplification=amplification))
    return [entry for entry in result if since is None or entry.at >= since]


def rewrite_speed(table: ClusteredTable) -> float | None:
    """Return the speed of the table's rounds in bytes read per second, or None if there was no round."""
    rounds = [entry for entry in history_entries(table.snapshots()) if entry.is_recluster and entry.seconds]
    seconds = sum(entry.seconds or 0.0 for entry in rounds)
    return sum(entry.bytes_in for entry in rounds) / seconds if seconds else None


def is_of_round(snapshot: Snapshot) -> bool:
    """Whether a snapshot is of a round of reclustering."""
    return f"{PREFIX}sets" in snapshot.summary


def history_entries(snapshots: Sequence[Snapshot]) -> list[HistoryEntry]:
    """Return one entry for each round and one for every other commit."""
    groups = groupby(snapshots, key=lambda snapshot: snapshot.summary.get(f"{PREFIX}round", snapshot.id))
    members = (list(group) for _, group in groups)
    return [_round(group) if is_of_round(group[-1]) else _other_commit(group[0]) for group in members]


def _round(members: Sequence[Snapshot]) -> HistoryEntry:
    last, summary = members[-1], RoundSummary.from_snapshot(members[-1])
    shared = {f.name for f in fields(HistoryEntry)} & vars(summary).keys()
    return HistoryEntry(
        at=last.at,
        snapshot_ids=tuple(member.id for member in members),
        kind="recluster",
        by=summary.trigger,
        levels=tuple(sorted({member.count(f"{PREFIX}level") or 0 for member in members})),
        rows_in=summary.rows,
        rows_out=summary.rows,
        **{name: getattr(summary, name) for name in shared},
    )


def _other_commit(snapshot: Snapshot) -> HistoryEntry:
    def count(name: str) -> int:
        return snapshot.count(name) or 0

    # The rows of a removed block that its delete files deleted are not written again.
    replaced = max(0, count("deleted-records") - count("removed-position-deletes"))
    if snapshot.summary.get("replace-partitions") == "true":
        replaced = 0
    loaded = 0 if snapshot.operation == "replace" else max(0, count("added-records") - replaced)
    return HistoryEntry(
        at=snapshot.at,
        snapshot_ids=(snapshot.id,),
        kind=snapshot.operation,
        by=snapshot.summary.get("engine-name", ""),
        blocks_in=count("deleted-data-files"),
        blocks_out=count("added-data-files"),
        bytes_in=count("removed-files-size"),
        bytes_out=count("added-files-size"),
        rows_in=count("deleted-records"),
        rows_out=count("added-records"),
        rows_loaded=loaded,
    )


def rows_before(snapshots: Sequence[Snapshot]) -> int:
    """Return the rows that the table had before its oldest remaining snapshot."""
    if not snapshots:
        return 0
    count = snapshots[0].count
    total, added, deleted = (count(f"{name}-records") or 0 for name in ("total", "added", "deleted"))
    return max(0, total - added + deleted)


def foreign_rewrites(table: ClusteredTable, *, only_new: bool = False) -> list[ForeignRewrite]:
    """Return the rewrites of other writers that merged blocks of ours, oldest first, as far as snapshots are kept.

    A commit that rewrites each block by itself, to apply deletes, is none. ``only_new`` leaves out those before the
    last recluster, or up to the last one that was warned of.
    """
    snapshots = table.snapshots()
    ours = {s.id: s.sequence_number for s in snapshots if any(name.startswith(PREFIX) for name in s.summary)}
    if not ours and LEVELS not in table.iceberg.properties:
        return []
    if only_new:
        old = {*ours, warned_of(table.iceberg)}
        last = max((number for number, s in enumerate(snapshots, 1) if s.id in old), default=0)
        snapshots = snapshots[last:]
    rewrites = []
    for snapshot in snapshots:
        added, removed = (snapshot.count(f"{name}-data-files") or 0 for name in ("added", "deleted"))
        # The driver holds an object for each removed block.
        is_rewrite = snapshot.operation == "replace" and added < removed <= 100_000
        if not is_rewrite or snapshot.id in ours:
            continue
        try:
            blocks, rows = reclustered_rows_removed(table.iceberg, snapshot.id, ours)
        except Exception:  # such as manifests that are gone; the caller has other work to do
            logger.debug("%s: blocks removed by %s unreadable", table.name, snapshot.id, exc_info=True)
            continue
        if blocks:
            rewrites.append(ForeignRewrite(snapshot, blocks, rows))
    return rewrites


def rewrite_warnings(rewrites: Sequence[ForeignRewrite]) -> list[str]:
    """Return a warning about each rewrite: its cost, and the job to switch off."""
    return [
        f"{rewrite.snapshot.summary.get('engine-name', 'another writer')} merged {rewrite.blocks:,} blocks with "
        f"{rewrite.rows:,} rows that reclustering had written, in snapshot {rewrite.snapshot.id} of "
        f"{rewrite.snapshot.at:%Y-%m-%d %H:%M} UTC. "
        "Leave this table out of rewrite_data_files (also of DuckDB, iceops and Gravitino), of Zamboni and of OPTIMIZE "
        "(Trino, Athena, Dremio), or switch off its compaction by S3 Tables, AWS Glue, R2 or Amoro "
        '(self-optimizing.enabled=false): "Other writers and readers" in the documentation has the commands'
        for rewrite in rewrites
    ]
