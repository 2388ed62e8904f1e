"""Samples of rows: a random one of each stride.

One pass over the key columns of a round's file groups takes a sorted sample of each, and tells which files are sorted.
The sample says where to split a group into new blocks. Each has at most its limit of rows and, unless it is the last,
at least half of that. The rows of one key value stay together unless they do not fit into one block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import md5
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.iceberg_table import IcebergTable, decoded_text
from dbt_recluster.iceberg.metadata.block_metadata import codes_of, numbers
from dbt_recluster.iceberg.rewrite.file_groups import BlockStart, FileGroup, staged
from dbt_recluster.iceberg.session.jobs import job_step
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.key.box_tree import BoxTree, Points, cut_into_boxes, rows_of_one_value
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import quote_path
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.types import BoolArray, FloatArray, IntArray, column_type, value_type

# The low bits of monotonically_increasing_id() are the row's number in its partition.
_ROW_BITS = 33
# Characters, or bytes, of a boundary of a curve. Bounds the driver's memory: it holds one for each sampled row.
LONGEST_TEXT = 1_024
# The error of a block's size, in standard deviations of its sampled rows.
_DEVIATIONS = 3.5
_NOT_UTF_8 = "recluster_not_utf_8"
_PLACE = "place_on_curve"
_GROUP = "group_number"
_FILE = "file_number"
_HASH_DIGITS = 15  # as many as fit into a bigint


@dataclass(frozen=True)
class GroupSample:
    """A sample of a file group, sorted by the key: a random row of each stride."""

    # The distinct keys, ascending: one Arrow array for each column that sorts rows (see ``KeySql.order``).
    values: list[pa.Array]
    counts: IntArray  # how often each key was sampled
    rows: float  # of the group, without deleted ones
    stride: int  # rows that one sampled row represents
    is_sorted: tuple[bool, ...]  # for each file of the group
    is_utf_8: bool  # the text of the key, in all groups
    points: Points | None  # the keys as ranks, if the key is a curve

    def block_starts(self, limit: float) -> list[BlockStart]:
        """Choose where blocks of at most ``limit`` rows begin, with room for the error of the sample."""
        points = choose_split_points(self.counts, self.rows, self._safe(limit))
        return [BlockStart([column[p.value] for column in self.values], p.share) for p in points]

    def boxes(self, limit: float, parts: int, per_block: float) -> BoxTree:
        """Choose the boxes of blocks of at most ``limit`` rows, if the key is a curve; see `cut_into_boxes`."""
        assert self.points is not None
        return cut_into_boxes(self.points, self._safe(limit), parts, per_block)

    def _safe(self, limit: float) -> float:
        """Return ``limit`` less the error of the sample."""
        if self.stride == 1:
            return limit
        # If rows are in random order, a split point is off by the square root of the rows sampled; in sorted files, by
        # at most one stride for each.
        off = _DEVIATIONS * (self.stride / limit) ** 0.5
        if all(self.is_sorted):
            off = min(off, 2 * len(self.is_sorted) * self.stride / limit)
        return limit * (1 - float(min(off, 0.3)))


def take_samples(
    table: IcebergTable, groups: Sequence[FileGroup], key: ClusterKey, strides: Sequence[int], curve: Curve | None
) -> list[GroupSample]:
    """Sample one of every ``strides[i]`` rows of ``groups[i]``."""
    rows, is_utf_8 = _read(table, groups, key, strides)
    names = [f"key_{position}" for position in range(len(key.fields))]
    if curve is not None:
        rows = rows.append_column(_PLACE, pa.array(curve.index(curve_values(rows, key))))
        names.insert(len(key.leading), _PLACE)
    rows = _sorted_rows(rows, [_GROUP, *names])
    is_new = _is_new_value(rows, [_GROUP, *names])
    files = sum(len(group.files) for group in groups)
    is_sorted = iter(_are_sorted(numbers(rows, _FILE), numbers(rows, "place"), np.cumsum(is_new), files))
    counts = np.diff(np.append(np.flatnonzero(is_new), len(rows)))
    keys = rows.filter(pa.array(is_new))
    ranked = None if curve is None or key.leading else Points.from_columns(curve, curve_values(keys, key), counts)
    values, group_number = [keys[name].combine_chunks() for name in names], numbers(keys, _GROUP)
    samples = []
    for number, group in enumerate(groups):
        start, stop = map(int, np.searchsorted(group_number, [number, number + 1]))
        samples.append(
            GroupSample(
                values=[column.slice(start, stop - start) for column in values],
                counts=counts[start:stop],
                rows=float(group.live_rows or 0),
                stride=strides[number],
                is_sorted=tuple(islice(is_sorted, len(group.files))),
                is_utf_8=is_utf_8,
                points=ranked and ranked.take(slice(start, stop)).standing_for(group.live_rows or 0),
            )
        )
    return samples


def sample_keys(
    table: IcebergTable, groups: Sequence[FileGroup], key: ClusterKey, strides: Sequence[int]
) -> list[pa.Table]:
    """Return the keys, ``key_0``..., of one of every ``strides[i]`` rows of ``groups[i]``, for each of the groups."""
    rows, _ = _read(table, groups, key, strides)
    return [rows.filter(pc.equal(rows[_GROUP], number)) for number in range(len(groups))]


def sample_rows(table: IcebergTable, columns: Sequence[str], rows: int, most: int) -> pa.Table:
    """Return about ``most`` of the ``rows`` rows of a whole table, or all if they are no more.

    They have the column ``path``, the block of each row, and ``columns`` as ``column_0``, ``column_1``..., texts as
    from :func:`decoded_text`.
    """
    # Not spark.table(): on v3 tables it drops the row ids silently.
    reader = table.spark.read.format("iceberg")
    frame = (reader.option("versionAsOf", table.branch) if table.branch else reader).load(table.identifier)
    named = (f"{quote_path(name)} as column_{place}" for place, name in enumerate(columns))
    frame = frame.selectExpr("monotonically_increasing_id() as place", "_file as path", *named)
    with table.as_unsupported():
        sampled = collect_arrow(frame.where(_is_chosen(math.ceil(max(rows, 1) / most))).drop("place"))
    return pa.table([decoded_text(column) for column in sampled.columns], sampled.column_names)


def _is_chosen(stride: int) -> str:
    """Return the predicate of a random row of each stride, by the column ``place``.

    Each partition begins a stride, so with the first row of each stride, many small sorted files would give their least
    keys too often.
    """
    row, step = f"((place & {(1 << _ROW_BITS) - 1}L) % {stride}L)", f"{stride}L"
    return f"{row} = pmod(xxhash64(place - {row}), {step})"


def _read(
    table: IcebergTable, groups: Sequence[FileGroup], key: ClusterKey, strides: Sequence[int]
) -> tuple[pa.Table, bool]:
    """Read one row of each stride; return also whether all text of the key is UTF-8.

    The columns are ``key_0``..., the group, the file, and the place among all rows of each row.
    """
    from pyspark.sql import functions as F

    types = table.columns().types
    kinds = [column_type(types[field.column]) for field in key.fields]
    bounding = kinds[:1] if key.leading else kinds
    texts = [quote_path(f.column) for f, kind in zip(key.fields, bounding, strict=False) if kind.arrow == pa.string()]
    read, stride = [file for group in groups for file in group.files], min(strides)
    # Paths are long, and Python computes the same hash.
    file_hash = f"cast(conv(left(md5({_FILE}), {_HASH_DIGITS}), 16, 10) as bigint)"
    with staged(table, read) as (frame, _):
        if texts:
            # Spark 3.5 has no function for it.
            is_utf_8 = "is_valid_utf8({0})"
            if not hasattr(F, "is_valid_utf8"):
                is_utf_8 = "(encode({0}, 'UTF-8') = cast({0} as binary))"
            all_utf_8 = " and ".join(f"coalesce({is_utf_8.format(text)}, true)" for text in texts)
            frame = frame.observe(_NOT_UTF_8, F.expr(f"bool_or(not ({all_utf_8}))"))
        columns = [field.transform.sql(quote_path(field.column), types[field.column]) for field in key.fields]
        for position in range(len(key.leading), len(columns)):
            if kinds[position].width_of:
                columns[position] = f"substring({columns[position]}, 1, {LONGEST_TEXT + 1})"
        named = (f"{column} as key_{position}" for position, column in enumerate(columns))
        frame = frame.selectExpr("monotonically_increasing_id() as place", f"input_file_name() as {_FILE}", *named)
        frame = frame.where(_is_chosen(stride)).withColumn(_FILE, F.expr(file_hash))
        rows = collect_arrow(frame)
        metrics = frame._jdf.queryExecution().observedMetrics() if texts else None
    hashes = [int(md5(file.path.encode()).hexdigest()[:_HASH_DIGITS], 16) for file in read]
    order = np.argsort(hashes)
    file_of = order[np.searchsorted(hashes, numbers(rows, _FILE), sorter=order)]
    group_of = np.repeat(np.arange(len(groups)), [len(group.files) for group in groups])[file_of]
    rows = rows.drop_columns(_FILE).append_column(_FILE, pa.array(file_of))
    rows = rows.append_column(_GROUP, pa.array(group_of))
    # Groups with a longer stride keep one of several rows.
    kept = np.arange(len(rows)) % np.maximum(1, np.array(strides) // stride)[group_of] == 0
    return rows.filter(pa.array(kept)), metrics is None or not metrics.apply(_NOT_UTF_8).get(0)


def with_counted_rows(table: IcebergTable, groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Count the rows of groups whose delete files do not record how many rows they delete. No column is read."""
    from pyspark.sql import functions as F

    unknown = [group for group in groups if group.live_rows is None]
    if not unknown:
        return list(groups)
    files = [file for group in unknown for file in group.files]
    with job_step(table.spark, "count rows"), staged(table, files) as (frame, _):
        of_file = frame.select(F.input_file_name().alias(_FILE))
        counted_in = {row[0]: row[1] for row in of_file.groupBy(_FILE).count().collect()}
    counts = [sum(counted_in.get(file.path, 0) for file in group.files) for group in unknown]
    counted = iter(counts)
    return [replace(g, live_rows=next(counted)) if g.live_rows is None else g for g in groups]


