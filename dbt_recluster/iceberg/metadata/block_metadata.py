"""The blocks of a snapshot: where they are, what they hold and their bounds, read in one pass over the metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.columns import sql_literal
from dbt_recluster.exceptions import UnsupportedTableError
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# The block of a position delete file for a single one: recorded, or by the bounds of its column file_path, whose id
# this is. Null for one of several blocks.
_LOWER, _UPPER = "cast(lower_bounds[2147483546] as string)", "cast(upper_bounds[2147483546] as string)"
DELETED_BLOCK = f"coalesce(referenced_data_file, if({_LOWER} = {_UPPER}, {_LOWER}, null))"
_DROPPED_SOURCE = "Cannot find source column for partition field"


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

    def among(self, partition: str) -> str:
        """Return a SQL condition on a column that holds for these partitions, and may hold for others."""
        conditions = []
        for names in {tuple(values) for values in self.values}:  # the fields of one spec
            members = [values for values in self.values if tuple(values) == names]
            fields = (
                self._is_one_of(partition, name, {values[name] for values in members}) for name in names
            )
            conditions.append(f"({' and '.join(fields)})")
        return " or ".join(conditions)

    def _is_one_of(self, partition: str, name: str, values: set[Any]) -> str:
        # Not by a name in backquotes, which spark.sql.parser.quotedRegexColumnNames takes for a regular expression.
        field = f"{partition}[{sql_literal(name)}]"
        # Hexadecimal digits mean the same under all of Spark's settings.
        texts = (f"cast({sql_literal(str(v).encode())} as string)" for v in values if v is not None)
        known = ", ".join(f"cast({text} as {self.types[name]})" for text in texts)
        conditions = [f"{field} in ({known})"] if known else []
        if None in values:
            conditions.append(f"{field} is null")
        return f"({' or '.join(conditions)})"


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

    Spark reads the manifests once, and the result arrives through Arrow: no Java object is made per file.

    Raises:
        UnsupportedTableError: Iceberg cannot read the table's metadata tables.
    """
    snapshot_id = table.snapshot_id if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        return _empty(key)
    entries = table.metadata("entries", snapshot_id)
    if partitions is not None:
        # Iceberg reads only the manifests that may have such a partition.
        entries = entries.where(partitions.among("data_file.partition"))
    blocks = _read(table, entries, key, snapshot_id)
    if not table.may_have_deletes(snapshot_id):
        return blocks
    delete_files = table.metadata("delete_files", snapshot_id)
    if partitions is not None:
        delete_files = delete_files.where(partitions.among("partition"))
    return replace(blocks, deleted_rows=_deleted_rows(delete_files, blocks))


def read_blocks_added(table: IcebergTable, key: ClusterKey, snapshots: Sequence[int]) -> BlockMetadata:
    """Read every data file that one of ``snapshots`` added and that some snapshot still refers to, live or not."""
    blocks = _read(table, _entries_of(table, snapshots), key, table.snapshot_id)
    # The manifests of every snapshot list the files that it has in common with others again.
    paths = blocks.path.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return replace(blocks.take(np.sort(np.unique(paths, return_index=True)[1])), repeated=None)


def removed_paths(table: IcebergTable, snapshots: Sequence[int]) -> dict[int, list[str]]:
    """Return the paths of the data files that each of ``snapshots`` removed; none if it removed none."""
    entries = _entries_of(table, snapshots).where("status = 2 and data_file.content = 0")
    rows = collect_arrow(entries.selectExpr("snapshot_id", "data_file.file_path as path").distinct())
    paths: dict[int, list[str]] = {}
    for row in rows.to_pylist():
        paths.setdefault(row["snapshot_id"], []).append(row["path"])
    return paths


def _entries_of(table: IcebergTable, snapshots: Sequence[int]) -> DataFrame:
    """Return the manifest entries that these snapshots wrote, as often as manifests list them."""
    return table.metadata("all_entries").where(f"snapshot_id in ({', '.join(map(str, snapshots)) or 'null'})")


