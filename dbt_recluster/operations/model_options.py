"""The options of a model, checked before any data is written: dbt checks no values of an adapter's configs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import PlainValidator

from dbt_recluster.clustering.options import (
    AUTO,
    RECLUSTER_OPTIONS,
    Boolean,
    Expected,
    Option,
    ReclusterOptions,
    Text,
    declared,
    is_auto,
    option,
    property_text,
)
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CLUSTER_BY, OPTION_PREFIX
from dbt_recluster.key.cluster_key import ALLOWED, ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.text import did_you_mean

DEFAULT_FILE_FORMAT = "iceberg"

META = "recluster"  # in a node's `meta`: every option by its own name
_PREFIX = "recluster_"


def file_format(config: Mapping[str, Any]) -> str:
    """Return the format of a node's table, by its config."""
    return str(config.get("file_format") or DEFAULT_FILE_FORMAT).lower()


def is_iceberg(config: Mapping[str, Any]) -> bool:
    """Return whether a node's table is an Iceberg table, by its config; ``s3tables`` is dbt-glue's format for some."""
    formats = {str(config.get(name)).lower() for name in ("table_format", "table_type")}
    return "iceberg" in formats or file_format(config) in (DEFAULT_FILE_FORMAT, "s3tables")


_Item = Annotated[Text, Expected(ALLOWED, schema={"type": "string", "minLength": 1, "description": ALLOWED})]


def _key(value: Any) -> ClusterKey | None:
    return None if (isinstance(value, list) and not value) or is_auto(value) else parse_cluster_key(value)


@dataclass(frozen=True)
class ModelOptions:
    """The options of a model."""

    cluster_by: ClusterKey | None = option(
        "The cluster key: a column, an expression, or a list of them; auto, by what queries read.",
        otherwise="none",
        example="[event_date, user_id]",
        config="cluster_by",
        is_recorded=False,
        kind=Annotated[Any, PlainValidator(_key, json_schema_input_type=_Item | list[_Item])],
    )
    automatic_clustering: Boolean = option(
        "Recluster after each build.",
        default=True,
        example="false",
        config="automatic_clustering",
    )
    sort_on_load: Boolean = option(
        "Sort each load by the key as it is written.",
        default=True,
        example="false",
        config="sort_on_load",
        is_recorded=False,
    )
    maintain: Boolean = option(
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
    def from_config(cls, config: Mapping[str, Any]) -> ModelOptions:
        """Read a node's config, in which ``meta: {recluster: ...}`` overrides keys of the same meaning.

        ``meta.recluster`` is for dbt-recluster alone, so a model can be an exception to a folder's ``+cluster_by``.
        """
        whole = config.get("meta")
        section = whole.get(META) if isinstance(whole, Mapping) else None
        meta = {} if section is None else section
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
        options = {name: MODEL_OPTIONS[name].read(*value) for name, value in values.items()}
        recluster = ReclusterOptions(**{name: options.pop(name) for name in RECLUSTER_OPTIONS if name in options})
        properties = config.get("properties")
        sorted_by = properties.get("sorted_by") if isinstance(properties, Mapping) else None
        return cls(
            **options,
            auto=AUTO_KEY.dump({}) if is_auto(values["cluster_by"][1]) else None,
            recluster=recluster,
            records_reads=of_project,
            unknown=tuple(unknown_names(config)),
            sorted_by=sorted_by,
            written=written,
        )

    def check_key(self, relation: str, key: ClusterKey | None) -> None:
        """Refuse another key for the model's table than that of its configuration."""
        cluster_by = self.cluster_by if self.auto is None else AUTO
        if cluster_by is not None and key is not None and str(cluster_by).lower() != str(key).lower():
            raise ClusterKeyError(
                f"the model of {relation} has cluster_by {cluster_by}; change it there instead of naming {key} here"
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
    recorded = ((name, text) for name, text in properties.items() if name in names)
    key = {"cluster_by": ("sort order", sort_order, "sort order")} if sort_order else {}
    key = {"cluster_by": (str(AUTO_KEY), AUTO, "table property")} if AUTO_KEY in properties else key
    return {names[name]: (name, text, "table property") for name, text in recorded} | key


def unknown_properties(properties: Iterable[str]) -> list[str]:
    """Return the properties with an option's prefix that are no option."""
    recorded = {declaration.table_property for declaration in MODEL_OPTIONS.values() if declaration.is_recorded}
    return sorted(name for name in properties if name.startswith(OPTION_PREFIX) and name not in recorded)


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


def _meant(name: str, options: Mapping[str, Option]) -> str:
    """Suggest the nearest name, or list all. The prefix does not count: it makes any two names similar."""
    by_name = {declaration.name: each for each, declaration in options.items()}
    near = get_close_matches(name.lower().removeprefix(_PREFIX), by_name, n=1)
    return f"did you mean {by_name[near[0]]}?" if near else f"there are {', '.join(options)}"
