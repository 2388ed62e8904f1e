"""Files that a failed recluster leaves behind: deleted if that is safe and possible, otherwise named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tables import Meanwhile, checksum, data_files, local_path, make_table, raise_java

from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitStateUnknownError,
    ConcurrentChangeError,
    MergeFailedError,
    OrphanFilesError,
)
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import java_class
from dbt_recluster.iceberg.session.redaction import is_instance
from dbt_recluster.maintenance import recluster
from dbt_recluster.report.recluster_text import recluster_line


def used(spark: Any, name: str) -> set[Path]:
    """Return the files that some snapshot refers to."""
    return {local_path(row[0]) for row in spark.sql(f"select file_path from {name}.all_data_files").collect()}


def make_undeletable(files: set[Path]) -> None:
    """Replace files by directories that are not empty, which even root cannot delete like files."""
    for file in files:
        file.unlink()
        file.mkdir()
        (file / "something").touch()


@contextmanager
def no_metadata_directory(spark: Any, name: str) -> Iterator[None]:
    """Make the directory of the table's metadata unreachable."""
    metadata = local_path(IcebergTable.load(spark, name).java.location()) / "metadata"
    away = metadata.with_name("away")
    metadata.rename(away)
    metadata.touch()
    try:
        yield
    finally:
        metadata.unlink()
        away.rename(metadata)


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    name = make_table(spark, schema, files=4, rows=500, properties={"write.delete.mode": "merge-on-read"})
    spark.sql(f"alter table {name} write ordered by k")
    return name


@pytest.mark.thorough
@pytest.mark.parametrize("deletable", [True, False])
def test_a_failure_before_the_commit(spark: Any, table: str, deletable: bool) -> None:
    before, old = checksum(spark, table), data_files(spark, table)
    unreachable = no_metadata_directory(spark, table)

    def fail() -> None:
        if not deletable:
            make_undeletable(data_files(spark, table) - old)
        unreachable.__enter__()

    error = (CommitFailedError, MergeFailedError) if deletable else OrphanFilesError
    try:
        with pytest.raises(error, match="This round changed nothing") as raised:
            recluster(spark, table, depth=1, block_rows=500, listener=Meanwhile("commit", fail))
    finally:
        unreachable.__exit__(None, None, None)
    left = data_files(spark, table) - old
    assert checksum(spark, table) == before
    if deletable:
        assert left == set()
        return
    assert {local_path(path) for path in raised.value.orphans} == left
    assert left
    assert all(path in str(raised.value) for path in raised.value.orphans)
    assert f"{len(left)} new files could not be deleted: " in str(raised.value)
    assert f"remove_orphan_files(table => '{table}')" in str(raised.value)


def test_a_storage_that_is_gone_at_the_commit(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of the metadata becomes unreachable when everything else is done."""
    before, old = checksum(spark, table), data_files(spark, table)
    send = IcebergTable.commit
    unreachable = no_metadata_directory(spark, table)

    def commit_without_storage(iceberg: IcebergTable, transaction: Any) -> None:
        unreachable.__enter__()
        send(iceberg, transaction)

    monkeypatch.setattr(IcebergTable, "commit", commit_without_storage)
    try:
        with pytest.raises(CommitStateUnknownError, match="was committed is unknown") as raised:
            recluster(spark, table, depth=1, block_rows=500)
    finally:
        unreachable.__exit__(None, None, None)
    monkeypatch.undo()
    new = data_files(spark, table) - old
    assert checksum(spark, table) == before
    assert {local_path(path) for path in raised.value.orphans} == new
    assert new
    recluster(spark, table, depth=1, block_rows=500)
    assert checksum(spark, table) == before


@pytest.mark.thorough
@pytest.mark.parametrize("commits", [True, False])
def test_a_commit_without_an_answer_keeps_the_files_and_names_them(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    before, old = checksum(spark, table), data_files(spark, table)
    send = IcebergTable.commit

    def lose_the_answer(iceberg: IcebergTable, transaction: Any) -> None:
        if commits:
            send(iceberg, transaction)
        raise_java(spark, "CommitStateUnknownException", "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "commit", lose_the_answer)
        with pytest.raises(CommitStateUnknownError, match="was committed is unknown") as raised:
            recluster(spark, table, depth=1, block_rows=500)
    new = data_files(spark, table) - old
    assert {local_path(path) for path in raised.value.orphans} == new
    assert new
    assert all(path in str(raised.value) for path in raised.value.orphans)
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before
    assert (new <= used(spark, table)) == commits
    recluster(spark, table, depth=1, block_rows=500)
    assert checksum(spark, table) == before


def test_the_result_names_what_a_conflict_leaves(spark: Any, table: str) -> None:
    """Another writer deletes a row of a merged block, and then the files written for it cannot be deleted."""
    old, left = data_files(spark, table), set[Path]()

    def delete_a_row() -> None:
        left.update(data_files(spark, table) - old)
        make_undeletable(left)
        spark.sql(f"delete from {table} where id = 7")

    result = recluster(spark, table, depth=1, block_rows=500, listener=Meanwhile("commit", delete_a_row))
    assert (len(result.rounds), result.conflicts) == (1, 1)
    assert {local_path(path) for path in result.orphans} == left
    assert result.as_dict()["orphans"] == result.orphans
    assert f"{len(left)} new files could not be deleted: {result.orphans[0]}, " in recluster_line(result)
    for path in left:
        shutil.rmtree(path)


def test_an_interruption_names_what_it_leaves(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, old = checksum(spark, table), data_files(spark, table)

    def interrupt(*_: object) -> None:
        make_undeletable(data_files(spark, table) - old)
        raise KeyboardInterrupt

    monkeypatch.setattr(commit, "verify_counts", interrupt)
    with pytest.raises(KeyboardInterrupt):
        recluster(spark, table, depth=1, block_rows=500)
    left = data_files(spark, table) - old
    assert left
    assert f"{len(left)} new files could not be deleted: " in caplog.text
    assert all(path.name in caplog.text for path in left)
    assert checksum(spark, table) == before
    for path in left:
        shutil.rmtree(path)


@pytest.mark.exhaustive
def test_the_error_names_what_conflicts_leave(spark: Any, table: str) -> None:
    left = set[Path]()

    def delete_a_row() -> None:
        new = data_files(spark, table) - used(spark, table) - left
        left.update(new)
        make_undeletable(new)
        spark.sql(f"delete from {table} where id = {len(left)}")

    meanwhile = Meanwhile("commit", delete_a_row, times=100)
    with pytest.raises(ConcurrentChangeError, match="more beside them") as raised:
        recluster(spark, table, depth=1, block_rows=500, listener=meanwhile)
    assert {local_path(path) for path in raised.value.orphans} == left
    assert len(left) > 10
    assert all(path in str(raised.value) for path in raised.value.orphans[:10])
    for path in left:
        shutil.rmtree(path)


def test_which_failures_are_safe_to_clean_up(spark: Any) -> None:
    """Iceberg marks the exceptions after which a commit certainly did not take place."""
    from py4j.protocol import Py4JJavaError

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
