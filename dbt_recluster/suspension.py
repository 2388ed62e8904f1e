"""Suspend the reclustering of a table, and resume it: a property of the table, which every process honours."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.properties import set_property
from dbt_recluster.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "recluster.suspended"


def suspended_since(properties: Mapping[str, str]) -> str | None:
    """Return since when a table with these properties is suspended, None when it is not."""
    return properties.get(PROPERTY)


def suspend_recluster(spark: SparkSession, table: str) -> str:
    """Keep everybody from reclustering ``table`` until it is resumed; return since when it is suspended.

    A recluster that is running stops before its next round. The property stays when the table is replaced, and
    goes when it is dropped, which ``dbt run --full-refresh`` does.

    Raises:
        NotAnIcebergTableError: There is no such table.
    """
    target = IcebergTable.load(spark, table)
    since = suspended_since(target.properties)
    if since is None:
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        set_property(target, PROPERTY, since)
    return since


def resume_recluster(spark: SparkSession, table: str) -> str | None:
    """Let ``table`` be reclustered again; return since when it was suspended, None when it was not.

    Raises:
        NotAnIcebergTableError: There is no such table.
    """
    target = IcebergTable.load(spark, table)
    since = suspended_since(target.properties)
    if since is not None:
        set_property(target, PROPERTY, None)
    return since
