"""Reads on record: a property of the table with ranges and counts, never the text of a query."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from dbt_recluster import table_properties
from dbt_recluster.clustering.values import parse_iso_time, parse_number

# Where reads on record were imported from.
PROJECT, EVENT_LOG = "project", "event log"
# Where a read is from.
DECLARED, RECORDED = "declared", "recorded"

# A read of this age counts half.
_HALF_LIFE = timedelta(days=14)
# More reads are replaced by a sample.
MOST_READS = 300
# How many different ones are added up before.
_MOST_HELD = 5_000
# A Hive metastore may hold 4,000 in a property.
_MOST_CHARACTERS = 3_500
# Of one read. Longer ones hold a long text or conditions on many columns.
_MOST_CHARACTERS_OF_READ = 400
_MOST_CHARACTERS_OF_ORIGIN = 40
# Of an entry of the state; longer ones are not ours.
_MOST_CHARACTERS_OF_STATE = 100
# Directories of event logs. The oldest of more is forgotten, and its queries may count twice.
_MOST_LOGS = 20
# The sum of many must stay finite.
_GREATEST_WEIGHT = 1e12

_Key = tuple[str | None, str]


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
        """`DECLARED` or `RECORDED`."""
        return DECLARED if self.imported_from is None else RECORDED


@dataclass(frozen=True)
class RecordedReads:
    """The content of the property.

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
            reads = tuple(map(_parse_read, value.get("reads", ())))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return cls()
        return cls(reads, at, state)

    def text(self) -> str:
        """Write the property."""
        reads, most = compact(self.reads, MOST_READS), MOST_READS
        while len(text := replace(self, reads=reads)._as_json()) > _MOST_CHARACTERS and most > 0:
            most = min(most - 1, most * _MOST_CHARACTERS // len(text))
            reads = compact(self.reads, most)
        return text

    def _as_json(self) -> str:
        value = {
            "at": {origin: when.isoformat(timespec="seconds") for origin, when in self.at.items()},
            "state": self.state,
            "reads": [[read.imported_from, float(f"{read.weight:.4g}"), read.columns] for read in self.reads],
        }
        return json.dumps(value, separators=(",", ":"))

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
        if read.imported_from != EVENT_LOG or EVENT_LOG not in self.at:
            return read.weight
        try:
            logged = max(timedelta(), self.at[EVENT_LOG] - parse_iso_time(self.state[EVENT_LOG]))
        except (KeyError, ValueError):
            return read.weight
        # Days fade as the reads in them do.
        faded_days = (1 - 0.5 ** (logged / _HALF_LIFE)) * (_HALF_LIFE / math.log(2)) / timedelta(days=1)
        return read.weight / max(1.0, float(faded_days))


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
    all_reads = sorted(
        (ReadRange(json.loads(text), weight, origin) for (origin, text), weight in weights.items()),
        key=_order,
    )
    taken: list[ReadRange] = []
    rest = all_reads
    while len(taken) + len(rest) > most:
        step = math.fsum(read.weight for read in rest) / (most - len(taken))
        heavy = [read for read in rest if read.weight >= step]
        if not heavy:
            rest = _sample(rest, step)
            break
        taken += heavy
        rest = [read for read in rest if read.weight < step]
    return tuple(sorted((*taken, *rest), key=_order))


def _sample(reads: Sequence[ReadRange], step: float) -> list[ReadRange]:
    """Return the reads at the middle of every step of their cumulated weight."""
    sample, passed = [], 0.0
    for read in reads:
        if math.floor((passed + read.weight) / step + 0.5) > math.floor(passed / step + 0.5):
            sample.append(replace(read, weight=step))
        passed += read.weight
    return sample


def _order(read: ReadRange) -> Any:
    values = [
        (column, *((type(end).__name__, end) if end is not None else ("", 0) for end in ends))
        for column, ends in sorted(read.columns.items())
    ]
    return read.imported_from, values


def _parse_read(value: Any) -> ReadRange:
    origin, weight, columns = value
    number = parse_number(weight)
    if number is None or number <= 0 or not isinstance(columns, dict):
        raise ValueError
    ends = {str(column): _ends(ends) for column, ends in columns.items()}
    return ReadRange(ends, min(number, _GREATEST_WEIGHT), str(origin)[:_MOST_CHARACTERS_OF_ORIGIN])


def _ends(value: Any) -> list[Any]:
    lower, upper = value
    if not all(end is None or isinstance(end, (bool, int, float, str)) for end in (lower, upper)):
        raise ValueError
    return [lower, upper]
