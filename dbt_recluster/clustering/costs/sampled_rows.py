"""A sample of a table's rows, sorted by any of its columns and cut into blocks as a merge of all blocks cuts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray
from dbt_recluster.iceberg.reads.predicates import LAST_CHARACTER, fold
from dbt_recluster.iceberg.rewrite.split_points import CellBorders, choose_split_points
from dbt_recluster.iceberg.sort_order import bounds_width
from dbt_recluster.iceberg.value_types import ValueType, value_types
from dbt_recluster.transforms import Transform

SAMPLE_ROWS = 50_000
# Iceberg opens every block for a longer list.
_MOST_VALUES = 200
_JOINED = {"and": np.logical_and, "or": np.logical_or}


class Query(NamedTuple):
    """A query of the table.

    Attributes:
        expression: Its predicate in Iceberg's JSON.
        weight: How often it runs, relative to the others.
        opened: Blocks that it opens today, bool (blocks,).
    """

    expression: Any
    weight: float
    opened: BoolArray


def literals(expression: Any) -> list[tuple[str, list[Any]]]:
    """Return the columns that an expression in Iceberg's JSON names, each time with the values it is compared with."""

    def of_predicate(node: Any) -> list[tuple[str, list[Any]]]:
        term = None if isinstance(node, bool) else node.get("term")
        return [(term, _values(node))] if isinstance(term, str) else []

    return fold(expression, of_predicate, lambda _, one, other: [*one, *other])


def _values(node: Mapping[str, Any]) -> list[Any]:
    """Return the values that a predicate compares with; of a prefix, the ends of what begins with it."""
    values = list(node.get("values", [node["value"]] if "value" in node else []))
    if node["type"] in ("starts-with", "not-starts-with"):
        values.append(f"{values[0]}{LAST_CHARACTER}")
    return values


class _Bounds(NamedTuple):
    """What n blocks record of a column.

    Attributes:
        lower, upper: The bounds as places, int64 (n,), of any value for a block without values.
        valued: Blocks with a value that is neither NULL nor NaN, bool (n,).
        nulls, nans: Blocks with a NULL, and with a NaN, bool (n,).
    """

    lower: IntArray
    upper: IntArray
    valued: BoolArray
    nulls: BoolArray
    nans: BoolArray

    def may_hold(self, node: Mapping[str, Any], place_of: Callable[[Any], int | None]) -> BoolArray:
        """Return which blocks Iceberg opens for a comparison in its JSON: bool (n,)."""
        kind = node["type"]
        without_value = {
            "is-null": self.nulls,
            "not-null": self.valued | self.nans,
            "is-nan": self.nans,
            "not-nan": self.valued | self.nulls,
        }
        if kind in without_value:
            return without_value[kind]
        known = [place for value in _values(node) if (place := place_of(value)) is not None]
        if not 0 < len(known) == len(_values(node)) <= _MOST_VALUES or kind in ("not-eq", "not-in"):
            return np.ones(len(self.lower), np.bool_)
        places = np.sort(np.array(known, np.int64))
        first, last = places[0], places[-1]
        if kind == "not-starts-with":
            unlike: BoolArray = self.nulls | ~self.valued | (self.lower < first) | (self.upper > last)
            return unlike
        is_among = np.searchsorted(places, self.lower) < np.searchsorted(places, self.upper, side="right")
        compared = {
            "eq": is_among,
            "in": is_among,
            "starts-with": (self.lower <= last) & (self.upper >= first),
            "lt": self.lower < last,
            "lt-eq": self.lower <= last,
            "gt": self.upper > first,
            "gt-eq": self.upper >= first,
        }
        result: BoolArray = self.valued & compared[kind]
        return result


