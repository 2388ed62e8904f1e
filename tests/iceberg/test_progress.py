"""How far a merge is, told while it runs, by both of its ways."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tables import append, checksum, make_table

from dbt_recluster.exceptions import ConcurrentChangeError
from dbt_recluster.iceberg import merge, task_progress
from dbt_recluster.maintenance import recluster
from dbt_recluster.progress import Progress

WAYS = {"ranges": "merge by ranges of set 1", "shuffle": "merge by a shuffle of set 1"}


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("recluster-progress")]


def descriptions(spark: Any, table: str) -> set[str]:
    """What Spark's UI calls the jobs of a table's reclusters."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(place).description() for place in range(jobs.size())]
    texts = {str(each.get()) for each in found if each.isDefined()}
    return {text for text in texts if text.startswith(f"recluster {table}: ")}


@pytest.fixture
def table(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(task_progress, "INTERVAL", 0.01)
    name = make_table(spark, schema, loads=4, rows=3000)
    spark.sql(f"alter table {name} write ordered by k")
    return name


@pytest.mark.parametrize("way", WAYS)
def test_shares_rise_while_tasks_end(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """60 blocks on two cores; a shuffle also has its first stage."""
    monkeypatch.setattr(merge, "_MOST_READ_AGAIN", 1e9 if way == "ranges" else -1)
    monkeypatch.setattr(merge, "_SHUFFLE_BYTES", 1e9 if way == "ranges" else -1)
    before = checksum(spark, table)
    told: list[tuple[Progress, str]] = []

    def listen(progress: Progress) -> None:
        told.append((progress, threading.current_thread().name))

    recluster(spark, table, depth=1, block_rows=200, listener=listen)
    assert checksum(spark, table) == before
    assert (told[0][0].merged, told[-1][0].merged, told[-1][0].committed) == (None, None, True)
    merged = [progress.merged for progress, _ in told[1:-1]]
    assert merged == sorted(merged)  # type: ignore[type-var]
    assert merged[-1] == 1
    between = [(progress, name) for progress, name in told[1:-1] if progress.merged != 1]
    assert len(between) >= 3
    assert all(name.startswith("recluster-progress") for _, name in between)
    late = [progress for progress, _ in between if (progress.merged or 0) >= (merged[0] or 0) + 0.06]
    assert late
    assert all(progress.seconds is not None and progress.seconds > 0 for progress in late)
    assert not watchers()
    assert descriptions(spark, table) == {
        f"recluster {table}: round 1: where to cut",
        f"recluster {table}: round 1: {WAYS[way]}",
    }


def test_a_listener_that_fails_meanwhile_does_not_stop_the_merge(spark: Any, table: str) -> None:
    told: list[Progress] = []

    def listen(progress: Progress) -> None:
        told.append(progress)
        if progress.merged is not None and progress.merged < 1:
            raise RuntimeError("nobody is there any more")

    report = recluster(spark, table, depth=1, block_rows=200, listener=listen)
    assert report.depth_after == 1
    assert len([each for each in told if each.merged is not None and each.merged < 1]) == 1
    assert not watchers()


def test_a_round_that_fails_is_told_and_its_thread_has_ended(spark: Any, table: str) -> None:
    """Another writer deletes a row whenever a merge has ended."""
    spark.sql(f"alter table {table} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    told: list[Progress] = []

    def listen(progress: Progress) -> None:
        told.append(progress)
        if progress.merged == 1:
            spark.sql(f"delete from {table} where id = {len(told)}")

    with pytest.raises(ConcurrentChangeError):
        recluster(spark, table, depth=1, block_rows=200, listener=listen)
    assert told[-1].failed
    assert not watchers()


def test_many_sets_are_named_and_counted(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_progress, "INTERVAL", 0.01)
    name = make_table(spark, schema, loads=2, rows=3000, partitioned="bucket(3, id)")
    append(spark, name, 6000, 3000)
    told: list[Progress] = []
    recluster(spark, name, "k", depth=1, block_rows=100, listener=told.append)
    assert any(text.endswith(" of sets 1 to 3") for text in descriptions(spark, name))
    counted = [progress.merged_sets for progress in told[1:-1]]
    assert counted == sorted(counted)
    assert {1, 2} <= set(counted)
    assert counted[-1] == 3
    assert all((progress.merged or 0) * 3 >= progress.merged_sets - 0.2 for progress in told[1:-1])
