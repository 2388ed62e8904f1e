"""Values of configs, arguments, vars and table properties.

Each parser takes the name that its error mentions, and a value other than None. It raises OptionError for anything that
it does not read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypeVar

from dbt_recluster.exceptions import OptionError
from dbt_recluster.planner import STRATEGIES

T = TypeVar("T")

MAX_BLOCK_ROWS = 2**40
MAX_BYTES = 2**62
MAX_SNAPSHOTS = 2**31 - 1  # Java's greatest int

# A threshold that follows the cost and the benefit of a table.
AUTO: Literal["auto"] = "auto"
Depth = float | Literal["auto"]
Queries = Sequence[str] | Mapping[str, str]
# Stands for no reads at all, whatever the table records.
EVEN = "even"
# A Hive metastore may hold 4,000 in a property.
MOST_CHARACTERS = 3_500
# The sum of many must stay finite.
_GREATEST_WEIGHT = 1e9

_EXAMPLE = "\"event_date >= date'2026-01-01'\""
_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_AGO = re.compile(r"(\d+)\s*(minute|hour|day|week)s?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)


def parser(expected: str, read: Callable[[Any], T | None]) -> Callable[[str, Any], T]:
    """Return a parser.

    Args:
        expected: What it reads, as its error says after "must be".
        read: Returns what a value stands for. For any other it returns None, or raises ValueError, TypeError or
            OverflowError.
    """

    def parse(name: str, value: Any) -> T:
        with suppress(ValueError, TypeError, OverflowError):
            if (result := read(value)) is not None:
                return result
        raise OptionError(f"{name} must be {expected}, not {value!r:.40}")

    return parse


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


def _bytes(value: Any) -> int | None:
    match = _SIZE.fullmatch(str(value).strip())
    if match is None or match[2].lower() not in _UNITS:
        return None
    unit = _UNITS[match[2].lower()]
    size = float(match[1]) * unit
    return int(size) if 1 <= size <= MAX_BYTES and (unit > 1 or size.is_integer()) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _depth(value: Any) -> Depth | None:
    if isinstance(value, str) and value.strip().lower() == AUTO:
        return AUTO
    number = parse_number(value)
    return number if number is not None and number > 0 else None


def count_up_to(most: int) -> Callable[[str, Any], int]:
    """Return a parser of a whole number from 1 on."""

    def read(value: Any) -> int | None:
        number = parse_number(value)
        return int(number) if number is not None and 1 <= number <= most and number.is_integer() else None

    return parser(f"a whole number above 0, at most {most:,}", read)


def moment(value: Any, now: datetime | None = None) -> datetime:
    """Return the time of a date, a time (UTC unless it has a zone) or a period before ``now`` such as ``7 days``.

    Raises:
        ValueError, OverflowError: It is none of them.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    text = str(value).strip()
    if ago := _AGO.fullmatch(text):
        period = timedelta(**{f"{ago[2].lower()}s": int(ago[1])})
        return (now or datetime.now(timezone.utc)) - period
    return parse_iso_time(text)


def _queries(value: Any) -> Queries | None:
    if isinstance(value, Mapping):
        return _queries_by_name(value)
    queries = [value] if isinstance(value, str) else value
    return queries if isinstance(queries, Sequence) and all(map(_text, queries)) else None


def _queries_by_name(value: Any) -> Mapping[str, str] | None:
    if not isinstance(value, Mapping) or not all(isinstance(query, str) for query in value.values()):
        return None
    return {str(name): query for name, query in value.items()}


# Booleans also come as strings, which env_var() and the command line give.
parse_boolean = parser("true or false", lambda value: _WORDS.get(str(value).strip().lower()))
parse_bytes = parser("a number of bytes above 0 or a size such as '10 GB'", _bytes)
parse_predicate = parser(f"a SQL predicate, such as {_EXAMPLE}", _text)
parse_depth = parser(
    f"a number of at least 1, one between 0 and 1 to mean a share of the number of blocks, or {AUTO}", _depth
)
parse_strategy = parser(
    f"one of {', '.join(STRATEGIES)}", lambda value: value if value in STRATEGIES else None
)
parse_row_count = count_up_to(MAX_BLOCK_ROWS)
parse_snapshot_count = count_up_to(MAX_SNAPSHOTS)
parse_moment = parser("a date such as 2026-01-31, a time or a period such as '7 days'", moment)
parse_event_log = parser("a directory of Spark's event logs, such as s3://bucket/spark-events", _text)
parse_logged_as = parser(
    "a table's full name, such as lake.analytics.events",
    lambda value: value if isinstance(value, str) and "." in value else None,
)
parse_queries_by_name = parser("a mapping of names to SQL queries", _queries_by_name)
parse_queries: Callable[[str, Any], Queries] = parser(
    "a SQL predicate, a query or a list of them, or queries by name", _queries
)


def is_query(text: str) -> bool:
    """Whether a text is a whole query, by its first word; otherwise it is a predicate."""
    return _QUERY.match(text) is not None


@dataclass(frozen=True)
class DeclaredRead:
    """A query, or a predicate of queries, and how often it runs."""

    text: str  # a whole query, or a predicate on the table's columns
    # How often the query runs in a day. Only costs depend on more than the ratio of weights.
    weight: float = 1.0
    is_query: bool = False  # whether the text is a whole query


