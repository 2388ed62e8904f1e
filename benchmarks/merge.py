"""Our merge beside Iceberg's own rewrites of the same files: TPC-H lineitem by l_shipdate, in 8 loads.

    python benchmarks/merge.py                   # scale 1, 5 pairs: about 10 minutes on two cores
    python benchmarks/merge.py --scale 0.1 --pairs 3

Every way reads the same files and is asked for as many blocks, in turn, in one Spark session; the table is taken back
to the last load before each. Reported are medians of the wall time, of the processor time of Spark's JVM (which other
work on the machine disturbs less) and of each pair's ratio. The case `call` is the whole call,
recluster(..., final=True, depth=1).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import command
import numpy as np

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.scan import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, file_group
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.maintenance import recluster

KEY = parse_cluster_key("l_shipdate")
LOADS = 8
Way = Callable[[], object]
# What to do before each run of each way, and the ways.
Case = tuple[Way, dict[str, Way]]


def main() -> None:
    options = parse_arguments()
    data = command.ROOT / "integration_tests" / "data" / f"sf{options.scale:g}"
    source = command.tpch(data, options.scale, "lineitem") / "lineitem.parquet"
    with command.own_directory("merge") as directory:
        memory = {"spark.driver.memory": options.memory} if options.memory else {}
        spark = embedded.start(str(directory), memory)
        spark.sql("create schema if not exists benchmark")
        cases = {case: run_case(spark, case, source, options) for case in options.cases}
    command.save(options, {"cores": os.cpu_count(), "system": platform.platform(), "cases": cases})


def run_case(spark: Any, case: str, source: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a case; return the figures of each way."""
    description, make = CASES[case]
    print(f"\n{case}: {description}", flush=True)
    before, ways = make(spark, source, options)

    def measured(way: Way) -> tuple[float, float]:
        before()
        return command.timed_in_spark(spark, way)

    results = command.in_turn({name: partial(measured, way) for name, way in ways.items()}, options.pairs)
    took = {name: list(zip(*pairs, strict=True)) for name, pairs in results.items()}
    first = next(iter(took))
    figures = {
        name: {
            "seconds": statistics.median(seconds),
            "processor_seconds": statistics.median(busy),
            "ratio": command.median_ratio(took[first][0], seconds),
            "processor_ratio": command.median_ratio(took[first][1], busy),
            "all_seconds": seconds,
            "all_processor_seconds": busy,
        }
        for name, (seconds, busy) in took.items()
    }
    units = ("seconds", "processor_seconds", "ratio", "processor_ratio")
    header = ("", "seconds", "processor", f"{first} / it", "by processor")
    command.show(header, [(name, *(each[unit] for unit in units)) for name, each in figures.items()])
    return figures


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor; 1 is 6 million rows")
    parser.add_argument(
        "--pairs", type=int, default=5, help="how often each way is run, after one to warm up"
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--row-group-bytes", type=int, help="instead of what the cluster key sets")
    parser.add_argument("--memory", help="heap of Spark's JVM; that of `method: embedded` by default")
    return parser.parse_args()


def rewrites(in_order: bool, spark: Any, source: Path, options: argparse.Namespace) -> Case:
    """Our merge of all files, Iceberg's sort and Iceberg's binpack."""
    name = f"benchmark.{'in_order' if in_order else 'as_they_came'}"
    block_rows = load(spark, name, source, options, in_order)
    return beside_iceberg(spark, name, partial(merge_and_commit, spark, name, [None], block_rows))


def whole_call(spark: Any, source: Path, options: argparse.Namespace) -> Case:
    """The whole call of recluster: load, key, check, plan, merge, commit, and the second check that ends `final`."""
    name = "benchmark.call"
    block_rows = load(spark, name, source, options, in_order=True)

    def ours() -> None:
        result = recluster(spark, name, "l_shipdate", final=True, depth=1, block_rows=block_rows)
        assert (result.blocks_in, result.blocks_out) == (LOADS, LOADS), result

    return beside_iceberg(spark, name, ours)


def beside_iceberg(spark: Any, name: str, ours: Way) -> Case:
    """Return ``ours`` and Iceberg's sort and binpack of the same table, each from its last load."""
    reset = from_last_load(spark, name)
    reset()
    size = spark.sql(f"select sum(file_size_in_bytes) from {name}.files").first()[0]

    def procedure(strategy: str) -> Way:
        order = ", sort_order => 'l_shipdate ASC NULLS FIRST'" if strategy == "sort" else ""
        call = (
            f"call system.rewrite_data_files(table => '{name}', strategy => '{strategy}'{order}, "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{size // LOADS}'))"
        )
        return lambda: spark.sql(call).collect()

    return reset, {"ours": ours, "sort": procedure("sort"), "binpack": procedure("binpack")}


def from_last_load(spark: Any, name: str) -> Way:
    """Return what takes a table back to its last load."""
    last_load = f"select max_by(snapshot_id, committed_at) from {name}.snapshots where operation = 'append'"
    snapshot_id = spark.sql(last_load).first()[0]
    return lambda: spark.sql(f"call system.set_current_snapshot('{name}', {snapshot_id})")


def many_sets(spark: Any, source: Path, options: argparse.Namespace) -> Case:
    """50 sets of 4 blocks each: in one round, and one after the other."""
    name = "benchmark.many_sets"
    spark.sql(
        f"create table {name} using iceberg partitioned by (part) as select *, 0 part from parquet.`{source}` limit 0"
    )
    TableChange(KEY).commit(IcebergTable.load(spark, name))
    every = max(1, round(100 * options.scale))  # some 60,000 rows in all, whatever the scale
    for _ in range(4):
        frame = spark.sql(f"select *, cast(pmod(l_orderkey, 50) as int) part from parquet.`{source}`")
        frame = frame.where(f"pmod(xxhash64(l_orderkey, l_linenumber), {every}) = 0")
        frame = frame.repartition(4, "part").sortWithinPartitions("part", "l_shipdate")
        command.append_as_is(frame, name)
    block_rows = spark.table(name).count() // 200 + 100

    rounds: dict[str, list[int | None]] = {"one round": [None], "one by one": list(range(50))}
    return from_last_load(spark, name), {
        label: partial(merge_and_commit, spark, name, sets, block_rows) for label, sets in rounds.items()
    }


def merge_and_commit(spark: Any, name: str, rounds: list[int | None], block_rows: int) -> None:
    """Merge each partition of a table as a set: all in one round (None), or some, each in a round of its own."""
    table = IcebergTable.load(spark, name)
    blocks = read_blocks(table, KEY)
    assert blocks.snapshot_id is not None
    tasks = scan_tasks(table, blocks.snapshot_id, blocks.path.to_pylist(), bounds_of=["l_shipdate"])

    def one_set(code: int) -> FileGroup:
        own = blocks.take(blocks.partition == code)
        return file_group(tasks, own.path.to_pylist(), int(own.spec_id[0]), 1, 1)

    codes = np.unique(blocks.partition).tolist()
    for number in rounds:
        sets = [one_set(code) for code in (codes if number is None else codes[number : number + 1])]
        table.refresh()
        merger = Merger(table, KEY, BlockLimits(block_rows, 1 << 40))
        merged = merger.merge(blocks.snapshot_id, sets)
        levels = LevelChanges.of(table, blocks, replaced=np.zeros(len(blocks), dtype=bool))
        RoundCommit(table, blocks.snapshot_id, merged, levels).run()


def load(spark: Any, name: str, source: Path, options: argparse.Namespace, in_order: bool) -> int:
    """Make the table in 8 loads of one file, each over the whole range of the key; return the rows of 8 blocks."""
    rows: int = spark.read.parquet(str(source)).count()
    block_rows = -(-rows // LOADS) + rows // 100  # room for what a sample cannot tell
    spark.sql(f"create table {name} using iceberg as select * from parquet.`{source}` limit 0")
    if options.row_group_bytes:
        size = f"'write.parquet.row-group-size-bytes' = '{options.row_group_bytes}'"
        spark.sql(f"alter table {name} set tblproperties ({size})")
    TableChange(KEY).commit(IcebergTable.load(spark, name))
    for number in range(LOADS):
        frame = spark.sql(
            f"select * from parquet.`{source}` where pmod(l_orderkey, {LOADS}) = {number}"
        ).repartition(1)
        frame = frame.sortWithinPartitions("l_shipdate" if in_order else "l_orderkey")
        command.append_as_is(frame, name)
    return block_rows


CASES: dict[str, tuple[str, Callable[[Any, Path, argparse.Namespace], Case]]] = {
    "call": ("8 loads, each sorted by the key: the whole call of recluster", whole_call),
    "sorted": ("8 loads, each sorted by the key, into 8 blocks", partial(rewrites, True)),
    "unsorted": ("8 loads as they came, into 8 blocks", partial(rewrites, False)),
    "many-sets": ("50 sets of 4 blocks, into 4 blocks each", many_sets),
}

if __name__ == "__main__":
    main()
