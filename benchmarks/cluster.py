"""Recluster on a standalone Spark cluster of two worker processes, and take one of them away while it works.

    python benchmarks/cluster.py            # 400 MB, on this machine
    python benchmarks/cluster.py --mb 50

The driver may hold at most 4 MB of task results (``spark.driver.maxResultSize``): Spark ends a job that brings more,
so no data passes through it. First a table is reclustered by both workers; Spark's own counts tell the tasks of each
of them. Then one is by each writer, and the executor of one worker is killed once it has begun a file: the rows must
be the same ones, and what its tasks had written belongs to no snapshot. Exit code 1 when a row is lost or doubled or
a worker had no part.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import command
from clusters import cluster
from ports import HOST, free_port
from runtime import iceberg_jar
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
    for name, each in figures.items():
        print(
            f"{name}: {each['blocks_in']} blocks of {each['mb']} MB into {each['blocks_out']} in {each['seconds']} s, "
            f"writer: {each['writer']}; tasks of the executors {each['tasks']}, killed {each['killed']}, "
            f"largest stage result {each['result_kb']} KB"
        )
    command.save(options, figures)
    whole, *lost = figures.values()
    if min(whole["tasks"]) == 0 or len(whole["tasks"]) != 2:
        raise SystemExit("a worker had no part in the work")
    if not all(each["killed"] for each in lost):
        raise SystemExit("no executor was killed: the recluster was over before")


def run(directory: Path, master: str, mb: int) -> dict[str, Any]:
    """Recluster one table undisturbed, and one by each writer that loses an executor."""
    from dbt_recluster.iceberg.rewrite.native import SWITCH

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executors, too: it has the packages of the native writer
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
    figures = {"whole": recluster_table(spark, "lake.db.whole", mb, kill=False)}
    for writer, native in {"native": "true", "spark": "false"}.items():
        spark.conf.set(SWITCH, native)
        figures[f"lost executor, {writer}"] = recluster_table(spark, f"lake.db.lost_{writer}", mb, kill=True)
    spark.stop()
    return figures


def recluster_table(spark: Any, name: str, mb: int, *, kill: bool) -> dict[str, Any]:
    """Make a table in 8 loads over the whole key range, recluster it to the end, check its rows."""
    from dbt_recluster.api import clustering_history, recluster

    rows = mb * 2**20 // ROW_BYTES
    spark.sql(f"create table {name} (k bigint, v binary) using iceberg")
    for load in range(LOADS):
        frame = random_rows(spark, load * rows // LOADS, (load + 1) * rows // LOADS, ROW_BYTES, files=4)
        if load % 2:  # some are sorted inside and some are not: both ways to merge
            frame = frame.repartitionByRange(1, "k").sortWithinPartitions("k")
        command.append_as_is(frame, name)
    killed: list[int] = []
    file = spark.sql(f"select file_path from {name}.files").first()[0]
    directory = Path(file.removeprefix("file:")).parent
    killer = threading.Thread(target=kill_an_executor, args=(spark, directory, killed))
    with command.same_rows(spark, name):
        tasks_before = executors(spark)
        started = time.monotonic()
        if kill:
            killer.start()
        report = recluster(spark, name, "k", depth=1, block_rows=rows // LOADS, final=True)
        seconds = time.monotonic() - started
        if kill:
            killer.join()
    tasks = [number - tasks_before.get(each, 0) for each, number in executors(spark).items()]
    return {
        "mb": mb,
        "writer": clustering_history(spark, name).entries[-1].writer,
        "blocks_in": report.blocks_in,
        "blocks_out": report.blocks_out,
        "seconds": round(seconds, 1),
        "tasks": tasks,
        "result_kb": max(int(stage["resultSize"]) for stage in ask(spark, "stages")) // 1024,
        "killed": killed,
    }


def kill_an_executor(spark: Any, directory: Path, killed: list[int]) -> None:
    """Wait until a block is being written to the directory of a table's files, then kill an executor's process.

    Its worker is halted until the driver misses the executor, as if the whole machine were lost: a worker that tells of
    the signal would make it a task that was killed for its memory.
    """
    deadline, before = time.monotonic() + 120, set(directory.iterdir())
    while time.monotonic() < deadline:
        if any(path.suffix == ".parquet" for path in set(directory.iterdir()) - before):
            process = executor_processes(spark)[0]
            worker = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            before_kill = active_executors(spark)
            os.kill(worker, signal.SIGSTOP)
            os.kill(process, signal.SIGKILL)
            killed.append(process)
            while active_executors(spark) == before_kill and time.monotonic() < deadline:
                time.sleep(0.1)
            os.kill(worker, signal.SIGCONT)
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
    """Return how many tasks each executor, those that are gone too, has completed."""
    found = ask(spark, "allexecutors")
    return {each["id"]: each["completedTasks"] for each in found if each["id"] != "driver"}


def active_executors(spark: Any) -> int:
    """Return how many executors the driver counts as alive, itself among them."""
    return sum(each["isActive"] for each in ask(spark, "allexecutors"))


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
