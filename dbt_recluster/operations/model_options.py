"""What a model says about the clustering of its table.

dbt does not check the values of an adapter's configs, so they are checked here, before any data is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
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
from dbt_recluster.columns import Columns
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.text import did_you_mean

DEFAULT_FILE_FORMAT = "iceberg"

# In a node's `meta`: every option by its own name.
META = "recluster"
_PREFIX = "recluster_"
# Less alike are names that projects have of their own, such as cluster_by_old.
_ALIKE = 0.85


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

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> ModelOptions:
        """Read a node's config: its own keys, and the names in its ``meta: {recluster: ...}``, which mean the same.

        Those in ``meta`` win: they are for dbt-recluster alone, and a folder's ``+cluster_by`` may have exceptions.
        """
        ours = [key for key in config if str(key).startswith(_PREFIX)]
        _check_known(ours, CONFIGS, "{} is not a config of dbt-recluster")
        meta = _meta(config)
        values = {
            name: (declaration.config, config.get(declaration.config))
            if meta.get(name) is None
            else (f"meta.{META}.{name}", meta[name])
            for name, declaration in MODEL_OPTIONS.items()
        }
        _, reads = values["reads"]
        if isinstance(reads, str) and reads.strip().lower() == "project":
            del values["reads"]
            return replace(cls._of_values(values), records_reads=True)
        return cls._of_values(values)

    @classmethod
    def _of_values(cls, values: Mapping[str, tuple[str, Any]]) -> ModelOptions:
        """Read values, each with the name that an error mentions."""
        given = {name: MODEL_OPTIONS[name].read(*value) for name, value in values.items()}
        recluster = {name: given.pop(name) for name in RECLUSTER_OPTIONS if name in given}
        return cls(**given, recluster=ReclusterOptions(**recluster))

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


def misspelt(keys: Iterable[str], known: Collection[str]) -> list[tuple[str, str]]:
    """Return the configs that resemble one of ours, with the nearest of them.

    dbt and the adapter have ``known`` ones that do: dbt-spark's ``clustered_by``.
    """
    unknown = (key for key in keys if key not in known and key not in CONFIGS)
    near = ((key, get_close_matches(key.lower(), CONFIGS, n=1, cutoff=_ALIKE)) for key in unknown)
    return [(key, matches[0]) for key, matches in near if matches]


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
    _check_known(given, MODEL_OPTIONS, f"meta.{META} has no option {{}}")
    return given


def _check_known(names: Iterable[str], known: Collection[str], refusal: str) -> None:
    if unknown := sorted(str(name) for name in names if name not in known):
        raise OptionError(f"{refusal.format(unknown[0])}; {did_you_mean(unknown[0], known, 'there are')}")
