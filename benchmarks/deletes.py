"""What deleted rows cost a reader, and a rewrite of their block: after how many full scans it is paid for.

    python benchmarks/deletes.py             # shares of 5 to 70 %, format version 2 and 3

A table of eight blocks of TPC-H-like rows is read as a whole with this share of each block's rows deleted by position
deletes, and again after a recluster has rewritten its blocks. `Policy.deleted_share` follows from the last column.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import command
from sessions import of_directory, open_session

from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.planner import Policy

BLOCKS = 8


def main() -> None:
    """Measure every share and print a line for each."""
    parser = command.parser(__doc__)
    parser.add_argument("--rows", type=int, default=250_000, help="of each block")
    parser.add_argument("--shares", type=int, nargs="+", default=[5, 10, 20, 30, 50, 70], help="per cent")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with command.own_directory("deletes") as directory:
        lines = run(options, directory)
    print("version  deleted  scan with deletes, s  scan after, s  saved  rewrite, s  scans that pay for it")
    for line in lines:
        saved = line["before"] - line["after"]
        pays = f"{line['rewrite'] / saved:.1f}" if saved > 0 else "never"
        print(
            f"{line['version']:7}  {line['share']:6} %  {line['before']:20.3f}  {line['after']:13.3f}  "
            f"{saved / line['before']:5.0%}  {line['rewrite']:10.2f}  {pays:>21}"
        )
    command.save(options, {"lines": lines})


def run(options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Return the seconds of each share."""
    spark = open_session(directory, of_directory())
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("create namespace if not exists db")
    measure(spark, options, 2, 50)  # warms up
    return [measure(spark, options, version, share) for version in (2, 3) for share in options.shares]


def measure(spark: Any, options: argparse.Namespace, version: int, share: int) -> dict[str, Any]:
    """Return the seconds of a scan with deletes, of the rewrite, and of a scan after it."""
    from dbt_recluster.clustering.recluster import Recluster
    from dbt_recluster.maintenance import ClusteredTable

    table = "lake.db.t"
    spark.sql(f"drop table if exists {table} purge")
    spark.sql(
        f"create table {table} (k bigint, price double, day date, comment string) using iceberg tblproperties "
        f"('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'file', "
        "'write.distribution-mode' = 'none')"
    )
    rows = BLOCKS * options.rows
    spark.range(0, rows, 1, BLOCKS).selectExpr(
        "id as k",
        "rand(1) * 1000 as price",
        "date_add(date'2026-01-01', cast(id % 365 as int)) as day",
        "concat('comment ', xxhash64(id)) as comment",
    ).writeTo(table).append()
    spark.sql(f"delete from {table} where pmod(xxhash64(k), 100) < {share}")
    before = scan(spark, table, options.rounds)

    started = time.monotonic()
    done = Recluster(ClusteredTable(spark, table, "k"), EveryDelete(block_rows=options.rows)).run()
    rewrite = time.monotonic() - started
    assert done.blocks_in == BLOCKS, done
    after = scan(spark, table, options.rounds)
    return {"version": version, "share": share, "before": before, "after": after, "rewrite": rewrite}


class EveryDelete(ReclusterOptions):
    """Options that rewrite every block with deleted rows."""

    @property
    def policy(self) -> Policy:
        """The planner's policy."""
        return Policy(block_rows=self.block_rows, deleted_share=0.001)


def scan(spark: Any, table: str, rounds: int) -> float:
    """Return the median seconds of reading every column."""
    seconds = []
    for _ in range(rounds + 1):
        started = time.monotonic()
        frame = spark.read.format("iceberg").load(table)
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
