"""Our merge beside Iceberg's own rewrites of the same files: TPC-H lineitem by l_shipdate, in 8 loads.

    python benchmarks/merge.py                   # scale 1, 5 pairs: about 10 minutes on two cores
    python benchmarks/merge.py --quick           # scale 0.1, 3 pairs

Every way reads the same files and is asked for as many blocks, in turn, in one Spark session; the table is taken back
to the last load before each. Reported are medians of the wall time, of the processor time of Spark's JVM (which other
work on the machine disturbs less) and of each pair's ratio. The case `call` is the whole call,
recluster(..., final=True, depth=1), and has a table of its phases. The cases `curve` and `curve-load` compare a merge
and the sort of a load along hilbert(l_shipdate, l_partkey) with the same by the plain key of both columns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from phases import PhaseTimer, processor_seconds

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.scan import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, file_group
from dbt_recluster.iceberg.rewrite.literals import place_query
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.curve import Curve
from dbt_recluster.maintenance import recluster
from dbt_recluster.text import table as text_table

HERE = Path(__file__).resolve().parent
KEY = parse_cluster_key("l_shipdate")
PLAIN = parse_cluster_key("l_shipdate, l_partkey")
CURVE = parse_cluster_key("hilbert(l_shipdate, l_partkey)")
LOADS = 8
LOADED = "benchmark.loaded"  # a property of a table that has all loads
Way = Callable[[], None]
# What to do before each run of each way, and the ways.
Case = tuple[Way, dict[str, Way]]


def main() -> None:
    options = parse_arguments()
    lake = Path(options.lake or tempfile.mkdtemp(prefix="recluster-benchmark-"))
    source = make_source(options.scale)
    spark = embedded.start(str(lake), {"spark.driver.memory": options.memory} if options.memory else {})
    spark.sql("create schema if not exists benchmark")
    figures: dict[str, Any] = {"command": " ".join(sys.argv), "machine": machine(spark), "cases": {}}
    for case in options.cases:
        print(f"\n{case}: {DESCRIPTIONS[case]}", flush=True)
        options.timer = None
        before, ways = CASES[case](spark, source, options)
        measured = measure(spark, before, ways, options.pairs)
        figures["cases"][case] = measured
        show(measured)
        if options.timer is not None:
            phases = options.timer.medians()
            figures["cases"][case]["phases"] = {name: [seconds, busy] for name, seconds, busy in phases}
            print(
                text_table(
                    ("phase", "seconds", "processor"), [(n, f"{a:.2f}", f"{b:.2f}") for n, a, b in phases]
                )
            )
    path = Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n")
    if not options.lake:
        shutil.rmtree(lake, ignore_errors=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, help="TPC-H scale factor; 1 is 6 million rows")
    parser.add_argument("--pairs", type=int, help="how often each way is run, after one run to warm up")
    parser.add_argument("--quick", action="store_true", help="scale 0.1 and 3 pairs")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--row-group-bytes", type=int, help="instead of what the cluster key sets")
    parser.add_argument("--lake", help="directory of tables, made once; a temporary one by default")
    parser.add_argument("--memory", help="heap of Spark's JVM; that of `method: embedded` by default")
    parser.add_argument("--json", help="where the figures go; benchmarks/results by default")
    options = parser.parse_args()
    options.scale = options.scale or (0.1 if options.quick else 1)
    options.pairs = options.pairs or (3 if options.quick else 5)
    options.json = options.json or HERE / "results" / f"merge-sf{options.scale:g}.json"
    return options


def make_source(scale: float) -> Path:
    """Return TPC-H's lineitem as a Parquet file, made on the first call."""
    directory = HERE.parent / "integration_tests" / "data" / f"sf{scale:g}"
    path = directory / "lineitem.parquet"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        generator = Path(sys.executable).with_name("tpchgen-cli")
        arguments = ["parquet", "-s", f"{scale:g}", "--tables", "lineitem", "--output-dir", str(directory)]
        subprocess.run([generator, *arguments], check=True, capture_output=True)
    return path


def rewrites(spark: Any, source: Path, options: argparse.Namespace, in_order: bool) -> Case:
    """Our merge of all files, Iceberg's sort and Iceberg's binpack."""
    name = f"benchmark.{'in_order' if in_order else 'as_they_came'}"
    block_rows = load(spark, name, source, options, in_order)

    def ours() -> None:
        merge_and_commit(spark, name, [None], block_rows)

    return beside_iceberg(spark, name, ours)


def whole_call(spark: Any, source: Path, options: argparse.Namespace) -> Case:
    """The whole call of recluster: load, key, check, plan, merge, commit, and the second check that ends `final`."""
    name = "benchmark.call"
    block_rows = load(spark, name, source, options, in_order=True)
    timer = options.timer = PhaseTimer(spark)

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


def many_sets(spark: Any, source: Path, options: argparse.Namespace) -> Case:
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


