"""Levels of blocks, as a recluster records them with the table and reads them again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tables import append, checksum, levels, make_table, recorded_levels, runs

from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import java_items, java_list
from dbt_recluster.maintenance import clustering_information, recluster
from dbt_recluster.report import operation_text


def test_levels_rise_and_survive_a_rewrite_of_the_manifests(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    for start in range(10_000, 13_000, 1000):
        append(spark, name, start, 1000)
        recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert max(levels(spark, name)) >= 2
    before = levels(spark, name)
    spark.sql(f"call system.rewrite_manifests('{name}')")
    assert levels(spark, name) == before
    spark.sql(
        f"call system.expire_snapshots(table => '{name}', older_than => timestamp '2999-01-01', retain_last => 1)"
    )
    assert levels(spark, name) == before


def test_the_figures_of_each_level_up_to_the_greatest(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    recluster(spark, name, "k", depth=1, block_rows=1000)
    merged = levels(spark, name)
    recorded = IcebergTable.load(spark, name).properties[table_properties.LEVELS]
    greatest = recorded.replace(f'"{max(merged)}"', '"64"')
    spark.sql(f"alter table {name} set tblproperties ('{table_properties.LEVELS}' = '{greatest}')")
    result = recluster(spark, name, depth=1, block_rows=1000)
    assert set(levels(spark, name)) == {64}, recorded
    ended = f"merging ends at level 64, reached by {len(merged)} blocks"
    assert result.reason == f"no block can be narrowed: {ended}"
    append(spark, name, 10_000, 900, files=3)
    information = clustering_information(spark, name)
    assert information["levels"] == {
        "0": {"blocks": 3, "rows": 900, "average_depth": 3.0},
        "64": {"blocks": len(merged), "rows": 6000, "average_depth": 1.0},
    }
    text = operation_text.information(information)
    assert "  level  blocks   rows\n      0       3    900\n" in text
    # Levels of blocks that are gone are dropped.
    spark.sql(f"delete from {name}")
    append(spark, name, 0, 1000, files=3)
    recluster(spark, name, depth=1, block_rows=1000)
    entries = spark.sql(f"select snapshot_id from {name}.entries where status < 2").collect()
    assert set(recorded_levels(spark, name)) == {row[0] for row in entries}


def test_levels_that_do_not_fit_become_a_mean(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_properties.LEVELS, "longest", 47)
    name = make_table(spark, schema, files=0)
    for load in range(6):
        spark.sql(
            f"insert into {name} select /*+ repartition(2) */ id, cast(rand({load}) * 1000 as int) + {2000 * load}, "
            "'v' from range(400)"
        )
        assert recluster(spark, name, "k", depth=1, block_rows=200).rounds
    properties = IcebergTable.load(spark, name).properties
    assert len(properties[table_properties.LEVELS]) <= 47
    old, mean = json.loads(properties[table_properties.LEVELS])["old"]
    assert (old > 0, mean, set(levels(spark, name))) == (True, 1, {1})
    assert not recluster(spark, name, depth=1, block_rows=200).rounds


def test_tables_without_sequence_numbers_keep_levels(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, properties={"format-version": 1})
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    (committed,) = result.rounds
    assert recorded_levels(spark, name) == {committed.snapshot_ids[0]: max(levels(spark, name))}
    spark.sql(f"alter table {name} set tblproperties ('format-version' = '2')")
    assert min(levels(spark, name)) > 0


def test_a_changed_key_makes_old_blocks_level_0_and_moves_them(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    recluster(spark, name, "k", depth=1, block_rows=1000)
    before = checksum(spark, name)
    result = recluster(spark, name, "v", depth=1, block_rows=1000, final=True)
    assert result.depth_before > 4
    assert result.depth_after <= 2
    assert checksum(spark, name) == before
    assert min(levels(spark, name)) > 0


def forget_exact_levels(spark: Any, name: str) -> None:
    """Record levels as of a table whose many levels have become one mean."""
    # The numbers of a table of version 1 are random, so any of them may be below the last old one.
    version = int(IcebergTable.load(spark, name).java.operations().current().formatVersion())
    old = f'{{"old":[{2**63 - 1 if version == 1 else 1000},1],"levels":{{}}}}'
    spark.sql(f"alter table {name} set tblproperties ('{table_properties.LEVELS}' = '{old}')")


def claim_sorted(spark: Any, name: str) -> None:
    """Give all files the table's sort order id, as writers of Iceberg 1.11 and later do."""
    table = IcebergTable.load(spark, name)
    overwrite = table.java.newOverwrite()
    tasks = java_items(java_list(spark, table.java.newScan().includeColumnStats().planFiles()))
    for file in (task.file() for task in tasks):
        labelled = table.iceberg.DataFiles.builder(table.java.spec()).copy(file)
        overwrite.deleteFile(file).addFile(labelled.withSortOrder(table.java.sortOrder()).build())
    overwrite.commit()
    spark.sql(f"refresh table {name}")


@pytest.mark.thorough
@pytest.mark.parametrize("version", [2, 1])
@pytest.mark.parametrize("key", ["k", "k, id"])
def test_the_id_of_a_sort_order_makes_no_run(spark: Any, schema: str, version: int, key: str) -> None:
    name = make_table(spark, schema, files=0, properties={"format-version": version})
    spark.sql(f"alter table {name} write locally ordered by {key}")
    append(spark, name, 0, 4000, files=4)
    append(spark, name, 4000, 4000, files=4)
    claim_sorted(spark, name)
    forget_exact_levels(spark, name)
    assert set(levels(spark, name)) == {0}
    assert runs(spark, name) == {0}
    result = recluster(spark, name, depth=1, block_rows=1000)
    assert result.depth_before == 8
    assert result.depth_after <= 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "rows"),
    [
        ("k", "id, cast(id * 7 % 1000 as int), 'v'"),
        ("k", "id, if(id % 3 = 0, null, 7), 'v'"),
        (["k", "v"], "id, cast(id * 7 % 3 as int), if(id % 50 = 0, null, string(id))"),
        (["truncate(100, k)", "v"], "id, cast(id * 7 % 1000 as int), string(id)"),
    ],
)
def test_real_runs_are_recognised_by_their_bounds(spark: Any, schema: str, key: Any, rows: str) -> None:
    name = make_table(spark, schema, files=0)
    for load in range(2):
        spark.sql(f"insert into {name} select /*+ repartition(3) */ {rows} from range({load}, 6000, 2)")
    result = recluster(spark, name, key, depth=1, block_rows=1000)
    assert result.blocks_out >= 6
    spark.sql(f"call system.expire_snapshots('{name}', timestamp '2999-01-01', 1)")
    forget_exact_levels(spark, name)
    assert set(levels(spark, name)) == {1}
    (run,) = runs(spark, name)
    assert run == result.rounds[-1].snapshot_ids[-1]
    assert not recluster(spark, name, depth=1, block_rows=1000).rounds
