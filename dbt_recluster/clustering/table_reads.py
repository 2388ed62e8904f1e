"""The reads of a table, which plans and metrics follow, and which an import records with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.recorded_reads import ReadRange, RecordedReads
from dbt_recluster.clustering.values import DeclaredRead
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.predicates import ColumnRanges, Predicate, Ranges, ranges_as_json
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import Columns
from dbt_recluster.planner import Reads


class Restricting(NamedTuple):
    """The reads of a table that restrict its key."""

    ranges: list[ReadRange]  # the reads
    # Their ranges of the key, in this order; under a curve, of each of its columns by itself. None without reads.
    reads: Reads | None


class TableReads:
    """The reads that plans and metrics of a table follow: those declared, or else those recorded.

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
        """Follow these reads, or by default those of the model, else the recorded ones; return warnings.

        Raises:
            OptionError: The property that records what the model declares is no list of reads.
        """
        self._of_key.clear()
        self.left_out = []
        declared = RECLUSTER_OPTIONS["reads"].of_table(self._iceberg.properties, declared)
        if declared is None:
            known = [(read, self.column_ranges.of_json(read.columns)) for read in self.recorded.reads]
            self._followed = [
                replace(read, columns=ranges_as_json(ranges)) for read, ranges in known if ranges
            ]
        else:
            self._followed = [
                ReadRange(ranges_as_json(ranges), read.weight)
                for read in declared
                for ranges in self._of_declared(read)
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
                if (ends := self.column_ranges.of_key(key, self.column_ranges.of_json(read.columns)))
            ]
            items = range(len(key.fields))
            lower, upper = ([[ends[side][item] for _, ends in bounded] for item in items] for side in (0, 1))
            reads = Reads(lower, upper, [read.weight for read, _ in bounded]) if bounded else None
            self._of_key[str(key)] = Restricting([read for read, _ in bounded], reads)
        return self._of_key[str(key)]

    def of_key(self, key: ClusterKey) -> Reads | None:
        """Return the ranges of the key's columns before its curve, or None if no read restricts them."""
        plain = ClusterKey(key.leading) if key.curve else key
        return self.restricting(plain).reads if plain.fields else None

    def forget(self) -> int:
        """Drop the reads that the table records; return the number of their ranges."""
        recorded = self.recorded
        if table_properties.READS in self._iceberg.properties:
            self._write(None)
        return len(recorded.reads)

    @cached_property
    def column_ranges(self) -> Ranges:
        """What predicates and queries ask of the table's columns."""
        return Ranges(self._iceberg, self._columns())

    def _of_declared(self, read: DeclaredRead) -> list[ColumnRanges]:
        """Return the ranges of a declared read, or warn that it is left out; one of the whole table has none."""
        try:
            if not read.is_query:
                return self.column_ranges.of_predicate(Predicate.parse(self._iceberg, read.text))
            scans, ranges = self.column_ranges.of_query(read.text)
        except PredicateError as e:
            self.left_out.append(f"reads: left out, {e}")
            return []
        if not scans:
            beginning = " ".join(read.text.split())[:60]
            self.left_out.append(f"reads: left out, {beginning!r} does not read {self._iceberg.name}")
        return ranges

    def record(
        self, imported_from: str, new: Iterable[ReadRange] | None, state: Mapping[str, str], now: datetime
    ) -> int:
        """Record the reads of an import, None for those of the last one; return how many are recorded now."""
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
