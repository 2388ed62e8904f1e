"""The options of a recluster, each declared once: its type, its default and the sentence that explains it.

The types, also of arguments, vars and table properties, are pydantic's: :func:`parse_value` validates a value, and
``scripts/recluster_schema.py`` takes the JSON schema from them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict, get_type_hints

from annotated_types import Ge, Gt, Le, MinLen, Predicate
from pydantic import BeforeValidator, PlainValidator, WrapValidator
from pydantic_core import core_schema
from pydantic_core.core_schema import CoreSchema, ValidationInfo, ValidatorFunctionWrapHandler

from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.table_properties import OPTION_PREFIX
from dbt_recluster.planner import STRATEGIES, Policy

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter

MAX_BLOCK_ROWS = 2**40

# The threshold that follows the cost and the benefit of a table.
AUTO: Literal["auto"] = "auto"
# No reads at all, whatever the table records.
_EVEN = "even"
# The most characters of declared reads in a table's property; a Hive metastore holds 4,000.
_MOST_CHARACTERS = 3_500
_GREATEST_NUMBER = 1e15
_GREATEST_WEIGHT = 1e9  # so that sums stay finite

_AT_MOST = f"at most {MAX_BLOCK_ROWS:,}"
_EXAMPLE = "\"event_date >= date'2026-01-01'\""
_UNITS = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_AGO = re.compile(r"(\d+)\s*(minute|hour|day|week)s?", re.IGNORECASE)
_SIZE = r"^\s*(\d+(\.\d+)?)\s*([kKmMgGtT]?[bB])?\s*$"
_SIZE_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE}]}
_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)


@dataclass(frozen=True)
class Expected:
    """The last annotation of a type: what its error says after "must be"."""

    text: str
    of: str = ""  # what in the value is wrong
    verb: str = "be"
    schema: dict[str, Any] | None = field(default=None, compare=False)  # for JSON, where the type does not tell it

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._validated, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema or handler(schema)

    def _validated(self, value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        with suppress(ValueError, TypeError, OverflowError, AttributeError):
            return validate(value)
        raise OptionError(f"{info.context}{self.of} must {self.verb} {self.text}, not {value!r:.80}")


def parse_value(kind: Any, name: str, value: Any) -> Any:
    """Return a value other than None, validated by its type; an OptionError mentions its ``name``."""
    return _adapter(kind).validate_python(value, context=name)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # takes long, and many a command of dbt reads no option

    return TypeAdapter(kind)


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
    match = re.match(_SIZE, str(value))
    if match is None:
        return None
    unit = _UNITS[(match[3] or "b").lower()]
    size = float(match[1]) * unit
    return int(size) if 1 <= size <= 2**62 and (unit > 1 or size.is_integer()) else None


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


def is_auto(cluster_by: Any) -> bool:
    """Return whether reads choose the key; a column of that name is ``[auto]``."""
    return isinstance(cluster_by, str) and cluster_by.strip().lower() == AUTO


def is_query(text: str) -> bool:
    """Whether a text is a whole query, by its first word; otherwise it is a predicate."""
    return _QUERY.match(text) is not None


# pydantic would take a boolean and bytes for numbers, and bytes for a text. Booleans, numbers and words also come as
# strings, which env_var() and the command line give.
NUMBER = BeforeValidator(parse_number)
WORD = BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value)
MOMENT = PlainValidator(parsed_moment)
Text = Annotated[str, MinLen(1), BeforeValidator(lambda v: v if isinstance(v, str) and v.strip() else None)]
_Query = Annotated[Text, Predicate(is_query)]
_Positive = Annotated[float, Gt(0), NUMBER]
_Share = Annotated[float, Gt(0), Le(1), NUMBER]

Boolean = Annotated[bool, WORD, Expected("true or false")]
Count = Annotated[int, Ge(1), Le(MAX_BLOCK_ROWS), NUMBER, Expected(f"a whole number above 0, {_AT_MOST}")]
MergeBlocks = Annotated[int, Ge(2), Le(MAX_BLOCK_ROWS), NUMBER, Expected(f"a whole number above 1, {_AT_MOST}")]
Seconds = Annotated[_Positive, Expected("a number of seconds above 0")]
Depth = Annotated[
    _Positive | Annotated[Literal["auto"], WORD],
    Expected(f"a number of at least 1, one between 0 and 1 to mean a share of the number of blocks, or {AUTO}"),
]
Size = Annotated[
    int,
    BeforeValidator(_bytes),
    Expected("a number of bytes above 0 or a size such as '10 GB'", schema=_SIZE_SCHEMA),
]
Moment = Annotated[datetime, MOMENT, Expected("a date such as 2026-01-31, a time or a period such as '7 days'")]
SqlPredicate = Annotated[Text, Expected(f"a SQL predicate, such as {_EXAMPLE}")]
Strategy = Annotated[
    str,
    Predicate(STRATEGIES.__contains__),
    Expected(f"one of {', '.join(STRATEGIES)}", schema={"enum": list(STRATEGIES)}),
]
NamedQueries = Mapping[Annotated[str, BeforeValidator(str)], str]
Queries = Annotated[
    Sequence[Text] | NamedQueries,
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Expected("a SQL predicate, a query or a list of them, or queries by name"),
]


_EITHER = {"oneOf": [{"required": ["where"]}, {"required": ["query"]}]}


@dataclass(frozen=True)
class DeclaredRead:
    """A declared query, or the predicate of one, on the table's columns."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "json_schema_extra": _EITHER}

    where: Text | None = None
    query: _Query | None = None
    # Runs per day; only costs depend on more than the ratio of weights.
    weight: Annotated[float, Gt(0), Le(_GREATEST_WEIGHT), NUMBER] = 1.0

    def __post_init__(self) -> None:
        """Refuse a read that is both or neither."""
        if (self.where is None) == (self.query is None):
            raise ValueError("a read is a predicate or a query")

    @property
    def text(self) -> str:
        """The predicate or the query."""
        return self.where or self.query or ""


