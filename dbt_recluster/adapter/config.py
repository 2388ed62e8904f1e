"""The clustering configuration of a model: one small pure function for each key.

dbt does not check the values of adapter configs, so they are checked here, before any data is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.due_conditions import After, DueConditions, When, parse_after, parse_when
from dbt_recluster.clustering.known_reads import KnownRead, parse_reads
from dbt_recluster.clustering.options import DEFAULT_BLOCK_ROWS, ReclusterOptions
from dbt_recluster.clustering.values import (
    Depth,
    parse_boolean,
    parse_bytes,
    parse_depth,
    parse_predicate,
    parse_row_count,
    parse_strategy,
)
from dbt_recluster.columns import Columns
from dbt_recluster.exceptions import OptionError

DEFAULT_FILE_FORMAT = "iceberg"
AUTOMATIC_CLUSTERING_VAR = "automatic_clustering"
AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
BUDGET_VAR = "recluster_max_bytes"

# Less alike are names that projects have of their own, such as cluster_by_old.
_ALIKE = 0.85

Get = Callable[[str], Any]


def file_format(get: Get) -> Any:
    """Return the file format of a node as dbt-spark knows it, in lower case; the default is Iceberg."""
    given = get("file_format")
    if given is None:
        return DEFAULT_FILE_FORMAT
    return given.lower() if isinstance(given, str) else given


@dataclass(frozen=True)
class ClusteringConfig:
    """The clustering that a model asks for.

    Attributes:
        cluster_by: The key, or None if the model is not clustered.
        automatic_clustering: Whether a build is followed by a recluster.
        depth: The average depth up to which the table counts as well clustered; None is the planner's default.
        final: Whether automatic reclustering repeats rounds until nothing is left to do.
        strategy: How block sets are selected; None is the planner's default.
        max_bytes: The most bytes that one automatic recluster rewrites.
        where: A predicate that restricts automatic reclustering.
        block_rows: The most rows in a block that a merge writes.
        sort_on_load: Whether each load arrives sorted by the key.
        maintain: Whether a build is followed by the housekeeping that is due.
        reads: The declared reads; None stands for those that the table records.
        reads_of_project: Whether the project's reads are recorded after a build.
        after: Changes of the table after which a build is followed by a recluster; None is after every build.
        when: Queries that have to have become worse, likewise.
        columns: The model's columns, once they are known.
    """

    cluster_by: ClusterKey | None = None
    automatic_clustering: bool = True
    depth: Depth | None = None
    final: bool = False
    strategy: str | None = None
    max_bytes: int | None = None
    where: str | None = None
    block_rows: int = DEFAULT_BLOCK_ROWS
    sort_on_load: bool = True
    maintain: bool = False
    reads: tuple[KnownRead, ...] | None = None
    reads_of_project: bool = False
    after: After | None = None
    when: tuple[When, ...] = ()
    columns: Columns | None = None

    @classmethod
    def parse(cls, get: Get, keys: Iterable[str] = ()) -> ClusteringConfig:
        """Read a model's configuration.

        Args:
            get: Returns the value of a config key, or None if it is not set.
            keys: All keys that are set, in order to detect misspelled ones.

        Raises:
            OptionError, ClusterKeyError: A value has the wrong type or range, or a ``recluster_`` key does
                not exist.
        """
        unknown = sorted(key for key in keys if key.startswith("recluster_") and key not in PARSERS)
        if unknown:
            known = ", ".join(key for key in PARSERS if key.startswith("recluster_"))
            raise OptionError(f"{unknown[0]} is not a config of dbt-recluster; there are {known}")
        values = {key: parse(get(key)) for key, parse in PARSERS.items()}
        return cls(
            **{key.removeprefix("recluster_"): value for key, value in values.items()},
            reads_of_project=_is_project(get("recluster_reads")),
        )

    def resolve(self, columns: Columns) -> ClusteringConfig:
        """Return this configuration with its key checked against the model's columns and spelled like them.

        Raises:
            ClusterKeyError: An unknown column, or a type that the item cannot take.
        """
        if self.cluster_by is None:
            return self
        return replace(self, cluster_by=self.cluster_by.check(columns), columns=columns)

    def options(self, **given: Any) -> ReclusterOptions:
        """Return the options of a recluster; values in ``given`` replace those of the model."""
        own = {
            "final": self.final,
            "where": self.where,
            "max_bytes": self.max_bytes,
            "depth": self.depth,
            "strategy": self.strategy,
            "block_rows": self.block_rows,
            "reads": self.reads,
            "due_conditions": self.due_conditions,
        }
        return ReclusterOptions(**{**own, **given})

    @property
    def due_conditions(self) -> DueConditions:
        """When a build is followed by a recluster."""
        return DueConditions(self.after, self.when)

    def order_by(self) -> str | None:
        """Return the ``ORDER BY`` list that sorts a load, or None if loads are not sorted."""
        if self.cluster_by is None or self.columns is None or not self.sort_on_load:
            return None
        return self.cluster_by.order_by(self.columns)


def parse_cluster_by(value: Any) -> ClusterKey | None:
    """``cluster_by``: a string or a list of strings (:func:`parse_cluster_key`); an empty list means no key."""
    return None if value is None or value == [] else parse_cluster_key(value)


def parse_automatic_clustering(value: Any) -> bool:
    """``automatic_clustering``: recluster after each build. Default true."""
    return parse_boolean("automatic_clustering", value, default=True)


def parse_recluster_depth(value: Any) -> Depth | None:
    """``recluster_depth``: a number of at least 1, a ratio of the number of blocks between 0 and 1, or ``auto``."""
    return parse_depth("recluster_depth", value)


def parse_recluster_final(value: Any) -> bool:
    """``recluster_final``: repeat rounds until nothing is left to do. Default false."""
    return parse_boolean("recluster_final", value, default=False)


def parse_recluster_strategy(value: Any) -> str | None:
    """``recluster_strategy``: how block sets are selected (:data:`dbt_recluster.planner.STRATEGIES`)."""
    return parse_strategy("recluster_strategy", value)


def parse_recluster_max_bytes(value: Any) -> int | None:
    """``recluster_max_bytes``: a number of bytes, or a size such as ``10 GB`` (units of 1024)."""
    return parse_bytes("recluster_max_bytes", value)


def parse_recluster_where(value: Any) -> str | None:
    """``recluster_where``: a SQL predicate on the table's columns."""
    return parse_predicate("recluster_where", value)


