"""An Iceberg table of one of Spark's catalogs: its snapshots and branches as Python values, and transactions on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dbt_recluster.exceptions import CommitFailedError, NotAnIcebergTableError, OptionError, UnsupportedTableError
from dbt_recluster.iceberg.catalog_tables import load_table
from dbt_recluster.iceberg.session.environment import check_version
from dbt_recluster.iceberg.session.jvm import (
    OBJECT,
    STRING,
    JavaFunctions,
    activate,
    java_items,
    java_list,
    java_map,
    java_session,
    jvm,
)
from dbt_recluster.iceberg.session.redaction import raise_as, short_message
from dbt_recluster.iceberg.table_properties import METRICS_PREFIX
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.sql import literals
from dbt_recluster.key.types import Time, column_type, value_type
from dbt_recluster.names import canonical_name, table_lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

GREATEST_LONG = 2**63 - 1
MAIN = "main"
_SNAPSHOT = "org.apache.iceberg.Snapshot"


def whole_number(text: str) -> int | None:
    """Parse the value of a property or a summary; None if it is not a whole number that Java's long holds."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(GREATEST_LONG))
    return int(text) if is_number and int(text) <= GREATEST_LONG else None


@dataclass(frozen=True)
class Snapshot:
    """One commit."""

    id: int
    parent: int | None  # which may have expired
    sequence_number: int  # ascends with commits; 0 in tables of format version 1
    at: datetime  # of the commit, UTC
    operation: str  # append, overwrite, delete or replace
    summary: Mapping[str, str]  # Iceberg's figures, and ours under "recluster."

    def count(self, name: str) -> int | None:
        """Return a count of the summary, or None if it is missing."""
        return whole_number(self.summary.get(name, ""))


def read_snapshots(spark: SparkSession, snapshots: Any) -> list[Snapshot]:
    """Read all snapshots of a Java list in one call."""
    text = jvm(spark).remember(("snapshot as text",), partial(_snapshot_as_text, spark))
    records = JavaFunctions(spark).records(snapshots.stream().map(text).iterator())
    return [
        Snapshot(
            id=int(snapshot),
            parent=None if parent == "null" else int(parent),
            sequence_number=int(sequence),
            at=datetime.fromtimestamp(int(millis) / 1000, tz=timezone.utc),
            operation=operation,
            summary=json.loads(summary) or {},
        )
        for snapshot, parent, sequence, millis, operation, summary in records
    ]


def _snapshot_as_text(spark: SparkSession) -> Any:
    """Return a Java function that writes a snapshot as text.

    Iceberg's ``SnapshotParser`` would read the manifests of snapshots of early writers, which have no manifest list.
    """
    functions, mapper = JavaFunctions(spark), jvm(spark).org.apache.iceberg.util.JsonUtil.mapper()
    kind = str(mapper.getClass().getName())
    write = functions.method(kind, "writeValueAsString", STRING, OBJECT).bindTo(mapper)
    summary = functions.method(_SNAPSHOT, "summary", "java.util.Map")
    values = [
        ("snapshotId", "long"),
        ("parentId", "java.lang.Long"),
        ("sequenceNumber", "long"),
        ("timestampMillis", "long"),
        ("operation", STRING),
        functions.then(summary, functions.as_type(write, STRING, "java.util.Map")),
    ]
    return functions.function(functions.fields(_SNAPSHOT, values))


def branch_heads(table: Any) -> dict[str, int]:
    """Return the current snapshot of each branch of a Java table."""
    refs = {str(ref.getKey()): ref.getValue() for ref in java_items(table.refs().entrySet())}
    return {name: int(ref.snapshotId()) for name, ref in refs.items() if ref.isBranch()}


def _line(by_id: Mapping[int, Snapshot], head: int | None) -> list[Snapshot]:
    """Return a snapshot and its known ancestors, oldest first."""
    line = []
    while head is not None and head in by_id:
        line.append(by_id[head])
        head = line[-1].parent
    return line[::-1]


T = TypeVar("T")

# Properties to set, or to remove if they are None.
PropertyChanges = Mapping[str, str | None]


def decoded_text(values: pa.ChunkedArray) -> pa.Array:
    """Decode texts as Iceberg does, with replacement characters for invalid UTF-8; other values are unchanged."""
    if not pa.types.is_string(values.type):
        return values
    return pa.array(value_type(values.type).comparable(values), values.type)


