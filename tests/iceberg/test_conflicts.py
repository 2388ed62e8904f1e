"""Reclustering while other writers change the table."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tables import (
    Meanwhile,
    add_catalog,
    append,
    checksum,
    delete_by_equality,
    forget_checkpoints,
    make_table,
    orphans,
    raise_java,
)

from dbt_recluster.exceptions import CommitFailedError, ConcurrentChangeError
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import merge
from dbt_recluster.iceberg.rewrite.writing import write_files
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.maintenance import Progress, ReclusterResult, clustering_information, recluster

REWRITE = "call spark_catalog.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"


def recluster_while(spark: Any, name: str, meanwhile: Meanwhile, **options: Any) -> ReclusterResult:
    """Recluster with another writer at work, whose own errors fail the test."""
    result = recluster(spark, name, "k", depth=1, block_rows=1000, listener=meanwhile, **options)
    assert meanwhile.errors == []
    return result


def make_two_partitions(spark: Any, schema: str, delete_mode: str) -> str:
    """Make a table of two partitions, ``v`` 0 and 1, with five overlapping files in each."""
    name = make_table(spark, schema, files=0, partitioned="v", properties={"write.delete.mode": delete_mode})
    spark.sql(
        f"insert into {name} select /*+ repartition(5) */ id, cast(rand(1) * 1000 as int), id % 2 from range(10000)"
    )
    return name


class ChangeAndRemember:
    """Runs a statement as another writer, and remembers what the table holds afterwards."""

    def __init__(self, spark: Any, name: str, statement: str) -> None:
        self._spark, self._name, self._statement = spark, name, statement
        self.checksum: tuple[int, int] | None = None

    def __call__(self) -> None:
        self._spark.sql(self._statement.format(self._name))
        self.checksum = checksum(self._spark, self._name)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        ("copy-on-write", "delete from {} where id % 5 = 0"),
        ("merge-on-read", "delete from {} where id % 5 = 0"),
        ("merge-on-read", "update {} set v = 'x' where id % 5 = 0"),
    ],
)
def test_a_writer_that_was_faster(spark: Any, schema: str, mode: str, statement: str) -> None:
    """Another writer changes the blocks while they are merged: the round is planned again from the new snapshot."""
    name = make_table(spark, schema, properties={"write.delete.mode": mode, "write.update.mode": mode})
    change = ChangeAndRemember(spark, name, statement)
    result = recluster_while(spark, name, Meanwhile("commit", change))
    assert result.conflicts == 1
    assert checksum(spark, name) == change.checksum
    assert result.depth_after <= 2
    assert orphans(spark, name) == set()


@pytest.mark.thorough
@pytest.mark.parametrize("is_clustered", [True, False])
@pytest.mark.parametrize("step", ["merge", "commit"])
def test_a_sort_order_that_another_writer_sets_stays(
    spark: Any, schema: str, step: str, is_clustered: bool
) -> None:
    name = make_table(spark, schema, files=4)
    if is_clustered:
        recluster(spark, name, "k", depth=1, block_rows=1000)
        append(spark, name, 10_000, 4000, files=4)
    before = checksum(spark, name)
    alter = Meanwhile(step, lambda: spark.sql(f"alter table {name} write locally ordered by id"))
    with pytest.raises(CommitFailedError, match=r"changed its sort order to id ASC NULLS FIRST, which stays"):
        recluster_while(spark, name, alter)
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()
    result = recluster(spark, name, depth=1, block_rows=1000)
    assert (result.cluster_key, bool(result.rounds)) == ("id", True)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_writer_that_was_slower(spark: Any, schema: str, mode: str, tmp_path: Path) -> None:
    """It fails by Iceberg's validation, changes nothing, and succeeds when it is run again; an append is no matter."""
    name = make_table(spark, schema, files=2, properties={"write.delete.mode": mode})
    began, may_end = tmp_path / "began", tmp_path / "may_end"

    def waits(_: int) -> bool:
        began.touch()
        while not may_end.exists():
            time.sleep(0.05)
        return True

    spark.udf.register("waits", waits, "boolean")
    statement = f"delete from {name} where id % 5 = 0 and waits(id)"
    before = checksum(spark, name)
    with ThreadPoolExecutor() as pool:
        deletion = pool.submit(spark.sql, statement)
        try:
            while not (began.exists() or deletion.done()):
                time.sleep(0.05)
            assert recluster(spark, name, "k", depth=1, block_rows=1000).conflicts == 0
            append(spark, name, 5000, 1)
        finally:
            may_end.touch()
        with pytest.raises(Exception, match=r"ValidationException|Missing required files|missing data files"):
            deletion.result()
    assert checksum(spark, name)[0] == before[0] + 1
    spark.sql(statement)
    assert checksum(spark, name)[0] == before[0] * 4 // 5


