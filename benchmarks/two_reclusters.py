"""Two processes recluster one table at once, to the end.

    python benchmarks/two_reclusters.py

Neither commits before both have merged the same blocks. The catalog is a REST one: of two commits at the same moment, a
catalog that is a local directory may lose one. Printed is what each of them committed and how often it had to begin
again, beside what one process alone does with the same loads. Exit code 1 when a row is lost or doubled, or one does
not end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import command
import rest_server
from sessions import of_rest, open_session

BLOCK_ROWS = 20_000
LOADS = 12
ROWS = 20_000


def main() -> None:
    """Run one process alone and two together, on tables with the same loads."""
    parser = command.parser(__doc__)
    parser.add_argument("--worker", nargs=3, metavar=("DIRECTORY", "CATALOG", "TABLE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Path(options.worker[0]), *options.worker[1:])
        return
    processes = {"alone": 1, "together": 2}
    with command.own_directory("two") as directory, rest_server.server(directory / "warehouse") as rest:
        spark = open_session(directory, of_rest(rest.uri))
        spark.sql("create namespace db")
        worker = [sys.executable, __file__, "--worker", str(directory), rest.uri]
        figures = {name: race(spark, worker, f"lake.db.{name}", n) for name, n in processes.items()}
        spark.stop()
    for name, each in figures.items():
        print(f"{name}: depth {each['depth_after']}, {each['rows_rewritten']} rows rewritten of {LOADS * ROWS}")
        for worker in each["workers"]:
            print(f"  {worker['rounds']} rounds, {worker['conflicts']} conflicts, {worker['error']}")
    command.save(options, figures)


def race(spark: Any, worker: list[str], table: str, processes: int) -> dict[str, Any]:
    """Let so many processes recluster a table with overlapping loads; check its rows."""
    from dbt_recluster.api import clustering_information

    spark.sql(f"create table {table} (id bigint, k int) using iceberg")
    for load in range(LOADS):
        spark.sql(
            f"insert into {table} select /*+ coalesce(1) */ {load * ROWS} + id, "
            f"cast(rand({load}) * 1000000 as int) from range({ROWS})"
        )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with command.same_rows(spark, table):
        workers = [subprocess.Popen([*worker, table], **pipes) for _ in range(processes)]  # type: ignore[call-overload]
        for process in workers:
            process.stdout.readline()  # it has merged
        for process in workers:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(process.communicate(timeout=600)[0]) for process in workers]
    return {
        "depth_after": clustering_information(spark, table, "k")["average_depth"],
        "rows_rewritten": sum(answer["rows"] for answer in answers),
        "workers": answers,
    }


def work(directory: Path, catalog: str, table: str) -> None:
    """Recluster to the end, but wait for the word before the first commit; tell what was done."""
    from dbt_recluster.api import recluster
    from dbt_recluster.exceptions import ConcurrentChangeError
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

    spark = open_session(directory, of_rest(catalog))
    commit = IcebergTable.commit

    def wait_and_commit(iceberg: IcebergTable, transaction: Any) -> None:
        IcebergTable.commit = commit  # type: ignore[method-assign]
        print("merged", flush=True)
        sys.stdin.readline()
        commit(iceberg, transaction)

    IcebergTable.commit = wait_and_commit  # type: ignore[method-assign]
    answer: dict[str, Any] = {"rounds": 0, "rows": 0, "conflicts": 0, "error": "ended"}
    try:
        report = recluster(spark, table, "k", depth=1.5, block_rows=BLOCK_ROWS, final=True)
        answer |= {"rounds": len(report.rounds), "rows": report.rows, "conflicts": report.conflicts}
    except ConcurrentChangeError as e:
        answer["error"] = str(e)
    print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
