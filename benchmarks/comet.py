"""Our merge with Apache DataFusion Comet switched on and off, in turn, in one Spark.

    mvn dependency:get -Dartifact=org.apache.datafusion:comet-spark-spark3.5_2.12:0.12.0 -Dtransitive=false
    python benchmarks/comet.py --jar ~/.m2/repository/org/apache/datafusion/.../comet-spark-spark3.5_2.12-0.12.0.jar

TPC-H lineitem by l_shipdate in 8 sorted loads. Timed is the whole call, recluster(..., final=True, depth=1), after
which the table must have the same rows. Both ways have the same memory, part of it outside the heap for Comet.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import command
from phases import processor_seconds
from runtime import iceberg_jar
from sessions import checksum, of_directory, open_session

TABLE, LOADS = "lake.db.t", 8
SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.plugins": "org.apache.spark.CometPlugin",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "3g",
    "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    "spark.comet.exec.shuffle.enabled": "true",
    "spark.comet.scan.icebergNative.enabled": "true",
}


def main() -> None:
    """Print medians of both ways, and of each pair's ratio."""
    parser = command.parser(__doc__)
    parser.add_argument("--jar", required=True, help="of Comet for this Spark")
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with command.own_directory("comet") as directory:
        data = command.tpch(directory / "tpch", options.scale, "lineitem") / "lineitem.parquet"
        class_path = {"spark.driver.extraClassPath": f"{iceberg_jar()}:{options.jar}"}
        spark = open_session(directory, of_directory(), {**SETTINGS, **class_path})
        figures = run(spark, str(data), options.pairs)
        spark.stop()
    for unit in ("seconds", "processor_seconds"):
        print(f"{unit}: {figures[unit]}, Comet / without {figures[f'{unit}_ratio']}")
    command.save(options, figures)


def run(spark: Any, data: str, pairs: int) -> dict[str, Any]:
    """Return medians by way, and of the ratios."""
    from dbt_recluster.maintenance import recluster

    lineitem = spark.read.parquet(data)
    for load in range(LOADS):
        rows = lineitem.where(f"l_orderkey % {LOADS} = {load}").coalesce(1).sortWithinPartitions("l_shipdate")
        writer = rows.writeTo(TABLE).using("iceberg").tableProperty("write.distribution-mode", "none")
        writer.create() if not load else writer.append()
    before, rows = checksum(spark, TABLE), lineitem.count()
    spark.sql(f"alter table {TABLE} create tag loaded")
    took: dict[str, list[tuple[float, float]]] = {"comet": [], "without": []}
    for _ in range(pairs + 1):
        for way, times in took.items():
            spark.conf.set("spark.comet.enabled", str(way == "comet").lower())
            began = time.monotonic(), processor_seconds(spark)
            report = recluster(spark, TABLE, "l_shipdate", depth=1, final=True, block_rows=rows // LOADS)
            times.append((time.monotonic() - began[0], processor_seconds(spark) - began[1]))
            spark.conf.set("spark.comet.enabled", "false")
            if not report.rounds or checksum(spark, TABLE) != before:
                raise SystemExit(f"{way}: {report}")
            spark.sql("call lake.system.set_current_snapshot(table => 'db.t', ref => 'loaded')")
    figures: dict[str, Any] = {}
    for place, unit in enumerate(("seconds", "processor_seconds")):
        # The JVM is not warm in the first pair.
        ways = {way: [each[place] for each in times[1:]] for way, times in took.items()}
        figures[unit] = {way: round(statistics.median(values), 2) for way, values in ways.items()}
        ratios = [comet / without for comet, without in zip(ways["comet"], ways["without"], strict=True)]
        figures[f"{unit}_ratio"] = round(statistics.median(ratios), 3)
    return figures


if __name__ == "__main__":
    main()
