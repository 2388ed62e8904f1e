"""Files that a recluster leaves behind when it fails: deleted where that is safe and can be done, else named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from tables import checksum, make_table

from dbt_recluster import maintenance
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitStateUnknownError,
    ConcurrentChangeError,
    OrphanFilesError,
)
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.jvm import java_class
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.maintenance import recluster
from dbt_recluster.report.text import recluster_line


def local(location: str) -> Path:
    return Path(unquote(urlparse(location).path))


def data_files(spark: Any, name: str) -> set[Path]:
    """What is on disk."""
    root = local(IcebergTable.load(spark, name).java.location())
    return {path for path in (root / "data").rglob("*.parquet") if "-deletes" not in path.name}


def used(spark: Any, name: str) -> set[Path]:
    """What some snapshot refers to."""
    return {local(row[0]) for row in spark.sql(f"select file_path from {name}.all_data_files").collect()}


def make_undeletable(files: set[Path]) -> None:
    """Put a directory with something in it in a file's place: to delete that fails for root too."""
    for file in files:
        file.unlink()
        file.mkdir()
        (file / "something").touch()


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    name = make_table(spark, schema, loads=4, rows=500, properties={"write.delete.mode": "merge-on-read"})
    spark.sql(f"alter table {name} write ordered by k")
    return name


@pytest.mark.parametrize("deletable", [True, False])
def test_a_failure_before_the_commit(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, deletable: bool
) -> None:
    before, old = checksum(spark, table), data_files(spark, table)

    def fail(*_: Any) -> Any:
        if not deletable:
            make_undeletable(data_files(spark, table) - old)
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(commit, "_prepare", fail)
    with pytest.raises(
        CommitFailedError if deletable else OrphanFilesError, match="the disk is full"
    ) as raised:
        recluster(spark, table, depth=1, block_rows=500)
    left = data_files(spark, table) - old
    assert checksum(spark, table) == before
    if deletable:
        assert left == set()
    else:
        assert isinstance(raised.value, OrphanFilesError)
        assert {local(path) for path in raised.value.orphans} == left
        assert left
        assert all(path in str(raised.value) for path in raised.value.orphans)
        assert f"{len(left)} new files could not be deleted: " in str(raised.value)
        assert f"remove_orphan_files(table => '{table}')" in str(raised.value)


