"""A sample of a table's rows, sorted by any key and cut into blocks as a merge of all blocks does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray, codes_of
from dbt_recluster.iceberg.predicates import alternatives_of, fold, range_types
from dbt_recluster.iceberg.rewrite.sample import choose_split_points
from dbt_recluster.iceberg.sort_order import bounds_width
from dbt_recluster.key.box_tree import SHARES, Points, cut_into_boxes
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import ColumnType, Text

SAMPLE_ROWS = 50_000
_JOINED = {"and": np.logical_and, "or": np.logical_or}


class Query(NamedTuple):
    """A query of the table."""

    expression: Any  # its predicate in Iceberg's JSON
    weight: float  # how often it runs, relative to the others
    opened: BoolArray  # blocks that it opens today, bool (blocks,)


class SampledRows:
    """A random sample of the columns among ``names`` that have bounds, of all rows if there are few."""

    def __init__(self, table: ClusteredTable, names: Iterable[str], block_rows: int) -> None:
        metadata, kinds = table.metadata(), range_types(table.columns.types)
        names = [name for name in names if name in kinds]
        rows = int(metadata.rows.sum())
        sample = table.iceberg.sample(names, rows, SAMPLE_ROWS)
        block = pc.index_in(sample.column("path").combine_chunks(), value_set=metadata.path)
        # Another commit may have come between.
        sample, block = sample.filter(block.is_valid()), block.drop_null()
        # The partition of each block, from 0, and of each row.
        self._partition_of_block: IntArray = np.unique(metadata.partition, return_inverse=True)[1]
        self._partition = self._partition_of_block[np.asarray(block.to_numpy(zero_copy_only=False), np.int64)]
        # Live rows of each partition, and the most in one of its blocks.
        self._rows = self._total(metadata.rows)
        full = self._rows * float(table.block_bytes) // np.maximum(self._total(metadata.bytes), 1)
        self._limit = np.maximum(1, np.minimum(block_rows, full)).astype(np.int64)
        if metadata.deleted_rows is not None:
            self._rows -= self._total(metadata.deleted_rows)
        self._width = cache(partial(bounds_width, table.iceberg))
        is_whole = rows <= SAMPLE_ROWS
        self.columns = {
            name: _Column(sample.column(f"column_{number}").combine_chunks(), kinds[name], is_whole)
            for number, name in enumerate(names)
        }

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._partition)

    def _total(self, values: IntArray) -> IntArray:
        """Return the sum of values of blocks in each partition."""
        return np.bincount(self._partition_of_block, values).astype(np.int64)

    def curve(self, fields: Sequence[KeyField]) -> Curve:
        """Return the curve over some key items, by the values of their bounds."""
        return Curve.of(self._bound_values(fields))

    def _bound_values(self, fields: Sequence[KeyField]) -> list[pa.Array]:
        """Return the values of key items as bounds have them, (rows,) each."""
        return [field.transform.values(self.columns[field.column].values) for field in fields]

    def opened(self, key: ClusterKey, curve: Curve | None, queries: Sequence[Query]) -> tuple[int, list[int]]:
        """Return how many blocks a full sort by a key has, and how many each query opens, in partitions of today."""
        block, partition = self._sorted(key, curve)
        names = [field.column for field in key.fields]
        is_sampled = np.bincount(partition, minlength=len(self._rows)) > 0
        unsampled = np.where(is_sampled, 0, -(-self._rows // self._limit))

        @cache
        def bounds(name: str) -> _Bounds | None:
            width = self._width(name, in_key=name in names) if name in self.columns else 0
            return None if width == 0 else self.columns[name].bounds(block, len(partition), width)

        def may_hold(node: Any) -> BoolArray:
            name = None if isinstance(node, bool) else node.get("term")
            if not isinstance(name, str) or (known := bounds(name)) is None:  # excludes no block
                return np.full(len(partition), node is not False)
            return known.may_hold(node, self.columns[name].kind)

        opened = []
        for query in queries:
            matches = fold(query.expression, may_hold, lambda word, *ends: _JOINED[word](*ends))
            now = np.bincount(self._partition_of_block[query.opened], minlength=len(self._rows))
            sampled = np.count_nonzero(matches & (now > 0)[partition])
            opened.append(int(sampled + np.minimum(now, unsampled).sum()))
        return len(partition) + int(unsampled.sum()), opened

    def _sorted(self, key: ClusterKey, curve: Curve | None) -> tuple[IntArray, IntArray]:
        """Return the block of each row, sorted by partition and key, and the partition of each block."""
        if curve is not None and not key.leading:
            return self._in_boxes(key, curve)
        ranks = [self.columns[field.column].ranks(field.transform) for field in key.fields]
        if curve is not None:
            ranks.insert(len(key.leading), curve.index(self._bound_values(key.on_curve)))
        order = np.lexsort([*ranks[::-1], self._partition])
        partition = self._partition[order]
        starts = np.diff(partition, prepend=-1) != 0
        changes = [np.diff(rank[order], prepend=0) != 0 for rank in ranks]
        is_new = np.logical_or.reduce([starts, *changes])
        for begin, end in pairwise([*np.flatnonzero(starts), len(order)]):
            distinct = np.flatnonzero(is_new[begin:end])
            starts[begin + self._starts(int(partition[begin]), distinct, end - begin)] = True
        block = np.empty(len(order), np.int64)
        block[order] = np.cumsum(starts) - 1
        return block, partition[starts]

    def _in_boxes(self, key: ClusterKey, curve: Curve) -> tuple[IntArray, IntArray]:
        """Return the same of rows that are merged along a curve."""
        points, columns = Points.of(curve, self._bound_values(key.on_curve), 1), len(key.on_curve)
        block, partitions = np.empty(len(points.rows), np.int64), list[int]()
        for partition in np.unique(self._partition).tolist():
            place = np.flatnonzero(self._partition == partition)
            rows, limit = float(self._rows[partition]), float(self._limit[partition])
            of_block = columns * max(1.0, rows / limit) ** (-1 / columns)
            own = points.take(place).standing_for(rows)
            tree = cut_into_boxes(own, limit, curve.parts, of_block)
            share = np.arange(len(place)) * SHARES // len(place)
            used, box = np.unique(tree.box_of(own.rank, share), return_inverse=True)
            block[place] = len(partitions) + box
            partitions += [partition] * len(used)
        return block, np.array(partitions, np.int64)

    def _starts(self, partition: int, distinct: IntArray, sampled: int) -> IntArray:
        """Return where the later blocks of a partition begin among its sorted, sampled rows.

        ``distinct`` has the first row of each distinct key, int64 (keys,).
        """
        rows, limit = int(self._rows[partition]), int(self._limit[partition])
        if rows <= limit:
            return distinct[:0]
        counts = np.diff(np.append(distinct, sampled))
        points = choose_split_points(counts, rows, limit)
        before = [distinct[point.value] + round(point.share * counts[point.value]) for point in points]
        return np.minimum(np.array(before, np.int64), sampled - 1)


class _Column:
    """The values of a column in sampled rows, which may be all; ``distinct`` counts NULL and NaN too.

    ``order`` is the rank of each row's value, int64 (rows,); NULL is before all values, NaN after them.
    """

    def __init__(self, values: pa.Array, kind: ColumnType, is_whole: bool) -> None:
        self.values, self.kind, self._is_whole = values.cast(kind.arrow), kind, is_whole
        plain, is_nan = self.values, np.zeros(len(values), np.bool_)
        if kind.has_nan:
            is_nan = _mask(pc.is_nan(plain))
            plain = pc.if_else(pa.array(is_nan), pa.scalar(None, kind.arrow), plain)
            plain = pc.add(plain, pa.scalar(0, kind.arrow))  # 0.0 for -0.0
        known = plain.unique().drop_null()
        self._known = known.take(pc.sort_indices(known))
        self.order: IntArray = np.array(pc.index_in(plain, value_set=self._known).fill_null(-1), np.int64)
        self.order[is_nan] = len(self._known)
        self.distinct = len(np.unique(self.order))

    def ranks(self, transform: Transform) -> IntArray:
        """Return the rank of each row's value under a transform, int64 (rows,); NULL and NaN as in ``order``."""
        of_value = codes_of(transform.values(self._known))  # ascending, as the values are
        return np.append(of_value, [len(of_value), -1])[self.order]

    @property
    def _valued(self) -> BoolArray:
        """The rows with a value that is neither NULL nor NaN."""
        return (self.order >= 0) & (self.order < len(self._known))

    def examples(self, count: int) -> list[Any]:
        """Return values at even steps among the sorted rows that have one; fewer if there are fewer rows."""
        ranks = np.sort(self.order[self._valued])
        count = min(count, len(ranks))
        examples = []
        for place in ((np.arange(count) + 0.5) * len(ranks) / max(1, count)).astype(np.int64):
            try:
                examples.append(self._known[int(ranks[place])].as_py())
            except (ValueError, OverflowError):  # a date beyond Python's
                continue
        return examples

    def bounds(self, block: IntArray, blocks: int, width: int | None) -> _Bounds:
        """Return the bounds that n ``blocks`` would record, cut off at a width in characters or bytes unless None.

        ``block`` is the block of each row, int64 (rows,).
        """
        valued = self._valued
        rows = np.bincount(block[valued], minlength=blocks)
        first, last = np.full(blocks, len(self._known)), np.full(blocks, -1)
        np.minimum.at(first, block[valued], self.order[valued])
        np.maximum.at(last, block[valued], self.order[valued])
        if not self._is_whole:
            # The expected number of values beyond the ends of a sample, if they are evenly distributed.
            beyond = np.rint((last - first + 1) / np.maximum(rows, 1)).astype(np.int64)
            first, last = np.maximum(first - beyond, 0), np.minimum(last + beyond, len(self._known) - 1)
        places = (pa.array(np.where(rows > 0, ends, 0), mask=rows == 0) for ends in (first, last))
        lower, upper = map(self._known.take, places)
        if width is not None and isinstance(self.kind, Text):
            lower, short = (self.kind.truncated(ends, width) for ends in (lower, upper))
            # Iceberg counts the last character up instead.
            longer = pc.binary_join_element_wise(short, self.kind.after, self.kind.after[:0])
            upper = pc.if_else(pc.greater(self.kind.width_of(upper), width), longer, upper)
        null, nan = self.order < 0, self.order >= len(self._known)
        nulls, nans = (np.bincount(block[rows], minlength=blocks) > 0 for rows in (null, nan))
        return _Bounds(lower, upper, nulls, nans)


