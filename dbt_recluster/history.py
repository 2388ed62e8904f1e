"""The history of a table's clustering, written into and read from the summaries of its own snapshots.

Nothing else holds it: whoever can read the table can read its history, and it goes as far back as snapshots
are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.snapshots import Snapshot, current_history
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.observation import observe, resolve_key
from dbt_recluster.planner import Blocks, Plan, Policy
from dbt_recluster.planner import clustering_information as planner_information
from dbt_recluster.planner.simulation import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "recluster."
TRIGGERS = ("run", "manual")


@dataclass(frozen=True)
class HistoryEntry:
    """One round of reclustering, or one commit of anybody else's.

    Attributes:
        at: When it was committed, UTC.
        snapshot_ids: Its snapshots, in order; a round makes one for each run it writes.
        kind: ``recluster``, or for others Iceberg's word: ``append``, ``overwrite``, ``delete``, ``replace``.
        by: For a recluster its trigger, ``run`` or ``manual``; for others the engine, where it says so.
        cluster_by: The key; None for others, as is everything below that only a recluster has.
        where: The predicate that restricted the recluster, and that its depths are measured under.
        levels: The levels of the blocks it wrote.
        sets: Block sets merged.
        blocks_in, blocks_out: Blocks taken out of the table and put into it.
        bytes_in, bytes_out: Their bytes.
        rows_in, rows_out: Their rows.
        seconds: What reading, sorting and writing took.
        conflicts: How often the round started again because another writer was faster.
        depth_before: Average depth when it was planned.
        depth_after: Average depth after it.
        depth_after_is: ``measured``, or ``expected`` where something else was committed before anybody
            measured: then it is what the planner expected.
        write_amplification: Rows rewritten by reclustering for each row loaded, up to here, as far back as
            snapshots are kept. The rows of the oldest one count as loaded.
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
    seconds: float | None = None
    conflicts: int | None = None
    depth_before: float | None = None
    depth_after: float | None = None
    depth_after_is: str | None = None
    write_amplification: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "at": self.at.isoformat(timespec="milliseconds")}


def clustering_history(spark: SparkSession, table: str, since: datetime | None = None) -> list[HistoryEntry]:
    """Return what happened to a table, oldest first: every round of reclustering and every load between.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        since: Leave out what is older; it still counts for the write amplification.

    Raises:
        NotAnIcebergTableError: There is no such table.
    """
    target = IcebergTable.load(spark, table)
    snapshots = current_history(target)
    entries = _with_amplification(_entries(snapshots), _rows_before(snapshots))
    entries = _with_depths(target, entries)
    return [entry for entry in entries if since is None or entry.at >= since]


def bytes_per_second(entries: Sequence[HistoryEntry]) -> float | None:
    """Return how fast this table's rounds were, in bytes read a second; None where there was no round."""
    rounds = [entry for entry in entries if entry.kind == "recluster" and entry.seconds]
    seconds = sum(entry.seconds or 0.0 for entry in rounds)
    return sum(entry.bytes_in for entry in rounds) / seconds if seconds else None


def speed(table: IcebergTable) -> float | None:
    """Return :func:`bytes_per_second` of a table's history."""
    return bytes_per_second(_entries(current_history(table)))


def round_summary(
    figures: Mapping[str, int],
    *,
    trigger: str,
    cluster_by: str,
    where: str | None,
    blocks: Blocks,
    chosen: Plan,
    policy: Policy,
    seconds: float,
    conflicts: int,
) -> dict[str, str]:
    """Return what a round writes into the summaries of its snapshots, for :func:`clustering_history` to read.

    All snapshots of one round carry the figures of the whole round, so that those that are left after an
    expiry tell them all.
    """
    after = simulate(blocks, chosen, policy)
    facts = {
        **figures,
        "round": uuid.uuid4().hex[:12],
        "trigger": trigger,
        "cluster_by": cluster_by,
        "depth_before": planner_information(blocks).average_depth,
        "depth_expected": planner_information(after).average_depth,
        "seconds": round(seconds, 3),
        "conflicts": conflicts,
        **({"where": where} if where is not None else {}),
    }
    return {f"{PREFIX}{name}": str(value) for name, value in facts.items()}


