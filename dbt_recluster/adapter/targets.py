"""The tables that an operation works on, and what their models say about clustering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt_recluster.adapter.config import DEFAULT_FILE_FORMAT, ClusteringConfig, file_format
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.table_names import NameResolution, Parts, join_parts, name_parts

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
        unique_id: dbt's id of its node, or None for a table that is not part of the project.
    """

    relation: str
    config: ClusteringConfig
    required: bool
    error: str | None = None
    unique_id: str | None = None


@dataclass(frozen=True)
class Choice:
    """The tables that a user chooses: by name, by dbt's selectors, or not at all.

    Attributes:
        table: A relation (``schema.table``), the name of a model, seed or snapshot, or a list of both.
        selected: The unique ids of the nodes that ``select`` and ``exclude`` admit; None without either.
    """

    table: Any = None
    selected: frozenset[str] | None = None

    @property
    def is_given(self) -> bool:
        """Whether the user chose anything."""
        return self.table is not None or self.selected is not None

    @property
    def is_single(self) -> bool:
        """Whether one table is named, by a string."""
        return isinstance(self.table, str)


@dataclass(frozen=True)
class Eligible:
    """Which of a project's tables an operation is for, among those that are not named one by one.

    Attributes:
        admits: Whether a node with a table is one of them.
        trait: What sets them apart, for errors: "has cluster_by".
        by_default: Whether selectors admit other tables too.
    """

    admits: Callable[[Node], bool]
    trait: str
    by_default: bool = False


EVERY_TABLE = Eligible(
    lambda node: file_format(node["config"].get) == DEFAULT_FILE_FORMAT, "is an Iceberg table"
)
CLUSTERED = Eligible(lambda node: bool(node["config"].get("cluster_by")), "has cluster_by")


def targets(
    choice: Choice, nodes: Iterable[Node], names: NameResolution, eligible: Eligible = CLUSTERED
) -> list[Target]:
    """Return the tables that an operation works on: those chosen, or all of the project that it is for.

    Args:
        choice: What the user chose.
        nodes: The project's nodes, as in dbt's ``graph``.
        names: Which table a name means.
        eligible: Which tables the operation is for.

    Raises:
        OptionError: A name is unknown or ambiguous, or there is no such table.
    """
    nodes = list(nodes)
    built = [node for node in nodes if node["config"].get("materialized") in _TABLES]
    if choice.table is None:
        return _eligible_targets(choice, built, eligible)
    given = [choice.table] if isinstance(choice.table, str) else choice.table
    is_list = isinstance(given, list) and bool(given)
    if not is_list or not all(isinstance(name, str) and name.strip() for name in given):
        raise OptionError(
            f"table must be a relation, the name of a model, or a list of them, not {choice.table!r}"
        )
    for name in given:
        _refuse_without_table(name.strip(), built, nodes)
    return [_named_target(_parts(name.strip(), built), built, names) for name in given]


def _refuse_without_table(name: str, built: list[Node], nodes: list[Node]) -> None:
    """Refuse the name of a model that has no table of its own, such as a view."""
    if any(name in (node["name"], node["alias"]) for node in built):
        return
    for node in nodes:
        kind = node["config"].get("materialized")
        if node.get("resource_type") == "model" and name in (node["name"], node["alias"]):
            article = "an" if kind[:1] in "aeiou" else "a"
            raise OptionError(
                f"{name} is {article} {kind}, which has no blocks of its own; name the table that it reads"
            )


def _eligible_targets(choice: Choice, nodes: list[Node], eligible: Eligible) -> list[Target]:
    if choice.selected is not None:
        nodes = [node for node in nodes if node["unique_id"] in choice.selected]
        if not nodes:
            raise OptionError(
                "nothing that is selected is a table that this project builds; name others with table"
            )
        if eligible.by_default:
            eligible = EVERY_TABLE
    found = [node for node in nodes if eligible.admits(node)]
    if not found and choice.selected is not None:
        raise OptionError(f"nothing that is selected {eligible.trait}")
    if not found:
        raise OptionError(
            f"No model of this project {eligible.trait}; name a table: --args '{{table: schema.name}}'"
        )
    return sorted((_target(node, required=False) for node in found), key=lambda target: target.relation)


def _parts(name: str, nodes: list[Node]) -> Parts:
    # dbt allows names of models that SQL does not.
    is_model = "." not in name and any(name in (node["name"], node["alias"]) for node in nodes)
    return (name,) if is_model else name_parts(name)


def _named_target(parts: Parts, nodes: list[Node], names: NameResolution) -> Target:
    name = join_parts(parts)
    if len(parts) > 1:
        matches = [node for node in nodes if names.is_same(_relation(node), parts)]
        if not matches:
            return Target(name, ClusteringConfig(), required=True)
    else:
        matches = [node for node in nodes if parts[0] in (node["name"], node["alias"])]
    if not matches:
        known = ", ".join(sorted(node["name"] for node in nodes))
        raise OptionError(
            f"{name} is no model, seed or snapshot of this project with a table; there are {known}"
        )
    if len(matches) > 1:
        relations = " or ".join(join_parts(_relation(node)) for node in matches)
        raise OptionError(f"{name} may be {relations}; name one of them")
    return _target(matches[0], required=True)


def _target(node: Node, *, required: bool) -> Target:
    config = node["config"]
    try:
        parsed, error = ClusteringConfig.parse(config.get, config), None
    except ReclusterError as e:
        parsed, error = ClusteringConfig(), f"the configuration of its model is wrong: {e}"
    return Target(join_parts(_relation(node)), parsed, required, error, node.get("unique_id"))


def _relation(node: Node) -> Parts:
    # Not from relation_name, where a part that needs backquotes may have none.
    catalog = node.get("database")
    return (*([catalog] if catalog else []), node["schema"], node["alias"])
