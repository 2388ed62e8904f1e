"""Tables in object storage, by S3A and by S3FileIO without hadoop-aws, in a JDBC catalog that pyiceberg shares."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import postgres
import pyspark
import pytest
import s3
from dbt_command import Project
from jobs import EXTENSIONS

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
WORKER = Path(__file__).parents[1] / "support" / "s3_worker.py"
DATA = "lake/warehouse/db/t/data"
EVENTS = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=500) }}
select {{ var('load') }} * 1000 + id as id, pmod(hash(id), 100) as k from range(1000)"""


class Storage(NamedTuple):
    """A server, a database for its catalog, and the scheme by which Spark reaches it."""

    server: s3.Server
    url: str
    scheme: str


@pytest.fixture(params=["s3a", "s3"], ids=["S3A", "S3FileIO"])
def storage(request: Any, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "s3a" and not pyspark.__version__.startswith("3.5"):
        pytest.skip("the jars of S3A are those for Spark 3.5")
    with s3.server_or_skip(tmp_path / "s3", request.param) as server, postgres.server_or_skip() as url:
        yield Storage(server, url, request.param)


class Worker:
    """A process that reclusters; see ``s3_worker.py``. Its standard error is kept in a file."""

    def __init__(self, directory: Path, part: str, storage: Storage) -> None:
        self._requests, self.counts = storage.server.requests, dict[str, Counter[str]]()
        self.printed = ""
        directory.mkdir(exist_ok=True)
        settings = storage.server.settings(storage.scheme, storage.url)
        (directory / "settings.json").write_text(json.dumps(settings))
        with (directory / f"{part}.err").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), str(directory), part],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._before = Counter[str]()

    def until(self, part: str) -> dict[str, Any]:
        """Let the worker go on until it says that a part is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.printed:
            self._before = self._requests()
            self.go()
        line = self.process.stdout.readline()
        self.printed += line or "nothing"
        said: dict[str, Any] = json.loads(line)
        assert said.pop("part") == part
        if part not in ("down", "stopped"):
            self.counts[part] = self._requests() - self._before
        return said

    def go(self) -> None:
        """Answer the worker."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End the worker and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def rows(table: Any) -> set[tuple[int, int]]:
    """Return the rows of ``db.t`` as pyiceberg reads them; none is there twice."""
    read = [(row["id"], row["k"]) for row in table.refresh().scan().to_arrow().to_pylist()]
    assert len(set(read)) == len(read)
    return set(read)


def names(paths: Any) -> set[str]:
    return {str(path).rpartition("/")[2] for path in paths}


def used(table: Any) -> set[str]:
    """Return the names of the files that the current snapshot has."""
    return names(task.file.file_path for task in table.refresh().scan().plan_files())


class Appends(threading.Thread):
    """Appends by pyiceberg until it is stopped, each of 500 rows."""

    def __init__(self, table: Any) -> None:
        super().__init__(daemon=True)
        self._table, self._ended, self.rows = table, threading.Event(), set[tuple[int, int]]()

    def run(self) -> None:
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException

        while not self._ended.is_set():
            start = 1_000_000 + len(self.rows)
            ids = range(start, start + 500)
            load = {"id": pa.array(ids, pa.int64()), "k": pa.array([i % 1000 for i in ids], pa.int32())}
            try:
                self._table.refresh().append(pa.table(load))
            except CommitFailedException:
                continue
            self.rows |= {(i, i % 1000) for i in ids}
            time.sleep(0.5)

    def stop(self) -> None:
        self._ended.set()
        self.join()


def test_nothing_is_lost(storage: Storage, tmp_path: Path) -> None:
    """A kill, another writer, an expiry, orphans, a bucket without rights, and a server that stops."""
    table, before, left = kill_in_a_merge(storage, tmp_path)
    worker = Worker(tmp_path / "worker", "go_on", storage)
    try:
        worker.until("loaded")
        assert worker.until("recluster")["rounds"] > 0
        assert worker.until("read")["same"]
        assert worker.until("check")["rounds"] == 0
        worker.until("beside")
        appends = Appends(table)
        appends.start()
        worker.until("alone")
        appends.stop()
        assert appends.rows
        assert rows(table) == before | appends.rows
        clean_up(storage, worker, table, left)
        count_requests(storage, worker)
        fail(storage, worker, table)
        assert rows(table) > before | appends.rows
    finally:
        worker.kill()
    look_for_the_key(storage, worker.printed, tmp_path)


