"""What a clustered model costs on the many runs after which there is nothing to recluster.

    python benchmarks/nothing_to_do.py             # a table of 10,000 files
    python benchmarks/nothing_to_do.py --files 1000 --pairs 5

The same incremental model, of one row, is run by plain dbt-spark and by dbt-recluster with `cluster_by`, in turn, in
one process and one Spark session, each on a table of its own with so many files. Both times are dbt's own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import textwrap
from pathlib import Path
from typing import Any

import command

ROWS_A_FILE = 1000


def main() -> None:
    """Make both tables, run both models in turn, print medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    with command.own_directory("nothing") as directory:
        figures = run(options, directory)
    print(
        f"{figures['files']} files: dbt-spark {figures['plain']:.2f} s, dbt-recluster {figures['clustered']:.2f} s, "
        f"{figures['more']:+.2f} s, ratio {figures['ratio']:.2f} (medians of {options.pairs} pairs)"
    )
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return both medians, their difference and their ratio."""
    from dbt_recluster.adapter import embedded

    spark = embedded.start(str(directory / "lake"), {"spark.sql.shuffle.partitions": "2"})
    write_project(directory)
    os.environ["DO_NOT_TRACK"] = "1"
    started_in = Path.cwd()
    os.chdir(directory)
    run_model("plain")
    run_model("clustered")
    for table in ("plain.m", "clustered.m"):
        fill(spark, table, options.files)
    seconds: dict[str, list[float]] = {"plain": [], "clustered": []}
    for _ in range(options.pairs):
        for target in seconds:
            seconds[target].append(run_model(target))
    os.chdir(started_in)
    plain, clustered = (statistics.median(seconds[name]) for name in ("plain", "clustered"))
    pairs = list(zip(seconds["plain"], seconds["clustered"], strict=True))
    return {
        "files": spark.sql("select count(*) from clustered.m.files").first()[0],
        "plain": plain,
        "clustered": clustered,
        "more": statistics.median(ours - theirs for theirs, ours in pairs),
        "ratio": statistics.median(ours / theirs for theirs, ours in pairs),
        "seconds": seconds,
    }


def write_project(directory: Path) -> None:
    """Write a project of one model and a profile of two targets."""
    files = {
        "dbt_project.yml": """
            name: nothing_to_do
            profile: nothing_to_do
            flags: {send_anonymous_usage_stats: false}
        """,
        "profiles.yml": f"""
            nothing_to_do:
              target: clustered
              outputs:
                plain: {{type: spark, method: session, host: none, schema: plain, threads: 1}}
                clustered: {{type: recluster, method: embedded, path: '{directory}/lake', schema: clustered}}
        """,
        "models/m.sql": """
            {{ config(materialized='incremental', file_format='iceberg', cluster_by='k') }}
            select -1L as k, 'a row' as v
        """,
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))


def fill(spark: Any, table: str, files: int) -> None:
    """Append so many files, sorted by ``k`` and disjoint: the writer looks at a file's size every 1,000 rows."""
    spark.sql(f"alter table {table} set tblproperties ('write.target-file-size-bytes' = '1')")
    rows = files * ROWS_A_FILE
    spark.range(0, rows, 1, 2).selectExpr("id as k", "'a row' as v").writeTo(table).option(
        "use-table-distribution-and-ordering", "false"
    ).append()
    spark.sql(f"alter table {table} unset tblproperties ('write.target-file-size-bytes')")


def run_model(target: str) -> float:
    """Run the model and return its seconds."""
    from dbt.cli.main import dbtRunner

    done = dbtRunner().invoke(["--quiet", "run", "--target", target])
    if not done.success:
        raise SystemExit(f"dbt run failed for {target}: {done.exception or [r.message for r in done.result]}")
    return float(done.result.results[0].execution_time)


if __name__ == "__main__":
    main()
