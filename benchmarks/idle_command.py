"""What `dbt-recluster recluster` costs for tables of a REST catalog to which nobody has written since the last command.

    python benchmarks/idle_command.py                  # ten tables, one command each and one for all

In turn: a command that remembers nothing, which starts Spark as before, and one that remembers its last check. The
processor seconds are those of the command and of every process that it starts, for each table.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import command

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: Spark's JVM outlives the command, which nobody else would wait for


def main() -> None:
    """Make the tables, run the commands in turn, print medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    import rest_server

    with command.own_directory("idle") as directory, rest_server.server(directory / "rest") as rest:
        os.environ["XDG_CACHE_HOME"] = str(directory)
        pairs = [f"{name}={value}" for name, value in rest.settings("lake").items()]
        settings = [word for pair in pairs for word in ("--conf", pair)]
        program = str(Path(sys.executable).with_name("dbt-recluster"))
        tables = [f"lake.s.t{number}" for number in range(options.tables)]
        make_tables(tables, rest.settings("lake"))
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

        def run(groups: Sequence[Sequence[str]], *, remembers: bool) -> float:
            if not remembers:
                shutil.rmtree(directory / "dbt-recluster" / "unchanged", ignore_errors=True)
            return sum(processor([program, "recluster", *group, "--depth=1", *settings]) for group in groups)

        each, every = [[table] for table in tables], [tables]
        rows = []
        for title, groups in {"a command each": each, "one command": every}.items():
            ways = {
                "starts Spark": lambda groups=groups: run(groups, remembers=False),
                "remembers": lambda groups=groups: run(groups, remembers=True),
            }
            results = command.in_turn(ways, options.pairs)
            medians = [statistics.median(values) / options.tables for values in results.values()]
            rows.append([title, *medians, command.median_ratio(results["remembers"], results["starts Spark"])])
    header = ("processor seconds a table", *ways, "ratio")
    command.show(header, rows)
    command.save(options, {"rows": [dict(zip(header, row, strict=True)) for row in rows]})


def make_tables(tables: Sequence[str], settings: dict[str, str]) -> None:
    """Make well clustered tables in a process of its own, whose Spark ends with it."""
    text = f"""
from dbt_recluster.iceberg.session import local_spark, starter
from dbt_recluster.api import recluster
settings = {settings!r}
spark = starter.start_spark({{**settings, **local_spark.iceberg_settings(settings)}})
spark.sql("create schema lake.s")
for table in {list(tables)!r}:
    spark.sql(f"create table {{table}} (k bigint, v string) using iceberg")
    for load in range(4):
        spark.sql(f"insert into {{table}} select id * 4 + {{load}}, 'x' from range(1000)")
    recluster(spark, table, "k", depth=1, final=True)
"""
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)


def processor(words: Sequence[str]) -> float:
    """Run a command; return the processor seconds of it and of all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "start_new_session": True}
    with subprocess.Popen(words, **given) as process:
        out, _ = process.communicate()
    if process.returncode or "nothing to do" not in out:
        raise SystemExit(f"there was something to do: {out}")
    try:
        while True:
            os.waitpid(-process.pid, 0)  # the JVM
    except ChildProcessError:
        pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
