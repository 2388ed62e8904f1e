"""What the driver reads from manifests: the partitions that differ between two snapshots, and the blocks of a few.

A commit writes a manifest for the files that it adds, and rewrites the manifests of those that it removes. So a
partition has the same files in two snapshots unless manifests that only one of them has list different files for it.

For a few manifests the driver takes a fifth of the time of a query of the `entries` table, which is mostly Spark's own.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, ChangedPartitions, blocks_of
from dbt_recluster.iceberg.session.java_functions import (
    CONTENT_FILE,
    OBJECT,
    STRING,
    JavaFunctions,
    split_fields,
    split_lines,
)
from dbt_recluster.iceberg.session.jvm import java_items, java_list, jvm
from dbt_recluster.iceberg.value_types import ValueType, value_type

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

logger = logging.getLogger(__name__)

# More is left to Spark, which reads manifests in parallel. By default Iceberg merges small manifests when there are a
# hundred.
MOST_MANIFESTS = 100
# Entries of manifests that changes are looked for in.
MOST_ENTRIES = 100_000
# Entries that blocks are read from; the driver decodes 800,000 a second.
MOST_BLOCK_ENTRIES = 2_000_000
# Partitions that a filter may name.
MOST_PARTITIONS = 200

# Iceberg's types of partition values whose JSON Spark casts to the value, and Spark's names of them.
_PLAIN = {"int": "int", "long": "bigint", "string": "string", "boolean": "boolean", "date": "date"}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

_ENTRY, _MANIFEST = "org.apache.iceberg.ManifestEntry", "org.apache.iceberg.ManifestFile"
_PARTITION = ("partition", "org.apache.iceberg.StructLike")
_FIELDS = ("spec_id", "added_by", "sequence", "path", "partition", "rows", "bytes", "sort_order_id")
_METRICS = ("value_count", "null_value_count", "nan_value_count", "lower_bound", "upper_bound")
_COUNTS = ("valueCounts", "nullValueCounts", "nanValueCounts")
_BOUNDS = ("lowerBounds", "upperBounds")
_COLUMNS = [
    "file_path",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "sort_order_id",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
]

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
    """Return the partitions whose files, or delete files, are not the same in an earlier and a later snapshot.

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
    if _are_too_many([*added, *removed], MOST_ENTRIES):
        return None
    partitions = set(also)
    spec_ids = {int(manifest.partitionSpecId()) for manifest in (*added, *removed)}
    specs = {spec_id: _Spec(table, spec_id) for spec_id in spec_ids | {spec_id for spec_id, _ in partitions}}
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


def read_manifest_blocks(
    table: IcebergTable, key: ClusterKey, snapshot_id: int, partitions: ChangedPartitions
) -> BlockMetadata | None:
    """Return the blocks of some partitions of a snapshot without delete files.

    Returns:
        None if Spark has to read them: there are too many manifests, values that only Spark reads, or another version
        of Iceberg has other methods.
    """
    from py4j.protocol import Py4JError

    columns = [table.java.schema().findField(field.column) for field in key.fields]
    types = [
        str(column.type()).replace("timestamptz", "timestamp") for column in columns if column is not None
    ]
    kinds = [kind for kind in map(value_type, types) if kind is not None]
    if len(kinds) < len(columns):
        return None
    try:
        manifests = _manifests_of_partitions(table, snapshot_id, partitions)
        if _are_too_many([manifest for manifest, *_ in manifests], MOST_BLOCK_ENTRIES):
            return None
        text_of_spec = {
            spec_id: _entry_text(table, spec_id, columns)
            for spec_id in {spec_id for _, spec_id, _ in manifests}
        }
        # The JVM decodes without Python's lock.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            rows = threads.map(lambda manifest: _entries(table, text_of_spec, *manifest), manifests)
            return _blocks(list(chain.from_iterable(rows)), key, kinds, snapshot_id)
    except (Py4JError, ValueError, OverflowError):  # such as a date beyond Python's
        logger.debug("%s: the driver cannot read manifests", table.name, exc_info=True)
        return None


