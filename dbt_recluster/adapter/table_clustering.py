"""The clustering and the columns of a table, those of its model, and the changes from one to the other.

No sort order makes a writer sort along a curve, so the queries of loads are sorted along it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa
from dbt.adapters.base.column import Column

from dbt_recluster.clustering.table_curve import recorded_curve
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.sort_order import clustering_properties, key_properties, recorded_key
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CARRIED_OVER, CLUSTER_BY, DISTRIBUTION_MODE, METRICS_PREFIX
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns, base_type, decimal_digits, quote, quote_path
from dbt_recluster.key.sql import KeySql
from dbt_recluster.key.transforms import TRANSFORMS, Span, Truncate
from dbt_recluster.operations.model_options import ModelOptions

# Spark's value of a property that looks like a secret: a key on a column `url` does, and boundaries may.
_REDACTED = "*********(redacted)"

# Prefixes of the properties that record the model's key and options, and of all that the adapter reads.
_RECORDED = (CLUSTER_BY, AUTO_KEY, table_properties.OPTION_PREFIX)
_OF_KEY = (table_properties.CURVE_PREFIX, table_properties.SETTLED, METRICS_PREFIX, table_properties.ROW_GROUP_BYTES)
_COMPARED = (*_RECORDED, *_OF_KEY, *CARRIED_OVER, DISTRIBUTION_MODE)

_FUNCTIONS = (*(f"{kind.name}s" for kind in TRANSFORMS if issubclass(kind, Span)), Truncate.name, "bucket")
# An item of a sort order in SHOW TBLPROPERTIES: `name ASC NULLS FIRST`, `truncate(name, 4) DESC NULLS LAST`.
_SORT_ITEM = re.compile(
    rf"(?:({'|'.join(_FUNCTIONS)})\((.+?)(?:, (\d+))?\)|(.+?))"
    r" ((?:ASC|DESC) NULLS (?:FIRST|LAST))(?:, |$)"
)


@dataclass(frozen=True)
class TableClustering:
    """A table's sort order, as Iceberg's text or empty, and its properties."""

    sort_order: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, rows: Iterable[tuple[str, str]]) -> TableClustering:
        """Read the rows of ``SHOW TBLPROPERTIES``, which lists the sort order among the properties."""
        properties = {str(name): str(value) for name, value in rows}
        return cls(properties.pop("sort-order", ""), properties)

    @property
    def is_redacted(self) -> bool:
        """Whether Spark redacts the sort order or a property that the adapter reads."""
        return self.sort_order == _REDACTED or any(
            value == _REDACTED and name.startswith(_COMPARED) for name, value in self.properties.items()
        )

    @property
    def cluster_by(self) -> str | None:
        """The key that a model has set, or None."""
        return self.properties.get(CLUSTER_BY)

    @property
    def is_of_model(self) -> bool:
        """Whether a model has set a key, or has ``cluster_by: auto``."""
        return CLUSTER_BY in self.properties or AUTO_KEY in self.properties

    def has_curve(self, key: ClusterKey) -> bool:
        """Return whether the boundaries of a key's curve are recorded."""
        return recorded_curve(self.properties, key) is not None

    @property
    def carried_over(self) -> dict[str, str]:
        """The properties that a table in place of this one inherits."""
        properties = {name: self.properties.get(name, _REDACTED) for name in CARRIED_OVER}
        return {name: value for name, value in properties.items() if value != _REDACTED}

    @property
    def sort_columns(self) -> list[str]:
        """The columns of the sort order, most significant first."""
        return [item[2] or item[4] for item in _SORT_ITEM.finditer(self.sort_order)]

    @property
    def metrics(self) -> dict[str, str]:
        """The columns and struct fields with a metrics mode, by the property of each."""
        return {n: n.removeprefix(METRICS_PREFIX) for n in self.properties if n.startswith(METRICS_PREFIX)}


