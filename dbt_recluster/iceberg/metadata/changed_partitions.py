"""The partitions that differ between two snapshots.

A commit writes manifests for the files that it adds and rewrites those of the files that it removes. So a partition
differs only if the manifests that one of the snapshots has alone list different files for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.manifest_entries import FilterExpression, combine, compare
from dbt_recluster.iceberg.session.jvm import CONTENT_FILE, STRING, STRUCT, JavaFunctions, java_items, java_list, jvm
from dbt_recluster.key.types import iceberg_type

# Beyond these limits, far above an incremental load, the whole table is read.
MOST_MANIFESTS = 100
MOST_ENTRIES = 100_000
MOST_PARTITIONS = 200

# A partition: its spec and its values as Iceberg's JSON.
PartitionText = tuple[int, str]


@dataclass(frozen=True)
class ChangedPartitions:
    """Partitions whose files differ between two snapshots."""

    values: tuple[Mapping[str, Any], ...]  # of each partition, by the name of its field, as in Iceberg's JSON

    def __len__(self) -> int:
        return len(self.values)

    def condition(self) -> FilterExpression:
        """Return a condition for the manifest entries of these partitions, and maybe others."""
        specs: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for values in self.values:
            specs.setdefault(tuple(values), []).append(values)
        of_specs = (
            [_is_one_of(name, [values[name] for values in members]) for name in names]
            for names, members in specs.items()
        )
        return combine("or", [combine("and", fields) for fields in of_specs])


def _is_one_of(name: str, values: Sequence[Any]) -> FilterExpression:
    column = f"data_file.partition.{name}"
    not_null = [value for value in dict.fromkeys(values) if value is not None]
    # Iceberg 1.11.0 fails to look for NULL in a list of texts.
    is_listed = [compare("not-null", column), compare("in", column, values=not_null)]
    conditions = [combine("and", is_listed)] if not_null else []
    if None in values:
        conditions.append(compare("is-null", column))
    return combine("or", conditions)


def partition_of(table: IcebergTable, task: Any) -> PartitionText:
    """Return the partition of the file of Iceberg's scan task."""
    file = task.file()
    spec_id = int(file.specId())
    kind = table.java.specs().get(spec_id).partitionType()
    return spec_id, str(table.iceberg.SingleValueParser.toJson(kind, file.partition()))


def changed_partitions(
    table: IcebergTable, since: int, until: int, also: Iterable[PartitionText] = ()
) -> ChangedPartitions | None:
    """Return the partitions whose data or delete files differ between an earlier and a later snapshot, and ``also``.

    None if the whole table has to be read: a snapshot expired or was rolled back, much has changed, or a changed spec
    is unpartitioned or partitions by floats.
    """
    if not table.has_snapshot(since) or not table.is_ancestor(since, of=until):
        return None
    # A manifest list takes a request, or three over S3A.
    added, removed = _manifests_of_one(table, until, since) if since != until else ([], [])
    if _are_too_many([*added, *removed]):
        return None
    files, earlier = _files(table, added), _files(table, removed)
    # In format version 1 files have no sequence numbers, so each may have been removed and added again.
    if int(table.java.snapshot(since).sequenceNumber()) > 0:
        both = jvm(table.spark).java.util.HashSet(files)
        both.retainAll(earlier)
        files.removeAll(both)
        earlier.removeAll(both)
    files.addAll(earlier)
    records = JavaFunctions(table.spark).records(files)
    partitions = {*also, *((int(spec_id), values) for *_, spec_id, values in records)}
    if len(partitions) > MOST_PARTITIONS:
        return None
    names = partition_columns(table, {spec_id for spec_id, _ in partitions})
    if names is None:
        return None
    texts = ((names[spec_id], json.loads(values)) for spec_id, values in sorted(partitions))
    distinct = [{name: values.get(field) for field, name in of_spec.items()} for of_spec, values in texts]
    return ChangedPartitions(tuple({tuple(values.items()): values for values in distinct}.values()))


def _manifests_of_one(table: IcebergTable, *snapshots: int) -> list[list[Any]]:
    """Return the manifests that each of two snapshots has alone."""
    new_set = jvm(table.spark).java.util.LinkedHashSet
    first, second = (new_set(table.java.snapshot(snapshot).allManifests(table.java.io())) for snapshot in snapshots)
    only_first = new_set(first)
    only_first.removeAll(second)
    second.removeAll(first)
    return [java_items(only_first), java_items(second)]


def _are_too_many(manifests: Sequence[Any]) -> bool:
    """Whether manifests or their live entries are too many to compare, or were not counted."""
    if len(manifests) > MOST_MANIFESTS:
        return True
    counts = [count for m in manifests for count in (m.addedFilesCount(), m.existingFilesCount())]
    return None in counts or sum(counts) > MOST_ENTRIES


def _files(table: IcebergTable, manifests: Iterable[Any]) -> Any:
    """Return the live files in manifests as a Java set of texts: location, sequence number, spec and partition.

    A file that was removed and added again has another sequence number, and belongs to no run any more.
    """
    iceberg, io, specs = table.iceberg, table.java.io(), table.java.specs()
    files = jvm(table.spark).java.util.HashSet()
    for manifest in manifests:
        partition_type = specs.get(manifest.partitionSpecId()).partitionType()
        text = jvm(table.spark).remember(("file", str(partition_type)), partial(_file_text, table, partition_type))
        is_data = str(manifest.content()) == "DATA"
        read = iceberg.ManifestFiles.read if is_data else iceberg.ManifestFiles.readDeleteManifest
        columns = java_list(table.spark, ["file_path", "partition"])
        with closing(read(manifest, io, specs).select(columns)) as reader:
            texts = iceberg.io.CloseableIterable.transform(reader, text)
            files.addAll(java_list(table.spark, texts))
    return files


def _file_text(table: IcebergTable, partition_type: Any) -> Any:
    functions = JavaFunctions(table.spark)
    partition = functions.method(CONTENT_FILE, "partition", STRUCT)
    to_json = functions.to_json(partition_type)
    values = [
        ("location", STRING),
        ("fileSequenceNumber", "java.lang.Long"),
        ("specId", "int"),
        functions.then(partition, functions.as_type(to_json, STRING, STRUCT)),
    ]
    return functions.function(functions.fields(CONTENT_FILE, values))


def partition_columns(table: IcebergTable, spec_ids: Iterable[int]) -> dict[int, dict[str, str]] | None:
    """Return the names of each spec's fields in metadata tables by id.

    None if a spec has no condition: it is unpartitioned, or partitions by floats, whose NaN has no literal.
    """
    today = table.iceberg.Partitioning.partitionType(table.java).asSchema()
    fields = json.loads(str(table.iceberg.SchemaParser.toJson(today)))["fields"]
    names = {str(f["id"]): f["name"] for f in fields if not iceberg_type(f["type"]).has_nan}
    specs = {}
    for spec_id in spec_ids:
        ids = [str(field["field-id"]) for field in table.spec_fields(spec_id)]
        if not ids or not set(ids) <= set(names):
            return None
        specs[spec_id] = {field: names[field] for field in ids}
    return specs
