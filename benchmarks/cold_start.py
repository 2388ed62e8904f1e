"""How long a user waits for dbt's commands: `method: embedded` beside dbt-spark's own session.

    python benchmarks/cold_start.py               # five rounds, alternating: six minutes on two cores

Each command is a process of its own, whose output is a pipe. The project of dbt-spark reaches the same Iceberg jar and
a metastore in Derby, as `embedded` does. Printed are the medians of the wall time, and of the time to the first line of
the command's output; then an operation in a process that has run one before (dbtRunner). An archive of Spark's classes
is made in a cache directory of the benchmark, before anything is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import command
from dbt_command import Project

from dbt_recluster.iceberg.session.local_spark import iceberg_jar
from dbt_recluster.text import table as text_table

MODEL = {
    "events.sql": "{{ config(materialized='table', file_format='iceberg', cluster_by='k') }} "
    "select id as k from range(10)"
}
COMMANDS = ("debug", "run", "parse", "parse --no-partial-parse", "ls", "compile")
DBT = str(Path(sys.executable).with_name("dbt"))
WARM = """
import json, time
from dbt.cli.main import dbtRunner
arguments = ["--quiet", "run-operation", "clustering_depth", "--args", "{table: events}", "--profiles-dir", "."]
seconds = []
for _ in range(4):
    started = time.monotonic()
    assert dbtRunner().invoke(arguments).success
    seconds.append(time.monotonic() - started)
print(json.dumps(seconds))
"""


def main() -> None:
    """Run the commands in turn, and print the medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with command.own_directory("cold-start") as directory:
        os.environ["XDG_CACHE_HOME"] = str(directory / "cache")
        embedded = {"method": "embedded", "path": "lake"}
        projects = {
            "embedded": Project(directory / "a", embedded, MODEL),
            "without archive": Project(directory / "b", {**embedded, "class_archive": False}, MODEL),
            "dbt-spark session": Project(directory / "c", dbt_spark_profile(directory), MODEL),
        }
        for project in projects.values():  # makes metastores and the archive
            run(project, "run")
        wait_for_archive(directory / "cache")
        seconds: dict[str, dict[str, list[tuple[float, float]]]]
        seconds = {name: defaultdict(list) for name in COMMANDS}
        for _ in range(options.pairs):
            for words in COMMANDS:
                for name, project in projects.items():
                    seconds[words][name].append(run(project, *words.split()))
        medians = {
            words: {name: tuple(map(median, zip(*each, strict=True))) for name, each in of.items()}
            for words, of in seconds.items()
        }
        ran = subprocess.run(
            [sys.executable, "-c", WARM],
            cwd=projects["embedded"].root,
            capture_output=True,
            text=True,
            check=True,
        )
    show(medians, list(projects))
    first, *later = json.loads(ran.stdout.splitlines()[-1])
    operation = {"cold": first, "warm": median(later)}
    print(
        f"An operation in a process of its own: {first:.1f} s; in one that has run one: {operation['warm']:.1f} s"
    )
    command.save(options, {"seconds": medians, "operation": operation})


def run(project: Project, *words: str) -> tuple[float, float]:
    """Run a command; return its seconds, and those until its first line."""
    started = time.monotonic()
    process = subprocess.Popen(
        [DBT, "--no-use-colors", *words, "--profiles-dir", "."],
        cwd=project.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first_line = process.stdout.readline()
    first = time.monotonic() - started
    # What it writes is less than a pipe holds. Spark's JVM, which ends a moment later, may have the pipe open too.
    code = process.wait(timeout=300)
    seconds = time.monotonic() - started
    assert code == 0, first_line + process.stdout.read()
    return seconds, first


def wait_for_archive(directory: Path, seconds: float = 120) -> None:
    """Wait until the process that makes the archive has made it."""
    deadline = time.monotonic() + seconds
    while not any(directory.rglob("*.jsa")):
        assert time.monotonic() < deadline, "no archive was made"
        time.sleep(0.5)
    time.sleep(2)


def show(medians: dict[str, dict[str, tuple[float, ...]]], projects: list[str]) -> None:
    """Print a row for each command."""
    *_, theirs = projects
    rows = []
    for words, of in medians.items():
        ours, other = of["embedded"][0], of[theirs][0]
        seconds = (f"{of[name][0]:.2f} ({of[name][1]:.2f})" for name in projects)
        rows.append([words, *seconds, f"{ours / other:.2f}", f"{ours - other:+.2f}"])
    header = ("dbt", *(f"{name}, s (first line)" for name in projects), "embedded / dbt-spark", "more, s")
    print(text_table(header, rows), flush=True)


def dbt_spark_profile(directory: Path) -> dict[str, Any]:
    """Return a profile of dbt-spark that starts a Spark with the same catalog."""
    settings = {
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        # Derby has none of the metastore's lock tables: a commit would wait for a lock for minutes.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
    }
    return {"type": "spark", "method": "session", "host": "localhost", "server_side_parameters": settings}


if __name__ == "__main__":
    main()
