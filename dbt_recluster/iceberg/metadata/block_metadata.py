"""The blocks of a snapshot with their bounds, read in one pass over the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.changed_partitions import MOST_PARTITIONS, ChangedPartitions, partition_columns
from dbt_recluster.iceberg.metadata.manifest_entries import (
    FilterExpression,
    SnapshotScan,
    check_sources,
    combine,
    compare,
    metrics_of,
    read_entries,
    read_written,
)
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import BoolArray, IntArray, value_type
from dbt_recluster.text import printable

# The columns of entries with numbers of a block.
_NUMBERS = {
    "spec_id": "data_file.spec_id",
    "rows": "data_file.record_count",
    "bytes": "data_file.file_size_in_bytes",
    "added_by": "snapshot_id",
    "sequence": "file_sequence_number",
    "sort_order_id": "data_file.sort_order_id",
}
_COLUMNS = ("data_file.file_path", "data_file.partition", *_NUMBERS.values())
_PARTITION = "data_file.partition."
# NumPy's types of numbers that transforms make of times.
_TIMES = {"year": "datetime64[Y]", "month": "datetime64[M]", "hour": "datetime64[h]"}
# Types of partitions that a scan may compare with a number, text or truth value in JSON.
_COMPARED = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date)
# Status 2 is an entry that the manifest's own snapshot deleted.
_IS_DATA, _IS_LIVE = compare("eq", "data_file.content", value=0), compare("lt", "status", value=2)


@dataclass(frozen=True)
class BlockMetadata:
    """The blocks of one snapshot: arrays of shape (n,) in the same order."""

    snapshot_id: int | None  # None if the table has none
    path: pa.Array  # locations
    partition: IntArray  # a number for each partition of each partition spec
    spec_id: IntArray
    rows: IntArray  # deleted ones included
    bytes: IntArray  # file sizes
    added_by: IntArray  # the snapshots that added the blocks
    sequence: IntArray  # their sequence numbers, 0 in tables of format version 1
    sort_order_id: IntArray  # as recorded, 0 if none
    # Bounds, and masks of unknown upper bounds, one array for each key item (see `key_bounds`).
    lower: list[pa.Array]
    upper: list[pa.Array]
    unbounded: list[BoolArray]
    deleted_rows: IntArray | None = None  # by delete files of the block alone; None if the snapshot has none
    # The mask of paths that the snapshot lists more than once, or None if there are none. Iceberg removes files by
    # path, so a merge of one block would remove the others too.
    repeated: BoolArray | None = None
    # Values of each partition, at its number, by the name of the field.
    partition_values: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.path)

    def take(self, positions: npt.NDArray[Any]) -> BlockMetadata:
        """Return the blocks at ``positions``, indices or a mask."""
        places = np.flatnonzero(positions) if positions.dtype == bool else positions

        def at_places(values: Any) -> Any:
            if isinstance(values, list):
                return [at_places(column) for column in values]
            if isinstance(values, np.ndarray):
                return values[places]
            return values.take(pa.array(places)) if isinstance(values, pa.Array) else values

        return BlockMetadata(*(at_places(getattr(self, field.name)) for field in fields(self)))

    def plus(self, others: BlockMetadata) -> BlockMetadata:
        """Return these blocks and, after them, others by the same key."""

        def joined(value: Any, other: Any) -> Any:
            if isinstance(value, list):
                return list(map(joined, value, other))
            if isinstance(value, np.ndarray):
                return np.append(value, other)
            return pa.concat_arrays([value, other]) if isinstance(value, pa.Array) else value

        return BlockMetadata(*(joined(getattr(self, f.name), getattr(others, f.name)) for f in fields(self)))

    def items(self, positions: Sequence[int]) -> BlockMetadata:
        """Return the same blocks with only the key items at ``positions``."""
        columns = (self.lower, self.upper, self.unbounded)
        lower, upper, unbounded = ([column[place] for place in positions] for column in columns)
        return replace(self, lower=lower, upper=upper, unbounded=unbounded)


def read_blocks(
    table: IcebergTable, key: ClusterKey, snapshot_id: int | None = None, partitions: ChangedPartitions | None = None
) -> BlockMetadata:
    """Read the live data files of a snapshot, or of the current one, with their bounds under ``key``.

    ``partitions`` restricts them to these partitions, and maybe others. A block of a partition spec whose column was
    dropped is an UnsupportedTableError.
    """
    snapshot_id = table.snapshot_id if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        none, bounds = np.zeros(0, np.int64), [pa.array([], pa.int64()) for _ in key.fields]
        return _of_no_snapshot(none, bounds, bounds, [none.astype(np.bool_) for _ in key.fields])
    conditions = [] if partitions is None else [partitions.condition()]
    blocks = _read(table, key, conditions, snapshot_id)
    check_sources(table, np.unique(blocks.spec_id).tolist())
    if table.may_have_deletes(snapshot_id):
        blocks = replace(blocks, deleted_rows=_deleted_rows(table, conditions, blocks))
    return blocks


def read_blocks_added(table: IcebergTable, key: ClusterKey, snapshots: Sequence[int]) -> BlockMetadata:
    """Read the data files that ``snapshots`` added, live in any snapshot."""
    blocks = _read(table, key, [_written_by(snapshots)], None)
    # Each snapshot lists them again.
    first = np.sort(np.unique(codes_of(blocks.path), return_index=True)[1])
    return replace(blocks.take(first), snapshot_id=table.snapshot_id, repeated=None)


def read_written_blocks(
    table: IcebergTable, key: ClusterKey, files: Sequence[Any], partition: IntArray, load: IntArray
) -> BlockMetadata:
    """Read Java data files that are not committed yet, with the partition of each and a number of who added it."""
    entries, zeros = read_written(table, files, _columns_of(table, key)), np.zeros(len(files), np.int64)
    rows, size = numbers(entries, "rows"), numbers(entries, "bytes")
    bounds = _bounds(rows, entries, key)
    blocks = _of_no_snapshot(zeros, *bounds, partition=partition, rows=rows, bytes=size, added_by=load)
    return replace(blocks, deleted_rows=zeros, repeated=zeros.astype(np.bool_))


def removed_paths(table: IcebergTable, snapshots: Sequence[int]) -> dict[int, list[str]]:
    """Return the paths of the data files that each of ``snapshots`` removed, if any."""
    conditions = [_IS_DATA, _written_by(snapshots), compare("eq", "status", value=2)]
    entries = read_entries(table, ["snapshot_id", "data_file.file_path"], combine("and", conditions))
    pairs = zip(*(entries[name].to_pylist() for name in ("snapshot_id", "data_file.file_path")), strict=True)
    paths: dict[int, list[str]] = {}
    for snapshot, path in dict.fromkeys(pairs):
        paths.setdefault(snapshot, []).append(path)
    return paths


def _written_by(snapshots: Sequence[int]) -> FilterExpression:
    return compare("in", "snapshot_id", values=list(snapshots))


def _read(
    table: IcebergTable, key: ClusterKey, conditions: Sequence[FilterExpression], snapshot_id: int | None
) -> BlockMetadata:
    """Read the live data files among manifest entries."""
    condition = combine("and", [_IS_LIVE, _IS_DATA, *conditions])
    entries = read_entries(table, _COLUMNS, condition, snapshot_id, _columns_of(table, key))
    path, partition = entries["data_file.file_path"], _partition_codes(entries)
    figures = {name: numbers(entries, column) for name, column in _NUMBERS.items()}
    lower, upper, unbounded = _bounds(figures["rows"], entries, key)
    entry = np.zeros(partition.max(initial=-1) + 1, np.int64)  # one of each partition
    entry[partition] = np.arange(len(partition))
    values = {name: value.take(pa.array(entry)) for name, value in entries.items() if name.startswith(_PARTITION)}
    return BlockMetadata(
        snapshot_id,
        path,
        partition,
        **figures,
        lower=lower,
        upper=upper,
        unbounded=unbounded,
        repeated=_repeated(path),
        partition_values={name.removeprefix(_PARTITION): value for name, value in values.items()},
    )


def _columns_of(table: IcebergTable, key: ClusterKey) -> dict[str, tuple[int, str]]:
    columns = {path: (field_id, kind) for path, kind, field_id in table.primitive_fields()}
    return {field.column: columns[field.column] for field in key.fields}


def _bounds(
    rows: IntArray, entries: Mapping[str, pa.Array], key: ClusterKey
) -> tuple[list[pa.Array], list[pa.Array], list[BoolArray]]:
    bounds = [key_bounds(rows, metrics_of(entries, field.column), field.transform) for field in key.fields]
    lower, upper, unbounded = map(list, zip(*bounds, strict=True))
    return lower, upper, unbounded


def key_bounds(
    rows: IntArray, metrics: Mapping[str, pa.Array], transform: Transform
) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the lower and upper bounds of a key item in each block, and the mask of unknown upper bounds.

    Args:
        rows: Rows of each block, int64 (n,).
        metrics: Iceberg's metrics of the column, null if missing: ``lower_bound``, ``upper_bound``,
            ``null_value_count``, and of floats ``nan_value_count``, each of shape (n,).
        transform: The transform of the key item.

    Returns:
        ``(lower, upper, unbounded)``, each of shape (n,). Iceberg's bounds ignore NULL and NaN; these do not:

        - A NULL makes the lower bound NULL (NULLS FIRST), and only NULLs both bounds.
        - A NaN makes the upper bound NaN, which Spark sorts above every number.
        - Missing metrics mean the worst case: NULLs if they are not counted, and without bounds a NULL lower bound and
          an unknown upper one.
        - Decoding text that is not UTF-8 may swap the bounds, which are swapped back.
    """
    lower, upper = metrics["lower_bound"], metrics["upper_bound"]
    is_swapped = pc.fill_null(pc.greater(lower, upper), False)
    lower, upper = pc.if_else(is_swapped, upper, lower), pc.if_else(is_swapped, lower, upper)
    nulls = numbers(metrics, "null_value_count", missing=-1)
    all_null = nulls == rows
    has_lower = lower.is_valid().to_numpy(zero_copy_only=False)
    bounded = upper.is_valid().to_numpy(zero_copy_only=False)
    unbounded = ~bounded & ~all_null

    if value_type(lower.type).has_nan:
        nans = numbers(metrics, "nan_value_count", missing=-1)
        only_nans = (nans > 0) & (np.maximum(nulls, 0) + nans == rows)
        nan = pa.scalar(float("nan"), lower.type)
        lower = pc.if_else(pa.array(only_nans), nan, lower)
        upper = pc.if_else(pa.array(nans > 0), nan, upper)
        has_lower |= only_nans
        unbounded = ((~bounded & (nans <= 0)) | (nans < 0)) & ~all_null

    null_first = ~has_lower | (nulls != 0)
    lower, upper = transform.values(lower), transform.values(upper)
    lower = pc.if_else(pa.array(null_first), pa.scalar(None, lower.type), lower)
    return lower, upper, unbounded


