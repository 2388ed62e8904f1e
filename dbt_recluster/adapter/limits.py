"""The generic test ``well_clustered``: the limits it takes, and which of them a table breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt_recluster.adapter.arguments import parse_candidate_key
from dbt_recluster.adapter.errors import as_dbt_errors
from dbt_recluster.adapter.mixin import TableMixin
from dbt_recluster.adapter.values import parse_predicate
from dbt_recluster.exceptions import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGES = {"max_average_depth": (1.0, None), "max_p95_depth": (1.0, None), "min_ratio": (0.0, 100.0)}


class Limits(TableMixin):
    """The adapter's method behind the generic test."""

    @available.parse_list
    def broken_clustering_limits(self, model: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the limits that the table ``model`` breaks, each with ``limit``, ``allowed`` and ``found``."""
        with as_dbt_errors():
            if not isinstance(model, BaseRelation):
                raise OptionError(
                    "well_clustered looks at blocks, which the config `where` cannot choose; "
                    "give it `predicate` instead"
                )
            limits = parse_limits(arguments)
            key = parse_candidate_key(arguments.get("cluster_by"))
            where = parse_predicate("predicate", arguments.get("predicate"))
            return broken_limits(self.spark, model.render(), limits, key, where)


def parse_limits(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits that are given.

    Raises:
        OptionError: There is none, or one is no number in its range.
    """
    limits = {}
    for name, (least, greatest) in _RANGES.items():
        value = arguments.get(name)
        if value is None:
            continue
        try:
            limits[name] = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            limits[name] = float("nan")
        if not least <= limits[name] <= (greatest or 1e18):
            among = f"from {least:g} to {greatest:g}" if greatest else f"of at least {least:g}"
            raise OptionError(f"{name} must be a number {among}, not {value!r}")
    if not limits:
        raise OptionError(f"well_clustered needs a limit: {', '.join(_RANGES)}")
    return limits


def broken_limits(
    spark: SparkSession,
    table: str,
    limits: Mapping[str, float],
    cluster_by: list[str] | None = None,
    where: str | None = None,
) -> list[dict[str, Any]]:
    """Return the limits that ``table`` breaks.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, PredicateError: Bad input.
    """
    from dbt_recluster.information import clustering_information

    information = clustering_information(spark, table, cluster_by, where)
    found = {
        "max_average_depth": float(information["average_depth"]),
        "max_p95_depth": float(information["p95_depth"]),
        "min_ratio": float(information["clustering_ratio"]),
    }
    return [
        {"limit": name, "allowed": allowed, "found": found[name]}
        for name, allowed in limits.items()
        if (found[name] < allowed if name == "min_ratio" else found[name] > allowed)
    ]
