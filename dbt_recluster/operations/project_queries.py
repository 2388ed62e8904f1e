"""The queries of a project that read a table: what dbt compiled, in this run or an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dbt_recluster.operations.tables import Node

# Nodes whose SQL is part of that of others, and does not run by itself.
_INLINED = ("ephemeral", "view")
_READERS = ("model", "snapshot", "test", "analysis")


def project_queries(
    nodes: Mapping[str, Node], unique_id: str, compiled: Callable[[Node], str | None]
) -> dict[str, str]:
    """Return the compiled SQL of everything that reads the table of a node, directly or through views, by name.

    Args:
        nodes: The nodes of the project, by their ids.
        unique_id: The node.
        compiled: Returns the compiled SQL of a node, or None.
    """
    queries = {str(node["unique_id"]): compiled(node) for node in _readers(nodes, unique_id)}
    return {name: text for name, text in sorted(queries.items()) if text}


def _readers(nodes: Mapping[str, Node], unique_id: str) -> Iterator[Node]:
    """Yield the nodes that run a query of the table; those that read a view of it too."""
    children: dict[str, list[Node]] = {}
    for node in nodes.values():
        for parent in (node.get("depends_on") or {}).get("nodes") or ():
            children.setdefault(parent, []).append(node)
    reached, waiting = set(), [unique_id]
    while waiting:
        for node in children.get(waiting.pop(), ()):
            if node["unique_id"] in reached:
                continue
            reached.add(node["unique_id"])
            kind = node.get("resource_type")
            if kind == "model" and node["config"].get("materialized") in _INLINED:
                waiting.append(node["unique_id"])
            elif kind in _READERS and (node.get("language") or "sql") == "sql":
                yield node
