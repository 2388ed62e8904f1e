"""One pass over the key columns of a round's sets: a sample of each, in order, and which files are sorted inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.block_set import BlockSet
from dbt_recluster.iceberg.blocks import IntArray, collect_arrow
from dbt_recluster.iceberg.sorting import sort_columns
from dbt_recluster.iceberg.staging import FileGroup, staged

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable

_FILES_PER_GROUP = 64
# Iceberg's and Spark's row numbers within a partition, from monotonically_increasing_id().
_ROW_BITS = 33
# A number without small factors: strides are begun at scattered places, or data that repeats itself in step
# with them would show the sample one value only.
_SCATTER = 2_654_435_761


@dataclass(frozen=True)
class SetSample:
    """Every so many-th row of a block set, sorted by the key.

    Attributes:
        values: The distinct keys sampled, ascending: one Arrow array per key item.
        counts: How often each was sampled.
        rows: Rows of the set, deleted ones left out.
        stride: Rows that one sampled row stands for.
        sorted_inside: For each file of the set, whether its rows are in the order of the key, as far as the
            sample can tell.
    """

    values: list[pa.Array]
    counts: IntArray
    rows: float
    stride: int
    sorted_inside: tuple[bool, ...]


def take_samples(
    table: IcebergTable, sets: Sequence[BlockSet], key: ClusterKey, strides: Sequence[int]
) -> tuple[list[SetSample], list[str]]:
    """Sample every ``strides[i]``-th row of ``sets[i]``.

    Returns:
        The samples and the Spark type of each key item.
    """
    groups, set_of, files_of = file_groups(sets, table.spark.sparkContext.defaultParallelism)
    names = [f"key_{position}" for position in range(len(key.fields))]
    set_array = f"array({', '.join(map(str, set_of))})"
    stride_array = f"array({', '.join(f'{strides[number]}L' for number in set_of)})"
    with staged(table, groups) as files:
        frame = files.frame.select(
            *(c.alias(n) for c, n in zip(sort_columns(table.spark, key), names, strict=True))
        )
        types = [field.dataType.simpleString() for field in frame.schema.fields]
        frame = frame.selectExpr(
            "monotonically_increasing_id() as place", "spark_partition_id() as group_number", *names
        )
        frame = frame.selectExpr(
            "place",
            f"get({set_array}, group_number) as set_number",
            f"get({stride_array}, group_number) as stride",
            f"place & {(1 << _ROW_BITS) - 1}L as row_number",
            *names,
        )
        frame = frame.where(f"row_number % stride = ((row_number div stride) * {_SCATTER}L) % stride")
        rows = collect_arrow(frame.select("set_number", "place", *names))
    return _per_set(_in_order(rows, names), sets, strides, files_of, names), types


def count_rows(table: IcebergTable, sets: Sequence[BlockSet]) -> list[int]:
    """Count the rows that the delete files of each set leave; no column of the table is read."""
    groups, set_of, _ = file_groups(sets, table.spark.sparkContext.defaultParallelism)
    counts = [0] * len(sets)
    with staged(table, groups) as files:
        rows = files.frame.selectExpr("spark_partition_id() as group_number").groupBy("group_number").count()
        for group, count in rows.collect():
            counts[set_of[group]] += count
    return counts


def file_groups(
    sets: Sequence[BlockSet], parallelism: int
) -> tuple[list[FileGroup], list[int], list[tuple[int, ...]]]:
    """Pack the files of each set into groups that read everything once and keep all cores busy.

    Returns:
        The groups; the number of the set each is of; and the positions of its files in that set.
    """
    most_bytes = sum(each.bytes for each in sets) // (4 * parallelism)
    groups: list[FileGroup] = []
    set_of: list[int] = []
    files_of: list[tuple[int, ...]] = []
    for number, each in enumerate(sets):
        chunk: list[int] = []
        size = 0
        for position, file in enumerate(each.files):
            if chunk and (size + file.bytes > most_bytes or len(chunk) == _FILES_PER_GROUP):
                files_of.append(tuple(chunk))
                chunk, size = [], 0
            chunk.append(position)
            size += file.bytes
        files_of.append(tuple(chunk))
        for positions in files_of[len(groups) :]:
            groups.append(FileGroup(tuple(each.files[p] for p in positions), each.spec_id))
            set_of.append(number)
    return groups, set_of, files_of


def _in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort by set and key in Spark's order: NULL first, NaN last. Here, for a second stage would cost more."""
    by = [("set_number", "ascending")]
    for name in names:
        rows = rows.append_column(f"{name}_is_valid", rows.column(name).is_valid())
        by += [(f"{name}_is_valid", "ascending"), (name, "ascending")]
    return rows.take(pc.sort_indices(rows, sort_keys=by))