COLUMN_CHANGES = ("drop column v", "add column w int", "rename column v to w")


def before_writing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Have another writer change the table once, after its rows are read and before they are written."""
    left = [change]

    def change_and_write(*arguments: Any) -> list[Any]:
        if left:
            left.pop()()
        return write_files(*arguments)

    monkeypatch.setattr(merge, "write_files", change_and_write)


@pytest.mark.parametrize(
    ("is_read", "statement"),
    [
        pytest.param(is_read, statement, marks=pytest.mark.exhaustive if place else ())
        for place, statement in enumerate(COLUMN_CHANGES)
        for is_read in (True, False)
    ],
)
def test_a_writer_that_changes_the_columns(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, is_read: bool, statement: str
) -> None:
    """New files have the columns that were read, like the files they replace. Spark compares the columns that it reads
    with those that are to be written: before they are read, the round is planned again.
    """
    name = make_table(spark, schema)
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))
    change = ChangeAndRemember(spark, name, f"alter table {{}} {statement}")
    meanwhile = Meanwhile("merge", change, times=not is_read)
    if is_read:
        before_writing(monkeypatch, change)
    result = recluster_while(spark, name, meanwhile)
    assert (len(result.rounds), result.conflicts) == (1, 0 if is_read else 1)
    assert checksum(spark, name) == change.checksum
    assert result.depth_after <= 2
    assert orphans(spark, name) == set()


@pytest.mark.parametrize("step", ["merge", "commit"])
def test_a_key_whose_columns_swap_names(spark: Any, schema: str, step: str) -> None:
    """Rows that were sorted by the former column of the name must not bear the label of the new one."""
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, a int) using iceberg")
    for number in range(4):
        spark.range(500).selectExpr(
            f"cast(id * 4 + {number} as int) k", f"cast(-id * 4 - {number} as int) a"
        ).coalesce(1).writeTo(name).append()
    swap = [f"alter table {name} rename column {names}" for names in ("k to c", "a to k", "c to a")]
    meanwhile = Meanwhile(step, lambda: [spark.sql(statement) for statement in swap])
    result = recluster(spark, name, "k", depth=1, block_rows=500, listener=meanwhile)
    assert (len(result.rounds), result.conflicts) == (1, 1)
    rows = spark.sql(f"select _file, k, a from {name} order by _file, _pos").collect()
    for row, following in itertools.pairwise(rows):
        assert row._file != following._file or row.k <= following.k
    assert all(row.k == -row.a for row in rows)
    assert orphans(spark, name) == set()


def test_columns_that_swap_names_before_they_are_read(spark: Any, schema: str) -> None:
    """Names and types are the same as before, so Spark would write the values of each as those of the other."""
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, a int, b int) using iceberg")
    for number in range(4):
        spark.range(500).selectExpr(
            f"cast(id * 4 + {number} as int) k", "cast(id as int) a", "cast(-id - 1 as int) b"
        ).coalesce(1).writeTo(name).append()

    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))

    def swap() -> None:
        for names in ("a to c", "b to a", "c to b"):
            spark.sql(f"alter table {name} rename column {names}")

    result = recluster(spark, name, "k", depth=1, block_rows=500, listener=Meanwhile("merge", swap))
    assert (len(result.rounds), result.conflicts) == (1, 1)
    assert spark.table(name).where("a >= 0 or b < 0").count() == 0
    assert orphans(spark, name) == set()


@pytest.mark.parametrize("statement", COLUMN_CHANGES)
def test_a_writer_elsewhere_that_changes_the_columns(
    spark: Any, hadoop_catalog: str, tmp_path: Path, statement: str
) -> None:
    """Our catalog keeps the table with its columns of before: whether or not that is a conflict, no row is wrong."""
    elsewhere = f"{hadoop_catalog}_elsewhere"
    add_catalog(spark, elsewhere, type="hadoop", warehouse=tmp_path.as_uri())
    name = make_table(spark, f"{hadoop_catalog}.db", files=4, rows=200)
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))
    rows = f"select id, k from {elsewhere}.db.t order by id"
    change = ChangeAndRemember(spark, f"{elsewhere}.db.t", f"alter table {{}} {statement}")
    before = spark.sql(rows).collect()
    result = recluster(spark, name, depth=1, block_rows=200, listener=Meanwhile("merge", change))
    assert len(result.rounds) == 1
    spark.sql(f"refresh table {elsewhere}.db.t")
    assert checksum(spark, f"{elsewhere}.db.t") == change.checksum
    assert spark.sql(rows).collect() == before
    assert orphans(spark, f"{elsewhere}.db.t") == set()


@pytest.mark.exhaustive
def test_a_delete_file_that_another_writer_replaced_and_expired(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks stay, but the merge cannot read the rows that are deleted in them any more."""
    name = make_table(
        spark, schema, properties={"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    )
    spark.sql(f"delete from {name} where id % 5 = 0")
    change = ChangeAndRemember(spark, name, "delete from {} where id % 7 = 0")

    def change_and_expire() -> None:
        change()
        expire = f"table => '{name}', older_than => timestamp '2999-01-01', retain_last => 1"
        spark.sql(f"call spark_catalog.system.expire_snapshots({expire})")

    before_writing(monkeypatch, change_and_expire)
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert (len(result.rounds), result.conflicts) == (1, 1)
    assert checksum(spark, name) == change.checksum


def test_equality_deletes_apply_to_older_rows_only(spark: Any, schema: str) -> None:
    """Rows that another engine deleted stay deleted, and rows that were loaded again afterwards stay."""
    name = make_table(spark, schema, files=3)
    delete_by_equality(spark, name, "v", [f"row {number}" for number in range(0, 3000, 5)])
    append(spark, name, 0, 100)
    append(spark, name, 3000, 1000)
    before = checksum(spark, name)
    assert before[0] == 2400 + 100 + 1000
    recluster(spark, name, "k", depth=1, block_rows=500, final=True)
    assert checksum(spark, name) == before
    assert clustering_information(spark, name)["max_depth"] <= 2


def test_an_equality_delete_during_the_merge(spark: Any, schema: str) -> None:
    """It applies to older files only, so a commit of the merged blocks over it would bring its rows back."""
    name = make_table(spark, schema)
    deleted = [f"row {number}" for number in range(0, 6000, 5)]
    meanwhile = Meanwhile("commit", lambda: delete_by_equality(spark, name, "v", deleted))
    result = recluster_while(spark, name, meanwhile)
    assert result.conflicts == 1
    assert spark.sql(f"select count(*), count_if(id % 5 = 0) from {name}").first()[:] == (4800, 0)
    assert result.depth_after <= 2
    assert orphans(spark, name) == set()


@pytest.mark.alike
@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        ("copy-on-write", "delete from {} where v = '1' and id % 5 = 0"),
        ("merge-on-read", "delete from {} where v = '1' and id % 5 = 0"),
        (
            "copy-on-write",
            "call spark_catalog.system.rewrite_data_files(table => '{}', where => 'v = \"1\"')",
        ),
    ],
)
def test_only_the_sets_that_another_writer_changed_are_left_out(
    spark: Any, schema: str, mode: str, statement: str
) -> None:
    name = make_two_partitions(spark, schema, mode)
    change = ChangeAndRemember(spark, name, statement)
    result = recluster_while(spark, name, Meanwhile("commit", change))
    assert [(done.sets, done.blocks_in, done.conflicts) for done in result.rounds] == [(1, 5, 1)]
    assert checksum(spark, name) == change.checksum
    assert orphans(spark, name) == set()
    assert recluster(spark, name, "k", depth=1.5, block_rows=1000, final=True).conflicts == 0
    assert checksum(spark, name) == change.checksum
    assert clustering_information(spark, name)["max_depth"] <= 2


