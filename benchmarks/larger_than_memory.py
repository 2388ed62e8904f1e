"""Recluster a table whose one block set is several times as large as Spark's memory.

    python benchmarks/larger_than_memory.py            # a heap of 512 MB, a set of four times that
    python benchmarks/larger_than_memory.py --heap-mb 1024 --times 2
    python benchmarks/larger_than_memory.py --python 2816m  # 256 MB for DuckDB in each of two workers

The rows are random bytes, which no encoding makes smaller: a set has as many bytes in memory as on disk. It is merged
from loads that are sorted inside and from loads that are not, natively and by Spark's writer. Printed are sizes, time,
and the most memory that the JVM and the Python workers held. Exit code 1 when a row is lost or doubled.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import command
from sessions import random_rows

LOADS = 8
ROW_BYTES = 1024


def main() -> None:
    """Merge both kinds and print what it took."""
    parser = command.parser(__doc__)
    parser.add_argument("--heap-mb", type=int, default=512)
    parser.add_argument("--times", type=float, default=4, help="size of the set, in heaps")
    parser.add_argument("--python", help="spark.executor.pyspark.memory: addresses of each worker")
    options = parser.parse_args()
    memory = {"spark.master": "local[2]", "spark.driver.memory": f"{options.heap_mb}m"}
    if options.python:
        memory["spark.executor.pyspark.memory"] = options.python
    with command.own_spark("memory", memory) as (spark, _):
        rows = int(options.heap_mb * 2**20 * options.times / ROW_BYTES)
        ways = [run(spark, name, native, rows) for native in ("true", "false") for name in ("sorted", "unsorted")]
    columns = ("loads", "mb", "sets", "writer", "files_before", "files_after", "seconds", "jvm_mb", "python_mb")
    command.show(columns, [[each[column] for column in columns] for each in ways])
    command.save(options, {"ways": ways})


def run(spark: Any, loads: str, native: str, rows: int) -> dict[str, Any]:
    """Make a table of so many rows in 8 loads and recluster it to the end."""
    from dbt_recluster.api import clustering_history, recluster
    from dbt_recluster.iceberg.rewrite.native import SWITCH

    spark.conf.set(SWITCH, native)
    name = f"lake.db.{loads}_{native}"
    spark.sql(f"create table {name} (k bigint, v binary) using iceberg")
    # As a model with cluster_by begins: the key is there before the data, and with it the size of row groups.
    recluster(spark, name, "k")
    for load in range(LOADS):
        frame = random_rows(spark, load * rows // LOADS, (load + 1) * rows // LOADS, ROW_BYTES, files=8)
        frame = frame.repartitionByRange(1, "k")  # one file a load
        if loads == "sorted":
            frame = frame.sortWithinPartitions("k")
        command.append_as_is(frame, name)
    size = spark.sql(f"select sum(file_size_in_bytes), count(*) from {name}.files").first()
    with command.same_rows(spark, name):
        started = time.monotonic()
        report = recluster(spark, name, "k", depth=1, block_rows=rows // 8, final=True)
        seconds = time.monotonic() - started
    writer = clustering_history(spark, name).entries[-1].writer
    jvm, *workers = map(highest_mb, command.processes(spark))
    spark.sql(f"drop table {name} purge")
    return {
        "loads": loads,
        "writer": writer,
        "mb": size[0] // 2**20,
        "sets": sum(each.sets for each in report.rounds),
        "files_before": size[1],
        "files_after": report.blocks_after,
        "seconds": round(seconds, 1),
        "jvm_mb": jvm,
        "python_mb": sum(workers),
    }


def highest_mb(process: str) -> int:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    main()
