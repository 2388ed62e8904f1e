"""The options of a recluster, each declared once: its parser, its default and the sentence that explains it.

The parsers, also of arguments, vars and table properties, take the name for their error and a value other than None,
and raise OptionError for a value that they cannot read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.table_properties import OPTION_PREFIX
from dbt_recluster.planner import STRATEGIES, Policy

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # Python 3.10 has none, and the command does without typing_extensions

    class Unpack:
        """Stands for the type that it is applied to."""

        __class_getitem__ = staticmethod(lambda kind: kind)


T = TypeVar("T")

MAX_BLOCK_ROWS = 2**40

# The threshold that follows the cost and the benefit of a table.
AUTO: Literal["auto"] = "auto"
Depth = float | Literal["auto"]
Queries = Sequence[str] | Mapping[str, str]
# No reads at all, whatever the table records.
_EVEN = "even"
# The most characters of declared reads in a table's property; a Hive metastore holds 4,000.
_MOST_CHARACTERS = 3_500
_GREATEST_NUMBER = 1e15
_GREATEST_WEIGHT = 1e9  # so that sums stay finite

_EXAMPLE = "\"event_date >= date'2026-01-01'\""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_WORDS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_AGO = re.compile(r"(\d+)\s*(minute|hour|day|week)s?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)


def parser(expected: str, read: Callable[[Any], T | None]) -> Callable[[str, Any], T]:
    """Return a parser by ``read``, which returns None or raises for an invalid value of any type.

    ``expected`` is what its error says after "must be".
    """

    def parse(name: str, value: Any) -> T:
        with suppress(ValueError, TypeError, OverflowError, AttributeError):
            if (result := read(value)) is not None:
                return result
        raise OptionError(f"{name} must be {expected}, not {value!r:.80}")

    return parse


def parse_iso_time(text: str) -> datetime:
    """Return an ISO date or time, in UTC without a zone; raise ValueError for any other text."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def parse_number(value: Any) -> float | None:
    """Return a number, also from a string; None for anything else, and for what overflows in sums and dates."""
    number = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    return number if abs(number) <= _GREATEST_NUMBER else None


def _bytes(value: Any) -> int | None:
    match = _SIZE.fullmatch(str(value).strip())
    if match is None or match[2].lower() not in _UNITS:
        return None
    unit = _UNITS[match[2].lower()]
    size = float(match[1]) * unit
    return int(size) if 1 <= size <= 2**62 and (unit > 1 or size.is_integer()) else None


def non_empty(value: Any) -> str | None:
    """Return a text with more than white space, or None."""
    return value if isinstance(value, str) and value.strip() else None


def _depth(value: Any) -> Depth | None:
    if isinstance(value, str) and value.strip().lower() == AUTO:
        return AUTO
    number = parse_number(value)
    return number if number is not None and number > 0 else None


def count_up_to(most: int, least: int = 1) -> Callable[[str, Any], int]:
    """Return a parser of a whole number from ``least`` on."""

    def read(value: Any) -> int | None:
        number = parse_number(value)
        return int(number) if number is not None and least <= number <= most and number.is_integer() else None

    return parser(f"a whole number above {least - 1}, at most {most:,}", read)


def parsed_moment(value: Any, now: datetime | None = None) -> datetime:
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


# Booleans also come as strings, which env_var() and the command line give.
parse_boolean = parser("true or false", lambda value: _WORDS.get(str(value).strip().lower()))
parse_bytes = parser("a number of bytes above 0 or a size such as '10 GB'", _bytes)
parse_predicate = parser(f"a SQL predicate, such as {_EXAMPLE}", non_empty)
parse_depth = parser(
    f"a number of at least 1, one between 0 and 1 to mean a share of the number of blocks, or {AUTO}", _depth
)
parse_strategy = parser(f"one of {', '.join(STRATEGIES)}", lambda name: name if name in STRATEGIES else None)
parse_count = count_up_to(MAX_BLOCK_ROWS)
parse_merge_blocks = count_up_to(MAX_BLOCK_ROWS, least=2)
parse_seconds = parser(
    "a number of seconds above 0",
    lambda value: number if (number := parse_number(value)) is not None and number > 0 else None,
)
parse_moment = parser("a date such as 2026-01-31, a time or a period such as '7 days'", parsed_moment)


