"""Files that a failed recluster leaves behind: deleted if that is safe and possible, otherwise named."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tables import (
    MERGE_METHODS,
    Meanwhile,
    append,
    checksum,
    data_files,
    directory,
    local_path,
    make_table,
    merge_method,
    orphans,
    raise_java,
    staged_sets,
)

from dbt_recluster.api import recluster
from dbt_recluster.clustering.result import Progress
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitStateUnknownError,
    MergeFailedError,
    OrphanFilesError,
)
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import native, spark_writer
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.rewrite.spark_writer import TaskFiles
from dbt_recluster.report.result_text import recluster_line


def make_undeletable(files: set[Path]) -> None:
    """Replace files by directories that are not empty, which even root cannot delete like files."""
    for file in files:
        file.unlink()
        file.mkdir()
        (file / "something").touch()


@contextmanager
def no_metadata_directory(spark: Any, name: str) -> Iterator[None]:
    """Make the directory of the table's metadata unreachable."""
    metadata = directory(spark, name) / "metadata"
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
def test_a_failed_commit_deletes_its_files_or_names_them(spark: Any, table: str, deletable: bool) -> None:
    before, old = checksum(spark, table), data_files(spark, table)
    error = (CommitFailedError, MergeFailedError) if deletable else OrphanFilesError
    with ExitStack() as unreachable:

        def fail() -> None:
            if not deletable:
                make_undeletable(data_files(spark, table) - old)
            unreachable.enter_context(no_metadata_directory(spark, table))

        with pytest.raises(error, match="This round changed nothing") as raised:
            recluster(spark, table, depth=1, block_rows=500, listener=Meanwhile("commit", fail))
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


@pytest.mark.parametrize(
    ("outage", "commits"),
    [
        ("storage", False),  # the directory of the metadata becomes unreachable when everything else is done
        pytest.param("answer", True, marks=pytest.mark.thorough),
        pytest.param("answer", False, marks=pytest.mark.thorough),
    ],
)
def test_a_commit_whose_outcome_is_unknown_keeps_the_files_and_names_them(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, outage: str, commits: bool
) -> None:
    before, old = checksum(spark, table), data_files(spark, table)
    send = IcebergTable.commit

    with monkeypatch.context() as patch, ExitStack() as unreachable:

        def fail(iceberg: IcebergTable, transaction: Any) -> None:
            if outage == "storage":
                unreachable.enter_context(no_metadata_directory(spark, table))
            if outage == "storage" or commits:
                send(iceberg, transaction)
            raise_java(spark, "CommitStateUnknownException", "no answer")

        patch.setattr(IcebergTable, "commit", fail)
        with pytest.raises(CommitStateUnknownError, match="was committed is unknown") as raised:
            recluster(spark, table, depth=1, block_rows=500)
    new = data_files(spark, table) - old
    assert {local_path(path) for path in raised.value.orphans} == new
    assert new
    assert all(path in str(raised.value) for path in raised.value.orphans)
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before
    assert (orphans(spark, table) == set()) == commits
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


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned": "truncate(300, k), bucket(2, id)"},
    "object storage": {"properties": {"write.object-storage.enabled": "true"}},
    "partitioned object storage": {
        "partitioned": "truncate(300, k)",
        "properties": {"write.object-storage.enabled": "true", "format-version": "3"},
    },
    "ORC, v1": {"properties": {"write.format.default": "orc", "format-version": "1"}},
}


class AfterTheWriteError(Exception):
    """What a test fails a write with."""


def files_on_disk(spark: Any, name: str) -> set[Path]:
    return {path for path in (directory(spark, name) / "data").rglob("*") if path.is_file()}


def fail_after_the_write(*_: Any) -> Any:
    raise AfterTheWriteError


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "method"),
    [
        # Where files lie does not depend on the method, and how tasks are numbered not on the layout.
        pytest.param(layout, method, marks=pytest.mark.exhaustive if number > (method == "native") else ())
        for number, layout in enumerate(LAYOUTS)
        for method in MERGE_METHODS
    ],
)
def test_a_failed_write_leaves_no_file_in_any_layout(
    spark: Any, schema: str, layout: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_table(spark, schema, rows=500, **LAYOUTS[layout])
    before, on_disk = checksum(spark, name), files_on_disk(spark, name)
    seen: list[Any] = []

    def failing(write: Any) -> Any:
        def fail(*arguments: Any) -> None:
            seen.extend(write(*arguments))
            assert len(files_on_disk(spark, name)) > len(on_disk)
            raise AfterTheWriteError

        return fail

    for owner, function in ((spark_writer, "_write_without_snapshot"), (NativeWriter, "_data_files")):
        monkeypatch.setattr(owner, function, failing(getattr(owner, function)))
    with (
        merge_method(method),
        pytest.raises(MergeFailedError, match=r"a fault of dbt-recluster.*AfterTheWriteError.*changed nothing\.$"),
    ):
        recluster(spark, name, "k", depth=1, block_rows=100)  # every partition has several blocks
    assert len(seen) > 1
    assert files_on_disk(spark, name) == on_disk
    assert checksum(spark, name) == before
    assert staged_sets(spark, name) == (0, 0)


@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("partitioned", [None, "bucket(2, id)"])
def test_a_job_that_is_cancelled_leaves_no_files(
    spark: Any, schema: str, partitioned: str | None, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_MOST_BYTES", 64 * 1024)  # so that there are tasks left to cancel
    monkeypatch.setattr(native, "_UNSORTED_SHARE", 1)
    name = make_table(spark, schema, files=4, rows=50_000, keys=1_000_000, partitioned=partitioned)
    before, on_disk, written = checksum(spark, name), len(files_on_disk(spark, name)), 0

    def cancel(progress: Progress) -> None:
        nonlocal written
        if progress.merged and not written and (new := len(files_on_disk(spark, name)) - on_disk):
            written = new
            threading.Thread(target=spark.sparkContext.cancelAllJobs).start()

    with merge_method(method), pytest.raises(MergeFailedError, match="cancelled"):
        recluster(spark, name, "k", depth=1, block_rows=2_000, listener=cancel)
    assert written
    assert orphans(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)
    assert checksum(spark, name) == before
    # Nobody listens any more.
    append(spark, name, 1_000_000, 1000)
    assert recluster(spark, name, "k", depth=1).depth_after == 1


def test_files_that_are_not_known_are_said_to_be_left(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(spark, schema)
    monkeypatch.setattr(spark_writer, "_write_without_snapshot", fail_after_the_write)
    monkeypatch.setattr(TaskFiles, "paths", fail_after_the_write)
    with (
        merge_method("spark"),
        pytest.raises(OrphanFilesError, match=r"Files that Spark had begun may be left behind; remove_orphan_files"),
    ):
        recluster(spark, name, "k", depth=1)
