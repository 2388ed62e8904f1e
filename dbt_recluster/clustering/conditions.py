"""What keeps builds from reclustering a table: conditions that are not met, or automatic clustering that is off.

A build without a recluster records the changes since the last recluster in a property, so their snapshots may expire.
The commit of a recluster removes the property.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from dbt_recluster.clustering.history import RoundSummary, is_of_round, rows_before
from dbt_recluster.clustering.information import reads_information
from dbt_recluster.clustering.options import ReclusterOptions, When
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.verdict import Facts, Standing, Stop, decide
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan
from dbt_recluster.iceberg.predicates import run_query, scan_predicates
from dbt_recluster.iceberg.table_properties import CHANGES
from dbt_recluster.planner import Reason
from dbt_recluster.text import count_noun


class Condition(NamedTuple):
    """A condition of a recluster."""

    is_met: bool
    text: str  # why it is met, or not
    waits_for: str = ""  # what would meet it, if known

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons not to recluster while it is not met."""
        unmet = Reason(Stop.NO_CONDITION_MET, (self.text,))
        return (unmet, Reason(Stop.NEXT_AFTER, (self.waits_for,))) if self.waits_for else (unmet,)


def waits(table: ClusteredTable, options: ReclusterOptions) -> tuple[Reason, ...]:
    """Return what keeps builds from reclustering a table now; empty if nothing does."""
    if not options.automatic:
        return (Reason(Stop.AUTOMATIC_OFF),)
    condition = met_condition(table, options)
    return () if condition is None or condition.is_met else condition.reasons


def table_standing(table: ClusteredTable, options: ReclusterOptions, facts: Facts) -> Standing:
    """Return the verdict on a table by some facts, and by its conditions if they decide: they may run queries."""
    standing = decide(facts)
    if standing.verdict == "deep" and (held := waits(table, options)):
        return decide(replace(facts, waits=held))
    return standing


def met_condition(table: ClusteredTable, options: ReclusterOptions) -> Condition | None:
    """Return the first condition of a recluster that is met, or one that says why none is; None without conditions."""
    if options.after is None and not options.when:
        return None
    missed = []
    # Lazily: a later one may run a query.
    for condition in chain(_after(table, options), *(_when(table, options, when) for when in options.when)):
        if condition.is_met:
            return condition
        missed.append(condition)
    texts = ", ".join(condition.text for condition in missed) or "the table is empty"
    waits_for = " or ".join(filter(None, (condition.waits_for for condition in missed)))
    return Condition(False, texts, waits_for)


def block_count(table: ClusteredTable) -> int:
    """Return how many blocks a table has, as its snapshot says."""
    current = table.iceberg.current_snapshot()
    return (current.count("total-data-files") or 0) if current else 0


def _after(table: ClusteredTable, options: ReclusterOptions) -> Iterator[Condition]:
    after = options.after
    if after is None:
        return
    changes, _ = _changes(table)
    hours = (time.time() - changes.since) / 3600 if changes.since else 0.0
    current = table.iceberg.current_snapshot()
    share = changes.rows / max(1, (current.count("total-records") or 0) if current else 0)
    for name, verb in (("rows", "changed"), ("deleted", "deleted"), ("updated", "updated")):
        if (limit := getattr(after, name)) is not None:
            count = getattr(changes, name)
            more = f"{limit - count:,.0f} more rows{'' if name == 'rows' else f' {verb}'}"
            yield Condition(count >= limit, f"{count:,} of {limit:,.0f} rows {verb}", more)
    if after.commits is not None:
        left = math.ceil(after.commits) - changes.commits
        text = f"{changes.commits} of {math.ceil(after.commits)} commits"
        yield Condition(left <= 0, text, count_noun(left, "more commit"))
    if after.share is not None:
        text = f"{share:.1%} of {after.share:.1%} of the rows changed"
        left_share = math.ceil(1000 * (after.share - share)) / 1000
        yield Condition(share >= after.share, text, f"{left_share:.1%} more of the rows")
    for unit, limit, passed in (("hours", after.hours, hours), ("days", after.days, hours / 24)):
        if limit is not None:
            text = f"{passed:.1f} of {limit:g} {unit} without a recluster"
            yield Condition(passed >= limit, text, f"{math.ceil(10 * (limit - passed)) / 10:.1f} more {unit}")


def record_changes(table: ClusteredTable) -> None:
    """Record the changes since the last recluster if they are more than recorded: their snapshots may expire."""
    changes, before = _changes(table)
    if (changes.rows, changes.commits) != (before.rows, before.commits):
        table.iceberg.set_property(CHANGES, CHANGES.dump(asdict(changes)))


def _changes(table: ClusteredTable) -> tuple[Changes, Changes]:
    """Return the changes since the last recluster, and those of them that the table records."""
    recorded = Changes.parse(table.iceberg.properties.get(CHANGES))
    return changes_since_recluster(table.snapshots(), recorded), recorded or Changes()


