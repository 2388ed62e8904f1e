"""An Iceberg table as Spark's catalogs know it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dbt_recluster.columns import Columns, quote
from dbt_recluster.exceptions import NotAnIcebergTableError, UnsupportedTableError
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jvm import activate, java_class, jvm
from dbt_recluster.iceberg.locks import canonical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# The suffixes by which Iceberg's catalogs name a table at another point than the head of its main branch.
_POINTS = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)")


class IcebergTable:
    """A loaded table. What it answers is as of :meth:`refresh`, which loading has done.

    Attributes:
        spark: The session it was loaded through.
        name: The identifier as given.
        identifier: The identifier in full, each part in backquotes.
        java: The ``org.apache.iceberg.Table``.
    """

    def __init__(self, spark: SparkSession, name: str, identifier: str, java: Any) -> None:
        self.spark = spark
        self.name = name
        self.identifier = identifier
        self.java = java

    @classmethod
    def load(cls, spark: SparkSession, name: str) -> IcebergTable:
        """Load the table ``name``; parts that are left out are the session's current catalog and namespace.

        Raises:
            NotAnIcebergTableError: There is no such table; it is a view or a table of another format; or the name is
                that of a branch, a tag, an old snapshot, the change log or a metadata table.
        """
        if not isinstance(name, str):
            raise NotAnIcebergTableError(f"a table is named by text, such as 'schema.table', not by {name!r}")
        activate(spark)
        spark3_util = jvm(spark).org.apache.iceberg.spark.Spark3Util
        try:
            found = spark3_util.catalogAndIdentifier(spark._jsparkSession, name)
            parts = [*found.identifier().namespace(), found.identifier().name()]
            loaded = found.catalog().loadTable(found.identifier())
        except Exception as e:
            raise NotAnIcebergTableError(_why_not_loaded(name, short_message(e))) from e
        _refuse_other_points(spark, name, ".".join(parts[:-1]), parts[-1], loaded)
        if any("/" in part for part in parts):
            # Iceberg's data source takes such a name for a path.
            raise NotAnIcebergTableError(
                f"{name} has a slash in its name, and Iceberg's reader takes it for a path"
            )
        identifier = ".".join(map(quote, [found.catalog().name(), *parts]))
        table = cls(spark, name, identifier, loaded.table())
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
        return canonical_name(self.identifier)

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot, or None for a table never written."""
        snapshot = self.java.currentSnapshot()
        return int(snapshot.snapshotId()) if snapshot is not None else None

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return java_map(self, self.java.properties())

    def columns(self) -> Columns:
        """Return the table's columns and the fields of its structs, with Spark's types.

        Raises:
            UnsupportedTableError: The table has a type that Spark does not know, such as Iceberg's ``time``.
        """
        try:
            fields = self.spark.table(self.identifier).schema.fields
        except Exception as e:
            raise UnsupportedTableError(f"{self.name} cannot be read by Spark: {short_message(e)}") from e
        types = {path: kind for field in fields for path, kind in _paths(field.name, field.dataType)}
        case_sensitive = self.spark.conf.get("spark.sql.caseSensitive") == "true"
        return Columns(tuple(field.name for field in fields), types, case_sensitive)

    def check_writes_reach_main(self) -> None:
        """Make sure that the session's writes go to the main branch, which reclustering works on.

        Raises:
            NotAnIcebergTableError: ``spark.wap.branch`` sends them to another one.
        """
        branch = self.spark.conf.get("spark.wap.branch", None)
        if branch and self.properties.get("write.wap.enabled", "false").lower() == "true":
            raise NotAnIcebergTableError(
                f"spark.wap.branch sends writes to {self.name} to branch {branch}, and reclustering works on the main "
                "branch. Recluster once the branch is published and the setting is gone."
            )

    def metadata(self, which: str, snapshot_id: int | None = None) -> DataFrame:
        """Return a metadata table (``entries``, ``files``, ``snapshots``...), as of ``snapshot_id`` if given."""
        reader = self.spark.read.format("iceberg")
        if snapshot_id is not None:
            reader = reader.option("snapshot-id", snapshot_id)
        return reader.load(f"{self.identifier}.{which}")


def java_map(table: IcebergTable, entries: Any) -> dict[str, str]:
    """Return a Java map of strings by one call for all of it.

    Iterating costs several calls into the JVM for each entry, and at the end an exception, a tenth of a second.
    """
    joiner = table.iceberg.relocated.com.google.common.base.Joiner.on("\0").withKeyValueSeparator("\1")
    joined = str(joiner.join(entries))
    pairs = (entry.partition("\1") for entry in joined.split("\0")) if joined else ()
    return {name: value for name, _, value in pairs}


def _paths(name: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """Yield the path and type of a column and of the struct fields in it (see :class:`Columns`)."""
    from pyspark.sql.types import StructType

    if "." in name:
        return
    yield name, kind.simpleString()
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from ((f"{name}.{path}", inner) for path, inner in _paths(field.name, field.dataType))


def _why_not_loaded(name: str, message: str) -> str:
    base, _, last = name.rpartition(".")
    point = _POINTS.fullmatch(last.strip("`"))
    hint = f". Reclustering works on the main branch of a table: name {base}" if point and base else ""
    return f"{name} cannot be loaded: {message.rstrip('.')}{hint}"


def _refuse_other_points(spark: SparkSession, name: str, base: str, last: str, loaded: Any) -> None:
    """Refuse what is not the main branch of a table.

    Raises:
        NotAnIcebergTableError: With what to name instead.
    """
    package = "org.apache.iceberg.spark.source"
    if java_class(spark, f"{package}.SparkChangelogTable").isInstance(loaded):
        what = "the change log of a table"
    elif not java_class(spark, f"{package}.SparkTable").isInstance(loaded):
        raise NotAnIcebergTableError(
            f"{name} is not an Iceberg table: it is a view, or a table of another format"
        )
    elif loaded.branch() is not None:
        what = f"branch {loaded.branch()} of a table"
    elif loaded.snapshotId() is not None:
        tag = _POINTS.fullmatch(last)
        what = (
            f"tag {tag.group(2)} of a table"
            if tag and tag.group(1) == "tag"
            else "an old snapshot of a table"
        )
    elif java_class(spark, "org.apache.iceberg.BaseMetadataTable").isInstance(loaded.table()):
        what = f"the metadata table {last} of a table"
    else:
        return
    raise NotAnIcebergTableError(
        f"{name} is {what}, and reclustering works on the main branch itself: name {base}"
    )
