"""Import the reads of a table: from the queries of a project, or from Spark's event logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from dbt_recluster.advice.event_logs import EventLogs, LoggedFilters
from dbt_recluster.clustering.result import Figures
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_reads import (
    EVENT_LOG,
    MOST_READS,
    PROJECT,
    ReadRange,
    compact,
    faded,
)
from dbt_recluster.clustering.values import digest
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.event_log_files import EventLogFiles
from dbt_recluster.iceberg.predicates import ranges_as_json
from dbt_recluster.names import name_parts

_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class ImportedReads(Figures):
    """The result of an import of reads.

    Attributes:
        table: The table.
        imported_from: Where they come from, ``project`` or ``event log``.
        scans: Scans of the table in the queries.
        ranges: Ranges that they restrict columns to.
        recorded: Ranges that the table records now, of all imports.
        left_out: Queries and logs that could not be read, a line for each.
    """

    table: str
    imported_from: str
    scans: int
    ranges: int
    recorded: int
    left_out: list[str] = field(default_factory=list)


def has_recorded(table: ClusteredTable, queries: Mapping[str, str]) -> bool:
    """Whether a table records the reads of these queries of a project, as of today."""
    recorded = table.reads.recorded
    imported = recorded.at.get(PROJECT)
    # A query with `current_date` reads another range every day.
    is_fresh = imported is not None and datetime.now(timezone.utc) - imported < timedelta(days=1)
    return is_fresh and recorded.state.get(PROJECT) == digest(queries)


def record_queries(table: ClusteredTable, queries: Mapping[str, str]) -> ImportedReads:
    """Record the ranges that the queries of a project read, by name, in place of earlier ones; no query is run."""
    new: list[ReadRange] = []
    scans, left_out = 0, []
    for name, query in queries.items():
        try:
            of_query, alternatives = table.reads.column_ranges.of_query(query)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        scans += of_query
        new += [ReadRange(ranges_as_json(ranges), 1.0, PROJECT) for ranges in alternatives]
    state = {PROJECT: digest(queries)}
    recorded = table.reads.record(PROJECT, new if scans else None, state, datetime.now(timezone.utc))
    return ImportedReads(table.name, PROJECT, scans, len(new), recorded, left_out)


def import_event_logs(
    table: ClusteredTable, directory: str, since: datetime | None = None, logged_as: str | None = None
) -> ImportedReads:
    """Add the ranges that the queries in Spark's event logs read, after those of an earlier import from there.

    Raises:
        EventLogError: There are no logs there.
    """
    now, recorded = datetime.now(timezone.utc), table.reads.recorded
    name = logged_as or ".".join(name_parts(table.iceberg.identifier))
    log = f"{EVENT_LOG} {digest({'directory': directory, 'name': name})}"
    logs = EventLogs(EventLogFiles(table.iceberg.spark, directory), name)
    filters = LoggedFilters(table.reads.column_ranges.kinds)
    start = max(since or now - timedelta(days=7), recorded.time_of(log) or _START_OF_TIME)
    count = 0

    def logged() -> Iterator[ReadRange]:
        nonlocal count
        for scan in logs.scans(start):
            for ranges in filters.ranges(scan.filters):
                count += 1
                yield ReadRange(ranges_as_json(ranges), faded(scan.at, now), EVENT_LOG)

    new = compact(logged(), MOST_READS)
    left_out, on_record = list(logs.faults), len(recorded.reads)
    if logs.last is not None:
        first = min(logs.first or now, recorded.time_of(EVENT_LOG) or now)
        last = logs.last + timedelta(milliseconds=1)
        state = {log: last.isoformat(), EVENT_LOG: first.isoformat(timespec="seconds")}
        on_record = table.reads.record(EVENT_LOG, new, state, now)
    elif not logs.unknown:
        when = start.isoformat(sep=" ", timespec="seconds")[:19]
        names = ", ".join(sorted(logs.namesakes))
        advice = f"; {names} is: name it with logged_as" if names else ""
        left_out.append(f"{name} is read by no query since {when} UTC in {logs.files.count} logs{advice}")
    return ImportedReads(table.name, EVENT_LOG, logs.scanned, count, on_record, left_out)