class _Bounds(NamedTuple):
    """The metrics of a column in n blocks."""

    lower: pa.Array  # (n,), null for a block without a value that is neither NULL nor NaN
    upper: pa.Array
    nulls: BoolArray  # blocks with a NULL, bool (n,)
    nans: BoolArray  # blocks with a NaN, bool (n,)

    def may_hold(self, node: Mapping[str, Any], kind: ColumnType) -> BoolArray:
        """Return which blocks Iceberg opens for a comparison in its JSON: bool (n,)."""
        comparison, valued = node["type"], _mask(self.lower.is_valid())
        without_value = {"is-null": self.nulls, "not-null": valued | self.nans}
        without_value |= {"is-nan": self.nans, "not-nan": valued | self.nulls}
        if comparison in without_value:
            return without_value[comparison]
        column, lower, upper = node["term"], self.lower, self.upper
        if is_outside := comparison == "not-starts-with":
            node, lower, upper = {**node, "type": "starts-with"}, upper, lower
        # A range of a stepped type ends at the next value.
        is_open = comparison in ("gt", "lt") and kind.step is None
        below, above = (pc.less, pc.greater) if is_open else (pc.less_equal, pc.greater_equal)
        opened = np.zeros(len(valued), np.bool_)
        for ranges in alternatives_of(node, {column: kind}):
            if column not in ranges:  # the comparison is no range
                return np.ones(len(valued), np.bool_)
            low, high = ranges[column]
            meets = np.ones(len(valued), np.bool_)
            if low is not None:
                meets &= _mask(above(upper, pa.scalar(low, kind.arrow)))
            if high is not None:
                meets &= _mask(below(lower, pa.scalar(high, kind.arrow)))
            opened |= meets
        return self.nulls | ~opened if is_outside else opened


def _mask(values: pa.Array) -> BoolArray:
    """Return an Arrow array of booleans as a mask; null is false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
