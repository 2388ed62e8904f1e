"""Keys, and the place of a row on a curve, as Spark SQL: no UDF, no Python worker.

A binary search among literal boundaries finds each rank, and look-ups in a table of the curve's states make a place of
the ranks (see :mod:`dbt_recluster.key.curve`). Each step is a column that refers to earlier ones: Spark compiles such
small steps, while a tree of comparisons is too large a method for Java to compile.

Boundaries are values of the column from which its transform reaches them, so a place needs neither Iceberg's functions
nor the session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.key.box_tree import SHARE, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import quote_path
from dbt_recluster.key.curve import Curve, curve_states
from dbt_recluster.key.transforms import Truncate
from dbt_recluster.key.types import Time, column_type, value_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeyValue = Sequence[pa.Scalar]


def exact_literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as SQL, independent of quoting rules, time zones and rounding."""
    return (
        value_type(value.type).literal(value, spark_type) if value.is_valid else f"cast(null as {spark_type})"
    )


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds since 1970."""
    if not values:
        return []
    kind = column_type(spark_type)
    if isinstance(kind, Time):
        values = [value.cast(kind.whole).cast(kind.arrow) for value in values]
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
    kind, transform = column_type(spark_type), field.transform
    width = transform.width if isinstance(transform, Truncate) else 1
    try:
        return kind.starts(boundaries, partial(transform.start, of_date=kind.in_days), width)
    except ValueError:
        raise ValueError(
            f"{field} is {spark_type}, which boundaries of type {boundaries.type} do not cut"
        ) from None


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
    kind, starts = column_type(spark_type), column_starts(field, spark_type, boundaries)
    value, compared = kind.compared
    if kind.has_own_literals:
        array = keys_sql([[start] for start in starts.cast(kind.arrow)], [compared or spark_type])
    else:
        array = _constants(starts.to_pylist(), compared or spark_type)
    return value.format(quote_path(field.column)), array


def _beyond(field: KeyField, spark_type: str, boundaries: pa.Array) -> str:
    """Return SQL of whether a value is above the last boundary; a comparison with NULL is NULL."""
    following = field.transform.next(boundaries[-1])
    ends, reaches = boundaries[-1:], ">"
    if following is not None:
        ends, reaches = pa.array([following.as_py()], following.type), ">="
        start = field.transform.start(following, of_date=column_type(spark_type).in_days)
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
