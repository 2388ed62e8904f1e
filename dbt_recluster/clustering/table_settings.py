"""The key and options that a model leaves in its table's properties, for those who recluster the table without dbt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.known_reads import KnownRead, parse_reads, reads_as_text
from dbt_recluster.clustering.options import DEFAULT_BLOCK_ROWS, ReclusterOptions
from dbt_recluster.clustering.values import (
    parse_boolean,
    parse_bytes,
    parse_depth,
    parse_predicate,
    parse_row_count,
    parse_strategy,
)
from dbt_recluster.exceptions import ClusterKeyError

# The key as the adapter set it. It distinguishes such a sort order, which is removed with `cluster_by`, from one that
# somebody set by hand.
KEY_PROPERTY = "recluster.cluster_by"
OPTION_PREFIX = "recluster.option."

_AUTOMATIC = "automatic_clustering"
_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "final": lambda name, value: parse_boolean(name, value, default=False),
    "where": parse_predicate,
    "max_bytes": parse_bytes,
    "depth": parse_depth,
    "strategy": parse_strategy,
    "block_rows": parse_row_count,
    "reads": parse_reads,
}
# What may stand after the prefix.
OPTION_NAMES = (*_PARSERS, _AUTOMATIC)


@dataclass(frozen=True)
class TableSettings:
    """The settings in a table's properties. A wrong value is an error when it is needed.

    Attributes:
        properties: All properties of the table.
    """

    properties: Mapping[str, str]

    @property
    def cluster_by(self) -> ClusterKey | None:
        """The key that a model set, or None.

        Raises:
            ClusterKeyError: The property is not a key.
        """
        text = self.properties.get(KEY_PROPERTY)
        if text is None:
            return None
        try:
            return parse_cluster_key(text)
        except ClusterKeyError as e:
            raise ClusterKeyError(f"table property {KEY_PROPERTY}: {e}") from None

    @property
    def block_rows(self) -> int:
        """The most rows in a new block.

        Raises:
            OptionError: The property is no such number.
        """
        is_set = f"{OPTION_PREFIX}block_rows" in self.properties
        rows: int = self._option("block_rows") if is_set else DEFAULT_BLOCK_ROWS
        return rows

    @property
    def reads(self) -> tuple[KnownRead, ...] | None:
        """The reads that the table's model declares, or None if it declares none.

        Raises:
            OptionError: The property is no list of reads.
        """
        is_set = f"{OPTION_PREFIX}reads" in self.properties
        reads: tuple[KnownRead, ...] | None = self._option("reads") if is_set else None
        return reads

    @property
    def automatic_clustering(self) -> bool:
        """Whether the table may be reclustered without being named.

        Raises:
            OptionError: The property is neither true nor false.
        """
        name = f"{OPTION_PREFIX}{_AUTOMATIC}"
        return parse_boolean(f"table property {name}", self.properties.get(name), default=True)

    @property
    def unknown(self) -> list[str]:
        """Properties that look like options and are none."""
        return sorted(
            name
            for name in self.properties
            if name.startswith(OPTION_PREFIX) and name.removeprefix(OPTION_PREFIX) not in OPTION_NAMES
        )

    def options(self, **given: Any) -> ReclusterOptions:
        """Return the options of a recluster; values in ``given`` replace those of the table.

        Raises:
            OptionError: A value has the wrong type or range.
        """
        own = {
            name: self._option(name)
            for name in _PARSERS
            if name not in given and f"{OPTION_PREFIX}{name}" in self.properties
        }
        return ReclusterOptions(**{**own, **given})

    def _option(self, name: str) -> Any:
        prop = f"{OPTION_PREFIX}{name}"
        return _PARSERS[name](f"table property {prop}", self.properties[prop])


def option_properties(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that record options; one with its default is not recorded.

    Args:
        options: Values by name, of :data:`OPTION_NAMES`.
        defaults: The default of each.
    """
    return {
        f"{OPTION_PREFIX}{name}": _text(value) for name, value in options.items() if value != defaults[name]
    }


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return reads_as_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
