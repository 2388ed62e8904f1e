"""Learn the reads of a table from the project's queries and from Spark's event logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.recorded_reads import (
    EVENT_LOG,
    MOST_READS,
    PROJECT,
    READS_PROPERTY,
    RecordedRead,
    RecordedReads,
    compact,
    faded,
)
from dbt_recluster.clustering.values import parse_iso_time
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.column_ranges import ranges_as_json
from dbt_recluster.iceberg.reads.event_logs import EventLogs, LoggedScan
from dbt_recluster.iceberg.reads.logged_filters import logged_ranges
from dbt_recluster.iceberg.reads.query_scans import query_ranges
from dbt_recluster.iceberg.value_types import ValueType, value_types
from dbt_recluster.table_names import name_parts

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable

DEFAULT_SPAN = timedelta(days=7)

# A query with `current_date` reads another range every day.
_PROJECT_HOLDS = timedelta(days=1)
# Tables of the same name in other catalogs.
_MOST_NAMED = 10
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class LearnedReads:
    """The result of an import of reads.

    Attributes:
        table: The table.
        source: Where they come from, ``project`` or ``event log``.
        scans: Scans of the table in the queries.
        ranges: Ranges that they restrict columns to.
        recorded: Ranges that the table records now, of all sources.
        left_out: Queries and logs that could not be read, a line for each.
    """

    table: str
    source: str
    scans: int
    ranges: int
    recorded: int
    left_out: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def is_project_known(table: ClusteredTable, queries: Mapping[str, str]) -> bool:
    """Whether the table records the reads of these queries, as of today."""
    recorded = RecordedReads.of(table.iceberg.properties)
    learned = recorded.at.get(PROJECT)
    is_fresh = learned is not None and datetime.now(timezone.utc) - learned < _PROJECT_HOLDS
    return is_fresh and recorded.state.get(PROJECT) == _digest(queries)


def learn_from_project(table: ClusteredTable, queries: Mapping[str, str]) -> LearnedReads:
    """Record the ranges that the queries of a project read, in place of those recorded before.

    Args:
        table: The table.
        queries: The compiled SQL of the nodes that read it, by name. Each counts once; none is run.
    """
    kinds = value_types(table.columns.types)
    boxes: list[tuple[Mapping[str, Sequence[Any]], float]] = []
    scans, left_out = 0, []
    for name, query in queries.items():
        try:
            of_query, boxes_of_query = query_ranges(table.iceberg, kinds, query)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        scans += of_query
        boxes += [(ranges_as_json(box), 1.0) for box in boxes_of_query]
    state = {PROJECT: _digest(queries)}
    recorded = _record(table, PROJECT, boxes, state, datetime.now(timezone.utc), keep=not scans)
    return LearnedReads(table.name, PROJECT, scans, len(boxes), len(recorded.reads), left_out)


def import_event_logs(
    table: ClusteredTable, directory: str, since: datetime | None = None, logged_as: str | None = None
) -> LearnedReads:
    """Record the ranges that the queries in Spark's event logs read, beside those recorded before.

    Queries up to the last one of an earlier import from this place are not counted again.

    Args:
        table: The table.
        directory: Where the logs are, or a single log.
        since: Leave out earlier queries; by default those of more than a week ago.
        logged_as: The table's full name in the logs, where other applications give its catalog another name.

    Raises:
        EventLogError: There are no logs there.
    """
    now = datetime.now(timezone.utc)
    name = logged_as or ".".join(name_parts(table.iceberg.identifier))
    log = f"{EVENT_LOG} {_digest({'directory': directory, 'name': name})}"
    known = RecordedReads.of(table.iceberg.properties)
    logs = EventLogs(table.iceberg.spark, directory)
    start = max(since or now - DEFAULT_SPAN, _time_of_state(known, log, _START_OF_TIME))
    found = _LoggedReads(name, value_types(table.columns.types), now)
    reads = compact(found.of(logs.scans(start)), MOST_READS)
    left_out = list(logs.faults)
    if found.last is None:
        when = start.isoformat(sep=" ", timespec="seconds")[:19]
        left_out.append(f"{name} is read by no query since {when} UTC in {logs.count} logs{found.advice}")
        return LearnedReads(table.name, EVENT_LOG, 0, 0, len(known.reads), left_out)
    state = {
        log: (found.last + timedelta(milliseconds=1)).isoformat(),
        EVENT_LOG: min(found.first, _time_of_state(known, EVENT_LOG, now)).isoformat(timespec="seconds"),
    }
    boxes = [(read.box, read.weight) for read in reads]
    recorded = _record(table, EVENT_LOG, boxes, state, now)
    return LearnedReads(table.name, EVENT_LOG, found.scans, found.ranges, len(recorded.reads), left_out)


class _LoggedReads:
    """The reads of a table among logged scans, one after the other: logs may hold millions.

    Args:
        name: The table's full name in the logs.
        kinds: The types of its columns.
        now: The time at which a read has its whole weight.

    Attributes:
        scans: Scans of the table so far.
        ranges: Ranges that they restrict columns to.
        first: When the first query of any table began.
        last: When the last query of this table began, or None.
    """

    def __init__(self, name: str, kinds: Mapping[str, ValueType], now: datetime) -> None:
        self._name, self._kinds, self._now = name.lower(), kinds, now
        self._elsewhere: set[str] = set()
        self.scans = self.ranges = 0
        self.first = now
        self.last: datetime | None = None

    def of(self, scans: Iterable[LoggedScan]) -> Iterator[RecordedRead]:
        """Yield the ranges that scans of the table read."""
        for scan in scans:
            self.first = min(self.first, scan.at)
            if scan.table.lower() != self._name:
                self._look_elsewhere(scan.table)
                continue
            self.scans += 1
            self.last = scan.at if self.last is None else max(self.last, scan.at)
            for box in logged_ranges(self._kinds, scan.filters):
                self.ranges += 1
                yield RecordedRead(EVENT_LOG, ranges_as_json(box), faded(scan.at, self._now))

    def _look_elsewhere(self, table: str) -> None:
        is_alike = table.lower().split(".")[-2:] == self._name.split(".")[-2:]
        if is_alike and len(self._elsewhere) < _MOST_NAMED:
            self._elsewhere.add(table)

    @property
    def advice(self) -> str:
        """What to do if there was no scan of the table but of one in another catalog."""
        names = ", ".join(sorted(self._elsewhere))
        return f"; {names} is: name it with logged_as" if names else ""


def forget_reads(table: ClusteredTable) -> int:
    """Drop the reads that a table records; return the number of their ranges."""
    recorded = RecordedReads.of(table.iceberg.properties)
    if READS_PROPERTY in table.iceberg.properties:
        table.iceberg.set_property(READS_PROPERTY, None)
        table.reads_changed()
    return len(recorded.reads)


def _record(
    table: ClusteredTable,
    source: str,
    boxes: Iterable[tuple[Mapping[str, Sequence[Any]], float]],
    state: Mapping[str, str],
    now: datetime,
    keep: bool = False,
) -> RecordedReads:
    """Record the reads of a source; with ``keep``, those that it had before, as of now."""
    table.iceberg.refresh()  # another process may have recorded reads since
    known = RecordedReads.of(table.iceberg.properties)
    new = list(boxes)
    if keep:
        new = [(read.box, read.weight) for read in known.reads if read.source == source]
    learned = known.learned(source, new, state, now)
    table.iceberg.set_property(READS_PROPERTY, learned.text())
    table.reads_changed()
    return learned


def _time_of_state(known: RecordedReads, name: str, default: datetime) -> datetime:
    try:
        return parse_iso_time(known.state[name])
    except (KeyError, ValueError):
        return default


def _digest(queries: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(queries, sort_keys=True).encode()).hexdigest()[:16]
