"""Ctrl-C in a script, in a notebook's thread and in `dbt run-operation`: real processes and real signals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dbt_command import Project
from tables import checksum, make_table, orphans

SCRIPT = """
import sys, time
from pathlib import Path
from sessions import of_directory, open_session
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.maintenance import clustering_information, recluster

spark = open_session(Path(sys.argv[1]), of_directory())
spark.sparkContext.setLogLevel("OFF")

def tell(progress):
    if progress.merged:
        print("merges", progress.merged, flush=True)

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


def press(process: subprocess.Popen[str], merged: float, after: float) -> str:
    """Press Ctrl-C some seconds after a share of the table is merged; return all that follows."""
    assert process.stdout is not None
    for line in process.stdout:
        if (line == "begins\n" and not merged) or (
            line.startswith("merges ") and float(line.split()[1]) >= merged
        ):
            break
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    return out


@pytest.mark.parametrize(
    ("merged", "after"),
    [(0, 1.5), (0.6, 0), (0.8, 0.3)],
    ids=["while it plans", "while it writes", "later"],
)
def test_a_script(merged: float, after: float, spark: Any, hadoop_catalog: str, tmp_path: Path) -> None:
    """`except ReclusterError` passes over tables that fail; this is none of them."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    warehouse = tmp_path / "warehouse"
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.warehouse", warehouse.as_uri())
    table = make_table(spark, f"{hadoop_catalog}.sales", files=4, rows=150_000, keys=10_000_000)
    before = checksum(spark, table)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    out = press(process, merged, after)
    assert "caught Interrupted interrupted; a round that was not committed changed nothing\n" in out, out
    assert re.search(r"^answers (4|1)\.0$", out, re.MULTILINE), out
    assert "handler signal_handler\n" in out, out
    assert "swallowed" not in out
    assert "Traceback" not in out
    assert orphans(spark, table) == set()
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before


STARTING = """
import os, signal, sys, threading, time
from pyspark import SparkContext
from dbt_recluster.adapter import session as embedded
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


def test_while_the_session_starts(tmp_path: Path) -> None:
    """In the main thread pyspark would install a handler that calls Java in the middle of another call."""
    process = subprocess.run(
        [sys.executable, "-c", STARTING, str(tmp_path / "lake")],
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        timeout=120,
        check=False,
    )
    assert "Traceback" not in process.stderr
    *_, interrupted, answers = process.stdout.splitlines()
    assert interrupted == "Interrupted interrupted; a round that was not committed changed nothing"
    assert answers == "answers 1"


def environment() -> dict[str, str]:
    import os

    support = Path(__file__).parents[1] / "support"
    return {**os.environ, "PYTHONPATH": f"{support}{os.pathsep}{Path(__file__).parents[2]}"}


BIG = """{{{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=4000,
                      automatic_clustering=false) }}}}
select id, xxhash64(id, '{{{{ invocation_id }}}}') as k, sha2(string(id), 512) as v from range(150000) where {0} > 0"""
# What is in the warehouse, as another process sees it: rows, snapshots and files of each table.
LOOK = """{% macro look() %}
  {% for name in ('analytics.big1', 'analytics.big2') %}
    {% set row = run_query('select (select count(*) from ' ~ name ~ '), (select count(*) from ' ~ name ~
                           '.snapshots), (select count(*) from ' ~ name ~ '.all_data_files)').rows[0] %}
    {% do log('found: ' ~ row.values() | join(' '), info=true) %}
  {% endfor %}
{% endmacro %}"""
INTERRUPTED = "while running operation: interrupted; a round that was not committed changed nothing"


def test_an_operation(tmp_path: Path) -> None:
    """One line, the exit code that shells have for it, no further table, and no file that belongs to nothing."""
    models = {f"big{number}.sql": BIG.format(number) for number in (1, 2)}
    project = Project(tmp_path / "p", {"method": "embedded", "path": "lake"}, models)
    (project.root / "macros").mkdir()
    (project.root / "macros" / "look.sql").write_text(LOOK)
    try:
        for _ in range(2):
            project.succeed("run")
        for at in ("Found 2 models", "round 1 merges"):  # while Spark starts, and while it works
            process = project.start("run-operation", "recluster", "--args", "{final: true}")
            assert process.stdout is not None
            while at not in (line := process.stdout.readline()):
                assert line, "it ended before"
            lines: list[str] = []
            reader = threading.Thread(target=lines.extend, args=(process.stdout,))
            reader.start()
            time.sleep(3)
            before = len(lines)  # a line of progress, where the machine is slow
            process.send_signal(signal.SIGINT)
            reader.join(timeout=120)
            assert process.wait(timeout=120) == 130, "".join(lines)
            assert process.stderr is not None
            assert process.stderr.read() == ""
            (line,) = lines[before:]
            assert line.endswith(f"{INTERRUPTED}\n")
    finally:
        project.stop()
    _, out, _ = project.run("run-operation", "look")
    found = [tuple(map(int, row.split())) for row in re.findall("found: (.*)", out)]
    assert [row[:2] for row in found] == [(300_000, 2), (300_000, 2)]
    names = ("big1", "big2")
    files = [len(list((project.root / "lake").rglob(f"{name}/data/*.parquet"))) for name in names]
    assert files == [row[2] for row in found]
