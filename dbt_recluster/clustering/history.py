"""The history of a table's clustering, which the summaries of its own snapshots hold.

Every reader of the table can read it. It goes back as far as snapshots are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from dbt_recluster.clustering.foreign_rewrites import foreign_rewrites
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_moment
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.planner import clustering_information

PREFIX = "recluster."


@dataclass(frozen=True)
class HistoryEntry:
    """A round of reclustering, or a commit of another writer.

    Attributes:
        at: When it was committed, UTC.
        snapshot_ids: Its snapshots, in order; a round makes one for each run it writes.
        kind: ``recluster``, or for others Iceberg's operation: ``append``, ``overwrite``, ``delete``, ``replace``.
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
        rows_undone: Rows of blocks that reclustering had written, and that another writer's rewrite merged
            (:mod:`dbt_recluster.clustering.foreign_rewrites`).
        seconds: Time that reading, sorting and writing took.
        conflicts: How often the round started again because another writer was faster.
        depth_before: Average depth when the round was planned.
        depth_after: Average depth after the round.
        depth_after_is: ``measured``, or ``expected`` by the planner if another commit came before a measurement.
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
    conflicts: int | None = None
    depth_before: float | None = None
    depth_after: float | None = None
    depth_after_is: str | None = None
    write_amplification: float = 0.0

    @property
    def is_recluster(self) -> bool:
        """Whether this is a round of reclustering."""
        return self.kind == "recluster"

    @property
    def is_change(self) -> bool:
        """Whether this is a commit of another writer that changed rows; a rewrite of the same rows does not."""
        return self.kind not in ("recluster", "replace") and bool(self.blocks_in or self.blocks_out)

    @property
    def bytes_loaded(self) -> int:
        """Bytes of the new rows, as a share of those of all rows that the commit added."""
        return round(self.bytes_out * self.rows_loaded / self.rows_out) if self.rows_out else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "at": self.at.isoformat(timespec="milliseconds")}


@dataclass(frozen=True)
class RoundSummary:
    """The figures that a round writes into the summaries of its snapshots.

    All snapshots of a round carry the figures of the whole round, so that those which survive an expiry tell all of
    them.

    Attributes:
        sets: Block sets merged.
        blocks_in, blocks_out: Blocks removed and added.
        bytes_in, bytes_out: Their bytes.
        rows: Rows rewritten.
        trigger: ``run`` after a build, otherwise ``manual``.
        cluster_by: The key.
        depth_before: Average depth when the round was planned.
        depth_expected: Average depth after the round, expected by the planner.
        seconds: Time that reading, sorting and writing took.
        conflicts: How often the round started again because another writer was faster.
        where: The predicate that restricted the recluster, if any.
        round: A random id that all snapshots of the round share.
    """

    sets: int
    blocks_in: int
    blocks_out: int
    bytes_in: int
    bytes_out: int
    rows: int
    trigger: str
    cluster_by: str
    depth_before: float
    depth_expected: float
    seconds: float
    conflicts: int
    where: str | None = None
    round: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def as_properties(self) -> dict[str, str]:
        """Return the entries of a snapshot summary."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        return {f"{PREFIX}{name}": str(value) for name, value in facts.items()}


def table_history(table: ClusteredTable, since: datetime | None = None) -> list[HistoryEntry]:
    """Return every round of reclustering and every other commit, oldest first.

    Args:
        table: The table.
        since: Omit older entries; they still count for the write amplification.
    """
    snapshots = table.snapshots()
    entries = _with_amplification(_entries(snapshots), _rows_before(snapshots))
    undone = {rewrite.snapshot.id: rewrite.rows for rewrite in foreign_rewrites(table)}
    entries = [replace(entry, rows_undone=undone.get(entry.snapshot_ids[0], 0)) for entry in entries]
    start = None if since is None else parse_moment("since", since)
    return [entry for entry in _with_depths(table, entries) if start is None or entry.at >= start]


def rewrite_speed(table: ClusteredTable) -> float | None:
    """Return the speed of the table's rounds in bytes read per second, or None if there was no round."""
    rounds = [entry for entry in _entries(table.snapshots()) if entry.is_recluster and entry.seconds]
    seconds = sum(entry.seconds or 0.0 for entry in rounds)
    return sum(entry.bytes_in for entry in rounds) / seconds if seconds else None


