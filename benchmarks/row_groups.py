"""What the size of row groups costs readers and the merge: TPC-H lineitem, and a table of 100 columns.

    python benchmarks/row_groups.py                # scale 1, 5 rounds: about half an hour on two cores
    python benchmarks/row_groups.py --scale 0.1 --rounds 3

Each table exists once for each size, with the same rows in the same sorted files. Readers run in turn over all sizes,
in one Spark session; so does a merge of eight sorted loads. Printed are medians in seconds, and their ratio to the
largest size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import command
from merge import LOADS, machine, make_source

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.maintenance import recluster
from dbt_recluster.text import size
from dbt_recluster.text import table as text_table

MEGABYTE = 2**20
SIZES = (4, 16, 64, 128)
WIDE_COLUMNS = 100


def main() -> None:
    """Make the tables, read and merge them in turn, and print the medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor")
    parser.add_argument("--wide-rows", type=int, default=1_000_000, help="rows of the table of 100 columns")
    parser.add_argument("--block-rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--merges", type=int, default=3, help="merges of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="row groups, in MB")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with command.own_directory("row-groups") as directory:
        spark = embedded.start(str(directory / "lake"))
        spark.sql("create schema b")
        figures["machine"] = machine(spark)
        for name, rows, key, point, extent in tables(spark, options):
            print(f"\n{name}: {rows.count():,} rows, {len(rows.columns)} columns", flush=True)
            figures[name] = measure(spark, options, name, rows, key, (point, extent))
            show(figures[name], options.sizes)
        spark.stop()
    command.save(options, figures)


def tables(spark: Any, options: Any) -> list[tuple[str, Any, str, str, str]]:
    """Return name, rows, key, and a predicate for a point and for a range of each table."""
    lineitem = spark.read.parquet(str(make_source(options.scale)))
    # Numbers, dates and words of few and of many values, as in the fact tables of a warehouse.
    kinds = (
        "cast(xxhash64(id, {}) as int)",
        "cast(pmod(xxhash64(id, {}), 1000) as double) / 8",
        "cast(concat('v', pmod(xxhash64(id, {}), 50)) as string)",
        "date_add(date '2020-01-01', cast(pmod(xxhash64(id, {}), 2000) as int))",
    )
    columns = [f"{kinds[i % 4].format(i)} c{i}" for i in range(WIDE_COLUMNS - 1)]
    wide = spark.range(options.wide_rows).selectExpr("pmod(xxhash64(id), 2000) k", *columns)
    return [
        (
            "lineitem",
            lineitem,
            "l_shipdate",
            "l_shipdate = date '1995-06-17'",
            "l_shipdate >= date '1995-06-01' and l_shipdate < date '1995-07-01'",
        ),
        ("wide", wide, "k", "k = 1000", "k between 1000 and 1025"),
    ]


def measure(
    spark: Any, options: Any, name: str, rows: Any, key: str, predicates: tuple[str, str]
) -> dict[str, Any]:
    """Return bytes and median seconds of each reader and of the merge, by size of row groups."""
    blocks = max(1, rows.count() // options.block_rows)
    ordered = rows.repartitionByRange(blocks, key).sortWithinPartitions(key).persist()
    for megabytes in options.sizes:
        create(spark, f"b.{name}_{megabytes}", rows, megabytes)
        append(ordered, f"b.{name}_{megabytes}")
        create(spark, f"b.{name}_loads_{megabytes}", rows, megabytes)
    ordered.unpersist()
    for load in range(LOADS):
        part = rows.where(f"pmod(xxhash64({rows.columns[1]}, {rows.columns[2]}), {LOADS}) = {load}")
        part = part.repartition(1).sortWithinPartitions(key).persist()
        for megabytes in options.sizes:
            append(part, f"b.{name}_loads_{megabytes}")
        part.unpersist()
    readers: dict[str, Callable[[Any], Any]] = {
        "all columns": lambda frame: frame,
        "one column": lambda frame: frame.select(rows.columns[5]),
        "a point": lambda frame: frame.where(predicates[0]),
        "a range": lambda frame: frame.where(predicates[1]),
    }
    seconds: dict[str, dict[int, list[float]]] = {
        reader: {megabytes: [] for megabytes in options.sizes} for reader in (*readers, "merge")
    }
    for number in range(options.rounds + 1):
        for reader, select in readers.items():
            for megabytes in options.sizes:
                took = clock(lambda: read(select(spark.table(f"b.{name}_{megabytes}"))))  # noqa: B023
                if number:  # the first round warms up
                    seconds[reader][megabytes].append(took)
    for _ in range(options.merges):
        for megabytes in options.sizes:
            seconds["merge"][megabytes].append(merge(spark, options, f"b.{name}_loads_{megabytes}", key))
    medians = {reader: {m: statistics.median(s) for m, s in by.items()} for reader, by in seconds.items()}
    stored = {m: bytes_of(spark, f"b.{name}_{m}") for m in options.sizes}
    return {"bytes": stored, "seconds": medians, "all_seconds": seconds}


def create(spark: Any, name: str, rows: Any, megabytes: int) -> None:
    """Create an empty table with row groups of this size."""
    rows.limit(0).createOrReplaceTempView("empty")
    spark.sql(
        f"create table {name} using iceberg tblproperties ('write.distribution-mode' = 'none', "
        f"'write.parquet.row-group-size-bytes' = '{megabytes * MEGABYTE}') as select * from empty"
    )


def append(rows: Any, name: str) -> None:
    """Append rows in their order."""
    rows.writeTo(name).option("use-table-distribution-and-ordering", "false").append()


def read(frame: Any) -> None:
    """Read every row and column of a frame, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def merge(spark: Any, options: Any, name: str, key: str) -> float:
    """Merge all loads of a table, take it back, and return the seconds of the merge."""
    start = spark.sql(f"select snapshot_id from {name}.refs").first()[0]
    took = clock(lambda: recluster(spark, name, key, depth=1, block_rows=options.block_rows))
    spark.sql(f"call spark_catalog.system.set_current_snapshot('{name}', {start})")
    return took


def bytes_of(spark: Any, name: str) -> int:
    """Return the bytes of a table's files."""
    return int(spark.sql(f"select sum(file_size_in_bytes) from {name}.files").first()[0])


def clock(work: Callable[[], Any]) -> float:
    """Return the seconds that something takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def show(figures: dict[str, Any], sizes: list[int]) -> None:
    """Print a line for each reader."""
    last = sizes[-1]
    lines = [
        (
            reader,
            *(f"{by[megabytes]:.2f} s ({by[megabytes] / by[last]:.2f})" for megabytes in sizes),
        )
        for reader, by in figures["seconds"].items()
    ]
    lines.append(("bytes", *(size(figures["bytes"][megabytes]) for megabytes in sizes)))
    print(text_table(("", *(f"{megabytes} MB" for megabytes in sizes)), lines), flush=True)


if __name__ == "__main__":
    main()