def parse_block_rows(value: Any) -> int:
    """``block_rows``: the most rows in a block that a merge writes. Default 1,000,000."""
    return DEFAULT_BLOCK_ROWS if value is None else parse_row_count("block_rows", value)


def parse_sort_on_load(value: Any) -> bool:
    """``sort_on_load``: sort each load by the key as it is written. Default true."""
    return parse_boolean("sort_on_load", value, default=True)


def parse_recluster_maintain(value: Any) -> bool:
    """``recluster_maintain``: do the housekeeping that is due after each build. Default false."""
    return parse_boolean("recluster_maintain", value, default=False)


def parse_recluster_reads(value: Any) -> tuple[KnownRead, ...] | None:
    """``recluster_reads``: ``project``, ``even``, or queries or predicates that read the table.

    A read may also be a mapping with ``query`` or ``where``, and ``weight``. Without it the recorded reads of the table
    count.
    """
    return None if _is_project(value) else parse_reads("recluster_reads", value)


def parse_recluster_after(value: Any) -> After | None:
    """``recluster_after``: recluster after this many ``rows``, ``commits`` or ``share`` of the rows changed."""
    return parse_after("recluster_after", value)


def parse_recluster_when(value: Any) -> tuple[When, ...]:
    """``recluster_when``: recluster when a ``query`` ``opens`` too many blocks, or reads have ``skipped`` too few.

    Also when it takes too many ``seconds``, for which it is run. One mapping or a list of them.
    """
    return parse_when("recluster_when", value)


def _is_project(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "project"


def clustering_turned_off(
    variables: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the setting that turns automatic clustering off for this run, or None."""
    value = variables.get(AUTOMATIC_CLUSTERING_VAR)
    if not parse_boolean(f"var {AUTOMATIC_CLUSTERING_VAR}", value, default=True):
        return f"var {AUTOMATIC_CLUSTERING_VAR}"
    value = environment.get(AUTOMATIC_CLUSTERING_ENV) or None
    if not parse_boolean(AUTOMATIC_CLUSTERING_ENV, value, default=True):
        return f"environment variable {AUTOMATIC_CLUSTERING_ENV}"
    return None


def run_budget(variables: Mapping[str, Any]) -> int | None:
    """Return the bytes that reclustering may rewrite in this run over all tables, or None for no limit.

    Raises:
        OptionError: The var is not a number of bytes.
    """
    try:
        return parse_bytes(BUDGET_VAR, variables.get(BUDGET_VAR))
    except OptionError as e:
        raise OptionError(f"var {e}") from None


def misspelt(keys: Iterable[str], known: Collection[str]) -> list[tuple[str, str]]:
    """Return the keys that nobody knows and that look like one of ours, each with the nearest.

    Args:
        keys: The configs of a node.
        known: Those that dbt and the adapter know: dbt-spark has ``clustered_by``.
    """
    unknown = (key for key in keys if key not in known and key not in PARSERS)
    near = ((key, get_close_matches(key.lower(), PARSERS, n=1, cutoff=_ALIKE)) for key in unknown)
    return [(key, matches[0]) for key, matches in near if matches]


PARSERS: dict[str, Callable[[Any], Any]] = {
    "cluster_by": parse_cluster_by,
    "automatic_clustering": parse_automatic_clustering,
    "recluster_depth": parse_recluster_depth,
    "recluster_final": parse_recluster_final,
    "recluster_strategy": parse_recluster_strategy,
    "recluster_max_bytes": parse_recluster_max_bytes,
    "recluster_where": parse_recluster_where,
    "block_rows": parse_block_rows,
    "sort_on_load": parse_sort_on_load,
    "recluster_maintain": parse_recluster_maintain,
    "recluster_reads": parse_recluster_reads,
    "recluster_after": parse_recluster_after,
    "recluster_when": parse_recluster_when,
}
