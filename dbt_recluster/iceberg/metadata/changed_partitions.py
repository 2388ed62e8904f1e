"""The partitions that differ between two snapshots, worked out from the manifests that only one of them has.

A commit writes a manifest for the files that it adds, and rewrites the manifests of those that it removes. So a
partition has the same files in two snapshots unless these manifests list different files for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.iceberg_table import GREATEST_LONG
from dbt_recluster.iceberg.session.java_functions import (
    CONTENT_FILE,
    STRING,
    JavaFunctions,
    split_fields,
    split_lines,
)
from dbt_recluster.iceberg.session.jvm import java_items, java_list, java_set, jvm

if TYPE_CHECKING:
    from pyspark.sql import Column

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# More is left to Spark, which reads manifests in parallel; here the driver reads one after the other. By default
# Iceberg merges small manifests when there are a hundred.
MOST_MANIFESTS = 100
MOST_ENTRIES = 100_000
# Iceberg skips no manifests for a filter of more values.
MOST_PARTITIONS = 200

# Iceberg's types of partition values whose JSON Spark casts to the value, and Spark's names of them.
_PLAIN = {"int": "int", "long": "bigint", "string": "string", "boolean": "boolean", "date": "date"}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class ChangedPartitions:
    """Partitions whose files differ between two snapshots.

    Attributes:
        values: For each partition, its values by the name of the partition field; None is NULL, a date is a text.
        types: Spark's type of each partition field.
    """

    values: tuple[Mapping[str, Any], ...]
    types: Mapping[str, str]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.values)

    def among(self, partition: Column) -> Column:
        """Return a condition that holds for these partitions, and may hold for others.

        Args:
            partition: The column ``partition`` of a metadata table.
        """
        return reduce(or_, (self._of_fields(partition, names) for names in self._names()))

    def _names(self) -> set[tuple[str, ...]]:
        return {tuple(values) for values in self.values}

    def _of_fields(self, partition: Column, names: tuple[str, ...]) -> Column:
        """Return the condition for the partitions with these fields, which are those of one spec."""
        members = [values for values in self.values if tuple(values) == names]
        fields = (
            _is_one_of(partition.getField(name), self.types[name], {values[name] for values in members})
            for name in names
        )
        return reduce(and_, fields)


# A partition: its spec, and its values as Iceberg writes them as JSON.
PartitionText = tuple[int, str]


def partition_of(table: IcebergTable, file: Any) -> PartitionText:
    """Return the partition of a Java data file."""
    spec_id = int(file.specId())
    kind = table.java.specs().get(spec_id).partitionType()
    return spec_id, str(table.iceberg.SingleValueParser.toJson(kind, file.partition()))


def changed_partitions(
    table: IcebergTable, since: int, until: int, also: Iterable[PartitionText] = ()
) -> ChangedPartitions | None:
    """Return the partitions whose files, or delete files, are not the same in two snapshots.

    Args:
        table: The table, as of its last refresh.
        since: The id of the earlier snapshot.
        until: The id of the later one.
        also: Partitions to count as changed.

    Returns:
        None if all of the table has to be read: a snapshot expired or was rolled back, much has changed, a change is
        in a spec without partitions, or partition values are of a type that no filter is made for.
    """
    if not table.has_snapshot(since) or not table.is_ancestor(since, of=until):
        return None
    added, removed = _manifests_of_one(table, until, since)
    if len(added) + len(removed) > MOST_MANIFESTS:
        return None
    if sum(live_entries(manifest) for manifest in (*added, *removed)) > MOST_ENTRIES:
        return None
    partitions = set(also)
    spec_ids = {int(manifest.partitionSpecId()) for manifest in (*added, *removed)}
    specs = {spec_id: Spec(table, spec_id) for spec_id in spec_ids | {spec_id for spec_id, _ in partitions}}
    if not all(spec.is_plain for spec in specs.values()):
        return None
    files, earlier = _files(table, added, specs), _files(table, removed, specs)
    # In version 1 files have no sequence numbers, so one of both may have been removed and added again.
    changed = (files ^ earlier) | {file for file in files & earlier if file[1] in ("0", "null")}
    partitions |= {(spec_id, values) for *_, spec_id, values in changed}
    if len(partitions) > MOST_PARTITIONS:
        return None
    parsed = [specs[spec_id].parse(values) for spec_id, values in sorted(partitions)]
    if None in parsed:
        return None
    distinct = {tuple(values.items()): values for values in parsed if values is not None}
    types = {name: kind for spec in specs.values() for name, kind in spec.types.items()}
    return ChangedPartitions(tuple(distinct.values()), types)


class Spec:
    """A partition spec, and how Iceberg writes its values as JSON.

    Attributes:
        is_plain: Whether filters can be made of its values: it has fields, all of plain types.
        types: Spark's type of each field, by the names that metadata tables have.
    """

    def __init__(self, table: IcebergTable, spec_id: int) -> None:
        self._table = table
        self._type = table.java.specs().get(spec_id).partitionType()
        fields = [(int(f.fieldId()), str(f.type())) for f in java_items(self._type.fields())]
        # As metadata tables have them: one struct for the fields of all specs, with today's names and types.
        columns = {
            int(f.fieldId()): (str(f.name()), _PLAIN.get(str(f.type())))
            for f in java_items(table.iceberg.Partitioning.partitionType(table.java).fields())
        }
        named = [(str(field_id), *columns.get(field_id, ("", None)), kind) for field_id, kind in fields]
        self.is_plain = bool(named) and all(spark_type and kind in _PLAIN for _, _, spark_type, kind in named)
        self._fields = [(field_id, name, kind) for field_id, name, _, kind in named]
        self.types = {name: spark_type for _, name, spark_type, _ in named if spark_type}

    @cached_property
    def text(self) -> Any:
        """A Java function that writes the location, the sequence number and the partition of a file.

        A file that was removed and added again has another number, and belongs to no run any more.
        """
        functions = JavaFunctions(self._table.spark)
        partition = functions.method(CONTENT_FILE, "partition", "org.apache.iceberg.StructLike")
        handles = [
            functions.method(CONTENT_FILE, "location", STRING),
            functions.method(CONTENT_FILE, "fileSequenceNumber", "java.lang.Long"),
            functions.then(partition, functions.json_of(self._type)),
        ]
        return functions.function(functions.fields(CONTENT_FILE, handles))

    def parse(self, text: str) -> Mapping[str, Any] | None:
        """Read Iceberg's JSON of partition values; None if one is a date that Spark might read otherwise."""
        values = json.loads(text)
        dates = [
            values[field_id] for field_id, _, kind in self._fields if kind == "date" and field_id in values
        ]
        if not all(map(_DATE.fullmatch, dates)):
            return None
        return {name: values.get(field_id) for field_id, name, _ in self._fields}

    def filter(self, partitions: ChangedPartitions) -> Any:
        """Return Iceberg's filter of those of the partitions that are of this spec, or None if none is."""
        expressions = self._table.iceberg.expressions.Expressions
        names = [name for _, name, _ in self._fields]
        # A field may have been renamed since, and the spec filters by its own names.
        own_names = [str(f.name()) for f in java_items(self._type.fields())]

        def equal(values: Mapping[str, Any]) -> Any:
            terms = (
                expressions.isNull(name) if value is None else expressions.equal(name, value)
                for name, value in zip(own_names, values.values(), strict=True)
            )
            return reduce(getattr(expressions, "and"), terms)

        of_spec = [values for values in partitions.values if list(values) == names]
        return reduce(getattr(expressions, "or"), map(equal, of_spec)) if of_spec else None


