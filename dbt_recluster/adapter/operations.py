"""What ``dbt run-operation`` works on: the tables that a user names, and what their models say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt_recluster.adapter.arguments import parse_format
from dbt_recluster.adapter.config import ClusteringConfig
from dbt_recluster.adapter.values import (
    parse_boolean,
    parse_bytes,
    parse_depth,
    parse_predicate,
    parse_strategy,
)
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.iceberg.locks import canonical_name

# The materializations that make tables; an ephemeral model or a view has no blocks.
_TABLES = ("table", "incremental", "snapshot", "seed")

Node = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A table to work on.

    Attributes:
        relation: Its identifier.
        config: What its model says about clustering; without a key for a table that is no model of the project.
        required: Whether the user named it. One of "every model" that is not built yet is passed over.
        error: What is wrong with its model's configuration; the other tables have their turn all the same.
    """

    relation: str
    config: ClusteringConfig
    required: bool
    error: str | None = None


@dataclass(frozen=True)
class ReclusterOptions:
    """The arguments of ``run-operation recluster``; None where not given."""

    final: bool | None = None
    where: str | None = None
    max_bytes: int | None = None
    depth: float | None = None
    strategy: str | None = None
    dry_run: bool = False
    format: str = "text"

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> ReclusterOptions:
        """Check the arguments.

        Raises:
            OptionError: A wrong type or range; the message speaks of the argument by its own name.
        """
        final = arguments.get("final")
        return cls(
            final=None if final is None else parse_boolean("final", final, default=False),
            where=parse_predicate("where", arguments.get("where")),
            max_bytes=parse_bytes("max_bytes", arguments.get("max_bytes")),
            depth=parse_depth("depth", arguments.get("depth")),
            strategy=parse_strategy("strategy", arguments.get("strategy")),
            dry_run=parse_boolean("dry_run", arguments.get("dry_run"), default=False),
            format=parse_format(arguments.get("format")),
        )


def targets(table: str | list[str] | None, nodes: Iterable[Node]) -> list[Target]:
    """Return the tables that an operation is to work on.

    Args:
        table: A relation (``schema.table``), the name of a model, seed or snapshot, or a list of both. None means
            every one of the project that has ``cluster_by``.
        nodes: The project's nodes, as dbt's ``graph`` holds them.

    Raises:
        OptionError: A name is unknown or stands for several nodes, or nothing in the project is clustered.
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
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) and name.strip() for name in names)
    ):
        raise OptionError(f"table must be a relation, the name of a model, or a list of them, not {table!r}")
    return [_named_target(name.strip(), built) for name in names]


def _named_target(name: str, nodes: list[Node]) -> Target:
    if "." in name:
        for node in nodes:
            if canonical_name(_relation(node)) == canonical_name(name):
                return _target(node, required=True)
        return Target(name, ClusteringConfig(), required=True)
    matches = [node for node in nodes if name in (node["name"], node["alias"])]
    if not matches:
        known = ", ".join(sorted(node["name"] for node in nodes))
        raise OptionError(
            f"{name} is no model, seed or snapshot of this project with a table of its own: {known}"
        )
    if len(matches) > 1:
        relations = ", ".join(_relation(node) for node in matches)
        raise OptionError(f"{name} stands for several tables, {relations}; name the one you mean")
    return _target(matches[0], required=True)


def _target(node: Node, *, required: bool) -> Target:
    config = node["config"]
    try:
        return Target(_relation(node), ClusteringConfig.parse(config.get, config), required)
    except ReclusterError as e:
        return Target(_relation(node), ClusteringConfig(), required, f"its model is wrong: {e}")


def _relation(node: Node) -> str:
    return str(node.get("relation_name") or f"{node['schema']}.{node['alias']}")