class _Spec:
    """A partition spec, and how Iceberg writes its values as JSON.

    Attributes:
        is_plain: Whether filters can be made of its values: it has fields, all of plain types.
        types: Spark's type of each field, by the names that metadata tables have.
    """

    def __init__(self, table: IcebergTable, spec_id: int) -> None:
        self._table = table
        self._type = table.java.specs().get(spec_id).partitionType()
        # As metadata tables have them: one struct for the fields of all specs, with today's names and types.
        columns = {
            field_id: (name, _PLAIN.get(kind, ""))
            for field_id, name, kind in _fields(table, table.iceberg.Partitioning.partitionType(table.java))
        }
        # The id of each field, its own name, which may be an older one, Iceberg's type, and the name today.
        self._fields = [(*field, columns.get(field[0], ("", ""))[0]) for field in _fields(table, self._type)]
        self._names = [name for *_, name in self._fields]
        self.types = {name: kind for name, kind in columns.values() if kind and name in self._names}
        self.is_plain = bool(self._fields) and all(
            kind in _PLAIN and name in self.types for *_, kind, name in self._fields
        )

    @cached_property
    def text(self) -> Any:
        """A Java function that writes the location, the sequence number and the partition of a file.

        A file that was removed and added again has another number, and belongs to no run any more.
        """
        functions = JavaFunctions(self._table.spark)
        partition = functions.method(CONTENT_FILE, *_PARTITION)
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
            values[field_id] for field_id, _, kind, _ in self._fields if kind == "date" and field_id in values
        ]
        if not all(map(_DATE.fullmatch, dates)):
            return None
        return {name: values.get(field_id) for field_id, *_, name in self._fields}

    def filter(self, partitions: ChangedPartitions) -> Any:
        """Return Iceberg's filter of those of the partitions that are of this spec, or None if none is."""
        expressions = self._table.iceberg.expressions.Expressions

        def equal(values: Mapping[str, Any]) -> Any:
            terms = (
                expressions.isNull(own_name)
                if values[name] is None
                else expressions.equal(own_name, values[name])
                for _, own_name, _, name in self._fields
            )
            return reduce(getattr(expressions, "and"), terms)

        of_spec = [values for values in partitions.values if list(values) == self._names]
        return reduce(getattr(expressions, "or"), map(equal, of_spec)) if of_spec else None


def _fields(table: IcebergTable, struct: Any) -> list[tuple[str, str, str]]:
    """Return the id, the name and the type of each field of a Java struct type of partitions."""
    fields = json.loads(str(table.iceberg.SchemaParser.toJson(struct.asSchema())))["fields"]
    return [(str(field["id"]), field["name"], field["type"]) for field in fields]


def _manifests_of_one(table: IcebergTable, *snapshots: int) -> list[list[Any]]:
    """Return for each of two snapshots the manifests, by their paths, that the other one does not have."""
    new_set = jvm(table.spark).java.util.LinkedHashSet
    first, second = (
        new_set(table.java.snapshot(snapshot).allManifests(table.java.io())) for snapshot in snapshots
    )
    only_first = new_set(first)
    only_first.removeAll(second)
    second.removeAll(first)
    return [java_items(only_first), java_items(second)]


def _manifests_of_partitions(
    table: IcebergTable, snapshot_id: int, partitions: ChangedPartitions
) -> list[tuple[Any, int, Any]]:
    """Return the manifests that may list some partitions, the spec of each, and the filter of the partitions."""
    functions, collectors = JavaFunctions(table.spark), jvm(table.spark).java.util.stream.Collectors
    evaluators = table.iceberg.expressions.ManifestEvaluator
    spec_of = functions.function(functions.method(_MANIFEST, "partitionSpecId", "int"))
    of_snapshot = table.java.snapshot(snapshot_id).dataManifests(table.java.io())
    by_spec = of_snapshot.stream().collect(collectors.groupingBy(spec_of))
    manifests: list[tuple[Any, int, Any]] = []
    for spec_id in java_items(by_spec.keySet()):
        of_spec = _Spec(table, spec_id).filter(partitions)
        if of_spec is None:
            continue
        evaluator = evaluators.forPartitionFilter(of_spec, table.java.specs().get(spec_id), True)
        may_match = functions.method(
            "org.apache.iceberg.expressions.ManifestEvaluator", "eval", "boolean", _MANIFEST
        ).bindTo(evaluator)
        matching = by_spec.get(spec_id).stream().filter(functions.predicate(may_match))
        manifests += [
            (manifest, spec_id, of_spec) for manifest in java_items(matching.collect(collectors.toList()))
        ]
    return manifests


def _are_too_many(manifests: Sequence[Any], most_entries: int) -> bool:
    """Whether manifests are more than the driver reads, or their writers have not counted live entries."""
    if len(manifests) > MOST_MANIFESTS:
        return True
    counts = [count for m in manifests for count in (m.addedFilesCount(), m.existingFilesCount())]
    return None in counts or sum(counts) > most_entries