def is_auto(cluster_by: Any) -> bool:
    """Return whether reads choose the key; a column of that name is ``[auto]``."""
    return isinstance(cluster_by, str) and cluster_by.strip().lower() == AUTO


def is_query(text: str) -> bool:
    """Whether a text is a whole query, by its first word; otherwise it is a predicate."""
    return _QUERY.match(text) is not None


@dataclass(frozen=True)
class DeclaredRead:
    """A declared query, or the predicate of one."""

    text: str  # a whole query, or a predicate on the table's columns
    weight: float = 1.0  # runs per day; only costs depend on more than the ratio of weights
    is_query: bool = False  # whether the text is a whole query

    def as_dict(self) -> dict[str, Any]:
        """Return it as a model declares it in full."""
        return {"query" if self.is_query else "where": self.text, "weight": self.weight}


def _read(value: Any) -> DeclaredRead | None:
    if isinstance(value, DeclaredRead):
        value = value.as_dict()
    elif not isinstance(value, Mapping):
        value = {"query" if isinstance(value, str) and is_query(value) else "where": value}
    texts = [item for item in value.items() if item[0] != "weight"]
    weight = parse_number(value.get("weight", 1))
    if len(texts) != 1 or weight is None or not 0 < weight <= _GREATEST_WEIGHT:
        return None
    ((kind, text),) = texts
    if non_empty(text) is None or not (kind == "where" or (kind == "query" and is_query(text))):
        return None
    return DeclaredRead(text, weight, kind == "query")


_parse_read = parser(
    f"a SQL predicate such as {_EXAMPLE}, a query that begins with select or with, or a mapping with `where` or "
    f"`query` and with a `weight` above 0 and at most {_GREATEST_WEIGHT:,.0f}",
    _read,
)


def parse_reads(name: str, value: Any) -> tuple[DeclaredRead, ...]:
    """Read a query or a predicate, or a list of them or of mappings with ``query`` or ``where`` and with ``weight``.

    A list may be JSON text. ``even`` and an empty list mean that reads are even over the keys.
    """
    if isinstance(value, str) and value.strip().lower() == _EVEN:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise OptionError(f"{name} must be a list of SQL predicates, not {value!r:.40}") from None
    items = value if isinstance(value, (list, tuple)) else [value]
    reads = tuple(_parse_read(f"{name}: a read", item) for item in items)
    if (length := len(reads_as_text(reads))) > _MOST_CHARACTERS:
        raise OptionError(
            f"{name} must be shorter: {len(reads):,} reads take {length:,} characters, and the table's property holds "
            f"{_MOST_CHARACTERS:,}"
        )
    return reads


def reads_as_text(reads: Sequence[DeclaredRead]) -> str:
    """Write reads as a text that :func:`parse_reads` reads."""
    if not reads:
        return _EVEN
    plain = [DeclaredRead(read.text, is_query=is_query(read.text)) for read in reads]
    items = [r.text if r == known else r.as_dict() for r, known in zip(reads, plain, strict=True)]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class After:
    """Limits since the last recluster, of which one has to be reached; ``share`` is changed rows / all rows."""

    rows: float | None = None
    commits: float | None = None
    share: float | None = None
    hours: float | None = None
    days: float | None = None
    deleted: float | None = None
    updated: float | None = None


@dataclass(frozen=True)
class When:
    """Limits of an example query, of all known reads, or of the table."""

    query: str | None = None  # an example query
    opens: float | None = None  # the most blocks that it may open; below 1, a share of the table's
    seconds: float | None = None  # the most seconds that it may run, for which it is run
    skipped: float | None = None  # the least share of the table's blocks that reads skip
    ratio: float | None = None  # the least clustering ratio, 0 to 100
    selectivity: float | None = None  # the least share of the opened rows that it returns; it is run