def _manifests_of_one(table: IcebergTable, *snapshots: int) -> list[list[Any]]:
    """Return for each of two snapshots the manifests that the other one does not have."""
    functions, collectors = JavaFunctions(table.spark), jvm(table.spark).java.util.stream.Collectors
    path = functions.method("org.apache.iceberg.ManifestFile", "path", STRING)
    lists = [table.java.snapshot(snapshot).allManifests(table.java.io()) for snapshot in snapshots]
    first, second = (
        set(split_lines(functions.lines(manifests.stream().map(functions.function(path)))))
        for manifests in lists
    )
    return [
        java_items(
            manifests.stream()
            .filter(functions.predicate(functions.is_in(java_set(table.spark, own), path)))
            .collect(collectors.toList())
        )
        for manifests, own in zip(lists, (first - second, second - first), strict=True)
    ]


def live_entries(manifest: Any) -> int:
    """Return how many entries of a manifest are live; more than allowed if its writer did not say."""
    counts = (manifest.addedFilesCount(), manifest.existingFilesCount())
    return GREATEST_LONG if None in counts else sum(map(int, counts))


def _files(
    table: IcebergTable, manifests: Iterable[Any], specs: Mapping[int, Spec]
) -> set[tuple[str, str, int, str]]:
    """Return the location, the sequence number, the spec and the partition, as JSON, of the live files of manifests."""
    files: set[tuple[str, str, int, str]] = set()
    functions, manifest_files, io = JavaFunctions(table.spark), table.iceberg.ManifestFiles, table.java.io()
    for manifest in manifests:
        spec_id = int(manifest.partitionSpecId())
        reader = (
            manifest_files.read(manifest, io)
            if str(manifest.content()) == "DATA"
            else manifest_files.readDeleteManifest(manifest, io, table.java.specs())
        ).select(java_list(table.spark, ["file_path", "partition"]))
        try:
            lines = functions.lines_of(
                table.iceberg.io.CloseableIterable.transform(reader, specs[spec_id].text)
            )
        finally:
            reader.close()
        fields = map(split_fields, split_lines(lines))
        files |= {(path, number, spec_id, values) for path, number, values in fields}
    return files


def _is_one_of(column: Column, kind: str, values: set[Any]) -> Column:
    from pyspark.sql import functions as F

    # Python's dates would pass through Java's old ones, which lack ten days of 1582.
    known = [F.lit(value).cast(kind) for value in sorted(value for value in values if value is not None)]
    if not known:
        return column.isNull()
    return column.isin(known) | column.isNull() if None in values else column.isin(known)