def along_a_curve(spark: Any, source: Path, _: argparse.Namespace) -> Case:
    """Our merge of loads sorted along a curve, and of loads sorted by the plain key of the same columns."""
    curve = make_curve(source)
    block_rows = -(-spark.read.parquet(str(source)).count() // LOADS)
    ways: dict[str, Way] = {}
    for name, key in (("curve", CURVE), ("plain", PLAIN)):
        table = f"benchmark.along_{name}"
        spark.sql(f"drop table if exists {table}")
        spark.sql(f"create table {table} using iceberg as select * from parquet.`{source}` limit 0")
        TableChange(PLAIN).commit(IcebergTable.load(spark, table))
        for number in range(LOADS):
            rows = f"select * from parquet.`{source}` where pmod(l_orderkey, {LOADS}) = {number}"
            frame = spark.sql(place_query(rows, curve, CURVE, TYPES, "place")).repartition(1)
            order = ["place", "l_shipdate", "l_partkey"] if name == "curve" else ["l_shipdate", "l_partkey"]
            columns = spark.table(table).columns
            frame.sortWithinPartitions(*order).select(*columns).writeTo(table).option(
                "use-table-distribution-and-ordering", "false"
            ).append()

        def merge(table: str = table, key: ClusterKey = key) -> None:
            merge_and_commit(spark, table, [None], block_rows, key, curve if key.curve else None)

        ways[name] = merge
    return from_last_load(spark, *(f"benchmark.along_{name}" for name in ways)), ways


def load_along_a_curve(spark: Any, source: Path, _: argparse.Namespace) -> Case:
    """The sort of a load along a curve, and by the plain key of the same columns."""
    rows = f"select * from parquet.`{source}`"
    columns = ", ".join(spark.sql(rows).columns)
    placed = place_query(rows, make_curve(source), CURVE, TYPES, "place")
    queries = {
        "curve": f"select {columns} from ({placed}) order by place, l_shipdate, l_partkey",
        "plain": f"select * from ({rows}) order by l_shipdate, l_partkey",
    }

    def way(name: str, query: str) -> Way:
        return lambda: spark.sql(
            f"create or replace table benchmark.load_{name} using iceberg as {query}"
        ).collect()

    return lambda: None, {name: way(name, query) for name, query in queries.items()}


def writer_settings(spark: Any, source: Path, options: argparse.Namespace) -> Case:
    """Our merge by other settings of Parquet's writer: smaller dictionaries, faster compression."""
    name = "benchmark.settings"
    block_rows = load(spark, name, source, options, in_order=True)
    limit, level = "write.parquet.dict-size-bytes", "write.parquet.compression-level"
    sizes: dict[str, int] = {}

    def way(label: str, settings: dict[str, int]) -> Way:
        def merge() -> None:
            texts = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
            spark.sql(f"alter table {name} unset tblproperties if exists ('{limit}', '{level}')")
            if settings:
                spark.sql(f"alter table {name} set tblproperties ({texts})")
            merge_and_commit(spark, name, [None], block_rows)
            if label not in sizes:
                query = f"select sum(file_size_in_bytes) from {name}.files"
                sizes[label] = spark.sql(query).first()[0]
                print(f"{label}: {sizes[label]:,} bytes written", flush=True)

        return merge

    ways = {
        "as they are": {},
        "dictionaries up to 128 KB": {limit: 128 << 10},
        "dictionaries up to 64 KB": {limit: 64 << 10},
        "zstd level 2": {level: 2},
        "zstd level 1": {level: 1},
    }
    return from_last_load(spark, name), {label: way(label, settings) for label, settings in ways.items()}


TYPES = {"l_shipdate": "date", "l_partkey": "bigint"}


def make_curve(source: Path) -> Curve:
    """Return a curve over equal shares of a sample."""
    rows = pq.read_table(source, columns=["l_shipdate", "l_partkey"]).combine_chunks()
    sample = rows.take(pa.array(np.arange(0, len(rows), max(1, len(rows) // 20_000))))
    curve = Curve.of([column.combine_chunks() for column in sample.columns])
    assert curve is not None
    return curve


def merge_and_commit(
    spark: Any,
    name: str,
    rounds: list[int | None],
    block_rows: int,
    key: ClusterKey = KEY,
    curve: Curve | None = None,
) -> None:
    """Merge each partition of a table as a set: all in one round (None), or some, each in a round of its own."""
    table = IcebergTable.load(spark, name)
    blocks = read_blocks(table, key)
    assert blocks.snapshot_id is not None
    columns = [field.column for field in key.fields]
    tasks = scan_tasks(table, blocks.snapshot_id, blocks.path.to_pylist(), bounds_of=columns)

    def one_set(code: int) -> FileGroup:
        own = blocks.take(blocks.partition == code)
        return file_group(tasks, own.path.to_pylist(), int(own.spec_id[0]), 1, 1)

    codes = np.unique(blocks.partition).tolist()
    for number in rounds:
        sets = [one_set(code) for code in (codes if number is None else codes[number : number + 1])]
        table.refresh()
        merger = Merger(table, key, BlockLimits(block_rows, 1 << 40), curve=curve)
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


def machine(spark: Any) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "spark": spark.version,
        "load_average": os.getloadavg()[0],
    }


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


CASES: dict[str, Callable[[Any, Path, argparse.Namespace], Case]] = {
    "call": whole_call,
    "sorted": lambda spark, source, options: rewrites(spark, source, options, in_order=True),
    "unsorted": lambda spark, source, options: rewrites(spark, source, options, in_order=False),
    "many-sets": many_sets,
    "curve": along_a_curve,
    "curve-load": load_along_a_curve,
    "settings": writer_settings,
}
DESCRIPTIONS = {
    "call": "8 loads, each sorted by the key: the whole call of recluster",
    "sorted": "8 loads, each sorted by the key, into 8 blocks",
    "unsorted": "8 loads as they came, into 8 blocks",
    "many-sets": "50 sets of 4 blocks, into 4 blocks each",
    "curve": "8 loads, each sorted along hilbert(l_shipdate, l_partkey) or by its columns, into blocks",
    "curve-load": "a load of all rows, sorted likewise",
    "settings": "8 loads, each sorted by the key: our merge by settings of Parquet's writer",
}

if __name__ == "__main__":
    main()
