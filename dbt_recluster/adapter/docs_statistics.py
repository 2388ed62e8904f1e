"""The statistics of a clustered table in ``dbt docs``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.report.operation_text import opened_on_curve
from dbt_recluster.text import size

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable


def clustering_statistics(clustered: ClusteredTable) -> dict[str, Any]:
    """Return the statistics of a clustered table for dbt's catalog, four entries for each.

    Raises:
        ClusterKeyError: The table has no cluster key to measure by.
    """
    information = table_information(clustered)
    curve = information.get("curve")
    rounds = [entry for entry in table_history(clustered) if entry.is_recluster]
    last = f"{rounds[-1].at:%Y-%m-%d %H:%M} UTC" if rounds else "never"
    statistics = (
        (
            "cluster_key",
            "Cluster key",
            information["cluster_key"],
            "Columns and expressions that the blocks are clustered by.",
        ),
        ("block_count", "Blocks", information["total_block_count"], "Data files of the table."),
        (
            "block_bytes",
            "Size of all blocks",
            size(information["total_bytes"]),
            "Older snapshots are not included.",
        ),
        (
            "average_depth",
            "Average depth",
            information["average_depth"],
            "How many blocks lie over one place of the curve."
            if curve
            else "How many blocks a query for one key opens.",
        ),
        *(
            (
                f"opened_{number}",
                f"Blocks that {name} opens",
                now,
                f"{then:g} if the whole table were sorted at once.",
            )
            for number, (name, now, then) in enumerate(opened_on_curve(curve) if curve else ())
        ),
        (
            "clustering_ratio",
            "Clustering ratio",
            information["clustering_ratio"],
            "100 when no two blocks overlap.",
        ),
        (
            "fragmentation",
            "Blocks for each full one",
            information["fragmentation"],
            "How many blocks there are for each full one that the rows and bytes would make.",
        ),
        ("last_recluster", "Last recluster", last, "The last round that the table's snapshots record."),
    )
    return _entries(statistics)


def _entries(statistics: Iterable[tuple[str, str, Any, str]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, label, value, description in statistics:
        entries[f"stats:{name}:label"] = label
        # A string: dbt's catalog has one type for the values of all tables of a schema.
        entries[f"stats:{name}:value"] = f"{value:g}" if isinstance(value, float) else str(value)
        entries[f"stats:{name}:description"] = description
        entries[f"stats:{name}:include"] = True
    return entries
