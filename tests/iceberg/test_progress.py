"""The progress of a merge while it runs, by both methods."""

import threading
from typing import Any

import pytest
from tables import append, make_table, merge_method, recluster_keeping_rows

from dbt_recluster.api import Progress, recluster
from dbt_recluster.exceptions import ConcurrentChangeError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import native
from dbt_recluster.iceberg.session import jobs
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key

pytestmark = pytest.mark.thorough


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("recluster-progress")]


def descriptions(spark: Any, table: str) -> set[str]:
    """Return the descriptions of the jobs of a table's reclusters in Spark's UI."""
    listed = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    described = [listed.apply(place).description() for place in range(listed.size())]
    texts = {str(text.get()) for text in described if text.isDefined()}
    return {text for text in texts if text.startswith(f"recluster {table}: ")}


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with many tasks, so that there is something to see between two looks."""
    monkeypatch.setattr(jobs, "PROGRESS_INTERVAL", 0.01)
    monkeypatch.setattr(native, "_MOST_BYTES", 4096)
    monkeypatch.setattr(native, "_UNSORTED_SHARE", 1)


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    return make_table(spark, schema, files=4, rows=3000, properties={"write.delete.mode": "merge-on-read"})


def between(reports: list[Progress]) -> list[Progress]:
    """The reports that come while blocks are being written."""
    return [progress for progress in reports if progress.merged is not None and progress.merged < 1]


# The rows of a value that fills several blocks have to be shuffled.
@pytest.mark.alike
@pytest.mark.parametrize(("method", "step"), [("spark", "merge by a shuffle"), ("native", "merge natively")])
def test_shares_rise_while_tasks_end(spark: Any, schema: str, method: str, step: str) -> None:
    """60 blocks; a shuffle also has its first stage."""
    table = make_table(spark, schema, files=0)
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, table))
    for load in range(4):  # sorted inside
        append(spark, table, load * 3000, 3000)
    reports: list[Progress] = []
    with merge_method(method):
        recluster_keeping_rows(spark, table, "k", depth=1, block_rows=200, listener=reports.append)
    first, last = reports[0], reports[-1]
    assert (first.merged, first.committed, last.merged, last.committed) == (None, False, None, True)
    assert (last.round, last.blocks, last.sets, last.bytes) == (1, 4, 1, first.bytes)
    assert (last.seconds or 0) > 0
    shares = [progress.merged or 0 for progress in reports[1:-1]]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(between(reports)) >= 3
    late = [progress for progress in between(reports) if (progress.merged or 0) >= shares[0] + 0.06]
    assert late
    assert all(progress.seconds is not None and progress.seconds > 0 for progress in late)
    assert not watchers()
    assert descriptions(spark, table) == {
        f"recluster {table}: round 1: sample",
        f"recluster {table}: round 1: {step} of set 1",
    }


def test_a_callback_that_fails_during_the_merge_does_not_stop_it(spark: Any, table: str) -> None:
    reports: list[Progress] = []

    def listen(progress: Progress) -> None:
        reports.append(progress)
        if between([progress]):
            raise RuntimeError("nobody is there any more")

    assert recluster(spark, table, "k", depth=1, block_rows=200, listener=listen).depth_after == 1
    assert len(between(reports)) == 1
    assert not watchers()


def test_the_jobs_of_a_callback_are_not_those_of_the_merge(spark: Any, table: str) -> None:
    """They would count as its progress, and what its tasks left would be looked for under theirs."""
    tags: list[set[str]] = []
    recluster(spark, table, "k", depth=1, listener=lambda _: tags.append(spark.sparkContext.getJobTags()))
    assert len(tags) > 2
    assert not any(tags)


def test_a_failed_round_is_reported_and_its_thread_has_ended(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer deletes a row after the merge, and there is no second attempt."""
    monkeypatch.setattr("dbt_recluster.clustering.recluster.MAX_ATTEMPTS", 1)
    reports: list[Progress] = []

    def listen(progress: Progress) -> None:
        reports.append(progress)
        if progress.merged == 1:
            spark.sql(f"delete from {table} where id = {len(reports)}")

    with pytest.raises(ConcurrentChangeError):
        recluster(spark, table, "k", depth=1, block_rows=200, listener=listen)
    assert reports[-1].failed
    assert not watchers()


def test_sets_are_named_and_counted(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=3000, partitioned="bucket(3, id)")
    reports: list[Progress] = []
    recluster(spark, name, "k", depth=1, block_rows=100, listener=reports.append)
    assert any(text.endswith(" of sets 1 to 3") for text in descriptions(spark, name))
    counted = [progress.merged_sets for progress in reports[1:-1]]
    assert counted == sorted(counted)
    assert {1, 2} & set(counted)  # two of them may end between two looks
    assert counted[-1] == 3