@dataclass(frozen=True)
class ClusteringChange:
    """The changes to a table."""

    # The end of ``ALTER TABLE ... WRITE``: ``ordered by ...``, ``locally ordered by ...`` or ``unordered``.
    order: str | None = None
    # To set after the order, which itself sets the distribution mode, or to remove with None.
    properties: PropertyChanges = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.order or self.properties)

    @property
    def set_properties(self) -> dict[str, str]:
        """The properties to set."""
        return {name: value for name, value in self.properties.items() if value is not None}

    @property
    def unset_properties(self) -> list[str]:
        """The properties to remove."""
        return [name for name, value in self.properties.items() if value is None]


@dataclass(frozen=True)
class LoadedInto:
    """How a node loads an existing table."""

    inserts: bool = False  # whether its statements keep the order of a query; a merge does not
    partition_by: tuple[str, ...] = ()  # the partition expressions

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LoadedInto:
        """Read a node's config."""
        strategy = config.get("incremental_strategy") or "append"
        expressions = config.get("partition_by") or ()
        partition_by = (expressions,) if isinstance(expressions, str) else tuple(map(str, expressions))
        return cls(config.get("materialized") == "incremental" and strategy != "merge", partition_by)

    @property
    def partitions(self) -> ClusterKey | None:
        """The partitions as a sort key, or None if there are none, or without an order, such as buckets."""
        try:
            return parse_cluster_key(self.partition_by) if self.partition_by else None
        except ClusterKeyError:
            return None

    @property
    def can_be_sorted(self) -> bool:
        """Whether the query of a load can be sorted by partition first, so that few tasks write to each."""
        return self.inserts and (not self.partition_by or self.partitions is not None)


def with_choice(options: ModelOptions, actual: TableClustering) -> ModelOptions:
    """Return options under ``auto`` with what a table records of it, and the key that was chosen."""
    with suppress(ClusterKeyError):  # it is damaged, and another one is chosen
        key = recorded_key(actual.properties)
        return replace(options, auto=actual.properties.get(AUTO_KEY, options.auto), cluster_by=key)
    return options


def creation_properties(options: ModelOptions) -> dict[str, str]:
    """Return the properties that a clustered table needs before its first blocks are written."""
    key = options.cluster_by
    return {**_recorded(options), **(clustering_properties(key, _width(options)) if key else {})}


def _recorded(options: ModelOptions) -> dict[str, str]:
    values = {CLUSTER_BY: options.cluster_by, str(AUTO_KEY): options.auto}
    properties = {name: str(value) for name, value in values.items() if value is not None}
    return {**properties, **options.properties()} if properties else {}


def _width(options: ModelOptions) -> int:
    """Return the number of the model's columns, 0 if they are not known."""
    return len(options.columns.names) if options.columns else 0


def clustering_change(
    desired: ModelOptions,
    actual: TableClustering,
    tblproperties: Mapping[str, str] | None = None,
    loaded: LoadedInto | None = None,
) -> ClusteringChange:
    """Return the change that gives a table the clustering of its model, whose ``tblproperties`` take precedence.

    ``loaded`` is how the node loads the table, or None for a table that is replaced.
    """
    key, configured = desired.cluster_by, dict(tblproperties or {})
    if not (desired.is_clustered or actual.is_of_model):
        return ClusteringChange()
    keeps_order = key is None and (desired.auto is not None or actual.cluster_by is None)  # set by hand, if any
    mode = configured.get(DISTRIBUTION_MODE) or _mode(desired, actual, loaded or LoadedInto())
    order = None if keeps_order else _order(key, actual, mode)
    former = dict.fromkeys(name for name in actual.properties if name.startswith(_RECORDED))
    with_key = key_properties(key, _width(desired), {**actual.properties, **configured})
    properties: dict[str, str | None] = {**former, **_recorded(desired), **({} if keeps_order else with_key)}
    if key is None and not keeps_order:
        properties[table_properties.LEVELS] = None
    configured_options = {name for name in configured if name.startswith(table_properties.OPTION_PREFIX)}
    changes = {n: v for n, v in properties.items() if actual.properties.get(n) != v and n not in configured_options}
    modes = {"unordered": "none", "ordered": "range"}  # that WRITE sets
    mode_after_order = modes.get((order or "").partition(" ")[0], actual.properties.get(DISTRIBUTION_MODE))
    if mode is None and mode_after_order is not None and not keeps_order:
        changes[DISTRIBUTION_MODE] = None
    elif mode is not None and mode_after_order != mode:
        changes[DISTRIBUTION_MODE] = mode
    return ClusteringChange(order, changes)


