"""The entries of a table's manifests, and Iceberg's scan tasks of its files, read by the driver.

A query of the same table by Spark takes half a second more for few entries, and as long for a million.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dbt_recluster.exceptions import UnsupportedTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable, leaf_fields
from dbt_recluster.iceberg.session.jvm import (
    CONTENT_FILE,
    FIELDS,
    OBJECT,
    STRING,
    STRUCT,
    JavaFunctions,
    java_items,
    java_list,
    jvm,
)
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.key.types import iceberg_type

# The getters of a file for the maps of its columns' metrics.
_MAPS = {
    "null_value_count": "nullValueCounts",
    "nan_value_count": "nanValueCounts",
    "lower_bound": "lowerBounds",
    "upper_bound": "upperBounds",
}
_AS_PRINTED = ("boolean", "int", "long")  # types whose JSON is what Java prints
# An expression in Iceberg's JSON.
FilterExpression = Mapping[str, Any]


def compare(kind: str, term: str | Mapping[str, str], **values: Any) -> FilterExpression:
    """Return a condition on a column, or a transform of one; ``eq`` and ``lt`` need a ``value``, ``in`` ``values``."""
    return {"type": kind, "term": term, **values}


def combine(kind: str, conditions: Sequence[FilterExpression]) -> FilterExpression:
    """Join conditions by ``and`` or ``or``."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2  # Iceberg's parser is recursive
    left, right = (combine(kind, part) for part in (conditions[:half], conditions[half:]))
    return {"type": kind, "left": left, "right": right}


def _terms(condition: FilterExpression) -> set[str]:
    if "term" in condition:
        return {condition["term"]}
    return _terms(condition["left"]) | _terms(condition["right"])


def read_entries(
    table: IcebergTable,
    columns: Sequence[str],
    condition: FilterExpression,
    snapshot_id: int | None = None,
    metrics: Mapping[str, tuple[int, str]] | None = None,
) -> dict[str, pa.Array]:
    """Read manifest entries, in the order of the manifests.

    Args:
        table: The table.
        columns: Primitive columns of Iceberg's metadata table ``entries``, or structs of them.
        condition: The entries to read. Manifests without any are not opened.
        snapshot_id: The snapshot whose manifests are read; None reads those of all snapshots, each once.
        metrics: The ids and types of columns whose metrics are read.

    Returns:
        Arrays of shape (n,) by name: columns, fields such as ``data_file.partition.day``, and metrics such as
        ``k.lower_bound``.

    Raises:
        UnsupportedTableError: Iceberg cannot read the table's metadata tables.
    """
    types = table.iceberg.MetadataTableType
    kind = types.ALL_ENTRIES if snapshot_id is None else types.ENTRIES
    maps = [f"data_file.{metric}s" for metric in _MAPS] if metrics else ()
    try:
        entries = table.iceberg.MetadataTableUtils.createMetadataTableInstance(table.java, kind)
        scan = entries.newScan() if snapshot_id is None else entries.newScan().useSnapshot(snapshot_id)
        # Only these, since the parser ignores case.
        named = entries.schema().select(java_list(table.spark, _terms(condition)))
        expression = table.iceberg.expressions.ExpressionParser.fromJson(json.dumps(condition), named)
        scan = scan.filter(expression).select(java_list(table.spark, [*columns, *maps]))
        schema = json.loads(str(table.iceberg.SchemaParser.toJson(scan.schema())))
        fields = list(_fields(schema, columns, metrics or {}))
        parts = list(_read(table, scan, expression, fields))
    except Exception as e:
        if "Cannot find source column for partition field" in str(e):
            raise _dropped_source(table, f"read its metadata tables ({short_message(e)})") from e
        if "Conversions.fromByteBuffer" not in str(e):
            raise
        raise UnsupportedTableError(
            f"{table.name} has bounds that Iceberg cannot read ({short_message(e)}). To replace them: "
            f"CALL system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))."
        ) from e
    parts.append(_columns(b"", fields))
    columns_of_parts = [list(arrays) for arrays in zip(*parts, strict=True)]
    # Frees the parts of each column before the next is concatenated.
    parts.clear()
    return {field.name: pa.concat_arrays(columns_of_parts.pop(0)) for field in fields}


