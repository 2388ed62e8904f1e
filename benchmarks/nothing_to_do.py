"""What a clustered model costs on the many runs after which there is nothing to recluster.

    python benchmarks/nothing_to_do.py                                # 10,000 files in 365 days, ten days touched
    python benchmarks/nothing_to_do.py --files 1000000 --pairs 5
    python benchmarks/nothing_to_do.py --touch spread                 # the ten days lie all over the year

The same incremental model, which adds a row to each of some days, is run by plain dbt-spark and by dbt-recluster with
`cluster_by`, in turn, in one process and one Spark session, each on a table of its own with so many files. Almost all
are entries of Iceberg's metadata only: full blocks, sorted and disjoint. Before each run the process forgets what
it has looked at, as a new one would. Both times are dbt's own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from pathlib import Path
from typing import Any

import command
from dbt_command import Project
from generated_files import STRIDE, GeneratedFiles

# 2025-01-01, in days since 1970.
FIRST_DAY = 20089
# Days of the table, and those to which a run adds a row.
DAYS, TOUCHED = 365, 10
# What a run loads lies in the gap after a generated block.
GAP = 700
# Columns beside the key and the day.
COLUMNS = 8


def main() -> None:
    """Make both tables, run both models in turn, print medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--touch", choices=["latest", "spread"], default="latest")
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    with command.own_directory("nothing") as directory:
        figures = run(options, directory)
    print(
        f"{figures['files']} files: dbt-spark {figures['plain']:.2f} s, dbt-recluster {figures['clustered']:.2f} s, "
        f"{figures['more']:+.2f} s, ratio {figures['ratio']:.2f} (medians of {options.pairs} pairs); of it "
        f"{figures['recluster']:.2f} s recluster: {figures['reason']}"
    )
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return both medians, their difference and their ratio."""
    from dbt_recluster.iceberg.session import embedded

    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    spark = embedded.start(str(directory / "lake"), settings)
    write_project(directory, options)
    os.environ["DO_NOT_TRACK"] = "1"
    started_in = Path.cwd()
    os.chdir(directory)
    for target in ("plain", "clustered"):
        run_model(target, 0)
        fill(spark, f"{target}.m", options.files // DAYS)
    # The first run checks the whole table and merges these blocks.
    overlap(spark, "clustered.m")
    numbers = itertools.count(1)
    ways = {name: lambda name=name: run_model(name, next(numbers)) for name in ("plain", "clustered")}
    results = command.in_turn(ways, options.pairs)
    os.chdir(started_in)
    responses = [response for _, response in results["clustered"]]
    if any(response["recluster_rounds"] for response in responses):
        raise SystemExit(f"there was something to do: {responses}")
    seconds = {name: [took for took, _ in runs] for name, runs in results.items()}
    seconds["recluster"] = [response["recluster_seconds"] for response in responses]
    pairs = zip(seconds["plain"], seconds["clustered"], strict=True)
    return {
        "files": spark.sql("select count(*) from clustered.m.files").first()[0],
        **{name: statistics.median(values) for name, values in seconds.items()},
        "more": statistics.median(ours - theirs for theirs, ours in pairs),
        "ratio": command.median_ratio(seconds["clustered"], seconds["plain"]),
        "reason": responses[-1]["recluster_reason"],
        "seconds": seconds,
    }


def write_project(directory: Path, options: argparse.Namespace) -> None:
    """Write a project of one model and a profile of two targets."""
    step, first = (1, DAYS - TOUCHED) if options.touch == "latest" else (DAYS // TOUCHED, 0)
    model = f"""
        {{{{ config(
          materialized='incremental', file_format='iceberg', cluster_by='k', recluster_depth=1, partition_by='d'
        ) }}}}
        select
          cast({{{{ var('run') }}}} * {STRIDE} + {GAP} as bigint) as k,
          date_add(date'1970-01-01', cast({FIRST_DAY + first} + id * {step} as int)) as d,
          {", ".join(f"xxhash64(id, {number}) as c{number}" for number in range(COLUMNS))}
        from range({TOUCHED})
    """
    ours = {"type": "recluster", "method": "embedded", "path": str(directory / "lake"), "schema": "clustered"}
    plain = {"type": "spark", "method": "session", "host": "none", "schema": "plain", "threads": 1}
    project = Project(directory, ours, {"m.sql": model})
    project.write("profiles.yml", {"p": {"target": "clustered", "outputs": {"clustered": ours, "plain": plain}}})


def fill(spark: Any, table: str, each: int) -> None:
    """Append entries, one commit for each day, of which each block leaves a gap for the rows of the runs."""
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

    java, generated = IcebergTable.load(spark, table).java, GeneratedFiles(spark)
    for number in range(DAYS):
        generated.append(java, FIRST_DAY + number, 0, each)


def overlap(spark: Any, table: str) -> None:
    """Append two small blocks that overlap, beyond all others."""
    others = ", ".join(["1L"] * COLUMNS)
    for _ in range(2):
        spark.sql(f"insert into {table} select 1000000000000 + 9 * id, date'2025-01-01', {others} from range(2)")


def run_model(target: str, number: int) -> tuple[float, dict[str, Any]]:
    """Run the model in what a new process would know; return its seconds and its response."""
    from dbt.cli.main import dbtRunner
    from tables import forget_checkpoints

    forget_checkpoints()
    arguments = ["--quiet", "run", "--target", target, "--vars", f"run: {number}"]
    done = dbtRunner().invoke(arguments)
    if not done.success:
        raise SystemExit(f"dbt run failed for {target}: {done.exception or [r.message for r in done.result]}")
    result = done.result.results[0]
    return float(result.execution_time), dict(result.adapter_response)


if __name__ == "__main__":
    main()
