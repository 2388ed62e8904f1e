"""Blocks that the driver reads from manifests are those that Spark reads from the `entries` table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata import manifests
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, ChangedPartitions, read_blocks
from dbt_recluster.iceberg.metadata.manifests import changed_partitions, read_manifest_blocks

TYPES = {
    "l": ("bigint", "id - 3"),
    "n": ("int", "cast(id as int) - 3"),
    "d": ("date", "date_add(date'1969-12-30', cast(id as int))"),
    "ts": ("timestamp", "timestamp'1969-12-31 12:00:00.000001' + make_interval(0, 0, 0, cast(id as int))"),
    "tn": ("timestamp_ntz", "timestamp_ntz'2026-01-01 12:00:00' + make_interval(0, 0, 0, cast(id as int))"),
    "u": ("string", "concat(char(1), 'ä', repeat('x', cast(id as int) * 5))"),
    "x": ("decimal(10, 2)", "cast(id - 3.05 as decimal(10, 2))"),
    "y": ("decimal(38, 10)", "cast(id as decimal(38, 10)) * 1000000000000"),
    "f": ("double", "if(id = 4, double('nan'), if(id = 5, double('infinity'), id / 3))"),
    "g": ("float", "if(id = 4, float('nan'), cast(id / 3 as float))"),
    "b": ("binary", "cast(concat('k', id) as binary)"),
    "o": ("boolean", "id > 3"),
    "s": ("struct<n: int>", "named_struct('n', cast(id as int))"),
    "z": ("string", "if(id < 6, null, 'z')"),
    "e": ("string", "cast(null as string)"),
}
KEYS = [*(name for name in TYPES if name != "s"), "s.n", "to_date(ts)", "left(u, 2)", ["z", "n"]]


def described(blocks: BlockMetadata) -> list[Any]:
    """The blocks in the order of their paths, values in text: a decimal may have another number of digits."""
    lines = []
    for place, path in enumerate(blocks.path.to_pylist()):
        bounds = [
            (str(lower[place].as_py()), bool(mask[place]) or str(upper[place].as_py()))
            for lower, upper, mask in zip(blocks.lower, blocks.upper, blocks.unbounded, strict=True)
        ]
        figures = (
            blocks.spec_id,
            blocks.rows,
            blocks.bytes,
            blocks.added_by,
            blocks.sequence,
            blocks.sort_order_id,
        )
        lines.append((path, *(int(figure[place]) for figure in figures), bounds))
    return sorted(lines)


def same_partitions(one: BlockMetadata, other: BlockMetadata) -> bool:
    pairs = zip(
        *(
            [
                int(blocks.partition[place])
                for _, place in sorted((p, i) for i, p in enumerate(blocks.path.to_pylist()))
            ]
            for blocks in (one, other)
        ),
        strict=True,
    )
    distinct = set(pairs)
    return len(distinct) == len({a for a, _ in distinct}) == len({b for _, b in distinct})


def check(table: ClusteredTable, partitions: ChangedPartitions) -> BlockMetadata:
    snapshot_id = table.iceberg.snapshot_id
    assert snapshot_id is not None
    mine = read_manifest_blocks(table.iceberg, table.key, snapshot_id, partitions)
    assert mine is not None
    spark = read_blocks(table.iceberg, table.key, snapshot_id, partitions)
    entries = table.iceberg.metadata("entries", snapshot_id)
    wanted = {
        row[0]
        for row in entries.where("status < 2 and data_file.content = 0")
        .where(partitions.among("data_file.partition"))
        .select("data_file.file_path")
        .collect()
    }
    spark = spark.take(np.array([path in wanted for path in spark.path.to_pylist()]))
    assert described(mine) == described(spark)
    assert same_partitions(mine, spark)
    return mine


@pytest.fixture(scope="module")
def wide(spark: Any) -> Any:
    spark.sql("create schema manifest_blocks")
    name = "manifest_blocks.wide"
    spark.sql(
        f"create table {name} (p int, {', '.join(f'{c} {kind}' for c, (kind, _) in TYPES.items())}) using iceberg "
        "partitioned by (p) tblproperties ('write.distribution-mode' = 'none', "
        "'write.metadata.metrics.default' = 'full')"
    )
    values = ", ".join(f"{value} as {name}" for name, (_, value) in TYPES.items())
    for part in range(3):
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ {part} as p, {values} from range(9)")
    spark.sql(f"alter table {name} unset tblproperties ('write.metadata.metrics.default')")
    spark.sql(
        f"alter table {name} set tblproperties ('write.metadata.metrics.column.n' = 'none', "
        "'write.metadata.metrics.column.u' = 'truncate(3)', 'write.metadata.metrics.column.d' = 'counts')"
    )
    spark.sql(f"insert into {name} select /*+ coalesce(1) */ 1 as p, {values} from range(2, 9)")
    spark.sql(f"insert into {name} select /*+ coalesce(1) */ null as p, {values} from range(1)")
    yield name
    spark.sql("drop schema manifest_blocks cascade")


@pytest.mark.alike
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_bounds_of_every_type(spark: Any, wide: str, key: Any) -> None:
    table = ClusteredTable(spark, wide, key)
    partitions = ChangedPartitions(({"p": 1}, {"p": None}), {"p": "int"})
    assert len(check(table, partitions)) == 3


@pytest.mark.alike
@pytest.mark.parametrize("version", [1, 2, 3])
def test_specs_that_change_columns_that_widen_and_manifests_that_are_rewritten(
    spark: Any, schema: str, version: int
) -> None:
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k int, x decimal(4, 1), p string, q date) using iceberg partitioned by (p) "
        f"tblproperties ('format-version' = '{version}')"
    )
    spark.sql(
        f"insert into {name} values (1, 1.5, 'a', date'2026-01-01'), (2, 2.5, 'b''c', date'2026-01-02')"
    )
    spark.sql(f"alter table {name} alter column k type bigint")
    spark.sql(f"alter table {name} alter column x type decimal(9, 1)")
    since = ClusteredTable(spark, name, "k").iceberg.snapshot_id
    spark.sql(f"insert into {name} values (3000000000, 12345.5, 'a', date'2026-01-01'), (1, 1, null, null)")
    spark.sql(f"alter table {name} add partition field q")
    spark.sql(f"insert into {name} values (7, 7, 'a', date'2026-01-01'), (8, 8, 'b''c', null)")
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.rewrite_manifests('{name}')")
    spark.sql(f"delete from {name} where k = 3000000000")
    spark.sql(f"alter table {name} drop partition field p")
    spark.sql(f"insert into {name} values (9, 9, 'a', date'2026-01-01')")
    for key in ("k", "x", ["p", "k"]):
        table = ClusteredTable(spark, name, key)
        assert since is not None
        assert table.iceberg.snapshot_id is not None
        partitions = changed_partitions(table.iceberg, since, table.iceberg.snapshot_id)
        assert partitions is not None
        mine = read_manifest_blocks(table.iceberg, table.key, table.iceberg.snapshot_id, partitions)
        assert mine is not None
        whole = {line[0]: line for line in described(read_blocks(table.iceberg, table.key))}
        assert all(whole[line[0]] == line for line in described(mine))
        # All of the changed partitions: those of today's and of older specs that have these very fields.
        assert {"p=a/q=2026-01-01", "q=2026-01-01"} <= {
            path.split("/data/")[1].rpartition("/")[0] for path in mine.path.to_pylist()
        } or version == 1


def test_partition_fields_and_columns_that_are_renamed(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k int, `Part` string, ts timestamp) using iceberg partitioned by (`Part`, days(ts))"
    )
    spark.sql(f"insert into {name} values (1, 'a', timestamp'2026-01-01 01:00:00'), (2, 'b', null)")
    since = ClusteredTable(spark, name, "k").iceberg.snapshot_id
    spark.sql(f"insert into {name} values (3, 'a', timestamp'2026-01-01 02:00:00'), (4, 'c', null)")
    spark.sql(f"alter table {name} rename column `Part` to other")
    spark.sql(f"alter table {name} rename column k to key")
    spark.sql(f"alter table {name} replace partition field ts_day with days(ts) as day_of_ts")
    spark.sql(f"insert into {name} values (5, 'a', timestamp'2026-01-01 03:00:00')")
    table = ClusteredTable(spark, name, "key")
    assert since is not None
    assert table.iceberg.snapshot_id is not None
    partitions = changed_partitions(table.iceberg, since, table.iceberg.snapshot_id)
    assert partitions is not None
    mine = read_manifest_blocks(table.iceberg, table.key, table.iceberg.snapshot_id, partitions)
    assert mine is not None
    whole = {line[0]: line for line in described(read_blocks(table.iceberg, table.key))}
    lines = described(mine)
    assert all(whole[line[0]] == line for line in lines)
    # All but the one of partition b, which did not change.
    assert len(lines) == len(whole) - 1 == 4


def test_too_many_entries_are_sparks(spark: Any, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ClusteredTable(spark, wide, "l")
    partitions = ChangedPartitions(({"p": 1},), {"p": "int"})
    monkeypatch.setattr(manifests, "MOST_BLOCK_ENTRIES", 1)
    assert read_manifest_blocks(table.iceberg, table.key, table.iceberg.snapshot_id, partitions) is None
    assert len(table.blocks_among(partitions, table.iceberg.snapshot_id)) >= 2


def test_snapshots_without_blocks(spark: Any, wide: str) -> None:
    table = ClusteredTable(spark, wide, ["l", "u"])
    partitions = ChangedPartitions(({"p": 77},), {"p": "int"})
    blocks = read_manifest_blocks(table.iceberg, table.key, table.iceberg.snapshot_id, partitions)
    assert blocks is not None
    assert len(blocks) == 0
    assert len(table.planner_blocks(blocks)) == 0