def check_sources(table: IcebergTable, spec_ids: Iterable[int]) -> None:
    """Refuse blocks of a partition spec whose column was dropped, which Iceberg 1.11 reads but does not write."""
    for spec_id in spec_ids:
        fields = table.spec_fields(spec_id)
        is_partitioned = any(field["transform"] != "void" for field in fields)
        if is_partitioned and not {field["source-id"] for field in fields} <= set(table.field_ids.values()):
            raise _dropped_source(table, "write new blocks of it")


def _dropped_source(table: IcebergTable, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{table.name} has an old partition spec whose column was dropped, so Iceberg cannot {what}. To repair a table "
        "of format version 2 or later, rewrite the files of that spec, CALL system.rewrite_data_files(table => "
        f"'{table.name}', options => map('rewrite-all', 'true')), and then drop the spec, CALL "
        f"system.expire_snapshots(table => '{table.name}', older_than => <now>, retain_last => 1, "
        "clean_expired_metadata => true)."
    )


def metrics_of(entries: Mapping[str, pa.Array], column: str) -> dict[str, pa.Array]:
    """Return the metrics of a column by name."""
    return {metric: entries[f"{column}.{metric}"] for metric in _MAPS}


def read_written(
    table: IcebergTable, files: Sequence[Any], metrics: Mapping[str, tuple[int, str]]
) -> dict[str, pa.Array]:
    """Read the ``rows`` and ``bytes`` of Java data files that are not committed yet, and metrics as `read_entries`."""
    fields = [_Field("rows", "recordCount", "long"), _Field("bytes", "fileSizeInBytes", "long")]
    for column, (field_id, kind) in metrics.items():
        fields += [_metric(column, metric, getter, field_id, kind) for metric, getter in _MAPS.items()]
    functions, of = JavaFunctions(table.spark), table.iceberg.io.CloseableIterable
    texts = of.transform(of.of(java_list(table.spark, files)), _text(table, fields, CONTENT_FILE))
    columns = _columns(functions.lines(texts), fields)
    return {field.name: column for field, column in zip(fields, columns, strict=True)}


def partition_values(table: IcebergTable, partitions: Sequence[Any], kinds: Mapping[int, str]) -> dict[int, pa.Array]:
    """Read fields of Java partitions of one spec, given the Iceberg types at their places: one array for each place."""
    fields = [_Field(str(place), (place,), kind) for place, kind in kinds.items()]
    functions, of = JavaFunctions(table.spark), table.iceberg.io.CloseableIterable
    texts = of.transform(of.of(java_list(table.spark, partitions)), _text(table, fields, STRUCT))
    return dict(zip(kinds, _columns(functions.lines(texts), fields), strict=True))


class _Field(NamedTuple):
    name: str  # of the result
    places: tuple[int, ...] | str  # in each of the nested structs of the entry, or the getter of the file
    kind: str  # its Iceberg type
    key: int | None = None  # if it is in a map
    is_encoded: bool = False  # as a bound


def _fields(
    schema: Mapping[str, Any], columns: Sequence[str], metrics: Mapping[str, tuple[int, str]]
) -> Iterator[_Field]:
    leaves = {name: (places, kind) for name, kind, _, places in leaf_fields(schema)}
    for name, (places, kind) in leaves.items():
        if any(name == column or name.startswith(f"{column}.") for column in columns):
            yield _Field(name, places, kind)
    for column, (field_id, kind) in metrics.items():
        for metric in _MAPS:
            yield _metric(column, metric, leaves[f"data_file.{metric}s"][0], field_id, kind)


def _metric(column: str, metric: str, places: tuple[int, ...] | str, field_id: int, kind: str) -> _Field:
    is_bound = metric.endswith("_bound")
    return _Field(f"{column}.{metric}", places, kind if is_bound else "long", field_id, is_bound)


def _read(table: IcebergTable, scan: Any, expression: Any, fields: Sequence[_Field]) -> Iterator[list[pa.Array]]:
    """Yield the fields of each manifest's matching entries."""
    functions, iceberg = JavaFunctions(table.spark), table.iceberg
    iterables = iceberg.io.CloseableIterable
    evaluator = iceberg.expressions.Evaluator(scan.schema().asStruct(), expression, True)
    kind = str(evaluator.getClass().getName())
    matches = functions.method(kind, "eval", "boolean", STRUCT).bindTo(evaluator)
    is_wanted = functions.predicate(matches)
    as_text = jvm(table.spark).remember(("entry", *fields), lambda: _text(table, fields, STRUCT))

    def read(task: Any) -> list[pa.Array]:
        with closing(task.rows()) as rows:
            texts = iterables.transform(iterables.filter(rows, is_wanted), as_text)
            lines = functions.lines(texts)
        return _columns(lines, fields)

    with closing(scan.planFiles()) as planned:
        tasks = java_items(java_list(table.spark, planned))
    # The JVM decodes some manifests while Python parses one.
    with ThreadPoolExecutor(4) as threads:
        yield from threads.map(read, tasks)


