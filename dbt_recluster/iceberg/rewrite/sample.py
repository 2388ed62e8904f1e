"""One pass over the key columns of a round's file groups: a sorted sample of each, and which files are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.columns import quote_path
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.metadata.block_metadata import IntArray, column_array
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, ScanPartition, scan_partitions
from dbt_recluster.iceberg.rewrite.key_columns import KeyValue, key_columns
from dbt_recluster.iceberg.rewrite.split_points import CellBorders, SplitPoint
from dbt_recluster.iceberg.rewrite.staging import staged
from dbt_recluster.iceberg.session.jvm import collect_arrow, observed
from dbt_recluster.transforms import Truncate

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# The low bits of monotonically_increasing_id() are the row's number in its partition, the high bits the partition.
_ROW_BITS = 33
# Strides begin at scattered offsets, or the sample of data that repeats itself in step with them would be a single
# value. The multiplier has no small factors.
_SCATTER = 2_654_435_761
_NOT_UTF_8 = "recluster_not_utf_8"
_PLACE = "place_on_curve"


@dataclass(frozen=True)
class GroupSample:
    """A systematic sample of a file group: one row of each stride, sorted by the key.

    Attributes:
        values: The distinct keys, ascending: one Arrow array for each column that sorts rows (see ``KeyedRows.names``).
        counts: How often each key was sampled.
        rows: Rows of the group, without deleted ones.
        stride: Rows that one sampled row represents.
        is_sorted: For each file of the group, whether its rows are in the order of the key, as far as the sample shows.
        has_bounds: Whether Iceberg's bounds hold. It decodes text before it compares it, so those of text that is not
            UTF-8 are not in Spark's order, which is by byte. Considers all rows of all groups.
        leading: How many of ``values`` are before the place on a curve.
        cells: The cells of the curve that begin at the keys, if the key ends in a curve.
    """

    values: list[pa.Array]
    counts: IntArray
    rows: float
    stride: int
    is_sorted: tuple[bool, ...]
    has_bounds: bool
    leading: int = 0
    cells: CellBorders | None = None

    def start(self, point: SplitPoint) -> KeyValue:
        """Return the key at which a block begins: with a cell of the curve, if one begins there."""
        key = [column[point.value] for column in self.values]
        if self.cells is None or not self.cells.level[point.value] or point.share:
            return key
        # NULL is below all values, so the block has the whole cell.
        columns = [pa.scalar(None, column.type) for column in self.values[self.leading + 1 :]]
        return [*key[: self.leading], pa.scalar(int(self.cells.start[point.value])), *columns]


def take_samples(
    table: IcebergTable,
    groups: Sequence[FileGroup],
    key: ClusterKey,
    strides: Sequence[int],
    curve: Curve | None = None,
) -> list[GroupSample]:
    """Sample one of every ``strides[i]`` rows of ``groups[i]``."""
    from pyspark.sql import functions as F

    partitions = scan_partitions(groups, table.spark.sparkContext.defaultParallelism)
    names = [f"key_{position}" for position in range(len(key.fields))]
    group_of = f"array({', '.join(str(partition.group) for partition in partitions)})"
    stride_of = f"array({', '.join(f'{strides[partition.group]}L' for partition in partitions)})"
    with staged(table, partitions) as files:
        with key_columns(table.spark, key) as columns:
            # Ranges are read by the bounds of these columns.
            bounding = [quote_path(field.column) for field in key.leading[:1] or key.on_curve]
            sources = [F.expr(column).alias(f"source_{place}") for place, column in enumerate(bounding)]
            named = [column.alias(name) for column, name in zip(columns, names, strict=True)]
            frame = files.frame.select(*sources, *named)
        texts = [f.name for f in frame.schema.fields[: len(sources)] if f.dataType.typeName() == "string"]
        if texts:
            all_utf_8 = " and ".join(f"coalesce({_is_utf_8(name)}, true)" for name in texts)
            frame = frame.observe(_NOT_UTF_8, F.expr(f"bool_or(not ({all_utf_8}))"))
        frame = frame.selectExpr(
            "monotonically_increasing_id() as place", "spark_partition_id() as partition", *names
        )
        frame = frame.selectExpr(
            "place",
            f"get({group_of}, partition) as group_number",
            f"get({stride_of}, partition) as stride",
            f"place & {(1 << _ROW_BITS) - 1}L as row_number",
            *names,
        )
        frame = frame.where(f"row_number % stride = ((row_number div stride) * {_SCATTER}L) % stride")
        frame = frame.select("group_number", "place", *names)
        rows = collect_arrow(frame)
        has_bounds = not (texts and observed(frame, _NOT_UTF_8))
    if curve is not None:
        rows, names = _with_place(rows, names, key, curve)
    rows = _sorted_rows(rows, names)
    keys = [column_array(rows, name) for name in names]
    samples = _samples(rows, keys, groups, partitions, strides, has_bounds)
    return samples if curve is None else [_with_cells(sample, len(key.leading), curve) for sample in samples]


def _with_place(
    rows: pa.Table, names: Sequence[str], key: ClusterKey, curve: Curve
) -> tuple[pa.Table, list[str]]:
    """Add the place on the curve of each row, and return the names of the columns that sort rows."""
    leading, on_curve = names[: len(key.leading)], names[len(key.leading) :]
    columns = []
    for field, name in zip(key.on_curve, on_curve, strict=True):
        values = column_array(rows, name)
        # Bounds have truncated decimals as whole numbers; all other types compare as Spark returns them.
        is_unscaled = isinstance(field.transform, Truncate) and pa.types.is_decimal(values.type)
        columns.append(field.transform.values(values) if is_unscaled else values)
    rows = rows.append_column(_PLACE, pa.array(curve.index(columns)))
    return rows, [*leading, _PLACE, *on_curve]


def _with_cells(sample: GroupSample, leading: int, curve: Curve) -> GroupSample:
    place = np.asarray(sample.values[leading].to_numpy(), dtype=np.int64)
    is_new = _is_new_value(sample.values[:leading]) if leading else np.zeros(len(place), dtype=bool)
    cells = CellBorders.of(place, is_new, len(curve.boundaries), curve.bits)
    return replace(sample, leading=leading, cells=cells)


def _is_utf_8(column: str) -> str:
    """Return SQL for whether text is UTF-8, of Spark 4 or of 3.5, which decodes and encodes it again."""
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return f"is_valid_utf8({column})"
    return f"(encode({column}, 'UTF-8') = cast({column} as binary))"


def count_rows(table: IcebergTable, groups: Sequence[FileGroup]) -> list[int]:
    """Count the rows that the delete files of each group leave. No column of the table is read."""
    partitions = scan_partitions(groups, table.spark.sparkContext.defaultParallelism)
    counts = [0] * len(groups)
    with staged(table, partitions) as files:
        rows = files.frame.selectExpr("spark_partition_id() as partition").groupBy("partition").count()
        for partition, count in rows.collect():
            counts[partitions[partition].group] += count
    return counts


def _sorted_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort by group and key in Spark's order: NULL first, NaN last. A sort in Spark would cost another stage."""
    keys = [("group_number", "ascending")]
    for name in names:
        rows = rows.append_column(f"{name}_is_valid", rows.column(name).is_valid())
        keys += [(f"{name}_is_valid", "ascending"), (name, "ascending")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _samples(
    rows: pa.Table,
    keys: Sequence[pa.Array],
    groups: Sequence[FileGroup],
    partitions: Sequence[ScanPartition],
    strides: Sequence[int],
    has_bounds: bool,
) -> list[GroupSample]:
    group_number = np.asarray(rows.column("group_number").to_numpy(), dtype=np.int64)
    place = np.asarray(rows.column("place").to_numpy(), dtype=np.int64)
    samples, first_partition = [], 0
    for number, group in enumerate(groups):
        start, stop = np.searchsorted(group_number, [number, number + 1])
        own = [column.slice(int(start), int(stop - start)) for column in keys]
        is_new = _is_new_value(own)
        firsts = np.flatnonzero(is_new)
        read_by = [partition for partition in partitions if partition.group == number]
        is_sorted = _sorted_partitions(place[start:stop], np.cumsum(is_new), read_by, first_partition)
        first_partition += len(read_by)
        flags = zip(read_by, is_sorted, strict=True)
        samples.append(
            GroupSample(
                values=[column.take(pa.array(firsts)) for column in own],
                counts=np.diff(np.append(firsts, int(stop - start))),
                rows=float(group.rows if group.live_rows is None else group.live_rows),
                stride=strides[number],
                is_sorted=tuple(flag for partition, flag in flags for _ in partition.files),
                has_bounds=has_bounds,
            )
        )
    return samples


def _sorted_partitions(
    place: IntArray, value: IntArray, partitions: Sequence[ScanPartition], first: int
) -> list[bool]:
    """Tell which partitions read sorted files: in the order of reading, the key falls only between two files.

    Args:
        place: Where each sampled row was read, int64 (n,), in the order of the key.
        value: The rank of its key, int64 (n,).
        partitions: The partitions that read the rows.
        first: The number of the first of them in the job.
    """
    order = np.argsort(place, kind="stable")
    partition = (place[order] >> _ROW_BITS) - first
    falls = (np.diff(value[order]) < 0) & (np.diff(partition) == 0)
    count = np.bincount(partition[1:][falls], minlength=len(partitions))
    return [bool(count[number] < len(read.files)) for number, read in enumerate(partitions)]


def _is_new_value(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose key differs from that of the row before; the first row is one of them."""
    length = len(columns[0])
    new = np.zeros(length, dtype=bool)
    if length:
        new[0] = True
    if length > 1:
        for column in columns:
            new[1:] |= _differs(column.slice(0, length - 1), column.slice(1))
    return new


def _differs(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether two values differ; NULL equals NULL, and NaN equals NaN."""
    different = pc.fill_null(pc.not_equal(left, right), False)
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.fill_null(pc.is_nan(left), False), pc.fill_null(pc.is_nan(right), False))
        different = pc.and_not(different, both)
    result: Any = pc.or_(different, pc.not_equal(left.is_null(), right.is_null()))
    return np.asarray(result.to_numpy(zero_copy_only=False), dtype=bool)