def _as_read(value: Any) -> Any:
    if isinstance(value, str):
        return {"query" if is_query(value) else "where": value}
    return dict(value) if isinstance(value, Mapping) else value


def _reads(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> tuple[DeclaredRead, ...]:
    if isinstance(value, str) and value.strip().lower() == _EVEN:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise OptionError(f"{info.context} must be a list of SQL predicates, not {value!r:.40}") from None
    reads: tuple[DeclaredRead, ...] = validate(value if isinstance(value, (list, tuple)) else [value])
    if (length := len(reads_as_text(reads))) > _MOST_CHARACTERS:
        raise OptionError(
            f"{info.context} must be shorter: {len(reads):,} reads take {length:,} characters, and the table's "
            f"property holds {_MOST_CHARACTERS:,}"
        )
    return reads


_Read = Annotated[
    DeclaredRead,
    BeforeValidator(_as_read),
    Expected(
        f"a SQL predicate such as {_EXAMPLE}, a query that begins with select or with, or a mapping with `where` or "
        f"`query` and with a `weight` above 0 and at most {_GREATEST_WEIGHT:,.0f}",
        of=": a read",
    ),
]
# A query or a predicate, or a list of them or of mappings, which may be JSON text. `even` and an empty list mean that
# reads are even over the keys.
Reads = Annotated[
    tuple[_Read, ...], WrapValidator(_reads, json_schema_input_type=Text | DeclaredRead | list[Text | DeclaredRead])
]


def reads_as_text(reads: Sequence[DeclaredRead]) -> str:
    """Write reads as a text that stands for them as a value of :data:`Reads`."""
    if not reads:
        return _EVEN
    objects = [{name: value for name, value in vars(read).items() if value is not None} for read in reads]
    items = [of if of != {**_as_read(r.text), "weight": 1} else r.text for r, of in zip(reads, objects, strict=True)]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class After:
    """Limits since the last recluster, of which one has to be reached; ``share`` is changed rows / all rows."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "json_schema_extra": {"minProperties": 1}}

    rows: _Positive | None = None
    commits: _Positive | None = None
    share: _Share | None = None
    hours: _Positive | None = None
    days: _Positive | None = None
    deleted: _Positive | None = None
    updated: _Positive | None = None

    def __post_init__(self) -> None:
        """Refuse no limit at all."""
        if not any(vars(self).values()):
            raise ValueError("no limit")


@dataclass(frozen=True)
class When:
    """Limits of an example query, of all known reads, or of the table."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "json_schema_extra": {"minProperties": 1}}

    query: _Query | None = None  # an example query
    opens: _Positive | None = None  # the most blocks that it may open; below 1, a share of the table's
    seconds: _Positive | None = None  # the most seconds that it may run, for which it is run
    skipped: _Share | None = None  # the least share of the table's blocks that reads skip
    ratio: Annotated[float, Gt(0), Le(100), NUMBER] | None = None  # the least clustering ratio
    selectivity: _Share | None = None  # the least share of the opened rows that it returns; it is run

    def __post_init__(self) -> None:
        """Refuse limits of a query without one, and others beside them."""
        limits = {name for name, value in vars(self).items() if value is not None}
        of_query = "query" in limits and len(limits) > 1 and limits <= {"query", "opens", "seconds", "selectivity"}
        if not of_query and limits not in ({"skipped"}, {"ratio"}):
            raise ValueError("limits of different things")


_After = Annotated[
    After,
    Expected(
        "a mapping of commits, rows, deleted, updated, share (at most 1), hours or days to numbers above 0, such as "
        "{commits: 5}"
    ),
]
_When = Annotated[
    When,
    Expected(
        "a mapping such as {skipped: 0.9}, a share of at most 1, {ratio: 70}, at most 100, or {query: 'select ...', "
        "opens: 40}, with a query that begins with select or with and with opens, seconds or selectivity (at most 1) "
        "above 0, or a list of them"
    ),
]
_Whens = Annotated[
    tuple[_When, ...],
    BeforeValidator(
        lambda value: value if isinstance(value, tuple) or (value and isinstance(value, list)) else [value],
        json_schema_input_type=When | list[When],
    ),
]


def digest(value: Any) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    meaning: str  # a sentence for the reference and for help
    example: str  # a value as YAML
    default: Any = None
    otherwise: str = ""  # the default in words
    is_recorded: bool = True  # whether a property of the table records the model's value
    metavar: str | None = None  # in help, empty for true or false; None if it is no argument of recluster
    config: str = ""  # the name of the model's config
    name: str = ""  # the name of the field, of the argument, and in a model's ``meta``
    kind: Any = None  # the type that validates it; by default, the annotation

    @property
    def table_property(self) -> str:
        """The property that records the option with the table."""
        return f"{OPTION_PREFIX}{self.name}"

    def read(self, name: str, value: Any) -> Any:
        """Return a value as it is given under ``name``, checked; the default for None."""
        return self.default if value is None else parse_value(self.kind, name, value)

    def of_table(self, properties: Mapping[str, str]) -> Any:
        """Return the value that a table's properties record, checked, else the default."""
        text = properties.get(self.table_property) if self.is_recorded else None
        return self.read(f"table property {self.table_property}", text)


def option(meaning: str, *, default: Any = None, **facts: Any) -> Any:
    """Declare a field of a dataclass as an :class:`Option`; its config has a prefix unless ``config`` names it."""
    facts.setdefault("otherwise", str(default).lower())
    return field(default=default, metadata={"option": Option(meaning, default=default, **facts)})


def declared(kind: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name."""
    kinds = get_type_hints(kind, include_extras=True)
    return {
        f.name: replace(
            facts, name=f.name, config=facts.config or f"recluster_{f.name}", kind=facts.kind or kinds[f.name]
        )
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
        "The depth up to which a table counts as well clustered; between 0 and 1, a share of the number of "
        "blocks, at least 4; auto, where rewriting and reading cost least.",
        otherwise="4",
        metavar="NUMBER",
        example="2",
    )
    final: Boolean = option("Repeat rounds until nothing is left to do.", default=False, example="true", metavar="")
    strategy: Strategy | None = option(
        "How block sets are selected.", otherwise="payback", example="peak", metavar="NAME"
    )
    max_merge_blocks: MergeBlocks | None = option(
        "The most overlapping blocks in one merge; with strategy width also the base of its buckets of widths.",
        otherwise="no limit, and base 4",
        metavar="NUMBER",
        example="8",
    )
    max_bytes: Size | None = option(
        "The most bytes to rewrite in each table: a number, or a size such as '10 GB'.",
        otherwise="no limit",
        example="10 GB",
        metavar="SIZE",
    )
    max_seconds: Seconds | None = option(
        "Time limit for rewriting each table, in seconds, kept by the speed of its earlier rounds (10 MB/s before the "
        "first).",
        otherwise="no limit",
        example="600",
        metavar="NUMBER",
    )
    where: SqlPredicate | None = option(
        "A predicate on the table's columns; only blocks that may hold a matching row are considered, and rewritten "
        "whole.",
        otherwise="none",
        example="\"event_date >= date'2026-01-01'\"",
        metavar="PREDICATE",
    )
    block_rows: Count = option(
        "The most rows in a block that a merge writes; loads write files as Spark does.",
        default=1_000_000,
        example="500000",
        metavar="NUMBER",
        config="block_rows",
    )
    reads: Reads | None = option(
        "What queries read: project, even, or queries or predicates, each with a weight for how often; blocks are "
        "merged where reads end.",
        otherwise="what the table records",
        example="project",
    )
    after: _After | None = option(
        "Recluster only after this much has changed since the last one (commits, rows, deleted, updated, share), or "
        "this long after it (hours, days).",
        otherwise="after every build",
        example="{commits: 5}",
        is_recorded=False,
    )
    when: _Whens = option(
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
    def from_properties(cls, properties: Mapping[str, str], **options: Any) -> ReclusterOptions:
        """Return the given options, checked before, each else as a table's properties record it, else its default."""
        options = {name: value for name, value in options.items() if value is not None}
        others = (option for option in RECLUSTER_OPTIONS.values() if option.name not in options)
        return cls(**options, **{option.name: option.of_table(properties) for option in others})

    @property
    def policy(self) -> Policy:
        """The planner's policy, with the default in place of ``auto``; ``max_bytes`` is for the whole recluster."""
        names = (f.name for f in fields(Policy) if f.name in RECLUSTER_OPTIONS)
        options = {name: value for name in names if (value := getattr(self, name)) not in (None, AUTO)}
        # At most 100 GB in one block set, which a failed merge loses. Whether the table is small, the table knows.
        return Policy(max_merge_bytes=100 * 2**30, is_small_table=self.depth is None, **options)


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
