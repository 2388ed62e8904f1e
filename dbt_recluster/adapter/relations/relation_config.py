"""The clustering of a table, that of its model, and the change from one to the other.

No sort order makes a writer sort along a curve, so the queries of loads are sorted along it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa

from dbt_recluster.clustering.table_curve import recorded_curve
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.rewrite.key_sql import place_query
from dbt_recluster.iceberg.sort_order import clustering_properties
from dbt_recluster.iceberg.table_properties import (
    CARRIED_OVER,
    CLUSTER_BY,
    CURVE_PREFIX,
    DISTRIBUTION_MODE,
    LEVELS,
    METRICS_PREFIX,
    OPTION_PREFIX,
    REST,
    ROW_GROUP_BYTES,
    curve_property,
)
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns, quote, quote_path
from dbt_recluster.operations.model_options import ModelOptions

# Spark's value of a property that looks like a secret: a key on a column `url` does, and boundaries may.
_REDACTED = "*********(redacted)"

# Prefixes of the properties that are unset with the model's options and key, and of all that the adapter reads.
_RECORDED = (CLUSTER_BY, OPTION_PREFIX, CURVE_PREFIX, REST)
_COMPARED = (*_RECORDED, *CARRIED_OVER, METRICS_PREFIX, ROW_GROUP_BYTES, DISTRIBUTION_MODE)

# An item of a sort order in SHOW TBLPROPERTIES: `name ASC NULLS FIRST`, `truncate(name, 4) DESC NULLS LAST`.
_SORT_ITEM = re.compile(
    r"(?:(years|months|days|hours|bucket|truncate)\((.+?)(?:, (\d+))?\)|(.+?))"
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
    def carried_over(self) -> dict[str, str]:
        """The properties that a table in place of this one inherits."""
        known = {name: self.properties.get(name, _REDACTED) for name in CARRIED_OVER}
        return {name: value for name, value in known.items() if value != _REDACTED}

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
    # Set after the order, which itself sets the distribution mode.
    set_properties: Mapping[str, str] = field(default_factory=dict)
    unset_properties: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to alter."""
        return bool(self.order or self.set_properties or self.unset_properties)


@dataclass(frozen=True)
class LoadedInto:
    """How a node loads an existing table."""

    inserts: bool = False  # whether its statements keep the order of a query; a merge does not
    partition_by: tuple[str, ...] = ()  # the partition expressions

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> LoadedInto:
        """Read a node's config."""
        strategy = config.get("incremental_strategy") or "append"
        given = config.get("partition_by") or ()
        partition_by = (given,) if isinstance(given, str) else tuple(map(str, given))
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


def creation_properties(options: ModelOptions) -> dict[str, str]:
    """Return the properties that a clustered table needs before its first blocks are written."""
    if options.cluster_by is None:
        return {}
    columns = len(options.columns.names) if options.columns else 0
    return {
        CLUSTER_BY: str(options.cluster_by),
        **options.properties(),
        **clustering_properties(options.cluster_by, columns),
    }


def clustering_change(
    desired: ModelOptions,
    actual: TableClustering,
    table_properties: Mapping[str, str] | None = None,
    loaded: LoadedInto | None = None,
) -> ClusteringChange:
    """Return the change that gives a table the clustering of its model.

    Args:
        desired: The model's options, with the key resolved.
        actual: The clustering of the table.
        table_properties: The ``tblproperties`` of the model, which take precedence.
        loaded: How the node loads the table; None for a table that is replaced.
    """
    key, configured = desired.cluster_by, dict(table_properties or {})
    if key is None and CLUSTER_BY not in actual.properties:
        return ClusteringChange()  # keeps an order that was set by hand
    mode = configured.get(DISTRIBUTION_MODE) or _mode(desired, actual, loaded or LoadedInto())
    order = _order(key, actual, mode)
    wanted = creation_properties(desired)
    theirs = {name for name in wanted if _is_theirs(name, actual, configured)}
    changes = {n: v for n, v in wanted.items() if actual.properties.get(n) != v and n not in theirs}
    curve = [curve_property(field.column) for field in key.on_curve] if key else []
    kept = {*wanted, *configured, *curve, *([REST] if curve else [])}
    obsolete = [name for name in actual.properties if name.startswith(_RECORDED) and name not in kept]
    if key is None and LEVELS in actual.properties:
        obsolete.append(LEVELS)
    modes = {"unordered": "none", "ordered": "range"}  # that WRITE sets
    mode_after_order = modes.get((order or "").partition(" ")[0], actual.properties.get(DISTRIBUTION_MODE))
    if mode is None and mode_after_order is not None:
        obsolete.append(DISTRIBUTION_MODE)
    elif mode is not None and mode_after_order != mode:
        changes[DISTRIBUTION_MODE] = mode
    return ClusteringChange(order, changes, tuple(obsolete))


def lost_metrics(actual: TableClustering, columns: Columns) -> ClusteringChange:
    """Return the removal of the metrics modes of columns and fields that the table's ``columns`` lack.

    Iceberg keeps those of dropped struct fields, and of a table that is replaced, and then refuses every other change
    of properties.
    """
    lost = [name for name, path in actual.metrics.items() if columns.lacks(path)]
    return ClusteringChange(unset_properties=tuple(lost))


def _mode(desired: ModelOptions, actual: TableClustering, loaded: LoadedInto) -> str | None:
    """Return the distribution mode for loads, or None for Iceberg's default."""
    key = desired.cluster_by
    if key is None:
        return None
    if desired.sort_on_load and loaded.can_be_sorted and recorded_curve(actual.properties, key):
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
    return ClusteringChange(
        f"locally ordered by {', '.join(items)}", {} if is_kept else {DISTRIBUTION_MODE: str(mode)}
    )


def _is_theirs(name: str, actual: TableClustering, configured: Mapping[str, str]) -> bool:
    """Return whether a property keeps a value that is not ours."""
    if name.startswith((METRICS_PREFIX, ROW_GROUP_BYTES)):
        return name in actual.properties or name in configured
    return name.startswith(OPTION_PREFIX) and name in configured


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
        placed = place_query(query, curve, key, columns.types, place)
    except (ClusterKeyError, ValueError, pa.ArrowException):
        return None  # boundaries of another type, or a column that only the table has
    items = [partitions.order_by(columns) if partitions else "", key.order_by(columns), f"{place}_of_load"]
    items += [quote_path(field.column) for field in key.on_curve]
    selected = ", ".join(map(quote, columns.names))
    return f"select {selected} from (\n{placed}\n)\norder by {', '.join(filter(None, items))}"
