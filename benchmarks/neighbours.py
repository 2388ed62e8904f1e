"""What another writer's compaction costs a table that is reclustered after each load.

    python benchmarks/neighbours.py                          # 40 loads into seven tables: ten minutes
    python benchmarks/neighbours.py --only "left out" binpack sort       # three minutes

Tables get the same loads of random keys, and a recluster after each. After every tenth load somebody calls Iceberg's
`rewrite_data_files`. Its target is eight full blocks, as Iceberg's 512 MB are of blocks of 64 MB. A read asks for a
hundredth of the keys; `opened` are the blocks that it opens, the mean over all loads, and `rows read` the rows of the
row groups that it cannot skip at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import command
import numpy as np
import pyarrow.parquet as pq
from sessions import random_rows
from tables import local_path

from dbt_recluster.api import clustering_information, recluster

READS = 20
LOAD_ROWS, BLOCK_ROWS = 20_000, 10_000
# Loads between two calls of the neighbour.
EVERY = 10
# A row is 8 bytes of key and 32 of random payload, which nothing compresses.
ROW_BYTES = 42
# As many row groups to a block as 4 MB are of 64 MB.
ROW_GROUPS = 16


@dataclass(frozen=True)
class Arm:
    """A table, and what its neighbour does.

    Attributes:
        call: Further arguments of `rewrite_data_files`, or None if nobody calls it; sizes in bytes of a full block.
        blocks: Rows in a full block of ours, in those of the other tables.
        target: Bytes of `write.target-file-size-bytes`, in full blocks.
    """

    call: str | None
    blocks: int = 1
    target: float = 8


SORT = ", strategy => 'sort'"
ARMS = {
    "left out": Arm(None),
    "binpack": Arm(""),
    "sort": Arm(SORT),
    "binpack, min-file-size-bytes half a block": Arm(", options => map('min-file-size-bytes', '{half}')"),
    "sort, min-file-size-bytes half a block": Arm(SORT + ", options => map('min-file-size-bytes', '{half}')"),
    "our blocks as large as the target, left out": Arm(None, blocks=8, target=8.5),
    "our blocks as large as the target, binpack": Arm("", blocks=8, target=8.5),
}


def main() -> None:
    """Load, measure, print."""
    parser = command.parser(__doc__)
    parser.add_argument("--loads", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=list(ARMS), default=list(ARMS))
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with command.own_spark("neighbours") as (spark, _):
        spark.sql("create namespace db")
        for number, name in enumerate(options.only):
            figures[name] = run(spark, options.loads, f"lake.db.t{number}", ARMS[name])
            print(f"{name}: {figures[name]}", flush=True)
    command.show(("", *figures[name]), [(name, *found.values()) for name, found in figures.items()])
    command.save(options, {"tables": figures})


def run(spark: Any, loads: int, name: str, arm: Arm) -> dict[str, float]:
    """Load and recluster one table and let the neighbour call; return its figures."""
    block = ROW_BYTES * BLOCK_ROWS
    spark.sql(
        f"create table {name} (k bigint, v binary) using iceberg tblproperties ("
        f"'write.target-file-size-bytes' = '{int(arm.target * block)}', "
        f"'write.parquet.row-group-size-bytes' = '{block // ROW_GROUPS}', "
        "'write.parquet.page-row-limit' = '100', 'write.distribution-mode' = 'none')"
    )
    opened = []
    for load in range(1, loads + 1):
        append(spark, name, load)
        recluster(spark, name, "k", block_rows=arm.blocks * BLOCK_ROWS)
        if arm.call is not None and load % EVERY == 0:
            table, more = name.removeprefix("lake."), arm.call.format(half=block // 2)
            spark.sql(f"call lake.system.rewrite_data_files(table => '{table}'{more})")
        opened.append(len(read_files(spark, name, READS)) / READS)
    return {
        **rewritten(spark, name),
        "depth after": clustering_information(spark, name)["average_depth"],
        "blocks": spark.table(f"{name}.files").count(),
        "opened": float(np.mean(opened)),
        "rows read": rows_read(spark, name),
    }


def append(spark: Any, name: str, load: int) -> None:
    """Append a load of random keys, sorted inside, in files of a full block."""
    first = load * LOAD_ROWS
    rows = random_rows(spark, first, first + LOAD_ROWS, row_bytes=32, files=2)
    ordered = rows.repartitionByRange(LOAD_ROWS // BLOCK_ROWS, "k").sortWithinPartitions("k")
    command.append_as_is(ordered, name)


def rewritten(spark: Any, name: str) -> dict[str, float]:
    """Return the rows that we and the neighbour rewrote."""
    rows = spark.sql(
        "select coalesce(summary['recluster.sets'], '') != '' ours, cast(summary['added-records'] as bigint) n "
        f"from {name}.snapshots where operation = 'replace'"
    ).collect()
    return {
        "rows by us": sum(row.n for row in rows if row.ours),
        "rows by them": sum(row.n for row in rows if not row.ours),
    }


def read_files(spark: Any, name: str, reads: int) -> list[tuple[str, int, int]]:
    """Return the path, and the bounds of the read, of every file that a number of reads open."""
    found = spark.sql(
        f"select file_path p, readable_metrics.k.lower_bound l, readable_metrics.k.upper_bound u from {name}.files"
    ).collect()
    width = 2**64 // 100
    lower = [int(-(2**63) + (i + 0.5) / reads * 2**64 - width / 2) for i in range(reads)]
    return [
        (row.p, first, first + width) for first in lower for row in found if row.l <= first + width and first <= row.u
    ]


def rows_read(spark: Any, name: str) -> float:
    """Return the mean number of rows in the row groups that a read cannot skip."""
    total = 0
    for path, lower, upper in read_files(spark, name, READS):
        metadata = pq.read_metadata(local_path(path))
        for i in range(metadata.num_row_groups):
            group = metadata.row_group(i)
            statistics = group.column(0).statistics
            if statistics.min <= upper and lower <= statistics.max:
                total += group.num_rows
    return total / READS


if __name__ == "__main__":
    main()