def parse_reads(name: str, value: Any) -> tuple[DeclaredRead, ...]:
    """Read a query or a predicate, or a list of them or of mappings with ``query`` or ``where`` and with ``weight``.

    A list may be JSON text. ``even`` and an empty list mean that reads are even over the keys.
    """
    if isinstance(value, str) and value.strip().lower() == EVEN:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise OptionError(f"{name} must be a list of SQL predicates, not {value!r:.40}") from None
    items = [value] if isinstance(value, (str, Mapping, DeclaredRead)) else value
    if not isinstance(items, Sequence):
        raise OptionError(
            f"{name} must be a list of queries, or of SQL predicates such as {_EXAMPLE}, not {value!r:.40}"
        )
    reads = tuple(_parse_read(name, item) for item in items)
    if (length := len(reads_as_text(reads))) > MOST_CHARACTERS:
        raise OptionError(
            f"{name} must be shorter: {len(reads):,} reads take {length:,} characters, and the table's property holds "
            f"{MOST_CHARACTERS:,}"
        )
    return reads


def _parse_read(name: str, item: Any) -> DeclaredRead:
    if isinstance(item, DeclaredRead):
        item = {"query" if item.is_query else "where": item.text, "weight": item.weight}
    elif not isinstance(item, Mapping):
        item = {"query" if isinstance(item, str) and is_query(item) else "where": item}
    if unknown := sorted(set(map(str, item)) - {"query", "where", "weight"}):
        raise OptionError(f"{name}: a read has `query` or `where`, and `weight`, and no `{unknown[0]}`")
    if "query" in item and "where" in item:
        raise OptionError(f"{name}: a read has `query` or `where`, not both")
    text, weight = item.get("query", item.get("where")), parse_number(item.get("weight", 1))
    if _text(text) is None:
        raise OptionError(
            f"{name}: a read is a query, or a SQL predicate such as {_EXAMPLE}, not {text!r:.40}"
        )
    if "query" in item and not is_query(text):
        raise OptionError(f"{name}: a query begins with select or with, not as {text!r:.40}; use `where`")
    if weight is None or not 0 < weight <= _GREATEST_WEIGHT:
        raise OptionError(
            f"{name}: a weight must be a number above 0, at most {_GREATEST_WEIGHT:,.0f}, "
            f"not {item.get('weight')!r:.40}"
        )
    return DeclaredRead(text, weight, "query" in item)


def reads_as_text(reads: Sequence[DeclaredRead]) -> str:
    """Write reads as a text that :func:`parse_reads` reads."""
    if not reads:
        return EVEN
    items = [
        read.text
        if read.weight == 1 and read.is_query == is_query(read.text)
        else {"query" if read.is_query else "where": read.text, "weight": read.weight}
        for read in reads
    ]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class After:
    """Changes since the last recluster, any of which is enough; ``share`` is rows as a share of the table's."""

    rows: float | None = None
    commits: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class When:
    """A query that has become worse, or all known ones."""

    query: str | None = None  # an example query
    # Blocks of the table that it opens, more of which are too many; below 1, a share of the table's blocks.
    opens: float | None = None
    seconds: float | None = None  # time that it takes, for which it is run; more is too much
    skipped: float | None = None  # share of the table's blocks that reads skip, less of which is too little


def parse_after(name: str, value: Any) -> After:
    """Read a mapping with ``rows``, ``commits`` or ``share``, each a number above 0."""
    if isinstance(value, After):
        return value
    after = After(**_numbers(name, value, After, "{commits: 5}"))
    if after.share is not None and after.share > 1:
        raise OptionError(f"{name}: share must be at most 1, not {after.share:g}")
    return after


def parse_when(name: str, value: Any) -> tuple[When, ...]:
    """Read a mapping with ``query`` and ``opens`` or ``seconds``, or with ``skipped``, or a list of them."""
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, Sequence) or isinstance(items, str) or items == []:
        raise OptionError(
            f"{name} must be a mapping such as {{skipped: 0.9}}, or a list of them, not {value!r:.40}"
        )
    return tuple(item if isinstance(item, When) else _parse_when(name, item) for item in items)


def _parse_when(name: str, value: Any) -> When:
    query = None
    if isinstance(value, Mapping):
        query, value = value.get("query"), {key: given for key, given in value.items() if key != "query"}
    numbers = _numbers(name, value, When, "{skipped: 0.9}, or {query: 'select ...', opens: 40}")
    when = When(query, **numbers)
    if when.skipped is not None and (query is not None or when.skipped > 1 or len(numbers) > 1):
        raise OptionError(f"{name}: skipped is a share of at most 1, and stands alone: {{skipped: 0.9}}")
    if when.skipped is None and (not isinstance(query, str) or not is_query(query)):
        raise OptionError(
            f"{name}: opens and seconds need a query that begins with select or with, not {query!r:.40}"
        )
    return when


def _numbers(name: str, value: Any, kind: type, example: str) -> dict[str, float]:
    """Read a mapping of the fields of After or When, except ``query``, to numbers above 0."""
    known = [field.name for field in fields(kind) if field.name != "query"]
    if not isinstance(value, Mapping) or not value:
        raise OptionError(
            f"{name} must be a mapping with {' or '.join(known)}, such as {example}, not {value!r:.40}"
        )
    if unknown := sorted(set(map(str, value)) - set(known)):
        raise OptionError(f"{name} has {', '.join(known)}, and no {unknown[0]!r}")
    numbers = {}
    for key, given in value.items():
        number = parse_number(given)
        if number is None or number <= 0:
            raise OptionError(f"{name}: {key} must be a number above 0, not {given!r:.40}")
        numbers[str(key)] = number
    return numbers


def digest(value: Any) -> str:
    """Return a short text that stands for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
