"""Keys as Spark's SQL; DuckDB gets the missing functions as `MACROS`.

Values are computed in steps: columns that refer to those of earlier steps. Spark compiles such small steps, while a
tree of comparisons is too large a method for Java to compile. Times are compared as numbers, so no text depends on the
session's time zone.

A row's place on a curve: a binary search among boundaries finds each rank, and look-ups in a table of the curve's
states make a place of the ranks (see :mod:`dbt_recluster.key.curve`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dbt_recluster.key.box_tree import SHARE, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import quote_path
from dbt_recluster.key.curve import Curve, curve_states
from dbt_recluster.key.transforms import Span, Transform, Truncate
from dbt_recluster.key.types import column_type, value_type

Step = list[str]

_ROW_MASK = (1 << 30) - 1  # the product with the next constant fits into a long
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
# To DuckDB, the greatest numbers of dates and times are infinite, and so are their negatives.
_MOST_MICROS, _MOST_DAYS = (1 << 63) - 1, (1 << 31) - 2
_DAY = 86_400_000_000
MACROS = (
    "get(items, place) as items[place + 1]",
    "shiftleft(a, b) as a << b",
    "shiftright(a, b) as a >> b",
    "div(a, b) as a // b",
    "pmod(a, b) as ((a % b) + b) % b",
    "try_subtract(a, b) as try(a - b)",
    '"left"(bytes, length) as bytes[1:length]',  # DuckDB's is for text alone
    "unix_date(day) as day - date '1970-01-01'",
    "date_from_unix_date(day) as date '1970-01-01' + "
    f"case when day > {_MOST_DAYS} then {_MOST_DAYS} when day < -{_MOST_DAYS} then -{_MOST_DAYS} else day end::int",
    "unix_micros(ts) as coalesce(epoch_us(ts), "
    f"case when ts > '1970-01-01' then {_MOST_MICROS} when ts < '1970-01-01' then -{_MOST_MICROS} end)",
    f"to_date(ts) as date '1970-01-01' + (unix_micros(ts) // {_DAY} - (unix_micros(ts) % {_DAY} < 0)::int)::int",
    f'"hour"(ts) as pmod(unix_micros(ts), {_DAY}) // 3600000000',
)


def literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as Spark's SQL, independent of quoting rules, time zones and rounding."""
    return value_type(value.type).literal(value, spark_type) if value.is_valid else f"cast(null as {spark_type})"


def literals(values: Iterable[pa.Scalar], spark_type: str) -> str:
    """Return values of one type as an array in Spark's SQL."""
    return f"array({', '.join(literal(value, spark_type) for value in values)})"


def constants(values: Iterable[Any], spark_type: str) -> str:
    """Return numbers as an array in Spark's SQL, as one text: Spark parses it much faster than as many literals."""
    texts = (f"{value:f}" if isinstance(value, Decimal) else str(value) for value in values)
    return f"cast(split('{','.join(texts)}', ',') as array<{spark_type}>)"


def with_steps(query: str, steps: Iterable[Step]) -> str:
    """Return a query with the columns of all steps."""
    for step in steps:
        query = f"select *, {', '.join(step)} from (\n{query}\n)"
    return query


