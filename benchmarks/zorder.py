"""TPC-H lineitem in loads under a key of equal weight: blocks opened and rows rewritten, against Iceberg's z-order.

    python benchmarks/zorder.py --scale 1 --loads 20                                  # by ship date and part
    python benchmarks/zorder.py --scale 1 --loads 20 --key l_orderkey,l_suppkey

Every table gets the same loads: reclustered along the curve at depth 4 and 2, reclustered by the plain key in both
orders, z-ordered as a whole after each load (Iceberg's rewrite_data_files), and sorted along the curve once at the end.
Points are values of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted by
the bounds of the blocks, after each load. At the end, queries by each column are timed, alternating.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa

QUERIES = 200
TIMED = 8


def main() -> None:
    """Load, recluster and read, and print a table."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 6,000,000 rows")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--block-rows", type=int, default=20_000)
    parser.add_argument("--key", default="l_shipdate,l_partkey")
    parser.add_argument("--only", nargs="*", help="kinds of tables")
    options = parser.parse_args()
    with command.own_directory("zorder") as directory:
        figures = run(options, directory)
    first, second = options.key.split(",")
    print(
        f"{'':14}  rewritten  {first:>12}  {second:>12}  a point, mean    a box  blocks  seconds  queries, s"
    )
    for kind, f in figures["tables"].items():
        a, b, box = f["opened"]
        print(
            f"{kind:14}  {f['rewritten']:9.2f}  {a:12.1f}  {b:12.1f}  {(a + b) / 2:13.1f}  {box:7.2f}  {f['blocks']:6}"
            f"  {f['seconds']:7.1f}  {' / '.join(f'{s:.2f}' for s in f['query_seconds'])}"
            f" of {' / '.join(f'{size / 1e6:.0f}' for size in f['query_bytes'])} MB"
        )
    print(
        f"ideal: {figures['ideal']:.1f} for a point of one of two columns, square root of the blocks at the end"
    )
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return the figures of every table."""
    from dbt_recluster.adapter.connections import embedded
    from dbt_recluster.iceberg.session.jvm import collect_arrow

    source = directory / "tpch"
    generator = Path(sys.executable).with_name("tpchgen-cli")
    made = [str(generator), "parquet", "-s", f"{options.scale:g}", "--tables", "lineitem"]
    subprocess.run([*made, "--output-dir", str(source)], check=True, capture_output=True)
    spark = embedded.start(str(directory / "lake"), {"spark.driver.memory": "4g"})
    spark.sql("create schema if not exists db")
    lines = spark.read.parquet(str(source / "lineitem.parquet"))
    names = options.key.split(",")
    rows = collect_arrow(lines.select(*names).sample(0.05, seed=0))
    kinds: dict[str, tuple[str, float | None]] = {
        "hilbert 4": (f"hilbert({', '.join(names)})", 4),
        "hilbert 2": (f"hilbert({', '.join(names)})", 2),
        "plain 4": (", ".join(names), 4),
        "plain 4, other": (", ".join(reversed(names)), 4),
        "z-order": ("zorder", None),
        "hilbert at end": (f"hilbert({', '.join(names)})", None),
    }
    tables: dict[str, Any] = {}
    for kind, (key, depth) in kinds.items():
        if not options.only or kind in options.only:
            number = len(tables)
            print(f"{kind}...", file=sys.stderr, flush=True)
            tables[kind] = load(spark, f"db.t{number}", key, depth, lines, rows, options) | {
                "name": f"db.t{number}"
            }
    times: dict[str, list[list[float]]] = {kind: [[], []] for kind in tables}
    for number in range(TIMED):
        for place, name in enumerate(names):
            value = rows[name][number * 1_000 % len(rows)].as_py()
            for kind in tables:
                started = time.monotonic()
                where = f"{name} = '{value}'" if not isinstance(value, int) else f"{name} = {value}"
                spark.sql(f"select sum(l_extendedprice) from {tables[kind]['name']} where {where}").collect()
                times[kind][place].append(time.monotonic() - started)
    for kind, table in tables.items():
        table["query_seconds"] = [round(statistics.median(seconds[2:]), 3) for seconds in times[kind]]
    blocks = statistics.mean(table["blocks"] for table in tables.values())
    return {"tables": tables, "ideal": blocks**0.5}


def load(
    spark: Any,
    table: str,
    key: str,
    depth: float | None,
    lines: Any,
    rows: pa.Table,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Load a table and keep it as its kind says; return its figures."""
    from dbt_recluster.maintenance import recluster

    names = options.key.split(",")
    last_key = 6_000_000 * options.scale
    lines.limit(0).writeTo(table).using("iceberg").create()
    seconds, growth, opened = 0.0, 1.0, []
    parts = max(1, round(6_000_000 * options.scale / options.loads / options.block_rows))
    for number in range(options.loads):
        low, high = (int(last_key * part / options.loads) for part in (number, number + 1))
        frame = lines.where(f"l_orderkey > {low} and l_orderkey <= {high}")
        started = time.monotonic()
        arriving(spark, table, key, frame, parts).writeTo(table).option("distribution-mode", "none").append()
        if key == "zorder":
            growth = zorder(spark, table, names, options.block_rows, growth)
        elif depth is not None:
            recluster(spark, table, key, depth=depth, block_rows=options.block_rows, trigger="run")
        elif number == options.loads - 1:
            recluster(spark, table, key, depth=1, block_rows=options.block_rows, final=True)
        seconds += time.monotonic() - started
        opened.append(blocks_opened(spark, table, names, rows))
    rewritten, count, blocks, size = spark.sql(
        f"select coalesce(sum(if(operation = 'replace', cast(summary['deleted-records'] as bigint), 0)), 0), "
        f"(select count(*) from {table}), (select count(*) from {table}.files), "
        f"(select avg(file_size_in_bytes) from {table}.files) from {table}.snapshots"
    ).first()
    figures = (
        opened[-1] if "at end" in key or (depth is None and key != "zorder") else np.mean(opened, axis=0)
    )
    return {
        "rewritten": round(rewritten / count, 3),
        "opened": figures.tolist(),
        "last": opened[-1].tolist(),
        "blocks": blocks,
        "seconds": round(seconds, 1),
        "query_bytes": (opened[-1][:2] * size).tolist(),
    }


