"""Blocks that the driver reads are those that Spark reads from the `entries` table."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tables import append_files, call, create_table, spark_settings

from dbt_recluster.api import recluster
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import (
    BlockMetadata,
    key_bounds,
    partition_name,
    partition_scan,
    read_blocks,
)
from dbt_recluster.iceberg.metadata.changed_partitions import ChangedPartitions, changed_partitions
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan
from dbt_recluster.iceberg.session.jvm import collect_arrow, java_items

# Every type: tests/iceberg/test_values.py.
TYPES = {
    "l": ("bigint", "id - 3"),
    "n": ("int", "cast(id as int) - 3"),
    "d": ("date", "date_add(date'1969-12-30', cast(id as int))"),
    "u": ("string", "concat(char(1), 'ä', repeat('x', cast(id as int) * 5))"),
    "f": ("double", "if(id = 4, double('nan'), if(id = 5, double('infinity'), id / 3))"),
    "s": ("struct<n: int>", "named_struct('n', cast(id as int))"),
    "z": ("string", "if(id < 6, null, 'z')"),
}
KEYS = [*(name for name in TYPES if name != "s"), "s.n", "left(u, 2)", ["z", "n"]]


Line = tuple[Any, ...]


def described(blocks: BlockMetadata) -> dict[str, Line]:
    """The blocks by their paths, bounds in text: a decimal may have another number of digits."""
    names = ("spec_id", "rows", "bytes", "added_by", "sequence", "sort_order_id")
    figures = [getattr(blocks, name).tolist() for name in names]
    return {
        path: (*line, bounds(blocks.lower, blocks.upper, blocks.unbounded, place))
        for place, (path, *line) in enumerate(zip(blocks.path.to_pylist(), *figures, strict=True))
    }


def bounds(lower: Any, upper: Any, unbounded: Any, place: int) -> list[Any]:
    return [
        (str(low[place].as_py()), bool(mask[place]) or str(high[place].as_py()))
        for low, high, mask in zip(lower, upper, unbounded, strict=True)
    ]


def read_by_spark(table: ClusteredTable, snapshot_id: int) -> tuple[dict[str, Line], dict[str, Any]]:
    """What Spark reads of all blocks, and their partitions."""
    reader = table.iceberg.spark.read.format("iceberg").option("versionAsOf", snapshot_id)
    entries = reader.load(f"{table.iceberg.identifier}.entries").where("status < 2 and data_file.content = 0")
    of_file = [f"data_file.{name}" for name in ("spec_id", "record_count", "file_size_in_bytes")]
    columns = [*of_file, "snapshot_id", "file_sequence_number", "data_file.sort_order_id"]
    columns = [f"cast(coalesce({column}, 0) as bigint) as figure_{n}" for n, column in enumerate(columns)]
    metrics = [
        F.col("readable_metrics").getField(field.column).alias(f"metrics_{n}")
        for n, field in enumerate(table.key.fields)
    ]
    selected = entries.select("data_file.file_path", "data_file.partition", *map(F.expr, columns), *metrics)
    rows = collect_arrow(selected)
    counted = rows.column("figure_1").to_numpy()
    columns_of_metrics = [rows[f"metrics_{n}"].combine_chunks() for n in range(len(metrics))]
    lower, upper, unbounded = zip(
        *(
            key_bounds(counted, {f.name: column.field(f.name) for f in column.type}, field.transform)
            for column, field in zip(columns_of_metrics, table.key.fields, strict=True)
        ),
        strict=True,
    )
    lines, partitions = {}, {}
    for place, row in enumerate(rows.to_pylist()):
        figures = [row[f"figure_{n}"] for n in range(len(columns))]
        lines[row["file_path"]] = (*figures, bounds(lower, upper, unbounded, place))
        partitions[row["file_path"]] = (figures[0], str(row["partition"]))
    return lines, partitions


def newest(table: ClusteredTable) -> int:
    assert table.iceberg.snapshot_id is not None
    return table.iceberg.snapshot_id


def changed(table: ClusteredTable, since: int) -> ChangedPartitions:
    found = changed_partitions(table.iceberg, since, newest(table))
    assert found is not None
    return found


def check(table: ClusteredTable, partitions: ChangedPartitions | None = None) -> dict[str, Line]:
    """Compare blocks with those that Spark reads; return them by their paths."""
    snapshot_id = newest(table)
    blocks, again = (read_blocks(table.iceberg, table.key, snapshot_id, partitions) for _ in range(2))
    assert again.path == blocks.path  # in the same order
    mine, (spark, partition) = described(blocks), read_by_spark(table, snapshot_id)
    assert mine == {path: spark[path] for path in mine}
    pairs = set(zip(blocks.partition.tolist(), (partition[path] for path in mine), strict=True))
    assert len(pairs) == len({number for number, _ in pairs}) == len({values for _, values in pairs})
    if partitions is None:
        assert len(mine) == len(spark)
    return mine


@pytest.fixture(scope="module")
def wide(spark: Any) -> Any:
    spark.sql("create schema manifest_blocks")
    columns = ", ".join(["p int", *(f"{column} {kind}" for column, (kind, _) in TYPES.items())])
    name = create_table(spark, "manifest_blocks.wide", columns, {"write.metadata.metrics.default": "full"}, "p")
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
def test_bounds_that_are_whole_cut_off_and_not_recorded(spark: Any, wide: str, key: Any) -> None:
    table = ClusteredTable(spark, wide, key)
    assert len(check(table)) == 5
    partitions = ChangedPartitions(({"p": 1}, {"p": None}))
    assert len(check(table, partitions)) == 3


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_survive_new_specs_wider_columns_and_rewrites(spark: Any, schema: str, version: int) -> None:
    columns = "k int, x decimal(4, 1), p string, q date"
    name = create_table(spark, f"{schema}.t", columns, {"format-version": version}, "p")
    spark.sql(f"insert into {name} values (1, 1.5, 'a', date'2026-01-01'), (2, 2.5, 'b''c', date'2026-01-02')")
    spark.sql(f"alter table {name} alter column k type bigint")
    spark.sql(f"alter table {name} alter column x type decimal(9, 1)")
    since = newest(ClusteredTable(spark, name, "k"))
    spark.sql(f"insert into {name} values (3000000000, 12345.5, 'a', date'2026-01-01'), (1, 1, null, null)")
    spark.sql(f"alter table {name} add partition field q")
    spark.sql(f"insert into {name} values (7, 7, 'a', date'2026-01-01'), (8, 8, 'b''c', null)")
    call(spark, "rewrite_manifests", name)
    spark.sql(f"delete from {name} where k = 3000000000")
    spark.sql(f"alter table {name} drop partition field p")
    spark.sql(f"insert into {name} values (9, 9, 'a', date'2026-01-01')")
    for key in ("k", "x", ["p", "k"]):
        table = ClusteredTable(spark, name, key)
        check(table)
        # All of the changed partitions: those of today's and of older specs that have these very fields.
        assert {"p=a/q=2026-01-01", "q=2026-01-01"} <= {
            path.split("/data/")[1].rpartition("/")[0] for path in check(table, changed(table, since))
        } or version == 1


def test_partition_fields_and_columns_that_are_renamed(spark: Any, schema: str) -> None:
    columns = "k int, `Part` string, ts timestamp"
    name = create_table(spark, f"{schema}.t", columns, partitioned="`Part`, days(ts)")
    spark.sql(f"insert into {name} values (1, 'a', timestamp'2026-01-01 01:00:00'), (2, 'b', null)")
    since = newest(ClusteredTable(spark, name, "k"))
    spark.sql(f"insert into {name} values (3, 'a', timestamp'2026-01-01 02:00:00'), (4, 'c', null)")
    spark.sql(f"alter table {name} rename column `Part` to other")
    spark.sql(f"alter table {name} rename column k to key")
    spark.sql(f"alter table {name} replace partition field ts_day with days(ts) as day_of_ts")
    spark.sql(f"insert into {name} values (5, 'a', timestamp'2026-01-01 03:00:00')")
    table = ClusteredTable(spark, name, "key")
    # All but the one of partition b, which did not change.
    assert len(check(table, changed(table, since))) == len(check(table)) - 1 == 4


def test_a_partition_field_that_is_renamed_without_a_write(spark: Any, schema: str) -> None:
    """The blocks were read before, by this process or by this recluster."""
    name = create_table(spark, f"{schema}.t", "k int, ts timestamp", partitioned="days(ts)")
    for _ in range(4):
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ id, timestamp'2026-01-01' from range(100)")
    options = {"depth": 1, "block_rows": 10}
    assert recluster(spark, name, "k", dry_run=True, **options).plan.sets
    table = ClusteredTable(spark, name, "k")
    blocks = table.metadata()
    spark.sql(f"alter table {name} replace partition field ts_day with days(ts) as other")
    table.iceberg.refresh()
    assert partition_scan(table.iceberg, blocks).filter is None
    assert recluster(spark, name, "k", **options).rounds


@pytest.mark.alike
def test_a_partition_is_named_by_its_fields_and_values(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, p string, ts timestamp) using iceberg partitioned by (p, years(ts))")
    spark.sql(f"insert into {name} values (1, 'a', timestamp'2026-01-31 05:00:00'), (2, null, null)")
    for field, transform in [("ts_year", "months"), ("ts_month", "days"), ("ts_day", "hours")]:
        spark.sql(f"alter table {name} replace partition field {field} with {transform}(ts)")
        after_9999 = "(4, 'b', timestamp_seconds(253402300800L))"
        spark.sql(f"insert into {name} values (3, 'a\n', timestamp'2026-01-31 05:00:00'), {after_9999}")
    table = ClusteredTable(spark, name, "k")
    blocks = read_blocks(table.iceberg, table.key).take(np.arange(7, -1, -1))
    assert {partition_name(table.iceberg, blocks, place) for place in range(8)} == {
        "p=a/ts_year=2026",
        "p=null/ts_year=null",
        "p=a\\n/ts_month=2026-01",
        "p=a\\n/ts_day=2026-01-31",
        "p=a\\n/ts_hour=2026-01-31T05",
        "p=b/ts_month=10000-01",
        "p=b/ts_day=10000-01-01",
        "p=b/ts_hour=10000-01-01T00",
    }


@pytest.mark.alike
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("double", ["0.0", "double('nan')", "double('infinity')", "-0.5", "null"]),
        ("decimal(9, 2)", ["1.50", "-0.01", "null"]),
        ("timestamp", ["timestamp'2026-01-01 12:00:00.000001'", "timestamp'0001-01-01 00:00:00'", "null"]),
        ("binary", ["X'00ff'", "X''", "null"]),
        (
            "string",
            [r"'a\nb\t\"c\\\\'", "'\u00e9\U0001f600'", "'{\"1\":2}'", "''", "'a/b=c'", "'null'", "null"],
        ),
        ("date", ["date'1582-10-10'", "date'0001-01-01'", "date'9999-12-31'", "date'2026-01-01'"]),
        ("bigint", ["-9223372036854775808L", "0L", "9223372036854775807L"]),
        ("boolean", ["true", "false", "null"]),
    ],
)
def test_partitions_of_any_value_are_told_apart(spark: Any, schema: str, kind: str, values: list[str]) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, `P.q` {kind}) using iceberg partitioned by (`P.q`)")
    for value in values:
        since = ClusteredTable(spark, name, "k").iceberg.snapshot_id
        spark.sql(f"insert into {name} values (1, {value}), (2, {value})")
        table = ClusteredTable(spark, name, "k")
        if since is not None:
            partitions = changed_partitions(table.iceberg, since, newest(table))
            assert (partitions is None) == (kind == "double")  # no literal writes NaN
            assert partitions is None or len(check(table, partitions)) == 1
    assert len(check(ClusteredTable(spark, name, "k"))) == len(values)


def test_partition_fields_that_differ_in_case_only(spark: Any, hadoop_catalog: str) -> None:
    name = f"{hadoop_catalog}.s.t"
    with spark_settings(spark, {"spark.sql.caseSensitive": "true"}):
        spark.sql(f"create table {name} (n int, k int, K int) using iceberg partitioned by (k, K)")
        spark.sql(f"insert into {name} values (1, 1, 2), (2, 2, 1), (3, 1, 2)")
        assert len(check(ClusteredTable(spark, name, ["K", "n"]))) == 2


SCANNED = ["n", "z, n", "days(d)", "bucket(2, u)", "truncate(2, u), n", "f"]


@pytest.mark.parametrize("partitioned", SCANNED)
def test_a_scan_of_partitions_has_their_files_with_the_same_deletes(spark: Any, schema: str, partitioned: str) -> None:
    modes = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    name = create_table(spark, f"{schema}.t", f"{columns}", modes, partitioned=partitioned)
    selected = ", ".join(value for _, value in TYPES.values())

    def load() -> None:
        spark.sql(f"insert into {name} select {selected} from range(9)")

    def deletes(task: Any) -> set[str]:
        return {str(delete.location()) for delete in java_items(task.deletes())}

    load()
    load()
    spark.sql(f"delete from {name} where l % 3 = 0")
    spark.sql(f"alter table {name} add partition field bucket(2, l)")
    load()
    spark.sql(f"alter table {name} rename column u to text")
    load()
    table = ClusteredTable(spark, name, "l")
    blocks, unfiltered = table.metadata(), 0
    every = SnapshotScan(table.iceberg, blocks.snapshot_id).tasks(paths := blocks.path.to_pylist())
    for partition in np.unique(blocks.partition):
        members = blocks.take(blocks.partition == partition)
        scan, wanted = partition_scan(table.iceberg, members), members.path.to_pylist()
        tasks = scan.tasks(wanted)
        assert [deletes(tasks[path]) for path in wanted] == [deletes(every[path]) for path in wanted]
        assert scan.metrics(wanted) == SnapshotScan(table.iceberg, blocks.snapshot_id).metrics(wanted)
        unfiltered += len(scan.paths()) == len(paths)
    assert (unfiltered > 0) == (partitioned == "f")  # numbers with NaN are not compared


def test_a_scan_finds_files_whose_rows_are_not_of_their_partition(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k bigint, n int", partitioned="n")
    append_files(spark, name, [pa.table({"k": pa.array([1, 2]), "n": pa.array([1, 1], pa.int32())})], partition="n=2")
    table = ClusteredTable(spark, name, "k")
    blocks = table.metadata()
    scan, paths = partition_scan(table.iceberg, blocks), blocks.path.to_pylist()
    assert scan.filter is not None
    assert (scan.paths(), list(scan.tasks(paths)), list(scan.metrics(paths))) == ([], paths, paths)


def test_a_scan_finds_files_of_a_partition_column_that_was_renamed_since(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k bigint, n int, m int", partitioned="truncate(2, n)")
    spark.sql(f"insert into {name} values (1, 1, 5), (2, 4, 5)")
    for old, new in [("n", "renamed"), ("m", "n")]:
        spark.sql(f"alter table {name} rename column {old} to {new}")
        table = ClusteredTable(spark, name, "k")
        blocks = table.metadata()
        scan, paths = partition_scan(table.iceberg, blocks), sorted(blocks.path.to_pylist())
        assert sorted(scan.paths()) == sorted(scan.tasks(paths)) == sorted(scan.metrics(paths)) == paths
