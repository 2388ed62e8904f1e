"""Kill a recluster, or an expiry of snapshots, at random moments and look at what it leaves behind.

    python benchmarks/killed.py            # 50 kills
    python benchmarks/killed.py --kills 3
    python benchmarks/killed.py --expiry   # of an expiry of all snapshots but the current one

A process reclusters a table and is killed (SIGKILL, its JVM too) at a random moment of its merge; the first one may
end, the second is killed as it begins, and the third once it has written a file. Afterwards the table must hold the
same rows, be as before or as at the end, and the next recluster must succeed. Printed is how often it was the one and
the other, and the files that nothing refers to, which Iceberg's remove_orphan_files then removes. Exit code 1 when a
row is lost or the table is something in between.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import command
from sessions import checksum, of_directory, open_session

TABLE = "lake.db.t"
BLOCK_ROWS = 20_000


def main() -> None:
    """Kill as often as asked for and print what came of it."""
    parser = command.parser(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--expiry", action="store_true", help="kill an expiry of snapshots")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        (expire if options.expiry else merge)(options.worker)
        return
    with command.own_spark("killed") as (spark, directory):
        figures = run(spark, directory, options)
    print(
        f"{options.kills} kills: the table was as before after {figures['before']}, as at the end after "
        f"{figures['after']}; {figures['orphans']} files left behind, {figures['removed']} of them removed by "
        f"remove_orphan_files; rows lost or doubled, or states in between: {figures['wrong'] or 'none'}"
    )
    command.save(options, figures)
    if figures["wrong"]:
        raise SystemExit(1)


def run(spark: Any, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return how often the table was found as before and as after, and what was left behind."""
    from dbt_recluster.api import recluster

    chance = random.Random(1)
    spark.sql(f"create table {TABLE} (id bigint, k int, v string) using iceberg")
    found: Counter[str] = Counter()
    wrong: list[str] = []
    longest = 0.0
    for kill in range(options.kills):
        for load in range(6):
            append(spark, 1000 * kill + load)
        rows, snapshots = checksum(spark, TABLE), snapshots_of(spark)
        written = files_of(directory, options.expiry)
        with subprocess.Popen(
            [sys.executable, __file__, "--worker", str(directory), *(["--expiry"] if options.expiry else [])],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as worker:
            assert worker.stdout is not None
            if not worker.stdout.readline():  # its work begins now
                raise RuntimeError("the process to be killed failed by itself")
            started = time.monotonic()
            if kill == 0:  # the first one may end, to learn how long it takes
                worker.stdout.readline()
                longest = time.monotonic() - started
            elif kill == 2:
                while files_of(directory, options.expiry) == written and worker.poll() is None:
                    time.sleep(0.01)
            elif kill > 2:
                time.sleep(chance.uniform(0, 1.2 * longest))
            os.killpg(worker.pid, signal.SIGKILL)
        spark.sql(f"refresh table {TABLE}")
        if state := state_of(snapshots, snapshots_of(spark), options.expiry):
            found[state] += 1
        else:
            wrong.append(f"kill {kill}: {snapshots_of(spark)} after {snapshots}")
        if checksum(spark, TABLE) != rows:
            wrong.append(f"kill {kill}: {checksum(spark, TABLE)} and not {rows}")
        recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS, final=True)
        if checksum(spark, TABLE) != rows:
            wrong.append(f"recluster after kill {kill}: {checksum(spark, TABLE)} and not {rows}")
    orphans = left_behind(spark, directory)
    removed = remove_orphans(spark, directory)
    return {**{"before": 0, "after": 0}, **found, "orphans": orphans, "removed": removed, "wrong": wrong}


def merge(directory: str) -> None:
    """Recluster the table; say when its merge begins and when it has ended."""
    from dbt_recluster.api import recluster
    from dbt_recluster.clustering.result import Progress

    spark = open_session(Path(directory), of_directory())

    def begins(progress: Progress) -> None:
        if progress.merged is None and not progress.committed:
            print("merges", flush=True)

    recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS, listener=begins)
    print("ended", flush=True)
    time.sleep(60)


def expire(directory: str) -> None:
    """Expire all snapshots but the current one; say when it begins and when it has ended."""
    from dbt_recluster.clustering.table_maintenance import TableMaintenance
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

    table = IcebergTable.load(open_session(Path(directory), of_directory()), TABLE)
    now = datetime.now(timezone.utc)
    print("expires", flush=True)
    TableMaintenance(table, now + timedelta(days=1)).expire_snapshots(now + timedelta(hours=1))
    print("ended", flush=True)
    time.sleep(60)


def append(spark: Any, seed: int) -> None:
    """Append a load over all keys."""
    spark.sql(
        f"insert into {TABLE} select /*+ coalesce(1) */ {seed}L * 1000000 + id, cast(rand({seed}) * 1000000 as int), "
        "concat('row ', id) from range(5000)"
    )


def snapshots_of(spark: Any) -> dict[int, str]:
    """Return the ids and operations of the table's snapshots, the oldest first."""
    rows = spark.sql(f"select snapshot_id, operation from {TABLE}.snapshots order by committed_at").collect()
    return {int(row[0]): str(row[1]) for row in rows}


def state_of(before: dict[int, str], now: dict[int, str], is_expiry: bool) -> str | None:
    """Say whether a table is as before or as after; None if it is something in between."""
    if now == before:
        return "before"
    if is_expiry:
        return "after" if list(now) == list(before)[-1:] else None
    *earlier, (_, operation) = now.items()
    return "after" if earlier == list(before.items()) and operation == "replace" else None


def files_of(directory: Path, is_expiry: bool) -> set[Path]:
    """Return the files of which a merge writes one first, or an expiry when it has committed and begins to delete."""
    pattern = "metadata/v*.metadata.json" if is_expiry else "data/*.parquet"
    return set((directory / "warehouse/db/t").glob(pattern))


def left_behind(spark: Any, directory: Path) -> int:
    """Return how many data files belong to no snapshot."""
    known = {
        Path(row[0].split(":", 1)[1]).name for row in spark.sql(f"select file_path from {TABLE}.all_files").collect()
    }
    found = {path.name for path in (directory / "warehouse/db/t/data").rglob("*.parquet")}
    return len(found - known)


def remove_orphans(spark: Any, directory: Path) -> int:
    """Remove them with Iceberg's procedure, whose shortest age is a day: the files are made older first."""
    a_while_ago = time.time() - 3 * 24 * 3600
    for path in (directory / "warehouse/db/t/data").rglob("*"):
        os.utime(path, (a_while_ago, a_while_ago))
    rows = spark.sql("call lake.system.remove_orphan_files(table => 'db.t')").collect()
    return sum(str(row[0]).endswith(".parquet") for row in rows)


if __name__ == "__main__":
    main()
