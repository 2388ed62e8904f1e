"""The reads of a table: those that plans and metrics follow, and those that its property records.

The property has ranges of columns and counts, never the text of a query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, DeclaredRead, parse_iso_time
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.predicates import ColumnRanges, Predicate, RangeParser, ranges_as_json
from dbt_recluster.iceberg.table_properties import READS
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.planner import Reads
from dbt_recluster.text import shortened

# Where reads on record were imported from.
PROJECT, EVENT_LOG, QUERY_LOG = _KINDS = "project", "event log", "query log"

# A read of this age counts half.
_HALF_LIFE = timedelta(days=7)
# More reads are replaced by a sample.
MOST_READS = 300
# Different reads that are added up before they are sampled.
_MOST_HELD = 5_000
# Longer reads, with long texts or many columns, are left out.
_MOST_CHARACTERS_OF_READ = 400
# Older logs are forgotten; importing one again counts its queries twice.
_MOST_LOGS = 20
_GREATEST_RECORDED_WEIGHT = 1e12  # of sums of declared weights


@dataclass(frozen=True)
class ReadRange:
    """The ranges of columns that a read asks for."""

    # The least and the greatest value of each column, as :func:`ranges_as_json` writes them.
    columns: Mapping[str, Sequence[Any]]
    weight: float  # how often it is read
    # Where a read on record was imported from; None for a declared one.
    imported_from: str | None = None

    @classmethod
    def parse(cls, value: Any) -> ReadRange:
        """Read an entry of the property; a malformed one is a ValueError or a TypeError."""
        origin, weight, columns = value
        ends = {column: [lower, upper] for column, (lower, upper) in dict(columns).items()}
        is_plain = not any(isinstance(end, (dict, list)) for pair in ends.values() for end in pair)
        if not is_plain or not 0 < weight <= _GREATEST_RECORDED_WEIGHT:
            raise ValueError(value)
        return cls(ends, float(weight), str(origin))


@dataclass(frozen=True)
class RecordedReads:
    """The recorded reads."""

    reads: tuple[ReadRange, ...] = ()
    at: Mapping[str, datetime] = field(default_factory=dict)  # the time of the last import of each kind
    # A digest of the project's queries, for each log when it was imported and the queries of each day, and under each
    # kind of log the time of the first query of any.
    state: Mapping[str, str] = field(default_factory=dict)
    # The field ids of columns, by which reads follow new names.
    ids: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> RecordedReads:
        """Read the property; one that is malformed, or too long, counts as empty."""
        return READS.load(text, cls._of_json) or cls()

    @classmethod
    def _of_json(cls, value: Mapping[str, Any]) -> RecordedReads:
        at = {origin: parse_iso_time(when) for origin, when in value.get("at", {}).items()}
        state = {name: str(text) for name, text in value.get("state", {}).items()}
        ids = {column: int(field_id) for column, field_id in value.get("ids", {}).items()}
        return cls(tuple(map(ReadRange.parse, value.get("reads", ()))), at, state, ids)

    def of_columns(self, ids: Mapping[str, int]) -> RecordedReads:
        """Return the reads by the columns of these field ids, those whose names are gone under their new ones."""
        names = {field_id: column for column, field_id in ids.items()}
        new = {column: names.get(of, column) for column, of in self.ids.items() if column not in ids}
        reads = (replace(r, columns={new.get(c, c): e for c, e in r.columns.items()}) for r in self.reads)
        return replace(self, reads=tuple(reads), ids=ids)

    def text(self) -> str:
        """Write the property."""
        most = MOST_READS
        while True:
            reads = compact(self.reads, most)
            columns = {column for read in reads for column in read.columns}
            value = {
                "at": {origin: when.isoformat(timespec="seconds") for origin, when in self.at.items()},
                "state": self.state,
                "ids": {column: of for column, of in self.ids.items() if column in columns},
                "reads": [[read.imported_from, float(f"{read.weight:.4g}"), read.columns] for read in reads],
            }
            text, longest = READS.dump(value), READS.longest
            if len(text) <= longest or most <= 0:
                return text
            most = min(most - 1, most * longest // len(text))

    def with_import(
        self, imported_from: str, new: Iterable[ReadRange], state: Mapping[str, str], now: datetime
    ) -> RecordedReads:
        """Add the reads of an import; those of the project replace its earlier ones."""
        left = 0.0 if imported_from == PROJECT else faded(self.at.get(imported_from, now), now)
        shares = [left if read.imported_from == imported_from else 1.0 for read in self.reads]
        kept = [replace(r, weight=share * r.weight) for r, share in zip(self.reads, shares, strict=True)]
        newest_last = {name: value for name, value in self.state.items() if name not in state} | {**state}
        forgotten = [name for name in newest_last if name not in _KINDS][:-_MOST_LOGS]
        return RecordedReads(
            compact(chain(kept, new), MOST_READS),
            {**self.at, imported_from: now},
            {name: value for name, value in newest_last.items() if name not in forgotten},
            self.ids,
        )

    def daily(self, read: ReadRange) -> float:
        """Return how often a read runs in a day; a project runs once a day, and a declared weight is for a day."""
        kind = read.imported_from or PROJECT
        first, last = self.time_of(kind), self.at.get(kind)
        if kind == PROJECT or first is None or last is None:
            return read.weight
        logged = max(timedelta(), last - first)
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
    """Return the share of its weight that a read has left, from 0 to 1."""
    return float(0.5 ** (max(now - when, timedelta()) / _HALF_LIFE))


def compact(reads: Iterable[ReadRange], most: int) -> tuple[ReadRange, ...]:
    """Add up equal reads, and replace more than ``most`` by an unbiased sample.

    Heavy reads stay. The others are sampled at even steps of their total weight in the order of their values, so that
    ends stay dense where they are. Only some thousands are held at a time.
    """
    # By where they were imported from, and their columns as text.
    weights: dict[tuple[str | None, str], float] = {}
    for read in reads if most > 0 else ():
        columns = json.dumps(read.columns, ensure_ascii=False, sort_keys=True)
        if len(columns) > _MOST_CHARACTERS_OF_READ or read.weight <= 0:
            continue
        weights[read.imported_from, columns] = weights.get((read.imported_from, columns), 0.0) + read.weight
        if len(weights) > max(_MOST_HELD, 2 * most):
            weights = _sampled(weights, most)
    kept = _sampled(weights, most).items()
    return tuple(ReadRange(json.loads(columns), weight, origin) for (origin, columns), weight in kept)


def _sampled(weights: Mapping[Any, float], most: int) -> dict[Any, float]:
    keys = sorted(weights, key=lambda key: (key[0], _in_order(json.loads(key[1]))))
    if len(keys) <= most:
        return {key: weights[key] for key in keys}
    weight = np.array([weights[key] for key in keys])
    heavy = np.zeros(len(keys), np.bool_)
    while True:
        step = weight[~heavy].sum() / (most - np.count_nonzero(heavy))
        more = ~heavy & (weight >= step)
        if not more.any():
            break
        heavy |= more
    steps = np.floor(np.cumsum(np.where(heavy, 0.0, weight)) / step + 0.5)
    kept = np.flatnonzero(heavy | (np.diff(steps, prepend=0) > 0))
    return {keys[place]: float(weight[place] if heavy[place] else step) for place in kept}


def _in_order(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return the sort key of columns: open ends before values, and values of one type together."""
    return [
        (column, [("", 0) if end is None else (type(end).__name__, end) for end in pair])
        for column, pair in sorted(columns.items())
    ]