def kill_in_a_merge(storage: Storage, directory: Path) -> tuple[Any, set[tuple[int, int]], set[str]]:
    """Kill a recluster once it has written a file; return the table, its rows, and the files it has left behind."""
    server, worker = storage.server, Worker(directory / "worker", "begin", storage)
    try:
        worker.until("merge")
        table = server.pyiceberg(storage.url).load_table("db.t")
        before, known = rows(table), server.paths(DATA)
        assert len(before) == 12_000
        worker.go()
        while server.paths(DATA) == known:
            assert worker.process.poll() is None
    finally:
        worker.kill()
    assert rows(table) == before
    return table, before, names(server.paths(DATA) - known) - used(table)


def clean_up(storage: Storage, worker: Worker, table: Any, left: set[str]) -> None:
    """Expire snapshots and remove orphans: what was left behind goes, and a directory of a like name stays."""
    server, orphan = storage.server, "left-behind.parquet"
    beside = "lake/warehouse/db/t/data-of-others/rows.parquet"
    for path in (f"{DATA}/{orphan}", beside):
        server.put(path)
    worker.until("expiry")
    assert worker.until("expired")["snapshots"] > 0
    named = worker.until("dry run")["files"]
    assert {*left, orphan} <= names(named)
    assert worker.until("orphans") == {"files": named, "same": True}
    assert names(server.paths(DATA)) == used(table)
    assert beside in server.paths("lake/warehouse/db/t")


def count_requests(storage: Storage, worker: Worker) -> None:
    """Check the requests that docs/guides/connections.md has."""
    counts = {part: worker.counts[part] for part in ("recluster", "check", "expired", "dry run")}
    print(storage.scheme, {part: dict(count) for part, count in counts.items()})
    # S3A looks for a directory of the same name at each file that it writes.
    assert counts["recluster"]["LIST"] == (counts["recluster"]["PUT"] if storage.scheme == "s3a" else 0)
    # The table's metadata file, before which S3A asks for its size; a HEAD is counted as a GET.
    assert counts["check"] == {"GET": 2 if storage.scheme == "s3a" else 1}


def fail(storage: Storage, worker: Worker, table: Any) -> None:
    """Merge into a bucket without rights, and while the server stops: a sentence, and what is left is named."""
    server = storage.server
    refused = worker.until("locked")
    assert refused["same"]
    assert "lake.db.t" in refused["error"]
    assert "\n" not in refused["error"]
    assert server.objects(s3.LOCKED) == {}
    known = server.paths(DATA)
    worker.until("down")
    server.stop()
    worker.go()
    assert worker.process.stdout is not None
    line = worker.process.stdout.readline()
    worker.printed += line
    error = json.loads(line)["error"]
    server.start_again()
    left = names(server.paths(DATA) - known)
    assert left
    assert f" {len(left)} new files could not be deleted: " in error
    assert sum(name in error for name in left) == min(len(left), 10)
    assert worker.until("end")["same"]


def look_for_the_key(storage: Storage, printed: str, directory: Path) -> None:
    """Look for the secret key in outputs, logs, artifacts, metadata and whatever else lies in the bucket."""
    key = s3.SECRET_KEY
    assert key not in printed
    given = ("settings.json", "profiles.yml", "s3.json")
    files = (path for path in directory.rglob("*") if path.is_file() and path.name not in given)
    assert [str(path) for path in files if key.encode() in path.read_bytes()] == []
    objects = storage.server.objects()
    assert objects
    assert [path for path, content in objects.items() if key.encode() in content] == []


@pytest.mark.parametrize("storage", ["s3a"], ids=["S3A"], indirect=True)
def test_dbt(storage: Storage, tmp_path: Path) -> None:
    """`dbt run` reclusters in a session of the profile's settings, and the secret key is nowhere."""
    settings = {
        **storage.server.settings(storage.scheme, storage.url),
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.extensions": EXTENSIONS,
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path}",
    }
    profile = {"method": "session", "catalog": "lake", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    printed = ""
    for load in range(2):
        code, out, err = project.run("--debug", "run", "--vars", f"{{load: {load}}}")
        assert code == 0, out + err
        printed += out + err
    assert ", reclustered " in printed
    storage.server.put("lake/warehouse/analytics/events/data/left-behind.parquet")
    time.sleep(1)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    arguments = f"{{table: events, older_than: '{now}', force: true, dry_run: false}}"
    code, out, err = project.run("--debug", "run-operation", "remove_orphan_files", "--args", arguments)
    assert code == 0, out + err
    assert "left-behind.parquet" in out
    table = storage.server.pyiceberg(storage.url).load_table("analytics.events")
    assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == list(range(2000))
    look_for_the_key(storage, printed + out + err, tmp_path)
