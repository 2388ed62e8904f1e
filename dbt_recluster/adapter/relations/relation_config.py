"""The clustering that a table has, the one that its model asks for, and the change from one to the other.

No sort order can ask a writer for the curve of a key, so the queries of loads are sorted along it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa

from dbt_recluster.clustering.curve_boundaries import recorded_curve
from dbt_recluster.clustering.options import KEY_PROPERTY, OPTION_PREFIX
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.recorded_levels import level_properties
from dbt_recluster.iceberg.rewrite.curve_sql import place_query
from dbt_recluster.iceberg.sort_order import clustering_properties
from dbt_recluster.iceberg.table_properties import (
    CARRIED_OVER,
    CURVE_PREFIX,
    DISTRIBUTION_MODE,
    METRICS_PREFIX,
    REST,
    ROW_GROUP_BYTES,
)
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns, quote, quote_path
from dbt_recluster.operations.model_options import ModelOptions

# What Spark shows of a property whose name or value looks like a secret: a key on a column `url` does; boundaries may.
_REDACTED = "*********(redacted)"

# The names of properties that only the model's options and key keep in a table start so.
_RECORDED = (KEY_PROPERTY, OPTION_PREFIX, CURVE_PREFIX, REST)
# Those of all that the adapter reads, to compare or to carry over.
_COMPARED = (*_RECORDED, *CARRIED_OVER, METRICS_PREFIX, ROW_GROUP_BYTES, DISTRIBUTION_MODE)

# One item of a sort order as SHOW TBLPROPERTIES lists it: `name ASC NULLS FIRST`, `truncate(name, 4) DESC NULLS LAST`.
_SORT_ITEM = re.compile(
    r"(?:(years|months|days|hours|bucket|truncate)\((.+?)(?:, (\d+))?\)|(.+?))"
    r" ((?:ASC|DESC) NULLS (?:FIRST|LAST))(?:, |$)"
)


@dataclass(frozen=True)
class TableClustering:
    """The clustering that a table has.

    Attributes:
        sort_order: Iceberg's text of it; empty if the table is unsorted.
        properties: The table's properties.
    """

    sort_order: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, rows: Iterable[tuple[str, str]]) -> TableClustering:
        """Read the rows of ``SHOW TBLPROPERTIES``, which lists the sort order among the properties."""
        properties = {str(name): str(value) for name, value in rows}
        return cls(properties.pop("sort-order", ""), properties)

    @property
    def is_redacted(self) -> bool:
        """Whether Spark hides the sort order or a property that a comparison with the model needs."""
        return self.sort_order == _REDACTED or any(
            value == _REDACTED and name.startswith(_COMPARED) for name, value in self.properties.items()
        )

    @property
    def carried_over(self) -> dict[str, str]:
        """The properties that a table which takes this one's place is to have too."""
        known = {name: self.properties.get(name, _REDACTED) for name in CARRIED_OVER}
        return {name: value for name, value in known.items() if value != _REDACTED}

    @property
    def sort_columns(self) -> list[str]:
        """The columns of the sort order, most significant first."""
        return [item.group(2) or item.group(4) for item in _SORT_ITEM.finditer(self.sort_order)]


@dataclass(frozen=True)
class ClusteringChange:
    """The changes to a table. An empty change is false.

    Attributes:
        order: The end of ``ALTER TABLE ... WRITE``: ``ordered by ...``, ``locally ordered by ...`` or ``unordered``;
            None keeps the order.
        set_properties: Properties to set after the order, which itself sets one.
        unset_properties: Properties to unset.
    """

    order: str | None = None
    set_properties: Mapping[str, str] = field(default_factory=dict)
    unset_properties: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to alter."""
        return bool(self.order or self.set_properties or self.unset_properties)


@dataclass(frozen=True)
class LoadedInto:
    """How a node's rows get into a table that stays.

    Attributes:
        inserts: Whether by statements that keep the order of a query; a merge keeps none.
        partition_by: What the table is partitioned by.
    """

    inserts: bool = False
    partition_by: tuple[str, ...] = ()

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> LoadedInto:
        """Read a node's config."""
        strategy = config.get("incremental_strategy") or "append"
        given = config.get("partition_by") or ()
        partition_by = (given,) if isinstance(given, str) else tuple(map(str, given))
        return cls(config.get("materialized") == "incremental" and strategy != "merge", partition_by)

    @property
    def partitions(self) -> ClusterKey | None:
        """The partitions as something to sort by, or None: there are none, or they have no order, such as buckets."""
        try:
            return parse_cluster_key(self.partition_by) if self.partition_by else None
        except ClusterKeyError:
            return None

    @property
    def can_be_sorted(self) -> bool:
        """Whether a query can be sorted so that few tasks write to each partition."""
        return self.inserts and (not self.partition_by or self.partitions is not None)