def curve_values(rows: pa.Table, key: ClusterKey) -> list[pa.Array]:
    """Return the values ``key_0``... of the columns of a curve, of the types that bounds have."""
    return [
        field.transform.as_bounds(rows[f"key_{position}"].combine_chunks())
        for position, field in enumerate(key.on_curve, len(key.leading))
    ]


def _sorted_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort rows in Spark's order, NULL first and NaN last; Spark would need another stage."""
    keys = []
    for name in names:
        rows = rows.append_column(f"{name}_is_valid", rows.column(name).is_valid())
        keys += [(f"{name}_is_valid", "ascending"), (name, "ascending")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _is_new_value(rows: pa.Table, names: Sequence[str]) -> BoolArray:
    """Return a mask of the rows that differ from the row before in one of the columns; the first is one of them.

    NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0, as to Spark.
    """
    new = np.zeros(len(rows), dtype=bool)
    new[:1] = True
    for name in names:
        column = rows[name].combine_chunks()
        if value_type(column.type).has_nan:
            column = pc.add(column, pa.scalar(0, column.type))  # 0.0 for -0.0
        new[1:] |= np.diff(codes_of(column)) != 0
    return new


def _are_sorted(file: IntArray, place: IntArray, key: IntArray, files: int) -> list[bool]:
    """Return for each of ``files`` files whether it is sorted: read in order, the key never falls.

    Of each sampled row, ``file`` is the number of its file, ``place`` its position among all rows, and ``key`` the rank
    of its key: int64 (n,).
    """
    order = np.lexsort((place, file))
    falls = (np.diff(key[order]) < 0) & (np.diff(file[order]) == 0)
    return [count == 0 for count in np.bincount(file[order][1:][falls], minlength=files).tolist()]


@dataclass(frozen=True)
class SplitPoint:
    """The start of a block."""

    value: int  # the position of a distinct value in the sample
    share: float = 0.0  # of its rows that lie before, 0 unless the value fills several blocks


def choose_split_points(counts: IntArray, rows: float, limit: float) -> list[SplitPoint]:
    """Choose the starts of all blocks but the first, ascending.

    Args:
        counts: How often each distinct value was sampled, in the order of the key: (n,).
        rows: The rows that the sample represents.
        limit: The most rows in a block.
    """
    if not len(counts):
        return []
    ends = np.cumsum(counts, dtype=np.float64)
    ends *= rows / ends[-1]
    points: list[SplitPoint] = []
    done, total = 0.0, float(ends[-1])
    slack = 1e-9 * total
    while total - done > limit + slack:
        end, following = _nearest_end(ends, done, limit, slack)
        if end is None:
            below = float(ends[following - 1]) if following else 0.0
            end = float(ends[following])
            points += _split_value(following, below - done, end - below, limit)
        done = end
        if total - done > slack:
            points.append(SplitPoint(int(np.searchsorted(ends, done + slack, side="right"))))
    return points


def _nearest_end(ends: FloatArray, done: float, limit: float, slack: float) -> tuple[float | None, int]:
    """Return the end of a block that begins at ``done``, or None to split the value at this position."""
    left = float(ends[-1]) - done
    # Equal blocks, which take equal time, instead of full ones and a rest.
    target = done + left / math.ceil((left - slack) / limit)
    following = int(np.searchsorted(ends, target + slack, side="right"))
    below = float(ends[following - 1]) if following else 0.0
    above = float(ends[following])
    fits_above = above - done <= limit + slack
    fits_below = below - done >= limit / 2 - slack
    if fits_above and (not fits_below or above - target < target - below):
        return above, following
    return (below if fits_below else None), following


def _split_value(value: int, before: float, rows: float, limit: float) -> list[SplitPoint]:
    """Split a value of ``rows`` rows that does not fit into the current block of ``before`` rows."""
    most = rows_of_one_value(limit)
    blocks = math.ceil((before + rows) / most)
    size = (before + rows) / blocks
    if size > before:
        return [SplitPoint(value, (size * block - before) / rows) for block in range(1, blocks)]
    # The current block takes just enough of the value's rows to be half full and to leave what the others can hold.
    room = rows_of_one_value(limit - before)
    blocks = math.ceil((rows - room) / most)
    first = min(room, max(limit / 2 - before, rows - blocks * most))
    return [SplitPoint(value, (first + (rows - first) * block / blocks) / rows) for block in range(blocks)]
