"""Reclustering beside writers that change the table in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from tables import append, checksum, delete_by_equality, make_table, orphans

from dbt_recluster import maintenance
from dbt_recluster.exceptions import ConcurrentChangeError
from dbt_recluster.iceberg import commit
from dbt_recluster.maintenance import clustering_information, recluster


class Meanwhile(Protocol):
    def __call__(self, step: str, change: Callable[[], Any], times: int = 1) -> None: ...


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Have another writer change something right before a step of the recluster, the first few times."""

    def arrange(step: str, change: Callable[[], Any], times: int = 1) -> None:
        take_step, calls = getattr(maintenance, step), []

        def late(*args: Any) -> Any:
            calls.append(step)
            if len(calls) <= times:
                change()
            return take_step(*args)

        monkeypatch.setattr(maintenance, step, late)

    return arrange


def make_two_partitions(spark: Any, schema: str, delete_mode: str) -> str:
    """A table of two partitions, ``v`` 0 and 1, with five overlapping loads in each."""
    name = make_table(spark, schema, loads=0, partitioned="v", properties={"write.delete.mode": delete_mode})
    for load in range(5):
        spark.sql(
            f"insert into {name} select id, cast(rand({load}) * 1000 as int), id % 2 from range(0, 2000, 1, 1)"
        )
    return name


def change_and_look(spark: Any, name: str, statement: str, seen: list[tuple[int, int]]) -> None:
    """Change a table as another writer would, and remember what it holds then."""
    spark.sql(statement.format(name))
    seen.append(checksum(spark, name))


@pytest.mark.parametrize(
    "statement", ["delete from {} where id % 5 = 0", "update {} set v = 'x' where id % 5 = 0"]
)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_writer_that_was_faster(
    spark: Any, schema: str, meanwhile: Meanwhile, statement: str, mode: str
) -> None:
    """Another writer changes the chosen blocks while they are merged: plan again, from what is there now."""
    name = make_table(spark, schema, properties={"write.delete.mode": mode, "write.update.mode": mode})
    seen: list[tuple[int, int]] = []
    meanwhile("commit_merges", lambda: change_and_look(spark, name, statement, seen))
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert report.conflicts == 1
    assert [checksum(spark, name)] == seen
    assert report.depth_after <= 2
    assert orphans(spark, name) == set()


def test_equality_deletes_of_another_engine(spark: Any, schema: str) -> None:
    """They hold for what was loaded before them: what came again afterwards stays."""
    name = make_table(spark, schema, loads=3)
    delete_by_equality(spark, name, "v", [f"row {number}" for number in range(0, 3000, 5)])
    append(spark, name, 0, 100)
    append(spark, name, 3000, 1000)
    before = checksum(spark, name)
    assert before[0] == 2400 + 100 + 1000
    recluster(spark, name, "k", depth=1, block_rows=500, final=True)
    assert checksum(spark, name) == before
    assert clustering_information(spark, name)["max_depth"] <= 2


def test_an_equality_delete_in_between(spark: Any, schema: str, meanwhile: Meanwhile) -> None:
    """It holds for older files only: committed over it, the merged blocks would bring its rows back."""
    name = make_table(spark, schema)
    deleted = [f"row {number}" for number in range(0, 6000, 5)]
    meanwhile("commit_merges", lambda: delete_by_equality(spark, name, "v", deleted))
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert report.conflicts == 1
    assert spark.sql(f"select count(*), count_if(id % 5 = 0) from {name}").first()[:] == (4800, 0)
    assert report.depth_after <= 2
    assert orphans(spark, name) == set()


@pytest.mark.parametrize(
    "statement",
    [
        "delete from {} where v = '1' and id % 5 = 0",
        "call spark_catalog.system.rewrite_data_files(table => '{}', where => 'v = \"1\"')",
    ],
)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_only_what_another_writer_touched_is_left_out(
    spark: Any, schema: str, meanwhile: Meanwhile, statement: str, mode: str
) -> None:
    name = make_two_partitions(spark, schema, mode)
    seen: list[tuple[int, int]] = []
    meanwhile("commit_merges", lambda: change_and_look(spark, name, statement, seen))
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert [(each.sets, each.blocks_in, each.conflicts) for each in report.rounds] == [(1, 5, 1)]
    assert [checksum(spark, name)] == seen
    assert orphans(spark, name) == set()
    assert recluster(spark, name, "k", depth=1.5, block_rows=1000, final=True).conflicts == 0
    assert [checksum(spark, name)] == seen
    assert clustering_information(spark, name)["max_depth"] <= 2


