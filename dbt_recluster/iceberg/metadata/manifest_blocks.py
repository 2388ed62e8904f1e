"""The blocks of some partitions, read by the driver from the manifests that may list them.

For a few manifests this takes a fifth of the time of a query of the `entries` table, most of which is Spark's own.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, blocks_of, repeated_paths
from dbt_recluster.iceberg.metadata.changed_partitions import (
    MOST_MANIFESTS,
    ChangedPartitions,
    Spec,
    live_entries,
)
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

# Entries of manifests that the driver decodes, 800,000 a second; of more, Spark's executors do it.
MOST_ENTRIES = 2_000_000

_ENTRY, _MANIFEST = "org.apache.iceberg.ManifestEntry", "org.apache.iceberg.ManifestFile"
_FIELDS = ("spec_id", "added_by", "sequence", "path", "partition", "rows", "bytes", "sort_order_id")
_METRICS = ("value_count", "null_value_count", "nan_value_count", "lower_bound", "upper_bound")
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


def read_manifest_blocks(
    table: IcebergTable, key: ClusterKey, snapshot_id: int, partitions: ChangedPartitions
) -> BlockMetadata | None:
    """Return the blocks of some partitions of a snapshot without delete files.

    Returns:
        None if Spark has to read them: there are too many manifests, values that only Spark reads, or another version
        of Iceberg has other methods.
    """
    from py4j.protocol import Py4JError

    types = [_value_type(table, field.column) for field in key.fields]
    known = [kind for kind in types if kind is not None]
    if len(known) < len(types):
        return None
    try:
        rows = _rows(table, key, snapshot_id, partitions)
        return None if rows is None else _blocks(rows, key, known, snapshot_id)
    except (Py4JError, ValueError, OverflowError):  # such as a date beyond Python's
        logger.debug("%s: the driver cannot read manifests", table.name, exc_info=True)
        return None


def _rows(
    table: IcebergTable, key: ClusterKey, snapshot_id: int, partitions: ChangedPartitions
) -> list[list[str]] | None:
    filters = {
        spec_id: of_spec
        for spec_id in map(int, java_items(table.java.specs().keySet()))
        if (of_spec := Spec(table, spec_id).filter(partitions)) is not None
    }
    manifests = _manifests(table, snapshot_id, filters)
    if (
        len(manifests) > MOST_MANIFESTS
        or sum(live_entries(manifest) for manifest, _ in manifests) > MOST_ENTRIES
    ):
        return None
    reader = _Reader(table, key, filters)
    # The JVM decodes without Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(chain.from_iterable(threads.map(lambda manifest: reader.rows(*manifest), manifests)))


class _Reader:
    """Reads the entries of manifests, each as one line of text."""

    def __init__(self, table: IcebergTable, key: ClusterKey, filters: Mapping[int, Any]) -> None:
        self._table = table
        self._filters = filters
        schema = table.java.schema()
        self._fields = [schema.findField(field.column) for field in key.fields]
        self._functions = JavaFunctions(table.spark)
        self._text_of_spec = {spec_id: self._text(spec_id) for spec_id in filters}

    def rows(self, manifest: Any, spec_id: int) -> list[list[str]]:
        """Return the live entries of a manifest that the filter of its spec admits.

        Each has `_FIELDS`, and then `_METRICS` of each key item.
        """
        table = self._table
        reader = (
            table.iceberg.ManifestFiles.read(manifest, table.java.io(), table.java.specs())
            .filterPartitions(self._filters[spec_id])
            .select(java_list(table.spark, _COLUMNS))
        )
        try:
            # Only entries know which snapshot added a file, and Iceberg keeps them to itself.
            entries = self._functions.hidden_method(
                "org.apache.iceberg.ManifestReader", "liveEntries"
            ).invokeWithArguments(java_list(table.spark, [reader]))
            texts = table.iceberg.io.CloseableIterable.transform(entries, self._text_of_spec[spec_id])
            lines = split_lines(self._functions.lines_of(texts))
        finally:
            reader.close()
        return [[str(spec_id), *split_fields(line)] for line in lines]

    def _text(self, spec_id: int) -> Any:
        """Return the Java function that writes an entry."""
        functions, file = self._functions, self._functions.hidden_method(_ENTRY, "file")
        file = functions.as_type(file, CONTENT_FILE, OBJECT)

        def of_file(name: str, returns: str, *then: Any) -> Any:
            return reduce(
                functions.then, then, functions.then(file, functions.method(CONTENT_FILE, name, returns))
            )

        partition = self._table.java.specs().get(spec_id).partitionType()
        handles = [
            functions.as_type(functions.hidden_method(_ENTRY, "snapshotId"), OBJECT, OBJECT),
            functions.as_type(functions.hidden_method(_ENTRY, "fileSequenceNumber"), OBJECT, OBJECT),
            of_file("location", STRING),
            of_file("partition", "org.apache.iceberg.StructLike", functions.json_of(partition)),
            of_file("recordCount", "long"),
            of_file("fileSizeInBytes", "long"),
            of_file("sortOrderId", "java.lang.Integer"),
        ]
        for field in self._fields:
            item = functions.item_of(int(field.fieldId()))
            handles += [
                of_file(name, "java.util.Map", item)
                for name in ("valueCounts", "nullValueCounts", "nanValueCounts")
            ]
            bound = functions.bound_as_json(field.type())
            handles += [
                of_file(name, "java.util.Map", item, bound) for name in ("lowerBounds", "upperBounds")
            ]
        return functions.function(functions.fields(OBJECT, handles))


def _blocks(
    rows: Sequence[Sequence[str]], key: ClusterKey, types: Sequence[ValueType], snapshot_id: int
) -> BlockMetadata:
    texts = list(zip(*rows, strict=True)) or [()] * (len(_FIELDS) + 5 * len(types))
    columns: dict[str, pa.Array] = {}
    for name, values in zip(_FIELDS, texts, strict=False):
        is_text = name in ("path", "partition")
        columns[name] = pa.array(values, pa.string()) if is_text else _numbers(values).fill_null(0)
    for place, kind in enumerate(types):
        *counts, lower, upper = texts[len(_FIELDS) + 5 * place :][:5]
        metrics = [*map(_numbers, counts), _values(lower, kind), _values(upper, kind)]
        columns[f"metrics_{place}"] = pa.StructArray.from_arrays(metrics, _METRICS)
    blocks = blocks_of(pa.table(columns), key, snapshot_id)
    return replace(blocks, repeated=repeated_paths(blocks.path))


def _values(texts: Sequence[str], kind: ValueType) -> pa.Array:
    values = map(json.loads, texts)
    return pa.array([None if value is None else kind.read(value) for value in values], kind.arrow)


def _numbers(texts: Sequence[str]) -> pa.Array:
    return pa.array([None if text == "null" else int(text) for text in texts], pa.int64())


def _value_type(table: IcebergTable, column: str) -> ValueType | None:
    field = table.java.schema().findField(column)
    return None if field is None else value_type(str(field.type()).replace("timestamptz", "timestamp"))


def _manifests(table: IcebergTable, snapshot_id: int, filters: Mapping[int, Any]) -> list[tuple[Any, int]]:
    """Return the manifests that may list partitions which the filter of their spec admits, and their specs."""
    functions, java = JavaFunctions(table.spark), jvm(table.spark).java
    of_snapshot = table.java.snapshot(snapshot_id).dataManifests(table.java.io())
    spec_of = functions.as_type(functions.method(_MANIFEST, "partitionSpecId", "int"), OBJECT, _MANIFEST)
    manifests: list[tuple[Any, int]] = []
    for spec_id, partition_filter in filters.items():
        evaluator = table.iceberg.expressions.ManifestEvaluator.forPartitionFilter(
            partition_filter, table.java.specs().get(spec_id), True
        )
        may_match = functions.method(
            "org.apache.iceberg.expressions.ManifestEvaluator", "eval", "boolean", _MANIFEST
        ).bindTo(evaluator)
        is_spec = functions.method(OBJECT, "equals", "boolean", OBJECT)
        is_spec = functions.then(spec_of, is_spec.bindTo(java.lang.Integer.valueOf(spec_id)))
        matching = (
            of_snapshot.stream().filter(functions.predicate(is_spec)).filter(functions.predicate(may_match))
        )
        listed = java_items(matching.collect(java.util.stream.Collectors.toList()))
        manifests += [(manifest, spec_id) for manifest in listed]
    return manifests
