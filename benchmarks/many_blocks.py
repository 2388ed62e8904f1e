"""Recluster a table whose one block set has thousands of blocks.

    python benchmarks/many_blocks.py                # 5,000 blocks of 100 rows
    python benchmarks/many_blocks.py --blocks 500

Every block covers all keys, so all of them are one set. Printed is what it took; exit code 1 when a row is lost or
doubled.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import command
from sessions import checksum, of_directory, open_session

ROWS = 100
LOADS = 5


def main() -> None:
    """Make the table, recluster it and print the figures."""
    parser = command.parser(__doc__)
    parser.add_argument("--blocks", type=int, default=5000)
    options = parser.parse_args()
    with command.own_directory("blocks") as directory:
        figures = run(directory, options.blocks)
    print(
        f"{figures['sets']} set of {figures['blocks_in']} blocks into {figures['blocks_out']} "
        f"in {figures['seconds']} s, depth {figures['depth_before']} to {figures['depth_after']}"
    )
    command.save(options, figures)


def run(directory: Path, blocks: int) -> dict[str, Any]:
    """Return what reclustering so many blocks came to."""
    from dbt_recluster.maintenance import recluster

    spark = open_session(directory, of_directory())
    name = "lake.db.t"
    spark.sql(f"create table {name} (id bigint, k int, v string) using iceberg")
    for load in range(LOADS):
        spark.sql(
            f"""
            insert into {name} select /*+ repartition({blocks // LOADS}) */ id, cast(rand({load}) * 1000000 as int), 'x'
            from range({load * blocks * ROWS // LOADS}, {(load + 1) * blocks * ROWS // LOADS})
            """
        )
    before = checksum(spark, name)
    started = time.monotonic()
    report = recluster(spark, name, "k", depth=1, block_rows=blocks * ROWS // 10, final=True)
    seconds = round(time.monotonic() - started, 1)
    after = checksum(spark, name)
    spark.stop()
    if after != before:
        raise SystemExit(f"the rows before were {before} and are {after}")
    return {
        "sets": sum(each.sets for each in report.rounds),
        "blocks_in": sum(each.blocks_in for each in report.rounds),
        "blocks_out": sum(each.blocks_out for each in report.rounds),
        "seconds": seconds,
        "depth_before": report.depth_before,
        "depth_after": report.depth_after,
    }


if __name__ == "__main__":
    main()
