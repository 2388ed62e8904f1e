"""What a model says about the clustering of its table.

dbt does not check the values of an adapter's configs, so they are checked here, before any data is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from dbt_recluster.clustering.options import (
    KEY_PROPERTY,
    OPTION_PREFIX,
    RECLUSTER_OPTIONS,
    Option,
    ReclusterOptions,
    declared,
    option,
    property_text,
)
from dbt_recluster.clustering.values import parse_boolean
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.text import did_you_mean

DEFAULT_FILE_FORMAT = "iceberg"

# In a node's `meta`: every option by its own name.
META = "recluster"
_PREFIX = "recluster_"
# Less alike are names that projects have of their own, such as cluster_by_old.
_ALIKE = 0.88


def file_format(config: Mapping[str, Any]) -> str:
    """Return the format of a node's table, by its config."""
    return str(config.get("file_format") or DEFAULT_FILE_FORMAT).lower()


@dataclass(frozen=True)
class ModelOptions:
    """The options of a model.

    Attributes:
        recluster: How its table is reclustered.
        records_reads: Whether the reads of the model's project are recorded after a build.
        columns: The model's columns, once they are known.
        unknown: Warnings about names that no option has.
        sorted_by: The sort order that dbt-trino sets when it makes the table, as the model has it, or None.
    """

    cluster_by: ClusterKey | None = option(
        lambda _, value: None if value == [] else parse_cluster_key(value),
        "The cluster key: a column, an expression, or a list of them.",
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
    recluster: ReclusterOptions = field(default_factory=ReclusterOptions)
    records_reads: bool = False
    columns: Columns | None = None
    unknown: tuple[str, ...] = ()
    sorted_by: str | None = None

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> ModelOptions:
        """Read a node's config: its own keys, and the names in its ``meta: {recluster: ...}``, which mean the same.

        Those in ``meta`` win: they are for dbt-recluster alone, and a folder's ``+cluster_by`` may have exceptions.
        """
        meta = _meta(config)
        values = {
            name: (declaration.config, config.get(declaration.config))
            if meta.get(name) is None
            else (f"meta.{META}.{name}", meta[name])
            for name, declaration in MODEL_OPTIONS.items()
        }
        _, reads = values["reads"]
        of_project = isinstance(reads, str) and reads.strip().lower() == "project"
        if of_project:
            del values["reads"]
        given = {name: MODEL_OPTIONS[name].read(*value) for name, value in values.items()}
        recluster = ReclusterOptions(**{name: given.pop(name) for name in RECLUSTER_OPTIONS if name in given})
        unknown, properties = tuple(unknown_names(config)), config.get("properties")
        sorted_by = properties.get("sorted_by") if isinstance(properties, Mapping) else None
        return cls(
            **given, recluster=recluster, records_reads=of_project, unknown=unknown, sorted_by=sorted_by
        )

    def resolve(self, columns: Columns) -> ModelOptions:
        """Return these options with their key checked against the model's columns and spelled like them."""
        if self.cluster_by is None:
            return self
        return replace(self, cluster_by=self.cluster_by.check(columns), columns=columns)

    def order_by(self) -> str | None:
        """Return the ``ORDER BY`` list that sorts a load, or None if loads are not sorted."""
        if self.cluster_by is None or self.columns is None or not self.sort_on_load:
            return None
        return self.cluster_by.order_by(self.columns) or None

    def properties(self) -> dict[str, str]:
        """Return the properties that record these options with the table; one with its default is not recorded."""
        values = {**vars(self), **vars(self.recluster)}
        return {
            declaration.table_property: property_text(values[name])
            for name, declaration in MODEL_OPTIONS.items()
            if declaration.is_recorded and values[name] != declaration.default
        }

    def recorded(self, properties: Mapping[str, str]) -> dict[str, str | None]:
        """Return what to set among a table's properties, or to remove, so that they record these options."""
        former = (name for name in properties if name.startswith(OPTION_PREFIX))
        return {**dict.fromkeys(former), **self.properties()}


MODEL_OPTIONS: Mapping[str, Option] = {**declared(ModelOptions), **RECLUSTER_OPTIONS}
CONFIGS: Mapping[str, Option] = {declaration.config: declaration for declaration in MODEL_OPTIONS.values()}


def recorded_key(properties: Mapping[str, str]) -> ClusterKey | None:
    """Return the key that a model has set, or None."""
    text = properties.get(KEY_PROPERTY)
    try:
        return None if text is None else parse_cluster_key(text)
    except ClusterKeyError as e:
        raise ClusterKeyError(f"table property {KEY_PROPERTY}: {e}") from None


def unknown_properties(properties: Iterable[str]) -> list[str]:
    """Return the properties that are named like options and are none."""
    known = {declaration.table_property for declaration in MODEL_OPTIONS.values() if declaration.is_recorded}
    return sorted(name for name in properties if name.startswith(OPTION_PREFIX) and name not in known)


def unknown_names(config: Mapping[str, Any], others: Collection[str] | None = None) -> Iterator[str]:
    """Yield a warning about each name in a node's config or its ``meta`` that looks like one of ours and is not read.

    ``others`` are the configs of dbt and its adapter, such as dbt-spark's ``clustered_by``. None if they are not known:
    only what begins with our prefix counts then.
    """
    for key in config:
        if key.startswith(_PREFIX) and key not in CONFIGS:
            yield f"there is no config {key}; {_meant(key, CONFIGS)}"
        elif others is not None and key not in others and key not in CONFIGS and _is_like(key, CONFIGS):
            yield f"there is no config {key}; {did_you_mean(key, CONFIGS)}"
    meta = config.get("meta")
    for name, value in meta.items() if isinstance(meta, Mapping) else ():
        if name != META and _is_like(str(name), (META,)):
            yield f"meta.{name} is not read; did you mean meta.{META}?"
        for key in value if name == META and isinstance(value, Mapping) else ():
            if key not in MODEL_OPTIONS:
                yield f"there is no meta.{META}.{key}; {_meant(str(key), MODEL_OPTIONS)}"


def _is_like(name: str, names: Iterable[str]) -> bool:
    return bool(get_close_matches(name.lower(), names, n=1, cutoff=_ALIKE))


def _meant(name: str, known: Mapping[str, Option]) -> str:
    """Return a question for the nearest name, or all of them. Our prefix, which makes any two alike, does not count."""
    near = get_close_matches(name.lower().removeprefix(_PREFIX), MODEL_OPTIONS, n=1)
    meant = [each for each, declaration in known.items() if declaration.name in near]
    return f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}"


def _meta(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options under a node's ``meta``."""
    meta = config.get("meta")
    given = meta.get(META) if isinstance(meta, Mapping) else None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionError(
            f"meta.{META} must be a mapping of options, such as {{cluster_by: id}}, not {given!r:.40}"
        )
    return given
