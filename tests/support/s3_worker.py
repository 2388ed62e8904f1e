"""Reclusters ``lake.db.t`` in a process of its own, and talks with the test in lines of JSON.

    python s3_worker.py DIRECTORY PART      # the Spark settings are in DIRECTORY/settings.json

Each line on standard output says what was done; then it waits for a line.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sessions import checksum, open_session

from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.maintenance import clustering_information, recluster

TABLE = "lake.db.t"
BLOCK_ROWS = 2000


def say(**values: Any) -> None:
    """Print a line, and wait for an answer."""
    print(json.dumps(values), flush=True)
    sys.stdin.readline()


def load(spark: Any, number: int) -> None:
    """Append 2000 rows over all keys."""
    start = number * 2000
    spark.sql(
        f"insert into {TABLE} select /*+ coalesce(1) */ id, cast(pmod(hash(id), 1000) as int) as k "
        f"from range({start}, {start + 2000})"
    )


def begin(spark: Any) -> None:
    """Load a table, and begin a merge in which this process is to be killed."""
    spark.sql("create namespace if not exists lake.db")
    spark.sql(f"create table {TABLE} (id bigint, k int) using iceberg")
    for number in range(6):
        load(spark, number)
    say(part="merge")
    recluster(spark, TABLE, "k", depth=1, block_rows=100)  # many files, so that there is time to be killed
    time.sleep(60)


def go_on(spark: Any) -> None:
    """Recluster what a killed process left, alone and beside another writer; then clean up; then the server stops."""
    before = checksum(spark, TABLE)
    say(part="loaded")
    result = recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS, final=True)
    say(part="recluster", rounds=len(result.rounds), blocks=result.blocks_out)
    say(part="read", same=checksum_is(spark, before))
    idle = recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS, final=True)
    say(part="check", rounds=len(idle.rounds))
    depth = clustering_information(spark, TABLE)["average_depth"]
    say(part="beside", depth=depth)
    for _ in range(4):
        recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS)
    say(part="alone")
    before = checksum(spark, TABLE)
    now = datetime.now(timezone.utc)
    tomorrow = now + timedelta(days=1)
    maintenance = TableMaintenance(IcebergTable.load(spark, TABLE), tomorrow)
    say(part="expiry")
    expired = maintenance.expire_snapshots(now + timedelta(hours=1))
    say(part="expired", snapshots=expired.snapshots)
    named = maintenance.remove_orphan_files(now + timedelta(hours=1), force=True)
    say(part="dry run", files=named.files)
    removed = maintenance.remove_orphan_files(now + timedelta(hours=1), force=True, dry_run=False)
    say(part="orphans", files=removed.files, same=checksum_is(spark, before))
    fail(spark)


def fail(spark: Any) -> None:
    """Merge into a bucket that this user may only read, and then while the server stops."""
    load(spark, 50)
    before = checksum(spark, TABLE)
    scheme = IcebergTable.load(spark, TABLE).java.location().partition(":")[0]
    spark.sql(f"alter table {TABLE} set tblproperties ('write.data.path' = '{scheme}://locked/data')")
    say(part="locked", error=error_of(spark), same=checksum_is(spark, before))
    spark.sql(f"alter table {TABLE} unset tblproperties ('write.data.path')")

    said = []

    def stop(progress: Any) -> None:
        if progress.merged == 1 and not said:  # it may be told twice
            said.append(progress)
            say(part="down")

    say(part="stopped", error=error_of(spark, stop))
    say(part="end", same=checksum_is(spark, before))


def error_of(spark: Any, listener: Any = None) -> str | None:
    """Return the message of a recluster's error."""
    try:
        recluster(spark, TABLE, "k", depth=1, block_rows=BLOCK_ROWS, listener=listener)
    except ReclusterError as e:
        return str(e)
    return None


def checksum_is(spark: Any, before: tuple[int, int]) -> bool:
    """Return whether the rows are still the same."""
    spark.sql(f"refresh table {TABLE}")
    return checksum(spark, TABLE) == before


if __name__ == "__main__":
    place = Path(sys.argv[1])
    session = open_session(place, {}, json.loads((place / "settings.json").read_text()))
    {"begin": begin, "go_on": go_on}[sys.argv[2]](session)
