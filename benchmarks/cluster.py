"""Recluster on a standalone Spark cluster of two worker processes, and take one of them away while it works.

    python benchmarks/cluster.py            # 400 MB, on this machine
    python benchmarks/cluster.py --mb 50

The driver may hold at most 4 MB of task results (``spark.driver.maxResultSize``): Spark ends a job that brings more,
so no data passes through it. First a table is reclustered by both workers; Spark's own counts tell what each of them
read. Then another one is, and the executor of one worker is killed in the middle: the rows must be the same ones, and
what its tasks had written belongs to no snapshot. Exit code 1 when a row is lost or doubled or a worker had no part.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import command
from clusters import cluster
from ports import HOST, free_port
from sessions import of_directory, open_session, random_rows

LOADS = 8
ROW_BYTES = 256


def main() -> None:
    """Start the cluster, recluster twice, print what came of it."""
    parser = command.parser(__doc__)
    parser.add_argument("--mb", type=int, default=400, help="size of each table")
    options = parser.parse_args()
    with command.own_directory("cluster") as directory, cluster(directory) as master:
        figures = run(directory, master, options.mb)
    whole, lost = figures["whole"], figures["lost executor"]
    for name, each in figures.items():
        print(
            f"{name}: {each['blocks_in']} blocks of {each['mb']} MB into {each['blocks_out']} in {each['seconds']} s; "
            f"read by the executors {each['read_mb']} MB, largest stage result {each['result_kb']} KB"
        )
    print(f"executors killed: {lost['killed']}; executors seen: {len(lost['read_mb'])}")
    command.save(options, figures)
    if min(whole["read_mb"]) == 0 or len(whole["read_mb"]) != 2:
        raise SystemExit("a worker had no part in the work")
    if not lost["killed"]:
        raise SystemExit("no executor was killed: the recluster was over before")


def run(directory: Path, master: str, mb: int) -> dict[str, Any]:
    """Recluster one table undisturbed and one that loses an executor."""
    from dbt_recluster.iceberg.session.local_spark import iceberg_jar

    spark = open_session(
        directory,
        of_directory(),
        {
            "spark.master": master,
            "spark.driver.memory": "512m",
            "spark.driver.maxResultSize": "4m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraClassPath": str(iceberg_jar()),
            "spark.local.dir": str(directory / "spill"),
            "spark.sql.shuffle.partitions": "8",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(free_port()),
        },
    )
    wait_for_executors(spark, 2)
    figures = {
        "whole": recluster_table(spark, "lake.db.whole", mb, kill=False),
        "lost executor": recluster_table(spark, "lake.db.lost", mb, kill=True),
    }
    spark.stop()
    return figures


def recluster_table(spark: Any, name: str, mb: int, *, kill: bool) -> dict[str, Any]:
    """Make a table in 8 loads over the whole key range, recluster it to the end, check its rows."""
    from dbt_recluster.maintenance import recluster

    rows = mb * 2**20 // ROW_BYTES
    spark.sql(f"create table {name} (k bigint, v binary) using iceberg")
    for load in range(LOADS):
        frame = random_rows(spark, load * rows // LOADS, (load + 1) * rows // LOADS, ROW_BYTES, files=4)
        if load % 2:  # some are sorted inside and some are not: both ways to merge
            frame = frame.repartitionByRange(1, "k").sortWithinPartitions("k")
        command.append_as_is(frame, name)
    killed: list[int] = []
    killer = threading.Thread(target=kill_an_executor, args=(spark, killed))
    with command.same_rows(spark, name):
        read_before = executors(spark)
        started = time.monotonic()
        if kill:
            killer.start()
        report = recluster(spark, name, "k", depth=1, block_rows=rows // LOADS, final=True)
        seconds = time.monotonic() - started
        if kill:
            killer.join()
    read = {each: size - read_before.get(each, 0) for each, size in executors(spark).items()}
    return {
        "mb": mb,
        "blocks_in": report.blocks_in,
        "blocks_out": report.blocks_out,
        "seconds": round(seconds, 1),
        "read_mb": [size // 2**20 for size in read.values()],
        "result_kb": max(int(stage["resultSize"]) for stage in ask(spark, "stages")) // 1024,
        "killed": killed,
    }


def kill_an_executor(spark: Any, killed: list[int]) -> None:
    """Wait until a stage of several tasks has finished one, then kill an executor's process."""
    deadline = time.monotonic() + 120
    tracker = spark.sparkContext.statusTracker()
    while time.monotonic() < deadline:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info and info.numTasks >= LOADS // 2 and info.numCompletedTasks:
                process = executor_processes(spark)[0]
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                return
        time.sleep(0.02)


def executor_processes(spark: Any) -> list[int]:
    """Return the ids of this application's executors' processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes().decode(errors="replace").split("\0")
            if any("CoarseGrainedExecutorBackend" in word for word in command) and (
                spark.sparkContext.applicationId in command
            ):
                found.append(int(path.parent.name))
    return sorted(found)


def executors(spark: Any) -> dict[str, int]:
    """Return what each executor, those that are gone too, has read of files and of shuffles, in bytes."""
    return {
        each["id"]: each["totalInputBytes"] + each["totalShuffleRead"]
        for each in ask(spark, "allexecutors")
        if each["id"] != "driver"
    }


def ask(spark: Any, what: str) -> Any:
    """Ask Spark's own monitoring (https://spark.apache.org/docs/latest/monitoring.html#rest-api)."""
    context = spark.sparkContext
    port = context.uiWebUrl.rsplit(":", 1)[1]
    url = f"http://{HOST}:{port}/api/v1/applications/{context.applicationId}/{what}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def wait_for_executors(spark: Any, count: int) -> None:
    """Wait until so many executors have reported."""
    deadline = time.monotonic() + 120
    while len(executors(spark)) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(executors(spark))} of {count} executors came up")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
