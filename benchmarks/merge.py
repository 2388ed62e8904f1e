"""Our merge beside Iceberg's own rewrites of the same files: TPC-H lineitem by l_shipdate, in 8 loads.

    python benchmarks/merge.py                   # scale 1, 5 pairs: about 10 minutes on two cores
    python benchmarks/merge.py --quick           # scale 0.1, 3 pairs

Every way reads the same files and is asked for as many blocks, in turn, in one Spark session; the table is taken back
to the last load before each. Reported are medians of the wall time, of the processor time of Spark's JVM (which other
work on the machine disturbs less) and of each pair's ratio. The case `call` is the whole call,
recluster(..., final=True, depth=1), and has a table of its phases.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import command
import numpy as np
from phases import PhaseTimer, processor_seconds

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
from dbt_recluster.text import table as text_table

KEY = parse_cluster_key("l_shipdate")
LOADS = 8
LOADED = "benchmark.loaded"  # a property of a table that has all loads
Way = Callable[[], None]
# What to do before each run of each way, and the ways.
Case = tuple[Way, dict[str, Way]]


def main() -> None:
    options = parse_arguments()
    data = command.ROOT / "integration_tests" / "data" / f"sf{options.scale:g}"
    source = command.tpch(data, options.scale, "lineitem") / "lineitem.parquet"
    with command.own_directory("merge") as directory:
        memory = {"spark.driver.memory": options.memory} if options.memory else {}
        spark = embedded.start(options.lake or str(directory), memory)
        spark.sql("create schema if not exists benchmark")
        cases = {case: run_case(spark, case, source, options) for case in options.cases}
    command.save(options, {"cores": os.cpu_count(), "system": platform.platform(), "cases": cases})


def run_case(spark: Any, case: str, source: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a case; return its figures."""
    print(f"\n{case}: {DESCRIPTIONS[case]}", flush=True)
    timer = PhaseTimer(spark)
    before, ways = CASES[case](spark, source, options, timer)
    measured = measure(spark, before, ways, options.pairs)
    show(measured)
    if phases := timer.medians():
        measured["phases"] = {name: [seconds, busy] for name, seconds, busy in phases}
        rows = [(name, f"{seconds:.2f}", f"{busy:.2f}") for name, seconds, busy in phases]
        print(text_table(("phase", "seconds", "processor"), rows))
    return measured


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, help="TPC-H scale factor; 1 is 6 million rows")
    parser.add_argument("--pairs", type=int, help="how often each way is run, after one run to warm up")
    parser.add_argument("--quick", action="store_true", help="scale 0.1 and 3 pairs")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--row-group-bytes", type=int, help="instead of what the cluster key sets")
    parser.add_argument("--lake", help="directory of tables, made once; a temporary one by default")
    parser.add_argument("--memory", help="heap of Spark's JVM; that of `method: embedded` by default")
    options = parser.parse_args()
    options.scale = options.scale or (0.1 if options.quick else 1)
    options.pairs = options.pairs or (3 if options.quick else 5)
    return options


def rewrites(in_order: bool, spark: Any, source: Path, options: argparse.Namespace, _: PhaseTimer) -> Case:
    """Our merge of all files, Iceberg's sort and Iceberg's binpack."""
    name = f"benchmark.{'in_order' if in_order else 'as_they_came'}"
    block_rows = load(spark, name, source, options, in_order)

    def ours() -> None:
        merge_and_commit(spark, name, [None], block_rows)

    return beside_iceberg(spark, name, ours)


def whole_call(spark: Any, source: Path, options: argparse.Namespace, timer: PhaseTimer) -> Case:
    """The whole call of recluster: load, key, check, plan, merge, commit, and the second check that ends `final`."""
    name = "benchmark.call"
    block_rows = load(spark, name, source, options, in_order=True)

    def ours() -> None:
        with timer.call():
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