def lost_metrics(actual: TableClustering, columns: Columns) -> ClusteringChange:
    """Return the removal of the metrics modes of columns and fields that the table's ``columns`` lack.

    Iceberg keeps those of dropped struct fields, and of a table that is replaced, and then refuses every other change
    of properties.
    """
    lost = [name for name, path in actual.metrics.items() if columns.lacks(path)]
    return ClusteringChange(properties=dict.fromkeys(lost))


def _mode(desired: ModelOptions, actual: TableClustering, loaded: LoadedInto) -> str | None:
    """Return the distribution mode for loads, or None for Iceberg's default."""
    key = desired.cluster_by
    if key is None:
        return None
    if desired.sort_on_load and loaded.can_be_sorted and actual.has_curve(key):
        # The query is sorted; another shuffle would undo that.
        return "none" if key.leading or loaded.partition_by else None
    return None if not key.leading else "range" if desired.sort_on_load else "none"


def _order(key: ClusterKey | None, actual: TableClustering, mode: str | None) -> str | None:
    """Return the end of ``ALTER TABLE ... WRITE``, or None to keep the order."""
    if actual.sort_order == ("" if key is None else key.description()):
        return None
    if key is None or not key.leading:
        return "unordered"
    return f"{'ordered by' if mode == 'range' else 'locally ordered by'} {key.ddl()}"


def restored_order(before: TableClustering, after: TableClustering) -> ClusteringChange:
    """Return the change that restores a replaced table's sort order, which Iceberg drops (apache/iceberg#4889)."""
    if not before.sort_columns or after.sort_order == before.sort_order:
        return ClusteringChange()  # unsorted before, or redacted
    items = []
    for function, column, width, name, direction in _SORT_ITEM.findall(before.sort_order):
        arguments = ", ".join(filter(None, [width, quote_path(column or name)]))
        items.append(f"{function}({arguments}) {direction}" if function else f"{arguments} {direction}")
    mode = before.properties.get(DISTRIBUTION_MODE)
    is_kept = mode is None or mode == after.properties.get(DISTRIBUTION_MODE)
    return ClusteringChange(f"locally ordered by {', '.join(items)}", {} if is_kept else {DISTRIBUTION_MODE: str(mode)})


def sorted_along_curve(
    query: str,
    key: ClusterKey,
    properties: Mapping[str, str],
    columns: Columns,
    partitions: ClusterKey | None,
) -> str | None:
    """Return a query sorted by partitions and along the curve, or None without boundaries that fit its columns."""
    curve = recorded_curve(properties, key)
    if curve is None:
        return None
    try:
        key, partitions = key.check(columns), partitions and partitions.check(columns)
        places = (f"place_{number}" for number in count())
        place = next(p for p in places if not any(name.lower().startswith(p) for name in columns.names))
        placed = KeySql(key, columns.types, curve, place).query_of_load(query, curve)
    except (ClusterKeyError, ValueError, pa.ArrowException):
        return None  # boundaries of another type, or a column that only the table has
    items = [partitions.order_by(columns) if partitions else "", key.order_by(columns), f"{place}_of_load"]
    items += [quote_path(field.column) for field in key.on_curve]
    selected = ", ".join(map(quote, columns.names))
    return f"select {selected} from (\n{placed}\n)\norder by {', '.join(filter(None, items))}"


