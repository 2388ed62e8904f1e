"""Our merge beside Iceberg's own rewrites of the same files: TPC-H lineitem by l_shipdate, in 8 loads.

    python benchmarks/merge.py                   # scale 1, 5 pairs: about 10 minutes on two cores
    python benchmarks/merge.py --scale 0.1 --pairs 3
    python benchmarks/merge.py --cases comet --jar ~/.m2/repository/org/apache/datafusion/.../comet-....jar

Every way reads the same files and is asked for as many blocks, in turn, in one Spark session; the table is taken back
to the last load before each. Reported are medians of the wall time, of the processor time of Spark's JVM (which other
work on the machine disturbs less) and of each pair's ratio. The case `call` is the whole call,
recluster(..., final=True, depth=1). The case `comet` is the same with Apache DataFusion Comet switched on and off, with
the same memory, part of it outside the heap for Comet; afterwards the table must have the same rows.
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
from runtime import iceberg_jar
from sessions import checksum

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.manifest_entries import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import file_group
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.session.local_spark import CLASS_PATH
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.maintenance import recluster

KEY = parse_cluster_key("l_shipdate")
LOADS = 8
COMET = {
    "spark.driver.memory": "3g",
    "spark.plugins": "org.apache.spark.CometPlugin",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "3g",
    "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    "spark.comet.enabled": "false",
    "spark.comet.exec.shuffle.enabled": "true",
    "spark.comet.scan.icebergNative.enabled": "true",
}
Way = Callable[[], object]
# What to do before each run of each way, and the ways.
Case = tuple[Way, dict[str, Way]]


def main() -> None:
    options = parse_arguments()
    data = command.ROOT / "integration_tests" / "data" / f"sf{options.scale:g}"
    source = command.tpch(data, options.scale, "lineitem") / "lineitem.parquet"
    with command.own_directory("merge") as directory:
        settings = {**COMET, CLASS_PATH: f"{iceberg_jar()}:{options.jar}"} if options.jar else {}
        memory = {"spark.driver.memory": options.memory} if options.memory else {}
        spark = embedded.start(str(directory), {**settings, **memory})
        spark.sql("create schema if not exists benchmark")
        cases = {case: run_case(spark, case, source, options.pairs) for case in options.cases}
    command.save(options, {"cores": os.cpu_count(), "system": platform.platform(), "cases": cases})


def run_case(spark: Any, case: str, source: Path, pairs: int) -> dict[str, Any]:
    """Measure and print a case; return the figures of each way."""
    description, make = CASES[case]
    print(f"\n{case}: {description}", flush=True)
    before, ways = make(spark, source)

    def measured(way: Way) -> tuple[float, float]:
        before()
        return command.timed_in_spark(spark, way)

    results = command.in_turn({name: partial(measured, way) for name, way in ways.items()}, pairs)
    took = {name: list(zip(*runs, strict=True)) for name, runs in results.items()}
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
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES)[:-1])
    parser.add_argument("--memory", help="heap of Spark's JVM; that of `method: embedded` by default")
    parser.add_argument(
        "--jar", help="of Comet for this Spark (Maven: org.apache.datafusion), for the case comet"
    )
    options = parser.parse_args()
    if ("comet" in options.cases) != bool(options.jar):
        parser.error("the case comet needs --jar, and no other case does")
    return options


def rewrites(in_order: bool, spark: Any, source: Path) -> Case:
    """Our merge of all files, Iceberg's sort and Iceberg's binpack."""
    name = f"benchmark.{'in_order' if in_order else 'as_they_came'}"
    block_rows = load(spark, name, source, in_order)
    return beside_iceberg(spark, name, partial(merge_and_commit, spark, name, block_rows))


def whole_call(spark: Any, source: Path) -> Case:
    """The whole call of recluster: load, key, check, plan, merge, commit, and the second check that ends `final`."""
    name = "benchmark.call"
    block_rows = load(spark, name, source, in_order=True)
    return beside_iceberg(spark, name, partial(call, spark, name, block_rows))


def comet(spark: Any, source: Path) -> Case:
    """The whole call with Comet and without; the rows are checked after each call but the last."""
    name = "benchmark.comet"
    block_rows = load(spark, name, source, in_order=True)
    reset, rows = from_last_load(spark, name), checksum(spark, name)

    def check_and_reset() -> None:
        if checksum(spark, name) != rows:
            raise SystemExit(f"{name}: the rows before were {rows} and are {checksum(spark, name)}")
        reset()

    def with_comet() -> None:
        spark.conf.set("spark.comet.enabled", "true")
        call(spark, name, block_rows)
        spark.conf.set("spark.comet.enabled", "false")

    return check_and_reset, {"comet": with_comet, "without": partial(call, spark, name, block_rows)}


def call(spark: Any, name: str, block_rows: int) -> None:
    """Recluster a table of 8 loads to the end."""
    result = recluster(spark, name, "l_shipdate", final=True, depth=1, block_rows=block_rows)
    assert (result.blocks_in, result.blocks_out) == (LOADS, LOADS), result


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


def merge_and_commit(spark: Any, name: str, block_rows: int) -> None:
    """Merge all files of a table as one set."""
    table = IcebergTable.load(spark, name)
    blocks = read_blocks(table, KEY)
    assert blocks.snapshot_id is not None
    paths = blocks.path.to_pylist()
    tasks = scan_tasks(table, blocks.snapshot_id, paths, bounds_of=["l_shipdate"])
    merger = Merger(table, KEY, BlockLimits(block_rows, 1 << 40))
    merged = merger.merge(blocks.snapshot_id, [file_group(tasks, paths, int(blocks.spec_id[0]), 1, 1)])
    levels = LevelChanges.of(table, blocks, replaced=np.zeros(len(blocks), dtype=bool))
    RoundCommit(table, blocks.snapshot_id, merged, levels).run()


def load(spark: Any, name: str, source: Path, in_order: bool) -> int:
    """Make the table in 8 loads of one file, each over the whole range of the key; return the rows of 8 blocks."""
    rows: int = spark.read.parquet(str(source)).count()
    block_rows = -(-rows // LOADS) + rows // 100  # room for what a sample cannot tell
    spark.sql(f"create table {name} using iceberg as select * from parquet.`{source}` limit 0")
    TableChange(KEY).commit(IcebergTable.load(spark, name))
    for number in range(LOADS):
        frame = spark.sql(
            f"select * from parquet.`{source}` where pmod(l_orderkey, {LOADS}) = {number}"
        ).repartition(1)
        frame = frame.sortWithinPartitions("l_shipdate" if in_order else "l_orderkey")
        command.append_as_is(frame, name)
    return block_rows


CASES: dict[str, tuple[str, Callable[[Any, Path], Case]]] = {
    "call": ("8 loads, each sorted by the key: the whole call of recluster", whole_call),
    "sorted": ("8 loads, each sorted by the key, into 8 blocks", partial(rewrites, True)),
    "unsorted": ("8 loads as they came, into 8 blocks", partial(rewrites, False)),
    "comet": ("as call, with Comet and without", comet),
}

if __name__ == "__main__":
    main()
