"""The reads of a table: followed by plans and metrics, and recorded from queries and from Spark's event logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import NamedTuple

from dbt_recluster import table_properties
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.recorded_reads import (
    EVENT_LOG,
    MOST_READS,
    PROJECT,
    ReadRange,
    RecordedReads,
    compact,
    faded,
)
from dbt_recluster.clustering.result import Figures
from dbt_recluster.clustering.values import DeclaredRead, digest
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.event_logs import EventLogs, LoggedFilters
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.predicates import ColumnRanges, Predicate, Ranges, ranges_as_json
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import Columns
from dbt_recluster.names import name_parts
from dbt_recluster.planner import Reads

DEFAULT_SPAN = timedelta(days=7)

# A query with `current_date` reads another range every day.
_PROJECT_HOLDS = timedelta(days=1)
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


class Restricting(NamedTuple):
    """The reads of a table that restrict its key."""

    ranges: list[ReadRange]  # the reads
    # The ranges of the key that they ask for, in this order; under a key with a curve, the range of each of its
    # columns by itself. None if there are none.
    reads: Reads | None


class TableReads:
    """The reads of a table, which plans and metrics follow: those declared, or else those that the table records.

    Attributes:
        left_out: Warnings about declared reads that are left out.
    """

    def __init__(self, iceberg: IcebergTable, columns: Callable[[], Columns]) -> None:
        self._iceberg, self._columns = iceberg, columns
        self._followed: list[ReadRange] | None = None
        self._of_key: dict[str, Restricting] = {}
        self.left_out: list[str] = []

    @property
    def recorded(self) -> RecordedReads:
        """The reads that the table records."""
        return RecordedReads.parse(self._iceberg.properties.get(table_properties.READS))

    def follow(self, declared: Sequence[DeclaredRead] | None = None) -> list[str]:
        """Have plans and metrics follow these reads; return warnings about those that are left out.

        None stands for the reads that the table's model declares, or else for those that the table records.

        Raises:
            OptionError: The property that records what the model declares is no list of reads.
        """
        self._of_key.clear()
        self.left_out = []
        declared = RECLUSTER_OPTIONS["reads"].of_table(self._iceberg.properties, declared)
        if declared is None:
            known = [(read, self._ranges.of_json(read.columns)) for read in self.recorded.reads]
            self._followed = [
                replace(read, columns=ranges_as_json(ranges)) for read, ranges in known if ranges
            ]
        else:
            self._followed = [
                ReadRange(ranges_as_json(ranges), read.weight)
                for read in declared
                for ranges in self._ranges_of(read)
            ]
        return self.left_out

    @property
    def ranges(self) -> list[ReadRange]:
        """The ranges of the reads that are followed, as far as the table has their columns."""
        if self._followed is None:
            self.follow()
        return self._followed or []

    def restricting(self, key: ClusterKey) -> Restricting:
        """Return the reads that restrict a key of the table."""
        if str(key) not in self._of_key:
            bounded = [
                (read, ends)
                for read in self.ranges
                if (ends := self._ranges.of_key(key, self._ranges.of_json(read.columns)))
            ]
            items = range(len(key.fields))
            lower, upper = ([[ends[side][item] for _, ends in bounded] for item in items] for side in (0, 1))
            reads = Reads(lower, upper, [read.weight for read, _ in bounded]) if bounded else None
            self._of_key[str(key)] = Restricting([read for read, _ in bounded], reads)
        return self._of_key[str(key)]

    def of_key(self, key: ClusterKey) -> Reads | None:
        """Return the ranges of a key of the table for the planner, or None if no read restricts the key.

        Those of a curve's columns do not: they end nowhere along the curve.
        """
        plain = ClusterKey(key.leading) if key.curve else key
        return self.restricting(plain).reads if plain.fields else None

    def predicate(self, read: ReadRange) -> str:
        """Return the SQL predicate of a read."""
        return self._ranges.sql(self._ranges.of_json(read.columns))

    def has_recorded(self, queries: Mapping[str, str]) -> bool:
        """Whether the table records the reads of these queries of a project, as of today."""
        recorded = self.recorded
        imported = recorded.at.get(PROJECT)
        is_fresh = imported is not None and datetime.now(timezone.utc) - imported < _PROJECT_HOLDS
        return is_fresh and recorded.state.get(PROJECT) == digest(queries)

    def record_queries(self, queries: Mapping[str, str]) -> ImportedReads:
        """Record the ranges that the queries of a project read, in place of those recorded before.

        ``queries`` has the compiled SQL of the nodes that read the table, by name. Each counts once; none is run.
        """
        new: list[ReadRange] = []
        scans, left_out = 0, []
        for name, query in queries.items():
            try:
                of_query, alternatives = self._ranges.of_query(query)
            except PredicateError as e:
                left_out.append(f"{name}: {e}")
                continue
            scans += of_query
            new += [ReadRange(ranges_as_json(ranges), 1.0, PROJECT) for ranges in alternatives]
        state = {PROJECT: digest(queries)}
        recorded = self._record(PROJECT, new if scans else None, state, datetime.now(timezone.utc))
        return ImportedReads(self._iceberg.name, PROJECT, scans, len(new), recorded, left_out)

    def import_event_logs(
        self, directory: str, since: datetime | None = None, logged_as: str | None = None
    ) -> ImportedReads:
        """Record the ranges that the queries in Spark's event logs read, beside those recorded before.

        Queries up to the last one of an earlier import from this place are not counted again.

        Raises:
            EventLogError: There are no logs there.
        """
        now, recorded = datetime.now(timezone.utc), self.recorded
        name = logged_as or ".".join(name_parts(self._iceberg.identifier))
        log = f"{EVENT_LOG} {digest({'directory': directory, 'name': name})}"
        logs = EventLogs(self._iceberg.spark, directory, name)
        filters = LoggedFilters(self._ranges.kinds)
        start = max(since or now - DEFAULT_SPAN, recorded.time_of(log) or _START_OF_TIME)
        count = 0

        def logged() -> Iterator[ReadRange]:
            nonlocal count
            for scan in logs.scans(start):
                for ranges in filters.ranges(scan.filters):
                    count += 1
                    yield ReadRange(ranges_as_json(ranges), faded(scan.at, now), EVENT_LOG)

        new = compact(logged(), MOST_READS)
        left_out, on_record = list(logs.faults), len(recorded.reads)
        if logs.last is None and not logs.unknown:
            when = start.isoformat(sep=" ", timespec="seconds")[:19]
            names = ", ".join(sorted(logs.namesakes))
            advice = f"; {names} is: name it with logged_as" if names else ""
            left_out.append(f"{name} is read by no query since {when} UTC in {logs.count} logs{advice}")
        if logs.last is not None:
            first = min(logs.first or now, recorded.time_of(EVENT_LOG) or now)
            last = logs.last + timedelta(milliseconds=1)
            state = {log: last.isoformat(), EVENT_LOG: first.isoformat(timespec="seconds")}
            on_record = self._record(EVENT_LOG, new, state, now)
        return ImportedReads(self._iceberg.name, EVENT_LOG, logs.scanned, count, on_record, left_out)

    def forget(self) -> int:
        """Drop the reads that the table records; return the number of their ranges."""
        recorded = self.recorded
        if table_properties.READS in self._iceberg.properties:
            self._write(None)
        return len(recorded.reads)

    @cached_property
    def _ranges(self) -> Ranges:
        return Ranges(self._iceberg, self._columns())

    def _ranges_of(self, read: DeclaredRead) -> list[ColumnRanges]:
        """Return the ranges of a declared read; none, with a warning, if they cannot be had.

        A read that restricts no column reads the whole table and ends nowhere, so it needs no warning.
        """
        try:
            if not read.is_query:
                return self._ranges.of_predicate(Predicate.parse(self._iceberg, read.text))
            scans, ranges = self._ranges.of_query(read.text)
        except PredicateError as e:
            self.left_out.append(f"reads: left out, {e}")
            return []
        if not scans:
            beginning = " ".join(read.text.split())[:60]
            self.left_out.append(f"reads: left out, {beginning!r} does not read {self._iceberg.name}")
        return ranges

    def _record(
        self, imported_from: str, new: Iterable[ReadRange] | None, state: Mapping[str, str], now: datetime
    ) -> int:
        """Record the reads of an import, None for those of the last one; return how many are on record now."""
        self._iceberg.refresh()  # another process may have recorded reads since
        recorded = self.recorded
        if new is None:
            new = [read for read in recorded.reads if read.imported_from == imported_from]
        result = recorded.with_import(imported_from, new, state, now)
        self._write(result.text())
        return len(result.reads)

    def _write(self, text: str | None) -> None:
        self._iceberg.set_property(table_properties.READS, text)
        self._followed = None
        self._of_key.clear()
