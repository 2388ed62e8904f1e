"""dbt's selectors in operations: ``select`` and ``exclude`` as ``dbt run`` takes them.

dbt does not offer them to ``run-operation``, but its own selection needs only the manifest, which the adapter has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dbt_common.exceptions import DbtBaseException

from dbt_recluster.exceptions import OptionError


def selected_ids(
    manifest: Any, select: Sequence[str] | None, exclude: Sequence[str] | None
) -> frozenset[str]:
    """Return the unique ids of the nodes that selectors admit.

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
