"""Reads on record: what many become, how they fade, and the text that keeps them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.table_reads import EVENT_LOG, PROJECT, ReadRange, RecordedReads, compact

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
def test_a_sample_is_small_and_has_the_same_weight(reads: list[ReadRange], most: int) -> None:
    exact = compact(reads, 1000)
    sample = compact(reads, most)
    assert len(sample) <= most
    assert total(exact) == pytest.approx(total(reads))
    assert total(sample) == pytest.approx(total(reads)) or not reads
    exact_columns = [read.columns for read in exact]
    assert all(read.columns in exact_columns for read in sample)


@given(READS)
def test_the_text_is_read_again(reads: list[ReadRange]) -> None:
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
        assert recorded.daily(recorded.reads[0]) == pytest.approx(3, rel=0.05)
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

    recorded = RecordedReads(compact(reads(), 300))
    assert len(recorded.reads) <= 300
    assert len(recorded.text()) <= 3_500
    assert total(recorded.reads) == pytest.approx(100_000)
    assert next(read for read in recorded.reads if read.columns == {"k": [0, 0]}).weight == 50_000
    assert most_alive < 6_000
    ends = sorted(read.columns["k"][0] for read in recorded.reads)
    assert max(np.diff(ends)) < 5_000