def test_blocks_that_another_writer_removed_and_expired(spark: Any, schema: str) -> None:
    """The files of the blocks are gone when the merge reads them: the round is planned again."""
    name = make_table(spark, schema)
    before = checksum(spark, name)

    def rewrite_and_expire() -> None:
        spark.sql(REWRITE.format(name))
        spark.sql(
            f"call spark_catalog.system.expire_snapshots(table => '{name}', "
            "older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)"
        )

    result = recluster_while(spark, name, Meanwhile("merge", rewrite_and_expire), final=True)
    assert result.conflicts == 1
    assert checksum(spark, name) == before


@pytest.mark.thorough
def test_writers_that_are_always_faster(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=200, properties={"write.update.mode": "merge-on-read"})
    update = f"update {name} set v = concat(v, '.') where id % 100 = 0"
    meanwhile = Meanwhile("commit", lambda: spark.sql(update), times=100)
    with pytest.raises(ConcurrentChangeError, match="Another writer changed blocks"):
        recluster_while(spark, name, meanwhile)
    assert orphans(spark, name) == set()


def test_final_ends_beside_a_writer_who_is_as_fast(spark: Any, schema: str) -> None:
    """Each round is followed by a load, and one meets a conflict: what has arrived is left to the next run."""
    name = make_table(spark, schema, files=8, rows=500, properties={"write.delete.mode": "copy-on-write"})
    loads, conflicts = iter(range(10_000, 18_000, 1000)), iter([f"delete from {name} where k < 400"])
    deleted = []

    def write(progress: Progress) -> None:
        if progress.committed and (load := next(loads, None)):
            append(spark, name, load, 1000, files=4)
        elif progress.merged == 1 and progress.round == 2 and (delete := next(conflicts, None)):
            before = checksum(spark, name)[0]
            spark.sql(delete)
            deleted.append(before - checksum(spark, name)[0])

    options: dict[str, Any] = {"depth": 1, "block_rows": 500, "max_merge_blocks": 4, "final": True}
    result = recluster(spark, name, "k", listener=write, **options)
    assert (result.conflicts, 2 <= len(result.rounds) <= 4) == (1, True), result
    late = 4 * len(result.rounds)
    assert re.search(r"; blocks that arrived meanwhile, \d+, are left to the next run", result.reason), result
    assert result.depth_after > 4
    assert checksum(spark, name)[0] == 4000 + 1000 * len(result.rounds) - sum(deleted)
    forget_checkpoints()
    following = recluster(spark, name, trigger="run", **options)
    assert following.blocks_in >= late
    assert following.depth_after <= 2


