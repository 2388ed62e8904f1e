"""The arguments of ``dbt run-operation``: one small pure function for each, named as users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.values import (
    Depth,
    parse_boolean,
    parse_bytes,
    parse_depth,
    parse_predicate,
    parse_strategy,
)
from dbt_recluster.exceptions import OptionError

Parser = Callable[[Any], Any]


def parse_arguments(
    operation: str, parsers: Mapping[str, Parser], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of an operation, each checked by its parser.

    Raises:
        OptionError, ClusterKeyError: One is wrong, or the operation has no such argument.
    """
    for name in given:
        if name not in parsers:
            raise OptionError(f"{operation} has no argument {name!r}; it takes {', '.join(parsers)}")
    return {name: parse(given.get(name)) for name, parse in parsers.items()}


def parse_format(value: Any) -> str:
    """``format``: ``text`` for people, ``json`` for programs. Default text."""
    word = "text" if value is None else str(value).strip().lower()
    if word not in ("text", "json"):
        raise OptionError(f"format must be text or json, not {value!r}")
    return word


def parse_table(value: Any) -> Any:
    """``table``: a relation, the name of a model, or a list of both; checked once the project is known."""
    return value


def parse_selector(name: str, value: Any) -> list[str] | None:
    """Read ``select`` or ``exclude``: words of dbt's selector syntax, in a string or a list of strings."""
    words = [value] if isinstance(value, str) else value
    if words is None:
        return None
    if (
        not isinstance(words, list)
        or not words
        or not all(isinstance(word, str) and word.strip() for word in words)
    ):
        raise OptionError(f"{name} must be a selector such as tag:hourly, or a list of them, not {value!r}")
    return [word for text in words for word in text.split()]


def parse_select(value: Any) -> list[str] | None:
    """``select``: the models to work on, as dbt's ``--select`` writes them."""
    return parse_selector("select", value)


def parse_exclude(value: Any) -> list[str] | None:
    """``exclude``: the models to leave out, as dbt's ``--exclude`` writes them."""
    return parse_selector("exclude", value)


def parse_key(value: Any) -> ClusterKey | None:
    """``cluster_by``: a cluster key, a string or a list of strings; None is the model's or the table's own."""
    return None if value is None else parse_cluster_key(value)


def parse_where(value: Any) -> str | None:
    """``where``: a SQL predicate on the table's columns, which Spark will parse."""
    return parse_predicate("where", value)


def parse_final(value: Any) -> bool | None:
    """``final``: repeat rounds until nothing is left to do; None is the model's ``recluster_final``."""
    return None if value is None else parse_boolean("final", value, default=False)


def parse_max_bytes(value: Any) -> int | None:
    """``max_bytes``: the most bytes to rewrite in each table."""
    return parse_bytes("max_bytes", value)


def parse_threshold(value: Any) -> Depth | None:
    """``depth``: the average depth up to which a table counts as well clustered."""
    return parse_depth("depth", value)


def parse_strategy_name(value: Any) -> str | None:
    """``strategy``: how block sets are selected."""
    return parse_strategy("strategy", value)


def parse_dry_run(value: Any) -> bool:
    """``dry_run``: plan and print; rewrite nothing. Default false."""
    return parse_boolean("dry_run", value, default=False)


# Which tables to work on.
CHOICE_ARGUMENTS: dict[str, Parser] = {
    "table": parse_table,
    "select": parse_select,
    "exclude": parse_exclude,
}

RECLUSTER_ARGUMENTS: dict[str, Parser] = {
    **CHOICE_ARGUMENTS,
    "cluster_by": parse_key,
    "final": parse_final,
    "where": parse_where,
    "max_bytes": parse_max_bytes,
    "depth": parse_threshold,
    "strategy": parse_strategy_name,
    "dry_run": parse_dry_run,
    "format": parse_format,
}