def _above_zero(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not values:
        raise TypeError
    numbers = {name: parse_number(value) for name, value in values.items()}
    if any(number is None or number <= 0 for number in numbers.values()):
        raise ValueError
    return numbers


def _after(value: Any) -> After | None:
    after = value if isinstance(value, After) else After(**_above_zero(value))
    return after if after.share is None or after.share <= 1 else None


def _when(value: Any) -> When | None:
    if not isinstance(value, Mapping):
        return value if isinstance(value, When) else None
    query, limits = value.get("query"), {name: limit for name, limit in value.items() if name != "query"}
    when = When(query, **_above_zero(limits))
    if query is None and len(limits) == 1:
        share = when.skipped if when.ratio is None else when.ratio / 100
        return when if share is not None and share <= 1 else None
    of_query = limits.keys() <= {"opens", "seconds", "selectivity"} and isinstance(query, str) and is_query(query)
    return when if of_query and (when.selectivity or 0) <= 1 else None


parse_after = parser(
    "a mapping of commits, rows, deleted, updated, share (at most 1), hours or days to numbers above 0, such as "
    "{commits: 5}",
    _after,
)
_parse_when = parser(
    "a mapping such as {skipped: 0.9}, a share of at most 1, {ratio: 70}, at most 100, or {query: 'select ...', opens: "
    "40}, with a query that begins with select or with and with opens, seconds or selectivity (at most 1) above 0, or "
    "a list of them",
    _when,
)


def parse_when(name: str, value: Any) -> tuple[When, ...]:
    """Read a mapping with ``query`` and ``opens`` or ``seconds``, with ``skipped`` or ``ratio``, or a list of them."""
    items = value if isinstance(value, tuple) or (value and isinstance(value, list)) else [value]
    return tuple(_parse_when(name, item) for item in items)


def digest(value: Any) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# Takes the name that an error mentions, and a value other than None.
Parser = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    parse: Parser
    meaning: str  # a sentence for the reference and for help
    example: str  # a value as YAML
    default: Any = None
    otherwise: str = ""  # the default in words
    is_recorded: bool = True  # whether a property of the table records the model's value
    metavar: str | None = None  # in help, empty for true or false; None if it is no argument of recluster
    config: str = ""  # the name of the model's config
    name: str = ""  # the name of the field, of the argument, and in a model's ``meta``

    @property
    def table_property(self) -> str:
        """The property that records the option with the table."""
        return f"{OPTION_PREFIX}{self.name}"

    def read(self, name: str, value: Any) -> Any:
        """Return a value as it is given under ``name``, checked; the default for None."""
        return self.default if value is None else self.parse(name, value)

    def of_table(self, properties: Mapping[str, str]) -> Any:
        """Return the value that a table's properties record, checked, else the default."""
        text = properties.get(self.table_property) if self.is_recorded else None
        return self.read(f"table property {self.table_property}", text)


def option(parse: Parser, meaning: str, *, default: Any = None, **facts: Any) -> Any:
    """Declare a field of a dataclass as an :class:`Option`; its config has a prefix unless ``config`` names it."""
    facts.setdefault("otherwise", str(default).lower())
    return field(default=default, metadata={"option": Option(parse, meaning, default=default, **facts)})


def declared(kind: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name."""
    return {
        f.name: replace(facts, name=f.name, config=facts.config or f"recluster_{f.name}")
        for f in fields(kind)
        if (facts := f.metadata.get("option"))
    }


@dataclass(frozen=True)
class ReclusterOptions:
    """How to recluster a table, once the values are checked.

    Attributes:
        dry_run: Plan and report; change nothing.
        automatic: Whether builds recluster the table.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``. Only a recluster after a
            build asks for conditions.
        progress: Callback for the progress of each round, or None.
    """

    depth: Depth | None = option(
        parse_depth,
        "The depth up to which a table counts as well clustered; between 0 and 1, a share of the number of "
        "blocks, at least 4; auto, where rewriting and reading cost least.",
        otherwise="4",
        metavar="NUMBER",
        example="2",
    )
    final: bool = option(
        parse_boolean,
        "Repeat rounds until nothing is left to do.",
        default=False,
        example="true",
        metavar="",
    )
    strategy: str | None = option(
        parse_strategy,
        "How block sets are selected.",
        otherwise="payback",
        example="peak",
        metavar="NAME",
    )
    max_merge_blocks: int | None = option(
        parse_merge_blocks,
        "The most overlapping blocks in one merge; with strategy width also the base of its buckets of widths.",
        otherwise="no limit, and base 4",
        metavar="NUMBER",
        example="8",
    )
    max_bytes: int | None = option(
        parse_bytes,
        "The most bytes to rewrite in each table: a number, or a size such as '10 GB'.",
        otherwise="no limit",
        example="10 GB",
        metavar="SIZE",
    )
    max_seconds: float | None = option(
        parse_seconds,
        "Time limit for rewriting each table, in seconds, kept by the speed of its earlier rounds (10 MB/s before the "
        "first).",
        otherwise="no limit",
        example="600",
        metavar="NUMBER",
    )
    where: str | None = option(
        parse_predicate,
        "A predicate on the table's columns; only blocks that may hold a matching row are considered, and rewritten "
        "whole.",
        otherwise="none",
        example="\"event_date >= date'2026-01-01'\"",
        metavar="PREDICATE",
    )
    block_rows: int = option(
        parse_count,
        "The most rows in a block that a merge writes; loads write files as Spark does.",
        default=1_000_000,
        example="500000",
        metavar="NUMBER",
        config="block_rows",
    )
    reads: tuple[DeclaredRead, ...] | None = option(
        parse_reads,
        "What queries read: project, even, or queries or predicates, each with a weight for how often; blocks are "
        "merged where reads end.",
        otherwise="what the table records",
        example="project",
    )
    after: After | None = option(
        parse_after,
        "Recluster only after this much has changed since the last one (commits, rows, deleted, updated, share), or "
        "this long after it (hours, days).",
        otherwise="after every build",
        example="{commits: 5}",
        is_recorded=False,
    )
    when: tuple[When, ...] = option(
        parse_when,
        "Recluster only when a limit is crossed: a query opens too many blocks, returns too small a share of the rows "
        "in them or takes too many seconds, reads skip too few blocks, or the reducible ratio is too low.",
        default=(),
        otherwise="after every build",
        example='{query: "select * from ...", opens: 40}',
        is_recorded=False,
    )
    dry_run: bool = False
    automatic: bool = True
    trigger: str = "manual"
    progress: ProgressCallback | None = None

    @classmethod
    def parse(cls, **values: Any) -> ReclusterOptions:
        """Return options by values as a model has them; an OptionError if one has the wrong type or range."""
        read = {name: known.read(name, values.get(name)) for name, known in RECLUSTER_OPTIONS.items()}
        return cls(**{**values, **read})

    @classmethod
    def of_table(cls, properties: Mapping[str, str], **given: Any) -> ReclusterOptions:
        """Return the given options, checked before, each else as a table's properties record it, else its default."""
        given = {name: value for name, value in given.items() if value is not None}
        others = (option for option in RECLUSTER_OPTIONS.values() if option.name not in given)
        return cls(**given, **{option.name: option.of_table(properties) for option in others})

    @property
    def policy(self) -> Policy:
        """The planner's policy, with the default in place of ``auto``; ``max_bytes`` is for the whole recluster."""
        names = (f.name for f in fields(Policy) if f.name in RECLUSTER_OPTIONS)
        given = {name: value for name in names if (value := getattr(self, name)) not in (None, AUTO)}
        # At most 100 GB in one block set, which a failed merge loses. Whether the table is small, the table knows.
        return Policy(max_merge_bytes=100 * 2**30, is_small_table=self.depth is None, **given)


RECLUSTER_OPTIONS = declared(ReclusterOptions)


def property_text(value: Any) -> str:
    """Return the value of an option as a table's property."""
    if isinstance(value, tuple):
        return reads_as_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class PlanningOptions(TypedDict, total=False):
    """The options that every plan follows, as keywords."""

    depth: Depth | None
    strategy: str | None
    block_rows: int | None


class ReclusteringOptions(PlanningOptions, total=False):
    """The options of a recluster, as keywords."""

    final: bool | None
    where: str | None
    max_merge_blocks: int | None
    max_bytes: int | str | None
    max_seconds: float | None