class KeyReads(NamedTuple):
    """The reads of a table that restrict its key."""

    ranges: list[ReadRange]  # the reads
    # Their ranges of the key, in this order; under a curve, of each of its columns by itself. None without reads.
    reads: Reads | None


class TableReads:
    """The reads that plans and metrics of a table follow: those declared, or else those recorded."""

    def __init__(self, iceberg: IcebergTable) -> None:
        self._iceberg = iceberg
        self._followed: list[ReadRange] | None = None
        self._of_key: dict[str, KeyReads] = {}
        self.left_out: list[str] = []  # warnings about declared reads that are left out

    @property
    def recorded(self) -> RecordedReads:
        """The reads that the table records."""
        recorded = RecordedReads.parse(self._iceberg.properties.get(READS))
        return recorded.of_columns(self._iceberg.field_ids)

    def follow(self, declared: Sequence[DeclaredRead] | None = None) -> list[str]:
        """Follow these reads, or by default those of the model, else the recorded ones; return warnings.

        Raises:
            OptionError: The property that records what the model declares is no list of reads.
        """
        self._of_key.clear()
        self.left_out = []
        if declared is None:
            declared = RECLUSTER_OPTIONS["reads"].of_table(self._iceberg.properties)
        if declared is None:
            with_ranges = [(read, self.column_ranges.of_json(read.columns)) for read in self.recorded.reads]
        else:
            with_ranges = [(ReadRange({}, r.weight), ranges) for r in declared for ranges in self._of_declared(r)]
        self._followed = [replace(read, columns=ranges_as_json(ranges)) for read, ranges in with_ranges if ranges]
        return self.left_out

    @property
    def ranges(self) -> list[ReadRange]:
        """The ranges of the reads that are followed, as far as the table has their columns."""
        if self._followed is None:
            self.follow()
        return self._followed or []

    def for_key(self, key: ClusterKey) -> KeyReads:
        """Return the reads that restrict a key of the table."""
        if str(key) not in self._of_key:
            ranges = self.column_ranges
            with_ends = [(read, ranges.of_key(key, ranges.of_json(read.columns))) for read in self.ranges]
            bounded = [(read, ends) for read, ends in with_ends if ends]
            items = range(len(key.fields))
            lower, upper = ([[ends[side][item] for _, ends in bounded] for item in items] for side in (0, 1))
            reads = Reads(lower, upper, [read.weight for read, _ in bounded]) if bounded else None
            self._of_key[str(key)] = KeyReads([read for read, _ in bounded], reads)
        return self._of_key[str(key)]

    def forget(self) -> int:
        """Drop the reads that the table records; return the number of their ranges."""
        recorded = self.recorded
        if READS in self._iceberg.properties:
            self._write(None)
        return len(recorded.reads)

    @cached_property
    def column_ranges(self) -> RangeParser:
        """The ranges of columns that predicates and queries restrict."""
        return RangeParser(self._iceberg, self._iceberg.columns())

    def _of_declared(self, read: DeclaredRead) -> list[ColumnRanges]:
        """Return the ranges of a declared read, or warn that it is left out; one of the whole table has none."""
        try:
            if read.query is None:
                return self.column_ranges.of_predicate(Predicate.parse(self._iceberg, read.text))
            scans, ranges = self.column_ranges.of_query(read.query)
            if not scans:
                raise PredicateError(f"{shortened(read.text)!r} does not read {self._iceberg.name}")
            return ranges
        except PredicateError as e:
            self.left_out.append(f"reads: left out, {e}")
            return []

    def record(
        self, imported_from: str, new: Iterable[ReadRange] | None, state: Mapping[str, str], now: datetime
    ) -> int:
        """Record the reads of an import, None for those of the last one; return how many are recorded now."""
        self._iceberg.refresh()  # another process may have recorded reads since
        recorded = self.recorded
        if new is None:
            new = [read for read in recorded.reads if read.imported_from == imported_from]
        result = recorded.with_import(imported_from, new, state, now)
        self._write(result.text())
        return len(result.reads)

    def _write(self, text: str | None) -> None:
        self._iceberg.set_property(READS, text)
        self._followed = None
        self._of_key.clear()
