"""The nodes of a project: the options of a model, its table, and the project's queries of it.

They come from dbt's graph or a manifest. Options are checked before any data is written: dbt checks no values of an
adapter's configs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from dbt_recluster.clustering.options import (
    AUTO,
    RECLUSTER_OPTIONS,
    Option,
    ReclusterOptions,
    declared,
    is_auto,
    option,
    parse_boolean,
    property_text,
)
from dbt_recluster.exceptions import ClusterKeyError, OptionError, ReclusterError
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CLUSTER_BY, OPTION_PREFIX
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.names import NameResolution, Parts, join_parts, name_parts
from dbt_recluster.text import did_you_mean

DEFAULT_FILE_FORMAT = "iceberg"

META = "recluster"  # in a node's `meta`: every option by its own name
_PREFIX = "recluster_"


def file_format(config: Mapping[str, Any]) -> str:
    """Return the format of a node's table, by its config."""
    return str(config.get("file_format") or DEFAULT_FILE_FORMAT).lower()


@dataclass(frozen=True)
class ModelOptions:
    """The options of a model."""

    cluster_by: ClusterKey | None = option(
        lambda _, value: None if value == [] or is_auto(value) else parse_cluster_key(value),
        "The cluster key: a column, an expression, or a list of them; auto, by what queries read.",
        otherwise="none",
        example="[event_date, user_id]",
        config="cluster_by",
        is_recorded=False,
    )
    automatic_clustering: bool = option(
        parse_boolean,
        "Recluster after each build.",
        default=True,
        example="false",
        config="automatic_clustering",
    )
    sort_on_load: bool = option(
        parse_boolean,
        "Sort each load by the key as it is written.",
        default=True,
        example="false",
        config="sort_on_load",
        is_recorded=False,
    )
    maintain: bool = option(
        parse_boolean,
        "After each build, do the maintenance that is due.",
        default=False,
        example="true",
        is_recorded=False,
    )
    # Under `auto`, what the table records of its choices; `cluster_by` is then the key that it has, if any.
    auto: str | None = None
    recluster: ReclusterOptions = field(default_factory=ReclusterOptions)
    records_reads: bool = False  # whether to record the project's reads after a build
    columns: Columns | None = None  # of the model, once they are known
    unknown: tuple[str, ...] = ()  # warnings about names that no option has
    sorted_by: str | None = None  # of the model, which dbt-trino makes the table's sort order
    # The config that sets an option, and its value there, by the option's name.
    written: Mapping[str, tuple[str, Any]] = field(default_factory=dict, compare=False)

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> ModelOptions:
        """Read a node's config, in which ``meta: {recluster: ...}`` overrides keys of the same meaning.

        ``meta.recluster`` is for dbt-recluster alone, so a model can be an exception to a folder's ``+cluster_by``.
        """
        whole = config.get("meta")
        own = whole.get(META) if isinstance(whole, Mapping) else None
        meta = {} if own is None else own
        if not isinstance(meta, Mapping):
            raise OptionError(f"meta.{META} must be a mapping of options, such as {{cluster_by: id}}, not {meta!r:.40}")
        values = {name: (of.config, config.get(of.config)) for name, of in MODEL_OPTIONS.items()}
        in_meta = {name for name in MODEL_OPTIONS if meta.get(name) is not None}
        values |= {name: (f"meta.{META}.{name}", meta[name]) for name in in_meta}
        written = {name: (of, value) for name, (of, value) in values.items() if value is not None}
        _, reads = values["reads"]
        of_project = isinstance(reads, str) and reads.strip().lower() == "project"
        if of_project:
            del values["reads"]
        given = {name: MODEL_OPTIONS[name].read(*value) for name, value in values.items()}
        recluster = ReclusterOptions(**{name: given.pop(name) for name in RECLUSTER_OPTIONS if name in given})
        properties = config.get("properties")
        sorted_by = properties.get("sorted_by") if isinstance(properties, Mapping) else None
        return cls(
            **given,
            auto=AUTO_KEY.dump({}) if is_auto(values["cluster_by"][1]) else None,
            recluster=recluster,
            records_reads=of_project,
            unknown=tuple(unknown_names(config)),
            sorted_by=sorted_by,
            written=written,
        )

    def check_key(self, relation: str, given: ClusterKey | None) -> None:
        """Refuse another key for the model's table than that of its configuration."""
        own = self.cluster_by if self.auto is None else AUTO
        if own is not None and given is not None and str(own).lower() != str(given).lower():
            raise ClusterKeyError(
                f"the model of {relation} has cluster_by {own}; change it there instead of naming {given} here"
            )

    def resolve(self, columns: Columns) -> ModelOptions:
        """Return these options with the key checked against the model's columns, and its case taken from them."""
        if self.cluster_by is None:
            return self
        try:
            return replace(self, cluster_by=self.cluster_by.check(columns), columns=columns)
        except ClusterKeyError:
            if self.auto is None:
                raise
            return replace(self, cluster_by=None, auto=AUTO_KEY.dump({}))  # another one is chosen at once

    @property
    def is_clustered(self) -> bool:
        """Whether the table has a cluster key, or gets one."""
        return self.cluster_by is not None or self.auto is not None

    def properties(self) -> dict[str, str]:
        """Return the properties that record these options with the table; defaults are not recorded."""
        values = {**vars(self), **vars(self.recluster)}
        return {
            declaration.table_property: property_text(values[name])
            for name, declaration in MODEL_OPTIONS.items()
            if declaration.is_recorded and values[name] != declaration.default
        }

    def recorded(self, properties: Mapping[str, str]) -> dict[str, str | None]:
        """Return the changes to a table's properties that record these options; None removes one."""
        former = (name for name in properties if name.startswith(OPTION_PREFIX))
        ended = self.auto is None and AUTO_KEY in properties
        key = {AUTO_KEY: None, CLUSTER_BY: str(self.cluster_by) if self.cluster_by else None} if ended else {}
        return {**dict.fromkeys(former), **key, **self.properties()}


