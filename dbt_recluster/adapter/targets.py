"""The tables that an operation works on, and what their models say about clustering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt_recluster.adapter.config import ClusteringConfig
from dbt_recluster.columns import name_parts
from dbt_recluster.exceptions import OptionError, ReclusterError

# The materializations that make tables; ephemeral models and views have no blocks.
_TABLES = ("table", "incremental", "snapshot", "seed")

Node = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A table to work on.

    Attributes:
        relation: Its identifier.
        config: The clustering configuration of its model; without a key for a table that is not part of the project.
        required: Whether the user named it. Otherwise it is passed over if it is not built yet.
        error: What is wrong with its model's configuration. Other tables are worked on regardless.
    """

    relation: str
    config: ClusteringConfig
    required: bool
    error: str | None = None


def targets(table: str | list[str] | None, nodes: Iterable[Node]) -> list[Target]:
    """Return the tables that an operation works on.

    Args:
        table: A relation (``schema.table``), the name of a model, seed or snapshot, or a list of both. None means every
            one of the project that has ``cluster_by``.
        nodes: The project's nodes, as in dbt's ``graph``.

    Raises:
        OptionError: A name is unknown or ambiguous, or nothing in the project is clustered.
    """
    built = [node for node in nodes if node["config"].get("materialized") in _TABLES]
    if table is None:
        clustered = [node for node in built if node["config"].get("cluster_by")]
        if not clustered:
            raise OptionError(
                "No model of this project has cluster_by; name a table: --args '{table: schema.name}'"
            )
        return sorted(
            (_target(node, required=False) for node in clustered), key=lambda target: target.relation
        )
    names = [table] if isinstance(table, str) else table
    is_list = isinstance(names, list) and bool(names)
    if not is_list or not all(isinstance(name, str) and name.strip() for name in names):
        raise OptionError(f"table must be a relation, the name of a model, or a list of them, not {table!r}")
    return [_named_target(name.strip(), built) for name in names]


def _named_target(name: str, nodes: list[Node]) -> Target:
    if "." in name:
        matches = [node for node in nodes if _same_table(_relation(node), name)]
        if not matches:
            return Target(name, ClusteringConfig(), required=True)
    else:
        matches = [node for node in nodes if name in (node["name"], node["alias"])]
    if not matches:
        known = ", ".join(sorted(node["name"] for node in nodes))
        raise OptionError(
            f"{name} is no model, seed or snapshot of this project with a table; there are {known}"
        )
    if len(matches) > 1:
        relations = " or ".join(_relation(node) for node in matches)
        raise OptionError(f"{name} may be {relations}; name one of them")
    return _target(matches[0], required=True)


def _target(node: Node, *, required: bool) -> Target:
    config = node["config"]
    try:
        return Target(_relation(node), ClusteringConfig.parse(config.get, config), required)
    except ReclusterError as e:
        error = f"the configuration of its model is wrong: {e}"
        return Target(_relation(node), ClusteringConfig(), required, error)


def _relation(node: Node) -> str:
    return str(node.get("relation_name") or f"{node['schema']}.{node['alias']}")


def _same_table(relation: str, name: str) -> bool:
    """Whether two names may mean one table: they differ at most in that one of them names no catalog."""
    parts = [[part.lower() for part in name_parts(text)] for text in (relation, name)]
    shorter = min(map(len, parts))
    return parts[0][-shorter:] == parts[1][-shorter:]
