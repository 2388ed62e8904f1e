"""``recluster_depth: auto``: the threshold at which a table's rewriting and reading cost least together."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from dbt_recluster import table_properties
from dbt_recluster.clustering.costs.replay import DAYS, Week
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.reads.reads_information import daily_wasted_bytes
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import AUTO, parse_iso_time, parse_number
from dbt_recluster.planner import Policy, best_threshold, costs_by_threshold, relative_rewriting

# Reads and loads change little from one build to the next.
_HOLDS = timedelta(days=1)


@dataclass(frozen=True)
class AutoDepth:
    """The threshold of a table.

    Attributes:
        depth: The threshold.
        since: When it became the threshold.
        at: When it was last worked out.
        rewriting: How much the table rewrites, relative to what was measured of the planner.
    """

    depth: float
    since: datetime
    at: datetime
    rewriting: float = 1.0

    @property
    def is_fresh(self) -> bool:
        """Whether it was worked out less than a day ago."""
        return datetime.now(timezone.utc) - self.at < _HOLDS

    def as_properties(self) -> dict[str, str]:
        """Return the property that records it."""
        since, at = (time.isoformat(timespec="seconds") for time in (self.since, self.at))
        value = {"depth": self.depth, "since": since, "at": at, "rewriting": round(self.rewriting, 3)}
        return {table_properties.AUTO_DEPTH: json.dumps(value)}


def auto_depth(table: ClusteredTable) -> AutoDepth:
    """Return the threshold that a table records, or a new one if that is a day old.

    The week's history has the bytes of new blocks each day, and the reads the bytes that they waste for
    each unit of depth. Without reads of the key the threshold is the default; without new blocks it stays.
    """
    recorded = recorded_depth(table)
    if recorded is not None and recorded.is_fresh:
        return recorded
    week = Week(table)
    rewriting = 1.0 if recorded is None else recorded.rewriting
    # Only a week under one threshold says how much the table rewrites under it: the first days catch up.
    if recorded is not None and week.now - recorded.since >= timedelta(days=DAYS) and week.changes:
        rewriting = relative_rewriting(
            week.written_bytes_per_day, week.rewritten_bytes_per_day, recorded.depth, table.key.curve
        )
    _, wasted_per_depth = daily_wasted_bytes(table, table.current_blocks().metadata)
    depth = Policy().depth
    if wasted_per_depth and week.changes:
        costs = costs_by_threshold(week.written_bytes_per_day, rewriting, wasted_per_depth, table.key.curve)
        depth = best_threshold(costs, None if recorded is None else recorded.depth)
    elif wasted_per_depth and recorded is not None:
        depth = recorded.depth
    is_kept = recorded is not None and recorded.depth == depth
    return AutoDepth(depth, recorded.since if recorded and is_kept else week.now, week.now, rewriting)


def with_depth(table: ClusteredTable, options: ReclusterOptions) -> tuple[ReclusterOptions, AutoDepth | None]:
    """Return options with a number in place of ``auto``, and the threshold that it stands for, or None."""
    if options.depth != AUTO:
        return options, None
    depth = auto_depth(table)
    return replace(options, depth=depth.depth), depth


def recorded_depth(table: ClusteredTable) -> AutoDepth | None:
    """Return the threshold that a table records, or None. A malformed property counts as none."""
    try:
        value = json.loads(table.iceberg.properties.get(table_properties.AUTO_DEPTH, "null"))
        depth, rewriting = parse_number(value["depth"]), parse_number(value.get("rewriting", 1))
        since, at = parse_iso_time(value["since"]), parse_iso_time(value["at"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if depth is None or depth < 1 or rewriting is None or rewriting <= 0:
        return None
    return AutoDepth(depth, since, at, rewriting)
