"""How long a user waits for dbt's commands: `method: embedded` beside dbt-spark's own session.

    python benchmarks/cold_start.py               # five rounds, alternating: six minutes on two cores

Each command is a process of its own. The project of dbt-spark reaches the same Iceberg jar and a metastore in Derby, as
`embedded` does. Printed are the medians of the wall time. An archive of Spark's classes is made in a cache directory of
the benchmark, before anything is measured.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import command
from dbt_command import Project, session_settings

MODEL = {
    "events.sql": "{{ config(materialized='table', file_format='iceberg', cluster_by='k') }} "
    "select id as k from range(10)"
}
COMMANDS = ("debug", "run", "parse", "parse --no-partial-parse", "ls", "compile")


def main() -> None:
    """Run the commands in turn, and print the medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=COMMANDS)
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
            project.succeed("run")
        wait_for_archive(directory / "cache")
        seconds = {}
        for words in options.commands:
            runs = {name: partial(project.succeed, *words.split()) for name, project in projects.items()}
            ways = {name: partial(command.timed, run) for name, run in runs.items()}
            seconds[words] = command.in_turn(ways, options.pairs)
    medians = {words: list(map(median, each.values())) for words, each in seconds.items()}
    rows = [[words, *each, each[0] / each[2], each[0] - each[2]] for words, each in medians.items()]
    command.show(["dbt", *projects, "embedded / dbt-spark", "more, s"], rows)
    command.save(options, {"seconds": seconds})


def wait_for_archive(directory: Path, seconds: float = 120) -> None:
    """Wait until the process that makes the archive has made it."""
    deadline = time.monotonic() + seconds
    while not any(directory.rglob("*.jsa")):
        assert time.monotonic() < deadline, "no archive was made"
        time.sleep(0.5)
    time.sleep(2)


def dbt_spark_profile(directory: Path) -> dict[str, Any]:
    """Return a profile of dbt-spark that starts a Spark with the same catalog."""
    settings = {
        **session_settings(directory),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "200",  # Spark's default
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        # Derby has none of the metastore's lock tables: a commit would wait for a lock for minutes.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
    }
    return {"type": "spark", "method": "session", "host": "localhost", "server_side_parameters": settings}


if __name__ == "__main__":
    main()
