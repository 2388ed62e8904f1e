"""A table's cluster key: its sort order, and a property for the curve that no sort order can name.

All writers follow the sort order, which has the leading columns of the key, or none if the key is a curve alone. The
property names the whole key, and counts while its leading columns are those of the sort order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import ClusterKeyError, CommitFailedError, ConcurrentChangeError, UnsupportedTableError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable, PropertyChanges, Transaction
from dbt_recluster.iceberg.session.redaction import raise_as
from dbt_recluster.iceberg.table_properties import METRICS_PREFIX
from dbt_recluster.key.cluster_key import ClusterKey, KeyField, parse_cluster_key
from dbt_recluster.key.transforms import Transform, transform_of_iceberg
from dbt_recluster.key.types import value_type

CURVE_DIGEST = 12  # characters

FILE_FORMAT = "write.format.default"
DEFAULT_WIDTH = 16  # characters, or bytes, of bounds in new files, by Iceberg's default


def table_cluster_key(table: IcebergTable) -> ClusterKey | None:
    """Return the cluster key of a table, or None; a ClusterKeyError if no key has such a sort order."""
    fields = json.loads(str(table.iceberg.SortOrderParser.toJson(table.java.sortOrder())))["fields"]
    order = tuple(_key_field(table, field) for field in fields)
    recorded = _recorded_curve(table)
    if recorded is not None and recorded.leading != order:
        recorded = _renamed(table, recorded, order)
    return recorded or (ClusterKey(order) if order else None)


def sort_order_text(table: IcebergTable) -> str:
    """Return the sort order as in ``SHOW TBLPROPERTIES``, empty if the table is unsorted."""
    order = table.java.sortOrder()
    return "" if order.isUnsorted() else str(table.iceberg.spark.Spark3Util.describe(order))


def valid_cluster_key(table: IcebergTable) -> ClusterKey | None:
    """Return the cluster key of a table, or None also if its sort order is no key."""

    def read() -> ClusterKey | None:
        with suppress(ClusterKeyError):
            return table_cluster_key(table)
        return None

    return table.kept("cluster key", read)


def recorded_key(properties: Mapping[str, str]) -> ClusterKey | None:
    """Return the key that a model has set, or None."""
    text = properties.get(table_properties.CLUSTER_BY)
    try:
        return None if text is None else parse_cluster_key(text)
    except ClusterKeyError as e:
        raise ClusterKeyError(f"table property {table_properties.CLUSTER_BY}: {e}") from None


def is_cluster_key(table: IcebergTable, key: ClusterKey) -> bool:
    """Whether a table has exactly this cluster key."""
    return valid_cluster_key(table) == key


def key_field_ids(table: IcebergTable, key: ClusterKey) -> tuple[int | None, ...]:
    """Return the field id of the column of each key item, or None if the column was dropped."""
    ids = table.field_ids
    in_any_case = {path.lower(): field_id for path, field_id in ids.items()}
    return tuple(ids.get(item.column, in_any_case.get(item.column.lower())) for item in key.fields)


def curve_digest(table: IcebergTable, key: ClusterKey) -> str:
    """Return a digest of a key by the field ids of its columns, empty if the key has no curve."""
    if not key.curve:
        return ""
    ids = key_field_ids(table, key)
    items = [field.transform.text(str(one)) for field, one in zip(key.fields, ids, strict=True)]
    return hashlib.sha256(repr((items, key.curve)).encode()).hexdigest()[:CURVE_DIGEST]


def key_id(table: IcebergTable) -> tuple[int, str]:
    """Return what identifies a table's cluster key: the id of its sort order, and the digest of its curve."""
    key = valid_cluster_key(table)
    return table.sort_order_id, curve_digest(table, key) if key else ""