def _when(table: ClusteredTable, options: ReclusterOptions, when: When) -> Iterator[Condition]:
    if when.skipped is not None:
        share = reads_information(table).share_skipped
        if share is None:
            yield Condition(False, "no reads of the key are known")
        else:
            text = f"reads skip {share:.1%} of the blocks, {when.skipped:.1%} wanted"
            yield Condition(share < when.skipped, text)
        return
    if when.ratio is not None:
        ratio = table.measure(table.current_blocks().blocks, options.block_rows).reducible_ratio
        assert ratio is not None
        yield Condition(ratio < when.ratio, f"the reducible ratio is {ratio:.1f}, {when.ratio:g} wanted")
        return
    assert when.query is not None
    snapshot_id = table.iceberg.snapshot_id
    if when.opens is not None and snapshot_id is not None:
        opened = sum(len(scan.paths()) for scan in _scans(table, snapshot_id, when.query))
        limit = when.opens if when.opens >= 1 else when.opens * block_count(table)
        yield Condition(opened > limit, f"the example query opens {opened} blocks, {limit:,.0f} wanted")
    if when.selectivity is not None and snapshot_id is not None:
        rows = sum(scan.rows() for scan in _scans(table, snapshot_id, when.query))
        share = run_query(table.iceberg, when.query)[1] / rows if rows else 1.0
        text = f"the example query returns {share:.1%} of the rows it opens"
        yield Condition(share < when.selectivity, f"{text}, {when.selectivity:.1%} wanted")
    if when.seconds is not None:
        took, _ = run_query(table.iceberg, when.query)
        yield Condition(took > when.seconds, f"the example query takes {took:.1f} s, {when.seconds:g} wanted")


def _scans(table: ClusteredTable, snapshot_id: int, query: str) -> list[SnapshotScan]:
    """Return the scans of a table in a query."""
    predicates = scan_predicates(table.iceberg, query)
    if not predicates:
        raise PredicateError(f"the example query of recluster_when does not read {table.name}")
    return [SnapshotScan(table.iceberg, snapshot_id, predicate.expression) for predicate in predicates]


@dataclass(frozen=True)
class Changes:
    """Changes since the last recluster."""

    rows: int = 0  # rows added and deleted
    commits: int = 0  # commits of other writers that changed rows
    snapshot: int | None = None  # the last snapshot counted, or None
    total: int = 0  # the table's rows in it
    # Time of the last recluster, or of the first known commit, in seconds since 1970; 0 if unknown.
    since: int = 0
    deleted: int = 0  # rows that are gone
    updated: int = 0  # rows written in place of others; by copy-on-write, the rest of their blocks too
    at: int = 0  # time of the last snapshot counted, in milliseconds since 1970

    @classmethod
    def parse(cls, text: str | None) -> Changes | None:
        """Read the property; None if there is none, or a malformed one."""
        changes = CHANGES.load(text, lambda counts: cls(**counts))
        is_whole = changes and all(type(value) is int for value in asdict(changes).values())
        return changes if is_whole else None

    def plus(self, snapshots: Sequence[Snapshot]) -> Changes:
        """Return these changes and those of the snapshots that follow."""
        if not snapshots:
            return self
        removals = ("deleted-records", "added-position-deletes", "added-equality-deletes")
        changing = [snapshot for snapshot in snapshots if snapshot.operation != "replace"]
        added = np.array([s.count("added-records") or 0 for s in changing], np.int64)
        removed = np.array([sum(s.count(name) or 0 for name in removals) for s in changing], np.int64)
        # A snapshot without a parent replaces the table, and with it all rows.
        before = [self.total, *(s.count("total-records") or 0 for s in snapshots[:-1])]
        replaced = {s.id: rows for s, rows in zip(snapshots, before, strict=True) if s.parent is None}
        removed += np.array([replaced.get(s.id, 0) for s in changing], np.int64)
        updated, last = np.minimum(added, removed), snapshots[-1]
        return Changes(
            rows=self.rows + int((added + removed).sum()),
            commits=self.commits + int(np.count_nonzero(added + removed)),
            snapshot=last.id,
            total=last.count("total-records") or 0,
            since=self.since,
            deleted=self.deleted + int((removed - updated).sum()),
            updated=self.updated + int(updated.sum()),
            at=round(1000 * last.at.timestamp()),
        )


def changes_since_recluster(snapshots: Sequence[Snapshot], recorded: Changes | None) -> Changes:
    """Add the changes in the remaining snapshots, oldest first, to those recorded, from the last recluster on."""
    last = max((number for number, snapshot in enumerate(snapshots, 1) if is_of_round(snapshot)), default=0)
    planned = RoundSummary.from_snapshot(snapshots[last - 1]).planned if last else 0
    begin = next((number for number, snapshot in enumerate(snapshots[:last], 1) if snapshot.id == planned), last)
    later = snapshots[begin:]
    total = snapshots[begin - 1].count("total-records") or 0 if begin else 0
    anew = Changes(since=int(snapshots[max(0, last - 1)].at.timestamp()) if snapshots else 0, total=total)
    if recorded is None:
        return anew.plus(later)
    recorded = replace(recorded, since=recorded.since or anew.since)
    for number, snapshot in enumerate(later, 1):
        if snapshot.id == recorded.snapshot:
            return recorded.plus(later[number:])
    # A snapshot that has expired is older than those that remain, and others have been rolled back.
    if last or (snapshots and round(1000 * snapshots[0].at.timestamp()) <= recorded.at):
        return anew.plus(later)
    # The net rows of commits that came and expired since, or those that a replacement of the table dropped.
    rows = abs(rows_before(snapshots) - recorded.total) if snapshots else 0
    is_commit = rows > 0 and snapshots[0].parent is not None
    expired = replace(recorded, rows=recorded.rows + rows, commits=recorded.commits + is_commit, total=0)
    return expired.plus(snapshots)