def _text(table: IcebergTable, fields: Sequence[_Field], owner: str) -> Any:
    """Return the Java function that writes the fields of an entry, or of a file, as JSON."""
    functions = JavaFunctions(table.spark)
    handles = []
    for field in fields:
        stored = iceberg_type(field.kind).json_type or field.kind
        if isinstance(field.places, str):
            returns = "long" if field.key is None else "java.util.Map"
            value = functions.as_type(functions.method(owner, field.places, returns), OBJECT, owner)
        else:
            value = functions.value_at(field.places)
        kind = table.iceberg.types.Types.fromPrimitiveString(stored)
        if field.key is not None:
            value = functions.then(value, functions.item_of(field.key))
        if field.is_encoded:
            value = functions.then(value, functions.decoded(kind))
        is_json = stored in _AS_PRINTED
        handles.append(value if is_json else functions.then(value, functions.to_json(kind)))
    return functions.function(functions.fields(owner, handles))


def _columns(lines: bytes, fields: Sequence[_Field]) -> list[pa.Array]:
    """Parse lines of :func:`_text`, whose JSON has no control characters."""
    names = [str(place) for place in range(len(fields))]
    stored = [iceberg_type(field.kind).json_type or field.kind for field in fields]
    types = [iceberg_type(name).arrow if name in _AS_PRINTED else pa.string() for name in stored]
    table = pa.schema(zip(names, types, strict=True)).empty_table()
    if lines:
        table = csv.read_csv(
            pa.BufferReader(lines),
            csv.ReadOptions(use_threads=False, column_names=names, block_size=len(lines)),
            csv.ParseOptions(delimiter=FIELDS, quote_char=False),
            csv.ConvertOptions(column_types=table.schema, null_values=["null"], strings_can_be_null=True),
        )
    columns = (column.combine_chunks() for column in table.columns)
    return [_values(column, field.kind) for column, field in zip(columns, fields, strict=True)]


def _values(column: pa.Array, kind: str) -> pa.Array:
    """Convert the JSON of a column's values, or its numbers."""
    column_type = iceberg_type(kind)
    if not pa.types.is_string(column.type):
        return column.cast(column_type.arrow)
    if kind == "string" and not pc.any(pc.match_substring(column, "\\")).as_py():
        return pc.utf8_slice_codeunits(column, 1, -1)
    text = ",".join(column.fill_null("null").to_pylist())
    if column_type.has_nan:  # Python reads NaN and Infinity unquoted
        text = text.replace('"', "")
    return column_type.from_json(json.loads(f"[{text}]"))


@dataclass(frozen=True)
class FileMetrics:
    """The recorded metrics of a file's columns, by field id."""

    values: dict[int, int]  # how many, NULLs included
    nulls: dict[int, int]
    nans: dict[int, int]
    lower: dict[int, bytes]  # bounds in Iceberg's binary form
    upper: dict[int, bytes]