MODEL_OPTIONS: Mapping[str, Option] = {**declared(ModelOptions), **RECLUSTER_OPTIONS}
CONFIGS: Mapping[str, Option] = {declaration.config: declaration for declaration in MODEL_OPTIONS.values()}


def written_options(properties: Mapping[str, str], sort_order: str) -> dict[str, tuple[str, Any, str]]:
    """Return the name, the text and the origin of the options that a table has without its model.

    ``sort_order`` is empty if it has the recorded key.
    """
    names = {CLUSTER_BY: "cluster_by", **{of.table_property: n for n, of in MODEL_OPTIONS.items() if of.is_recorded}}
    if AUTO_KEY in properties:
        properties, sort_order = {**properties, CLUSTER_BY: AUTO}, ""
    recorded = ((name, text) for name, text in properties.items() if name in names)
    key = {"cluster_by": ("sort order", sort_order, "sort order")} if sort_order else {}
    return {names[name]: (name, text, "table property") for name, text in recorded} | key


def unknown_properties(properties: Iterable[str]) -> list[str]:
    """Return the properties with an option's prefix that are no option."""
    known = {declaration.table_property for declaration in MODEL_OPTIONS.values() if declaration.is_recorded}
    return sorted(name for name in properties if name.startswith(OPTION_PREFIX) and name not in known)


def unknown_names(config: Mapping[str, Any], others: Collection[str] | None = None) -> Iterator[str]:
    """Yield a warning for each name in a node's config or its ``meta`` that resembles an option and is none.

    ``others`` are the configs of dbt and its adapter, such as dbt-spark's ``clustered_by``; None if they are not known:
    then only names with our prefix count.
    """
    for key in config:
        if key.startswith(_PREFIX) and key not in CONFIGS:
            yield f"there is no config {key}; {_meant(key, CONFIGS)}"
        elif others is not None and key not in others and key not in CONFIGS and is_similar(key, CONFIGS):
            yield f"there is no config {key}; {did_you_mean(key, CONFIGS)}"
    meta = config.get("meta")
    for name, value in meta.items() if isinstance(meta, Mapping) else ():
        if name != META and is_similar(str(name), (META,)):
            yield f"meta.{name} is not read; did you mean meta.{META}?"
        for key in value if name == META and isinstance(value, Mapping) else ():
            if key not in MODEL_OPTIONS:
                yield f"there is no meta.{META}.{key}; {_meant(str(key), MODEL_OPTIONS)}"


def is_similar(name: str, names: Iterable[str]) -> bool:
    """Return whether a name is probably a misspelt one of ours; projects have own ones, such as cluster_by_old."""
    return bool(get_close_matches(name.lower(), map(str.lower, names), n=1, cutoff=0.88))


def _meant(name: str, known: Mapping[str, Option]) -> str:
    """Suggest the nearest name, or list all. The prefix does not count: it makes any two names similar."""
    near = get_close_matches(name.lower().removeprefix(_PREFIX), MODEL_OPTIONS, n=1)
    meant = [each for each, declaration in known.items() if declaration.name in near]
    return f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}"


# --- tables ---

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
            if self.option is None:
                is_meant = file_format(node["config"]) == DEFAULT_FILE_FORMAT
            else:
                is_meant = target.options is None or bool(getattr(target.options, self.option))
            if is_meant:
                yield target


EVERY_TABLE = Eligible(None, "is an Iceberg table")
CLUSTERED = Eligible("is_clustered", "has cluster_by")
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
        given = [table] if isinstance(table, str) else table
        return [_named_target(name.strip(), every, names) for name in given]
    admitted = sorted(eligible.targets(every), key=lambda target: target.relation)
    if not admitted:
        raise OptionError(f"No model of {of} {eligible.trait}; name a table: schema.name")
    return admitted


def target_of(node: Node, *, required: bool = False) -> Target:
    """Return the table of a node as a target."""
    options, error = None, None
    try:
        options = ModelOptions.of_config(node["config"])
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
        found = {"tag": node.get("tags") or [], "group": [group], "owner": owners_of_node}
        return {name: list(dict.fromkeys(map(str, filter(None, values)))) for name, values in found.items()}

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
        own = str(node.get("name"))
        return str(node.get("unique_id")), own, f"{own}.v{node.get('version')}"

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
    known = sorted({node["name"] for node in nodes if has_table(node)})
    absent = f"{name} is no model, seed or snapshot of this project"
    if meant := did_you_mean(name, known):
        raise OptionError(f"{absent}; {meant}")
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    raise OptionError(f"{absent} with a table; there are {', '.join(known[:_MOST_NAMED])}{more}")


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