def _read(table: IcebergTable, entries: DataFrame, key: ClusterKey, snapshot_id: int | None) -> BlockMetadata:
    try:
        rows = collect_arrow(_select(entries, key))
    except Exception as e:
        if _DROPPED_SOURCE not in str(e):
            raise
        raise UnsupportedTableError(
            f"{table.name} has an old partition spec whose column was dropped, so Iceberg cannot read its metadata "
            f"tables ({short_message(e)}). To repair a table of format version 2 or later, rewrite the files of that "
            f"spec, CALL system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true')), "
            f"and then drop the spec, CALL system.expire_snapshots(table => '{table.name}', older_than => <now>, "
            "retain_last => 1, clean_expired_metadata => true)."
        ) from e
    return blocks_of(rows, key, snapshot_id)


def blocks_of(rows: pa.Table, key: ClusterKey, snapshot_id: int | None) -> BlockMetadata:
    """Return blocks, given a row for each.

    The columns are ``path``, ``spec_id``, ``rows``, ``bytes``, ``added_by``, ``sequence`` and ``sort_order_id``;
    ``partition``, if the table has any: values of any type; and for each key item ``metrics_0``, ``metrics_1``...
    (see :func:`key_bounds`).
    """
    path, spec_id = column_array(rows, "path"), _numbers(rows, "spec_id")
    bounds = [
        key_bounds(column_array(rows, f"metrics_{i}"), field.transform) for i, field in enumerate(key.fields)
    ]
    return BlockMetadata(
        snapshot_id=snapshot_id,
        path=path,
        partition=_partition_codes(rows, spec_id),
        spec_id=spec_id,
        rows=_numbers(rows, "rows"),
        bytes=_numbers(rows, "bytes"),
        added_by=_numbers(rows, "added_by"),
        sequence=_numbers(rows, "sequence"),
        sort_order_id=_numbers(rows, "sort_order_id"),
        lower=[lower for lower, _, _ in bounds],
        upper=[upper for _, upper, _ in bounds],
        unbounded=[mask for _, _, mask in bounds],
        repeated=_repeated(path),
    )


