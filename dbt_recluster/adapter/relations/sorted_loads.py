"""Loads that arrive sorted along the curve of a key, which no sort order can ask a writer for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.curve_boundaries import recorded_curve
from dbt_recluster.columns import Columns, quote, quote_path
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.rewrite.curve_sql import place_query


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


def sorted_along_curve(
    query: str,
    key: ClusterKey,
    properties: Mapping[str, str],
    columns: Columns,
    partitions: ClusterKey | None,
) -> str | None:
    """Return a query sorted by partitions and along the curve, or None if the table has no boundaries that fit.

    Args:
        query: A query.
        key: The key of the table that it is loaded into, checked.
        properties: The table's properties.
        columns: The columns of the query.
        partitions: What to sort by before the key.
    """
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
