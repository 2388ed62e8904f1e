"""What a table records: the levels of its blocks, the reads of its queries, the changes since the last recluster."""

import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.conditions import Changes, changes_since_recluster
from dbt_recluster.clustering.table_reads import EVENT_LOG, PROJECT, ReadRange, RecordedReads, compact
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.table_properties import LEVELS

NUMBERS = st.integers(1, 2**63 - 1)


def packed(levels: RecordedLevels) -> RecordedLevels:
    text = levels.packed()
    assert len(text) <= LEVELS.longest
    return RecordedLevels.from_properties({LEVELS: text})


def looked_up(levels: RecordedLevels, numbers: list[int]) -> list[int]:
    return levels.look_up(np.array(numbers, dtype=np.int64)).tolist()


CURVES = st.sampled_from(["", "3fd0c7a9e112"])


@given(st.dictionaries(NUMBERS, st.integers(0, 64), max_size=60), NUMBERS, st.integers(0, 64), CURVES)
def test_levels_are_what_was_recorded(levels: dict[int, int], last: int, mean: int, curve: str) -> None:
    recorded = RecordedLevels(levels, last, mean, curve)
    assert packed(recorded) == recorded


def test_old_levels_become_a_mean_and_young_ones_stay() -> None:
    levels = {2 * n: 2 if n < 3_000 else 30 + n % 3 for n in range(1, 4_001)}
    recorded = packed(RecordedLevels(levels, curve="3fd0c7a9e112"))
    assert recorded.curve == "3fd0c7a9e112"
    assert recorded.by_number == {n: level for n, level in levels.items() if n > recorded.last_old}
    assert len(recorded.by_number) > 200
    old = [level for number, level in levels.items() if number <= recorded.last_old]
    assert abs(recorded.mean_old - sum(old) / len(old)) < 1
    assert looked_up(recorded, [2, 3, recorded.last_old, 8_001]) == [recorded.mean_old] * 3 + [-1]


@pytest.mark.parametrize("ids", [False, True], ids=["sequence numbers", "ids"])
def test_the_text_of_levels_is_short_however_often_levels_are_added(ids: bool) -> None:
    """Ids, as in tables of format version 1, tell nothing of a snapshot's age: a new one may count as old."""
    draw = np.random.default_rng(1)
    recorded = packed(RecordedLevels({1_000 * n: 10 + n % 55 for n in range(1, 1_000)}))
    for commit in range(100_000, 100_300):
        number = int(draw.integers(1, 2**63 - 1) if ids else 10 * commit + draw.integers(0, 9))
        added = {number: int(draw.integers(10, 65))}
        recorded = packed(RecordedLevels({**recorded.by_number, **added}, recorded.last_old, recorded.mean_old))
        (level,) = looked_up(recorded, [number])
        assert level == added[number] or (ids and level == recorded.mean_old)
    assert 30 < recorded.mean_old < 45


NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)
ENDS = st.one_of(st.none(), st.integers(-50, 50))
READS = st.lists(
    st.builds(
        ReadRange,
        st.fixed_dictionaries({"k": st.lists(ENDS, min_size=2, max_size=2)}),
        st.floats(0.01, 100),
        st.sampled_from([PROJECT, EVENT_LOG]),
    ),
    max_size=60,
)


def total(reads: Iterable[ReadRange]) -> float:
    return math.fsum(read.weight for read in reads)


@given(READS, st.integers(1, 20))
def test_a_sample_of_reads_is_small_and_has_the_same_weight(reads: list[ReadRange], most: int) -> None:
    exact = compact(reads, 1000)
    sample = compact(reads, most)
    assert len(sample) <= most
    assert total(exact) == pytest.approx(total(reads))
    assert total(sample) == pytest.approx(total(reads)) or not reads
    exact_columns = [read.columns for read in exact]
    assert all(read.columns in exact_columns for read in sample)


@given(READS)
def test_the_text_of_reads_is_read_again(reads: list[ReadRange]) -> None:
    logged = [replace(read, imported_from=EVENT_LOG) for read in reads]
    recorded = RecordedReads().with_import(EVENT_LOG, logged, {"x": "y"}, NOW)
    again = RecordedReads.parse(recorded.text())
    assert [(read.imported_from, read.columns) for read in again.reads] == [
        (read.imported_from, read.columns) for read in recorded.reads
    ]
    assert total(again.reads) == pytest.approx(total(recorded.reads), rel=1e-3)
    assert (again.at, again.state) == ({EVENT_LOG: NOW}, {"x": "y"})


def test_many_logs_leave_room_for_reads() -> None:
    recorded = RecordedReads()
    for number in range(100):
        state = {f"{EVENT_LOG} {number:016}": NOW.isoformat(), EVENT_LOG: NOW.isoformat()}
        read = ReadRange({"k": [number, number]}, 1.0, EVENT_LOG)
        recorded = recorded.with_import(EVENT_LOG, [read], state, NOW)
    assert len(recorded.text()) <= 3_500
    again = RecordedReads.parse(recorded.text())
    assert {EVENT_LOG, f"{EVENT_LOG} {99:016}", f"{EVENT_LOG} {80:016}"} <= again.state.keys()
    assert len(again.state) == 21
    assert total(again.reads) == pytest.approx(100, rel=1e-3)


