"""Our merge beside Iceberg's own rewrites of the same files: TPC-H lineitem by l_shipdate, in 8 loads.

    python benchmarks/merge.py --pairs 3         # scale 1: half an hour on two cores
    python benchmarks/merge.py --scale 0.1 --cases sorted
    python benchmarks/merge.py --cases sorted --s3   # on a SeaweedFS, which counts requests and bytes

Every way reads the same files and is asked for as many blocks, in turn, in one Spark session; the table is taken back
to the last load before each. DuckDB alone sorts local files into one beside the table. Ours are the whole call,
recluster(..., final=True, depth=1), with the native writer and with Spark's. Reported are medians of the wall time, of
the processor time of Python, Spark's JVM and its workers (which other work on the machine disturbs less) and of each
pair's ratio, and the table's bytes after it; on S3 also the requests (a HEAD counts as GET) and all bytes that the
store sent or received, of the last run.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import command
import duckdb

from dbt_recluster.api import recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.native import SWITCH
from dbt_recluster.iceberg.session import embedded
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key

KEY = parse_cluster_key("l_shipdate")
LOADS = 8
_HASH = "abs(xxhash64(l_orderkey, l_linenumber))"


class Shape(NamedTuple):
    """A table."""

    description: str
    load: str = f"pmod(l_orderkey, {LOADS})"  # SQL of the number of a row's load
    order: str = "l_shipdate"  # of the rows in a load
    columns: str = "*"
    copies: int = 0  # of all columns
    partitioned: str = ""
    share: float = 1  # of the rows
    blocks: int = LOADS


SHAPES = {
    "sorted": Shape("8 loads, each sorted by the key"),
    "unsorted": Shape("8 loads as they came", order="l_orderkey"),
    "late": Shape(
        "8 loads in the order of the key, 10 % of the rows late",
        load=f"if({_HASH} % 10 = 0, {_HASH} % 8, datediff(l_shipdate, date '1992-01-01') div 316)",
    ),
    "sizes": Shape("8 sorted loads of eight sizes", load="floor(log2(pmod(l_orderkey, 255) + 1))"),
    "columns": Shape("8 sorted loads of 96 columns", copies=5, share=0.2),
    "sets": Shape(
        "100 partitions, each of 8 small sorted loads",
        columns="*, l_partkey % 100 as part",
        order="part, l_shipdate",
        partitioned="partitioned by (part)",
        share=0.5,
        blocks=200,
    ),
    "small": Shape("8 sorted loads of 1 MB", share=0.06),
}
WAYS = ["native", "Spark's writer", "sort", "binpack", "DuckDB"]


def main() -> None:
    options = parse_arguments()
    data = command.ROOT / "integration_tests" / "data" / f"sf{options.scale:g}"
    source = command.tpch(data, options.scale, "lineitem") / "lineitem.parquet"
    with command.own_directory("merge") as directory, ExitStack() as stack:
        settings = {"spark.driver.memory": options.memory} if options.memory else {}
        store = None
        if options.s3:
            import postgres
            import s3

            store = stack.enter_context(s3.server_or_skip(directory / "store", "s3"))
            settings |= store.settings("s3", stack.enter_context(postgres.server()))
        spark = embedded.start(str(directory / "lake"), settings)
        spark.sql(f"create schema {'lake' if store else 'spark_catalog'}.benchmark")
        cases = {case: run_case(spark, case, source, options, store) for case in options.cases}
    command.save(options, {"cores": os.cpu_count(), "system": platform.platform(), "cases": cases})


def run_case(spark: Any, case: str, source: Path, options: argparse.Namespace, store: Any) -> dict[str, Any]:
    """Measure and print a case; return the figures of each way."""
    name = f"{'lake' if store else 'spark_catalog'}.benchmark.{case}"
    print(f"\n{case}: {SHAPES[case].description}", flush=True)
    reset, ways = ways_of(spark, name, load(spark, name, source, SHAPES[case]))
    written: dict[str, int] = {}
    of_store: dict[str, dict[str, Any]] = {}

    def measured(way: str) -> tuple[float, float]:
        reset()
        before = store and (store.requests(), store.bytes())
        result = command.timed_in_spark(spark, ways[way])
        if store:
            of_store[way] = {"requests": store.requests() - before[0], "traffic": (store.bytes() - before[1]) / 1e6}
        written[way] = spark.sql(f"select sum(file_size_in_bytes) from {name}.files").first()[0]
        return result

    chosen = [way for way in ways if way in options.ways and not (store and way == "DuckDB")]
    results = command.in_turn({way: partial(measured, way) for way in chosen}, options.pairs)
    took = {name: list(zip(*runs, strict=True)) for name, runs in results.items()}
    first = next(iter(took))
    figures = {
        way: {
            "seconds": statistics.median(seconds),
            "processor_seconds": statistics.median(busy),
            "ratio": command.median_ratio(took[first][0], seconds),
            "processor_ratio": command.median_ratio(took[first][1], busy),
            "megabytes": written[way] / 1e6,
            "all_seconds": seconds,
            "all_processor_seconds": busy,
            **of_store.get(way, {}),
        }
        for way, (seconds, busy) in took.items()
    }
    units = ("seconds", "processor_seconds", "ratio", "processor_ratio", "megabytes")
    header = ("", "seconds", "processor", f"{first} / it", "by processor", "MB")
    command.show(header, [(way, *(each[unit] for unit in units)) for way, each in figures.items()])
    if store:
        rows = [(way, str(dict(each["requests"])), each["traffic"]) for way, each in figures.items()]
        command.show(("", "requests", "MB sent or received"), rows)
    return figures


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor; 1 is 6 million rows")
    parser.add_argument("--pairs", type=int, default=5, help="how often each way is run, after one to warm up")
    parser.add_argument("--cases", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="DuckDB reads local files only")
    parser.add_argument("--s3", action="store_true", help="keep the table in an object store (from Maven and PyPI)")
    parser.add_argument("--memory", help="heap of Spark's JVM; that of `method: embedded` by default")
    return parser.parse_args()


def ways_of(spark: Any, name: str, block_rows: int) -> tuple[Callable[[], object], dict[str, Callable[[], object]]]:
    """Return what takes a table back to its last load, and the ways to rewrite it."""
    system = f"{name.partition('.')[0]}.system"
    last_load = f"select max_by(snapshot_id, committed_at) from {name}.snapshots where operation = 'append'"
    snapshot_id = spark.sql(last_load).first()[0]
    size = spark.sql(f"select sum(file_size_in_bytes) from {name}.files").first()[0]

    files = [row[0] for row in spark.sql(f"select file_path from {name}.files").collect()]

    def call(native: str) -> None:
        spark.conf.set(SWITCH, native)
        result = recluster(spark, name, "l_shipdate", final=True, depth=1, block_rows=block_rows)
        assert result.depth_after <= 1, result

    def procedure(strategy: str) -> None:
        order = ", sort_order => 'l_shipdate ASC NULLS FIRST'" if strategy == "sort" else ""
        spark.sql(
            f"call {system}.rewrite_data_files(table => '{name}', strategy => '{strategy}'{order}, "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{size // LOADS}'))"
        ).collect()

    def duckdb_alone() -> None:
        with command.own_directory("duckdb") as directory, duckdb.connect(config={"threads": 2}) as connection:
            connection.execute("set enable_progress_bar = false")
            connection.execute(
                f"copy (select * from read_parquet($files) order by l_shipdate nulls first) to '{directory}/sorted' "
                "(format parquet, compression zstd)",
                {"files": [path.removeprefix("file:") for path in files]},
            )

    calls = (
        partial(call, "true"),
        partial(call, "false"),
        partial(procedure, "sort"),
        partial(procedure, "binpack"),
        duckdb_alone,
    )
    reset = partial(spark.sql, f"call {system}.set_current_snapshot('{name}', {snapshot_id})")
    return reset, dict(zip(WAYS, calls, strict=True))


def load(spark: Any, name: str, source: Path, shape: Shape) -> int:
    """Make the table in 8 loads of one file for each partition; return the rows of a block."""
    columns = spark.read.parquet(str(source)).columns
    copies = (f"{column} as {column}_{number}" for number in range(shape.copies) for column in columns)
    query = f"select {', '.join([shape.columns, *copies])} from parquet.`{source}` "
    query += f"where l_orderkey % 1000 < {1000 * shape.share}"
    rows = spark.sql(query).count()
    spark.sql(f"create table {name} using iceberg {shape.partitioned} as {query} limit 0")
    TableChange(KEY).commit(IcebergTable.load(spark, name))
    for number in range(LOADS):
        frame = spark.sql(f"{query} and {shape.load} = {number}").repartition(1)
        command.append_as_is(frame.sortWithinPartitions(*shape.order.split(", ")), name)
    return int(-(-rows // shape.blocks) + rows // shape.blocks // 12)  # room for what a sample cannot tell


if __name__ == "__main__":
    main()
