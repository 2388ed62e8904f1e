"""Reclustering while other writers change the table."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from merges import rows_by_file
from tables import (
    Meanwhile,
    add_catalog,
    append,
    checksum,
    compact,
    create_table,
    delete_by_equality,
    expire,
    forget_checkpoints,
    make_table,
    orphans,
    raise_java,
    recluster_keeping_rows,
)

from dbt_recluster.api import (
    Progress,
    ReclusterResult,
    clustering_history,
    clustering_information,
    recluster,
)
from dbt_recluster.exceptions import ClusterKeyError, CommitFailedError, ConcurrentChangeError
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.sort_order import TableChange, table_cluster_key
from dbt_recluster.key.cluster_key import parse_cluster_key


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


DELETE_ONE = "delete from {} where v = '1' and id % 5 = 0"
REWRITE_ONE = "call spark_catalog.system.rewrite_data_files(table => '{}', where => 'v = \"1\"')"


class ChangeAndRemember:
    """Changes the table as another writer, and remembers what it holds afterwards."""

    def __init__(self, spark: Any, name: str, *changes: str | Callable[[Any, str], Any]) -> None:
        self._spark, self._name, self._changes = spark, name, changes
        self.checksum: tuple[int, int] | None = None

    def __call__(self) -> None:
        for change in self._changes:
            if callable(change):
                change(self._spark, self._name)
            else:
                self._spark.sql(change.format(self._name))
        self.checksum = checksum(self._spark, self._name)


def delete_equal(spark: Any, name: str) -> None:
    """Delete rows by a file that applies to older files only: a commit over it would bring its rows back."""
    delete_by_equality(spark, name, "v", [f"row {number}" for number in range(0, 6000, 5)])


COLUMN_CHANGES = [
    f"alter table {{}} {change}" for change in ("drop column v", "add column w int", "rename column v to w")
]


def race(step: str, mode: str, *changes: Any, conflicts: int | None = 1, nightly: bool = False) -> Any:
    return pytest.param(step, mode, changes, conflicts, marks=pytest.mark.exhaustive if nightly else ())


@pytest.mark.parametrize(
    ("step", "mode", "changes", "conflicts"),
    [
        race("commit", "copy-on-write", "delete from {} where id % 5 = 0"),
        race("commit", "merge-on-read", "delete from {} where id % 5 = 0", nightly=True),
        race("commit", "merge-on-read", "update {} set v = 'x' where id % 5 = 0", nightly=True),
        race("commit", "merge-on-read", "insert into {} select 7, 7, 'x'", conflicts=0),
        race("commit", "merge-on-read", delete_equal),
        # The files of blocks are gone when the merge reads them, or those of rows deleted in them.
        race("merge", "merge-on-read", compact, expire),
        race("write", "merge-on-read", "delete from {} where id % 5 = 0", expire, nightly=True),
        # The columns may be read before or after; either way rows have the columns that they are committed with.
        race("merge", "merge-on-read", COLUMN_CHANGES[0], conflicts=None),
        race("merge", "merge-on-read", COLUMN_CHANGES[1], conflicts=None, nightly=True),
        race("merge", "merge-on-read", COLUMN_CHANGES[2], conflicts=None, nightly=True),
        # New files have the columns that were read, like the files they replace.
        race("write", "merge-on-read", COLUMN_CHANGES[0], conflicts=0),
        race("write", "merge-on-read", COLUMN_CHANGES[1], conflicts=0, nightly=True),
        race("write", "merge-on-read", COLUMN_CHANGES[2], conflicts=0, nightly=True),
    ],
)
def test_a_recluster_keeps_the_changes_of_a_faster_writer(
    spark: Any,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    mode: str,
    changes: tuple[Any, ...],
    conflicts: int | None,
) -> None:
    """After a conflict the round is planned again from the new snapshot; the table holds what the writer left."""
    modes = {f"write.{change}.mode": mode for change in ("delete", "update")}
    name = make_table(spark, schema, properties={**modes, "write.delete.granularity": "file"})
    if mode == "merge-on-read":
        spark.sql(f"delete from {name} where id % 7 = 0")
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))
    change = ChangeAndRemember(spark, name, *changes)
    if step == "write":  # after the sample is read

        def change_and_write(*arguments: Any) -> list[list[Any]]:
            if change.checksum is None:
                change()
            return divide(*arguments)

        divide = NativeWriter._tasks
        monkeypatch.setattr(NativeWriter, "_tasks", change_and_write)
    result = recluster_while(spark, name, Meanwhile(step, change, times=step != "write"))
    assert conflicts is None or result.conflicts == conflicts
    assert checksum(spark, name) == change.checksum
    assert result.depth_after <= 2
    assert orphans(spark, name) == set()


@pytest.mark.parametrize("statement", COLUMN_CHANGES)
def test_columns_changed_elsewhere_are_safe(spark: Any, hadoop_catalog: str, tmp_path: Path, statement: str) -> None:
    """Our catalog keeps the table with its columns of before: whether or not that is a conflict, no row is wrong."""
    add_catalog(spark, f"{hadoop_catalog}_elsewhere", type="hadoop", warehouse=tmp_path.as_uri())
    name, elsewhere = f"{hadoop_catalog}.db.t", f"{hadoop_catalog}_elsewhere.db.t"
    make_table(spark, f"{hadoop_catalog}.db", files=4, rows=200)
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))
    change = ChangeAndRemember(spark, elsewhere, statement)
    result = recluster(spark, name, depth=1, block_rows=200, listener=Meanwhile("merge", change))
    assert len(result.rounds) == 1
    spark.sql(f"refresh table {elsewhere}")
    assert checksum(spark, elsewhere) == change.checksum
    assert orphans(spark, elsewhere) == set()


@pytest.mark.thorough
def test_a_recluster_gives_up_after_repeated_conflicts(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=200, properties={"write.update.mode": "merge-on-read"})
    update = f"update {name} set v = concat(v, '.') where id % 100 = 0"
    meanwhile = Meanwhile("commit", lambda: spark.sql(update), times=100)
    with pytest.raises(ConcurrentChangeError, match="Another writer changed blocks"):
        recluster_while(spark, name, meanwhile)
    assert orphans(spark, name) == set()


@pytest.mark.thorough
@pytest.mark.parametrize("is_clustered", [True, False])
@pytest.mark.parametrize("step", ["merge", "commit"])
def test_a_sort_order_that_another_writer_sets_stays(spark: Any, schema: str, step: str, is_clustered: bool) -> None:
    name = make_table(spark, schema, files=4)
    if is_clustered:
        recluster(spark, name, "k", depth=1, block_rows=1000)
        append(spark, name, 10_000, 4000, files=4)
    before = checksum(spark, name)
    alter = Meanwhile(step, lambda: spark.sql(f"alter table {name} write locally ordered by id"))
    with pytest.raises(CommitFailedError, match=r"changed its key to id ASC NULLS FIRST, which stays"):
        recluster_while(spark, name, alter)
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()
    result = recluster(spark, name, depth=1, block_rows=1000)
    assert (result.cluster_key, bool(result.rounds)) == ("id", True)


@pytest.mark.parametrize(("first", "other"), [("hilbert(k, id)", "hilbert(id, u)"), ("k", "hilbert(id, u)")])
def test_a_curve_that_another_writer_sets_stays(spark: Any, schema: str, first: str, other: str) -> None:
    """No sort order tells the two apart: the other recluster leaves the table unsorted."""
    name = create_table(spark, f"{schema}.t", "id bigint, k int, u int")
    for number in range(3):
        values = ("id", f"cast(hash(id, {number}) % 500 as int) k", "cast(hash(id) % 500 as int) u")
        spark.range(500).selectExpr(*values).coalesce(1).writeTo(name).append()
    before = checksum(spark, name)
    options: dict[str, Any] = {"depth": 1, "block_rows": 500}
    meanwhile = Meanwhile("commit", lambda: recluster(spark, name, other, **options))
    with pytest.raises(CommitFailedError, match=re.escape(f"changed its key to {other}, which stays")):
        recluster(spark, name, first, listener=meanwhile, **options)
    assert meanwhile.errors == []
    assert str(table_cluster_key(IcebergTable.load(spark, name))) == other
    assert (checksum(spark, name), orphans(spark, name)) == (before, set())


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_writer_that_loses_to_a_recluster_fails_and_can_rerun(
    spark: Any, schema: str, mode: str, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize(("step", "columns"), [("merge", ("k", "a")), ("commit", ("k", "a")), ("merge", ("a", "b"))])
def test_swapped_column_names_during_a_merge_swap_no_values(
    spark: Any, schema: str, step: str, columns: tuple[str, str]
) -> None:
    """Names and types are the same as before, so a writer by name would write the values of each as the other's.

    Nor may rows that were sorted by the former column of the key bear the label of the new one.
    """
    name = create_table(spark, f"{schema}.t", "k int, a int, b int")
    for number in range(4):
        values = (
            f"cast(id * 4 + {number} as int) k",
            f"cast(-id * 4 - {number} as int) a",
            "cast(id as int) b",
        )
        spark.range(500).selectExpr(*values).coalesce(1).writeTo(name).append()
    TableChange(parse_cluster_key("k")).commit(IcebergTable.load(spark, name))
    first, second = columns
    renames = ((first, "c"), (second, first), ("c", second))
    change = ChangeAndRemember(spark, name, *(f"alter table {{}} rename column {old} to {new}" for old, new in renames))
    options: dict[str, Any] = {"depth": 1, "block_rows": 500}
    result = recluster(spark, name, "k", listener=Meanwhile(step, change), **options)
    # The native writer finds columns by their ids: only a change of the key is a conflict.
    assert (len(result.rounds), result.conflicts) == (1, int("k" in columns))
    assert checksum(spark, name) == change.checksum
    assert all(keys == sorted(keys) for keys in rows_by_file(spark, name, "k").values())
    assert orphans(spark, name) == set()


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


@pytest.mark.alike
@pytest.mark.parametrize(
    ("mode", "statement"),
    [("copy-on-write", DELETE_ONE), ("merge-on-read", DELETE_ONE), ("copy-on-write", REWRITE_ONE)],
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
    (entry,) = [entry for entry in clustering_history(spark, name).entries if entry.is_recluster]
    assert (entry.depth_before, entry.depth_after) == (5.0, 5.0)
    assert recluster_keeping_rows(spark, name, "k", depth=1.5, block_rows=1000, final=True).conflicts == 0
    assert clustering_information(spark, name)["max_depth"] <= 2


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


def test_threads_of_one_process_lose_no_commit(spark: Any, schema: str) -> None:
    """The embedded metastore has no locks, so commits to one table are serialised here."""
    from dbt_recluster.adapter.connections.handles import SessionCursor

    name = make_table(spark, schema, files=1)

    def write(worker: int) -> None:
        for start in range(10_000 * worker, 10_000 * worker + 400, 100):
            SessionCursor(lambda: spark, f"writer {worker}", serialise_commits=True).execute(
                f"insert into {name} select id, cast(id % 100 as int), 'x' from range({start}, {start + 100})"
            )

    def keep_clustered() -> None:
        for _ in range(3):
            recluster(spark, name, "k", depth=1, block_rows=500)

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(keep_clustered), *(pool.submit(write, worker) for worker in range(1, 5))]:
            done.result()
    assert spark.sql(f"select count(*), count(distinct id) from {name}").first()[:] == (2600, 2600)


@pytest.mark.alike
@pytest.mark.parametrize("replaced", [False, True])
def test_a_conflict_reported_for_our_own_commit_deletes_no_file(
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
                compact(spark, name)
            raise_java(spark, "CommitFailedException", "the table has changed")

    monkeypatch.setattr(IcebergTable, "commit", commit_twice)
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert list(result.rounds[0].snapshot_ids) == sent
    assert checksum(spark, name) == before
    assert spark.sql(f"select count(*) from {name} version as of {sent[0]}").first()[0] == 6000
    assert orphans(spark, name) == set()


@pytest.mark.parametrize("step", ["merge", "committed"])
def test_a_key_whose_column_is_renamed_meanwhile(spark: Any, schema: str, step: str) -> None:
    name = make_table(spark, schema)
    before = checksum(spark, name)

    def rename(progress: Progress) -> None:
        if progress.committed if step == "committed" else progress.merged is None:
            spark.sql(f"alter table {name} rename column k to other")

    committed = "" if step == "merge" else r".* 1 round before it was committed\.$"
    with pytest.raises(ClusterKeyError, match=f"there is no column 'k'; the columns are id, other, v{committed}"):
        recluster(spark, name, "k", depth=1, block_rows=1000, listener=rename)
    assert checksum(spark, name) == before


def test_a_delete_between_two_commit_attempts_is_noticed(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog may share table objects between threads, so that another thread refreshes this one at any moment."""
    name = make_two_partitions(spark, schema, "merge-on-read")
    wait, refresh, tables = commit.back_off, IcebergTable.refresh, []

    def delete_meanwhile(attempt: int) -> None:
        if attempt == 1:
            shared = tables[-1]
            spark.sql(f"delete from {name} where v = '0' and id % 5 = 0")
            refresh(shared)
        wait(attempt)

    monkeypatch.setattr(IcebergTable, "refresh", lambda table: (tables.append(table), refresh(table)))
    monkeypatch.setattr(commit, "back_off", delete_meanwhile)
    recluster_while(spark, name, Meanwhile("commit", lambda: spark.sql(DELETE_ONE.format(name))))
    assert spark.sql(f"select count(*), count_if(id % 5 = 0) from {name}").first()[:] == (8000, 0)
    assert orphans(spark, name) == set()
