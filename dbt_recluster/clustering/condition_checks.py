"""Whether the conditions of a recluster after a build are met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain

from dbt_recluster.clustering.conditions import After, Conditions, When
from dbt_recluster.clustering.reads.reads_information import reads_information
from dbt_recluster.clustering.recorded_changes import known_changes
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.query_scans import run_query, scan_predicates
from dbt_recluster.iceberg.scan import file_paths


@dataclass(frozen=True)
class Checked:
    """Whether a condition is met, and which, or why none is."""

    met: bool
    reason: str


def check_conditions(table: ClusteredTable, conditions: Conditions) -> Checked:
    """Return whether any condition is met; the reason is that of the first one."""
    missed = []
    after = [] if conditions.after is None else [_after(table, conditions.after)]
    # One after the other, because a later one may run a query.
    for checks in chain(after, (_when(table, when) for when in conditions.when)):
        for met, text in checks:
            if met:
                return Checked(True, text)
            missed.append(text)
    return Checked(False, f"no condition met: {', '.join(missed) or 'the table is empty'}")


def block_count(table: ClusteredTable) -> int:
    """Return how many blocks a table has, as its snapshot says."""
    current = table.iceberg.current_snapshot()
    return (current.count("total-data-files") or 0) if current else 0


def _after(table: ClusteredTable, after: After) -> list[tuple[bool, str]]:
    changes = known_changes(table)
    rows = changes.rows
    current = table.iceberg.current_snapshot()
    total = max(1, (current.count("total-records") or 0) if current else 0)
    checks = []
    if after.rows is not None:
        checks.append((rows >= after.rows, f"{rows:,} of {after.rows:,.0f} rows changed"))
    if after.commits is not None:
        checks.append(
            (changes.commits >= after.commits, f"{changes.commits} of {math.ceil(after.commits)} commits")
        )
    if after.share is not None:
        checks.append(
            (rows / total >= after.share, f"{rows / total:.1%} of {after.share:.1%} of the rows changed")
        )
    return checks


def _when(table: ClusteredTable, when: When) -> list[tuple[bool, str]]:
    if when.skipped is not None:
        reads = reads_information(table)
        if reads.share_skipped is None:
            return [(False, "no reads of the key are known")]
        text = f"reads skip {reads.share_skipped:.1%} of the blocks, {when.skipped:.1%} wanted"
        return [(reads.share_skipped < when.skipped, text)]
    assert when.query is not None
    checks = []
    snapshot_id = table.iceberg.snapshot_id
    if when.opens is not None and snapshot_id is not None:
        scans = [predicate.expression for predicate in scan_predicates(table.iceberg, when.query)]
        if not scans:
            raise PredicateError(f"the example query of recluster_when does not read {table.name}")
        opened = sum(len(file_paths(table.iceberg, snapshot_id, scan)) for scan in scans)
        limit = when.opens if when.opens >= 1 else when.opens * block_count(table)
        checks.append((opened > limit, f"the example query opens {opened} blocks, {limit:,.0f} wanted"))
    if when.seconds is not None:
        took = run_query(table.iceberg, when.query)
        checks.append((took > when.seconds, f"the example query takes {took:.1f} s, {when.seconds:g} wanted"))
    return checks
