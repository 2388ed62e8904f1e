"""The nodes of a project, from dbt's graph or a manifest: which tables a user means, and the queries of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.names import NameResolution, Parts, join_parts, name_parts
from dbt_recluster.operations.model_options import ModelOptions, is_iceberg
from dbt_recluster.text import did_you_mean

# A node as dbt's graph and its manifest have it.
Node = Mapping[str, Any]

TABLES = ("model", "seed", "snapshot")
# The materializations without blocks. Any other may make a table: adapters and projects have their own.
_NO_TABLES = ("view", "ephemeral", "materialized_view", "test", "unit", "function")
_MOST_NAMED = 20


@dataclass(frozen=True)
class Target:
    """A table to work on; one outside the project has no options of a model, and no unique id."""

    relation: str  # its identifier
    options: ModelOptions | None = None
    required: bool = True  # whether the user named it; otherwise it is skipped if it is not built yet
    error: str | None = None  # what is wrong with its model's options
    unique_id: str | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)  # see :func:`labelled`


@dataclass(frozen=True)
class Eligible:
    """The nodes that an operation is for, unless tables are named one by one."""

    option: str | None  # the attribute of their options that is true; None for all Iceberg tables
    trait: str  # what they have in common, for errors
    by_default: bool = False  # whether ``--select`` admits other tables too

    def targets(self, nodes: Iterable[Node]) -> Iterator[Target]:
        """Yield the tables that the operation is for; one whose options are wrong is among them to report that."""
        for node in filter(has_table, nodes):
            target = target_of(node)
            is_meant = self.option is None or target.options is None or getattr(target.options, self.option)
            if is_meant and is_iceberg(node["config"]):
                yield target


EVERY_TABLE = Eligible(None, "is an Iceberg table")
CLUSTERED = Eligible("is_clustered", "is an Iceberg table with cluster_by")
MAINTAINED = Eligible("maintain", "has recluster_maintain: true", by_default=True)


def has_table(node: Node) -> bool:
    """Return whether a node makes a table."""
    kind, materialized = node.get("resource_type", "model"), node["config"].get("materialized")
    return kind in TABLES and materialized not in _NO_TABLES


def choose(
    nodes: Iterable[Node],
    table: str | Sequence[str] | None,
    names: NameResolution,
    eligible: Eligible = CLUSTERED,
    of: str = "this project",
) -> list[Target]:
    """Return the tables that a user names, as relations or nodes (:func:`table_named`), or those of all eligible nodes.

    ``nodes`` are those of the project, or those that the user has selected, which ``of`` says for errors.
    """
    every = list(nodes)
    if table is not None:
        tables = [table] if isinstance(table, str) else table
        return [_named_target(name.strip(), every, names) for name in tables]
    admitted = sorted(eligible.targets(every), key=lambda target: target.relation)
    if not admitted:
        raise OptionError(f"No model of {of} {eligible.trait}; name a table: schema.name")
    return admitted


def target_of(node: Node, *, required: bool = False) -> Target:
    """Return the table of a node as a target."""
    options, error = None, None
    try:
        options = ModelOptions.from_config(node["config"])
    except ReclusterError as e:
        file = node.get("original_file_path")
        error = f"the configuration of its model{f' in {file}' if file else ''} is wrong: {e}"
    relation, labels = join_parts(relation_of(node)), node.get("labels") or {}
    return Target(relation, options, required, error, node.get("unique_id"), labels)


def labelled(nodes: Mapping[str, Node], groups: Mapping[str, Node]) -> dict[str, Node]:
    """Return nodes with ``labels``: their tags, group, and owner, which is ``meta.owner``, else that of the group."""
    owners = {(of.get("package_name"), of.get("name")): of.get("owner") or {} for of in groups.values()}

    def labels(node: Node) -> dict[str, list[str]]:
        group = node.get("group") or node["config"].get("group")
        of_group = owners.get((node.get("package_name"), group), {})
        meta = node["config"].get("meta") or {}
        owner = meta.get("owner") or of_group.get("name") or of_group.get("email")
        owners_of_node = owner if isinstance(owner, list) else [owner]
        values_of = {"tag": node.get("tags") or [], "group": [group], "owner": owners_of_node}
        return {name: list(dict.fromkeys(map(str, filter(None, values)))) for name, values in values_of.items()}

    return {unique_id: {**node, "labels": labels(node)} for unique_id, node in nodes.items()}


def relation_of(node: Node) -> Parts:
    """Return the parts of the name of a node's table."""
    # Not from relation_name, where a part that needs backquotes may have none.
    catalog = node.get("database")
    return (*([catalog] if catalog else []), node["schema"], node["alias"])