@dataclass(frozen=True)
class KeySql:
    """A row's key in Spark's SQL; a subclass names columns and writes constant arrays for another engine."""

    key: ClusterKey
    types: Mapping[str, str]  # Spark's of the columns, by their names in the key
    curve: Curve | None
    place: str = "place"  # the place on the curve. With it begin our columns, and none of the table

    row: ClassVar[str] = "monotonically_increasing_id()"  # a number of each row

    def column(self, path: str) -> str:
        """Return SQL of a column or struct field."""
        return quote_path(path)

    def array(self, values: pa.Array, spark_type: str) -> str:
        """Return SQL of an array of values of one type, without NULL."""
        if column_type(spark_type).has_own_literals:
            return literals(values.cast(column_type(spark_type).arrow), spark_type)
        return constants(values.to_pylist(), spark_type)

    def item(self, field: KeyField) -> str:
        """Return SQL of a key item."""
        return field.transform.sql(self.column(field.column), self.types[field.column])

    @property
    def share(self) -> str:
        """The column of a row's share, int, by which rows of one value are split: they differ only in their place."""
        return f"{self.place}_share"

    @property
    def ranks(self) -> list[str]:
        """The columns of the ranks on the curve, int."""
        return [f"{self.place}_rank_{number}_0" for number in range(self.key.curve)]

    @cached_property
    def order(self) -> dict[str, str]:
        """The columns that sort rows, with their types in Spark: key items, and the place before those of the curve."""
        names = {}
        for number, field in enumerate(self.key.fields):
            if self.curve is not None and number == len(self.key.leading):
                names[self.place] = "bigint"
            is_plain = field.transform == Transform()
            name = self.column(field.column) if is_plain else f"{self.place}_key_{number}"
            names[name] = field.transform.sql_type(self.types[field.column])
        return names

    def steps(self) -> list[Step]:
        """Return steps with the columns of :attr:`order`, :attr:`ranks`, and :attr:`share`."""
        names = [name for name in self.order if name != self.place]
        items = zip(names, map(self.item, self.key.fields), strict=True)
        step = [f"{item} as {name}" for name, item in items if name != item]
        # Multiples of the golden ratio spread every run of rows evenly.
        word = f"(({self.row} & {_ROW_MASK}) * cast({_GOLDEN} as bigint)) & {_WORD_MASK}"
        step.append(f"cast(shiftright({word}, 12) as int) as {self.share}")
        return [step] if self.curve is None else [step, *self.place_steps(self.curve)]

    def place_steps(self, curve: Curve) -> list[Step]:
        """Return steps of which the last is the place of each row on the curve, bigint.

        Boundaries of another type than their column are a ValueError.
        """
        place, ranks = self.place, self.ranks
        fields = list(zip(self.key.on_curve, curve.boundaries, strict=True))
        searched = [self.searched(field, boundaries) for field, boundaries in fields]
        states = curve_states(len(fields))
        # By a state, followed by the part of the cell: the next state, followed by when the part is visited.
        entries = ((states.following << len(fields)) | states.place).ravel()
        arrays = [f"{place}_boundaries_{number}" for number in range(len(fields))]
        step = [f"{array} as {name}" for name, (_, array) in zip(arrays, searched, strict=True)]
        step.append(f"{self.array(pa.array(entries, pa.int32()), 'int')} as {place}_states")
        search = search_steps([value for value, _ in searched], arrays, curve.bits, f"{place}_rank")
        return [step, *search, [f"{_place(ranks, f'{place}_states', curve.bits)} as {place}"]]

    def searched(self, field: KeyField, boundaries: pa.Array) -> tuple[str, str]:
        """Return SQL of the values of a column on a curve, NULL for NULL, and of the array to search them in."""
        value, compared = column_type(self.types[field.column]).compared
        starts = self.array(self.starts(field, boundaries), compared or self.types[field.column])
        return value.format(self.column(field.column)), starts

    def starts(self, field: KeyField, boundaries: pa.Array) -> pa.Array:
        """Return the least values of a column at which a key item reaches boundaries, within the range of its type.

        Boundaries are values of the item, as in ``BlockMetadata``; those of another type are a ValueError. The values
        are one for each: dates as days since 1970, times as microseconds.
        """
        kind, transform = column_type(self.types[field.column]), field.transform
        width = transform.width if isinstance(transform, Truncate) else 1
        return kind.starts(boundaries, partial(transform.start, of_date=kind.in_days), width)

    def query_of_load(self, query: str, curve: Curve) -> str:
        """Return ``query`` with the columns of :meth:`place_steps`, and `place_of_load`, of `Curve.index_of_load`.

        Do not filter the result: Spark pushes the condition below the steps, and inlines each step twice.
        """
        ascending = compress(zip(self.key.on_curve, curve.boundaries, strict=True), curve.ascending)
        is_new = " or ".join(self._beyond(field, ends[-1:]) for field, ends in ascending) or "false"
        place, following = self.place, 1 << (curve.bits * self.key.curve)
        of_load = f"if({is_new}, {place} + {following}, {place}) as {place}_of_load"
        return with_steps(query, [*self.place_steps(curve), [of_load]])

    def _beyond(self, field: KeyField, boundary: pa.Array) -> str:
        """Return SQL of whether a value is above a boundary; no ascending column is truncated. NULL gives NULL."""
        if isinstance(field.transform, Span):
            return f"{self.item(field)} > {boundary[0].as_py()}"
        value, array = self.searched(field, boundary)
        return f"{value} > get({array}, 0)"


