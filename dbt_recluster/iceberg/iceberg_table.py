"""An Iceberg table, loaded through one of Spark's catalogs, and transactions on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_recluster.exceptions import (
    CommitFailedError,
    NotAnIcebergTableError,
    OptionError,
    ReclusterError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.catalog_tables import load_table
from dbt_recluster.iceberg.locks import canonical_name, table_lock
from dbt_recluster.iceberg.session.environment import check_version
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import (
    JavaNames,
    activate,
    collect_arrow,
    java_items,
    java_list,
    java_map,
    jvm,
)
from dbt_recluster.iceberg.session.spark_module import SparkModule
from dbt_recluster.iceberg.snapshots import (
    GREATEST_LONG,
    MAIN,
    Snapshot,
    branch_heads,
    read_snapshots,
    whole_number,
)
from dbt_recluster.key.columns import Columns, quote_path
from dbt_recluster.table_properties import METRICS_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Properties to set, or to remove if they are None.
Changes = Mapping[str, str | None]


def decoded_text(values: pa.ChunkedArray) -> pa.Array:
    """Return text as Iceberg decodes it, with a replacement for what is not UTF-8, and other values as they are."""
    if not pa.types.is_string(values.type):
        return values
    texts = values.cast(pa.binary()).to_pylist()
    return pa.array([None if text is None else text.decode(errors="replace") for text in texts], values.type)


class IcebergTable:
    """A table as of its last :meth:`refresh`; loading refreshes it.

    Attributes:
        name: The identifier as the caller gave it.
        identifier: The full identifier, each part in backquotes.
        java: The ``org.apache.iceberg.Table``.
        branch: The branch whose snapshots are meant; None is main. The schema, the sort order and the properties are
            those of all branches.
    """

    def __init__(
        self, spark: SparkSession, name: str, identifier: str, java: Any, branch: str | None = None
    ) -> None:
        self.spark = spark
        self.name = name
        self.identifier = identifier
        self.java = java
        self.branch = branch

    @classmethod
    def load(cls, spark: SparkSession, name: str) -> IcebergTable:
        """Load the table ``name``; missing parts are those of the session's current catalog and namespace.

        Raises:
            NotAnIcebergTableError: There is no such table; it is a view or has another format; or the name is that of
                a branch, a tag, an older snapshot, the change log or a metadata table.
            CatalogError: The catalog of the name does not start.
            SparkEnvironmentError: This version of Spark is not supported.
        """
        check_version(spark)
        activate(spark)
        table = cls(spark, name, *load_table(spark, name))
        table.refresh()
        return table

    def on_branch(self, branch: str) -> IcebergTable:
        """Return the same table with the snapshots of a branch; an OptionError if there is none of this name."""
        name = None if branch == MAIN else branch
        other = IcebergTable(self.spark, self.name, self.identifier, self.java, name)
        other.current_snapshot()
        return other

    def refresh(self) -> None:
        """Read the current metadata; a catalog may have returned a cached table."""
        self.java.refresh()

    @property
    def schema_id(self) -> int:
        """The id of the current schema; any change of the columns gives the table another one."""
        return int(self.java.schema().schemaId())

    @property
    def sort_order_id(self) -> int:
        """The id of the current sort order; 0 is that of none."""
        return int(self.java.sortOrder().orderId())

    @property
    def schema_json(self) -> str:
        """The current schema with the ids of its fields."""
        return str(self.iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def iceberg(self) -> JavaNames:
        """The Java package ``org.apache.iceberg``."""
        package: JavaNames = jvm(self.spark).org.apache.iceberg
        return package

    @property
    def lock_name(self) -> str:
        """The name of the lock that serialises this process's commits to the table."""
        return canonical_name(self.identifier)

    @property
    def uuid(self) -> str:
        """The table's uuid, which a table that was dropped and created again does not keep."""
        return str(self.java.uuid())

    @property
    def metadata_file(self) -> str:
        """The metadata file that the catalog points to. Every commit writes one under a new name."""
        return str(self.java.operations().current().metadataFileLocation())

    def earlier_metadata_files(self) -> list[str]:
        """Return the metadata files of earlier commits that the table remembers, oldest first."""
        return [str(entry.file()) for entry in java_items(self.java.operations().current().previousFiles())]

    @property
    def snapshot_id(self) -> int | None:
        """The id of the current snapshot, or None for a table that was never written."""
        if self.branch is None:
            snapshot = self.java.currentSnapshot()
            return None if snapshot is None else int(snapshot.snapshotId())
        heads = branch_heads(self.java)
        if self.branch not in heads:
            raise OptionError(
                f"{self.name} has no branch {self.branch}, only {', '.join(sorted(heads)) or MAIN}; to make one: "
                f"alter table {self.name} create branch `{self.branch}`"
            )
        return heads[self.branch]

    @property
    def has_other_branches(self) -> bool:
        """Whether there are branches besides this one."""
        return any(branch != (self.branch or MAIN) for branch in branch_heads(self.java))

    def current_snapshot(self) -> Snapshot | None:
        """Return the current snapshot, or None for a table that was never written."""
        snapshot_id = self.snapshot_id
        return None if snapshot_id is None else self.snapshot(snapshot_id)

    def snapshots(self) -> list[Snapshot]:
        """Return the current snapshot and its ancestors that have not expired, oldest first."""
        if self.branch is None:
            ancestors = self.iceberg.util.SnapshotUtil.currentAncestors(self.java)
            return read_snapshots(self.spark, java_list(self.spark, ancestors))[::-1]
        known = read_snapshots(self.spark, java_list(self.spark, self.java.snapshots()))
        by_id, line, parent = {s.id: s for s in known}, [], self.snapshot_id
        while parent in by_id:
            line.append(by_id[parent])
            parent = line[-1].parent
        return line[::-1]

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, or None if the table's metadata does not contain it."""
        java = self.java.snapshot(snapshot_id)
        return None if java is None else read_snapshots(self.spark, java_list(self.spark, [java]))[0]

    def is_ancestor(self, snapshot_id: int, of: int) -> bool:
        """Whether a snapshot is another one or an ancestor of it, as far as its ancestors have not expired."""
        return bool(self.iceberg.util.SnapshotUtil.isAncestorOf(self.java, of, snapshot_id))

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether the table's metadata contains this snapshot."""
        return self.java.snapshot(snapshot_id) is not None

    def manifest_list(self, snapshot_id: int) -> str:
        """Where the manifests of a snapshot are listed; in tables of early writers, the place of the table."""
        return str(self.java.snapshot(snapshot_id).manifestListLocation() or self.java.location())

    def may_have_deletes(self, snapshot_id: int) -> bool:
        """Whether a snapshot has delete files; true if its writer did not say."""
        return str(self.java.snapshot(snapshot_id).summary().get("total-delete-files")) != "0"

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return java_map(self.spark, self.java.properties())

    def number_property(self, name: str, default: int, least: int = 1, most: int = GREATEST_LONG) -> int:
        """Return a property; one that is no whole number from ``least`` to ``most`` is an UnsupportedTableError."""
        value = self.properties.get(name)
        if value is None:
            return default
        number = whole_number(value)
        if number is None or not least <= number <= most:
            raise UnsupportedTableError(
                f"{self.name} has the property {name} = {value!r:.40}, which must be a whole number from {least} to "
                f"{most}, such as {default}"
            )
        return number

    def set_property(self, name: str, value: str | None) -> None:
        """Set one property and commit; None removes it."""
        with Transaction.alone(self) as transaction:
            transaction.set_properties({name: value})

    def commit(self, transaction: Any) -> None:
        """Send a transaction to the catalog: the one call after which a recluster is part of the table."""
        transaction.commitTransaction()

    def columns(self) -> Columns:
        """Return the columns and the fields of structs with Spark's types; Iceberg's ``uuid`` keeps its name.

        A type that Spark does not know, such as Iceberg's ``time``, is an UnsupportedTableError.
        """
        from pyspark.sql.types import StructType

        # Not spark.table(), for which the catalog would read the table's metadata once more.
        with self._as_unsupported():
            schema = self.iceberg.spark.SparkSchemaUtil.convert(self.java.schema())
        fields = StructType.fromJson(json.loads(schema.json())).fields
        types = {path: kind for field in fields for path, kind in _paths(field.name, field.dataType)}
        types |= {
            path: "uuid" for path, kind, _ in self.primitive_fields() if kind == "uuid" and path in types
        }
        return Columns(tuple(field.name for field in fields), types, self.case_sensitive)

    @property
    def case_sensitive(self) -> bool:
        """Whether the session distinguishes ``k`` from ``K``."""
        return str(self.spark.conf.get("spark.sql.caseSensitive")).lower() == "true"

    def primitive_fields(self) -> list[tuple[str, str, int]]:
        """Return the path, the Iceberg type and the field id of each column and struct field of a primitive type."""
        leaves = leaf_fields(json.loads(self.schema_json))
        return [(path, kind, field_id) for path, kind, field_id, _ in leaves if isinstance(kind, str)]

    @property
    def field_ids(self) -> dict[str, int]:
        """The field id of each of them, by its path."""
        return {path: field_id for path, _, field_id in self.primitive_fields()}

    def check_writes_reach_main(self) -> None:
        """Refuse a session whose ``spark.wap.branch`` sends writes to a branch, unless that branch is reclustered."""
        if self.branch is not None:
            return
        branch = self.spark.conf.get("spark.wap.branch", None)
        if branch and self.properties.get("write.wap.enabled", "false").lower() == "true":
            raise NotAnIcebergTableError(
                f"spark.wap.branch sends writes to branch {branch} of {self.name}, and the main branch would be "
                "reclustered. Name the branch, or publish it and unset spark.wap.branch first."
            )

    def metadata(self, which: str) -> DataFrame:
        """Return one of Iceberg's metadata tables, such as ``ALL_FILES``."""
        from pyspark.sql import DataFrame

        kind = getattr(self.iceberg.MetadataTableType, which)
        load = self.iceberg.spark.SparkTableUtil.loadMetadataTable
        return DataFrame(load(self.spark._jsparkSession, self.java, kind), self.spark)

    def sample(self, columns: Sequence[str], rows: int, limit: int) -> pa.Table:
        """Return a random sample of about ``limit`` of the table's ``rows`` rows.

        Columns, or fields of structs, are named ``column_0``, ``column_1``... Column ``path`` is the block of each row.
        Text is as Iceberg decodes it, with a replacement for what is not UTF-8.
        """
        from pyspark.sql import functions as F

        # Not spark.table(): on v3 tables it drops the row ids silently.
        reader = self.spark.read.format("iceberg")
        frame = (reader.option("versionAsOf", self.branch) if self.branch else reader).load(self.identifier)
        if rows > limit:
            frame = frame.sample(fraction=limit / rows, seed=1)
        values = (F.col(quote_path(name)).alias(f"column_{place}") for place, name in enumerate(columns))
        with self._as_unsupported():
            sampled = collect_arrow(frame.select(F.col("_file").alias("path"), *values))
        return pa.table([decoded_text(column) for column in sampled.columns], sampled.column_names)

    @contextmanager
    def _as_unsupported(self) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            raise UnsupportedTableError(f"{self.name} cannot be read by Spark: {self.explain(e)}") from e

    def explain(self, error: BaseException) -> str:
        """Return an error's message, with the name of the property if Java takes its value for no number."""
        message, wrong = short_message(error), []
        if "For input string: " in message:
            wrong = [name for name, value in self.properties.items() if f'"{value}"' in message]
        return f"{message}, the value of {' or '.join(wrong)}" if wrong else message


