"""The partitions that differ between two snapshots.

A commit writes a manifest for the files that it adds, and rewrites the manifests of those that it removes. So a
partition has the same files in two snapshots unless manifests that only one of them has list different files for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.metadata.manifest_entries import Condition, combine, compare
from dbt_recluster.iceberg.session.java_functions import CONTENT_FILE, STRING, STRUCT, JavaFunctions
from dbt_recluster.iceberg.session.jvm import java_items, java_list, jvm

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# Much more than an incremental load changes; then all of the table is read.
MOST_MANIFESTS = 100
MOST_ENTRIES = 100_000
MOST_PARTITIONS = 200

# A partition: its spec, and its values as Iceberg writes them as JSON.
PartitionText = tuple[int, str]


@dataclass(frozen=True)
class ChangedPartitions:
    """Partitions whose files differ between two snapshots.

    Attributes:
        values: For each partition, its values by the name of the partition field, as in Iceberg's JSON; None is NULL.
    """

    values: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.values)

    def condition(self) -> Condition:
        """Return a condition that holds for the manifest entries of these partitions, and may hold for others."""
        specs = dict.fromkeys(tuple(values) for values in self.values)  # the fields of one spec
        return combine("or", [self._of_fields(names) for names in specs])

    def _of_fields(self, names: tuple[str, ...]) -> Condition:
        members = [values for values in self.values if tuple(values) == names]
        return combine("and", [_is_one_of(name, [values[name] for values in members]) for name in names])


def _is_one_of(name: str, values: Sequence[Any]) -> Condition:
    column = f"data_file.partition.{name}"
    known = [value for value in dict.fromkeys(values) if value is not None]
    # Iceberg 1.11.0 fails where it looks for NULL in a list of texts.
    is_known = [compare("not-null", column), compare("in", column, values=known)]
    conditions = [combine("and", is_known)] if known else []
    if None in values:
        conditions.append(compare("is-null", column))
    return combine("or", conditions)


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
        None if all of the table has to be read: a snapshot expired or was rolled back, much has changed, or a change is
        in a spec without partitions or with partitions by floats.
    """
    if not table.has_snapshot(since) or not table.is_ancestor(since, of=until):
        return None
    # Reading a snapshot's manifest list takes a request, or three over S3A.
    added, removed = _manifests_of_one(table, until, since) if since != until else ([], [])
    if _are_too_many([*added, *removed]):
        return None
    files, earlier = _files(table, added), _files(table, removed)
    # In version 1 files have no sequence numbers, so each may have been removed and added again.
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
    names = _field_names(table, {spec_id for spec_id, _ in partitions})
    if names is None:
        return None
    texts = ((names[spec_id], json.loads(values)) for spec_id, values in sorted(partitions))
    distinct = [{name: values.get(field) for field, name in of_spec.items()} for of_spec, values in texts]
    return ChangedPartitions(tuple({tuple(values.items()): values for values in distinct}.values()))


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


def _are_too_many(manifests: Sequence[Any]) -> bool:
    """Whether manifests are more than the driver compares, or their writers have not counted live entries."""
    if len(manifests) > MOST_MANIFESTS:
        return True
    counts = [count for m in manifests for count in (m.addedFilesCount(), m.existingFilesCount())]
    return None in counts or sum(counts) > MOST_ENTRIES


def _files(table: IcebergTable, manifests: Iterable[Any]) -> Any:
    """Return the Java set of texts of the live files in manifests: location, sequence number, spec, partition.

    A file that was removed and added again has another number, and belongs to no run any more.
    """
    iceberg, io, specs = table.iceberg, table.java.io(), table.java.specs()
    files = jvm(table.spark).java.util.HashSet()
    for manifest in manifests:
        partition_type = specs.get(manifest.partitionSpecId()).partitionType()
        text = jvm(table.spark).remember(
            ("file", str(partition_type)), partial(_file_text, table, partition_type)
        )
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


def _field_names(table: IcebergTable, spec_ids: Iterable[int]) -> dict[int, dict[str, str]] | None:
    """Return the names of each spec's fields in metadata tables, by their ids.

    None if no condition can be made of a spec: it has no fields, or a field of floats, whose NaN no literal writes.
    """
    today = table.iceberg.Partitioning.partitionType(table.java).asSchema()
    fields = json.loads(str(table.iceberg.SchemaParser.toJson(today)))["fields"]
    names = {str(f["id"]): f["name"] for f in fields if f["type"] not in ("float", "double")}
    specs = {}
    for spec_id in spec_ids:
        spec = json.loads(str(table.iceberg.PartitionSpecParser.toJson(table.java.specs().get(spec_id))))
        ids = [str(field["field-id"]) for field in spec["fields"]]
        if not ids or not set(ids) <= set(names):
            return None
        specs[spec_id] = {field: names[field] for field in ids}
    return specs
