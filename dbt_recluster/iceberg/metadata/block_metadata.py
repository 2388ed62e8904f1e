"""The blocks of a snapshot: where they are, what they hold and their bounds, read in one pass over the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.metadata.changed_partitions import ChangedPartitions
from dbt_recluster.iceberg.metadata.manifest_entries import (
    Condition,
    check_sources,
    combine,
    compare,
    metrics_of,
    read_entries,
)
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.transforms import Transform

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PARTITION = "data_file.partition."
_COLUMNS = (
    "data_file.file_path",
    "data_file.spec_id",
    "data_file.partition",
    "data_file.record_count",
    "data_file.file_size_in_bytes",
    "snapshot_id",
    "file_sequence_number",
    "data_file.sort_order_id",
)
# The status of an entry that the manifest's own snapshot deleted.
_DELETED = 2
_IS_DATA, _IS_LIVE = compare("eq", "data_file.content", value=0), compare("lt", "status", value=_DELETED)
# The id of the column of paths in position delete files.
_PATH_ID = 2147483546


@dataclass(frozen=True)
class BlockMetadata:
    """The blocks of one snapshot. All arrays have shape (n,) and the same order.

    Attributes:
        snapshot_id: The snapshot, or None if the table has none.
        path: The location of each block.
        partition: Equal numbers for blocks of the same partition of the same partition spec.
        spec_id: The partition spec that each block was written under.
        rows: Rows, including those that delete files delete.
        deleted_rows: Rows that delete files of this block alone delete, or None if the snapshot has no delete files.
        bytes: Size of the file.
        added_by: The snapshot that added the block; rewriting manifests does not change it.
        sequence: The sequence number of that snapshot, 0 if it has none, as in tables of format version 1.
        sort_order_id: The sort order that the block's writer recorded, 0 if none.
        lower, upper: The bounds: one Arrow array for each key item (see :func:`key_bounds`).
        unbounded: Where the upper bound is unknown: one mask for each key item.
        repeated: Where the snapshot lists the same path more than once, or None if it does nowhere. Iceberg removes
            files by path, so a merge of one of them would remove the others too.
    """

    snapshot_id: int | None
    path: pa.Array
    partition: IntArray
    spec_id: IntArray
    rows: IntArray
    bytes: IntArray
    added_by: IntArray
    sequence: IntArray
    sort_order_id: IntArray
    lower: list[pa.Array]
    upper: list[pa.Array]
    unbounded: list[BoolArray]
    deleted_rows: IntArray | None = None
    repeated: BoolArray | None = None

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.path)

    def take(self, positions: npt.NDArray[Any]) -> BlockMetadata:
        """Return the blocks at ``positions`` (indices or a mask), in that order."""
        places = np.flatnonzero(positions) if positions.dtype == bool else positions

        def at_places(values: Any) -> Any:
            if isinstance(values, list):
                return [at_places(column) for column in values]
            if isinstance(values, np.ndarray):
                return values[places]
            return values.take(pa.array(places)) if isinstance(values, pa.Array) else values

        return BlockMetadata(*(at_places(getattr(self, field.name)) for field in fields(self)))

    def items(self, positions: Sequence[int]) -> BlockMetadata:
        """Return the same blocks under a key of only the key items at ``positions``."""
        return replace(
            self,
            lower=[self.lower[position] for position in positions],
            upper=[self.upper[position] for position in positions],
            unbounded=[self.unbounded[position] for position in positions],
        )


def read_blocks(
    table: IcebergTable,
    key: ClusterKey,
    snapshot_id: int | None = None,
    partitions: ChangedPartitions | None = None,
) -> BlockMetadata:
    """Read every live data file of the current snapshot, or of ``snapshot_id``, with its bounds under ``key``.

    With ``partitions``, only those of these partitions, and maybe others.

    Raises:
        UnsupportedTableError: The column of a live block's partition spec was dropped.
    """
    snapshot_id = table.snapshot_id if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        return _empty(key)
    conditions = [] if partitions is None else [partitions.condition()]
    blocks = _read(table, key, conditions, snapshot_id)
    check_sources(table, np.unique(blocks.spec_id).tolist())
    if table.may_have_deletes(snapshot_id):
        blocks = replace(blocks, deleted_rows=_deleted_rows(table, conditions, blocks))
    return blocks


def read_blocks_added(table: IcebergTable, key: ClusterKey, snapshots: Sequence[int]) -> BlockMetadata:
    """Read every data file that one of ``snapshots`` added and that some snapshot still refers to, live or not."""
    blocks = _read(table, key, [_written_by(snapshots)], None)
    # The manifests of every snapshot list the files that it has in common with others again.
    first = np.sort(np.unique(codes_of(blocks.path), return_index=True)[1])
    return replace(blocks.take(first), snapshot_id=table.snapshot_id, repeated=None)


def removed_paths(table: IcebergTable, snapshots: Sequence[int]) -> dict[int, list[str]]:
    """Return the paths of the data files that each of ``snapshots`` removed; none if it removed none."""
    conditions = [_IS_DATA, _written_by(snapshots), compare("eq", "status", value=_DELETED)]
    entries = read_entries(table, ["snapshot_id", "data_file.file_path"], combine("and", conditions))
    pairs = zip(*(entries[name].to_pylist() for name in ("snapshot_id", "data_file.file_path")), strict=True)
    paths: dict[int, list[str]] = {}
    for snapshot, path in dict.fromkeys(pairs):
        paths.setdefault(snapshot, []).append(path)
    return paths


def _written_by(snapshots: Sequence[int]) -> Condition:
    return compare("in", "snapshot_id", values=list(snapshots))


def _read(
    table: IcebergTable, key: ClusterKey, conditions: Sequence[Condition], snapshot_id: int | None
) -> BlockMetadata:
    """Read the live data files among manifest entries."""
    columns = {path: (field_id, kind) for path, kind, field_id in table.primitive_fields()}
    metrics = {field.column: columns[field.column] for field in key.fields}
    condition = combine("and", [_IS_LIVE, _IS_DATA, *conditions])
    entries = read_entries(table, _COLUMNS, condition, snapshot_id, metrics)
    path = entries["data_file.file_path"]
    spec_id, rows = _numbers(entries, "data_file.spec_id"), _numbers(entries, "data_file.record_count")
    bounds = [key_bounds(rows, metrics_of(entries, field.column), field.transform) for field in key.fields]
    return BlockMetadata(
        snapshot_id=snapshot_id,
        path=path,
        partition=_partition_codes(entries),
        spec_id=spec_id,
        rows=rows,
        bytes=_numbers(entries, "data_file.file_size_in_bytes"),
        added_by=_numbers(entries, "snapshot_id"),
        sequence=_numbers(entries, "file_sequence_number"),
        sort_order_id=_numbers(entries, "data_file.sort_order_id"),
        lower=[lower for lower, _, _ in bounds],
        upper=[upper for _, upper, _ in bounds],
        unbounded=[mask for _, _, mask in bounds],
        repeated=_repeated(path),
    )


def key_bounds(
    rows: IntArray, metrics: Mapping[str, pa.Array], transform: Transform
) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the least and greatest value of a key item in each block, and where the greatest is unknown.

    Args:
        rows: Rows of each block, int64 (n,).
        metrics: What Iceberg has recorded of the item's column, null where it has not: ``lower_bound``,
            ``upper_bound``, ``null_value_count``, and of floats ``nan_value_count``, each of shape (n,).
        transform: The transform of the key item.

    Returns:
        ``(lower, upper, unbounded)``, each of shape (n,). Iceberg's bounds ignore NULL and NaN; these do not:

        - A NULL in the block makes its lower bound NULL (NULLS FIRST). A block that holds only NULLs has two NULL
          bounds.
        - A NaN makes its upper bound NaN, which Spark sorts above every number.
        - Missing metrics mean the worst case: an unknown count of NULLs may be positive, and a block without bounds has
          a NULL lower bound and is unbounded above.
        - Iceberg decodes text that is not UTF-8 after it has found the ends, which may be in another order then.
    """
    lower, upper = metrics["lower_bound"], metrics["upper_bound"]
    is_swapped = pc.fill_null(pc.greater(lower, upper), False)
    lower, upper = pc.if_else(is_swapped, upper, lower), pc.if_else(is_swapped, lower, upper)
    nulls = _numbers(metrics, "null_value_count", missing=-1)
    all_null = nulls == rows
    known = lower.is_valid().to_numpy(zero_copy_only=False)
    bounded = upper.is_valid().to_numpy(zero_copy_only=False)
    unbounded = ~bounded & ~all_null

    if pa.types.is_floating(lower.type):
        nans = _numbers(metrics, "nan_value_count", missing=-1)
        only_nans = (nans > 0) & (np.maximum(nulls, 0) + nans == rows)
        nan = pa.scalar(float("nan"), lower.type)
        lower = pc.if_else(pa.array(only_nans), nan, lower)
        upper = pc.if_else(pa.array(nans > 0), nan, upper)
        known |= only_nans
        unbounded = ((~bounded & (nans <= 0)) | (nans < 0)) & ~all_null

    null_first = ~known | (nulls != 0)
    lower, upper = transform.values(lower), transform.values(upper)
    lower = pc.if_else(pa.array(null_first), pa.scalar(None, lower.type), lower)
    return lower, upper, unbounded