def test_blocks_that_another_writer_removed_and_expired(
    spark: Any, schema: str, meanwhile: Meanwhile
) -> None:
    """The files of the chosen blocks are gone when the merge wants to read them: plan again."""
    name = make_table(spark, schema)
    before = checksum(spark, name)

    def rewrite_and_expire() -> None:
        options = "options => map('rewrite-all', 'true')"
        spark.sql(f"call spark_catalog.system.rewrite_data_files(table => '{name}', {options})")
        spark.sql(
            f"call spark_catalog.system.expire_snapshots(table => '{name}', "
            "older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)"
        )

    meanwhile("_merge", rewrite_and_expire)
    report = recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert report.conflicts == 1
    assert checksum(spark, name) == before


def test_writers_that_are_always_faster(spark: Any, schema: str, meanwhile: Meanwhile) -> None:
    name = make_table(spark, schema, properties={"write.update.mode": "merge-on-read"})
    update = f"update {name} set v = concat(v, '.') where id % 100 = 0"
    meanwhile("commit_merges", lambda: spark.sql(update), times=100)
    with pytest.raises(ConcurrentChangeError, match="Another writer changed blocks"):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert orphans(spark, name) == set()


def test_an_append_in_between_is_no_conflict(spark: Any, schema: str, meanwhile: Meanwhile) -> None:
    name = make_table(spark, schema)
    meanwhile("commit_merges", lambda: append(spark, name, 50_000, 100))
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert report.conflicts == 0
    assert checksum(spark, name)[0] == 6100


def test_threads_of_one_process_lose_no_commit(spark: Any, schema: str) -> None:
    """The embedded metastore has no locks: commits to one table are serialised by us."""
    from dbt_recluster.adapter.session import SessionCursor

    name = make_table(spark, schema, loads=1)
    failures: list[BaseException] = []

    def write(worker: int) -> None:
        try:
            for load in range(6):
                start = 10_000 * (worker + 1) + 100 * load
                SessionCursor(lambda: spark, f"writer {worker}", serialise_commits=True).execute(
                    f"insert into {name} select id, cast(id % 100 as int), 'x' from range({start}, {start + 100})"
                )
        except BaseException as e:
            failures.append(e)

    def keep_clustered() -> None:
        try:
            for _ in range(4):
                recluster(spark, name, "k", depth=1, block_rows=500)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    threads.append(threading.Thread(target=keep_clustered))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert spark.sql(f"select count(*), count(distinct id) from {name}").first()[:] == (3400, 3400)


def test_a_commit_that_took_place_although_it_was_called_a_conflict(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that was asked twice says so; to delete the new files would be to lose the rows."""
    name = make_table(spark, schema)
    before = checksum(spark, name)
    send = commit._commit

    def sent_twice(*args: Any) -> Any:
        raise commit._ConflictError(RuntimeError("the table has changed"), send(*args))

    monkeypatch.setattr(commit, "_commit", sent_twice)
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()
    assert [len(each.snapshot_ids) for each in report.rounds] == [1]
    assert report.depth_after <= 2


def test_a_commit_that_took_place_and_was_replaced_before_it_was_looked_for(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its files is in the table any more, and yet they are a snapshot's."""
    name = make_table(spark, schema)
    before = checksum(spark, name)
    send, sent = commit._commit, []

    def sent_and_replaced(*args: Any) -> Any:
        sent.extend(send(*args))
        options = "options => map('rewrite-all', 'true')"
        spark.sql(f"call spark_catalog.system.rewrite_data_files(table => '{name}', {options})")
        raise commit._ConflictError(RuntimeError("the table has changed"), sent)

    monkeypatch.setattr(commit, "_commit", sent_and_replaced)
    report = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert list(report.rounds[0].snapshot_ids) == sent
    assert (
        spark.sql(f"select count(*), sum(length(v)) from {name} version as of {sent[0]}").first()[0]
        == before[0]
    )
    assert checksum(spark, name) == before


def test_a_delete_between_looking_and_the_next_attempt(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a catalog shares table objects, another thread may move this one on at any moment."""
    name = make_two_partitions(spark, schema, "merge-on-read")
    send, wait, tables = commit._commit, commit.back_off, []

    def conflict_first(table: Any, *args: Any) -> Any:
        tables.append(table)
        if len(tables) == 1:
            spark.sql(f"delete from {name} where v = '1' and id % 5 = 0")
        return send(table, *args)

    def delete_meanwhile(attempt: int) -> None:
        if attempt == 1:
            spark.sql(f"delete from {name} where v = '0' and id % 5 = 0")
            tables[0].refresh()
        wait(attempt)

    monkeypatch.setattr(commit, "_commit", conflict_first)
    monkeypatch.setattr(commit, "back_off", delete_meanwhile)
    recluster(spark, name, "k", depth=1, block_rows=1000)
    assert spark.sql(f"select count(*) from {name} where id % 5 = 0").first()[0] == 0
    assert spark.sql(f"select count(*) from {name}").first()[0] == 8000
    assert orphans(spark, name) == set()