@dataclass(frozen=True)
class Transaction:
    """An open transaction.

    Attributes:
        table: The table as the transaction leaves it. Only its metadata can be read, but new files can be written to it
            before the transaction is committed.
        base: The snapshot that it was begun on, or None.
    """

    java: Any
    table: IcebergTable
    base: int | None

    @classmethod
    def begin(cls, table: IcebergTable) -> Transaction:
        """Begin a transaction on the newest metadata, to which it moves ``table`` too."""
        java = table.java.newTransaction()
        changed = IcebergTable(table.spark, table.name, table.identifier, java.table(), table.branch)
        return cls(java, changed, changed.snapshot_id)

    @classmethod
    @contextmanager
    def alone(cls, table: IcebergTable) -> Iterator[Transaction]:
        """Begin a transaction on the newest metadata, and commit what the block adds to it, if anything."""
        try:
            with table_lock(table.lock_name):
                table.refresh()
                transaction = cls.begin(table)
                yield transaction
                transaction.java.commitTransaction()
                table.refresh()
        except ReclusterError:
            raise
        except Exception as e:
            raise CommitFailedError(f"{table.name} could not be changed: {table.explain(e)}") from e

    def set_properties(self, changes: Changes) -> None:
        """Set properties, and remove those that are None.

        A struct's field that is dropped or renamed leaves its metrics mode behind. It goes too, since Iceberg refuses
        every other change until then.
        """
        update, schema = self.java.updateProperties(), self.table.java.schema()
        modes = [name for name in self.table.properties if name.startswith(METRICS_PREFIX)]
        lost = [name for name in modes if schema.findField(name.removeprefix(METRICS_PREFIX)) is None]
        for name, value in {**changes, **dict.fromkeys(lost)}.items():
            if value is None:
                update.remove(name)
            else:
                update.set(name, value)
        update.commit()

    def clean_up(self) -> None:
        """Delete the manifests of a transaction that is not sent."""
        SparkModule.of(self.table.spark).clean_up(self.java)


def _paths(name: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """Yield the path and type of a column and of the struct fields in it (see :class:`Columns`)."""
    from pyspark.sql.types import StructType

    if "." in name:
        return
    yield name, kind.simpleString()
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from ((f"{name}.{path}", inner) for path, inner in _paths(field.name, field.dataType))


def leaf_fields(
    struct: Mapping[str, Any], prefix: str = "", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any, int, tuple[int, ...]]]:
    """Yield the path, type and id of each field of a schema's JSON that is no struct, and its place in each struct."""
    for place, field in enumerate(struct["fields"]):
        path, kind, places = f"{prefix}{field['name']}", field["type"], (*above, place)
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from leaf_fields(kind, f"{path}.", places)
        else:
            yield path, kind, field["id"], places