@dataclass(eq=False, repr=False)
class IcebergTable:
    """A table as of its last :meth:`refresh`; loading refreshes it."""

    spark: SparkSession
    name: str  # as the caller gave it
    identifier: str  # in full, each part in backquotes
    java: Any  # the org.apache.iceberg.Table
    # The branch that is read and written, None for main. Schema, sort order and properties are shared.
    branch: str | None = None
    _kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def load(cls, spark: SparkSession, name: str) -> IcebergTable:
        """Load a table; a partial name counts from the session's current catalog and namespace.

        Raises:
            NotAnIcebergTableError: There is no such table, it has another format or is a view, or the name is that of a
                branch, a tag, an older snapshot, the change log or a metadata table.
            CatalogError: The catalog does not start.
            SparkEnvironmentError: This version of Spark is not supported.
        """
        check_version(spark)
        activate(spark)
        table = cls(spark, name, *load_table(spark, name))
        table.refresh()
        return table

    def on_branch(self, branch: str) -> IcebergTable:
        """Return the table on a branch; an OptionError if it has no such branch."""
        other = replace(self, branch=None if branch == MAIN else branch)
        other.current_snapshot()
        return other

    def refresh(self) -> None:
        """Load the current metadata; a catalog may return a cached table."""
        self.java.refresh()
        self.forget()

    @property
    def spec_id(self) -> int:
        """The id of the current partition spec."""
        return int(self.java.spec().specId())

    def spec_fields(self, spec_id: int) -> list[dict[str, Any]]:
        """Return the fields of a partition spec, as in Iceberg's JSON."""
        return list(json.loads(str(self.iceberg.PartitionSpecParser.toJson(self.java.specs().get(spec_id))))["fields"])

    @property
    def sort_order_id(self) -> int:
        """The id of the current sort order, 0 if unsorted."""
        return int(self.java.sortOrder().orderId())

    @property
    def schema_json(self) -> str:
        """The current schema as Iceberg's JSON."""
        return str(self.iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def iceberg(self) -> Any:
        """The Java package ``org.apache.iceberg``."""
        return jvm(self.spark).org.apache.iceberg

    @property
    def lock_name(self) -> str:
        """The name of the table's lock (see :func:`table_lock`)."""
        return canonical_name(self.identifier)

    @property
    def uuid(self) -> str:
        """The table's uuid; a table that is dropped and created again gets another."""
        return str(self.java.uuid())

    @property
    def metadata_file(self) -> str:
        """The current metadata file; every commit writes a new one."""
        return str(self.java.operations().current().metadataFileLocation())

    def earlier_metadata_files(self) -> list[str]:
        """Return the metadata files of earlier commits that are still logged, oldest first."""
        return [str(entry.file()) for entry in java_items(self.java.operations().current().previousFiles())]

    @property
    def snapshot_id(self) -> int | None:
        """The id of the current snapshot, None if the table is empty."""
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
        """Whether the table has a branch besides this one."""
        return bool(branch_heads(self.java).keys() - {self.branch or MAIN})

    def current_snapshot(self) -> Snapshot | None:
        """Return the current snapshot, None if the table is empty."""
        snapshot_id = self.snapshot_id
        return None if snapshot_id is None else self.snapshot(snapshot_id)

    def snapshots(self) -> list[Snapshot]:
        """Return the current snapshot and its ancestors that have not expired, oldest first."""
        return _line({s.id: s for s in self._known_snapshots()}, self.snapshot_id)

    def history(self) -> list[Snapshot]:
        """Return the snapshots of the branch that have not expired, oldest first.

        A replaced main branch begins a new line, and the table keeps the snapshots of the old one, which come before.
        """
        snapshots = {s.id: s for s in self._known_snapshots()}
        line = _line(snapshots, self.snapshot_id)
        if self.branch is not None or len(line) == len(snapshots):
            return line
        current = [int(entry.snapshotId()) for entry in java_items(self.java.history())]
        while line and line[0].parent is None and (ids := {s.id for s in line}):
            first = next((place for place, snapshot_id in enumerate(current) if snapshot_id in ids), 0)
            current = current[:first]
            before = _line(snapshots, current[-1]) if current else []
            if not before:
                break
            line = [*before, *line]
        return line

    def _known_snapshots(self) -> list[Snapshot]:
        """Return all snapshots of the table, in the order of their commits."""
        return read_snapshots(self.spark, java_list(self.spark, self.java.snapshots()))

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, or None if it has expired."""
        java = self.java.snapshot(snapshot_id)
        return None if java is None else read_snapshots(self.spark, java_list(self.spark, [java]))[0]

    def is_ancestor(self, snapshot_id: int, of: int) -> bool:
        """Whether a snapshot is ``of`` or an ancestor of it that has not expired."""
        return bool(self.iceberg.util.SnapshotUtil.isAncestorOf(self.java, of, snapshot_id))

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether a snapshot has not expired."""
        return self.java.snapshot(snapshot_id) is not None

    def manifest_list(self, snapshot_id: int) -> str:
        """Return the manifest list of a snapshot, or the table's location if an early writer made none."""
        return str(self.java.snapshot(snapshot_id).manifestListLocation() or self.java.location())

    def may_have_deletes(self, snapshot_id: int) -> bool:
        """Whether a snapshot has delete files, or its summary does not count them."""
        return str(self.java.snapshot(snapshot_id).summary().get("total-delete-files")) != "0"

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, read once after each refresh and change."""
        return dict(self.kept("properties", lambda: java_map(self.spark, self.java.properties())))

    def kept(self, name: str, read: Callable[[], T]) -> T:
        """Return what ``read`` reads of properties and sort order, read once after each refresh and change."""
        kept = self._kept  # another thread may forget meanwhile
        if name not in kept:
            kept[name] = read()
        value: T = kept[name]
        return value

    def forget(self) -> None:
        """Read again what is kept when it is next asked for."""
        self._kept = {}

    def number_property(self, name: str, default: int, least: int = 1, most: int = GREATEST_LONG) -> int:
        """Return a property; an UnsupportedTableError if it is not a whole number from ``least`` to ``most``."""
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
        """Set a property, or remove it with None, and commit."""
        with Transaction.alone(self) as transaction:
            transaction.set_properties({name: value})

    def commit(self, transaction: Any) -> None:
        """Commit a transaction of a recluster."""
        transaction.commitTransaction()
        self.forget()

    def columns(self) -> Columns:
        """Return the columns and struct fields with Spark's types, and Iceberg's ``uuid``.

        If Spark has no type for a column, such as Iceberg's ``time``, that is an UnsupportedTableError.
        """
        from pyspark.sql.types import StructType

        self._check_schema_of_snapshot()
        # spark.table() would load the metadata again.
        with self.as_unsupported():
            schema = self.iceberg.spark.SparkSchemaUtil.convert(self.java.schema())
        fields = StructType.fromJson(json.loads(schema.json())).fields
        # The text of a struct's type, unlike the type, does not quote names such as `a,b`.
        types = {path: kind for field in fields for path, kind in _paths(field.name, field.dataType)}
        types |= {path: "uuid" for path, kind, _ in self.primitive_fields() if kind == "uuid" and path in types}
        return Columns(tuple(field.name for field in fields), types, self.case_sensitive)

    def _check_schema_of_snapshot(self) -> None:
        """Refuse a snapshot that cannot be rewritten by the table's schema, by which Iceberg reads it.

        After a full refresh, a branch or an older snapshot may have other types under the same field ids.
        """
        snapshot_id, branch, lost = self.snapshot_id, self.branch, []
        schema_id = None if snapshot_id is None else self.java.snapshot(snapshot_id).schemaId()
        if schema_id is None or schema_id == self.java.schema().schemaId():
            return
        former = json.loads(self.iceberg.SchemaParser.toJson(self.java.schemas().get(schema_id)))
        types = {field_id: kind for _, kind, field_id, _ in leaf_fields(json.loads(self.schema_json))}
        for path, kind, field_id, _ in leaf_fields(former):
            now = types.get(field_id)
            if branch is not None if now is None else not self._is_promotion(kind, now):
                lost.append(f"{path} ({kind}, now {now or 'dropped'})")
        if lost:
            remedy = f"alter table {self.name} create or replace branch `{branch}`"
            raise UnsupportedTableError(
                f"{self.name}{f', branch {branch}' if branch else ''}: its snapshot is of another schema: "
                f"{', '.join(lost)}. {f'Make the branch again: {remedy}' if branch else 'Build the table again'}"
            )

    def _is_promotion(self, kind: Any, wider: Any) -> bool:
        """Whether Iceberg reads values of a type, as in a schema's JSON, as another."""
        if not (isinstance(kind, str) and isinstance(wider, str)):
            return bool(kind == wider)
        of = self.iceberg.types.Types.fromPrimitiveString
        return bool(self.iceberg.types.TypeUtil.isPromotionAllowed(of(kind), of(wider)))

    @property
    def case_sensitive(self) -> bool:
        """Whether the session distinguishes ``k`` from ``K``."""
        return str(self.spark.conf.get("spark.sql.caseSensitive")).lower() == "true"

    def primitive_fields(self) -> list[tuple[str, str, int]]:
        """Return the path, Iceberg type and field id of each column and struct field of a primitive type."""
        leaves = leaf_fields(json.loads(self.schema_json))
        return [(path, kind, field_id) for path, kind, field_id, _ in leaves if isinstance(kind, str)]

    @property
    def field_ids(self) -> dict[str, int]:
        """The field ids of :meth:`primitive_fields`, by path."""
        return {path: field_id for path, _, field_id in self.primitive_fields()}

    def check_writes_reach_main(self) -> None:
        """Refuse a session whose ``spark.wap.branch`` diverts writes from the main branch."""
        if self.branch is not None:
            return
        branch = self.spark.conf.get("spark.wap.branch", None)
        if branch and self.properties.get("write.wap.enabled", "false").lower() == "true":
            raise NotAnIcebergTableError(
                f"spark.wap.branch sends writes to branch {branch} of {self.name}, and the main branch would be "
                "reclustered. Name the branch, or publish it and unset spark.wap.branch first."
            )

    def metadata(self, which: str) -> DataFrame:
        """Read a metadata table, such as ``ALL_FILES``."""
        from pyspark.sql import DataFrame

        kind = getattr(self.iceberg.MetadataTableType, which)
        load = self.iceberg.spark.SparkTableUtil.loadMetadataTable
        return DataFrame(load(java_session(self.spark), self.java, kind), self.spark)

    def printed(self, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
        """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds."""
        if isinstance(kind := column_type(spark_type), Time):
            values = [value.cast(kind.whole).cast(kind.arrow) for value in values]
        show = "lower(hex(value))" if spark_type == "binary" else "cast(value as string)"
        texts = f"transform({literals(values, spark_type)}, value -> coalesce({show}, 'NULL'))"
        row = self.spark.sql(f"select {texts}").first() if values else None
        return [str(text) for text in row[0]] if row is not None else []

    def as_unsupported(self) -> AbstractContextManager[None]:
        """Return a context that raises an error of Spark as UnsupportedTableError."""
        return raise_as(UnsupportedTableError, f"{self.name} cannot be read by Spark", explain=self.explain)

    def explain(self, error: BaseException) -> str:
        """Return an error's message, with the name of a property that Java cannot parse as a number."""
        message, wrong = short_message(error), []
        if "For input string: " in message:
            wrong = [name for name, value in self.properties.items() if f'"{value}"' in message]
        return f"{message}, the value of {' or '.join(wrong)}" if wrong else message


@dataclass(frozen=True)
class Transaction:
    """An open transaction, and the table as it leaves it, whose data cannot be read; files can be written to it."""

    java: Any  # the org.apache.iceberg.Transaction
    table: IcebergTable
    base: int | None  # the snapshot that it began on

    @classmethod
    def begin(cls, table: IcebergTable) -> Transaction:
        """Refresh the table and begin a transaction on it."""
        java = table.java.newTransaction()
        table.forget()
        changed = replace(table, java=java.table())
        return cls(java, changed, changed.snapshot_id)

    @classmethod
    @contextmanager
    def alone(cls, table: IcebergTable) -> Iterator[Transaction]:
        """Begin a transaction, and commit the changes that the block adds to it."""
        failure = raise_as(CommitFailedError, f"{table.name} could not be changed", explain=table.explain)
        with failure, table_lock(table.lock_name):
            table.refresh()
            transaction = cls.begin(table)
            yield transaction
            transaction.java.commitTransaction()
            table.refresh()

    def set_properties(self, changes: PropertyChanges) -> None:
        """Set properties, and remove those that are None.

        Also removes the metrics modes of struct fields that were dropped or renamed, with which Iceberg refuses any
        change.
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
        self.table.forget()


def _paths(name: str, kind: DataType) -> Iterator[tuple[str, str]]:
    """Yield the path and type of a column and of its struct fields (see :class:`Columns`)."""
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
    """Yield the path, type, id and places of each leaf of a schema's JSON: a field that is not a struct."""
    for place, column in enumerate(struct["fields"]):
        path, kind, places = f"{prefix}{column['name']}", column["type"], (*above, place)
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from leaf_fields(kind, f"{path}.", places)
        else:
            yield path, kind, column["id"], places