def arriving(spark: Any, table: str, key: str, frame: Any, parts: int) -> Any:
    """Return a load as our adapter writes it: sorted by the key, as far as the table knows how."""
    from dataclasses import replace

    from pyspark.sql import functions as F

    from dbt_recluster.iceberg.rewrite.keyed_rows import KeyedRows
    from dbt_recluster.maintenance import ClusteredTable

    if key == "zorder":
        return frame.repartition(parts)
    clustered = ClusteredTable(spark, table, key)
    if clustered.key.curve and clustered.curve is None:
        return frame.repartition(parts)
    rows = KeyedRows.of(spark, frame, clustered.key, clustered.curve)
    frame = rows.frame.repartitionByRange(parts, *map(F.expr, rows.names))
    return replace(rows, frame=frame).to_write()


def zorder(spark: Any, table: str, names: list[str], block_rows: int, growth: float) -> float:
    """Z-order a table as a whole with Iceberg's procedure; return by how much its files are to be larger next time.

    Iceberg counts what Parquet has not compressed yet, so its small files are smaller than asked for.
    """
    size = spark.sql(f"select sum(file_size_in_bytes) / sum(record_count) from {table}.files").first()[0]
    spark.sql(
        f"call system.rewrite_data_files(table => '{table}', strategy => 'sort', "
        f"sort_order => 'zorder({', '.join(names)})', "
        f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{int(size * block_rows * growth)}'))"
    )
    return growth * block_rows / float(spark.sql(f"select avg(record_count) from {table}.files").first()[0])


def blocks_opened(spark: Any, table: str, names: list[str], rows: pa.Table) -> Any:
    """Return the mean blocks that a point of each column opens, and a box of 1 % a side, by the blocks' bounds."""
    from dbt_recluster.maintenance import ClusteredTable

    metadata = ClusteredTable(spark, table, names).metadata()
    columns = [as_numbers(rows[name].combine_chunks()) for name in names]
    bounds = [
        (as_numbers(low), as_numbers(high)) for low, high in zip(metadata.lower, metadata.upper, strict=True)
    ]
    random = np.random.default_rng(0)
    points = random.integers(0, len(rows), QUERIES)
    inside = np.ones((len(metadata), QUERIES), bool)
    opened = []
    for column, (low, high) in zip(columns, bounds, strict=True):
        values = column[points]
        opened.append(float(((low[:, None] <= values) & (high[:, None] >= values)).sum(axis=0).mean()))
        ordered = np.sort(column)
        middle = np.searchsorted(ordered, values)
        half = max(1, len(ordered) // 200)
        least, greatest = (
            ordered[np.maximum(middle - half, 0)],
            ordered[np.minimum(middle + half, len(ordered) - 1)],
        )
        inside &= (low[:, None] <= greatest) & (high[:, None] >= least)
    return np.array([*opened, float(inside.sum(axis=0).mean())])


def as_numbers(values: Any) -> Any:
    """Return whole numbers in the order of values."""
    return (values.cast(pa.int32()) if pa.types.is_date(values.type) else values).to_numpy(
        zero_copy_only=False
    )


if __name__ == "__main__":
    main()
