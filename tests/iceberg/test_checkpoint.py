"""A look after a build reads the partitions that changed, and finds what a look at the whole table finds."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import functions as F
from tables import Meanwhile, call, checksum, compact, create_table, forget_checkpoints

from dbt_recluster.api import ClusteredTable
from dbt_recluster.clustering.checkpoint import Checkpoint
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata import changed_partitions as changed_partitions_module
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.changed_partitions import changed_partitions
from dbt_recluster.iceberg.table_properties import CHECKPOINT
from dbt_recluster.planner import plan

BUILD = ReclusterOptions(trigger="run", depth=1, block_rows=100)


def make(spark: Any, schema: str, partitions: Sequence[int] = (), by: str = "p", **properties: str) -> str:
    """Make a table and load the keys 0 to 99 into each of these partitions in turn."""
    table = create_table(spark, f"{schema}.t", "k bigint, p int", properties, by)
    for partition in partitions:
        load(spark, table, partition)
    return table


def load(spark: Any, table: str, partition: int, keys: range = range(100), files: int = 1) -> None:
    rows = spark.range(keys.start, keys.stop, 1, files).selectExpr("id as k", f"{partition} as p")
    rows.writeTo(table).append()


def build(spark: Any, table: str, **given: Any) -> Any:
    return Recluster(ClusteredTable(spark, table, "k"), replace(BUILD, **given)).run()


def agrees(spark: Any, table: str, options: ReclusterOptions = BUILD) -> bool:
    """Check that a look at the changes finds something where a look at all does; return whether there was one."""
    keyed = ClusteredTable(spark, table, "k")
    look = Checkpoint(keyed, replace(options.policy, block_bytes=keyed.block_bytes))
    snapshot = keyed.iceberg.snapshot_id
    changed = look.changed(snapshot)
    if changed is None:
        return False
    some: Any = ()
    if len(changed):
        metadata = read_blocks(keyed.iceberg, keyed.key, snapshot, changed)
        some = plan(keyed.planner_blocks(metadata), look.policy).block_sets
    assert bool(some) == bool(plan(keyed.blocks().blocks, look.policy).block_sets)
    return True


def settle(spark: Any, table: str) -> None:
    """Recluster until a round leaves nothing to do, and forget that it was seen."""
    build(spark, table, final=True, trigger="manual")
    forget_checkpoints()


@pytest.mark.thorough
def test_only_partitions_that_changed_are_read(spark: Any, schema: str) -> None:
    table = make(spark, schema, (0, 0, 1, 1, 2, 2))
    first = build(spark, table)
    assert (first.blocks_in, first.depth_before) == (6, 2)
    planned, *committed = (snapshot.id for snapshot in IcebergTable.load(spark, table).snapshots()[-2:])
    recorded = json.loads(IcebergTable.load(spark, table).properties[CHECKPOINT])
    assert (recorded["planned"], recorded["committed"]) == (planned, committed)
    assert recorded["partitions"] == [[0, {"1000": partition}] for partition in range(3)]
    settle(spark, table)
    load(spark, table, 1, range(1000, 1100))
    load(spark, table, 5)
    done = build(spark, table)
    # Those of the load, and those that the last recluster wrote.
    changed = "in the 4 partitions changed since the last check of the table"
    assert re.fullmatch(rf"depth 1 in partition p=\d is at most 1 {changed}", done.reason)
    assert (done.depth_after, done.verdict, done.average_depth_after) == (1, "well clustered", None)
    assert done.blocks_before == done.blocks_after == spark.table(f"{table}.files").count()
    unchanged = build(spark, table)
    assert unchanged.reason == "nothing has changed since the last check of the table"
    assert (unchanged.depth_after, unchanged.threshold, unchanged.verdict) == (1, 1, "well clustered")
    load(spark, table, 7)
    assert "in the 1 partition changed" in build(spark, table).reason
    load(spark, table, 7, range(50, 150))
    assert build(spark, table, dry_run=True).reason == "depth 2 in partition p=7 is above 1"
    found = build(spark, table)
    assert (len(found.rounds), found.blocks_in) == (1, 2)
    assert found.depth_before > 1


@pytest.mark.thorough
def test_a_checkpoint_of_other_rules_is_not_used(spark: Any, schema: str) -> None:
    table = make(spark, schema, (0, 0))
    settle(spark, table)

    def is_known(by: str = "k", **given: Any) -> bool:
        keyed = ClusteredTable(spark, table, by)
        policy = replace(replace(BUILD, **given).policy, block_bytes=keyed.block_bytes)
        return Checkpoint(keyed, policy).changed(keyed.iceberg.snapshot_id) is not None

    assert is_known()
    assert is_known(max_bytes=10**9)
    assert not is_known(by="p")
    for other in ({"depth": 2}, {"block_rows": 99}, {"strategy": "peak"}):
        assert not is_known(**other), other
    recorded = IcebergTable.load(spark, table).properties
    rules = json.loads(recorded[CHECKPOINT])["rules"]
    level, size = "recluster.levels", "write.target-file-size-bytes"
    wrong = [{"planned": []}, {"planned": 10**30, "committed": [10**30]}]

    def put(name: str, value: str) -> str:
        return f"set tblproperties ('{name}' = '{value}')"

    for change, undo in (
        (f"unset tblproperties ('{level}')", put(level, recorded[level])),
        (put(size, "1000"), f"unset tblproperties ('{size}')"),
        ("add partition field bucket(2, k)", "drop partition field bucket(2, k)"),
        ("write ordered by p", "write locally ordered by k nulls first"),
        *(
            (put(CHECKPOINT, json.dumps({"rules": rules, **part})), put(CHECKPOINT, recorded[CHECKPOINT]))
            for part in wrong
        ),
        ("add column c int", None),
    ):
        spark.sql(f"alter table {table} {change}")
        assert not is_known(), change
        if undo:
            spark.sql(f"alter table {table} {undo}")
            assert is_known(), undo


@pytest.mark.thorough
def test_what_others_change_during_a_merge_is_not_taken_for_checked(spark: Any, schema: str) -> None:
    table = make(spark, schema, (0, 0, 1))
    loads = Meanwhile("commit", lambda: load(spark, table, 1, range(50, 150)))
    assert (build(spark, table, progress=loads).blocks_in, loads.errors) == (2, [])
    found = build(spark, table)
    assert (found.blocks_in, found.blocks_before) == (2, 4)
    load(spark, table, 0)
    change = f"alter table {table} set tblproperties ('write.target-file-size-bytes' = '5000')"
    alters = Meanwhile("commit", lambda: (spark.sql(change), load(spark, table, 2, range(9))))
    spark.sql(f"alter table {table} unset tblproperties ('{CHECKPOINT}')")
    assert build(spark, table, progress=alters).rounds
    assert CHECKPOINT not in IcebergTable.load(spark, table).properties


@pytest.mark.thorough
def test_a_recluster_that_left_something_out_is_not_recorded(spark: Any, schema: str) -> None:
    table = make(spark, schema, (0, 0, 1, 1))
    size = int(spark.sql(f"select max(file_size_in_bytes) from {table}.files").first()[0])

    def is_recorded(**limit: Any) -> bool:
        assert build(spark, table, **limit).rounds
        return CHECKPOINT in IcebergTable.load(spark, table).properties

    assert not is_recorded(max_bytes=2 * size)
    assert is_recorded(max_bytes=2 * size)  # the rest
    for partition in (0, 0, 1, 1):
        load(spark, table, partition)
    assert not is_recorded(where="p = 1")
    assert is_recorded()


@pytest.mark.thorough
def test_partitions_that_a_plan_puts_off_are_looked_at(spark: Any, schema: str) -> None:
    """At a threshold below 2 the planner puts partitions off while others have cheaper sets."""
    table = make(spark, schema)
    for first, last, partition in ((9, 12, 0), (4, 5, 0), (7, 10, 0), (5, 10, 1), (8, 13, 1)):
        keys = f"cast({first * 1000} + id * {(last - first) * 1000} / 99 as bigint) as k"
        spark.range(0, 100, 1, 1).selectExpr(keys, f"{partition} as p").writeTo(table).append()
    assert build(spark, table, depth=1.5).blocks_in == 2
    forget_checkpoints()
    assert not agrees(spark, table, replace(BUILD, depth=1.5))
    assert build(spark, table, depth=1.5).blocks_in == 2


@pytest.mark.alike
@pytest.mark.parametrize("version", [1, 2])
def test_a_file_that_was_removed_and_added_again_has_changed(spark: Any, schema: str, version: int) -> None:
    table = make(spark, schema, (0, 0, 1), **{"format-version": str(version)})
    settle(spark, table)
    build(spark, table)
    before = IcebergTable.load(spark, table).snapshot_id
    java = IcebergTable.load(spark, table).java
    file = java.newScan().planFiles().iterator().next().file()
    java.newDelete().deleteFile(file).commit()
    java.newAppend().appendFile(file).commit()
    iceberg = IcebergTable.load(spark, table)
    assert len(changed_partitions(iceberg, before, iceberg.snapshot_id)) == 1
    assert agrees(spark, table)


def test_another_thread_commits_while_this_one_plans(
    spark: Any, hadoop_catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog with a cache gives both the same table object."""
    spark.sql(f"create schema {hadoop_catalog}.s")
    table = make(spark, f"{hadoop_catalog}.s", (0, 1))
    build(spark, table)  # sets the sort order
    plan_now, others = ClusteredTable.plan, iter([1])

    def plan_then_load(*arguments: Any) -> Any:
        planned = plan_now(*arguments)
        for partition in others:
            thread = Thread(target=load, args=(spark, table, partition))
            thread.start()
            thread.join()
        return planned

    forget_checkpoints()
    monkeypatch.setattr(ClusteredTable, "plan", plan_then_load)
    assert not build(spark, table).rounds
    assert build(spark, table).blocks_in == 2


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("limit", ["MOST_MANIFESTS", "MOST_ENTRIES", "MOST_PARTITIONS"])
def test_changes_beyond_a_limit_are_unknown(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    table = make(spark, schema, range(4))
    iceberg = IcebergTable.load(spark, table)
    since = iceberg.snapshots()[0].id, iceberg.snapshot_id
    monkeypatch.setattr(changed_partitions_module, limit, 3)
    assert len(changed_partitions(iceberg, *since)) == 3
    monkeypatch.setattr(changed_partitions_module, limit, 2)
    assert changed_partitions(iceberg, *since) is None


@pytest.mark.parametrize(("by", "known"), [("p", True), ("bucket(3, k), truncate(2, p)", True), ("", False)])
def test_changes_are_known_of_partitions_since_an_ancestor(spark: Any, schema: str, by: str, known: bool) -> None:
    table = make(spark, schema, by=by)
    for partition in (0, 2, 4):
        load(spark, table, partition, range(1))
    iceberg = IcebergTable.load(spark, table)
    first, second, third = (snapshot.id for snapshot in iceberg.snapshots())
    assert len(changed_partitions(iceberg, third, third)) == 0
    changed = changed_partitions(iceberg, first, third)
    assert (changed is not None and len(changed) == 2) == known
    spark.sql(f"call spark_catalog.system.rollback_to_snapshot('{table}', {second})")
    iceberg.refresh()
    assert changed_partitions(iceberg, third, second) is None
    iceberg.java.expireSnapshots().expireSnapshotId(first).commit()
    iceberg.refresh()
    assert changed_partitions(iceberg, first, second) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("version", "seed", "changes"),
    [(2, 0, 3), *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((2, 1, 14), (3, 2, 14)))],
)
def test_a_check_of_changed_partitions_equals_a_full_check(
    spark: Any, schema: str, version: int, seed: int, changes: int
) -> None:
    numbers = random.Random(seed)
    properties = {f"write.{change}.mode": "merge-on-read" for change in ("delete", "update")}
    properties |= {"format-version": str(version), "commit.manifest.min-count-to-merge": "4"}
    table = make(spark, schema, **properties)
    for partition in range(4):
        load(spark, table, partition, range(200), 2)
    settle(spark, table)
    looks = 0
    for _ in range(changes):
        change(spark, table, numbers)
        iceberg = IcebergTable.load(spark, table)
        for snapshot in numbers.sample(iceberg.snapshots(), 3):
            told = changed_partitions(iceberg, snapshot.id, iceberg.snapshot_id)
            assert told is not None
            assert {values["p"] for values in told.values} == differences(spark, table, snapshot.id)
        looks += agrees(spark, table)
        rows = checksum(spark, table)
        build(spark, table)
        assert checksum(spark, table) == rows
    assert looks > changes / 2