def test_a_read_of_a_log_has_the_rate_of_the_days_that_were_logged() -> None:
    logged, now, recorded = ReadRange({"k": [1, 1]}, 3.0, EVENT_LOG), NOW, RecordedReads()
    first = (NOW - timedelta(days=1)).isoformat()
    for _ in range(60):  # three reads on each day, imported daily
        recorded = recorded.with_import(EVENT_LOG, [logged], {EVENT_LOG: first}, now)
        assert recorded.daily(recorded.reads[0]) == pytest.approx(3, rel=0.06)
        now += timedelta(days=1)
    in_the_future = replace(recorded, state={EVENT_LOG: "9999-12-31T00:00:00"})
    assert in_the_future.daily(recorded.reads[0]) == recorded.reads[0].weight
    assert recorded.daily(replace(logged, weight=2.0, imported_from=PROJECT)) == 2.0


def test_a_hundred_thousand_reads_become_a_few_hundred_as_they_come() -> None:
    """Only some thousands are held at a time, none of their weight is lost, and no sample replaces a frequent one."""
    alive: set[int] = set()
    most_alive = 0

    def reads() -> Iterator[ReadRange]:
        nonlocal most_alive
        for number in range(100_000):
            # Half of them are the same.
            read = ReadRange({"k": [number % 2 and number, number % 2 and number + 5]}, 1.0, EVENT_LOG)
            alive.add(number)
            weakref.finalize(read, alive.discard, number)
            most_alive = max(most_alive, len(alive))
            yield read

    recorded = RecordedReads().with_import(EVENT_LOG, reads(), {EVENT_LOG: NOW.isoformat()}, NOW)
    assert len(recorded.reads) <= 300
    assert len(recorded.text()) <= 3_500
    assert total(recorded.reads) == pytest.approx(100_000)
    assert next(read for read in recorded.reads if read.columns == {"k": [0, 0]}).weight == 50_000
    assert most_alive < 6_000
    ends = sorted(read.columns["k"][0] for read in recorded.reads)
    assert max(np.diff(ends)) < 5_000


@dataclass
class History:
    """A table's commits, and what is true of them whatever has expired."""

    snapshots: list[Snapshot] = field(default_factory=list)
    total: int = 0
    rows: int = 0
    commits: int = 0
    recorded: Changes | None = None
    since: int = 0  # the last recluster, or the first commit
    _ids: int = 0

    def commit(self, operation: str, added: int = 0, deleted: int = 0, **figures: str) -> None:
        parent = self._ids or None
        self._ids += 1
        self.total += added - deleted
        counts = {"added-records": added, "deleted-records": deleted, "total-records": self.total}
        summary = {name: str(count) for name, count in counts.items()} | figures
        at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=self._ids)
        if self.since == 0 or "recluster.sets" in figures:
            self.since = int(at.timestamp())
        self.snapshots.append(Snapshot(self._ids, parent, self._ids, at, operation, summary))
        if operation != "replace" and added + deleted:
            self.rows += added + deleted
            self.commits += 1

    def recluster(self) -> None:
        self.commit("replace", self.total, self.total, **{"recluster.sets": "1"})
        self.rows = self.commits = 0
        self.recorded = None  # its commit removes the property

    def expire(self, count: int) -> None:
        del self.snapshots[: min(count, len(self.snapshots) - 1)]

    def check(self) -> Changes:
        counted, known = changes_since_recluster(self.snapshots, self.recorded), self.recorded or Changes()
        if (counted.rows, counted.commits) != (known.rows, known.commits):
            self.recorded = counted
        return counted


def test_a_load_during_a_recluster_counts_after_it() -> None:
    history = History()
    for rows in (1000, 5):
        history.commit("append", rows)
    history.commit("replace", 1000, 1000, **{"recluster.sets": "1", "recluster.planned": "1"})
    history.commit("append", 2)
    counted = changes_since_recluster(history.snapshots, None)
    assert (counted.rows, counted.commits, counted.total, counted.since) == (7, 2, 1007, history.since)


STEPS = st.tuples(
    st.sampled_from(["append", "delete", "overwrite", "rewrite", "recluster", "expire", "nothing"]),
    st.integers(0, 9),
)


def step(history: History, what: str, count: int) -> None:
    if what in ("recluster", "expire"):
        history.recluster() if what == "recluster" else history.expire(count)
    elif what == "rewrite":
        history.commit("replace", history.total, history.total)
    elif what != "nothing":
        deleted = 0 if what == "append" else min(count, history.total)
        history.commit(what, 0 if what == "delete" else count, deleted)


@given(st.lists(STEPS, max_size=30))
def test_nothing_that_a_build_has_seen_is_forgotten(steps: list[tuple[str, int]]) -> None:
    history = History()
    for what, count in steps:
        step(history, what, count)
        if what != "recluster":  # a process other than dbt's may do it, and expire its snapshot before the next build
            counted = history.check()
            assert (counted.rows, counted.commits) == (history.rows, history.commits)
            # A recluster that expired before a build had seen it counts as later than it was, not as earlier.
            assert counted.since >= history.since
            if history.recorded is not None:
                assert counted.since == history.recorded.since


@given(st.lists(st.lists(STEPS, max_size=5), max_size=8))
def test_changes_in_expired_snapshots_are_counted_net(builds: list[list[tuple[str, int]]]) -> None:
    history, appends_only = History(), True
    step(history, "append", 1)
    history.check()
    for steps in builds:
        for what, count in steps:
            step(history, what, count)
            appends_only &= what in ("append", "expire", "rewrite", "nothing")
        counted = history.check()
        assert counted.rows <= history.rows
        if appends_only:
            assert counted.rows == history.rows
