"""The key of ``cluster_by: auto``: when to choose, and which key pays. The decision is a pure function of figures.

A key stays until the table's rows, or the reads that have run, are twice those when it was chosen: it changes at most
once for each doubling, whatever the reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.conditions import block_count
from dbt_recluster.clustering.history import HistoryEntry
from dbt_recluster.clustering.options import ReclusterOptions, parse_iso_time
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CLUSTER_BY
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS
from dbt_recluster.text import count_noun, size

# Days of reads that must pay for a rewrite, and by what factor (benchmarks/auto_key.py).
DAYS, MARGIN = 30, 1.5
# The first key in the order of the suggestion wins against later ones that cost this share less.
_ABOUT_EQUAL = 0.02
# Keys are compared again once rows or reads have grown by this factor: each comparison reads a sample.
_GROWTH = 1.2


class KeyCosts(NamedTuple):
    """The costs of a table under a key, in bytes."""

    key: str  # as users write it; empty for none
    opened: float  # by reads, a day
    kept: float = 0.0  # rewritten to keep the table clustered, a day
    first: float = 0.0  # rewritten to cluster it by the key first; 0 for its own key


@dataclass(frozen=True)
class KeyChoice:
    """A key that was chosen: the bytes that reads open less in 30 days, and those rewritten for it in that time."""

    at: datetime
    key: str
    saved: int
    rewritten: int
    rows: int  # the most of the table until then
    reads: float  # that had run


class Comparison(NamedTuple):
    """A key beside that of now, over `DAYS`."""

    best: KeyCosts
    saved: float  # bytes that reads open less
    rewritten: float  # bytes that it costs to cluster the table by it and to keep it so

    @property
    def pays(self) -> bool:
        """Whether to choose it."""
        return self.saved > MARGIN * self.rewritten


def compare_keys(now: KeyCosts, others: Sequence[KeyCosts]) -> Comparison:
    """Return the key that costs least beside that of now; of about equal ones the first."""
    costs = [DAYS * (of.opened + of.kept) + of.first for of in others]
    best = others[next(place for place, cost in enumerate(costs) if cost <= (1 + _ABOUT_EQUAL) * min(costs))]
    return Comparison(best, DAYS * (now.opened - best.opened), best.first + max(0.0, DAYS * (best.kept - now.kept)))


@dataclass(frozen=True)
class AutoKey:
    """What a table records of the choices of its key."""

    at: datetime | None = None  # when keys were compared last
    rows: int = 0  # the most of the table until then
    reads: float = 0.0  # that had run until then
    choices: tuple[KeyChoice, ...] = ()  # the last ones that changed it

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AutoKey:
        """Read the property; a malformed one counts as empty."""

        def figures(of: Mapping[str, Any]) -> dict[str, Any]:
            if not math.isfinite(reads := float(of["reads"])):
                raise ValueError(f"{reads} reads")
            return {"at": parse_iso_time(of["at"]), "rows": int(of["rows"]), "reads": reads}

        def choice(of: Mapping[str, Any]) -> KeyChoice:
            key, saved, rewritten = str(parse_cluster_key(of["key"])), int(of["saved"]), int(of["rewritten"])
            return KeyChoice(key=key, saved=saved, rewritten=rewritten, **figures(of))

        def read(value: Mapping[str, Any]) -> AutoKey:
            return cls(**figures(value), choices=tuple(map(choice, value["choices"])))

        return AUTO_KEY.load(properties.get(AUTO_KEY), read) or cls()

    def text(self) -> str:
        """Write the property, with the last choices that fit."""
        if self.at is None:
            return AUTO_KEY.dump({})
        value = {**asdict(self), "choices": [asdict(of) for of in self.choices]}
        for of in (value, *value["choices"]):
            of["at"] = of["at"].isoformat(timespec="milliseconds")
        while len(text := AUTO_KEY.dump(value)) > AUTO_KEY.longest:
            value["choices"].pop(0)
        return text

    def reads_until(self, now: datetime, a_day: float) -> float:
        """Return how many reads have run, if so many do each day; before the first choice, those of a day."""
        days = 1.0 if self.at is None else max(timedelta(), now - self.at) / timedelta(days=1)
        return self.reads + a_day * days

    def waits(self, now: datetime, rows: int, a_day: float) -> str:
        """Return why it is too early to compare keys, or nothing if the last choice and comparison are long ago."""
        reads = self.reads_until(now, a_day)

        def has_grown(since: AutoKey | KeyChoice, factor: float) -> bool:
            return rows >= factor * since.rows or reads >= factor * since.reads

        if self.choices and not has_grown(self.choices[-1], 2.0):
            return "neither its rows nor the reads that have run have doubled since the last choice"
        is_early = self.at is not None and not has_grown(self, _GROWTH)
        return "few rows and reads since keys were compared last" if is_early else ""

    def compared(self, now: datetime, rows: int, a_day: float, comparison: Comparison) -> AutoKey:
        """Return what to record of a comparison of keys."""
        rows, reads = max(rows, self.rows), self.reads_until(now, a_day)
        new = KeyChoice(now, comparison.best.key, round(comparison.saved), round(comparison.rewritten), rows, reads)
        return AutoKey(now, rows, reads, (*self.choices, *([new] if comparison.pays else [])))


@dataclass(frozen=True)
class ChosenKey:
    """The key of a table under ``auto``, and why."""

    key: ClusterKey | None  # None for none yet
    reason: str
    state: AutoKey
    is_new: bool = False

    def text(self, verb: str = "auto chose") -> str:
        """Return the choice in one line."""
        start = "no key yet" if self.key is None else f"{verb if self.is_new else 'auto keeps'} {self.key}"
        return f"{start}: {self.reason}"

    @property
    def properties(self) -> PropertyChanges:
        """The properties that record it with the table."""
        return {AUTO_KEY: self.state.text(), **({CLUSTER_BY: str(self.key)} if self.is_new else {})}


def auto_key(
    table: ClusteredTable, options: ReclusterOptions, suggestion: Suggestion | None = None, *, tries: bool = True
) -> ChosenKey:
    """Return the key that ``auto`` gives a table now: its own, unless it is time to choose and another one pays.

    ``suggestion`` has keys tried by the known reads. Without ``tries`` it is its own, and the reason says whether
    it is time.
    """
    now, state = datetime.now(timezone.utc), AutoKey.from_properties(table.iceberg.properties)
    table.reads.follow(options.reads)
    key, snapshot = None, table.iceberg.current_snapshot()
    a_day = sum(map(table.reads.recorded.daily, table.reads.ranges))
    with suppress(ClusterKeyError):
        key = table.key
    rows, bytes_ = ((snapshot.count(f"total-{of}") or 0) if snapshot else 0 for of in ("records", "files-size"))
    why = _obstacle(table, options, a_day) or state.waits(now, rows, a_day)
    if why or not tries:
        return ChosenKey(key, why or "the next recluster compares keys", state)
    try:
        suggestion = suggestion or suggest_key(table, (), options)
    except ClusterKeyError as e:  # no column that reads restrict can be a key
        return ChosenKey(key, str(e), state)
    if not suggestion.candidates:
        return ChosenKey(key, suggestion.advice, state)
    compared = compare_keys(*_costs(suggestion, a_day * bytes_))
    best, saved, rewritten = compared.best.key, round(compared.saved), round(compared.rewritten)
    opened = f"{DAYS} days of the known reads open {size(max(0, saved))} less for {size(rewritten)} rewritten"
    state = state.compared(now, rows, a_day, compared)
    if compared.pays:
        return ChosenKey(parse_cluster_key(best), opened, state, is_new=True)
    is_best = key is not None and best == str(key)
    least = size(int(MARGIN * rewritten), up=True)
    reason = f"by {best}, {opened}; {least} would pay" if saved > 0 else "by none would known reads open less"
    reason = "of all keys it costs least" if is_best else reason
    return ChosenKey(key, reason, state)


def _obstacle(table: ClusteredTable, options: ReclusterOptions, a_day: float) -> str:
    """Return why no key can be chosen now, whatever the reads and keys cost; or nothing."""
    blocks = count_noun(block_count(table), "block")
    if table.suspended is not None:
        return f"suspended since {table.suspension}"
    if not a_day:
        return f"{blocks}, no reads known"
    is_small = not block_count(table) or table.is_small(options.block_rows)
    return f"{blocks}, fewer than {LEAST_FULL_BLOCKS} full ones" if is_small else ""


def _costs(suggestion: Suggestion, bytes_a_day: float) -> tuple[KeyCosts, list[KeyCosts]]:
    """Return the costs of now and of the keys of a suggestion, if reads opened ``bytes_a_day`` without any key."""
    costs, now = [], KeyCosts("", bytes_a_day * (1 - suggestion.candidates[0].skipped_now))
    for of in suggestion.candidates:
        first = 0 if of.is_own else of.first_bytes
        costs.append(KeyCosts(of.name, bytes_a_day * (1 - of.skipped_then), max(of.bytes_per_day or (0,)), first))
        now = costs[-1] if of.is_own else now
    return now, costs


def key_choices(table: ClusteredTable) -> list[HistoryEntry]:
    """Return the choices of a table's key as entries of its history."""
    return [
        HistoryEntry(of.at, (), "key", "auto", of.key, saved_bytes=of.saved, key_bytes=of.rewritten, reads=of.reads)
        for of in AutoKey.from_properties(table.iceberg.properties).choices
    ]
