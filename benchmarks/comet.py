"""Our merge with Apache DataFusion Comet switched on and off, in turn, in one Spark.

    mvn dependency:get -Dartifact=org.apache.datafusion:comet-spark-spark3.5_2.12:0.12.0 -Dtransitive=false
    python benchmarks/comet.py --jar ~/.m2/repository/org/apache/datafusion/.../comet-spark-spark3.5_2.12-0.12.0.jar

TPC-H lineitem by l_shipdate in 8 sorted loads. Timed is the whole call, recluster(..., final=True, depth=1), after
which the table must have the same rows. Both ways have the same memory, part of it outside the heap for Comet.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import command
from runtime import iceberg_jar

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
    class_path = {"spark.driver.extraClassPath": f"{iceberg_jar()}:{options.jar}"}
    with command.own_spark("comet", {**SETTINGS, **class_path}) as (spark, directory):
        data = command.tpch(directory / "tpch", options.scale, "lineitem") / "lineitem.parquet"
        figures = run(spark, data, options.pairs)
    for unit in ("seconds", "processor_seconds"):
        print(f"{unit}: {figures[unit]}, Comet / without {figures[f'{unit}_ratio']}")
    command.save(options, figures)


def run(spark: Any, data: Path, pairs: int) -> dict[str, Any]:
    """Return medians by way, and of the ratios."""
    from dbt_recluster.maintenance import recluster

    lineitem = spark.read.parquet(str(data))
    lineitem.limit(0).writeTo(TABLE).using("iceberg").tableProperty(
        "write.distribution-mode", "none"
    ).create()
    for load in range(LOADS):
        rows = lineitem.where(f"l_orderkey % {LOADS} = {load}").coalesce(1).sortWithinPartitions("l_shipdate")
        rows.writeTo(TABLE).append()
    block_rows = lineitem.count() // LOADS
    spark.sql(f"alter table {TABLE} create tag loaded")

    def merge() -> None:
        report = recluster(spark, TABLE, "l_shipdate", depth=1, final=True, block_rows=block_rows)
        assert report.rounds, report

    def call(enabled: str) -> tuple[float, float]:
        with command.same_rows(spark, TABLE):
            spark.conf.set("spark.comet.enabled", enabled)
            took = command.timed_in_spark(spark, merge)
            spark.conf.set("spark.comet.enabled", "false")
        spark.sql("call lake.system.set_current_snapshot(table => 'db.t', ref => 'loaded')")
        return took

    ways = {"comet": lambda: call("true"), "without": lambda: call("false")}
    results = {name: list(zip(*pairs, strict=True)) for name, pairs in command.in_turn(ways, pairs).items()}
    figures: dict[str, Any] = {}
    for place, unit in enumerate(("seconds", "processor_seconds")):
        figures[unit] = {name: round(statistics.median(values[place]), 2) for name, values in results.items()}
        ratio = command.median_ratio(results["comet"][place], results["without"][place])
        figures[f"{unit}_ratio"] = round(ratio, 3)
    return figures


if __name__ == "__main__":
    main()
