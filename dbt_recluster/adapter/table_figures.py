"""The figures of a table in dbt: statistics in ``dbt docs``, and limits in the generic test ``well_clustered``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dbt.adapters.base.relation import BaseRelation

from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_predicate
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import Argument, read_arguments
from dbt_recluster.report.operation_text import opened_on_curve
from dbt_recluster.text import size

# The limits of the test: the figure that each is for, and its least and greatest value.
LIMITS = {
    "max_average_depth": ("average_depth", 1.0, 1e18),
    "max_p95_depth": ("p95_depth", 1.0, 1e18),
    "max_fragmentation": ("max_fragmentation", 1.0, 1e18),
    "min_ratio": ("clustering_ratio", 0.0, 100.0),
}


def parse_limit(name: str, value: Any) -> float:
    """Read a limit."""
    _, least, greatest = LIMITS[name]
    try:
        limit = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        limit = float("nan")
    if not least <= limit <= greatest:
        among = f"from {least:g} to {greatest:g}" if greatest < 1e18 else f"of at least {least:g}"
        raise OptionError(f"{name} must be a number {among}, not {value!r}")
    return limit


TEST = (
    "A generic test, for models, seeds, snapshots and sources: fails when an Iceberg table is clustered worse than the "
    "limits given, of which there must be one. Reads the table's metadata, not its rows."
)
TEST_ARGUMENTS = (
    Argument("max_average_depth", parse_limit, "The greatest average depth that passes, at least 1."),
    Argument(
        "max_p95_depth", parse_limit, "The greatest depth that 95 % of the blocks may have, at least 1."
    ),
    Argument(
        "max_fragmentation",
        parse_limit,
        "How many blocks there may be for each full one that their rows and bytes would make, in the worst partition; "
        "at least 1.",
    ),
    Argument("min_ratio", parse_limit, "The least clustering ratio that passes, 0 to 100."),
    Argument(
        "cluster_by",
        lambda _, value: parse_cluster_key(value),
        "The key to measure by. None takes the table's sort order.",
    ),
    Argument(
        "predicate",
        parse_predicate,
        "A predicate on the table's columns; only blocks that may hold a matching row count.",
    ),
)


def broken_limits(
    model: Any, given: Mapping[str, Any], open_table: Callable[[str], ClusteredTable]
) -> list[dict[str, Any]]:
    """Return the limits that a table exceeds, each with ``limit``, ``allowed``, ``found`` and a ``text`` of them."""
    arguments = read_arguments("well_clustered", TEST_ARGUMENTS, given)
    if not isinstance(model, BaseRelation):
        raise OptionError(
            "well_clustered looks at blocks, which the config `where` cannot select; use `predicate` instead"
        )
    limits = {name: arguments[name] for name in LIMITS if arguments[name] is not None}
    if not limits:
        raise OptionError(f"well_clustered needs a limit: {', '.join(LIMITS)}")
    table, key = open_table(model.render()), arguments["cluster_by"]
    information = table_information(table if key is None else table.under(key), arguments["predicate"])
    broken = []
    for name, allowed in limits.items():
        value = float(information[LIMITS[name][0]])
        if value < allowed if name.startswith("min") else value > allowed:
            text = (
                f"{table.name} by {information['cluster_key']}: {name} is {allowed:g}, and it has {value:g}"
            )
            broken.append({"limit": name, "allowed": allowed, "found": value, "text": text})
    return broken


def clustering_statistics(clustered: ClusteredTable) -> dict[str, Any]:
    """Return the statistics of a clustered table for dbt's catalog, four entries for each."""
    information = table_information(clustered)
    rounds = [entry for entry in table_history(clustered) if entry.is_recluster]
    last = f"{rounds[-1].at:%Y-%m-%d %H:%M} UTC" if rounds else "never"
    depth, curve = "How many blocks a query for one key opens.", information.get("curve")
    opened: list[tuple[str, str, Any, str]] = []
    if curve:
        depth = "How many blocks lie over one place of the curve."
        for number, (name, now, then) in enumerate(opened_on_curve(curve)):
            sorted_text = f"{then:g} if the whole table were sorted at once."
            opened.append((f"opened_{number}", f"Blocks that {name} opens", now, sorted_text))
    key, blocks = information["cluster_key"], information["total_block_count"]
    fragmentation = "How many blocks there are for each full one that the rows and bytes would make."
    ratio = information["clustering_ratio"]
    statistics: list[tuple[str, str, Any, str]] = [
        ("cluster_key", "Cluster key", key, "Columns and expressions that the blocks are clustered by."),
        ("block_count", "Blocks", blocks, "Data files of the table."),
        (
            "block_bytes",
            "Size of all blocks",
            size(information["total_bytes"]),
            "Older snapshots are not included.",
        ),
        ("average_depth", "Average depth", information["average_depth"], depth),
        *opened,
        ("clustering_ratio", "Clustering ratio", ratio, "100 when no two blocks overlap."),
        ("fragmentation", "Blocks for each full one", information["fragmentation"], fragmentation),
        ("last_recluster", "Last recluster", last, "The last round that the table's snapshots record."),
    ]
    entries: dict[str, Any] = {}
    for name, label, value, description in statistics:
        entries[f"stats:{name}:label"] = label
        # A string: dbt's catalog has one type for the values of all tables of a schema.
        entries[f"stats:{name}:value"] = f"{value:g}" if isinstance(value, float) else str(value)
        entries[f"stats:{name}:description"] = description
        entries[f"stats:{name}:include"] = True
    return entries