@dataclass(frozen=True)
class SchemaChanges:
    """The differences between the columns that a model selects and those of its table."""

    added: Sequence[Column] = ()  # columns of the model that the table lacks
    missing: Sequence[Column] = ()  # columns of the table that the model lacks
    retyped: Sequence[tuple[Column, Column]] = ()  # the table's column and the model's, of different types
    case_sensitive: bool = False  # whether ``k`` and ``K`` are two columns

    @classmethod
    def between(cls, model: Sequence[Column], table: Sequence[Column], case_sensitive: bool) -> SchemaChanges:
        """Compare columns: names as the session does, types as Iceberg stores them."""
        of_model, of_table = (
            {_comparable(column.name, case_sensitive): column for column in columns} for columns in (model, table)
        )
        added = [column for name, column in of_model.items() if name not in of_table]
        missing = [column for name, column in of_table.items() if name not in of_model]
        both = [(of_table[name], of_model[name]) for name in of_table if name in of_model]
        retyped = [(old, new) for old, new in both if _stored(old.data_type) != _stored(new.data_type)]
        return cls(added, missing, retyped, case_sensitive)

    def __bool__(self) -> bool:
        return bool(self.added or self.missing or self.retyped)

    def check_types(self, relation: str) -> None:
        """Refuse a change of type that Iceberg does not support."""
        for old, new in self.retyped:
            if not _is_widened(_stored(old.data_type), _stored(new.data_type)):
                raise OptionError(
                    f"{old.name} of {relation} is {old.data_type}, and the model now selects {new.data_type}. Iceberg "
                    "only widens types: int to bigint, float to double, and decimals to more digits before the "
                    f"point. Cast {old.name} to {old.data_type} in the model, or run once with --full-refresh."
                )

    def without_missing(self, columns: Iterable[str]) -> list[str]:
        """Return the column names, which may be quoted, that the model has."""
        missing = {_comparable(column.name, self.case_sensitive) for column in self.missing}
        return [name for name in columns if _comparable(name.strip("`"), self.case_sensitive) not in missing]


def check_column_removal(
    relation: str,
    removed: Columns,
    table: TableClustering,
    key: ClusterKey | None,
    partitioned_by: Sequence[str],
) -> None:
    """Refuse to drop columns that a table needs; it has the model's ``key`` by then."""
    again = "let the model select the column again"
    by_key = f"cluster_by names. Change cluster_by, or {again}"
    by_hand = f"the table is sorted by. Run `alter table {relation} write unordered` before"
    by_partition = f"the table is partitioned by. {again.capitalize()}, or run with --full-refresh"
    sorted_by = [field.column for field in key.fields] if key else table.sort_columns
    for columns, reason in ((sorted_by, by_key if key else by_hand), (partitioned_by, by_partition)):
        if lost := [column for column in columns if removed.find(column.partition(".")[0])]:
            names = ", ".join(dict.fromkeys(lost))
            raise OptionError(
                f"on_schema_change: sync_all_columns would drop {names} of {relation}, which {reason}. No column was "
                "changed."
            )


def partition_columns(description: Iterable[Sequence[str | None]]) -> list[str]:
    """Return the columns of a table's partitions by the rows of ``DESCRIBE``, a struct's field as its path.

    These list columns under ``# Partition Information`` if all transforms are identities, otherwise the transforms
    under ``# Partitioning``.
    """
    section, columns = "", []
    for name, value, *_ in description:
        if not name or name.startswith("#"):
            section = name if name and name != "# col_name" else section
        elif section == "# Partition Information":
            columns.append(name)
        elif section == "# Partitioning":
            transform = re.search(r"\((?:\d+, )?(.+)\)$", value or "")
            columns.append((transform.group(1) if transform else value or "").replace("`", ""))
    return columns


def _comparable(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def _stored(spark_type: str) -> str:
    """Return Iceberg's type for a type of Spark: it has no short integers and no limited strings."""
    # A struct's field may have such a name, followed by a colon.
    integers = re.sub(r"\b(?:tinyint|smallint)\b(?!`?:)", "int", spark_type, flags=re.IGNORECASE)
    return re.sub(r"\b(?:var)?char\(\d+\)", "string", integers, flags=re.IGNORECASE)


def _is_widened(old: str, new: str) -> bool:
    if base_type(old) == base_type(new) == "decimal":
        (before, scale_before), (after, scale) = decimal_digits(old), decimal_digits(new)
        return scale_before == scale and before < after
    return (old, new) in (("int", "bigint"), ("float", "double"))