def _named_target(name: str, nodes: Sequence[Node], names: NameResolution) -> Target:
    node = table_named(name, nodes)
    if node is None:
        parts = name_parts(name)
        name = join_parts(parts)
        if len(parts) == 1:
            return target_of(required_table(parts[0], nodes), required=True)
        same = (each for each in filter(has_table, nodes) if names.is_same(relation_of(each), parts))
        node = next(same, None)
    return Target(name) if node is None else target_of(node, required=True)


def table_named(name: str, nodes: Iterable[Node]) -> Node | None:
    """Return the model, seed or snapshot of a unique id or a name, or None.

    dbt names a model ``orders``, and a version of it ``orders.v2``; an alias counts where nothing has that name.

    Raises:
        OptionError: Several have the name, or it makes no table.
    """

    def names(node: Node) -> tuple[str, ...]:
        name = str(node.get("name"))
        return str(node.get("unique_id")), name, f"{name}.v{node.get('version')}"

    nodes = [node for node in nodes if node.get("resource_type", "model") in TABLES]
    matches = [node for node in nodes if name in names(node)]
    matches = matches or [node for node in nodes if name == node.get("alias")]
    if len(matches) > 1:
        ids = " or ".join(str(node["unique_id"]) for node in matches)
        raise OptionError(f"{name} may be {ids}; give one of these")
    if matches and not has_table(matches[0]):
        kind = str(matches[0]["config"].get("materialized"))
        article = "an" if kind[:1] in "aeiou" else "a"
        raise OptionError(f"{name} is {article} {kind}, which has no blocks of its own; name the table that it reads")
    return matches[0] if matches else None


def required_table(name: str, nodes: Sequence[Node]) -> Node:
    """Return the node that :func:`table_named` finds, or raise an OptionError that suggests others."""
    if (node := table_named(name, nodes)) is not None:
        return node
    names = sorted({node["name"] for node in nodes if has_table(node)})
    absent = f"{name} is no model, seed or snapshot of this project"
    if meant := did_you_mean(name, names):
        raise OptionError(f"{absent}; {meant}")
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    raise OptionError(f"{absent} with a table; there are {', '.join(names[:_MOST_NAMED])}{more}")


def project_queries(
    nodes: Mapping[str, Node], unique_id: str, compiled: Callable[[Node], str | None]
) -> dict[str, str]:
    """Return the SQL that reads the table of a node, directly or through views, by the reader's unique id.

    ``nodes`` are those of the project by their ids, and ``compiled`` returns the compiled SQL of one, or None.
    """
    queries = {str(node["unique_id"]): compiled(node) for node in _readers(nodes, unique_id)}
    return {name: text for name, text in sorted(queries.items()) if text}


def _readers(nodes: Mapping[str, Node], unique_id: str) -> Iterator[Node]:
    """Yield the nodes that run a query of the table, directly or through a view.

    A view that only tests read is there for people outside the project, who run its query.
    """
    children: dict[str, list[Node]] = {}
    for node in nodes.values():
        for parent in (node.get("depends_on") or {}).get("nodes") or ():
            children.setdefault(str(parent), []).append(node)
    reached, waiting = set(), [unique_id]
    while waiting:
        for node in children.get(waiting.pop(), ()):
            if node["unique_id"] in reached:
                continue
            reached.add(node["unique_id"])
            kind, materialized = node.get("resource_type"), node["config"].get("materialized")
            is_reader = kind in ("model", "snapshot", "test", "analysis")
            runs = is_reader and (node.get("language") or "sql") == "sql"
            if kind == "model" and materialized in ("ephemeral", "view"):  # inlined into other queries
                waiting.append(node["unique_id"])
                readers = children.get(node["unique_id"], ())
                runs = materialized == "view" and all(each.get("resource_type") == "test" for each in readers)
            if runs:
                yield node
