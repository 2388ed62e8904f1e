"""What 500 small ordered loads make of a table: clustered by us, left alone, and packed by Iceberg's binpack.

    python benchmarks/small_loads.py                 # 500 dbt runs of 1,000 rows: about half an hour
    python benchmarks/small_loads.py --loads 100

At the end a day is counted and a scan planned, once as the tables are and once after maintenance (all snapshots but
the last expired, manifests rewritten). Three models are the same hour of the same day; a dbt run loads them in turn.
One has `cluster_by`, one nothing, and one is given to `rewrite_data_files` (binpack, all files below a block) after
every 50 loads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import textwrap
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import command

MODELS = ("clustered", "alone", "binpacked")
HOURS = 24
MODEL = """
    {{{{ config(materialized='incremental', file_format='iceberg'{config}) }}}}
    select /*+ coalesce(1) */ date_add(date'2026-01-01', cast({{{{ var('load') }}}} div {hours} as int)) as day,
      id + {{{{ var('load') }}}} * {rows} as id, concat('row ', id) as v
    from range({rows})
"""


def main() -> None:
    """Load, measure, print."""
    parser = command.parser(__doc__)
    parser.add_argument("--loads", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1000, help="of each load")
    parser.add_argument("--block-rows", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=50, help="loads between two calls of rewrite_data_files")
    parser.add_argument("--rounds", type=int, default=9, help="of the queries")
    options = parser.parse_args()
    with command.own_directory("small-loads") as directory:
        figures = run(options, directory)
    print(
        f"{'':10}  files  rows rewritten per row  a load, s  query, s  planning, s  query then  planning then"
    )
    for name, found in figures["tables"].items():
        print(
            f"{name:10}  {found['files']:5}  {found['rewritten'] / figures['rows']:22.2f}  {found['load']:9.2f}  "
            f"{found['query']:8.3f}  {found['planning']:11.3f}  {found['query_then']:10.3f}  "
            f"{found['planning_then']:13.3f}"
        )
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run all loads, then measure the tables in turn."""
    from dbt_recluster.adapter.connections import embedded

    spark = embedded.start(str(directory / "lake"), {"spark.sql.shuffle.partitions": "2"})
    write_project(options, directory)
    os.environ["DO_NOT_TRACK"] = "1"
    started_in = Path.cwd()
    os.chdir(directory)
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    for load in range(options.loads):
        for name, spent in run_models(load).items():
            seconds[name].append(spent)
        if (load + 1) % options.every == 0:
            started = time.monotonic()
            pack(spark, options)
            seconds["binpacked"][-1] += time.monotonic() - started
            print(
                f"{load + 1} loads: {', '.join(f'{n} {files(spark, n)} files' for n in MODELS)}", flush=True
            )
    os.chdir(started_in)
    rows = options.loads * options.rows
    tables: dict[str, dict[str, float]] = {
        name: {
            "files": files(spark, name),
            "rewritten": rewritten(spark, name),
            "load": statistics.mean(seconds[name]),
        }
        for name in MODELS
    }
    for suffix in ("", "_then"):
        for name, (query, planning) in read_all(spark, options).items():
            tables[name] |= {f"query{suffix}": query, f"planning{suffix}": planning}
        keep_house(spark)
    return {"rows": rows, "tables": tables}


def read_all(spark: Any, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Read the tables in turn; return the median seconds of the query and of planning of each."""
    reads: dict[str, list[tuple[float, float]]] = {name: [] for name in MODELS}
    for _ in range(options.rounds + 1):
        for name in MODELS:
            reads[name].append(read(spark, name, options))
    # The first read of each warms up.
    return {
        name: (statistics.median(q for q, _ in found[1:]), statistics.median(p for _, p in found[1:]))
        for name, found in reads.items()
    }


def keep_house(spark: Any) -> None:
    """Expire all snapshots but the last and rewrite the manifests, as if the last load were of yesterday."""
    from dbt_recluster.clustering.table_maintenance import TableMaintenance
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

    now = datetime.now(timezone.utc)
    for name in MODELS:
        maintenance = TableMaintenance(IcebergTable.load(spark, f"s.{name}"), now + timedelta(days=1))
        maintenance.expire_snapshots(now + timedelta(hours=1))
        maintenance.rewrite_manifests()


def write_project(options: argparse.Namespace, directory: Path) -> None:
    """Write a project of three models."""
    clustered = f", cluster_by=['day', 'id'], block_rows={options.block_rows}"
    written = {
        "dbt_project.yml": """
            name: small_loads
            profile: small_loads
            flags: {send_anonymous_usage_stats: false}
        """,
        "profiles.yml": f"""
            small_loads:
              target: dev
              outputs:
                dev: {{type: recluster, method: embedded, path: '{directory}/lake', schema: s, threads: 1}}
        """,
    }
    for name in MODELS:
        config = clustered if name == "clustered" else ""
        written[f"models/{name}.sql"] = MODEL.format(config=config, hours=HOURS, rows=options.rows)
    for name, text in written.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))


def run_models(load: int) -> dict[str, float]:
    """Run the models and return the seconds of each."""
    from dbt.cli.main import dbtRunner

    done = dbtRunner().invoke(["--quiet", "run", "--vars", json.dumps({"load": load})])
    if not done.success:
        raise SystemExit(f"dbt run failed: {done.exception or [r.message for r in done.result]}")
    return {result.node.name: float(result.execution_time) for result in done.result.results}


def pack(spark: Any, options: argparse.Namespace) -> None:
    """Join the small files of the third table without regard to a key, as many users do."""
    block = spark.sql("select avg(file_size_in_bytes / record_count) from s.binpacked.files").first()[0]
    target = int(block * options.block_rows)
    spark.sql(
        "call system.rewrite_data_files(table => 's.binpacked', options => "
        f"map('target-file-size-bytes', '{target}', 'min-input-files', '2'))"
    )


def files(spark: Any, name: str) -> int:
    """Return the number of data files."""
    return int(spark.sql(f"select count(*) from s.{name}.files").first()[0])


def rewritten(spark: Any, name: str) -> int:
    """Return the rows that rewrites have written."""
    added = "sum(cast(summary['added-records'] as bigint))"
    return int(
        spark.sql(f"select {added} from s.{name}.snapshots where operation = 'replace'").first()[0] or 0
    )


def read(spark: Any, name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds of a count of one day, and of planning a scan of the whole table."""
    middle = options.loads // (2 * HOURS)
    started = time.monotonic()
    query = f"select count(*) from s.{name} where day = date_add(date'2026-01-01', {middle})"
    counted = spark.sql(query).first()[0]
    queried = time.monotonic() - started
    assert counted == min(HOURS, options.loads) * options.rows, counted
    started = time.monotonic()
    spark.read.format("iceberg").load(f"s.{name}").rdd.getNumPartitions()
    return queried, time.monotonic() - started


if __name__ == "__main__":
    main()