def _entries(snapshots: Sequence[Snapshot]) -> list[HistoryEntry]:
    """Return one entry a round and one for every other commit."""
    entries = []
    for ours, group in groupby(snapshots, key=lambda each: each.summary.get(f"{PREFIX}round", each.id)):
        members = list(group)
        summary = members[-1].summary
        recluster = isinstance(ours, str) or f"{PREFIX}sets" in summary
        entries.append(_round(members) if recluster else _other(members[0]))
    return entries


def _round(members: Sequence[Snapshot]) -> HistoryEntry:
    last = members[-1]
    facts = {
        name.removeprefix(PREFIX): value for name, value in last.summary.items() if name.startswith(PREFIX)
    }

    def decimal(name: str) -> float | None:
        return float(facts[name]) if name in facts else None

    rows = int(facts.get("rows", 0))
    return HistoryEntry(
        at=last.at,
        snapshot_ids=tuple(member.id for member in members),
        kind="recluster",
        by=facts.get("trigger", ""),
        cluster_by=facts.get("cluster_by"),
        where=facts.get("where"),
        levels=tuple(sorted({int(member.summary.get(f"{PREFIX}level", 0)) for member in members})),
        sets=int(facts.get("sets", 0)),
        blocks_in=int(facts.get("blocks_in", 0)),
        blocks_out=int(facts.get("blocks_out", 0)),
        bytes_in=int(facts.get("bytes_in", 0)),
        bytes_out=int(facts.get("bytes_out", 0)),
        rows_in=rows,
        rows_out=rows,
        seconds=decimal("seconds"),
        conflicts=int(facts.get("conflicts", 0)),
        depth_before=decimal("depth_before"),
        depth_after=decimal("depth_expected"),
        depth_after_is="expected" if "depth_expected" in facts else None,
    )


def _other(snapshot: Snapshot) -> HistoryEntry:
    def count(name: str) -> int:
        return int(snapshot.summary.get(name, 0))

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
    )


def _rows_before(snapshots: Sequence[Snapshot]) -> int:
    """Return the rows that the table had before its oldest kept snapshot: the loads of which have expired."""
    if not snapshots:
        return 0
    summary = snapshots[0].summary
    had = [int(summary.get(name, 0)) for name in ("total-records", "added-records", "deleted-records")]
    return max(0, had[0] - had[1] + had[2])


def _with_amplification(entries: Sequence[HistoryEntry], rows_before: int) -> list[HistoryEntry]:
    rewritten, loaded = 0, rows_before
    done = []
    for entry in entries:
        if entry.kind == "recluster":
            rewritten += entry.rows_in
        elif entry.kind != "replace":  # somebody else's rewrite of the same rows is no load
            loaded += entry.rows_out
        done.append(replace(entry, write_amplification=round(rewritten / loaded, 4) if loaded else 0.0))
    return done


def _with_depths(table: IcebergTable, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Put the depth that was measured after a round in place of the expected one, wherever it was measured."""
    done = list(entries)
    for place, entry in enumerate(done):
        if entry.kind != "recluster":
            continue
        measured = None
        if place + 1 == len(done):
            measured = _depth_now(table, entry)
        elif (following := done[place + 1]).kind == "recluster" and _same_measure(entry, following):
            measured = following.depth_before
        if measured is not None:
            done[place] = replace(entry, depth_after=measured, depth_after_is="measured")
    return done


def _same_measure(one: HistoryEntry, other: HistoryEntry) -> bool:
    return (one.cluster_by, one.where) == (other.cluster_by, other.where)


def _depth_now(table: IcebergTable, entry: HistoryEntry) -> float | None:
    try:
        key = resolve_key(table, entry.cluster_by)
        return planner_information(observe(table, key, entry.where).blocks).average_depth
    except ReclusterError:
        return None  # a column of the key or of the predicate is gone since