def from_last_load(spark: Any, *names: str) -> Way:
    """Return what takes tables back to their last load."""
    last_load = "select max_by(snapshot_id, committed_at) from {}.snapshots where operation = 'append'"
    loads = {name: spark.sql(last_load.format(name)).first()[0] for name in names}

    def reset() -> None:
        for name, snapshot_id in loads.items():
            spark.sql(f"call system.set_current_snapshot('{name}', {snapshot_id})")

    return reset


def many_sets(spark: Any, source: Path, options: argparse.Namespace, _: PhaseTimer) -> Case:
    """50 sets of 4 blocks each: in one round, and one after the other."""
    name = "benchmark.many_sets"
    spark.sql(f"drop table if exists {name}")
    spark.sql(
        f"create table {name} using iceberg partitioned by (part) as select *, 0 part from parquet.`{source}` limit 0"
    )
    TableChange(KEY).commit(IcebergTable.load(spark, name))
    every = max(1, round(100 * options.scale))  # some 60,000 rows in all, whatever the scale
    for _ in range(4):
        frame = spark.sql(f"select *, cast(pmod(l_orderkey, 50) as int) part from parquet.`{source}`")
        frame = frame.where(f"pmod(xxhash64(l_orderkey, l_linenumber), {every}) = 0")
        frame.repartition(4, "part").sortWithinPartitions("part", "l_shipdate").writeTo(name).option(
            "use-table-distribution-and-ordering", "false"
        ).append()
    block_rows = spark.table(name).count() // 200 + 100

    def one_round() -> None:
        merge_and_commit(spark, name, [None], block_rows)

    def one_by_one() -> None:
        merge_and_commit(spark, name, list(range(50)), block_rows)

    return from_last_load(spark, name), {"one round": one_round, "one by one": one_by_one}


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
    if spark.catalog.tableExists(name) and LOADED in IcebergTable.load(spark, name).properties:
        return block_rows
    spark.sql(f"drop table if exists {name}")
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
        frame.writeTo(name).option("use-table-distribution-and-ordering", "false").append()
    spark.sql(f"alter table {name} set tblproperties ('{LOADED}' = 'true')")
    return block_rows


def measure(spark: Any, before: Way, ways: dict[str, Way], pairs: int) -> dict[str, Any]:
    """Run the ways in turn, each after ``before``: once to warm up, then ``pairs`` times."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(pairs + 1):
        for name, way in ways.items():
            before()
            busy, started = processor_seconds(spark), time.monotonic()
            way()
            if number:
                seconds[name].append(time.monotonic() - started)
                processor[name].append(processor_seconds(spark) - busy)
    first = next(iter(ways))
    return {
        name: {
            "seconds": statistics.median(seconds[name]),
            "processor_seconds": statistics.median(processor[name]),
            "ratio": ratio(seconds[first], seconds[name]),
            "processor_ratio": ratio(processor[first], processor[name]),
            "all_seconds": seconds[name],
            "all_processor_seconds": processor[name],
        }
        for name in ways
    }


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median of the pairs' ratios."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def show(measured: dict[str, Any]) -> None:
    """Print one line a way."""
    first = next(iter(measured))
    rows = [
        (
            name,
            f"{each['seconds']:.2f}",
            f"{each['processor_seconds']:.2f}",
            f"{each['ratio']:.2f}",
            f"{each['processor_ratio']:.2f}",
        )
        for name, each in measured.items()
    ]
    print(text_table(("", "seconds", "processor", f"{first} / it", "by processor"), rows), flush=True)


CASES: dict[str, Callable[[Any, Path, argparse.Namespace, PhaseTimer], Case]] = {
    "call": whole_call,
    "sorted": partial(rewrites, True),
    "unsorted": partial(rewrites, False),
    "many-sets": many_sets,
}
DESCRIPTIONS = {
    "call": "8 loads, each sorted by the key: the whole call of recluster",
    "sorted": "8 loads, each sorted by the key, into 8 blocks",
    "unsorted": "8 loads as they came, into 8 blocks",
    "many-sets": "50 sets of 4 blocks, into 4 blocks each",
}

if __name__ == "__main__":
    main()
