"""The compiled SQL of a project's nodes, from dbt's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbt_recluster.operations.project_queries import project_queries


def queries_of_manifest(manifest: Any, unique_id: str, target_path: str) -> dict[str, str]:
    """Return the compiled SQL of everything that reads the table of a node, by name.

    Args:
        manifest: dbt's manifest.
        unique_id: The node.
        target_path: Where dbt writes what it compiles.
    """
    nodes = {name: _as_mapping(node) for name, node in manifest.nodes.items()}

    def compiled(node: Mapping[str, Any]) -> str | None:
        of_dbt = manifest.nodes[node["unique_id"]]
        return getattr(of_dbt, "compiled_code", None) or _earlier(of_dbt, target_path)

    return project_queries(nodes, unique_id, compiled)


def _as_mapping(node: Any) -> dict[str, Any]:
    return {
        "unique_id": node.unique_id,
        "resource_type": str(node.resource_type),
        "language": getattr(node, "language", None),
        "config": {"materialized": node.config.materialized},
        "depends_on": {"nodes": node.depends_on_nodes},
    }


def _earlier(node: Any, target_path: str) -> str | None:
    """Return what an earlier run compiled, or None."""
    try:
        return Path(node.get_target_write_path(target_path, "compiled")).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
