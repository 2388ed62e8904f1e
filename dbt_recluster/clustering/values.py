"""Values of configs, arguments, vars and table properties.

Each parser takes the name that its error mentions, and a value other than None. It raises OptionError for anything that
it does not read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, Literal

from dbt_recluster.exceptions import OptionError
from dbt_recluster.planner import STRATEGIES

MAX_BLOCK_ROWS = 2**40
MAX_BYTES = 2**62
MAX_SNAPSHOTS = 2**31 - 1  # Java's greatest int

# A threshold that follows the cost and the benefit of a table.
AUTO: Literal["auto"] = "auto"
Depth = float | Literal["auto"]

_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_AGO = re.compile(r"(\d+)\s*(minute|hour|day|week)s?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_boolean(name: str, value: Any) -> bool:
    """Read true or false, also as a string, which env_var() and the command line give."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise OptionError(f"{name} must be true or false, not {value!r}")


def parse_bytes(name: str, value: Any) -> int:
    """Read a number of bytes: 1073741824, ``1073741824`` or ``1 GB``."""
    match = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    unit = _UNITS.get(match.group(2).lower(), math.nan) if match else math.nan
    size = float(match.group(1)) * unit if match else math.nan
    if not 1 <= size <= MAX_BYTES or (unit == 1 and size != int(size)):
        raise OptionError(
            f"{name} must be a number of bytes above 0 or a size such as '10 GB', not {value!r:.40}"
        )
    return int(size)


def parse_predicate(name: str, value: Any) -> str:
    """Read a SQL predicate on a table's columns, which Spark will parse later."""
    if not isinstance(value, str) or not value.strip():
        raise OptionError(
            f"{name} must be a SQL predicate, such as \"event_date >= date'2026-01-01'\", not {value!r}"
        )
    return value


def parse_depth(name: str, value: Any) -> Depth:
    """Read an average depth: a number of at least 1, a ratio of the number of blocks between 0 and 1, or ``auto``."""
    if isinstance(value, str) and value.strip().lower() == AUTO:
        return AUTO
    number = parse_number(value)
    if number is None or number <= 0:
        raise OptionError(
            f"{name} must be a number of at least 1, one between 0 and 1 to mean a share of the number of blocks, "
            f"or {AUTO}, not {value!r:.40}"
        )
    return number


def parse_strategy(name: str, value: Any) -> str:
    """Read the name of a strategy (:data:`dbt_recluster.planner.STRATEGIES`)."""
    if value not in STRATEGIES:
        raise OptionError(f"{name} must be one of {', '.join(STRATEGIES)}, not {value!r}")
    return str(value)


def parse_row_count(name: str, value: Any) -> int:
    """Read the most rows in a block."""
    return _parse_count(name, value, MAX_BLOCK_ROWS)


def parse_snapshot_count(name: str, value: Any) -> int:
    """Read how many snapshots to keep."""
    return _parse_count(name, value, MAX_SNAPSHOTS)


def _parse_count(name: str, value: Any, most: int) -> int:
    number = parse_number(value)
    if number is None or not 1 <= number <= most or number != int(number):
        raise OptionError(f"{name} must be a whole number above 0, at most {most:,}, not {value!r:.40}")
    return int(number)


def parse_moment(name: str, value: Any, now: datetime | None = None) -> datetime:
    """Read a date, a time (UTC unless it has a zone) or a period before now such as ``7 days``."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    text = str(value).strip()
    try:
        if ago := _AGO.fullmatch(text):
            period = timedelta(**{f"{ago.group(2).lower()}s": int(ago.group(1))})
            return (now or datetime.now(timezone.utc)) - period
        return parse_iso_time(text)
    except (ValueError, OverflowError):
        raise OptionError(
            f"{name} must be a date such as 2026-01-31, a time or a period such as '7 days', not {value!r}"
        ) from None


def parse_event_log(name: str, value: Any) -> str:
    """Read where Spark's event logs are: a directory, or one log."""
    if not isinstance(value, str) or not value.strip():
        raise OptionError(
            f"{name} must be a directory of Spark's event logs, such as s3://bucket/spark-events, not {value!r}"
        )
    return value


def parse_logged_as(name: str, value: Any) -> str:
    """Read the full name of a table in event logs."""
    if not isinstance(value, str) or "." not in value:
        raise OptionError(f"{name} must be a table's full name, such as lake.analytics.events, not {value!r}")
    return value


def parse_queries_by_name(name: str, value: Any) -> Mapping[str, str]:
    """Read whole SQL queries by name."""
    if not isinstance(value, Mapping) or not all(isinstance(query, str) for query in value.values()):
        raise OptionError(f"{name} must be a mapping of names to SQL queries, not {value!r:.40}")
    return {str(query): text for query, text in value.items()}


def parse_queries(name: str, value: Any) -> Sequence[str] | Mapping[str, str]:
    """Read SQL predicates or whole queries, one or a list of them, or whole queries by name."""
    if isinstance(value, Mapping):
        return parse_queries_by_name(name, value)
    queries = [value] if isinstance(value, str) else value
    if not isinstance(queries, Sequence) or not all(
        isinstance(query, str) and query.strip() for query in queries
    ):
        raise OptionError(f"{name} must be a SQL predicate, a query or a list of them, not {value!r:.40}")
    return queries


def parse_iso_time(text: str) -> datetime:
    """Return an ISO date or time; without a zone it is in UTC. Raises ValueError for any other text."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def parse_number(value: Any) -> float | None:
    """Return a finite number, also from a string, or None if the value is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def digest(value: Any) -> str:
    """Return a short text that stands for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
