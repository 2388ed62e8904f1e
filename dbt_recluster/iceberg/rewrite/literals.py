"""Values of columns by their types, as Spark SQL, in Iceberg's expressions and as JSON; and places on a curve as SQL.

There is no UDF and no Python worker. A binary search among literal boundaries finds each rank, and look-ups in a table
of the curve's states make a place of the ranks (see :mod:`dbt_recluster.key.curve`). Each step is a column that refers
to earlier ones: Spark compiles such small steps, while a tree of comparisons is too large a method for Java to compile.

Boundaries are values of the column from which its transform reaches them, so a place needs neither Iceberg's functions
nor the session's time zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.key.box_tree import SHARE, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import base_type, decimal_precision, decimal_scale, quote_path, sql_literal
from dbt_recluster.key.curve import Curve, curve_states
from dbt_recluster.key.transforms import EXACT, INTEGERS, TEXTS, TIMES, Transform, Truncate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeyValue = Sequence[pa.Scalar]

# What the boundaries of a column are compared with, and their type, by Spark's type of the column.
_COMPARED = {
    "date": ("unix_date({})", "int"),
    "timestamp": ("unix_micros({})", "bigint"),
    "float": ("{}", "double"),
    **dict.fromkeys(INTEGERS, ("{}", "bigint")),
    **dict.fromkeys(TEXTS, ("{}", "string")),
}


def exact_literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as SQL, independent of quoting rules, time zones and rounding."""
    if not value.is_valid:
        return f"cast(null as {spark_type})"
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"cast(X'{value.as_buffer().to_pybytes().hex()}' as string)"  # which need not be UTF-8
    if pa.types.is_date32(kind):
        return f"date_from_unix_date({value.cast(pa.int32()).as_py()})"
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.int64()).as_py()
        if spark_type == "timestamp_ntz":
            # NumPy reads the first microsecond as NaT.
            seconds, rest = divmod(micros, 1_000_000)
            # Spark wants four digits of a year, also before year 1.
            text = re.sub(r"\d+", lambda year: f"{year[0]:0>4}", str(np.datetime64(seconds, "s")), count=1)
            return f"timestamp_ntz'{text}.{rest:06}'"
        return f"timestamp_micros({micros}L)"
    return sql_literal(value.as_py(), spark_type)


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds since 1970."""
    if not values:
        return []
    if spark_type in TIMES:
        values = [value.cast(pa.int64()).cast(pa.timestamp("us")) for value in values]
    show = "lower(hex(value))" if spark_type == "binary" else "cast(value as string)"
    array = keys_sql([[value] for value in values], [spark_type])
    row = spark.sql(f"select transform({array}, value -> coalesce({show}, 'NULL'))").first()
    return [str(text) for text in row[0]] if row is not None else []


def key_sql(names: Sequence[str]) -> str:
    """Return a row's key as one SQL value; Spark compares structs like tuples, NULL first."""
    if len(names) == 1:
        return names[0]
    fields = (f"'k{place}', {name}" for place, name in enumerate(names))
    return f"named_struct({', '.join(fields)})"


def keys_sql(keys: Sequence[KeyValue], types: Sequence[str]) -> str:
    """Return the first ``len(types)`` columns of keys as a constant array of values like :func:`key_sql`."""
    items = (key_sql([*map(exact_literal, key, types)]) for key in keys)
    return f"array({', '.join(items)})"


def deciding_columns(keys: Sequence[KeyValue]) -> int:
    """Return how many columns decide whether a row is at or above keys: trailing NULLs do not, they are least."""
    deciding = (place for key in keys for place, value in enumerate(key, 1) if value.is_valid)
    return max(deciding, default=1)


def column_starts(field: KeyField, spark_type: str, boundaries: pa.Array) -> pa.Array:
    """Return the least values of a column at which a key item reaches boundaries, within the range of its type.

    Boundaries are values of the item, as in ``BlockMetadata``; those of another type are a ValueError. The values are
    one for each: dates as days since 1970, times as microseconds.
    """
    kind, given, transform = base_type(spark_type), boundaries.type, field.transform
    if kind == "date" or kind in TIMES:
        starts = [transform.start(value, of_date=kind == "date") for value in boundaries]
        return _within(starts, pa.int32() if kind == "date" else pa.int64())
    if kind == "decimal":
        return _decimal_starts(transform, spark_type, boundaries.to_pylist())
    if kind in INTEGERS and pa.types.is_integer(given):
        least = -(2**63) if kind in ("bigint", "long") else -(2**31)
        return _within([_multiple(transform, value, least) for value in boundaries.to_pylist()], pa.int64())
    if kind == "float":
        exact = boundaries.cast(pa.float64()).to_numpy()
        nearest = exact.astype(np.float32)
        return pa.array(np.where(nearest < exact, np.nextafter(nearest, np.float32(np.inf)), nearest))
    if kind == "double":
        return boundaries.cast(pa.float64())
    same = {"boolean": "bool", "binary": "binary", **dict.fromkeys(TEXTS, "string")}
    if str(given).removeprefix("large_") == same.get(kind):
        return boundaries
    raise ValueError(f"{field} is {spark_type}, which boundaries of type {given} do not cut")