def creation_properties(options: ModelOptions) -> dict[str, str]:
    """Return the properties to create a clustered table with, so that its first blocks already follow them."""
    if options.cluster_by is None:
        return {}
    columns = len(options.columns.names) if options.columns else 0
    return {
        KEY_PROPERTY: str(options.cluster_by),
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
        desired: The model's options, the key resolved.
        actual: The table as it is.
        table_properties: The ``tblproperties`` of the model, which take precedence.
        loaded: How its rows get into it; None is a table that is replaced.
    """
    key, configured = desired.cluster_by, dict(table_properties or {})
    if key is None and KEY_PROPERTY not in actual.properties:
        return ClusteringChange()  # an order that somebody set by hand stays
    mode = configured.get(DISTRIBUTION_MODE) or _mode(desired, actual, loaded or LoadedInto())
    order = _order(key, actual, mode)
    wanted = creation_properties(desired)
    changes = {
        name: value
        for name, value in wanted.items()
        if actual.properties.get(name) != value and not _is_theirs(name, actual, configured)
    }
    curve = [f"{CURVE_PREFIX}{field.column}" for field in key.on_curve] if key else []
    kept = {*wanted, *configured, *curve, *([REST] if curve else [])}
    obsolete = [name for name in actual.properties if name.startswith(_RECORDED) and name not in kept]
    if key is None:
        obsolete += level_properties(actual.properties)
    mode_after_order = actual.properties.get(DISTRIBUTION_MODE)
    if order and not order.startswith("locally"):
        mode_after_order = "none" if order == "unordered" else "range"
    if mode is None and mode_after_order is not None:
        obsolete.append(DISTRIBUTION_MODE)
    elif mode is not None and mode_after_order != mode:
        changes[DISTRIBUTION_MODE] = mode
    return ClusteringChange(order, changes, tuple(obsolete))


def lost_metrics(actual: TableClustering, columns: Callable[[], Columns]) -> ClusteringChange:
    """Return the removal of the metrics modes of struct fields that are gone.

    Iceberg keeps them and then refuses every other change of properties. ``columns`` returns those of the table.
    """
    modes = [name for name in actual.properties if name.startswith(METRICS_PREFIX)]
    of_fields = [name for name in modes if "." in name.removeprefix(METRICS_PREFIX)]
    known = columns() if of_fields else Columns((), {})
    lost = [name for name in of_fields if known.lacks(name.removeprefix(METRICS_PREFIX))]
    return ClusteringChange(unset_properties=tuple(lost))


def _mode(desired: ModelOptions, actual: TableClustering, loaded: LoadedInto) -> str | None:
    """Return the distribution mode that loads need; None is Iceberg's own choice."""
    key = desired.cluster_by
    if key is None:
        return None
    if desired.sort_on_load and loaded.can_be_sorted and recorded_curve(actual.properties, key):
        # The query is sorted, and another shuffle would undo that.
        return "none" if key.leading or loaded.partition_by else None
    if not key.leading:
        return None
    return "range" if desired.sort_on_load else "none"


def _order(key: ClusterKey | None, actual: TableClustering, mode: str | None) -> str | None:
    """Return the end of ``ALTER TABLE ... WRITE``, or None to keep the order."""
    if actual.sort_order == ("" if key is None else key.description()):
        return None
    if key is None or not key.leading:
        return "unordered"
    return f"{'ordered by' if mode == 'range' else 'locally ordered by'} {key.ddl()}"


def restored_order(before: TableClustering, after: TableClustering) -> ClusteringChange:
    """Return the change that gives a replaced table its sort order back; Iceberg drops it (apache/iceberg#4889)."""
    if not before.sort_columns or after.sort_order == before.sort_order:
        return ClusteringChange()  # it was unsorted, or Spark hides the order
    mode = before.properties.get(DISTRIBUTION_MODE)
    changes = (
        {} if mode is None or mode == after.properties.get(DISTRIBUTION_MODE) else {DISTRIBUTION_MODE: mode}
    )
    return ClusteringChange(f"locally ordered by {_as_ddl(before.sort_order)}", changes)


def _as_ddl(sort_order: str) -> str:
    """Return the text of a sort order as ``ALTER TABLE`` reads it: with quoted names."""
    items = []
    for item in _SORT_ITEM.finditer(sort_order):
        function, column, width, name, direction = item.groups()
        quoted = quote_path(column or name)
        if function:
            quoted = f"{function}({width}, {quoted})" if width else f"{function}({quoted})"
        items.append(f"{quoted} {direction}")
    return ", ".join(items)


def _is_theirs(name: str, actual: TableClustering, configured: Mapping[str, str]) -> bool:
    """Whether a property keeps the value that somebody else gave it."""
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
    """Return a query sorted by partitions and along the curve, or None if the table has no boundaries that fit."""
    curve = recorded_curve(properties, key)
    if curve is None:
        return None
    try:
        key, partitions = key.check(columns), partitions and partitions.check(columns)
        place = _unused_name(columns.names)
        placed = place_query(query, curve, key, columns.types, place)
    except (ClusterKeyError, ValueError, pa.ArrowException):
        return None  # boundaries of another type, or a column that only the table has
    items = [partitions.order_by(columns) if partitions else "", key.order_by(columns), place]
    items += [quote_path(field.column) for field in key.on_curve]
    selected = ", ".join(map(quote, columns.names))
    return f"select {selected} from (\n{placed}\n)\norder by {', '.join(filter(None, items))}"


def _unused_name(names: Iterable[str]) -> str:
    """Return the beginning of a name that no column has."""
    taken = [name.lower() for name in names]
    numbered = (f"place_{number}" for number in count())
    return next(name for name in numbered if not any(other.startswith(name) for other in taken))