def position_deletes(table: IcebergTable, snapshot_id: int, conditions: Sequence[Condition] = ()) -> pa.Table:
    """Return the position delete files of a snapshot, deletion vectors included.

    Returns:
        Columns ``block``, ``rows``, ``partition`` and ``format`` of shape (n,). The block is the path of the only one
        that a file deletes rows of, which it records, or has as both bounds of the paths in it; else null.
    """
    condition = combine("and", [_IS_LIVE, compare("eq", "data_file.content", value=1), *conditions])
    names = [
        f"data_file.{name}" for name in ("referenced_data_file", "record_count", "file_format", "spec_id")
    ]
    columns = [*names, "data_file.partition"]
    entries = read_entries(table, columns, condition, snapshot_id, {"path": (_PATH_ID, "string")})
    lower, upper = entries["path.lower_bound"], entries["path.upper_bound"]
    of_one = pc.if_else(pc.equal(lower, upper), lower, None)
    return pa.table(
        {
            "block": pc.coalesce(entries[names[0]], of_one),
            "rows": entries[names[1]],
            "partition": _partition_codes(entries),
            "format": entries[names[2]],
        }
    )


def _deleted_rows(table: IcebergTable, conditions: Sequence[Condition], blocks: BlockMetadata) -> IntArray:
    """Count the rows of each block that position deletes of this block alone delete: int64 (n,).

    Delete files of several blocks do not record how many rows of which they delete, nor do equality deletes.
    """
    assert blocks.snapshot_id is not None
    deletes = position_deletes(table, blocks.snapshot_id, conditions)
    place = pc.index_in(deletes["block"].combine_chunks(), value_set=blocks.path)
    known = np.asarray(place.is_valid().to_numpy(zero_copy_only=False))
    deleted = np.zeros(len(blocks), np.int64)
    np.add.at(deleted, place.drop_null().to_numpy(), deletes["rows"].to_numpy()[known])
    return deleted


