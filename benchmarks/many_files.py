"""Read the metadata of a table with 100,000 files and find that there is nothing to recluster.

    python benchmarks/many_files.py
    python benchmarks/many_files.py --files 10000
    python benchmarks/many_files.py --files 10000000 --partitions 10000 --memory 4g

The files are entries of Iceberg's metadata only, sorted and disjoint; nothing reads their rows. Printed are the times
of the first look at the table and of the one after a load of 1,000 more files, the Spark jobs, and what a file costs of
memory: in Python the highest the process stood above its start, in the JVM (which is the driver's, and here the
executor's too) the heap after garbage collection.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import command
from generated_files import GeneratedFiles

TABLE = "lake.db.t"
FILES_A_COMMIT = 100_000
LOADED = 1000


def main() -> None:
    """Make the table, read it, recluster it, print what it took."""
    parser = command.parser(__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=0, help="0 for a table without")
    parser.add_argument("--memory", default="1g", help="of the driver")
    options = parser.parse_args()
    with command.own_spark("files", {"spark.driver.memory": options.memory}) as (spark, _):
        figures = run(spark, options.files, options.partitions)
    print(
        f"{figures['files']} files: read in {figures['read_seconds']} s by {figures['jobs']} Spark jobs, nothing to "
        f"recluster found in {figures['recluster_seconds']} s, and after {LOADED} more files in "
        f"{figures['load_seconds']} s; {figures['python_bytes']} bytes a file in Python, {figures['heap_bytes']} in "
        "the JVM's heap"
    )
    command.save(options, figures)


def run(spark: Any, files: int, partitions: int = 0) -> dict[str, Any]:
    """Return the figures."""
    from dbt_recluster.api import recluster
    from dbt_recluster.iceberg.iceberg_table import IcebergTable
    from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
    from dbt_recluster.key.cluster_key import parse_cluster_key

    partitioned = "partitioned by (d)" if partitions else ""
    spark.sql(f"create table {TABLE} (k bigint, v string, d int) using iceberg {partitioned}")
    recluster(spark, TABLE, "k")
    spark.sql(f"insert into {TABLE} values (-1, 'a row', 0)")
    table, generated = IcebergTable.load(spark, TABLE), GeneratedFiles(spark)
    each = -(-files // partitions) if partitions else files
    step = max(1, FILES_A_COMMIT // each) * each if partitions else FILES_A_COMMIT
    for first in range(0, files - 1, step):
        generated.append(table.java, first // each, first, min(files - 1, first + step), each)
        table.refresh()
    table = IcebergTable.load(spark, TABLE)
    spark.sparkContext.setJobGroup("read", "read the metadata")
    heap, process = heap_bytes(spark), peak_bytes()
    started = time.monotonic()
    count = len(read_blocks(table, parse_cluster_key("k")))
    seconds = time.monotonic() - started
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup("read"))
    held = heap_bytes(spark) - heap
    started = time.monotonic()
    report = recluster(spark, TABLE, "k")
    whole = time.monotonic() - started
    if count != files or report.blocks_before != files or report.rounds:
        raise SystemExit(f"{count} blocks and not {files}; {report}")
    generated.append(table.java, 0, 2 * files, 2 * files + LOADED)
    # As after a build, which reads changed partitions only.
    load = command.timed(lambda: recluster(spark, TABLE, "k", trigger="run"))
    return {
        "files": files,
        "read_seconds": round(seconds, 2),
        "recluster_seconds": round(whole, 2),
        "load_seconds": round(load, 2),
        "jobs": jobs,
        "python_bytes": (peak_bytes() - process) // files,
        "heap_bytes": held // files,
    }


def heap_bytes(spark: Any) -> int:
    """Return what the JVM's heap holds after a collection."""
    java = spark.sparkContext._jvm.java
    java.lang.System.gc()
    return int(java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def peak_bytes() -> int:
    """Return the most memory this Python process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
