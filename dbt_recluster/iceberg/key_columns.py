"""Columns that a merge adds to the rows it reads, the cluster key's among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.columns import quote_path
from dbt_recluster.iceberg.sorting import sort_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AddedColumns:
    """Names of columns that no column of the table has, whatever the table calls its own.

    Args:
        frame: The rows as they are read from the table.
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
        """Return ``frame`` without the columns that were added, and with all of the table's."""
        return frame.drop(*self._added)


def add_key_columns(
    spark: SparkSession, frame: DataFrame, key: ClusterKey, added: AddedColumns
) -> tuple[DataFrame, list[str]]:
    """Return the frame with a column for each key item, and SQL that names them.

    An item that is a column is named as it is: a copy would be carried through sort and shuffle.
    """
    names = []
    for position, (field, column) in enumerate(zip(key.fields, sort_columns(spark, key), strict=True)):
        if field.transform == "identity":
            names.append(quote_path(field.column))
        else:
            names.append(added.name(f"key_{position}"))
            frame = frame.withColumn(names[-1], column)
    return frame, names