def position_deletes(table: IcebergTable, snapshot_id: int, conditions: Sequence[FilterExpression] = ()) -> pa.Table:
    """Return the position delete files of a snapshot, deletion vectors included.

    Returns:
        Columns ``block``, ``rows``, ``partition`` and ``format`` of shape (n,). The block is the path of the only block
        of a file, recorded or equal to both bounds of its paths, else null.
    """
    condition = combine("and", [_IS_LIVE, compare("eq", "data_file.content", value=1), *conditions])
    names = ("referenced_data_file", "record_count", "file_format", "spec_id", "partition")
    columns = [f"data_file.{name}" for name in names]
    # The id is that of the column of paths in position delete files.
    entries = read_entries(table, columns, condition, snapshot_id, {"path": (2147483546, "string")})
    lower, upper = entries["path.lower_bound"], entries["path.upper_bound"]
    block = pc.coalesce(entries[columns[0]], pc.if_else(pc.equal(lower, upper), lower, None))
    values = [block, entries[columns[1]], _partition_codes(entries), entries[columns[2]]]
    return pa.table(values, ["block", "rows", "partition", "format"])


def _deleted_rows(table: IcebergTable, conditions: Sequence[FilterExpression], blocks: BlockMetadata) -> IntArray:
    """Count the rows that position deletes of one block alone delete: int64 (n,).

    Neither delete files of several blocks nor equality deletes record the rows of each block.
    """
    assert blocks.snapshot_id is not None
    deletes = position_deletes(table, blocks.snapshot_id, conditions)
    place = pc.index_in(deletes["block"].combine_chunks(), value_set=blocks.path)
    has_block = np.asarray(place.is_valid().to_numpy(zero_copy_only=False))
    deleted = np.zeros(len(blocks), np.int64)
    np.add.at(deleted, place.drop_null().to_numpy(), deletes["rows"].to_numpy()[has_block])
    return deleted