def search_steps(values: Sequence[str], arrays: Sequence[str], bits: int, name: str) -> list[Step]:
    """Return binary searches, side by side, each of a value in an ascending array of less than ``2**bits`` items.

    The last step's columns are ``name_0_0``, ``name_1_0`` and so on: how many items are not above each value.
    """
    counts, steps = ["0"] * len(values), []
    for bit in reversed(range(bits)):
        names = [f"{name}_{number}_{bit}" for number in range(len(values))]
        # A comparison with NULL is NULL, which counts as false; so is one with an item beyond the end.
        steps.append(
            [
                f"if({value} >= get({array}, {count} + {(1 << bit) - 1}), {count} + {1 << bit}, {count}) as {following}"
                for value, array, count, following in zip(values, arrays, counts, names, strict=True)
            ]
        )
        counts = names
    return steps


def box_steps(trees: Sequence[BoxTree], tree: str, ranks: Sequence[str], box: str) -> list[Step]:
    """Return steps of which the last is the column ``box``, int: the number of a row's box among those of all trees.

    ``tree`` is SQL of the number of each row's tree. ``ranks`` are the columns of each rank, and then of each row's
    share (see `box_tree.SHARE`). No column begins with the name ``box``.
    """
    arrays: dict[str, list[int]] = {name: [] for name in ("roots", "columns", "cuts", "below", "above")}
    boxes = 0
    for of in trees:
        nodes, root = len(arrays["cuts"]), np.array([of.root])
        root, child = (np.where(place < 0, place - boxes, place + nodes) for place in (root, of.child))
        column = np.where(of.column == SHARE, len(ranks) - 1, of.column)
        parts = (root, column, of.cut, child[:, 0], child[:, 1])
        for values, part in zip(arrays.values(), parts, strict=True):
            values += part.tolist()
        boxes += len(of)
    # An empty text would be an array of one NULL.
    steps = [[f"{constants(values or [0], 'int')} as {box}_{name}" for name, values in arrays.items()]]
    steps.append([f"get({box}_roots, {tree}) as {box}_0"])
    height = max(of.height for of in trees)
    for number in range(height):
        node = f"{box}_{number}"
        is_above = f"get(array({', '.join(ranks)}), get({box}_columns, {node})) >= get({box}_cuts, {node})"
        following = f"if({is_above}, get({box}_above, {node}), get({box}_below, {node}))"
        steps.append([f"if({node} < 0, {node}, {following}) as {box}_{number + 1}"])
    return [*steps, [f"-1 - {box}_{height} as {box}"]]


def _place(ranks: Sequence[str], table: str, bits: int) -> str:
    """Return the place of ranks, given the name of a table of states."""
    width, entry, terms = len(ranks), "", []
    for level in reversed(range(bits)):
        part = " + ".join(
            f"shiftleft(shiftright({rank}, {level}) & 1, {position})" for position, rank in enumerate(ranks)
        )
        # The state is entered again with the bits of the place cleared. Spark computes what repeats itself once.
        entry = f"get({table}, {f'({entry} & {-1 << width}) + ' if entry else ''}{part})"
        place = f"cast({entry} & {(1 << width) - 1} as bigint)"
        terms.append(f"shiftleft({place}, {level * width})")
    return " + ".join(terms)
