"""``recluster_depth: auto``: the threshold at which a table's rewriting and reading cost least together."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from dbt_recluster.clustering.cost_model import Week
from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.reads_information import daily_bytes_in_vain
from dbt_recluster.clustering.values import AUTO, parse_iso_time, parse_number
from dbt_recluster.planner import Policy, best_threshold, costs_by_threshold

DEPTH_PROPERTY = "recluster.auto_depth"

# Reads and loads of a week change little from one build to the next.
_HOLDS = timedelta(days=1)


@dataclass(frozen=True)
class AutoDepth:
    """The threshold of a table.

    Attributes:
        depth: The threshold.
        at: When it was worked out.
    """

    depth: float
    at: datetime

    @property
    def is_fresh(self) -> bool:
        """Whether it holds still."""
        return datetime.now(timezone.utc) - self.at < _HOLDS

    def text(self) -> str:
        """Return the text of the property that records it."""
        return json.dumps({"depth": self.depth, "at": self.at.isoformat(timespec="seconds")})


def auto_depth(table: KeyedTable) -> AutoDepth:
    """Return the threshold that a table records, or, if that is older than a day, a new one.

    The week's history says what is loaded and rewritten each day, and the known reads say what they open in vain for
    each unit of depth. Without either, the threshold stays what it was, at first the default.
    """
    recorded = recorded_depth(table)
    if recorded is not None and recorded.is_fresh:
        return recorded
    current = None if recorded is None else recorded.depth
    week = Week(table)
    _, in_vain_per_depth = daily_bytes_in_vain(table, table.current_blocks().metadata)
    costs = {}
    if in_vain_per_depth and week.loads:
        loaded, rewritten = week.loaded_bytes_per_day, week.rewritten_bytes_per_day
        costs = costs_by_threshold(loaded, rewritten, in_vain_per_depth, current or Policy().depth)
    return AutoDepth(best_threshold(costs, current), datetime.now(timezone.utc))


def with_depth(table: KeyedTable, options: ReclusterOptions) -> tuple[ReclusterOptions, AutoDepth | None]:
    """Return options with a number in place of ``auto``, and the threshold that it stands for, or None."""
    if options.depth != AUTO:
        return options, None
    depth = auto_depth(table)
    return replace(options, depth=depth.depth), depth


def record_depth(table: KeyedTable, depth: AutoDepth) -> None:
    """Record a threshold with its table, unless the table records it."""
    text = depth.text()
    if table.iceberg.properties.get(DEPTH_PROPERTY) != text:
        table.iceberg.set_property(DEPTH_PROPERTY, text)


def recorded_depth(table: KeyedTable) -> AutoDepth | None:
    """Return the threshold that a table records, or None. A malformed property counts as none."""
    try:
        value = json.loads(table.iceberg.properties.get(DEPTH_PROPERTY, "null"))
        depth, at = parse_number(value["depth"]), parse_iso_time(value["at"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return None if depth is None or depth < 1 else AutoDepth(depth, at)
