"""A table's figures in dbt: the limits of the generic test ``well_clustered``, and statistics in ``dbt docs``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dbt.adapters.base.relation import BaseRelation

from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_number, parser
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import MEASURED_KEY, WHERE, Argument, read_arguments
from dbt_recluster.report.operation_text import opened_on_curve
from dbt_recluster.text import size


@dataclass(frozen=True)
class Limit(Argument):
    """An argument of the test: a limit of a figure."""

    figure: str = ""


def _limit(name: str, figure: str, meaning: str, least: float = 1.0, greatest: float = math.inf) -> Limit:
    def read(value: Any) -> float | None:
        limit = parse_number(value)
        return limit if limit is not None and least <= limit <= greatest else None

    among = f"of at least {least:g}" if greatest == math.inf else f"from {least:g} to {greatest:g}"
    return Limit(name, parser(f"a number {among}", read), meaning, figure=figure)


TEST = (
    "A generic test, for models, seeds, snapshots and sources: fails when an Iceberg table is clustered worse than the "
    "limits given, of which there must be one. Reads the table's metadata, not its rows."
)
LIMITS = (
    _limit("max_average_depth", "average_depth", "The greatest average depth that passes, at least 1."),
    _limit("max_p95_depth", "p95_depth", "The greatest depth that 95 % of the blocks may have, at least 1."),
    _limit(
        "max_fragmentation",
        "max_fragmentation",
        "How many blocks there may be for each full one that their rows and bytes would make, in the worst partition; "
        "at least 1.",
    ),
    _limit("min_ratio", "clustering_ratio", "The least clustering ratio that passes, 0 to 100.", 0.0, 100.0),
)
TEST_ARGUMENTS = (*LIMITS, MEASURED_KEY, replace(WHERE, name="predicate"))


def broken_limits(
    model: Any, given: Mapping[str, Any], open_table: Callable[[str], ClusteredTable]
) -> list[dict[str, Any]]:
    """Return the limits that a table exceeds, each with ``limit``, ``allowed``, ``measured`` and ``text``."""
    arguments = read_arguments("well_clustered", TEST_ARGUMENTS, given)
    if not isinstance(model, BaseRelation):
        raise OptionError(
            "well_clustered looks at blocks, which the config `where` cannot select; use `predicate` instead"
        )
    limits = [limit for limit in LIMITS if arguments[limit.name] is not None]
    if not limits:
        raise OptionError(f"well_clustered needs a limit: {', '.join(limit.name for limit in LIMITS)}")
    table, key = open_table(model.render()), arguments["cluster_by"]
    information = table_information(table if key is None else table.under(key), arguments["predicate"])
    prefix, broken = f"{table.name} by {information['cluster_key']}", []
    for limit in limits:
        name, allowed, value = limit.name, arguments[limit.name], float(information[limit.figure])
        if value < allowed if name.startswith("min") else value > allowed:
            text = f"{prefix}: {name} is {allowed:g}, and it has {value:g}"
            broken.append({"limit": name, "allowed": allowed, "measured": value, "text": text})
    return broken


def clustering_statistics(clustered: ClusteredTable) -> dict[str, Any]:
    """Return a table's clustering statistics for dbt's catalog, four entries for each."""
    information = table_information(clustered)
    rounds = [entry for entry in table_history(clustered) if entry.is_recluster]
    last = f"{rounds[-1].at:%Y-%m-%d %H:%M} UTC" if rounds else "never"
    curve, ratio = information.get("curve"), information["clustering_ratio"]
    over = "lie over one place of the curve" if curve else "a query for one key opens"
    fragmentation = "How many blocks there are for each full one that the rows and bytes would make."
    key, total = information["cluster_key"], size(information["total_bytes"])
    statistics: list[tuple[str, str, Any, str]] = [
        ("cluster_key", "Cluster key", key, "Columns and expressions that the blocks are clustered by."),
        ("block_count", "Blocks", information["total_block_count"], "Data files of the table."),
        ("block_bytes", "Size of all blocks", total, "Older snapshots are not included."),
        ("average_depth", "Average depth", information["average_depth"], f"How many blocks {over}."),
        *(
            (f"opened_{number}", f"Blocks that {name} opens", now, f"{then:g} if all were sorted at once.")
            for number, (name, now, then) in enumerate(opened_on_curve(curve) if curve else ())
        ),
        ("clustering_ratio", "Clustering ratio", ratio, "100 when no two blocks overlap."),
        ("fragmentation", "Blocks for each full one", information["fragmentation"], fragmentation),
        ("last_recluster", "Last recluster", last, "The last round that the table's snapshots record."),
    ]
    entries: dict[str, Any] = {}
    for name, label, value, description in statistics:
        # A string, since dbt's catalog has one type for the values of all tables of a schema.
        text = f"{value:g}" if isinstance(value, float) else str(value)
        facts = {"label": label, "value": text, "description": description, "include": True}
        entries |= {f"stats:{name}:{fact}": known for fact, known in facts.items()}
    return entries
