"""Operations in the hooks of a node: they are for its own table, unless they name another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dbt.adapters.base.relation import BaseRelation
from jinja2 import Environment, nodes

from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import FORMAT, TABLE
from dbt_recluster.operations.reclustering import recluster

# What makes a table, and may have a hook.
_NODES = ("model", "seed", "snapshot")


def with_table(given: Mapping[str, Any], macros: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the arguments of an operation, with the table of the node whose hook it is in if they name none.

    And whether that is its table.
    """
    own = macros["this"].render() if (macros.get("model") or {}).get("resource_type") in _NODES else None
    table = given.get(TABLE.name) or own
    name = table.render() if isinstance(table, BaseRelation) else table
    return {**given, TABLE.name: name}, own is not None and name == own


def recluster_arguments(given: Mapping[str, Any], macros: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a recluster of the hook's own node, checked."""
    arguments = recluster.read((TABLE, FORMAT), given)
    if macros["load_result"]("main") is None:
        raise OptionError(
            f"recluster() of {macros['model']['name']} is called before its table is built: it is for a post_hook, and "
            'in quotes, post_hook="{{ recluster() }}"'
        )
    return arguments


def reclusters(hooks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a hook calls ``recluster`` for its own node, or does so under a condition, as far as its text tells."""
    environment = Environment(extensions=["jinja2.ext.do"])
    for hook in hooks:
        for call in environment.parse(hook["sql"]).find_all(nodes.Call):
            # recluster() or dbt.recluster()
            name = getattr(call.node, "name", getattr(call.node, "attr", None))
            tables = [*call.args, *(word.value for word in call.kwargs if word.key == TABLE.name)]
            if name == recluster.name and all(getattr(table, "name", None) == "this" for table in tables):
                return True
    return False