def test_an_append_during_the_merge_is_no_conflict(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    result = recluster_while(spark, name, Meanwhile("commit", lambda: append(spark, name, 50_000, 100)))
    assert result.conflicts == 0
    assert checksum(spark, name)[0] == 6100


def test_threads_of_one_process_lose_no_commit(spark: Any, schema: str) -> None:
    """The embedded metastore has no locks, so commits to one table are serialised here."""
    from dbt_recluster.adapter.session import SessionCursor

    name = make_table(spark, schema, files=1)
    failures: list[BaseException] = []

    def write(worker: int) -> None:
        try:
            for load in range(4):
                start = 10_000 * (worker + 1) + 100 * load
                SessionCursor(lambda: spark, f"writer {worker}", serialise_commits=True).execute(
                    f"insert into {name} select id, cast(id % 100 as int), 'x' from range({start}, {start + 100})"
                )
        except BaseException as e:
            failures.append(e)

    def keep_clustered() -> None:
        try:
            for _ in range(3):
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
    assert spark.sql(f"select count(*), count(distinct id) from {name}").first()[:] == (2600, 2600)


@pytest.mark.alike
@pytest.mark.parametrize("replaced", [False, True])
def test_a_commit_that_the_catalog_calls_a_conflict_with_itself(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """A catalog that received the commit twice says so. To delete the new files would be to lose the rows.

    Another writer may have replaced them by then, and yet a snapshot refers to them.
    """
    name = make_table(spark, schema)
    before = checksum(spark, name)
    send, sent = IcebergTable.commit, []

    def commit_twice(table: IcebergTable, transaction: Any) -> None:
        send(table, transaction)
        if not sent:
            sent.append(IcebergTable.load(spark, name).snapshot_id)
            if replaced:
                spark.sql(REWRITE.format(name))
            raise_java(spark, "CommitFailedException", "the table has changed")

    monkeypatch.setattr(IcebergTable, "commit", commit_twice)
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert list(result.rounds[0].snapshot_ids) == sent
    assert checksum(spark, name) == before
    assert (
        spark.sql(f"select count(*), sum(length(v)) from {name} version as of {sent[0]}").first()[0] == 6000
    )
    assert orphans(spark, name) == set()


def test_a_delete_between_the_look_at_the_table_and_the_next_attempt(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog may share table objects between threads, so that another thread refreshes this one at any moment."""
    name = make_two_partitions(spark, schema, "merge-on-read")
    wait, refresh, tables = commit.back_off, IcebergTable.refresh, []

    def remember(table: IcebergTable) -> None:
        tables.append(table)
        refresh(table)

    def delete_meanwhile(attempt: int) -> None:
        if attempt == 1:
            shared = tables[-1]
            spark.sql(f"delete from {name} where v = '0' and id % 5 = 0")
            refresh(shared)
        wait(attempt)

    monkeypatch.setattr(IcebergTable, "refresh", remember)
    monkeypatch.setattr(commit, "back_off", delete_meanwhile)
    delete_first = f"delete from {name} where v = '1' and id % 5 = 0"
    recluster_while(spark, name, Meanwhile("commit", lambda: spark.sql(delete_first)))
    assert spark.sql(f"select count(*) from {name} where id % 5 = 0").first()[0] == 0
    assert spark.sql(f"select count(*) from {name}").first()[0] == 8000
    assert orphans(spark, name) == set()
