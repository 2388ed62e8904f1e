"""Run this project's loads one after the other and show what clustering did to the tables.

    python loads.py                             # the demo
    python loads.py --scale 1 --block-rows 100000 --models lineitem lineitem_not_reclustered lineitem_sorted_nightly

Each load is one `dbt run`. All of them share this process, so that Spark starts once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIRST_DAY, LAST_DAY = date(1992, 1, 2), date(1998, 12, 1)  # of l_shipdate in TPC-H
QUERIES = 100


def main() -> None:
    """Run all loads and print what came of them."""
    options = parse_arguments()
    os.chdir(HERE)
    source = make_source(options.scale)
    lakehouse = Path(options.lakehouse).resolve()
    shutil.rmtree(lakehouse, ignore_errors=True)
    os.environ["LAKEHOUSE"] = str(lakehouse)
    os.environ["DO_NOT_TRACK"] = "1"

    from dbt_recluster.exceptions import ReclusterError
    from dbt_recluster.iceberg.session import embedded

    try:
        spark = embedded.start(str(lakehouse), report=partial(print, flush=True))
    except ReclusterError as e:
        raise SystemExit(str(e)) from e
    variables: dict[str, Any] = {
        "lineitem": str(source),
        "scale_factor": options.scale,
        "loads": options.loads,
        "block_rows": options.block_rows,
    }
    models = ", ".join(options.models)
    command = "dbt build of the whole project" if options.build else f"dbt run of {models}"
    print(f"TPC-H lineitem, scale {options.scale:g}, in {options.loads} loads: {command}\n", flush=True)
    seconds = dict.fromkeys(options.models, 0.0)
    for load in range(1, options.loads + 1):
        what = ["build"] if options.build else ["run", "--select", *options.models]
        results = run_load({**variables, "load": load}, what)
        for name in options.models:
            seconds[name] += results[name]["execution_time"]
        print(f"load {load:2}  {outcome(options, results)}", flush=True)
        if load == 1:
            variables["sorted_file_bytes"] = bytes_per_block(spark, options)
    figures = {name: measure(spark, f"analytics.{name}", seconds[name]) for name in options.models}
    show(figures)
    if options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps({"options": vars(options), "figures": figures}, indent=2))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale factor (0.1 is 600,000 rows)")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--block-rows", type=int, default=10_000)
    parser.add_argument("--models", nargs="+", default=["lineitem", "lineitem_not_reclustered"])
    parser.add_argument("--build", action="store_true", help="build and test everything instead of --models")
    parser.add_argument("--lakehouse", default="lakehouse", help="where the tables go; emptied first")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def make_source(scale: float) -> Path:
    """Return TPC-H's lineitem as a Parquet file, made on the first call."""
    path = HERE / "data" / f"sf{scale:g}" / "lineitem.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [
            str(generator),
            "parquet",
            "-s",
            f"{scale:g}",
            "--tables",
            "lineitem",
            "--output-dir",
            str(path.parent),
        ]
        subprocess.run(command, check=True, capture_output=True)
    return path


def outcome(options: argparse.Namespace, results: dict[str, dict[str, Any]]) -> str:
    """Return what to say of one load: how the first model ended, or how many nodes passed."""
    if not options.build:
        return str(results[options.models[0]]["message"])
    tests = sum(result["status"] == "pass" for result in results.values())
    moved = sum(result["adapter_response"].get("blocks_rewritten", 0) > 0 for result in results.values())
    return f"{len(results) - tests} built, {tests} tests passed, {moved} tables reclustered"


def run_load(variables: dict[str, Any], what: list[str]) -> dict[str, dict[str, Any]]:
    """Run one load and return dbt's result of each node."""
    from dbt.cli.main import dbtRunner

    done = dbtRunner().invoke(["--quiet", *what, "--vars", json.dumps(variables)])
    if not done.success:
        raise SystemExit(f"dbt run failed at load {variables['load']}: {done.exception or 'see the lines above'}")
    return {result.node.name: result.to_dict() for result in done.result}


def bytes_per_block(spark: Any, options: argparse.Namespace) -> int:
    """How large a file of Iceberg's own sort has to be to hold as many rows as one of our blocks."""
    from dbt_recluster.api import clustering_information

    info = clustering_information(spark, f"analytics.{options.models[0]}")
    return int(info["total_bytes"] / info["total_rows"] * options.block_rows)


def query_days() -> list[date]:
    """Return the days of the one-day queries."""
    days = random.Random(1)
    span = (LAST_DAY - FIRST_DAY).days
    return [FIRST_DAY + timedelta(days=days.randint(0, span)) for _ in range(QUERIES)]


def measure(spark: Any, table: str, seconds: float) -> dict[str, float]:
    """Return what a table's users feel: its depth, the blocks their queries open, and what keeping it so took."""
    from dbt_recluster.api import ClusteredTable, clustering_information
    from dbt_recluster.iceberg.predicates import Predicate

    clustered = ClusteredTable(spark, table, "l_shipdate")
    info = clustering_information(spark, clustered)
    queries = query_days()
    started = time.monotonic()
    wheres = [Predicate.parse(clustered.iceberg, f"l_shipdate = date '{day}'") for day in queries]
    bytes_opened = [clustered.metadata().bytes[clustered.blocks(where).eligible] for where in wheres]
    rewritten, bytes_rewritten = spark.sql(
        "select coalesce(sum(cast(summary['deleted-records'] as bigint)), 0), "
        f"coalesce(sum(cast(summary['removed-files-size'] as bigint)), 0) from {table}.snapshots "
        "where operation = 'replace'"
    ).first()
    return {
        "blocks": info["total_block_count"],
        "average_depth": info["average_depth"],
        "max_depth": info["max_depth"],
        "blocks_opened": sum(map(len, bytes_opened)) / QUERIES,
        "bytes_opened": float(sum(sizes.sum() for sizes in bytes_opened)),
        "rewritten_per_row": rewritten / info["total_rows"],
        "bytes_rewritten": bytes_rewritten,
        "seconds": seconds,
        "planning_seconds": time.monotonic() - started,
    }


def show(figures: dict[str, dict[str, float]]) -> None:
    """Print a line for each figure, a column for each table: so it fits a terminal of 80 characters."""
    from dbt_recluster.text import size, table

    rows: list[tuple[str, str, Callable[[Any], str]]] = [
        ("blocks", "blocks", "{:.0f}".format),
        ("average depth", "average_depth", "{:.2f}".format),
        ("blocks opened by a one-day query", "blocks_opened", "{:.2f}".format),
        ("rows rewritten for each row loaded", "rewritten_per_row", "{:.2f}".format),
        ("bytes rewritten", "bytes_rewritten", size),
        (f"bytes read by {QUERIES} such queries", "bytes_opened", size),
        ("seconds in dbt", "seconds", "{:.0f}".format),
    ]
    lines = [(title, *(text(each[name]) for each in figures.values())) for title, name, text in rows]
    print("\n" + table(("", *figures), lines))


if __name__ == "__main__":
    main()
