"""The arguments that several operations share."""

from __future__ import annotations

from typing import Any

from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.values import parse_boolean, parse_moment, parse_predicate
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import Argument


def parse_format(name: str, value: Any) -> str:
    """Read the name of an output format.

    Raises:
        OptionError: There is no such format.
    """
    word = str(value).strip().lower()
    if word not in ("text", "json"):
        raise OptionError(f"{name} must be text or json, not {value!r}")
    return word


def parse_selector(name: str, value: Any) -> list[str]:
    """Read words of a selector, in a string or a list of strings.

    Raises:
        OptionError: It is neither.
    """
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and w.strip() for w in words):
        raise OptionError(f"{name} must be a selector such as tag:hourly, or a list of them, not {value!r}")
    return [word for text in words for word in text.split()]


def _as_it_is(_: str, value: Any) -> Any:
    """Return a value that is checked once the tables are known."""
    return value


def key_argument(meaning: str, *, is_of_one_table: bool = False) -> Argument:
    """Return the argument that names a cluster key."""
    return Argument(
        "cluster_by",
        lambda _, value: parse_cluster_key(value),
        f"{meaning}: columns or expressions, a list or separated by commas.",
        otherwise="the model's, else the table's sort order",
        metavar="KEY",
        is_of_one_table=is_of_one_table,
    )


def flag(name: str, meaning: str, *, default: bool = False) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, parse_boolean, meaning, default, str(default).lower(), "")


TABLE = Argument(
    "table",
    _as_it_is,
    "A relation (schema.table), the name of a model, or a list of both.",
    otherwise="every model that it is for",
    metavar="TABLE",
)
SELECT = Argument(
    "select",
    parse_selector,
    "Instead of names, the models as dbt's --select writes them (tag:hourly, path:models/marts, +orders), a string or "
    "a list.",
    metavar="SELECTOR",
)
EXCLUDE = Argument(
    "exclude", parse_selector, "What to leave out of them, as dbt's --exclude writes it.", metavar="SELECTOR"
)
FORMAT = Argument(
    "format",
    parse_format,
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "text",
    "text",
    "FORMAT",
)
CHOICE = (TABLE, SELECT, EXCLUDE)

WHERE = Argument(
    "where",
    parse_predicate,
    "A predicate on the table's columns; only blocks that may hold a matching row count.",
    otherwise="none",
    metavar="PREDICATE",
)
SINCE = Argument(
    "since",
    parse_moment,
    "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'.",
    otherwise="all",
    metavar="TIME",
)
DEPTH = Argument.of_option(RECLUSTER_OPTIONS["depth"], "NUMBER")
STRATEGY = Argument.of_option(RECLUSTER_OPTIONS["strategy"], "NAME")
BLOCK_ROWS = Argument.of_option(RECLUSTER_OPTIONS["block_rows"], "NUMBER")
PLANNING = (DEPTH, STRATEGY, BLOCK_ROWS)
