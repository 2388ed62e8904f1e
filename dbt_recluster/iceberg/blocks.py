"""Read what the planner needs to know of every block, in one pass over the table's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.bounds import key_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.table import IcebergTable

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BlockMetadata:
    """The blocks of one snapshot. All arrays have shape (n,) and the same order.

    Attributes:
        snapshot_id: The snapshot, or None when the table has none.
        path: Where each block is stored.
        partition: Equal numbers for blocks of the same partition of the same partition spec.
        spec_id: The partition spec each block was written under.
        rows: Rows, those deleted by delete files included.
        bytes: Size of the file.
        added_by: The snapshot that added the block; it survives rewrites of the manifests.
        sort_order_id: The sort order the block's writer recorded, 0 where none.
        lower, upper: One Arrow array per key item: the bounds (see :func:`bounds.key_bounds`).
        unbounded: One mask per key item: where the upper bound is not known.
    """

    snapshot_id: int | None
    path: pa.Array
    partition: IntArray
    spec_id: IntArray
    rows: IntArray
    bytes: IntArray
    added_by: IntArray
    sort_order_id: IntArray
    lower: list[pa.Array]
    upper: list[pa.Array]
    unbounded: list[BoolArray]

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.path)

    def take(self, positions: npt.NDArray[Any]) -> BlockMetadata:
        """Return the blocks at ``positions`` (indices or a mask), in that order."""
        chosen = np.flatnonzero(positions) if positions.dtype == bool else positions
        return BlockMetadata(
            self.snapshot_id,
            self.path.take(pa.array(chosen)),
            self.partition[chosen],
            self.spec_id[chosen],
            self.rows[chosen],
            self.bytes[chosen],
            self.added_by[chosen],
            self.sort_order_id[chosen],
            [column.take(pa.array(chosen)) for column in self.lower],
            [column.take(pa.array(chosen)) for column in self.upper],
            [mask[chosen] for mask in self.unbounded],
        )


def read_blocks(table: IcebergTable, key: ClusterKey, snapshot_id: int | None = None) -> BlockMetadata:
    """Read every live data file of the current snapshot, or of ``snapshot_id``, with its bounds under ``key``.

    The manifests are read once, by Spark, and arrive through Arrow: no Java object is made per file.
    """
    snapshot_id = table.snapshot_id if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        return _empty(key)
    return _read(table.metadata("entries", snapshot_id), key, snapshot_id)


def read_blocks_added(table: IcebergTable, key: ClusterKey, snapshots: Sequence[int]) -> BlockMetadata:
    """Read every data file that one of ``snapshots`` added, as long as some snapshot still knows it, live or not."""
    from pyspark.sql import functions as F

    entries = table.metadata("all_entries")
    wanted = entries.where(F.col("snapshot_id").isin([int(each) for each in snapshots]))
    found = _read(wanted, key, table.snapshot_id)
    # A file stands in the manifests of every snapshot that has it.
    paths = np.asarray(found.path.dictionary_encode().indices.to_numpy(zero_copy_only=False))
    return found.take(np.sort(np.unique(paths, return_index=True)[1]))


def _read(entries: DataFrame, key: ClusterKey, snapshot_id: int | None) -> BlockMetadata:
    from pyspark.sql import functions as F

    data_file = F.col("data_file")
    partitioned = "partition" in entries.select("data_file.*").columns
    columns = [
        data_file["file_path"].alias("path"),
        F.coalesce(data_file["spec_id"], F.lit(0)).cast("bigint").alias("spec_id"),
        data_file["record_count"].alias("rows"),
        data_file["file_size_in_bytes"].alias("bytes"),
        F.coalesce(F.col("snapshot_id"), F.lit(0)).cast("bigint").alias("added_by"),
        F.coalesce(data_file["sort_order_id"], F.lit(0)).cast("bigint").alias("sort_order_id"),
        *([data_file["partition"].alias("partition")] if partitioned else []),
        *(
            F.col("readable_metrics").getField(field.column).alias(f"metrics_{position}")
            for position, field in enumerate(key.fields)
        ),
    ]
    # status 2 = deleted by the manifest's own snapshot; content 0 = data, the others are delete files
    rows = collect_arrow(entries.where((F.col("status") < 2) & (data_file["content"] == 0)).select(*columns))
    spec_id = _numbers(rows, "spec_id")
    bounds = [key_bounds(_struct(rows, f"metrics_{i}"), field) for i, field in enumerate(key.fields)]
    return BlockMetadata(
        snapshot_id=snapshot_id,
        path=_one_chunk(rows, "path"),
        partition=_partition_codes(spec_id, _struct(rows, "partition") if partitioned else None),
        spec_id=spec_id,
        rows=_numbers(rows, "rows"),
        bytes=_numbers(rows, "bytes"),
        added_by=_numbers(rows, "added_by"),
        sort_order_id=_numbers(rows, "sort_order_id"),
        lower=[lower for lower, _, _ in bounds],
        upper=[upper for _, upper, _ in bounds],
        unbounded=[mask for _, _, mask in bounds],
    )


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Collect a DataFrame as Arrow: by Spark 4's public method, or by the private one that 3.5 has for it."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()  # type: ignore[operator]  # unknown to the stubs of 3.5
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()
    if not batches:
        return to_arrow_schema(frame.schema).empty_table()
    return pa.Table.from_batches(batches)


def _empty(key: ClusterKey) -> BlockMetadata:
    none = np.zeros(0, dtype=np.int64)
    bounds = [pa.array([], type=pa.int64()) for _ in key.fields]
    masks: list[BoolArray] = [np.zeros(0, dtype=bool) for _ in key.fields]
    return BlockMetadata(
        None, pa.array([], type=pa.string()), none, none, none, none, none, none, bounds, bounds, masks
    )


def _one_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _struct(rows: pa.Table, name: str) -> pa.StructArray:
    return _one_chunk(rows, name)


def _numbers(rows: pa.Table, name: str) -> IntArray:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.int64)


def _partition_codes(spec_id: IntArray, partition: pa.StructArray | None) -> IntArray:
    """Number the partitions: blocks of different specs never share one, even when their values look alike."""
    codes = spec_id
    children = [] if partition is None else [partition.field(i) for i in range(partition.type.num_fields)]
    for child in children:
        encoded = child.dictionary_encode(null_encoding="encode")
        values = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        pairs = np.stack([codes, values], axis=1)
        codes = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
