"""How long a user waits for the first answer: a cold `dbt debug` of `method: embedded` beside dbt-spark's own session.

    python benchmarks/cold_start.py               # three pairs, alternating

Each command is a process of its own, and starts Spark. The project of dbt-spark reaches the same Iceberg jar and a
metastore in Derby, as `embedded` does. Printed are the medians of the wall time, and of an operation in a process that
has run one before (dbtRunner).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import command
from dbt_command import Project

from dbt_recluster.iceberg.session.local_spark import iceberg_jar

MODEL = {"events.sql": "{{ config(materialized='table', cluster_by='k') }} select id as k from range(10)"}
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
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with command.own_directory("cold-start") as directory:
        projects = {
            "embedded": Project(directory / "a", {"method": "embedded", "path": "lake"}, MODEL),
            "dbt-spark session": Project(directory / "b", dbt_spark_profile(directory), MODEL),
        }
        seconds: dict[str, list[float]] = {name: [] for name in projects}
        for number in range(options.pairs + 1):
            for name, project in projects.items():
                started = time.monotonic()
                code, out, _ = project.run("debug")
                assert code == 0, out
                if number:  # the first round makes the metastore
                    seconds[name].append(time.monotonic() - started)
        figures: dict[str, Any] = {name: statistics.median(each) for name, each in seconds.items()}
        code, out, _ = projects["embedded"].run("run")
        assert code == 0, out
        root = projects["embedded"].root
        ran = subprocess.run(
            [sys.executable, "-c", WARM], cwd=root, capture_output=True, text=True, check=True
        )
        first, *later = json.loads(ran.stdout.splitlines()[-1])
        figures |= {"operation, cold": first, "operation, warm": statistics.median(later)}
    for name, value in figures.items():
        print(f"{name:>20}  {value:6.1f} s")
    command.save(options, figures)


def dbt_spark_profile(directory: Path) -> dict[str, Any]:
    """Return a profile of dbt-spark that starts a Spark with the same catalog."""
    settings = {
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
    }
    return {"type": "spark", "method": "session", "host": "localhost", "server_side_parameters": settings}


if __name__ == "__main__":
    main()