def _empty(key: ClusterKey) -> BlockMetadata:
    none = np.zeros(0, np.int64)
    bounds = [pa.array([], pa.int64()) for _ in key.fields]
    unbounded: list[BoolArray] = [np.zeros(0, np.bool_) for _ in key.fields]
    paths = pa.array([], pa.string())
    return BlockMetadata(None, paths, none, none, none, none, none, none, none, bounds, bounds, unbounded)


def _numbers(entries: Mapping[str, pa.Array], name: str, missing: int = 0) -> IntArray:
    """Return numbers, ``missing`` where none is recorded: int64 (n,)."""
    return np.asarray(pc.fill_null(entries[name], missing), dtype=np.int64)


def _repeated(paths: pa.Array) -> BoolArray | None:
    codes = codes_of(paths)
    repeated: BoolArray = np.bincount(codes)[codes] > 1
    return repeated if repeated.any() else None


def _partition_codes(entries: Mapping[str, pa.Array]) -> IntArray:
    """Number the partitions of entries; those of different specs never share one, even if their values look alike."""
    codes = _numbers(entries, "data_file.spec_id")
    for values in (values for name, values in entries.items() if name.startswith(_PARTITION)):
        numbers = codes_of(values)
        codes = codes_of(pa.array(codes * (numbers.max(initial=0) + 1) + numbers))
    return codes


def codes_of(values: pa.Array) -> IntArray:
    """Return equal numbers, from 0, for equal values, in the order of their first appearance: int64 (n,)."""
    encoded = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