def _decimal_starts(transform: Transform, spark_type: str, boundaries: Sequence[Any]) -> pa.Array:
    precision, scale = decimal_precision(spark_type), decimal_scale(spark_type)
    if not isinstance(transform, Truncate):  # truncated decimals are unscaled (see Truncate.values)
        boundaries = [Decimal(value).scaleb(scale, EXACT) for value in boundaries]
    most = 10**precision - 1
    numbers = (min(_multiple(transform, max(int(value), -most)), most) for value in boundaries)
    return pa.array(
        [Decimal(number).scaleb(-scale, EXACT) for number in numbers], pa.decimal128(precision, scale)
    )


def _multiple(transform: Transform, value: int, least: float = -math.inf) -> int:
    """Return the least number that is truncated to ``value`` or more; below the first multiple none is truncated."""
    width = transform.width if isinstance(transform, Truncate) else 1
    multiple = -(-value // width) * width
    return multiple if multiple - width >= least else value


def _within(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return integers of any size, clipped to the range of the type."""
    limits = np.iinfo(str(kind))
    return pa.array([min(max(number, int(limits.min)), int(limits.max)) for number in numbers], kind)


def iceberg_json(value: Any, kind: str, *, up: bool) -> Any | None:
    """Return a value of an Iceberg type, as from :meth:`Transform.start`, for Iceberg's parser of expressions.

    It is None if the parser has no constant for it. -0.0 and 0.0 are one value to Spark, and two to Iceberg, so zero is
    rounded ``up`` or down.
    """
    if kind in ("boolean", "uuid", "timestamp_ns", "timestamptz_ns") or isinstance(value, bytes):
        return None
    if isinstance(value, int):
        bits = 31 if kind == "date" else 63
        return value if -(1 << bits) <= value < 1 << bits else None
    if isinstance(value, float):
        zero = 0.0 if up else -0.0
        return (value or zero) if math.isfinite(value) else None
    return str(value) if isinstance(value, Decimal) else value


@dataclass(frozen=True)
class ValueType:
    """The type of a column with ranges."""

    arrow: pa.DataType
    read: Callable[[Any], Any]  # from JSON, as Iceberg writes it
    step: Any = None  # the distance from a value to the next one

    def check(self, value: Any) -> None:
        """Raise a ValueError or an ArithmeticError if the type does not hold a value, or it is not finite."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        pa.scalar(value, self.arrow)

    def read_again(self, value: Any) -> Any:
        """Read the output of `as_json`, or raise if it is not of this type."""
        if value is None:
            return None
        result = self.read(value)
        if as_json(result) != value or isinstance(result, bool) != isinstance(value, bool):
            raise ValueError
        self.check(result)
        return result


def as_json(value: Any) -> Any:
    """Return a value as JSON."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def value_types(types: Mapping[str, str]) -> dict[str, ValueType]:
    """Return the types of the columns that can have ranges, given Spark's type of each column."""
    kinds = {path: _TYPES[base_type(kind)] for path, kind in types.items() if base_type(kind) in _TYPES}
    scales = {path: decimal_scale(kind) for path, kind in types.items() if base_type(kind) == "decimal"}
    return kinds | {path: ValueType(pa.decimal128(38, scale), Decimal) for path, scale in scales.items()}


def _time(text: str) -> datetime:
    """Read a time, in UTC if it has a zone."""
    # Python 3.10 reads only three or six digits after the point.
    text = re.sub(r"\.(\d+)", lambda digits: f".{digits[1]:0<6.6}", text)
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)


_TYPES = {
    **dict.fromkeys(INTEGERS, ValueType(pa.int64(), int, 1)),
    **dict.fromkeys((*TEXTS, "uuid"), ValueType(pa.string(), str)),
    **dict.fromkeys(TIMES, ValueType(pa.timestamp("us"), _time, timedelta(microseconds=1))),
    "float": ValueType(pa.float32(), float),
    "double": ValueType(pa.float64(), float),
    "date": ValueType(pa.date32(), date.fromisoformat, timedelta(days=1)),
    "boolean": ValueType(pa.bool_(), bool),
    "binary": ValueType(pa.binary(), bytes.fromhex),
}


def box_columns(trees: Sequence[BoxTree], tree: str, ranks: Sequence[str], box: str) -> list[str]:
    """Return columns as SQL, of which the last is ``box``, int: the number of a row's box among those of all trees.

    ``tree`` is SQL of the number of each row's tree. ``ranks`` are the columns of each rank, and then of each row's
    share (see `box_tree.SHARE`). No column begins with the name ``box``.
    """
    nodes, boxes, root, columns, cuts, below, above = 0, 0, [], [], [], [], []
    for each in trees:
        child = np.where(each.child < 0, each.child - boxes, each.child + nodes)
        root.append(each.root - boxes if each.root < 0 else each.root + nodes)
        columns += np.where(each.column == SHARE, len(ranks) - 1, each.column).tolist()
        cuts += each.cut.tolist()
        below += child[:, 0].tolist()
        above += child[:, 1].tolist()
        nodes, boxes = nodes + len(each.cut), boxes + len(each)
    arrays = {"columns": columns, "cuts": cuts, "below": below, "above": above}
    # An empty text would be an array of one NULL.
    steps = [f"{_constants(values or [0], 'int')} as {box}_{name}" for name, values in arrays.items()]
    steps.append(f"get({_constants(root, 'int')}, {tree}) as {box}_0")
    height = max(each.height for each in trees)
    for step in range(height):
        node = f"{box}_{step}"
        is_above = f"get(array({', '.join(ranks)}), get({box}_columns, {node})) >= get({box}_cuts, {node})"
        following = f"if({is_above}, get({box}_above, {node}), get({box}_below, {node}))"
        steps.append(f"if({node} < 0, {node}, {following}) as {box}_{step + 1}")
    return [*steps, f"-1 - {box}_{height} as {box}"]


def place_query(query: str, curve: Curve, key: ClusterKey, types: Mapping[str, str], place: str) -> str:
    """Return ``query`` with the columns of :func:`place_columns`, and ``place``_of_load, of `Curve.index_of_load`.

    Do not filter its rows: Spark would move a condition on a place below the steps, and copy each into the next twice.
    """
    columns = place_columns(curve, key, types, place)
    ascending = compress(zip(key.on_curve, curve.boundaries, strict=True), curve.ascending)
    is_new = " or ".join(_beyond(field, types[field.column], ends) for field, ends in ascending) or "false"
    following = 1 << (curve.bits * len(key.on_curve))
    columns.append(f"if({is_new}, {place} + {following}, {place}) as {place}_of_load")
    return f"select *, {', '.join(columns)} from (\n{query}\n)"


def place_columns(curve: Curve, key: ClusterKey, types: Mapping[str, str], place: str) -> list[str]:
    """Return columns as SQL, of which the last is ``place``: the place of each row on the curve of a key, bigint.

    ``types`` are Spark's of the columns on the curve, by their names in the key. No column begins with the name
    ``place``. Boundaries of another type than their column are a ValueError.
    """
    fields = key.on_curve
    searched = [
        _searched(field, types[field.column], boundaries)
        for field, boundaries in zip(fields, curve.boundaries, strict=True)
    ]
    curve_of = curve_states(len(fields))
    # By a state, followed by the part of the cell: the next state, followed by when the part is visited.
    entries = ((curve_of.following << len(fields)) | curve_of.place).ravel()
    arrays = [f"{place}_boundaries_{position}" for position in range(len(fields))]
    columns = [f"{array} as {name}" for name, (_, array) in zip(arrays, searched, strict=True)]
    columns.append(f"{_constants(entries, 'int')} as {place}_states")
    ranks = ["0"] * len(fields)
    for bit in reversed(range(curve.bits)):
        for position, (value, _) in enumerate(searched):
            rank, name = ranks[position], f"{place}_rank_{position}_{bit}"
            reached = f"{value} >= get({arrays[position]}, {rank} + {(1 << bit) - 1})"
            # A comparison with NULL is NULL, which counts as false.
            columns.append(f"if({reached}, {rank} + {1 << bit}, {rank}) as {name}")
            ranks[position] = name
    return [*columns, f"{_place(ranks, f'{place}_states', curve.bits)} as {place}"]


def _searched(field: KeyField, spark_type: str, boundaries: pa.Array) -> tuple[str, str]:
    """Return SQL of the values of a column on a curve, NULL for NULL, and of the array that they are searched in."""
    kind, starts = base_type(spark_type), column_starts(field, spark_type, boundaries)
    value, compared = _COMPARED.get(kind, ("{}", spark_type))
    if kind == "timestamp_ntz":
        starts = starts.cast(pa.timestamp("us"))
    if kind in (*TEXTS, "binary", "timestamp_ntz"):
        array = keys_sql([[start] for start in starts], [compared])
    else:
        array = _constants(starts.to_pylist(), compared)
    return value.format(quote_path(field.column)), array


def _beyond(field: KeyField, spark_type: str, boundaries: pa.Array) -> str:
    """Return SQL of whether a value is above the last boundary; a comparison with NULL is NULL."""
    following = field.transform.next(boundaries[-1])
    ends, reaches = boundaries[-1:], ">"
    if following is not None:
        ends, reaches = pa.array([following.as_py()], following.type), ">="
        start = field.transform.start(following, of_date=base_type(spark_type) == "date")
        if column_starts(field, spark_type, ends)[0].as_py() != start:
            return "false"  # the type has no such value
    value, array = _searched(field, spark_type, ends)
    return f"{value} {reaches} get({array}, 0)"


def _constants(values: Iterable[Any], spark_type: str) -> str:
    """Return an array as SQL. Spark reads a text of many values much faster than as many literals."""
    texts = (f"{value:f}" if isinstance(value, Decimal) else str(value) for value in values)
    return f"cast(split('{','.join(texts)}', ',') as array<{spark_type}>)"


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