def _entries(snapshots: Sequence[Snapshot]) -> list[HistoryEntry]:
    """Return one entry for each round and one for every other commit."""
    entries = []
    for round_id, group in groupby(
        snapshots, key=lambda snapshot: snapshot.summary.get(f"{PREFIX}round", snapshot.id)
    ):
        members = list(group)
        is_round = isinstance(round_id, str) or f"{PREFIX}sets" in members[-1].summary
        entries.append(_round(members) if is_round else _other_commit(members[0]))
    return entries


def _round(members: Sequence[Snapshot]) -> HistoryEntry:
    last = members[-1]
    facts = {
        name.removeprefix(PREFIX): value for name, value in last.summary.items() if name.startswith(PREFIX)
    }
    count, decimal = _reader(facts, int, 0), _reader(facts, float, None)
    return HistoryEntry(
        at=last.at,
        snapshot_ids=tuple(member.id for member in members),
        kind="recluster",
        by=facts.get("trigger", ""),
        cluster_by=facts.get("cluster_by"),
        where=facts.get("where"),
        levels=tuple(sorted({_reader(member.summary, int, 0)(f"{PREFIX}level") for member in members})),
        sets=count("sets"),
        blocks_in=count("blocks_in"),
        blocks_out=count("blocks_out"),
        bytes_in=count("bytes_in"),
        bytes_out=count("bytes_out"),
        rows_in=count("rows"),
        rows_out=count("rows"),
        seconds=decimal("seconds"),
        conflicts=count("conflicts"),
        depth_before=decimal("depth_before"),
        depth_after=decimal("depth_expected"),
        depth_after_is="expected" if "depth_expected" in facts else None,
    )


def _other_commit(snapshot: Snapshot) -> HistoryEntry:
    count = _reader(snapshot.summary, int, 0)
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
        rows_loaded=_rows_loaded(snapshot, count),
    )


def _rows_loaded(snapshot: Snapshot, count: Any) -> int:
    """Return the rows of a commit that are new, as far as its summary tells."""
    if snapshot.operation == "replace":
        return 0
    added = int(count("added-records"))
    if snapshot.summary.get("replace-partitions") == "true":
        return added
    # The rows of a removed block that its delete files deleted are not written again.
    replaced = max(0, int(count("deleted-records")) - int(count("removed-position-deletes")))
    return max(0, added - replaced)


def _reader(facts: Mapping[str, str], kind: Any, default: Any) -> Any:
    """Return a function that reads a number of a summary, or the default if it is missing or malformed."""

    def read(name: str) -> Any:
        try:
            return kind(facts.get(name, default))
        except (TypeError, ValueError):
            return default

    return read


def _rows_before(snapshots: Sequence[Snapshot]) -> int:
    """Return the rows that the table had before its oldest remaining snapshot."""
    if not snapshots:
        return 0
    count = _reader(snapshots[0].summary, int, 0)
    return int(max(0, count("total-records") - count("added-records") + count("deleted-records")))


def _with_amplification(entries: Sequence[HistoryEntry], rows_before: int) -> list[HistoryEntry]:
    rewritten, loaded = 0, rows_before
    result = []
    for entry in entries:
        if entry.is_recluster:
            rewritten += entry.rows_in
        loaded += entry.rows_loaded
        amplification = round(rewritten / loaded, 4) if loaded else 0.0
        result.append(replace(entry, write_amplification=amplification))
    return result


def _with_depths(table: ClusteredTable, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Replace the expected depth after a round by the measured one, where a later round or the table has it."""
    result = list(entries)
    for place, entry in enumerate(result):
        if not entry.is_recluster:
            continue
        measured = None
        if place + 1 == len(result):
            measured = _depth_now(table, entry)
        else:
            following = result[place + 1]
            same_measure = (entry.cluster_by, entry.where) == (following.cluster_by, following.where)
            if following.is_recluster and same_measure:
                measured = following.depth_before
        if measured is not None:
            result[place] = replace(entry, depth_after=measured, depth_after_is="measured")
    return result


def _depth_now(table: ClusteredTable, entry: HistoryEntry) -> float | None:
    try:
        if entry.cluster_by is not None:
            table = _under_recorded_key(table, entry.cluster_by)
        return clustering_information(table.blocks(entry.where).blocks).average_depth
    except ReclusterError:
        return None  # a column of the key or of the predicate is gone


def _under_recorded_key(table: ClusteredTable, cluster_by: str) -> ClusteredTable:
    """Return the table under the key of a round; the same object, with what it has read, if that is its key."""
    try:
        if str(table.key) == cluster_by:
            return table
    except ReclusterError:
        pass  # it has no sort order any more
    return table.under(cluster_by)
