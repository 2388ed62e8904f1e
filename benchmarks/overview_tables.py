"""What the overview of many tables costs, with nothing changed since their last recluster, and with a load in each.

    python benchmarks/overview_tables.py                 # 300 tables of 1,000 files
    python benchmarks/overview_tables.py --tables 30

Almost all files are entries of Iceberg's metadata only. One table is made, and reclustered where two small files
overlap; the others are copies of its metadata in a Hadoop catalog. Times the command in a running session.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
from generated_files import GeneratedFiles
from sessions import of_directory, open_session

from dbt_recluster.clustering import table as clustered_table
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.job.command_line import main as run_command
from dbt_recluster.maintenance import recluster

PRICES = ("--prices", "currency=EUR,compute_hour=3.20,terabyte_scanned=5")


def main() -> None:
    """Make the tables, and time the overview of all before and after a load."""
    parser = command.parser(__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--files", type=int, default=1000)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with command.own_directory("overview") as directory:
        spark = open_session(directory, of_directory())
        generated = GeneratedFiles(spark)
        make_table(spark, generated, options.files)
        for number in range(1, options.tables):
            copy_table(directory / "warehouse" / "s", f"t{number}")
        overview()  # what the first call of a session pays
        figures["unchanged"] = overview()
        figures["unchanged, with prices and reads"] = overview(PRICES)
        for number in range(options.tables):
            java = IcebergTable.load(spark, f"lake.s.t{number}").java
            generated.append(java, 0, 2 * options.files, 2 * options.files + 1)
        clustered_table._BLOCKS.clear()
        figures["loaded"] = overview()
        clustered_table._BLOCKS.clear()
        figures["loaded, with prices and reads"] = overview(PRICES)
        spark.stop()
    for name, found in figures.items():
        print(
            f"{name}: {options.tables:,} tables of {options.files:,} files, {found['seconds']:.1f} s, "
            f"{found['expected']:,} without reading a manifest: {found['verdicts']}"
        )
    command.save(options, figures)


def make_table(spark: Any, generated: GeneratedFiles, files: int) -> None:
    """Make the first table, with one commit for each hundredth of its files, and recluster it."""
    spark.sql(
        "create table lake.s.t0 (k bigint, v bigint) using iceberg tblproperties ('recluster.option.depth' = '1', "
        '\'recluster.option.reads\' = \'[{"where": "k = 5", "weight": 24}]\')'
    )
    spark.sql("alter table lake.s.t0 write locally ordered by k")
    java = IcebergTable.load(spark, "lake.s.t0").java
    each = max(1, files // 100)
    for first in range(0, files - 2, each):
        generated.append(java, 0, first, min(first + each, files - 2))
    for _ in range(6):
        spark.sql(f"insert into lake.s.t0 select /*+ coalesce(1) */ id + {files * 1000}, id from range(100)")
    recluster(spark, "lake.s.t0")


def copy_table(schema: Path, name: str) -> None:
    """Copy the metadata of the first table of a schema; manifests stay where they are."""
    target = schema / name / "metadata"
    target.mkdir(parents=True)
    for path in (schema / "t0" / "metadata").iterdir():
        if path.name == "version-hint.text" or path.name.endswith(".metadata.json"):
            shutil.copy(path, target)
    for path in target.glob("*.metadata.json"):
        metadata = json.loads(path.read_text())
        metadata["location"] = metadata["location"].removesuffix("/t0") + f"/{name}"
        path.write_text(json.dumps(metadata))


def overview(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run the command; return its seconds, the verdicts, and how many tables answered from their snapshots."""
    began = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_command(["overview", "--catalog", "lake", "--json", *arguments])
    seconds = time.monotonic() - began
    answer = json.loads(out.getvalue())
    expected = sum(table["is_expected"] for table in answer["tables"])
    return {"seconds": seconds, "code": code, "expected": expected, "verdicts": answer["totals"]["verdicts"]}


if __name__ == "__main__":
    main()
