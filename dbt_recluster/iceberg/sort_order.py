"""A table's cluster key: its sort order, and a property for what no sort order can name.

A sort order has the leading columns of a key, or nothing where the key is a curve alone. The property names the whole
key, and counts only as long as it begins as the sort order does, which all writers go by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster import table_properties
from dbt_recluster.exceptions import (
    ClusterKeyError,
    CommitFailedError,
    ConcurrentChangeError,
    ReclusterError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.iceberg_table import Changes, Transaction
from dbt_recluster.key.cluster_key import ClusterKey, KeyField, parse_cluster_key
from dbt_recluster.key.transforms import Transform, transform_of_iceberg

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

METRICS_PREFIX = table_properties.METRICS_PREFIX
ROW_GROUP_BYTES = table_properties.ROW_GROUP_BYTES
FILE_FORMAT = "write.format.default"
_ROW_GROUP_BYTES = 4 * 1024 * 1024
_COLUMN_CHUNK_BYTES = 128 * 1024

_CUT_OFF = re.compile(r"truncate\((\d+)\)")
_CUT_OFF_BOUNDS = (
    "Bounds of {column} are cut off after {width} characters, so blocks of values that begin alike overlap, and no "
    f"merge changes that. To record whole ones: alter table {{table}} set tblproperties ('{METRICS_PREFIX}{{column}}' "
    "= 'full'), and for the next recluster to merge the blocks that are there: alter table {table} unset tblproperties "
    "if exists ('recluster.levels')"
)


def table_cluster_key(table: IcebergTable) -> ClusterKey | None:
    """Return the cluster key that a table has, or None: its sort order, or a key with a curve behind it.

    Raises:
        ClusterKeyError: The order has a direction, a null order or a transform that no cluster key has.
    """
    fields = json.loads(str(table.iceberg.SortOrderParser.toJson(table.java.sortOrder())))["fields"]
    order = tuple(_key_field(table, field) for field in fields)
    recorded = _recorded_curve(table)
    if recorded is not None and recorded.leading == order:
        return recorded
    return ClusterKey(order) if order else None


def sort_order_text(table: IcebergTable) -> str:
    """Return the sort order as ``SHOW TBLPROPERTIES`` lists it; empty if the table is unsorted."""
    order = table.java.sortOrder()
    return "" if order.isUnsorted() else str(table.iceberg.spark.Spark3Util.describe(order))


def is_cluster_key(table: IcebergTable, key: ClusterKey) -> bool:
    """Whether the table is under exactly this key."""
    try:
        return table_cluster_key(table) == key
    except ClusterKeyError:
        return False


def key_field_ids(table: IcebergTable, key: ClusterKey) -> tuple[int | None, ...]:
    """Return the field id of the column of each item of a key, None for a column that is gone."""
    ids = {path.lower(): field_id for path, field_id in table.field_ids.items()}
    return tuple(ids.get(item.column.lower()) for item in key.fields)


@dataclass(frozen=True)
class TableChange:
    """What a recluster changes of a table besides its blocks.

    Attributes:
        key: The key to cluster by, checked, with the properties that belong to it unless they are set; None changes
            neither.
        properties: Further properties to set, or to remove if they are None.
        replaces: The id of the sort order that the key may take the place of; None is any. Another one was set by
            somebody else meanwhile, and raises a CommitFailedError.
        field_ids: The field ids of the key's columns when the change was planned; None are any. Where others have
            these names since, rows are sorted by other columns than the key's: a ConcurrentChangeError.
    """

    key: ClusterKey | None = None
    properties: Changes = field(default_factory=dict)
    replaces: int | None = None
    field_ids: tuple[int | None, ...] | None = None

    def pending(self, table: IcebergTable) -> IcebergTable:
        """Return the table as it will be once this is committed. Iceberg may refuse the change."""
        if not self._differs(table):
            return table
        transaction = Transaction.begin(table)
        try:
            self.add_to(transaction)
        except ReclusterError:
            raise
        except Exception as e:
            raise UnsupportedTableError(
                f"Iceberg cannot change {table.name}: {table.explain(e)}. Nothing was changed; check its properties."
            ) from e
        return transaction.table

    def commit(self, table: IcebergTable) -> None:
        """Commit this alone, if anything differs."""
        with Transaction.alone(table) as transaction:
            self.add_to(transaction)

    def add_to(self, transaction: Transaction) -> None:
        """Add what differs to a transaction."""
        table = transaction.table
        if self.key and self.field_ids not in (None, key_field_ids(table, self.key)):
            raise ConcurrentChangeError(
                f"The columns of the cluster key {self.key} of {table.name} were renamed."
            )
        if self.key is not None and not is_cluster_key(table, self.key):
            if self.replaces not in (None, table.sort_order_id):
                raise CommitFailedError(
                    f"{table.name} was reclustered by {self.key} when another writer changed its sort order to "
                    f"{sort_order_text(table) or 'none'}, which stays; recluster it again, by the key to keep"
                )
            order, expressions = transaction.java.replaceSortOrder(), table.iceberg.expressions.Expressions
            for item in self.key.leading:
                name = "ref" if item.transform == Transform() else item.transform.name
                term = getattr(expressions, name)(item.column, *item.transform.arguments)
                order.asc(term, table.iceberg.NullOrder.NULLS_FIRST)
            order.commit()
        if missing := self._missing(table):
            transaction.set_properties(missing)

    def _differs(self, table: IcebergTable) -> bool:
        is_sorted = self.key is None or is_cluster_key(table, self.key)
        return not is_sorted or bool(self._missing(table))

    def _missing(self, table: IcebergTable) -> Changes:
        actual = table.properties
        needed: dict[str, str | None] = {**self.properties}
        if self.key is not None:
            wanted = clustering_properties(self.key, len(table.java.schema().columns()))
            needed |= {name: value for name, value in wanted.items() if name not in actual}
            ids, prefix = table.field_ids, table_properties.CURVE_PREFIX
            on_curve = {f"{prefix}{item.column}": ids.get(item.column) for item in self.key.on_curve}
            former = [name for name in actual if name.startswith(prefix) and name not in on_curve]
            needed |= dict.fromkeys(former)
            # Boundaries move with a column that was renamed.
            moved = {_column_id(actual[name]): actual[name] for name in former}
            needed |= {
                name: moved[column_id]
                for name, column_id in on_curve.items()
                if column_id in moved and name not in (*actual, *needed)
            }
            if self.key.curve:
                needed[table_properties.CLUSTER_BY] = str(self.key)
            elif _recorded_curve(table):
                needed |= dict.fromkeys((table_properties.CLUSTER_BY, table_properties.REST))
        return {name: value for name, value in needed.items() if actual.get(name) != value}


def check_bounds_are_recorded(table: IcebergTable, key: ClusterKey) -> None:
    """Make sure that new files will record bounds of a checked key: without bounds, no query skips a block.

    The message of the UnsupportedTableError names the property to change.
    """
    if _file_format(table.properties) == "avro":
        raise _no_bounds(
            table, "writes Avro files, which record no bounds of columns", FILE_FORMAT, "parquet"
        )
    for column, mode in _metrics_modes(table, [item.column for item in key.fields]).items():
        if mode in ("none", "counts"):
            what = f"records no bounds of {column} (metrics mode {mode})"
            raise _no_bounds(table, what, f"{METRICS_PREFIX}{column}", "full")


def cut_off_bounds(table: IcebergTable, key: ClusterKey, bounds: Sequence[pa.Array]) -> list[str]:
    """Return a warning about each column of the key of which new files will record the beginnings of values only.

    ``table`` is as the files will be written to it, and ``bounds`` are lower bounds of the key's items.
    """
    warnings = []
    modes = _metrics_modes(table, [item.column for item in key.fields])
    for item, lower in zip(key.fields, bounds, strict=True):
        width = _cut_off(modes[item.column])
        if width is None or not (pa.types.is_string(lower.type) or pa.types.is_binary(lower.type)):
            continue
        length = pc.utf8_length if pa.types.is_string(lower.type) else pc.binary_length
        if (pc.max(length(lower)).as_py() or 0) >= width:
            warnings.append(_CUT_OFF_BOUNDS.format(table=table.name, column=item.column, width=width))
    return warnings


def bounds_width(table: IcebergTable, column: str, *, in_key: bool) -> int | None:
    """Return the characters, or bytes, of a column's bounds in new files: None for all, 0 if no bounds are recorded.

    With ``in_key``, if the cluster key had the column.
    """
    properties = table.properties
    if _file_format(properties) == "avro":
        return 0
    if in_key and f"{METRICS_PREFIX}{column}" not in properties:
        return None
    mode = _metrics_modes(table, [column])[column]
    return None if mode == "full" else _cut_off(mode) or 0


def _file_format(properties: Mapping[str, str]) -> str:
    return properties.get(FILE_FORMAT, "parquet").lower()


def _metrics_modes(table: IcebergTable, columns: Sequence[str]) -> dict[str, str]:
    metrics = table.iceberg.MetricsConfig.forTable(table.java)
    return {column: str(metrics.columnMode(column).toString()) for column in dict.fromkeys(columns)}


def _cut_off(mode: str) -> int | None:
    """Return the length that a metrics mode cuts bounds off at, or None."""
    truncated = _CUT_OFF.fullmatch(mode)
    return int(truncated[1]) if truncated else None


def loses_row_ids(table: IcebergTable) -> bool:
    """Whether every rewrite gives rows new ids: those of format version 3, in ORC files (Iceberg 1.10)."""
    return (
        _file_format(table.properties) == "orc"
        and int(table.java.operations().current().formatVersion()) >= 3
    )


def clustering_properties(key: ClusterKey, columns: int) -> dict[str, str]:
    """Return the table properties that clustering works best with; a value that users have set is kept.

    - Full bounds of the key's columns. By default Iceberg truncates string bounds to 16 characters, so that keys with a
      common prefix all seem to overlap, and keeps no bounds beyond the first 100 columns.
    - Small row groups. A merge can skip row groups of a sorted file; by default a file has a single one.

    Args:
        key: The cluster key.
        columns: The table's number of columns; each column's share of a row group should be worth a read.
    """
    bounds = {f"{METRICS_PREFIX}{field.column}": "full" for field in key.fields}
    return {**bounds, ROW_GROUP_BYTES: str(max(_ROW_GROUP_BYTES, columns * _COLUMN_CHUNK_BYTES))}


def remove_clustering(table: IcebergTable, *, dry_run: bool = False) -> tuple[str | None, list[str]]:
    """Take what dbt-recluster keeps out of a table, in one commit, or say what that is.

    Data and Iceberg's own properties stay, except the distribution mode that came with a model's sort order.

    Returns:
        The sort order that is cleared, or None: one that no model has set stays. And the properties that are removed.
    """
    with Transaction.alone(table) as transaction:
        properties, order = table.properties, None
        names = sorted(name for name in properties if name.startswith("recluster."))
        if table_properties.CLUSTER_BY in names:
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

    Its boundaries name columns by their ids, so the key keeps its columns when these are renamed, as a sort order does.
    """
    properties = table.properties
    text = properties.get(table_properties.CLUSTER_BY)
    try:
        key = parse_cluster_key(text) if text else None
    except ClusterKeyError:
        return None
    if key is None or not key.curve:
        return None
    names = {field_id: path for path, field_id in table.field_ids.items()}
    fields = list(key.fields)
    for place, item in enumerate(fields):
        column_id = _column_id(properties.get(f"{table_properties.CURVE_PREFIX}{item.column}", ""))
        if column_id in names:
            fields[place] = replace(item, column=names[column_id])
    return replace(key, fields=tuple(fields))


def _column_id(boundaries: str) -> int | None:
    """Return the field id in recorded boundaries of a curve, or None."""
    try:
        recorded = json.loads(boundaries)["id"]
    except (ValueError, TypeError, KeyError):
        return None
    return recorded if isinstance(recorded, int) else None


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


def _no_bounds(table: IcebergTable, what: str, name: str, value: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{table.name} {what}, so no query would skip a block after a recluster. Nothing was changed. First run: "
        f"alter table {table.name} set tblproperties ('{name}' = '{value}')"
    )
