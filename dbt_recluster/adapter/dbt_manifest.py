"""dbt's manifest: the nodes that ``select`` and ``exclude`` admit, and the compiled SQL of those that read a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dbt_common.exceptions import DbtBaseException

from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.tables import project_queries


def selected_ids(
    manifest: Any, select: Sequence[str] | None, exclude: Sequence[str] | None
) -> frozenset[str]:
    """Return the unique ids of the nodes that selectors admit, as ``dbt run`` takes them.

    dbt does not offer them to ``run-operation``, but its own selection needs only the manifest.

    Args:
        manifest: dbt's manifest.
        select: Selectors, of which one has to admit a node; None admits all.
        exclude: Selectors, of which none may admit it.

    Raises:
        OptionError: A selector is wrong, or selects nothing.
    """
    # Not at the top: they take a fifth of a second.
    from dbt.compilation import Linker
    from dbt.graph.cli import parse_difference
    from dbt.graph.graph import Graph
    from dbt.graph.selector import NodeSelector

    linker = Linker()
    linker.link_graph(manifest)
    try:
        spec = parse_difference(
            list(select) if select is not None else None, list(exclude) if exclude is not None else None
        )
        selected = NodeSelector(Graph(linker.graph), manifest).get_selected(spec, warn_on_no_nodes=False)
    except DbtBaseException as e:
        raise OptionError(f"select or exclude is wrong: {getattr(e, 'msg', None) or e}") from e
    if not selected:
        given = [
            f"{name}: {' '.join(words)}"
            for name, words in (("select", select), ("exclude", exclude))
            if words
        ]
        raise OptionError(f"nothing in this project is left by {', '.join(given)}")
    return frozenset(selected)


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