def change(spark: Any, table: str, numbers: random.Random) -> None:
    """Have another writer change the table somehow."""
    partition, key = numbers.randrange(5), numbers.randrange(300)
    kind = numbers.randrange(8)
    if kind < 3:
        load(spark, table, partition, range(key, key + 50), numbers.choice((1, 2)))
    elif kind == 3:
        spark.sql(f"delete from {table} where p = {partition} and k between {key} and {key + 40}")
    elif kind == 4:
        spark.sql(f"delete from {table} where p = {partition}")
    elif kind == 5:
        call(spark, "rewrite_manifests", table)
    elif kind == 6:
        spark.sql(f"update {table} set k = k + 1000 where k = {key}")
    else:
        compact(spark, table)


def differences(spark: Any, table: str, since: int) -> set[int]:
    """Return the partitions whose files or delete files are others than in an earlier snapshot."""

    def files(snapshot: int | None) -> dict[int, set[tuple[Any, ...]]]:
        reader = spark.read.format("iceberg")
        reader = reader if snapshot is None else reader.option("versionAsOf", snapshot)
        by_partition: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
        rows = reader.load(f"{table}.files").select(F.col("partition.p"), "file_path", "content_offset")
        for partition, *file in rows.collect():
            by_partition[partition].add(tuple(file))
        return by_partition

    now, then = files(None), files(since)
    return {partition for partition in now.keys() | then.keys() if now[partition] != then[partition]}
