"""`recluster_depth: auto` beside fixed thresholds: bytes rewritten and bytes that reads waste, in one sum.

    python benchmarks/auto_depth.py --json benchmarks/results/auto_depth.json

TPC-H lineitem in 20 loads, which count as a day, with the ranges of the TPC-H queries that read it (tpch_reads.py),
each run 1 to 1,000 times a day. After each load the table is reclustered, and the bytes that the reads waste are
counted by the blocks' bounds; for the day their mean over the loads counts. The choice is made anew after every fifth
load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import command
from tpch_reads import KEY, QUERIES, of_table, start

from dbt_recluster.planner.policy import THRESHOLDS

TIMES_A_DAY = (1, 10, 100, 1000)
LOADS_OF_A_CHOICE = 5


def main() -> None:
    """Measure every threshold, and the choices."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is 6,000,000 rows")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--block-rows", type=int, default=10_000)
    options = parser.parse_args()
    with command.own_directory("auto-depth") as directory:
        figures = run(options, directory)
    print(f"{'':12}" + "".join(f"{times:>12,} a day" for times in TIMES_A_DAY))
    for name, totals in figures["megabytes"].items():
        cells = "".join(f"{total:18,.1f}" for total in totals)
        print(f"{name:12}{cells}")
    print(f"{'chosen':12}" + "".join(f"{chosen!s:>18}" for chosen in figures["chosen"]))
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return the megabytes of each threshold and of the choice, for each number of reads a day."""
    spark, source = start(options, directory)
    megabytes: dict[str, list[float]] = {}
    for threshold in THRESHOLDS:
        # The weights of all reads are equal, so how large they are makes no difference to a fixed threshold.
        rewritten, wasted, _ = load(spark, options, source, threshold, 1)
        megabytes[f"{threshold:g}"] = [(rewritten + times * wasted) / 2**20 for times in TIMES_A_DAY]
    megabytes["auto"], chosen = [], []
    for times in TIMES_A_DAY:
        rewritten, wasted, choices = load(spark, options, source, "auto", times)
        megabytes["auto"].append((rewritten + wasted) / 2**20)
        chosen.append(choices)
    return {"megabytes": megabytes, "chosen": chosen}


def predicate(table: Any, query: str) -> str:
    """Return what a query asks of the table's key: empty if it asks nothing."""
    from dbt_recluster.iceberg.predicates import Ranges

    ranges = Ranges(table.iceberg, table.columns)
    _, alternatives = ranges.of_query(query)
    return " or ".join(f"({ranges.sql({KEY: each[KEY]})})" for each in alternatives if KEY in each)


def load(
    spark: Any, options: argparse.Namespace, source: Path, depth: Any, times: float
) -> tuple[int, float, list[float]]:
    """Load a table and recluster it; return bytes rewritten, bytes wasted, and the thresholds chosen."""
    from dbt_recluster.advice.cost_model import daily_bytes, recluster_table
    from dbt_recluster.clustering.options import ReclusterOptions
    from dbt_recluster.iceberg.sort_order import TableChange
    from dbt_recluster.maintenance import ClusteredTable

    lines = spark.read.parquet(str(source / "lineitem.parquet"))
    spark.sql("drop table if exists db.t purge")
    lines.limit(0).writeTo("db.t").using("iceberg").create()
    keyed = ClusteredTable(spark, "db.t", KEY)
    TableChange(keyed.key).commit(keyed.iceberg)
    queries = [query for text in QUERIES.values() if (query := predicate(keyed, of_table("t", text)))]
    reads: Any = [{"where": query, "weight": times} for query in queries]
    last_key, rewritten, wasted, chosen = 6_000_000 * options.scale, 0, 0.0, []
    parts = max(1, round(last_key / options.loads / options.block_rows))
    for number in range(options.loads):
        low, high = (int(last_key * part / options.loads) for part in (number, number + 1))
        rows = lines.where(f"l_orderkey > {low} and l_orderkey <= {high}").repartitionByRange(parts, KEY)
        rows.sortWithinPartitions(KEY).writeTo("db.t").option("distribution-mode", "none").append()
        table = ClusteredTable(spark, "db.t", KEY)
        known = ReclusterOptions(depth=depth, block_rows=options.block_rows, reads=reads)
        rewritten += recluster_table(table, known).bytes_in
        wasted += daily_bytes(table, table.metadata()).wasted / options.loads
        if depth == "auto" and number % LOADS_OF_A_CHOICE == LOADS_OF_A_CHOICE - 1:
            recorded = json.loads(table.iceberg.properties["recluster.auto_depth"])
            chosen.append(recorded["depth"])
            table.iceberg.set_property(
                "recluster.auto_depth", json.dumps({**recorded, "at": "2020-01-01T00:00:00+00:00"})
            )
    return rewritten, wasted, chosen


if __name__ == "__main__":
    main()
