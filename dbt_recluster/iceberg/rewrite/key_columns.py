"""The rows of a merge together with the columns of their cluster key."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.columns import quote_path
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.rewrite.curve_sql import with_place
from dbt_recluster.iceberg.rewrite.literals import exact_literal, sql_array
from dbt_recluster.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KeyValue = Sequence[pa.Scalar]

# Spark looks Iceberg's transforms up in a catalog, and the session catalog has no place for them. So a catalog with
# nothing else in it is registered under a name of our own.
_FUNCTIONS = "recluster_iceberg_functions"
_FUNCTION_CATALOG = "org.apache.iceberg.spark.SparkFunctionCatalog"
# Threads of dbt share a session.
_setting = threading.Lock()


class AddedColumns:
    """Names for columns that a merge adds; no column of the table has the same name.

    Args:
        frame: The rows as read from the table.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._taken = {name.lower() for name in frame.columns}
        self._added: list[str] = []

    def name(self, purpose: str) -> str:
        """Return a new name, which SQL reads without quotes."""
        name = f"__recluster_{purpose}"
        while name.lower() in self._taken:
            name += "_"
        self._taken.add(name.lower())
        self._added.append(name)
        return name

    def drop(self, frame: DataFrame) -> DataFrame:
        """Return ``frame`` without the added columns."""
        return frame.drop(*self._added)


@dataclass(frozen=True)
class KeyedRows:
    """Rows and their cluster key.

    Attributes:
        frame: The rows.
        names: SQL that names the columns that sort the rows: one for each key item, and before those of a curve the
            place on it. An item that is a plain column is not copied.
        types: Spark's type of each.
        added: The columns of ``frame`` that are not the table's.
    """

    frame: DataFrame
    names: tuple[str, ...]
    types: tuple[str, ...]
    added: AddedColumns

    @classmethod
    def of(
        cls, spark: SparkSession, frame: DataFrame, key: ClusterKey, curve: Curve | None = None
    ) -> KeyedRows:
        """Add a column for each key item that is not a plain column, and for the place on the curve of the key."""
        added, names = AddedColumns(frame), []
        with key_columns(spark, key) as columns:
            for position, (field, column) in enumerate(zip(key.fields, columns, strict=True)):
                if field.transform == Transform():
                    names.append(quote_path(field.column))
                else:
                    names.append(added.name(f"key_{position}"))
                    frame = frame.withColumn(names[-1], column)
        if curve is not None:
            place = added.name("place")
            frame = with_place(frame, curve, key, place, added.name)
            names.insert(len(key.leading), place)
        types = [field.dataType.simpleString() for field in frame.selectExpr(*names).schema.fields]
        return cls(frame, tuple(names), tuple(types), added)

    def with_frame(self, frame: DataFrame) -> KeyedRows:
        """Return other rows with the same key columns."""
        return replace(self, frame=frame)

    def to_write(self) -> DataFrame:
        """Return the rows sorted within each partition, with the table's columns only."""
        from pyspark.sql import functions as F

        return self.added.drop(self.frame.sortWithinPartitions(*map(F.expr, self.names)))


@contextmanager
def key_columns(spark: SparkSession, key: ClusterKey) -> Iterator[list[Column]]:
    """Yield one column expression for each key item, computed by Iceberg's own transforms.

    A frame takes them while the context lasts; afterwards the session has no setting of ours.
    """
    if all(field.transform == Transform() for field in key.fields):
        yield _expressions(key)
        return
    with _setting:
        spark.conf.set(f"spark.sql.catalog.{_FUNCTIONS}", _FUNCTION_CATALOG)
        try:
            yield _expressions(key)
        finally:
            spark.conf.unset(f"spark.sql.catalog.{_FUNCTIONS}")


def _expressions(key: ClusterKey) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.expr(field.transform.sql(quote_path(field.column), _FUNCTIONS)) for field in key.fields]


def key_value(names: Sequence[str]) -> str:
    """Return a row's key as one SQL value. Spark compares structs like tuples, NULL first."""
    if len(names) == 1:
        return names[0]
    fields = zip(_struct_fields(len(names)), names, strict=True)
    return f"named_struct({', '.join(f'{field!r}, {name}' for field, name in fields)})"


def key_array(values: Sequence[KeyValue | None], types: Sequence[str]) -> str:
    """Return keys as a SQL array of values like :func:`key_value`, NULL for None. Spark folds it into a constant."""
    if len(types) == 1:
        return sql_array([None if value is None else value[0] for value in values], types[0])
    fields = _struct_fields(len(types))
    struct = f"struct<{', '.join(f'{field}: {kind}' for field, kind in zip(fields, types, strict=True))}>"
    items = []
    for value in values:
        if value is None:
            items.append(f"cast(null as {struct})")
            continue
        literals = map(exact_literal, value, types)
        named = (f"{field!r}, {literal}" for field, literal in zip(fields, literals, strict=True))
        items.append(f"named_struct({', '.join(named)})")
    return f"array({', '.join(items)})"


def deciding_columns(keys: Sequence[KeyValue | None]) -> int:
    """Return how many of the first columns tell whether a row is at or above keys: NULL at the end is below all."""
    deciding = (place for key in keys for place, value in enumerate(key or (), 1) if value.is_valid)
    return max(deciding, default=1)


def _struct_fields(count: int) -> list[str]:
    return [f"k{position}" for position in range(count)]