@dataclass(frozen=True)
class TableChange:
    """Changes to a table committed with its new blocks."""

    key: ClusterKey | None = None  # checked; its properties come with it, except those that are set already
    properties: PropertyChanges = field(default_factory=dict)
    # The `key_id` to replace, None for any. If it differs, another writer has set the key: a CommitFailedError.
    replaces: tuple[int, str] | None = None
    # Of the key's columns as planned, None for any. If they differ, rows are sorted by others: a ConcurrentChangeError.
    field_ids: tuple[int | None, ...] | None = None

    def pending(self, table: IcebergTable) -> IcebergTable:
        """Return the table as it will be after the commit; an UnsupportedTableError if Iceberg refuses the change."""
        is_sorted = self.key is None or is_cluster_key(table, self.key)
        if is_sorted and not self._missing(table):
            return table
        transaction = Transaction.begin(table)
        what, advice = f"Iceberg cannot change {table.name}", "Nothing was changed; check its properties."
        with raise_as(UnsupportedTableError, what, advice=advice, explain=table.explain):
            self.add_to(transaction)
        return transaction.table

    def commit(self, table: IcebergTable) -> None:
        """Commit this alone."""
        with Transaction.alone(table) as transaction:
            self.add_to(transaction)

    def add_to(self, transaction: Transaction) -> None:
        """Add the differences to a transaction."""
        table = transaction.table
        if self.key and self.field_ids not in (None, key_field_ids(table, self.key)):
            raise ConcurrentChangeError(f"The columns of the cluster key {self.key} of {table.name} were renamed.")
        if self.key is not None and not is_cluster_key(table, self.key):
            if self.replaces not in (None, now := key_id(table)):
                other = _recorded_curve(table) if now[1] else sort_order_text(table) or "none"
                raise CommitFailedError(
                    f"{table.name} was reclustered by {self.key} when another writer changed its key to {other}, "
                    "which stays. Rerun with the key you want"
                )
            order, expressions = transaction.java.replaceSortOrder(), table.iceberg.expressions.Expressions
            for item in self.key.leading:
                name = "ref" if item.transform == Transform() else item.transform.name
                term = getattr(expressions, name)(item.column, *item.transform.arguments)
                order.asc(term, table.iceberg.NullOrder.NULLS_FIRST)
            order.commit()
            table.forget()
            if table_properties.CLUSTER_BY not in {**table.properties, **self.properties}:
                transaction.set_properties({table_properties.SORT_ORDER: str(table.sort_order_id)})
        if missing := self._missing(table):
            transaction.set_properties(missing)

    def _missing(self, table: IcebergTable) -> PropertyChanges:
        """Return the properties to set, and to remove where they are None."""
        actual = table.properties
        properties: dict[str, str | None] = {**self.properties}
        if self.key is not None:
            with_key = key_properties(self.key, len(table.java.schema().columns()), actual)
            # Boundaries follow a renamed column.
            moved = {
                _column_id(actual[name]): actual[name]
                for name in with_key
                if name.startswith(table_properties.CURVE_PREFIX)
            }
            properties |= with_key
            for item in self.key.on_curve:
                name, column_id = table_properties.curve_property(item.column), table.field_ids.get(item.column)
                if name not in {*actual, *properties} and column_id in moved:
                    properties[name] = moved[column_id]
            if self.key.curve:
                properties[table_properties.CLUSTER_BY] = str(self.key)
            elif _recorded_curve(table):
                properties = {table_properties.CLUSTER_BY: None, **properties}
        return {name: value for name, value in properties.items() if actual.get(name) != value}


def check_bounds_are_recorded(table: IcebergTable, key: ClusterKey) -> None:
    """Raise an UnsupportedTableError if new files would record no bounds of a key: no query would skip a block."""
    what, name, value = "", FILE_FORMAT, "parquet"
    if _file_format(table) == "avro":
        what = "writes Avro files, which record no bounds of columns"
    for column in (item.column for item in key.fields):
        mode, width = _metrics_mode(table, column)
        if not what and width == 0:
            what = f"records no bounds of {column} (metrics mode {mode})"
            name, value = f"{METRICS_PREFIX}{column}", "full"
    if what:
        raise UnsupportedTableError(
            f"{table.name} {what}, so no query would skip a block after a recluster. Nothing was changed. First run: "
            f"alter table {table.name} set tblproperties ('{name}' = '{value}')"
        )


def cut_off_bounds(table: IcebergTable, key: ClusterKey, bounds: Sequence[pa.Array]) -> list[str]:
    """Return a warning for each key column whose bounds new files will truncate.

    ``table`` is as files will be written to it, and ``bounds`` are lower bounds of the key's items.
    """
    warnings = []
    for column, lower in zip((item.column for item in key.fields), bounds, strict=True):
        _, width = _metrics_mode(table, column)
        length = value_type(lower.type).width_of
        if not width or length is None:
            continue
        if (pc.max(length(lower)).as_py() or 0) >= width:
            warnings.append(
                f"Bounds of {column} are cut off after {width} characters, so blocks of values that begin alike "
                f"overlap, and no merge changes that. To record whole ones: alter table {table.name} set tblproperties "
                f"('{METRICS_PREFIX}{column}' = 'full'), and for the next recluster to merge the blocks that are "
                f"there: alter table {table.name} unset tblproperties if exists ('{table_properties.LEVELS}')"
            )
    return warnings


def bounds_width(table: IcebergTable, column: str, *, in_key: bool) -> int | None:
    """Return the length of a column's bounds in new files: None for whole ones, 0 for none.

    With ``in_key``, as if the column were in the cluster key.
    """
    if _file_format(table) == "avro":
        return 0
    is_set = not in_key or f"{METRICS_PREFIX}{column}" in table.properties
    return _metrics_mode(table, column)[1] if is_set else None


def _file_format(table: IcebergTable) -> str:
    return table.properties.get(FILE_FORMAT, "parquet").lower()


def _metrics_mode(table: IcebergTable, column: str) -> tuple[str, int | None]:
    """Return a column's metrics mode and the length of its bounds: None for whole ones, 0 for none."""
    mode = str(table.iceberg.MetricsConfig.forTable(table.java).columnMode(column).toString())
    truncated = re.fullmatch(r"truncate\((\d+)\)", mode)
    return mode, None if mode == "full" else int(truncated[1]) if truncated else 0


