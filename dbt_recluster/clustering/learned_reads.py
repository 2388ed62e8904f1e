"""Learn what is read of a table: from the project that reads it, and from the event logs of Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.recorded_reads import (
    EVENT_LOG,
    PROJECT,
    READS_PROPERTY,
    RecordedReads,
    faded,
)
from dbt_recluster.columns import name_parts
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.event_logs import EventLogs
from dbt_recluster.iceberg.logged_filters import logged_boxes
from dbt_recluster.iceberg.query_scans import scan_predicates
from dbt_recluster.iceberg.read_boxes import Box, box_as_json, predicate_boxes, value_types

if TYPE_CHECKING:
    from dbt_recluster.clustering.keyed_table import KeyedTable

DEFAULT_SPAN = timedelta(days=7)

# A query that says `current_date` reads another range every day.
_PROJECT_HOLDS = timedelta(days=1)


@dataclass(frozen=True)
class LearnedReads:
    """What was learned of a table.

    Attributes:
        table: The table.
        source: Who knew it, ``project`` or ``event log``.
        scans: Scans of the table that were found.
        ranges: Ranges that they restrict columns to.
        recorded: Ranges that the table records now, of all sources.
        left_out: What could not be understood, a line for each.
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


def is_project_known(table: KeyedTable, queries: Mapping[str, str]) -> bool:
    """Whether the table records what these queries read, as of today."""
    recorded = RecordedReads.parse(table.iceberg.properties.get(READS_PROPERTY))
    learned = recorded.at.get(PROJECT)
    is_fresh = learned is not None and datetime.now(timezone.utc) - learned < _PROJECT_HOLDS
    return is_fresh and recorded.state.get(PROJECT) == _digest(queries)


def learn_from_project(table: KeyedTable, queries: Mapping[str, str]) -> LearnedReads:
    """Record what the queries of a project read of a table, in place of what they read before.

    Args:
        table: The table.
        queries: The compiled SQL of what reads it, by name. Each counts once; none is run.
    """
    kinds = value_types(table.columns.types)
    boxes: list[tuple[Box, float]] = []
    scans, left_out = 0, []
    for name, query in queries.items():
        try:
            predicates = scan_predicates(table.iceberg, query)
            found = [box for each in predicates for box in predicate_boxes(table.iceberg, kinds, each)]
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        scans += len(predicates)
        boxes += [(box, 1.0) for box in found]
    state = {PROJECT: _digest(queries)}
    recorded = _record(table, PROJECT, boxes, state, datetime.now(timezone.utc), keep=not scans)
    return LearnedReads(table.name, PROJECT, scans, len(boxes), len(recorded.reads), left_out)


def import_event_logs(
    table: KeyedTable, directory: str, since: datetime | None = None, logged_as: str | None = None
) -> LearnedReads:
    """Record what the queries in Spark's event logs read of a table, beside what others did before.

    Queries up to the last one of an earlier import from this place are not counted again.

    Args:
        table: The table.
        directory: Where the logs are, or a single log.
        since: Leave out queries before; by default of a week ago.
        logged_as: The table's full name in the logs, where other applications give its catalog another name.

    Raises:
        EventLogError: There are no logs there.
    """
    now = datetime.now(timezone.utc)
    kinds = value_types(table.columns.types)
    name = logged_as or ".".join(name_parts(table.iceberg.identifier))
    log = f"{EVENT_LOG} {_digest({'directory': directory, 'name': name})}"
    known = RecordedReads.parse(table.iceberg.properties.get(READS_PROPERTY))
    logs = EventLogs(table.iceberg.spark, directory)
    start = max(
        since or now - DEFAULT_SPAN, _next_import(known, log) or datetime.min.replace(tzinfo=timezone.utc)
    )
    boxes: list[tuple[Box, float]] = []
    scans, last, elsewhere = 0, None, set()
    for scan in logs.scans(start):
        if scan.table.lower() == name.lower():
            scans += 1
            last = scan.at if last is None else max(last, scan.at)
            boxes += [(box, faded(scan.at, now)) for box in logged_boxes(kinds, scan.filters)]
        elif scan.table.lower().split(".")[-2:] == name.lower().split(".")[-2:]:
            elsewhere.add(scan.table)
    left_out = [f"{part}: could not be read to its end" for part in logs.unreadable]
    if not scans:
        found = f"; {', '.join(sorted(elsewhere))} is: name it with logged_as" if elsewhere else ""
        when = start.isoformat(sep=" ", timespec="seconds")[:19]
        left_out.append(f"{name} is read by no query since {when} UTC in {logs.count} logs{found}")
    if last is None:
        return LearnedReads(table.name, EVENT_LOG, 0, 0, len(known.reads), left_out)
    state = {log: (last + timedelta(milliseconds=1)).isoformat()}
    recorded = _record(table, EVENT_LOG, boxes, state, now)
    return LearnedReads(table.name, EVENT_LOG, scans, len(boxes), len(recorded.reads), left_out)


def forget_reads(table: KeyedTable) -> int:
    """Drop what a table records of its reads; return how many ranges it was."""
    text = table.iceberg.properties.get(READS_PROPERTY)
    if text is not None:
        table.iceberg.set_property(READS_PROPERTY, None)
    return len(RecordedReads.parse(text).reads)


def _record(
    table: KeyedTable,
    source: str,
    boxes: Iterable[tuple[Box, float]],
    state: Mapping[str, str],
    now: datetime,
    keep: bool = False,
) -> RecordedReads:
    """Record what a source knows; with ``keep``, what it knew before, as of now."""
    table.iceberg.refresh()  # others may have recorded something since
    known = RecordedReads.parse(table.iceberg.properties.get(READS_PROPERTY))
    new: list[tuple[Mapping[str, Sequence[Any]], float]]
    new = [(box_as_json(box), weight) for box, weight in boxes]
    if keep:
        new = [(read.box, read.weight) for read in known.reads if read.source == source]
    learned = known.learned(source, new, state, now)
    table.iceberg.set_property(READS_PROPERTY, learned.text())
    return learned


def _next_import(known: RecordedReads, log: str) -> datetime | None:
    """Return where the next import of a log begins, or None if there was none."""
    try:
        time = datetime.fromisoformat(known.state[log])
    except (KeyError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def _digest(queries: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(queries, sort_keys=True).encode()).hexdigest()[:16]
