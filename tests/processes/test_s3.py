"""Tables in object storage, by S3A and by S3FileIO without hadoop-aws, in a JDBC catalog."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import postgres
import pyspark
import pytest
import s3
from pyspark.sql import SparkSession
from sessions import checksum, open_quietly

from dbt_recluster.api import Progress, clustering_history, recluster
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.iceberg_table import IcebergTable

TABLE = "lake.db.t"
DATA = "lake/warehouse/db/t/data"
T = TypeVar("T")


class Storage(NamedTuple):
    """A server, a database for its catalog, and the scheme by which Spark reaches it."""

    server: s3.Server
    url: str
    scheme: str


# The jars of S3A are those for Spark 3.5; S3FileIO is tried on the newest Spark by day (`make versions`).
S3A, S3_FILE_IO = pytest.param("s3a", id="S3A"), pytest.param("s3", id="S3FileIO", marks=pytest.mark.alike)
IS_3_5 = pyspark.__version__.startswith("3.5")


@pytest.fixture(params=[S3A, S3_FILE_IO] if IS_3_5 else [S3_FILE_IO])
def storage(request: Any, tmp_path: Path) -> Iterator[Storage]:
    with s3.server_or_skip(tmp_path / "s3", request.param) as server, postgres.server_or_skip() as url:
        yield Storage(server, url, request.param)


# What a worker does in its process.


def begin(directory: Path, settings: dict[str, str]) -> None:
    """Open a session in a group of processes that can be killed."""
    os.setsid()
    open_quietly(directory, settings)


def load(number: int) -> None:
    """Append 2000 rows over all keys."""
    SparkSession.active().sql(
        f"insert into {TABLE} select /*+ coalesce(1) */ id, cast(pmod(hash(id), 1000) as int) as k "
        f"from range({number * 2000}, {number * 2000 + 2000})"
    )


def make_table() -> None:
    spark = SparkSession.active()
    spark.sql("create namespace if not exists lake.db")
    spark.sql(f"create table {TABLE} (id bigint, k int) using iceberg")
    for number in range(6):
        load(number)


def merge(block_rows: int = 2000, stop: int | None = None) -> int | str:
    """Recluster; return the number of rounds, or the error. The process ``stop`` is killed once all is merged."""

    def listen(progress: Progress) -> None:
        if stop is not None and progress.merged == 1:
            os.kill(stop, signal.SIGKILL)

    spark = SparkSession.active()
    try:
        result = recluster(spark, TABLE, "k", depth=1, block_rows=block_rows, final=True, listener=listen)
    except ReclusterError as e:
        return str(e)
    return len(result.rounds)


def merge_into_a_locked_bucket(scheme: str) -> int | str:
    spark = SparkSession.active()
    spark.sql(f"alter table {TABLE} set tblproperties ('write.data.path' = '{scheme}://locked/data')")
    error = merge()
    spark.sql(f"alter table {TABLE} unset tblproperties ('write.data.path')")
    return error


def contents() -> tuple[tuple[int, int], set[str]]:
    """Return a checksum of all rows, and the names of the files that hold them."""
    spark = SparkSession.active()
    spark.sql(f"refresh table {TABLE}")
    return checksum(spark, TABLE), names(row[0] for row in spark.sql(f"select file_path from {TABLE}.files").collect())


def writers() -> list[str | None]:
    entries = clustering_history(SparkSession.active(), TABLE).entries
    return [entry.writer for entry in entries if entry.is_recluster]


def maintenance() -> TableMaintenance:
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    return TableMaintenance(IcebergTable.load(SparkSession.active(), TABLE), tomorrow)


def expire() -> int:
    """Return how many snapshots were expired."""
    return maintenance().expire_snapshots(datetime.now(timezone.utc) + timedelta(hours=1)).snapshots


def remove_orphans(dry_run: bool) -> list[str]:
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    return list(maintenance().remove_orphan_files(later, force=True, dry_run=dry_run).files)


class Worker:
    """A process with a session. Attribute ``requests``: those of the last call, by kind."""

    def __init__(self, directory: Path, storage: Storage) -> None:
        self._server, self.requests = storage.server, Counter[str]()
        settings = self._server.settings(storage.scheme, storage.url)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), begin, (directory, settings))
        self._pid = self.call(os.getpid)

    def start(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._pool.submit(function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        before = self._server.requests()
        result = self.start(function, *arguments).result()
        self.requests = self._server.requests() - before
        return result

    def kill(self) -> None:
        """End the process and its JVM at once."""
        os.killpg(self._pid, signal.SIGKILL)
        self._pool.shutdown()


def names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}


def test_nothing_is_lost_on_s3_by_kills_expiry_and_failures(storage: Storage, tmp_path: Path) -> None:
    """A kill, an expiry, orphans, a bucket without rights, and a server that stops."""
    server, killed = storage.server, Worker(tmp_path, storage)
    try:
        killed.call(make_table)
        before, known = killed.call(contents)[0], server.paths(DATA)
        merging = killed.start(merge, 100)  # many files, so that there is time to be killed
        while server.paths(DATA) == known:
            assert not merging.done()
    finally:
        killed.kill()
    worker = Worker(tmp_path, storage)
    try:
        rows, files = worker.call(contents)
        assert rows == before
        left = names(server.paths(DATA) - known) - files
        merge_alone(storage, worker)
        clean_up(storage, worker, left)
        assert worker.call(contents)[0] == before
        fail(storage, worker)
    finally:
        worker.kill()
    key = s3.SECRET_KEY.encode()
    files_with_key = (path.name for path in tmp_path.rglob("*") if path.is_file() and key in path.read_bytes())
    assert list(files_with_key) == ["s3.json"]
    objects = server.objects()
    assert objects
    assert [path for path, content in objects.items() if key in content] == []


def merge_alone(storage: Storage, worker: Worker) -> None:
    """Recluster, and check the requests that docs/guides/connections.md has."""
    assert worker.call(merge) in (1, 2)
    merged = worker.requests
    assert set(worker.call(writers)) == {"native"}
    assert worker.call(merge) == 0
    print(storage.scheme, {"merge": merged, "check": worker.requests})
    # S3A looks for a directory of the same name at each file that it writes, and the native writer does not.
    assert merged["LIST"] < merged["PUT"] if storage.scheme == "s3a" else not merged["LIST"]
    # The table's metadata file, before which S3A asks for its size; a HEAD is counted as a GET.
    assert worker.requests == {"GET": 2 if storage.scheme == "s3a" else 1}


def clean_up(storage: Storage, worker: Worker, left: set[str]) -> None:
    """Expire snapshots and remove orphans: what was left behind goes, and a directory of a like name stays."""
    server, orphan = storage.server, "left-behind.parquet"
    beside = "lake/warehouse/db/t/data-of-others/rows.parquet"
    for path in (f"{DATA}/{orphan}", beside):
        server.put(path)
    assert worker.call(expire) > 0
    print(storage.scheme, {"expiry": worker.requests})
    named = worker.call(remove_orphans, True)
    print(storage.scheme, {"orphans": worker.requests})
    assert {*left, orphan} <= names(named)
    assert worker.call(remove_orphans, False) == named
    assert names(server.paths(DATA)) == worker.call(contents)[1]
    assert beside in server.paths("lake/warehouse/db/t")


def fail(storage: Storage, worker: Worker) -> None:
    """Merge into a bucket without rights, and while the server stops: a sentence, and what is left is named."""
    server = storage.server
    worker.call(load, 50)
    before = worker.call(contents)
    refused = str(worker.call(merge_into_a_locked_bucket, storage.scheme))
    assert "lake.db.t" in refused
    assert "\n" not in refused
    assert worker.call(contents) == before
    assert server.objects(s3.LOCKED) == {}
    known = server.paths(DATA)
    error = str(worker.start(merge, 2000, server.pid).result())
    server.start_again()
    left = names(server.paths(DATA) - known)
    assert left
    assert f" {len(left)} new files could not be deleted: " in error
    assert sum(name in error for name in left) == min(len(left), 10)
    assert worker.call(contents) == before