@dataclass(frozen=True)
class SnapshotScan:
    """Iceberg's scan of the live data files of a snapshot, all of them or those that a filter may match.

    Files that are asked for by their paths are found whatever the filter, which only saves time.
    """

    table: IcebergTable
    snapshot_id: int
    filter: Any = None  # a Java expression

    def paths(self) -> list[str]:
        """Return the paths of the files."""
        return self._opened("location", STRING)

    def rows(self) -> int:
        """Return how many rows the files have."""
        return sum(map(int, self._opened("recordCount", "long")))

    def tasks(self, paths: Sequence[str], bounds_of: Sequence[str] = ()) -> dict[str, Any]:
        """Return the Java scan tasks of files, by path, with the bounds of some columns; only of files it has."""
        scan = self._scan()
        if bounds_of:
            # The scan has the schema of the snapshot.
            ids, schema = self.table.field_ids, scan.schema()
            names = [schema.findColumnName(ids[column]) for column in bounds_of]
            scan = scan.includeColumnStats([name for name in names if name is not None])
        with closing(scan.planFiles()) as tasks:
            selected = java_items(java_list(self.table.spark, self._at(tasks, paths)))
        if self.filter is not None and len(selected) < len(paths):
            return replace(self, filter=None).tasks(paths, bounds_of)
        return {str(task.file().location()): task for task in selected}

    def metrics(self, paths: Sequence[str]) -> dict[str, FileMetrics]:
        """Return the metrics of some files, by path.

        Scan tasks have none, since with the metrics of every column they would be too large for executors.
        """
        functions, iterables = JavaFunctions(self.table.spark), self.table.iceberg.io.CloseableIterable
        with closing(self._scan().includeColumnStats().planFiles()) as tasks:
            file = functions.function(functions.file_of_task())
            metrics = _metrics(self.table, iterables.transform(self._at(tasks, paths), file))
        if self.filter is not None and len(metrics) < len(paths):
            return replace(self, filter=None).metrics(paths)
        return metrics

    def _scan(self) -> Any:
        scan = self.table.java.newScan().useSnapshot(self.snapshot_id).ignoreResiduals()
        return scan if self.filter is None else scan.filter(self.filter)

    def _opened(self, *getter: str) -> list[str]:
        functions, iterables = JavaFunctions(self.table.spark), self.table.iceberg.io.CloseableIterable
        value = functions.as_type(functions.method(CONTENT_FILE, *getter), OBJECT, CONTENT_FILE)
        with closing(self._scan().caseSensitive(self.table.case_sensitive).planFiles()) as tasks:
            of_task = functions.function(functions.then(functions.file_of_task(), value))
            return functions.strings(iterables.transform(tasks, of_task))

    def _at(self, tasks: Any, paths: Sequence[str]) -> Any:
        functions, spark = JavaFunctions(self.table.spark), self.table.spark
        java_paths = jvm(spark).java.util.HashSet(java_list(spark, paths))
        contains = functions.method("java.util.Set", "contains", "boolean", OBJECT).bindTo(java_paths)
        location = functions.then(functions.file_of_task(), functions.method(CONTENT_FILE, "location", STRING))
        is_at = functions.then(location, functions.as_type(contains, "boolean", STRING))
        return self.table.iceberg.io.CloseableIterable.filter(tasks, functions.predicate(is_at))


def changed_tasks(table: IcebergTable, snapshot_id: int | None, tasks: Mapping[str, Any]) -> set[str]:
    """Return the files that are no longer live in a snapshot, None if the table is empty, or have other delete files.

    ``tasks`` are the scan tasks by path when they were planned.
    """
    now = {} if snapshot_id is None else SnapshotScan(table, snapshot_id).tasks(list(tasks))
    return {path for path, task in tasks.items() if path not in now or _deletes(task) != _deletes(now[path])}


def written_metrics(table: IcebergTable, files: Sequence[Any]) -> dict[str, FileMetrics]:
    """Return the metrics of Java data files that are not committed yet, by path."""
    return _metrics(table, table.iceberg.io.CloseableIterable.of(java_list(table.spark, files)))


def _deletes(task: Any) -> set[tuple[str, Any]]:
    # Deletion vectors of several files share one file, at different offsets.
    return {(delete.location(), delete.contentOffset()) for delete in java_items(task.deletes())}


def _metrics(table: IcebergTable, files: Any) -> dict[str, FileMetrics]:
    functions = JavaFunctions(table.spark)

    def text() -> Any:
        mapper = table.iceberg.util.JsonUtil.mapper()  # writes bounds in base64
        write = functions.method(str(mapper.getClass().getName()), "writeValueAsString", STRING, OBJECT).bindTo(mapper)
        fields: list[Any] = [("location", STRING)]
        for getter in ("valueCounts", *_MAPS.values()):
            of_file = functions.as_type(functions.method(CONTENT_FILE, getter, "java.util.Map"), OBJECT, CONTENT_FILE)
            fields.append(functions.then(of_file, write))
        return functions.function(functions.fields(CONTENT_FILE, fields))

    as_text = jvm(table.spark).remember(("file metrics",), text)
    metrics = {}
    for path, *maps in functions.records(table.iceberg.io.CloseableIterable.transform(files, as_text)):
        values, nulls, nans, *bounds = [{int(n): of for n, of in (json.loads(each) or {}).items()} for each in maps]
        lower, upper = ({n: b64decode(bound) for n, bound in of.items()} for of in bounds)
        metrics[path] = FileMetrics(values, nulls, nans, lower, upper)
    return metrics
