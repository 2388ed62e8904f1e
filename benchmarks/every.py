"""What `recluster --every` takes while nobody writes: memory over many passes, and the seconds of a pass.

    python benchmarks/every.py                          # 1,000 passes over 100 tables of a REST catalog
    python benchmarks/every.py --tables 10 --passes 50

The command runs in this process, without its pauses. The heap is what a collection leaves.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import command


def main() -> None:
    """Make the tables, run the passes, print what they took."""
    parser = command.parser(__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--passes", type=int, default=1000)
    options = parser.parse_args()
    import rest_server

    with command.own_directory("every") as directory, rest_server.server(directory / "rest") as rest:
        settings = {**rest.settings("lake"), "spark.driver.memory": "1g"}
        rows = run(settings, options.tables, options.passes)
    header = ("after passes", "Python, MB", "JVM, MB", "its heap, MB", "s a pass", "s for 10 tables")
    command.show(header, rows)
    command.save(options, {"rows": [dict(zip(header, row, strict=True)) for row in rows]})


def run(settings: Mapping[str, str], tables: int, passes: int) -> list[list[Any]]:
    """Run the command; return a row after its third pass, the first without work, one half way and one at the end."""
    from dbt_recluster.exceptions import Interrupted
    from dbt_recluster.job import command_line, service

    rows: list[list[Any]] = []
    took: list[float] = []
    ended = [time.monotonic(), 0]

    def look(changed: Any) -> None:
        now, number = time.monotonic(), int(ended[1]) + 1
        if number > 2:
            took.append(now - ended[0])
        if number in (3, passes // 2, passes):
            seconds = statistics.median(took)
            rows.append([number, *memory(changed._spark), seconds, seconds / tables * 10])
            took.clear()
        if number == passes:
            raise Interrupted
        ended[:] = time.monotonic(), number

    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    service.ChangedTables.wait = look  # type: ignore[method-assign]
    with command_line.spark_session(settings) as spark, contextlib.redirect_stdout(io.StringIO()) as out:
        make_tables(spark, tables)
        code = command_line.main(["recluster", "--namespace", "lake.s", "--every", "1s", "--json", *given])
    lines = out.getvalue().splitlines()
    if code or len(lines) != passes + 1 or '"tables": []' not in lines[2]:
        raise SystemExit(f"{code}, {len(lines)} lines: {lines[-1:]}")
    return rows


def make_tables(spark: Any, count: int) -> None:
    """Make tables with a sort order and one block each."""
    spark.sql("create schema lake.s")
    for number in range(count):
        spark.sql(f"create table lake.s.t{number} using iceberg as select id as k, 'x' as v from range(0, 1000, 1, 1)")
        spark.sql(f"alter table lake.s.t{number} write locally ordered by k")


def memory(spark: Any) -> tuple[float, float, float]:
    """Return the resident memory of this process and of Spark's JVM, and the JVM's heap after a collection, in MB."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    resident = [resident_mb(os.getpid()), resident_mb(spark.sparkContext._gateway.proc.pid)]
    spark._jvm.java.lang.System.gc()
    return resident[0], resident[1], (runtime.totalMemory() - runtime.freeMemory()) / 2**20


def resident_mb(process: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
