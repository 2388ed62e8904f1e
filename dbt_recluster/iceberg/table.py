"""An Iceberg table as Spark's catalogs know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import NotAnIcebergTableError
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jvm import activate, jvm
from dbt_recluster.iceberg.locks import canonical_name

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
            name = f"{_quoted(spark.catalog.currentDatabase())}.{name}"
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
        return {str(key): str(value) for key, value in dict(self.java.properties()).items()}

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


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _why_not(name: str, message: str) -> str:
    if "not an Iceberg table" in message:
        return f"{name} is not an Iceberg table: it is a view, or a table of another format"
    return f"{name} cannot be loaded: {message}"