def _of_no_snapshot(
    zeros: IntArray, lower: list[pa.Array], upper: list[pa.Array], unbounded: list[BoolArray], **columns: IntArray
) -> BlockMetadata:
    """Return blocks without a snapshot and paths; numbers that are not in ``columns`` are zeros."""
    values: dict[str, Any] = {**dict.fromkeys(("partition", *_NUMBERS), zeros), **columns}
    path = pa.nulls(len(zeros), pa.string())
    return BlockMetadata(snapshot_id=None, path=path, lower=lower, upper=upper, unbounded=unbounded, **values)


def numbers(entries: Mapping[str, pa.Array] | pa.Table, name: str, missing: int = 0) -> IntArray:
    """Return numbers, or ``missing`` for null: int64 (n,)."""
    return np.asarray(pc.fill_null(entries[name], missing), dtype=np.int64)


def _partition_codes(entries: Mapping[str, pa.Array]) -> IntArray:
    """Number the partitions of entries, which differ between specs: int64 (n,)."""
    codes = numbers(entries, "data_file.spec_id")
    for name, values in entries.items():
        if name.startswith(_PARTITION):
            value_codes = codes_of(values)
            codes = codes_of(pa.array(codes * (value_codes.max(initial=0) + 1) + value_codes))
    return codes


