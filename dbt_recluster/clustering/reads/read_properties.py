"""Reads as a table's properties hold them: those that its model declares, and those on record.

On record are ranges and counts, never the text of a query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from dbt_recluster import table_properties
from dbt_recluster.clustering.values import parse_iso_time, parse_number
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.reads.predicates import is_query

# Stands for no reads at all, whatever the table records.
EVEN = "even"
# Where reads on record were imported from.
PROJECT, EVENT_LOG = "project", "event log"

# A read of this age counts half.
_HALF_LIFE = timedelta(days=14)
# More reads are replaced by a sample.
MOST_READS = 300
# How many different ones are added up before.
_MOST_HELD = 5_000
# A Hive metastore may hold 4,000 in a property.
_MOST_CHARACTERS = 3_500
# Of one read on record. Longer ones hold a long text or conditions on many columns.
_MOST_CHARACTERS_OF_READ = 400
_MOST_CHARACTERS_OF_ORIGIN = 40
# Of an entry of the state; longer ones are not ours.
_MOST_CHARACTERS_OF_STATE = 100
# Directories of event logs. The oldest of more is forgotten, and its queries may count twice.
_MOST_LOGS = 20
# The sum of many must stay finite.
_GREATEST_DECLARED_WEIGHT = 1e9
_GREATEST_WEIGHT = 1e12
_EXAMPLE = "\"event_date >= date'2026-01-01'\""

_Key = tuple[str | None, str]


@dataclass(frozen=True)
class DeclaredRead:
    """A query, or a predicate of queries, and how often it runs.

    Attributes:
        text: A whole query, or a predicate on the table's columns.
        weight: How often the query runs in a day. Only costs depend on more than the ratio of weights.
        is_query: Whether the text is a whole query.
    """

    text: str
    weight: float = 1.0
    is_query: bool = False


def parse_reads(name: str, value: Any) -> tuple[DeclaredRead, ...] | None:
    """Read the reads that a user declares.

    Accepted are a query or a predicate, a list of them, and a list of mappings with ``query`` or ``where`` and with
    ``weight``, also as JSON text. ``even`` and an empty list mean that reads are even over the keys. None stands for
    the reads that the table records.
    """
    if value is None:
        return None
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
    if len(items) > _MOST_CHARACTERS:
        raise OptionError(
            f"{name} must be shorter: {len(items):,} reads do not fit into the {_MOST_CHARACTERS:,} characters of the "
            "table's property"
        )
    reads = tuple(_parse_declared(name, item) for item in items)
    if (length := len(reads_as_text(reads))) > _MOST_CHARACTERS:
        raise OptionError(
            f"{name} must be shorter: {len(reads)} reads take {length:,} characters, and the "
            f"table's property holds {_MOST_CHARACTERS:,}"
        )
    return reads


def _parse_declared(name: str, item: Any) -> DeclaredRead:
    if isinstance(item, DeclaredRead):
        item = {"query" if item.is_query else "where": item.text, "weight": item.weight}
    given = item
    if not isinstance(given, Mapping):
        given = {"query" if isinstance(item, str) and is_query(item) else "where": item}
    unknown = sorted(set(map(str, given)) - {"query", "where", "weight"})
    if unknown:
        raise OptionError(f"{name}: a read has `query` or `where`, and `weight`, and no `{unknown[0]}`")
    if "query" in given and "where" in given:
        raise OptionError(f"{name}: a read has `query` or `where`, not both")
    text, weight = given.get("query", given.get("where")), parse_number(given.get("weight", 1))
    if not isinstance(text, str) or not text.strip():
        raise OptionError(
            f"{name}: a read is a query, or a SQL predicate such as {_EXAMPLE}, not {text!r:.40}"
        )
    if "query" in given and not is_query(text):
        raise OptionError(f"{name}: a query begins with select or with, not as {text!r:.40}; use `where`")
    if weight is None or not 0 < weight <= _GREATEST_DECLARED_WEIGHT:
        raise OptionError(
            f"{name}: a weight must be a number above 0, at most {_GREATEST_DECLARED_WEIGHT:,.0f}, "
            f"not {given.get('weight')!r:.40}"
        )
    return DeclaredRead(text, weight, "query" in given)


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
class ReadRange:
    """The ranges of columns that a read asks for.

    Attributes:
        columns: The least and the greatest value of each column, as `expressions.ranges_as_json` writes them.
        weight: How often it is read.
        imported_from: `PROJECT` or `EVENT_LOG` for a read on record, None for a declared one.
    """

    columns: Mapping[str, Sequence[Any]]
    weight: float
    imported_from: str | None = None

    @property
    def source(self) -> str:
        """``declared`` or ``recorded``."""
        return "declared" if self.imported_from is None else "recorded"


@dataclass(frozen=True)
class RecordedReads:
    """The reads on record.

    Attributes:
        reads: The ranges.
        at: The time of the last import, from the project and from event logs.
        state: What the next import needs: a digest of the project's queries, for each log the time after its last
            imported query, and under `EVENT_LOG` the time of the first query of any log.
    """

    reads: tuple[ReadRange, ...] = ()
    at: Mapping[str, datetime] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RecordedReads:
        """Read a table's properties."""
        return cls.parse(properties.get(table_properties.READS))

    @classmethod
    def parse(cls, text: str | None) -> RecordedReads:
        """Read the property. A malformed one counts as empty."""
        try:
            value = json.loads(text or "{}")
            at = {origin: parse_iso_time(when) for origin, when in value.get("at", {}).items()}
            state = {
                name: text
                for name, text in value.get("state", {}).items()
                if isinstance(text, str) and len(name) + len(text) <= _MOST_CHARACTERS_OF_STATE
            }
            reads = tuple(map(_parse_recorded, value.get("reads", ())))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return cls()
        return cls(reads, at, state)

    def text(self) -> str:
        """Write the property."""
        most = MOST_READS
        while True:
            reads = compact(self.reads, most)
            value = {
                "at": {origin: when.isoformat(timespec="seconds") for origin, when in self.at.items()},
                "state": self.state,
                "reads": [[read.imported_from, float(f"{read.weight:.4g}"), read.columns] for read in reads],
            }
            text = json.dumps(value, separators=(",", ":"))
            if len(text) <= _MOST_CHARACTERS or most <= 0:
                return text
            most = min(most - 1, most * _MOST_CHARACTERS // len(text))

    def with_import(
        self, imported_from: str, new: Iterable[ReadRange], state: Mapping[str, str], now: datetime
    ) -> RecordedReads:
        """Return these reads with those of an import. The project's replace its earlier ones, others are added."""
        left = 0.0 if imported_from == PROJECT else faded(self.at.get(imported_from, now), now)
        kept = [
            read if read.imported_from != imported_from else replace(read, weight=left * read.weight)
            for read in self.reads
        ]
        newest_last = {name: value for name, value in self.state.items() if name not in state} | {**state}
        forgotten = [name for name in newest_last if name not in (PROJECT, EVENT_LOG)][:-_MOST_LOGS]
        return RecordedReads(
            compact([*kept, *new], MOST_READS),
            {**self.at, imported_from: now},
            {name: value for name, value in newest_last.items() if name not in forgotten},
        )

    def daily(self, read: ReadRange) -> float:
        """Return how often a read happens in a day. A project runs once a day, and a declared weight is for a day."""
        first = self.time_of(EVENT_LOG)
        if read.imported_from != EVENT_LOG or EVENT_LOG not in self.at or first is None:
            return read.weight
        logged = max(timedelta(), self.at[EVENT_LOG] - first)
        # Days fade as the reads in them do.
        faded_days = (1 - 0.5 ** (logged / _HALF_LIFE)) * (_HALF_LIFE / math.log(2)) / timedelta(days=1)
        return read.weight / max(1.0, float(faded_days))

    def time_of(self, name: str) -> datetime | None:
        """Return a time of the state, or None."""
        try:
            return parse_iso_time(self.state[name])
        except (KeyError, ValueError):
            return None


def faded(when: datetime, now: datetime) -> float:
    """Return the share of its weight that a read of another time has today, from 0 to 1."""
    return float(0.5 ** (max(now - when, timedelta()) / _HALF_LIFE))


def compact(reads: Iterable[ReadRange], most: int) -> tuple[ReadRange, ...]:
    """Add up equal reads, and replace more than ``most`` by a sample in which every read has its weight on average.

    Reads that have more than their share stay as they are. The others are taken at even steps of their total weight, in
    the order of their values, so that the ends stay where they are dense.

    However many reads there are, only some thousands are held at a time.
    """
    if most < 1:
        return ()
    weights: dict[_Key, float] = {}
    for read in reads:
        key = _key(read)
        if len(key[1]) > _MOST_CHARACTERS_OF_READ or read.weight <= 0:
            continue
        weights[key] = weights.get(key, 0.0) + read.weight
        if len(weights) > max(_MOST_HELD, 2 * most):
            weights = {_key(kept): kept.weight for kept in _sampled(weights, most)}
    return _sampled(weights, most)


def _key(read: ReadRange) -> _Key:
    """Return what equal reads have in common: where they were imported from, and their columns as text."""
    return read.imported_from, json.dumps(read.columns, ensure_ascii=False, sort_keys=True)


def _sampled(weights: Mapping[_Key, float], most: int) -> tuple[ReadRange, ...]:
    taken: list[ReadRange] = []
    rest = sorted(
        (ReadRange(json.loads(text), weight, origin) for (origin, text), weight in weights.items()),
        key=_order,
    )
    while len(taken) + len(rest) > most:
        step = math.fsum(read.weight for read in rest) / (most - len(taken))
        heavy = [read for read in rest if read.weight >= step]
        if not heavy:
            # Those at the middle of every step of their cumulated weight.
            steps = np.floor(np.cumsum([read.weight for read in rest]) / step + 0.5)
            rest = [replace(rest[place], weight=step) for place in np.flatnonzero(np.diff(steps, prepend=0))]
            break
        taken += heavy
        rest = [read for read in rest if read.weight < step]
    return tuple(sorted((*taken, *rest), key=_order))


def _order(read: ReadRange) -> Any:
    values = [
        (column, *((type(end).__name__, end) if end is not None else ("", 0) for end in ends))
        for column, ends in sorted(read.columns.items())
    ]
    return read.imported_from, values


def _parse_recorded(value: Any) -> ReadRange:
    origin, weight, columns = value
    number = parse_number(weight)
    if number is None or number <= 0 or not isinstance(columns, dict):
        raise ValueError
    ends = {str(column): [lower, upper] for column, (lower, upper) in columns.items()}
    if not all(
        end is None or isinstance(end, (bool, int, float, str)) for pair in ends.values() for end in pair
    ):
        raise ValueError
    return ReadRange(ends, min(number, _GREATEST_WEIGHT), str(origin)[:_MOST_CHARACTERS_OF_ORIGIN])