class SampledRows:
    """A random sample, of all rows if there are few.

    Args:
        table: The table.
        named: The columns to sample, and for each the values that queries name, in Iceberg's JSON.
        block_rows: The most rows in a block.

    Attributes:
        columns: The columns of those that have bounds.
    """

    def __init__(self, table: ClusteredTable, named: Mapping[str, Sequence[Any]], block_rows: int) -> None:
        metadata, kinds = table.metadata(), value_types(table.columns.types)
        names = [name for name in named if name in kinds]
        rows = int(metadata.rows.sum())
        sample = table.iceberg.sample(names, rows, SAMPLE_ROWS)
        block = pc.index_in(sample.column("path").combine_chunks(), value_set=metadata.path)
        # Another commit may have come between.
        sample, block = sample.filter(block.is_valid()), block.drop_null()
        # Of each block of the table, counted from 0, and of each row.
        self._partition_of_block: IntArray = np.unique(metadata.partition, return_inverse=True)[1]
        self._partition = self._partition_of_block[np.asarray(block.to_numpy(zero_copy_only=False), np.int64)]
        # Of each partition, the rows that are not deleted, and the most in one of its blocks.
        self._rows = self._total(metadata.rows)
        full = self._rows * float(table.block_bytes) // np.maximum(self._total(metadata.bytes), 1)
        self._limit = np.maximum(1, np.minimum(block_rows, full)).astype(np.int64)
        if metadata.deleted_rows is not None:
            self._rows -= self._total(metadata.deleted_rows)
        self._widths = {
            name: [bounds_width(table.iceberg, name, in_key=in_key) for in_key in (False, True)]
            for name in names
        }
        self.columns = {
            name: _Column(
                sample.column(f"column_{number}").combine_chunks(),
                kinds[name],
                named[name],
                self._widths[name][False],
                is_whole=rows <= SAMPLE_ROWS,
            )
            for number, name in enumerate(names)
        }

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._partition)

    def _total(self, values: IntArray) -> IntArray:
        """Return the sum of values of blocks in each partition."""
        return np.bincount(self._partition_of_block, values).astype(np.int64)

    def curve(self, names: Sequence[str]) -> Curve:
        """Return the curve over some columns, by the values of their bounds."""
        return Curve.of([self.columns[name].bound_values for name in names])

    def opened(
        self, names: Sequence[str], curve: Curve | None, queries: Sequence[Query]
    ) -> tuple[int, list[int]]:
        """Return how many blocks a full sort by some columns, or along a curve, has, and how many each query opens.

        A query opens none of a partition that it does not open today.
        """
        block, partition = self._sorted(names, curve)
        is_sampled = np.bincount(partition, minlength=len(self._rows)) > 0
        unsampled = np.where(is_sampled, 0, -(-self._rows // self._limit))

        @cache
        def bounds(name: str) -> _Bounds | None:
            width = self._widths[name][name in names] if name in self.columns else 0
            return None if width == 0 else self.columns[name].bounds(block, len(partition), width is not None)

        def may_hold(node: Any) -> BoolArray:
            name = None if isinstance(node, bool) else node.get("term")
            if not isinstance(name, str) or (known := bounds(name)) is None:  # excludes no block
                return np.full(len(partition), node is not False)
            return known.may_hold(node, self.columns[name].place)

        opened = []
        for query in queries:
            matches = fold(query.expression, may_hold, lambda word, *ends: _JOINED[word](*ends))
            now = np.bincount(self._partition_of_block[query.opened], minlength=len(self._rows))
            sampled = np.count_nonzero(matches & (now > 0)[partition])
            opened.append(int(sampled + np.minimum(now, unsampled).sum()))
        return len(partition) + int(unsampled.sum()), opened

    def _sorted(self, names: Sequence[str], curve: Curve | None) -> tuple[IntArray, IntArray]:
        """Cut rows that are sorted by partition and key: return the block of each, and the partition of each block."""
        keys = [self.columns[name].order for name in names]
        place = None
        if curve is not None:
            place = curve.index([self.columns[name].bound_values for name in names])
            keys.insert(0, place)
        order = np.lexsort([*keys[::-1], self._partition])
        partition = self._partition[order]
        starts = np.diff(partition, prepend=-1) != 0
        is_new = np.logical_or.reduce([starts, *(np.diff(key[order], prepend=0) != 0 for key in keys)])
        for begin, end in pairwise([*np.flatnonzero(starts), len(order)]):
            distinct = np.flatnonzero(is_new[begin:end])
            cells = None
            if curve is not None and place is not None:
                places = place[order[begin + distinct]]
                cells = CellBorders.of(places, np.zeros(len(places), np.bool_), len(names), curve.bits)
            starts[begin + self._starts(int(partition[begin]), distinct, end - begin, cells)] = True
        block = np.empty(len(order), np.int64)
        block[order] = np.cumsum(starts) - 1
        return block, partition[starts]

    def _starts(
        self, partition: int, distinct: IntArray, sampled: int, cells: CellBorders | None
    ) -> IntArray:
        """Return where the blocks of a partition begin among its sorted, sampled rows, but the first one.

        ``distinct`` has the first row of each distinct key, int64 (keys,).
        """
        rows, limit = int(self._rows[partition]), int(self._limit[partition])
        if rows <= limit:
            return distinct[:0]
        counts = np.diff(np.append(distinct, sampled))
        points = choose_split_points(counts, rows, limit, cells)
        before = [distinct[point.value] + round(point.share * counts[point.value]) for point in points]
        return np.minimum(np.array(before, np.int64), sampled - 1)


class _Column:
    """The values of a column in sampled rows, and those that queries name, on one axis of places.

    Args:
        values: The values of the rows, (rows,).
        kind: The type of the column.
        literals: Values that queries name, in Iceberg's JSON.
        width: Characters, or bytes, to which bounds may be cut off, or None.
        is_whole: Whether all rows are in the sample.

    Attributes:
        order: The place of each row's value, int64 (rows,); NULL is before all places, NaN after them.
        distinct: Number of different values, NULL and NaN included.
    """

    def __init__(
        self, values: pa.Array, kind: ValueType, literals: Iterable[Any], width: int | None, is_whole: bool
    ) -> None:
        self._kind, self._is_whole = kind, is_whole
        self._values = values.cast(kind.arrow)
        plain, is_nan = _plain(self._values)
        encoded = plain.dictionary_encode()
        known = encoded.dictionary.to_pylist()
        named = [value for literal in literals if (value := self._value(literal)) is not None]
        cuts = {value: _cut_off(value, width) for value in (*known, *named)}
        axis = sorted({*cuts, *chain.from_iterable(cuts.values())})
        self._place_of = {value: place for place, value in enumerate(axis)}
        self._cut_lower, self._cut_upper = (
            np.array([self._place_of[_cut_off(value, width)[side]] for value in axis], np.int64)
            for side in (0, 1)
        )
        places = np.array([*(self._place_of[value] for value in known), -1], np.int64)
        self.order = places[encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
        self.order[is_nan] = len(axis)
        self._valued = (self.order >= 0) & ~is_nan
        # The places that sampled values have.
        self._sampled = np.unique(self.order[self._valued])
        self.distinct = len(np.unique(self.order))

    @property
    def bound_values(self) -> pa.Array:
        """The values of the rows as bounds have them, (rows,)."""
        return Transform().values(self._values)

    def place(self, literal: Any) -> int | None:
        """Return the place of one of the literals or sampled values, or None if the column cannot hold it."""
        value = self._value(literal)
        return None if value is None else self._place_of.get(value)

    def _value(self, literal: Any) -> Any:
        try:
            value = self._kind.read(literal)
            self._kind.check(value)
            return _plain(pa.array([value], self._kind.arrow))[0][0].as_py()
        except (ValueError, TypeError, ArithmeticError):
            return None

    def examples(self, count: int) -> list[Any]:
        """Return values at even steps among the sorted rows that have one; fewer if there are fewer rows."""
        rows = np.argsort(self.order, kind="stable")[np.count_nonzero(self.order < 0) :][: self._valued.sum()]
        at = (np.arange(min(count, len(rows))) + 0.5) * len(rows) / max(1, min(count, len(rows)))
        examples = []
        for row in rows[at.astype(np.int64)]:
            try:
                examples.append(self._values[int(row)].as_py())
            except (ValueError, OverflowError):  # a date beyond Python's
                continue
        return examples

    def bounds(self, block: IntArray, blocks: int, cut_off: bool) -> _Bounds:
        """Return the bounds that n blocks of the sampled rows would record, as places.

        ``block`` is the block of each row, int64 (rows,).
        """
        rows = np.bincount(block[self._valued], minlength=blocks)
        lower, upper = np.full(blocks, len(self._place_of)), np.full(blocks, -1)
        np.minimum.at(lower, block[self._valued], self.order[self._valued])
        np.maximum.at(upper, block[self._valued], self.order[self._valued])
        valued = rows > 0
        first, last = lower[valued], upper[valued]
        if not self._is_whole:
            # Of m evenly distributed values, that many lie beyond the least and the greatest of a sample.
            first, last = np.searchsorted(self._sampled, first), np.searchsorted(self._sampled, last)
            beyond = np.rint((last - first + 1) / rows[valued]).astype(np.int64)
            first = self._sampled[np.maximum(first - beyond, 0)]
            last = self._sampled[np.minimum(last + beyond, len(self._sampled) - 1)]
        if cut_off:
            first, last = self._cut_lower[first], self._cut_upper[last]
        lower[valued], upper[valued] = first, last
        null, nan = self.order < 0, self.order >= len(self._place_of)
        nulls, nans = (np.bincount(block[held], minlength=blocks) > 0 for held in (null, nan))
        return _Bounds(lower, upper, valued, nulls, nans)


def _plain(values: pa.Array) -> tuple[pa.Array, BoolArray]:
    """Return values whose order Python knows, also of times beyond its calendar, NULL for NaN; and which are NaN."""
    is_nan = np.zeros(len(values), np.bool_)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(values.type):
        is_nan = np.asarray(pc.fill_null(pc.is_nan(values), False).to_numpy(zero_copy_only=False), np.bool_)
        values = pc.if_else(pa.array(is_nan), pa.scalar(None, values.type), values)
        values = pc.add(values, pa.scalar(0, values.type))  # 0.0 for -0.0
    return values, is_nan


def _cut_off(value: Any, width: int | None) -> tuple[Any, Any]:
    """Return a value as a lower and as an upper bound that are cut off to a width."""
    if not width or not isinstance(value, (str, bytes)) or len(value) <= width:
        return value, value
    short: Any = value[:width]
    # Iceberg counts the last character up instead.
    return short, short + (LAST_CHARACTER if isinstance(value, str) else b"\xff")