def _per_set(
    rows: pa.Table,
    sets: Sequence[BlockSet],
    strides: Sequence[int],
    files_of: Sequence[tuple[int, ...]],
    names: Sequence[str],
) -> list[SetSample]:
    set_number = np.asarray(rows.column("set_number").to_numpy(), dtype=np.int64)
    place = np.asarray(rows.column("place").to_numpy(), dtype=np.int64)
    columns = [_one_array(rows.column(name)) for name in names]
    first_group, samples = 0, []
    for number, each in enumerate(sets):
        start, stop = np.searchsorted(set_number, [number, number + 1])
        own = [column.slice(int(start), int(stop - start)) for column in columns]
        new = _starts_of_values(own)
        firsts = np.flatnonzero(new)
        groups = _groups_of(each, files_of, first_group)
        ordered = _sorted_groups(place[start:stop], np.cumsum(new), groups, first_group)
        sorted_inside = [False] * len(each.files)
        for positions, is_sorted in zip(groups, ordered, strict=True):
            for position in positions:
                sorted_inside[position] = is_sorted
        sampled = int(stop - start)
        samples.append(
            SetSample(
                values=[column.take(pa.array(firsts)) for column in own],
                counts=np.diff(np.append(firsts, sampled)),
                rows=float(each.live_rows if each.live_rows is not None else each.rows),
                stride=strides[number],
                sorted_inside=tuple(sorted_inside),
            )
        )
        first_group += len(groups)
    return samples


def _groups_of(each: BlockSet, files_of: Sequence[tuple[int, ...]], first: int) -> list[tuple[int, ...]]:
    """Return the groups of a set, which follow each other until all of its files are named."""
    groups: list[tuple[int, ...]] = []
    named = 0
    while named < len(each.files):
        groups.append(files_of[first + len(groups)])
        named += len(groups[-1])
    return groups


def _sorted_groups(
    place: IntArray, value: IntArray, groups: Sequence[tuple[int, ...]], first_group: int
) -> list[bool]:
    """Tell which groups hold sorted files: in the order of reading, the key falls between files only."""
    order = np.argsort(place, kind="stable")
    group = (place[order] >> _ROW_BITS) - first_group
    falls = (np.diff(value[order]) < 0) & (np.diff(group) == 0)
    count = np.bincount(group[1:][falls], minlength=len(groups)) if len(group) else np.zeros(len(groups))
    return [bool(count[number] < len(positions)) for number, positions in enumerate(groups)]


def _starts_of_values(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose key differs from that of the row before, the first row included."""
    length = len(columns[0])
    new = np.zeros(length, dtype=bool)
    if length:
        new[0] = True
    for column in columns:
        if length > 1:
            left, right = column.slice(0, length - 1), column.slice(1)
            new[1:] |= _differs(left, right)
    return new


def _differs(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether two values differ, NULL being equal to NULL and NaN to NaN."""
    different = pc.fill_null(pc.not_equal(left, right), False)
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.fill_null(pc.is_nan(left), False), pc.fill_null(pc.is_nan(right), False))
        different = pc.and_not(different, both)
    result: Any = pc.or_(different, pc.not_equal(left.is_null(), right.is_null()))
    return np.asarray(result.to_numpy(zero_copy_only=False), dtype=bool)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
