"""The cluster key of a DataFrame's rows, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.sorting import sort_columns
from dbt_recluster.identifiers import quote_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "__recluster_key_"


def add_key_columns(spark: SparkSession, frame: DataFrame, key: ClusterKey) -> tuple[DataFrame, list[str]]:
    """Return the frame with a column for each key item, and SQL that names them.

    An item that is a column is named as it is: a copy would be carried through sort and shuffle.
    """
    names = []
    for position, (field, column) in enumerate(zip(key.fields, sort_columns(spark, key), strict=True)):
        if field.transform == "identity":
            names.append(quote_path(field.column))
        else:
            names.append(f"{_PREFIX}{position}")
            frame = frame.withColumn(names[-1], column)
    return frame, names


def drop_key_columns(frame: DataFrame) -> DataFrame:
    """Return the frame without the columns that were added."""
    return frame.drop(*(name for name in frame.columns if name.startswith(_PREFIX)))
