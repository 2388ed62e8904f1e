"""The arguments of ``dbt run-operation``: one small pure function per argument, named as users write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

from dbt_recluster.adapter.values import parse_predicate
from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.exceptions import OptionError

_AGO = re.compile(r"(\d+)\s*(minute|hour|day|week)s?", re.IGNORECASE)

Parser = Callable[[Any], Any]


def parse_arguments(parsers: Mapping[str, Parser], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were given, each checked by its parser; None where one was not.

    Raises:
        OptionError, ClusterKeyError: The first one that is wrong.
    """
    return {name: parse(given.get(name)) for name, parse in parsers.items()}


def parse_format(value: Any) -> str:
    """``format``: ``text`` for people, ``json`` for programs. Default text."""
    word = "text" if value is None else str(value).strip().lower()
    if word not in ("text", "json"):
        raise OptionError(f"format must be text or json, not {value!r}")
    return word


def parse_candidate_key(value: Any) -> list[str] | None:
    """``cluster_by``: a cluster key to look at, a string or a list of strings; None takes the table's own."""
    return None if value is None else [str(field) for field in parse_cluster_key(value).fields]


def parse_where(value: Any) -> str | None:
    """``where``: a SQL predicate on the table's columns, which Spark parses."""
    return parse_predicate("where", value)


def parse_queries(value: Any) -> list[str]:
    """``queries``: predicates as queries have them, a string or a list of strings."""
    given = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each.strip() for each in given):
        raise OptionError(f"queries must be a SQL predicate or a list of them, not {value!r}")
    return given


def parse_since(value: Any, now: datetime | None = None) -> datetime | None:
    """``since``: a date, a time (without a zone it is UTC) or a span back from now such as ``7 days``."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    text = str(value).strip()
    if ago := _AGO.fullmatch(text):
        span = timedelta(**{f"{ago.group(2).lower()}s": int(ago.group(1))})
        return (now or datetime.now(timezone.utc)) - span
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise OptionError(
            f"since must be a date such as 2026-01-31, a time or a span such as '7 days', not {value!r}"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