def key_bounds(metrics: pa.StructArray, transform: Transform) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the least and greatest value of a key item in each block, and where the greatest is unknown.

    Args:
        metrics: One struct for each block, as in Iceberg's ``readable_metrics``: ``value_count``,
            ``null_value_count``, ``nan_value_count``, ``lower_bound``, ``upper_bound``. Shape (n,).
        transform: The transform of the key item.

    Returns:
        ``(lower, upper, unbounded)``, each of shape (n,). Iceberg's bounds ignore NULL and NaN; these do not:

        - A NULL in the block makes its lower bound NULL (NULLS FIRST). A block that holds only NULLs has two NULL
          bounds.
        - A NaN makes its upper bound NaN, which Spark sorts above every number.
        - Missing metrics mean the worst case: an unknown count of NULLs may be positive, and a block without bounds has
          a NULL lower bound and is unbounded above.
    """
    lower, upper = metrics.field("lower_bound"), metrics.field("upper_bound")
    values = _counts(metrics, "value_count")
    nulls = _counts(metrics, "null_value_count")
    all_null = (values >= 0) & (nulls == values)
    known = lower.is_valid().to_numpy(zero_copy_only=False)
    bounded = upper.is_valid().to_numpy(zero_copy_only=False)
    unbounded = ~bounded & ~all_null

    if pa.types.is_floating(lower.type):
        nans = _counts(metrics, "nan_value_count")
        only_nans = (values >= 0) & (nans > 0) & (np.maximum(nulls, 0) + nans == values)
        nan = pa.scalar(float("nan"), lower.type)
        lower = pc.if_else(pa.array(only_nans), nan, lower)
        upper = pc.if_else(pa.array(nans > 0), nan, upper)
        known |= only_nans
        unbounded = ((~bounded & (nans <= 0)) | (nans < 0)) & ~all_null

    null_first = ~known | (nulls != 0)
    lower, upper = transform.values(lower), transform.values(upper)
    lower = pc.if_else(pa.array(null_first), pa.scalar(None, lower.type), lower)
    return lower, upper, unbounded


def _counts(metrics: pa.StructArray, name: str) -> npt.NDArray[np.int64]:
    """Return one count for each block, -1 if it is not recorded."""
    return np.asarray(metrics.field(name).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _deleted_rows(delete_files: DataFrame, blocks: BlockMetadata) -> IntArray:
    """Count the rows of each block that position deletes of this block alone delete: int64 (n,).

    Delete files of several blocks do not record how many rows of which they delete, nor do equality deletes.
    """
    deletes = delete_files.where("content = 1").selectExpr(f"{DELETED_BLOCK} as path", "record_count as rows")
    counted = collect_arrow(deletes.where("path is not null").groupBy("path").agg({"rows": "sum"}))
    place = pc.index_in(counted.column("path").combine_chunks(), value_set=blocks.path)
    known = np.asarray(place.is_valid().to_numpy(zero_copy_only=False))
    deleted = np.zeros(len(blocks), np.int64)
    deleted[place.drop_null().to_numpy()] = counted.column("sum(rows)").to_numpy()[known]
    return deleted


def _select(entries: DataFrame, key: ClusterKey) -> DataFrame:
    """Select the live data files among manifest entries, and the columns that :func:`blocks_of` takes."""
    from pyspark.sql import functions as F

    columns = [
        "data_file.file_path as path",
        "cast(coalesce(data_file.spec_id, 0) as bigint) as spec_id",
        "data_file.record_count as rows",
        "data_file.file_size_in_bytes as bytes",
        "cast(coalesce(snapshot_id, 0) as bigint) as added_by",
        "cast(coalesce(file_sequence_number, 0) as bigint) as sequence",
        "cast(coalesce(data_file.sort_order_id, 0) as bigint) as sort_order_id",
    ]
    if "partition" in entries.select("data_file.*").columns:
        columns.append("data_file.partition as partition")
    metrics = (
        F.col("readable_metrics").getField(field.column).alias(f"metrics_{position}")
        for position, field in enumerate(key.fields)
    )
    # Status 2 is an entry that the manifest's own snapshot deleted; content 0 is data, the rest are delete files.
    return entries.where("status < 2 and data_file.content = 0").select(*map(F.expr, columns), *metrics)


def _empty(key: ClusterKey) -> BlockMetadata:
    none = np.zeros(0, np.int64)
    bounds = [pa.array([], pa.int64()) for _ in key.fields]
    unbounded: list[BoolArray] = [np.zeros(0, np.bool_) for _ in key.fields]
    paths = pa.array([], pa.string())
    return BlockMetadata(None, paths, none, none, none, none, none, none, none, bounds, bounds, unbounded)


def column_array(rows: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece."""
    column = rows.column(name).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _numbers(rows: pa.Table, name: str) -> IntArray:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.int64)


def _repeated(paths: pa.Array) -> BoolArray | None:
    encoded = paths.dictionary_encode()
    if len(encoded.dictionary) == len(paths):
        return None
    numbers = np.asarray(encoded.indices.to_numpy(zero_copy_only=False))
    repeated: BoolArray = np.bincount(numbers)[numbers] > 1
    return repeated


def _partition_codes(rows: pa.Table, spec_id: IntArray) -> IntArray:
    """Number the partitions; blocks of different specs never share one, even if their values look alike."""
    codes = spec_id
    if "partition" not in rows.column_names:
        return codes
    partition = column_array(rows, "partition")
    for values in partition.flatten() if pa.types.is_struct(partition.type) else [partition]:
        encoded = values.dictionary_encode(null_encoding="encode")
        numbers = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        pairs = np.stack([codes, numbers], axis=1)
        codes = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
