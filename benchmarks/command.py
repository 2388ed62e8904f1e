"""What the benchmarks share: arguments, Spark, TPC-H, ways run in turn, tables, and the figures as JSON.

Import it first: it makes the helpers in tests/support importable.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dbt_recluster.text import table as text_table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
T = TypeVar("T")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the first line of a module's docstring, with ``--json``."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--json", help="also write the figures to this file")
    return made


def save(options: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write figures, and the options they were measured with, where ``--json`` says."""
    if options.json:
        path = Path(options.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        asked = {name: value for name, value in vars(options).items() if name != "json"}
        path.write_text(json.dumps({"options": asked, **figures}, indent=2) + "\n")


def show(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, with two decimals for numbers that are not whole."""

    def shown(cell: Any) -> str:
        return f"{cell:,.2f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)

    print(text_table(header, [list(map(shown, row)) for row in rows]), flush=True)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    print("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n", flush=True)


@contextmanager
def own_directory(name: str) -> Iterator[Path]:
    """Yield an empty directory that goes away again."""
    with tempfile.TemporaryDirectory(prefix=f"recluster-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def own_spark(name: str, settings: Mapping[str, str] | None = None) -> Iterator[tuple[Any, Path]]:
    """Yield a session, whose catalog `lake` is in a directory that goes away again, and the directory."""
    from sessions import of_directory, open_session

    with own_directory(name) as directory:
        spill = {"spark.local.dir": str(directory / "spill")}
        spark = open_session(directory, of_directory(), {**spill, **(settings or {})})
        yield spark, directory
        spark.stop()


def tpch(directory: Path, scale: float, *tables: str) -> Path:
    """Return a directory with tables of TPC-H as Parquet files, which are made on the first call."""
    if not all((directory / f"{table}.parquet").exists() for table in tables):
        directory.mkdir(parents=True, exist_ok=True)
        made = ["parquet", "-s", f"{scale:g}", "--tables", ",".join(tables), "--output-dir", str(directory)]
        subprocess.run([Path(sys.executable).with_name("tpchgen-cli"), *made], check=True, capture_output=True)
    return directory


def append_as_is(frame: Any, table: str) -> None:
    """Append rows in the files and the order that they have, whatever the table's sort order is."""
    frame.writeTo(table).option("use-table-distribution-and-ordering", "false").append()


@contextmanager
def same_rows(spark: Any, table: str) -> Iterator[None]:
    """End the program if the block loses or doubles a row of a table."""
    from sessions import checksum

    before = checksum(spark, table)
    yield
    spark.sql(f"refresh table {table}")
    if (after := checksum(spark, table)) != before:
        raise SystemExit(f"{table}: the rows before were {before} and are {after}")


def in_turn(ways: Mapping[str, Callable[[], T]], times: int) -> dict[str, list[T]]:
    """Run ways in turn, because the machine is noisy: once to warm up, then so often; return the results of each."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    for _ in range(times + 1):
        for name, way in ways.items():
            results[name].append(way())
    return {name: values[1:] for name, values in results.items()}


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the pairs' ratios."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    started = time.monotonic()
    call()
    return time.monotonic() - started


def timed_in_spark(spark: Any, call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call, and the processor seconds of it and Spark, which other work disturbs less."""
    before = _processor_seconds(spark)
    seconds = timed(call)
    return seconds, _processor_seconds(spark) - before


def _processor_seconds(spark: Any) -> float:
    """Return the processor seconds of this process, Spark's JVM and the Python workers below it, with ended ones."""
    below = sum(sum(map(int, fields[11:15])) for fields in processes(spark).values())
    return time.process_time() + below / os.sysconf("SC_CLK_TCK")


def processes(spark: Any) -> dict[str, list[str]]:
    """Return the fields after the name in /proc/<id>/stat of Spark's JVM, which comes first, and all below it."""
    fields: dict[str, list[str]] = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            fields[process] = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    of_jvm = [str(spark.sparkContext._gateway.proc.pid)]
    for process in of_jvm:
        of_jvm += [below for below, values in fields.items() if values[1] == process]
    return {process: fields[process] for process in of_jvm}
