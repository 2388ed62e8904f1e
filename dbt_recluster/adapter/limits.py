"""The generic test ``well_clustered``: the limits that it takes, and which of them a table exceeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.information import table_information
from dbt_recluster.exceptions import OptionError

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable


@dataclass(frozen=True)
class Limit:
    """A limit of the test.

    Attributes:
        metric: The metric that it limits (:class:`dbt_recluster.planner.ClusteringInformation`).
        least, greatest: The range of its values.
        is_minimum: Whether the metric must not be below it; otherwise it must not be above it.
    """

    metric: str
    least: float
    greatest: float = 1e18
    is_minimum: bool = False

    def broken_by(self, value: float, allowed: float) -> bool:
        """Whether a value of the metric is beyond the limit."""
        return value < allowed if self.is_minimum else value > allowed


LIMITS = {
    "max_average_depth": Limit("average_depth", 1.0),
    "max_p95_depth": Limit("p95_depth", 1.0),
    "max_fragmentation": Limit("max_fragmentation", 1.0),
    "min_ratio": Limit("clustering_ratio", 0.0, 100.0, is_minimum=True),
}


ARGUMENTS = (*LIMITS, "cluster_by", "predicate")


def check_names(names: Iterable[str]) -> None:
    """Check the names of arguments.

    Raises:
        OptionError: The test has no such argument.
    """
    for name in names:
        if name not in ARGUMENTS:
            near = get_close_matches(name, ARGUMENTS, n=1)
            meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(ARGUMENTS)}"
            raise OptionError(f"well_clustered has no argument {name!r}; {meant}")


def parse_limits(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits that are given.

    Raises:
        OptionError: There is none, or one is not a number in its range.
    """
    limits = {}
    for name, limit in LIMITS.items():
        value = arguments.get(name)
        if value is None:
            continue
        try:
            limits[name] = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            limits[name] = float("nan")
        if not limit.least <= limits[name] <= limit.greatest:
            bounded = limit.greatest < 1e18
            among = (
                f"from {limit.least:g} to {limit.greatest:g}" if bounded else f"of at least {limit.least:g}"
            )
            raise OptionError(f"{name} must be a number {among}, not {value!r}")
    if not limits:
        raise OptionError(f"well_clustered needs a limit: {', '.join(LIMITS)}")
    return limits


def broken_limits(
    table: ClusteredTable, limits: Mapping[str, float], where: str | None = None
) -> list[dict[str, Any]]:
    """Return the limits that ``table`` exceeds, each with ``limit``, ``allowed``, ``found`` and a ``text`` of them.

    Raises:
        ClusterKeyError, PredicateError: Bad input.
    """
    information = table_information(table, where)
    values = {name: float(information[LIMITS[name].metric]) for name in limits}
    return [
        {
            "limit": name,
            "allowed": allowed,
            "found": values[name],
            "text": f"{table.name} by {information['cluster_key']}: {name} is {allowed:g}, and it has {values[name]:g}",
        }
        for name, allowed in limits.items()
        if LIMITS[name].broken_by(values[name], allowed)
    ]