def partition_name(table: IcebergTable, blocks: BlockMetadata, place: int) -> str | None:
    """Return the partition of a block, such as ``ts_day=2026-01-31/country=de``; None without a field that is left."""
    names = []
    for spec_field in table.spec_fields(int(blocks.spec_id[place])):
        name, kind = spec_field["name"], _TIMES.get(spec_field["transform"])
        if name in blocks.partition_values:  # unless dropped or renamed
            scalar = blocks.partition_values[name][int(blocks.partition[place])]
            if pa.types.is_date(scalar.type):  # Python's end with the year 9999
                scalar, kind = scalar.cast(pa.int32()), "datetime64[D]"
            elif pa.types.is_timestamp(scalar.type):
                scalar, kind = scalar.cast(pa.int64()), "datetime64[us]"
            value = scalar.as_py()
            names.append(f"{name}={'null' if value is None else np.array(value).astype(kind) if kind else value}")
    return printable("/".join(names))[:200] or None


def partition_scan(table: IcebergTable, blocks: BlockMetadata) -> SnapshotScan:
    """Return a scan of the partitions of some blocks of a snapshot, and maybe others; it opens few other manifests.

    With equality deletes it is unfiltered. Iceberg also holds a filter against their bounds, and rows may have other
    values than their partition: early versions rounded days before 1970 up.
    """
    assert blocks.snapshot_id is not None
    scan, snapshot = SnapshotScan(table, blocks.snapshot_id), table.snapshot(blocks.snapshot_id)
    specs = dict(zip(blocks.partition.tolist(), blocks.spec_id.tolist(), strict=True))
    columns = partition_columns(table, set(specs.values()))
    has_equality_deletes = snapshot is None or snapshot.count("total-equality-deletes") != 0
    if columns is None or has_equality_deletes or not 0 < len(specs) <= MOST_PARTITIONS:
        return scan
    schema, partitions = table.java.newScan().useSnapshot(blocks.snapshot_id).schema(), list[FilterExpression]()
    schema_now = table.java.schema()
    for number, spec_id in specs.items():
        conditions = []
        for of_spec in table.spec_fields(spec_id):
            source, transform = schema.findColumnName(of_spec["source-id"]), of_spec["transform"]
            if source != schema_now.findColumnName(of_spec["source-id"]):
                return scan  # specs have the names of the table, which Iceberg looks for
            name = columns[spec_id][str(of_spec["field-id"])]
            if name not in blocks.partition_values:
                return scan  # the field was renamed after the blocks were read
            value = blocks.partition_values[name][number]
            if source is None or transform == "void" or not any(is_kind(value.type) for is_kind in _COMPARED):
                continue
            term = {"type": "transform", "transform": transform, "term": str(source)}
            literal = (value.cast(pa.int32()) if pa.types.is_date(value.type) else value).as_py()
            is_null = compare("is-null", term)
            conditions.append(is_null if literal is None else compare("eq", term, value=literal))
        if not conditions:
            return scan
        partitions.append(combine("and", conditions))
    text = json.dumps(combine("or", partitions))
    return replace(scan, filter=table.iceberg.expressions.ExpressionParser.fromJson(text))


def _repeated(paths: pa.Array) -> BoolArray | None:
    """Return the mask of paths that occur more than once, or None if there are none.

    Only paths that end alike are compared, since a dictionary of ten million paths takes 8 s and 2.6 GB.
    """
    if not len(paths):
        return None
    offsets = np.frombuffer(paths.buffers()[1], np.int32)[paths.offset :][: len(paths) + 1]
    text = paths.buffers()[2]
    words = np.ndarray(max(0, text.size - 7), np.uint64, text, strides=(1,))
    endings = np.zeros(len(paths), np.uint64)
    for back in range(8, min(72, int(np.diff(offsets).min())) + 1, 8):
        endings = endings * np.uint64(0x9E3779B97F4A7C15) ^ words[offsets[1:] - back]
    _, place, count = np.unique(endings, return_inverse=True, return_counts=True)
    alike = count[place] > 1
    codes = codes_of(paths.filter(pa.array(alike)))
    repeated = np.zeros(len(paths), np.bool_)
    repeated[alike] = np.bincount(codes, minlength=1)[codes] > 1
    return repeated if repeated.any() else None


def codes_of(values: pa.Array) -> IntArray:
    """Number distinct values in the order of their first appearance: int64 (n,)."""
    encoded = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