def test_a_storage_that_is_gone_at_the_commit(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of the metadata cannot be reached when everything else is done."""
    before, old = checksum(spark, table), data_files(spark, table)
    metadata = local(IcebergTable.load(spark, table).java.location()) / "metadata"
    prepare = commit._prepare

    def then_gone(*arguments: Any) -> Any:
        prepared = prepare(*arguments)
        metadata.rename(metadata.with_name("away"))
        metadata.touch()
        return prepared

    monkeypatch.setattr(commit, "_prepare", then_gone)
    try:
        with pytest.raises(CommitStateUnknownError, match="took place is not known") as raised:
            recluster(spark, table, depth=1, block_rows=500)
    finally:
        metadata.unlink()
        metadata.with_name("away").rename(metadata)
    monkeypatch.undo()
    new = data_files(spark, table) - old
    assert checksum(spark, table) == before
    assert {local(path) for path in raised.value.orphans} == new
    assert new
    recluster(spark, table, depth=1, block_rows=500)
    assert checksum(spark, table) == before


@contextmanager
def no_answer(spark: Any, monkeypatch: pytest.MonkeyPatch, *, commits: bool) -> Iterator[None]:
    """Let the catalog's answer get lost: the very exception that Iceberg's catalogs throw then."""
    prepare = commit._prepare

    class Transaction:
        def __init__(self, java: Any) -> None:
            self._java = java

        def commitTransaction(self) -> None:
            if commits:
                self._java.commitTransaction()
            lost = spark._jvm.java.net.SocketTimeoutException("no answer")
            unknown = spark._jvm.org.apache.iceberg.exceptions.CommitStateUnknownException(lost)
            spark._jvm.org.apache.iceberg.relocated.com.google.common.base.Throwables.throwIfUnchecked(
                unknown
            )

    def prepared(*arguments: Any) -> Any:
        transaction, snapshots = prepare(*arguments)
        return Transaction(transaction), snapshots

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_prepare", prepared)
        yield


@pytest.mark.parametrize("commits", [True, False])
def test_a_commit_without_an_answer_keeps_the_files_and_names_them(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    before, old = checksum(spark, table), data_files(spark, table)
    with (
        no_answer(spark, monkeypatch, commits=commits),
        pytest.raises(CommitStateUnknownError, match="took place is not known") as raised,
    ):
        recluster(spark, table, depth=1, block_rows=500)
    new = data_files(spark, table) - old
    assert {local(path) for path in raised.value.orphans} == new
    assert new
    assert all(path in str(raised.value) for path in raised.value.orphans)
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before
    assert (new <= used(spark, table)) == commits
    recluster(spark, table, depth=1, block_rows=500)
    assert checksum(spark, table) == before


def test_what_a_conflict_leaves_is_named_by_the_report(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer deletes a row of a merged block, and then what was written for it cannot be deleted."""
    old = data_files(spark, table)
    commit_merges, left = maintenance.commit_merges, set[Path]()

    def late(*arguments: Any) -> Any:
        if not left:
            left.update(data_files(spark, table) - old)
            make_undeletable(left)
            spark.sql(f"delete from {table} where id = 7")
        return commit_merges(*arguments)

    monkeypatch.setattr(maintenance, "commit_merges", late)
    report = recluster(spark, table, depth=1, block_rows=500)
    assert (len(report.rounds), report.conflicts) == (1, 1)
    assert {local(path) for path in report.orphans} == left
    assert report.as_dict()["orphans"] == report.orphans
    assert f"{len(left)} new files could not be deleted: {report.orphans[0]}, " in recluster_line(report)
    for each in left:
        shutil.rmtree(each)


def test_what_conflicts_leave_is_named_by_the_error(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_merges, left = maintenance.commit_merges, set[Path]()

    def late(*arguments: Any) -> Any:
        new = data_files(spark, table) - used(spark, table) - left
        left.update(new)
        make_undeletable(new)
        spark.sql(f"delete from {table} where id = {len(left)}")
        return commit_merges(*arguments)

    monkeypatch.setattr(maintenance, "commit_merges", late)
    with pytest.raises(ConcurrentChangeError, match="more beside them") as raised:
        recluster(spark, table, depth=1, block_rows=500)
    assert {local(path) for path in raised.value.orphans} == left
    assert len(left) > 10
    assert all(path in str(raised.value) for path in raised.value.orphans[:10])
    for each in left:
        shutil.rmtree(each)


def test_which_failures_are_safe_to_clean_up(spark: Any) -> None:
    """Iceberg marks those after which a commit surely did not take place."""
    from py4j.protocol import Py4JJavaError

    from dbt_recluster.iceberg.errors import is_instance

    cleanable = "org.apache.iceberg.exceptions.CleanableFailure"
    exceptions = spark._jvm.org.apache.iceberg.exceptions
    assert java_class(spark, cleanable).isInterface()
    throw = spark._jvm.org.apache.iceberg.relocated.com.google.common.base.Throwables.throwIfUnchecked
    for error, safe in (
        (exceptions.CommitFailedException(spark._jvm.java.lang.Exception("no")), None),
        (spark._jvm.java.lang.RuntimeException("?"), False),
    ):
        with pytest.raises(Py4JJavaError) as raised:
            throw(error)
        expected = java_class(spark, cleanable).isInstance(error)
        assert is_instance(raised.value, cleanable) is expected
        assert safe is None or expected is safe
    assert not is_instance(RuntimeError(), cleanable)
