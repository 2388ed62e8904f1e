"""An Iceberg table as Spark's catalogs know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import NotAnIcebergTableError
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jvm import activate, jvm
from dbt_recluster.iceberg.locks import canonical_name
from dbt_recluster.identifiers import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class IcebergTable:
    """A loaded table. What it answers is as of :meth:`refresh`, which loading has done.

    Attributes:
        spark: The session it was loaded through.
        name: The identifier as given, in Spark's spelling (parts with odd characters in backquotes).
        java: The ``org.apache.iceberg.Table``.
    """

    def __init__(self, spark: SparkSession, name: str, java: Any) -> None:
        self.spark = spark
        self.name = name
        self.java = java

    @classmethod
    def load(cls, spark: SparkSession, name: str) -> IcebergTable:
        """Load the table ``name`` (``schema.table`` or ``catalog.schema.table``).

        Raises:
            NotAnIcebergTableError: There is no such table, or it is a view or a table of another format.
        """
        activate(spark)
        if "." not in name:
            # The table's metadata tables are found by its schema and name only.
            name = f"{quote(spark.catalog.currentDatabase())}.{name}"
        try:
            java = jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        except Exception as e:
            raise NotAnIcebergTableError(_why_not(name, short_message(e))) from e
        table = cls(spark, name, java)
        table.refresh()
        return table

    def refresh(self) -> None:
        """Read the table's current metadata: a catalog may have handed out a cached table."""
        self.java.refresh()

    @property
    def iceberg(self) -> Any:
        """The Java package ``org.apache.iceberg``."""
        return jvm(self.spark).org.apache.iceberg

    @property
    def lock_name(self) -> str:
        """The name under which commits to this table are serialised (see :mod:`dbt_recluster.iceberg.locks`)."""
        return canonical_name(self.name)

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot, or None for a table never written."""
        snapshot = self.java.currentSnapshot()
        return int(snapshot.snapshotId()) if snapshot is not None else None

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return java_map(self, self.java.properties())

    def column_types(self) -> dict[str, str]:
        """Return Spark's type of each top-level column, in order."""
        return {
            field.name: field.dataType.simpleString() for field in self.spark.table(self.name).schema.fields
        }

    def metadata(self, which: str, snapshot_id: int | None = None) -> DataFrame:
        """Return a metadata table (``entries``, ``files``, ``snapshots``...), as of ``snapshot_id`` if given."""
        reader = self.spark.read.format("iceberg")
        if snapshot_id is not None:
            reader = reader.option("snapshot-id", snapshot_id)
        return reader.load(f"{self.name}.{which}")


def java_map(table: IcebergTable, entries: Any) -> dict[str, str]:
    """Return a Java map of strings by one call for all of it.

    Iterating costs several calls into the JVM for each entry, and at the end an exception, a tenth of a second.
    """
    joiner = table.iceberg.relocated.com.google.common.base.Joiner.on("\0").withKeyValueSeparator("\1")
    joined = str(joiner.join(entries))
    pairs = (entry.partition("\1") for entry in joined.split("\0")) if joined else ()
    return {name: value for name, _, value in pairs}


def _why_not(name: str, message: str) -> str:
    if "not an Iceberg table" in message:
        return f"{name} is not an Iceberg table: it is a view, or a table of another format"
    return f"{name} cannot be loaded: {message}"
