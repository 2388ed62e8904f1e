"""Ctrl-C in a script, a job, `dbt run` and `dbt run-operation`: real processes and real signals."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbt_command import Project
from jobs import Jobs
from programs import interrupt, start
from tables import checksum, data_files, make_table, metadata_file, orphans

SCRIPT = """
import sys, time
from pathlib import Path
from sessions import of_directory, open_session
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.api import clustering_information, recluster

spark = open_session(Path(sys.argv[1]), of_directory())
spark.sparkContext.setLogLevel("OFF")

def tell(progress):
    if progress.merged and progress.merged >= float(sys.argv[2]):
        print("merges", flush=True)

print("begins", flush=True)
try:
    for _ in range(3):
        try:
            recluster(spark, "lake.sales.t", "k", depth=1, block_rows=4000, final=True, listener=tell)
        except ReclusterError as e:
            print("swallowed", repr(e), flush=True)
    print("not interrupted", flush=True)
except KeyboardInterrupt as e:
    print("caught", type(e).__name__, e, flush=True)
# The connection is as good as before, and pyspark's handler is back.
print("answers", clustering_information(spark, "lake.sales.t", "k")["average_depth"], flush=True)
import signal
print("handler", signal.getsignal(signal.SIGINT).__name__, flush=True)
"""


CHANGED_NOTHING = "interrupted; a round that was not committed changed nothing"


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    path = f"{Path(__file__).parents[1] / 'support'}{os.pathsep}{Path(__file__).parents[2]}"
    environment = {**os.environ, "PYTHONPATH": path}
    words = map(str, arguments)
    return start(sys.executable, "-c", program, *words, env=environment, stderr=subprocess.STDOUT)


@pytest.fixture
def table(spark: Any, uncached_catalog: str, tmp_path: Path) -> Iterator[str]:
    """A table for another process, which has the same rows afterwards and no file that belongs to nothing."""
    spark.conf.set(f"spark.sql.catalog.{uncached_catalog}.warehouse", (tmp_path / "warehouse").as_uri())
    table = make_table(spark, f"{uncached_catalog}.sales", files=4, rows=150_000, keys=10_000_000)
    before = checksum(spark, table)
    yield table
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before
    assert orphans(spark, table) == set()


@pytest.mark.alike
@pytest.mark.parametrize(
    ("text", "merged", "after"),
    [("merges", 0.6, 0), ("begins", 1, 1.5), ("merges", 0.8, 0.3)],
    ids=["while it writes", "while it plans", "later"],
)
@pytest.mark.usefixtures("table")
def test_an_interrupted_script_may_end_as_it_likes(text: str, merged: float, after: float, tmp_path: Path) -> None:
    """`except ReclusterError` passes over tables that fail; this is none of them."""
    _, out, _ = interrupt(python(SCRIPT, tmp_path, merged), text, after)
    assert f"caught Interrupted {CHANGED_NOTHING}\n" in out, out
    assert re.search(r"^answers (4|1)\.0$", out, re.MULTILINE), out
    assert "handler signal_handler\n" in out, out
    assert "swallowed" not in out
    assert "Traceback" not in out


@pytest.mark.parametrize(("stays", "code"), [((), 130), (("--every", "1h"), 0)], ids=["once", "every"])
def test_an_interrupted_job_changes_nothing(
    spark: Any, table: str, tmp_path: Path, stays: tuple[str, ...], code: int
) -> None:
    snapshot, known = metadata_file(spark, table), data_files(spark, table)
    options = ("--cluster-by", "k", "--depth", "1", "--block-rows", "4000")
    job = Jobs(tmp_path, tmp_path / "warehouse").start("recluster", "lake.sales.t", *options, *stays)
    while data_files(spark, table) == known:
        assert job.poll() is None, job.communicate()
    ended, out, _ = interrupt(job, terminate=bool(stays))
    assert ended == code, out
    assert f"dbt-recluster: {CHANGED_NOTHING}" in out
    assert "Traceback" not in out
    assert metadata_file(spark, table) == snapshot


STARTING = """
import os, signal, sys, threading, time
from pyspark import SparkContext
from dbt_recluster.iceberg.session import embedded
from dbt_recluster.iceberg.session.jobs import Interruptible

def press():
    while getattr(SparkContext._active_spark_context, "_temp_dir", None) is None:
        time.sleep(0.001)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    with Interruptible():
        embedded.start(sys.argv[1])
except KeyboardInterrupt as e:
    print(type(e).__name__, e)
print("answers", embedded.start(sys.argv[1]).sql("select 1").count())
"""


def test_the_start_of_the_session_is_interrupted(tmp_path: Path) -> None:
    """In the main thread pyspark would install a handler that calls Java in the middle of another call."""
    out, _ = python(STARTING, tmp_path / "lake").communicate(timeout=120)
    assert "Traceback" not in out
    *_, interrupted, answers = out.splitlines()
    assert interrupted == f"Interrupted {CHANGED_NOTHING}"
    assert answers == "answers 1"


BIG = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=4000) }}
select id, xxhash64(id, '{{ invocation_id }}') as k, sha2(string(id), 512) as v from range(150000)"""
COUNTS = """select (select count(*) from {0}) as live, (select count(*) from {0}.snapshots) as snapshots,
(select count(*) from {0}.all_data_files) as files"""


def test_an_operation_and_a_run_are_interrupted(tmp_path: Path) -> None:
    """One line, the exit code that shells have for it, no further table, and no file that belongs to nothing."""
    models = dict.fromkeys(("big1.sql", "big2.sql"), BIG)
    project = Project(tmp_path / "p", {"method": "embedded", "path": "lake"}, models)
    try:
        for _ in range(2):
            project.succeed("run", DBT_RECLUSTER_AUTOMATIC_CLUSTERING="false")
        for text in ("Found 2 models", "round 1 merges"):  # while Spark starts, and while it works
            process = project.start("run-operation", "recluster", "--args", "{final: true}")
            code, out, err = interrupt(process, text, after=3)
            assert (code, err) == (130, ""), out
            assert out.endswith(f"while running operation: {CHANGED_NOTHING}\n"), out
            assert out.count("interrupted") == 1
        # The data of the run is there, and nothing of the recluster that comes after it.
        code, out, _ = interrupt(project.start("--debug", "run", "--select", "big1"), "round 1 merges", after=1)
        assert code != 0, out
    finally:
        project.stop()
    for name, loads in (("big1", 3), ("big2", 2)):
        files = len(list((project.root / "lake").rglob(f"{name}/data/*.parquet")))
        assert project.ask(COUNTS.format(f"analytics.{name}")) == (loads * 150_000, loads, files)
