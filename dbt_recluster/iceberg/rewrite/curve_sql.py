"""The place of a row on a curve as Spark SQL: no UDF, no Python worker.

A rank is found by a binary search among literal boundaries, one step a projection: Spark's compiler keeps such small
steps in compiled code, where a tree of comparisons is too large a method for Java to compile. Look-ups in a table of
the curve's states make a place of the ranks (see :mod:`dbt_recluster.key.curve`).

Boundaries are compared with the column itself and not with its transform, as values from which the transform reaches
them. So the place needs neither Iceberg's functions nor the session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.literals import column_starts, keys_sql
from dbt_recluster.key.box_tree import SHARE, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import base_type, quote_path
from dbt_recluster.key.curve import Curve, curve_states
from dbt_recluster.key.transforms import INTEGERS, TEXTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What the boundaries of a column are compared with, and their type, by Spark's type of the column.
_COMPARED = {
    "date": ("unix_date({})", "int"),
    "timestamp": ("unix_micros({})", "bigint"),
    "float": ("{}", "double"),
    **dict.fromkeys(INTEGERS, ("{}", "bigint")),
    **dict.fromkeys(TEXTS, ("{}", "string")),
}


def with_place(frame: DataFrame, curve: Curve, key: ClusterKey, place: str) -> DataFrame:
    """Add the column ``place``, the place of each row on the curve of a key, bigint, as :func:`place_query` does."""
    columns = [quote_path(field.column) for field in key.on_curve]
    types = [field.dataType.simpleString() for field in frame.selectExpr(*columns).schema.fields]
    for step in _place_steps(curve, key.on_curve, types, place):
        frame = frame.selectExpr("*", *step)
    return frame


def with_box(
    frame: DataFrame, trees: Sequence[BoxTree], tree: str, ranks: Sequence[str], box: str
) -> DataFrame:
    """Add the column ``box``, int: the number of each row's box, counted through the boxes of all trees.

    Args:
        frame: Rows.
        trees: Trees of cuts.
        tree: SQL of the number of each row's tree.
        ranks: The column of each rank, and then of each row's share (see `box_tree.SHARE`).
        box: A name; no column begins with it.
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
    tables = [f"{_constants(values or [0], 'int')} as {box}_{name}" for name, values in arrays.items()]
    frame = frame.selectExpr("*", *tables, f"get({_constants(root, 'int')}, {tree}) as {box}_0")
    steps = max(each.height for each in trees)
    for step in range(steps):
        node = f"{box}_{step}"
        is_above = f"get(array({', '.join(ranks)}), get({box}_columns, {node})) >= get({box}_cuts, {node})"
        following = f"if({is_above}, get({box}_above, {node}), get({box}_below, {node}))"
        frame = frame.selectExpr("*", f"if({node} < 0, {node}, {following}) as {box}_{step + 1}")
    return frame.selectExpr("*", f"-1 - {box}_{steps} as {box}")


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

    Raises:
        ValueError: The boundaries of the curve are of another type than a column.
    """
    on_curve = [types[field.column] for field in key.on_curve]
    for step in _place_steps(curve, key.on_curve, on_curve, place):
        query = f"select *, {', '.join(step)} from (\n{query}\n)"
    return query


def _place_steps(
    curve: Curve, fields: Sequence[KeyField], types: Sequence[str], place: str
) -> Iterator[list[str]]:
    """Yield the columns that lead to a place, each step's as SQL of the columns of the steps before."""
    searched = [_searched(*column) for column in zip(fields, types, curve.boundaries, strict=True)]
    curve_of = curve_states(len(fields))
    # By a state, followed by the part of the cell: the next state, followed by when the part is visited.
    entries = ((curve_of.following << len(fields)) | curve_of.place).ravel()
    boundaries = [f"{place}_boundaries_{position}" for position in range(len(fields))]
    yield [
        *(f"{array} as {name}" for name, (_, array) in zip(boundaries, searched, strict=True)),
        f"{_constants(entries, 'int')} as {place}_states",
    ]
    ranks = ["0"] * len(fields)
    for bit in reversed(range(curve.bits)):
        step = []
        for position, (value, _) in enumerate(searched):
            rank, name = ranks[position], f"{place}_rank_{position}_{bit}"
            reached = f"{value} >= get({boundaries[position]}, {rank} + {(1 << bit) - 1})"
            # A comparison with NULL is NULL, which counts as false.
            step.append(f"if({reached}, {rank} + {1 << bit}, {rank}) as {name}")
            ranks[position] = name
        yield step
    yield [f"{_place(ranks, f'{place}_states', curve.bits)} as {place}"]


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