def loses_row_ids(table: IcebergTable) -> bool:
    """Whether a rewrite gives rows new ids, as Iceberg 1.10 does in ORC files of format version 3."""
    version = int(table.java.operations().current().formatVersion())
    return version >= 3 and _file_format(table) == "orc"


def clustering_properties(key: ClusterKey, columns: int) -> dict[str, str]:
    """Return the properties of a table with this key and number of columns, which do not replace the user's.

    - Full bounds of the key's columns. By default Iceberg truncates texts to 16 characters, so that keys with a common
      prefix seem to overlap, and records no bounds after the first 100 columns.
    - Small row groups, 4 MB or 128 KB for each column, which a merge of sorted files can skip. By default a file has
      one.
    """
    bounds = {f"{METRICS_PREFIX}{field.column}": "full" for field in key.fields}
    return {**bounds, table_properties.ROW_GROUP_BYTES: str(max(4 * 2**20, columns * 128 * 2**10))}


def key_properties(key: ClusterKey | None, columns: int, actual: Mapping[str, str]) -> dict[str, str | None]:
    """Return the properties that a table's key needs beside ``actual`` ones, and None for those of a former key."""
    on_curve = {table_properties.curve_property(item.column) for item in (key.on_curve if key else ())}
    of_curves = (table_properties.CURVE_PREFIX, *([] if on_curve else [table_properties.SETTLED]))
    former = [name for name in actual if name.startswith(of_curves) and name not in on_curve]
    properties = clustering_properties(key, columns) if key else {}
    return {**dict.fromkeys(former), **{name: value for name, value in properties.items() if name not in actual}}


def remove_clustering(table: IcebergTable, *, dry_run: bool = False) -> tuple[str | None, list[str]]:
    """Remove everything that dbt-recluster keeps in a table, in one commit, or with ``dry_run`` only return it.

    Data and Iceberg's own properties stay, except the distribution mode that came with a model's sort order. Return the
    sort order to clear, or None if neither a model nor a recluster has set it, and the properties to remove.
    """
    with Transaction.alone(table) as transaction:
        properties, order = table.properties, None
        names = sorted(name for name in properties if name.startswith(table_properties.PREFIX))
        is_by_hand = properties.get(table_properties.SORT_ORDER) == str(table.sort_order_id)
        if table_properties.CLUSTER_BY in names or is_by_hand:
            order = sort_order_text(table) or None
            mode = table_properties.DISTRIBUTION_MODE
            if properties.get(mode) in ("range", "none"):  # a model's key sets no other
                names.append(mode)
        if not dry_run:
            if order:
                transaction.java.replaceSortOrder().commit()
            transaction.set_properties(dict.fromkeys(names))
    return order, names


def _recorded_curve(table: IcebergTable) -> ClusterKey | None:
    """Return the key of the table's property if it has a curve.

    The properties of its boundaries have the columns' field ids, by which the key follows renamed columns.
    """
    properties = table.properties
    try:
        key = parse_cluster_key(properties.get(table_properties.CLUSTER_BY, ""))
    except ClusterKeyError:
        return None
    if not key.curve:
        return None
    names = {field_id: path for path, field_id in table.field_ids.items()}
    fields = list(key.fields)
    for place, item in enumerate(fields):
        column_id = _column_id(properties.get(table_properties.curve_property(item.column)))
        if column_id in names:
            fields[place] = replace(item, column=names[column_id])
    return replace(key, fields=tuple(fields))


def _renamed(table: IcebergTable, recorded: ClusterKey, order: tuple[KeyField, ...]) -> ClusterKey | None:
    """Return the recorded key with the columns of the sort order, if these are its own under new names, or None.

    They are if the levels are those of such a key, or if its former names are gone.
    """
    key = replace(recorded, fields=(*order, *recorded.on_curve))
    pairs = list(zip(recorded.leading, order, strict=False))
    if len(order) != len(recorded.leading) or any(old.transform != new.transform for old, new in pairs):
        return None
    is_gone = all(old == new or old.column not in table.field_ids for old, new in pairs)
    levels = table.properties.get(table_properties.LEVELS)
    digest = table_properties.LEVELS.load(levels, lambda of_levels: of_levels["curve"])
    return key if is_gone or digest == curve_digest(table, key) else None


def _column_id(boundaries: str | None) -> int | None:
    """Return the field id in a property of a curve's boundaries, or None."""
    return table_properties.CURVE_PREFIX.load(boundaries, lambda value: int(value["id"]))


def _key_field(table: IcebergTable, field: Mapping[str, Any]) -> KeyField:
    column = str(table.java.schema().findColumnName(field["source-id"]))
    transform = transform_of_iceberg(field["transform"])
    is_ascending = (field["direction"], field["null-order"]) == ("asc", "nulls-first")
    if is_ascending and transform is not None:
        return KeyField(column, transform)
    raise ClusterKeyError(
        f"{table.name} is sorted by {sort_order_text(table)}, which is not a cluster key: every item of a key is "
        "ascending, nulls first, by a column or a monotonic expression. Set another key with cluster_by."
    )
