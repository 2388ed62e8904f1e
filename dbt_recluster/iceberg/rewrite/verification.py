"""Checks that uncommitted files hold the values of the files that they replace.

Readers skip files whose bounds exclude their rows, so too narrow bounds lose rows, and no count shows it. Recorded
metrics decide. The rows of the old files are read only where these disagree: other writers may record wider bounds.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dbt_recluster.iceberg.iceberg_table import IcebergTable, leaf_fields
from dbt_recluster.iceberg.metadata.manifest_entries import FileMetrics, SnapshotScan, written_metrics
from dbt_recluster.iceberg.rewrite.file_groups import RewrittenGroup, staged
from dbt_recluster.iceberg.session.jobs import job_step
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.iceberg.sort_order import DEFAULT_WIDTH, bounds_width
from dbt_recluster.key.columns import quote
from dbt_recluster.key.types import ColumnType, iceberg_type

logger = logging.getLogger(__name__)

_DAMAGED = "\ufffd"  # stands for bytes that are not UTF-8, whose order it does not have


@dataclass(frozen=True)
class Verifier:
    """Verifies file groups; ``pending`` is the table as the commit will leave it."""

    pending: IcebergTable
    scan: SnapshotScan  # of the old files

    @property
    def table(self) -> IcebergTable:
        """The table before the commit."""
        return self.scan.table

    def differences(self, groups: Mapping[int, RewrittenGroup]) -> dict[int, str]:
        """Return how the new files of groups differ from the old ones, by the numbers of those that do.

        Deletes make counts smaller and bounds narrower, by how much is unknown; but the number of rows is known.
        """
        if not groups:
            return {}
        old_paths = [file.path for group in groups.values() for file in group.source.files]
        old = self.scan.metrics(old_paths)
        new = written_metrics(self.table, [file for group in groups.values() for file in group.files])
        differences = {}
        for number, group in groups.items():
            before, after = [old[file.path] for file in group.source.files], [new[path] for path in group.paths]
            if difference := self._difference(group, before, after):
                differences[number] = difference
        return differences

    def _difference(self, group: RewrittenGroup, old: Sequence[FileMetrics], new: Sequence[FileMetrics]) -> str | None:
        source = group.source
        # Not by equals(): Java compares bytes by their identity, and a dropped field of v1 may have another type.
        kind = self.table.java.specs().get(source.spec_id).partitionType()
        wrapper = self.table.iceberg.util.StructLikeWrapper.forType(kind)
        partition = wrapper.copyFor(source.partition)
        if not all(partition.equals(wrapper.copyFor(file.partition())) for file in group.files):
            return "wrote rows into another partition"
        if group.rows != source.live_rows:
            return f"read {source.live_rows} rows and wrote {group.rows}"
        has_deletes = any(file.deletes for file in source.files)
        counts = (column.wrong_count(old, new, has_deletes) for column in self._columns)
        if difference := next(filter(None, counts), None):
            return difference
        suspects = [column for column in self._columns if not column.has_bounds_of(old, new, has_deletes)]
        return self._wrong_bounds(group, suspects, new) if suspects else None

    def _wrong_bounds(
        self, group: RewrittenGroup, columns: Sequence[VerifiedColumn], new: Sequence[FileMetrics]
    ) -> str | None:
        """Compare the bounds of columns in the new files with the rows of the old ones."""
        values = [
            f"if(isnan({column.sql}), null, {column.sql})" if column.kind.has_nan else column.sql for column in columns
        ]
        ends = [f"{end}({value}) as {end}_{place}" for place, value in enumerate(values) for end in ("min", "max")]
        with job_step(self.table.spark, "verify"), staged(self.table, group.source.files, is_exact=True) as (rows, _):
            numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
            found = collect_arrow(numbered.selectExpr(*ends))
        for place, column in enumerate(columns):
            width = bounds_width(self.pending, column.path, in_key=False)
            rows_ends = (found[f"{end}_{place}"].combine_chunks() for end in ("min", "max"))
            least, most = (column.kind.comparable(value)[0] for value in rows_ends)
            if not column.has_ends(least, most, width, new):
                return f"wrote bounds of column {column.path} that are not those of its rows"
        paths = ", ".join(column.path for column in columns)
        logger.debug("%s: the bounds of %s in its files were not those of the rows", self.table.name, paths)
        return None

    @cached_property
    def _columns(self) -> list[VerifiedColumn]:
        schema = json.loads(self.table.schema_json)
        leaves = [leaf for leaf in leaf_fields(schema) if isinstance(leaf[1], str)]
        return [
            VerifiedColumn(path, number, iceberg_type(kind), _sql(schema, places))
            for path, kind, number, places in leaves
        ]


@dataclass(frozen=True)
class VerifiedColumn:
    """A primitive column or field of a struct, and its metrics in the files before and after a rewrite."""

    path: str
    field_id: int
    kind: ColumnType
    sql: str  # where the columns of a table are c0, c1...

    def wrong_count(self, old: Sequence[FileMetrics], new: Sequence[FileMetrics], has_deletes: bool) -> str | None:
        """Describe the first count, of those that all files have, that another number of rows would explain.

        Where a struct is NULL, ORC's writer, and Iceberg 1.10's of floats, count neither a value of a field nor a NULL.
        """
        for count, noun in ((self._valid, "values beside NULLs"), (lambda file: file.nans.get(self.field_id), "NaNs")):
            before, after = (list(map(count, files)) for files in (old, new))
            if None in before or None in after:
                continue
            read, wrote = sum(filter(None, before)), sum(filter(None, after))
            if wrote > read or (wrote < read and not has_deletes):
                return f"read {read} {noun} in column {self.path} and wrote {wrote}"
        return None

    def _valid(self, file: FileMetrics) -> int | None:
        values, nulls = file.values.get(self.field_id), file.nulls.get(self.field_id)
        return None if values is None or nulls is None else values - nulls

    def has_bounds_of(self, old: Sequence[FileMetrics], new: Sequence[FileMetrics], has_deletes: bool) -> bool:
        """Whether the new bounds are the old ones; with deletes also within these.

        If an old file has none, the new ones may also be wider. A new file without a bound is opened by every reader.
        """
        for lower in (True, False):
            before, after = self._bounds(old, lower), self._bounds(new, lower)
            bounds, end = [bound for bound in before if bound is not None], min if lower else max
            if not bounds or not after or None in after:
                continue
            was, now = end(bounds), end(after)
            is_wider = now == end(was, now)
            may_differ = has_deletes or is_wider if None in before else has_deletes and not is_wider
            if was not in (now, _cut(now, DEFAULT_WIDTH, lower)) and not may_differ:
                return False
        return True

    def has_ends(self, least: Any, most: Any, width: int | None, new: Sequence[FileMetrics]) -> bool:
        """Whether the new bounds are those of values from ``least`` to ``most``, None without any."""
        for lower, value in ((True, least), (False, most)):
            bounds = self._bounds(new, lower)
            if not bounds or None in bounds or _is_damaged(value):
                continue
            if value is None or (min if lower else max)(bounds) not in (value, _cut(value, width, lower)):
                return False
        return True

    def _bounds(self, files: Sequence[FileMetrics], lower: bool) -> list[Any]:
        """Return a bound of each file that has values, or None where it is missing or has no order."""
        number, bounds = self.field_id, list[Any]()
        for file in files:
            if file.values.get(number) == file.nulls.get(number, 0) + file.nans.get(number, 0):
                continue
            encoded = (file.lower if lower else file.upper).get(number)
            bound = self.kind.from_bytes(encoded) if encoded is not None and self.kind.has_bounds else None
            bounds.append(None if _is_damaged(bound) else bound)
        return bounds


def _sql(schema: Mapping[str, Any], places: Sequence[int]) -> str:
    """Return SQL of a field, given its places in the structs of a schema; names may have dots, or differ in case."""
    fields = list[Any]()
    for place in places:
        fields.append(schema["fields"][place])
        schema = fields[-1]["type"]
    return ".".join([f"c{places[0]}", *(quote(field["name"]) for field in fields[1:])])


def _is_damaged(value: Any) -> bool:
    return isinstance(value, str) and _DAMAGED in value


def _cut(value: Any, width: int | None, lower: bool) -> Any:
    """Return the bound of text, or bytes, that Iceberg cuts off after ``width``; None above the greatest ones."""
    if width is None or not isinstance(value, str | bytes) or len(value) <= width:
        return value
    start = value[:width]
    if lower:
        return start
    for place in reversed(range(width)):
        if isinstance(start, bytes):
            if start[place] < 255:
                return start[:place] + bytes([start[place] + 1])
        elif start[place] < chr(sys.maxunicode):
            following = ord(start[place]) + 1
            return start[:place] + chr(0xE000 if following == 0xD800 else following)
    return None
