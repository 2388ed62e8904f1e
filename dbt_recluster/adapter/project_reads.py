"""The queries of a project that read a table: what dbt compiled, in this run or an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Nodes whose SQL is part of that of others, and does not run by itself.
_INLINED = ("ephemeral", "view")
_READERS = ("model", "snapshot", "test", "analysis")


def project_queries(manifest: Any, unique_id: str, target_path: str) -> dict[str, str]:
    """Return the compiled SQL of everything that reads the table of a node, directly or through views, by name.

    Args:
        manifest: dbt's manifest.
        unique_id: The node.
        target_path: Where dbt writes what it compiles.
    """
    queries = {}
    for node in _readers(manifest, unique_id):
        text = getattr(node, "compiled_code", None) or _compiled(node, target_path)
        if text:
            queries[str(node.unique_id)] = text
    return dict(sorted(queries.items()))


def _readers(manifest: Any, unique_id: str) -> Iterator[Any]:
    """Yield the nodes that run a query of the table; those that read a view of it too."""
    children: dict[str, list[Any]] = {}
    for node in manifest.nodes.values():
        for parent in node.depends_on_nodes:
            children.setdefault(parent, []).append(node)
    reached, waiting = set(), [unique_id]
    while waiting:
        for node in children.get(waiting.pop(), ()):
            if node.unique_id in reached:
                continue
            reached.add(node.unique_id)
            if node.config.materialized in _INLINED and node.resource_type == "model":
                waiting.append(node.unique_id)
            elif node.resource_type in _READERS and getattr(node, "language", "sql") == "sql":
                yield node


def _compiled(node: Any, target_path: str) -> str | None:
    """Return what an earlier run compiled, or None."""
    try:
        return Path(node.get_target_write_path(target_path, "compiled")).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
