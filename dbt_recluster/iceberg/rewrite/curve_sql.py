"""The place of a row on a curve as Spark SQL: no UDF, no Python worker.

A rank is found by a binary search among literal boundaries, one step a projection: Spark's compiler keeps such small
steps in compiled code, where a tree of comparisons is too large a method for Java to compile. Look-ups in a table of
the curve's states make a place of the ranks (see :mod:`dbt_recluster.curve`).

Boundaries are compared with the column itself and not with its transform, as values from which the transform reaches
them. So the place needs neither Iceberg's functions nor the session's time zone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import base_type, decimal_precision, decimal_scale, quote_path
from dbt_recluster.curve import Curve, curve_states
from dbt_recluster.iceberg.rewrite.literals import sql_array
from dbt_recluster.transforms import EXACT, INTEGERS, TEXTS, Truncate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INT64 = np.iinfo(np.int64)
# A step of the curve takes this many levels of every column at once, where that divides them.
_LEVELS = 2


@dataclass(frozen=True)
class Searched:
    """A column and the boundaries among which its values are searched.

    Attributes:
        value: SQL of the value that is compared, NULL for NULL.
        boundaries: SQL of a constant array.
    """

    value: str
    boundaries: str


def with_place(
    frame: DataFrame, curve: Curve, key: ClusterKey, place: str, name: Callable[[str], str]
) -> DataFrame:
    """Add the column ``place``: the place of each row on the curve of a key, bigint.

    Args:
        frame: The rows.
        curve: The curve.
        key: The key that ends in it.
        place: The new column.
        name: Gives a name that no column has, for a purpose.
    """
    from pyspark.sql import functions as F

    columns = [quote_path(field.column) for field in key.on_curve]
    types = [field.dataType.simpleString() for field in frame.selectExpr(*columns).schema.fields]
    added: list[str] = []
    for step in place_steps(curve, key.on_curve, types, place, name):
        frame = frame.withColumns({column: F.expr(sql) for column, sql in step.items()})
        added += step
    return frame.drop(*(column for column in added if column != place))


def place_query(query: str, curve: Curve, key: ClusterKey, types: Mapping[str, str], place: str) -> str:
    """Return a query with the columns of ``query``, ``place`` and others whose names begin with it.

    Do not filter its rows: Spark would move a condition on a place below the steps that compute it, and copy each into
    the next twice.

    Args:
        query: A query.
        curve: The curve.
        key: The key that ends in it.
        types: Spark's type of each column on the curve, by its name in the key.
        place: A name; no column of ``query`` begins with it.
    """
    on_curve = [types[field.column] for field in key.on_curve]
    for step in place_steps(curve, key.on_curve, on_curve, place, lambda purpose: f"{place}_{purpose}"):
        columns = ", ".join(f"{sql} as {column}" for column, sql in step.items())
        query = f"select *, {columns} from (\n{query}\n)"
    return query


def place_steps(
    curve: Curve, fields: Sequence[KeyField], types: Sequence[str], place: str, name: Callable[[str], str]
) -> Iterator[dict[str, str]]:
    """Yield the columns that lead to a place, each step's as SQL of the columns of the steps before.

    Args:
        curve: The curve.
        fields: Its columns.
        types: Spark's type of each.
        place: The name of the last column.
        name: Gives a name that no column has, for a purpose.
    """
    searched = [
        searched_column(field, spark_type, boundaries)
        for field, spark_type, boundaries in zip(fields, types, curve.boundaries, strict=True)
    ]
    levels = _LEVELS if curve.bits % _LEVELS == 0 else 1
    arrays = [name(f"boundaries_{position}") for position in range(len(searched))]
    table = name("states")
    yield {
        **{array: column.boundaries for array, column in zip(arrays, searched, strict=True)},
        table: _constants(_state_table(len(fields), levels), "int"),
    }
    ranks = ["0"] * len(searched)
    for bit in reversed(range(curve.bits)):
        step = {}
        for position, column in enumerate(searched):
            rank = ranks[position]
            reached = f"{column.value} >= get({arrays[position]}, {rank} + {(1 << bit) - 1})"
            # A comparison with NULL is NULL, which counts as false.
            step[name(f"rank_{position}_{bit}")] = f"if({reached}, {rank} + {1 << bit}, {rank})"
        ranks = list(step)
        yield step
    yield {place: _place(ranks, table, curve.bits, levels)}


def searched_column(field: KeyField, spark_type: str, boundaries: pa.Array) -> Searched:
    """Return what to compare a column on a curve with.

    Args:
        field: The item of the key.
        spark_type: The type of its column.
        boundaries: Values of the item, ascending, as bounds of blocks have them (see ``BlockMetadata``).

    Raises:
        ValueError: They are of another type.
    """
    column, kind = quote_path(field.column), base_type(spark_type)
    if kind == "date":
        return Searched(f"unix_date({column})", _constants(_starts(field, boundaries, of_date=True), "int"))
    if kind == "timestamp":
        starts = _starts(field, boundaries, of_date=False)
        return Searched(f"unix_micros({column})", _constants(starts, "bigint"))
    if kind == "timestamp_ntz":
        starts = _starts(field, boundaries, of_date=False)
        return Searched(column, sql_array(list(pa.array(starts, pa.timestamp("us"))), kind))
    if kind == "decimal":
        return Searched(column, _constants(_decimals(field, spark_type, boundaries.to_pylist()), spark_type))
    if kind in INTEGERS and pa.types.is_integer(boundaries.type):
        return Searched(column, _constants(_integers(field, boundaries.to_pylist()), "bigint"))
    if kind in ("float", "double"):
        return Searched(column, _constants(map(repr, boundaries.cast(pa.float64()).to_pylist()), "double"))
    if kind == "boolean" and pa.types.is_boolean(boundaries.type):
        return Searched(column, _constants(map(str, boundaries.to_pylist()), "boolean"))
    if kind in TEXTS and (pa.types.is_string(boundaries.type) or pa.types.is_large_string(boundaries.type)):
        return Searched(column, sql_array(list(boundaries), "string"))
    if kind == "binary" and (
        pa.types.is_binary(boundaries.type) or pa.types.is_large_binary(boundaries.type)
    ):
        return Searched(column, sql_array(list(boundaries), "binary"))
    raise ValueError(f"{field} is {spark_type}, which boundaries of type {boundaries.type} do not cut")


def item_boundary(field: KeyField, spark_type: str, boundary: pa.Scalar) -> pa.Scalar | None:
    """Return the least value of a key item that is not below a boundary, as rows have it; None if Java has none."""
    kind = base_type(spark_type)
    if kind == "decimal":
        (text,) = _decimals(field, spark_type, [boundary.as_py()])
        return pa.scalar(Decimal(text))
    if kind in INTEGERS:
        (number,) = _integers(field, [boundary.as_py()])
        return pa.scalar(number, pa.int64())
    if kind == "float":
        value = np.float32(boundary.as_py())
        is_below = float(value) < boundary.as_py()
        return pa.scalar(np.nextafter(value, np.float32(np.inf)) if is_below else value)
    if kind in TEXTS:
        try:
            boundary.as_py()
        except UnicodeDecodeError:
            return None
    return boundary


def _starts(field: KeyField, boundaries: pa.Array, *, of_date: bool) -> list[int]:
    """Return the least days, or microseconds, at which a key item reaches its boundaries."""
    limit = np.iinfo(np.int32) if of_date else _INT64
    starts = (field.transform.start(value, of_date=of_date) for value in boundaries)
    return [min(max(start, int(limit.min)), int(limit.max)) for start in starts]


def _integers(field: KeyField, boundaries: Sequence[int]) -> list[int]:
    """Return the least numbers at which a key item reaches its boundaries."""
    numbers = (_multiple(field, int(value)) for value in boundaries)
    return [min(max(number, int(_INT64.min)), int(_INT64.max)) for number in numbers]


def _decimals(field: KeyField, spark_type: str, boundaries: Sequence[Any]) -> Iterator[str]:
    """Yield numbers that the type can hold, as text."""
    scale, most = decimal_scale(spark_type), 10 ** decimal_precision(spark_type) - 1
    for value in boundaries:
        # Truncated decimals are unscaled (see Truncate.values).
        is_unscaled = isinstance(field.transform, Truncate)
        unscaled = int(value if is_unscaled else Decimal(value).scaleb(scale, EXACT))
        number = min(max(_multiple(field, unscaled), -most), most)
        yield f"{Decimal(number).scaleb(-scale, EXACT):f}"


def _multiple(field: KeyField, value: int) -> int:
    """Return the least number that is truncated to ``value`` or more."""
    width = field.transform.width if isinstance(field.transform, Truncate) else 1
    return -(-value // width) * width


def _constants(values: Any, spark_type: str) -> str:
    """Return an array as SQL. Spark reads a text of many values much faster than as many literals."""
    return f"cast(split('{','.join(map(str, values))}', ',') as array<{spark_type}>)"


def _state_table(dimensions: int, levels: int) -> Any:
    """Return what `levels` steps along the curve lead to: int64 (states * 2**(dimensions * levels),).

    An entry is the next state, followed by the bits of the place. Its position is the state, followed by the bits of
    these levels of each coordinate, those of the first one last.
    """
    states = curve_states(dimensions)
    cells = 1 << (dimensions * levels)
    state = np.repeat(np.arange(len(states.place)), cells)
    cell = np.tile(np.arange(cells), len(states.place))
    place = np.zeros_like(cell)
    for level in reversed(range(levels)):
        part = np.zeros_like(cell)
        for dimension in range(dimensions):
            part |= ((cell >> (dimension * levels + level)) & 1) << dimension
        state, place = states.step(state, part, place)
    return (state << (dimensions * levels)) | place


def _place(ranks: Sequence[str], table: str, bits: int, levels: int) -> str:
    """Return the place of ranks, given the name of a table of states."""
    width, entry, terms = len(ranks) * levels, "", []
    for level in reversed(range(0, bits, levels)):
        cell = " + ".join(
            f"shiftleft(shiftright({rank}, {level}) & {(1 << levels) - 1}, {position * levels})"
            for position, rank in enumerate(ranks)
        )
        # The state is entered again with the bits of the place cleared. Spark computes what repeats itself once.
        entry = f"get({table}, {f'({entry} & {-1 << width}) + ' if entry else ''}{cell})"
        place = f"cast({entry} & {(1 << width) - 1} as bigint)"
        terms.append(f"shiftleft({place}, {level * len(ranks)})")
    return " + ".join(terms)