def _files(
    table: IcebergTable, manifests: Iterable[Any], specs: Mapping[int, _Spec]
) -> set[tuple[str, str, int, str]]:
    """Return the location, the sequence number, the spec and the partition, as JSON, of the live files of manifests."""
    files: set[tuple[str, str, int, str]] = set()
    manifest_files, io = table.iceberg.ManifestFiles, table.java.io()
    for manifest in manifests:
        spec_id = int(manifest.partitionSpecId())
        reader = (
            manifest_files.read(manifest, io)
            if str(manifest.content()) == "DATA"
            else manifest_files.readDeleteManifest(manifest, io, table.java.specs())
        ).select(java_list(table.spark, ["file_path", "partition"]))
        with closing(reader):
            rows = _rows(table, reader, specs[spec_id].text)
        files |= {(path, number, spec_id, values) for path, number, values in rows}
    return files


def _entries(
    table: IcebergTable, text_of_spec: Mapping[int, Any], manifest: Any, spec_id: int, partition_filter: Any
) -> list[list[str]]:
    """Return `_FIELDS`, and `_METRICS` of each key item, of the live entries of a manifest that a filter admits."""
    reader = (
        table.iceberg.ManifestFiles.read(manifest, table.java.io(), table.java.specs())
        .filterPartitions(partition_filter)
        .select(java_list(table.spark, _COLUMNS))
    )
    with closing(reader):
        # Only entries know which snapshot added a file, and Iceberg keeps them to itself.
        live = JavaFunctions(table.spark).hidden_method("org.apache.iceberg.ManifestReader", "liveEntries")
        entries = live.invokeWithArguments(java_list(table.spark, [reader]))
        return [[str(spec_id), *row] for row in _rows(table, entries, text_of_spec[spec_id])]


def _rows(table: IcebergTable, items: Any, text: Any) -> list[list[str]]:
    """Return the fields that a Java function writes of each of some Java items."""
    texts = table.iceberg.io.CloseableIterable.transform(items, text)
    return [split_fields(line) for line in split_lines(JavaFunctions(table.spark).lines_of(texts))]


def _entry_text(table: IcebergTable, spec_id: int, columns: Sequence[Any]) -> Any:
    """Return the Java function that writes an entry of a spec, and the metrics of some columns."""
    functions = JavaFunctions(table.spark)
    file = functions.as_type(functions.hidden_method(_ENTRY, "file"), CONTENT_FILE, OBJECT)

    def of_file(name: str, returns: str, *then: Any) -> Any:
        return reduce(
            functions.then, then, functions.then(file, functions.method(CONTENT_FILE, name, returns))
        )

    partition_type = table.java.specs().get(spec_id).partitionType()
    handles = [
        functions.as_type(functions.hidden_method(_ENTRY, "snapshotId"), OBJECT, OBJECT),
        functions.as_type(functions.hidden_method(_ENTRY, "fileSequenceNumber"), OBJECT, OBJECT),
        of_file("location", STRING),
        of_file(*_PARTITION, functions.json_of(partition_type)),
        of_file("recordCount", "long"),
        of_file("fileSizeInBytes", "long"),
        of_file("sortOrderId", "java.lang.Integer"),
    ]
    for column in columns:
        item, bound = functions.item_of(int(column.fieldId())), functions.bound_as_json(column.type())
        handles += [of_file(name, "java.util.Map", item) for name in _COUNTS]
        handles += [of_file(name, "java.util.Map", item, bound) for name in _BOUNDS]
    return functions.function(functions.fields(OBJECT, handles))


def _blocks(
    rows: Sequence[Sequence[str]], key: ClusterKey, types: Sequence[ValueType], snapshot_id: int
) -> BlockMetadata:
    texts = list(zip(*rows, strict=True)) or [()] * (len(_FIELDS) + len(_METRICS) * len(types))
    columns: dict[str, pa.Array] = {}
    for name, values in zip(_FIELDS, texts, strict=False):
        is_text = name in ("path", "partition")
        columns[name] = pa.array(values, pa.string()) if is_text else _numbers(values).fill_null(0)
    for place, kind in enumerate(types):
        *counts, lower, upper = texts[len(_FIELDS) + len(_METRICS) * place :][: len(_METRICS)]
        metrics = [*map(_numbers, counts), _values(lower, kind), _values(upper, kind)]
        columns[f"metrics_{place}"] = pa.StructArray.from_arrays(metrics, _METRICS)
    return blocks_of(pa.table(columns), key, snapshot_id)


def _values(texts: Sequence[str], kind: ValueType) -> pa.Array:
    values = map(json.loads, texts)
    return pa.array([None if value is None else kind.read(value) for value in values], kind.arrow)


def _numbers(texts: Sequence[str]) -> pa.Array:
    return pa.array([None if text == "null" else int(text) for text in texts], pa.int64())
