"""Rows and tables at stake: no odd name, location, setting or statistic changes a row or blocks a table."""

import re
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import functions as F
from tables import (
    checksum,
    create_table,
    make_table,
    merge_method,
    metadata_file,
    orphans,
    recluster_keeping_rows,
    spark_settings,
    stays_as_it_is,
    writers,
)

from dbt_recluster.api import clustering_information, recluster
from dbt_recluster.exceptions import ClusterKeyError, MergeFailedError, NotAnIcebergTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import native, spark_writer
from dbt_recluster.iceberg.rewrite.native_sql import BlockSql
from dbt_recluster.iceberg.rewrite.native_tasks import NativeJob
from dbt_recluster.iceberg.session.jvm import jvm
from dbt_recluster.iceberg.sort_order import curve_digest
from dbt_recluster.key.cluster_key import parse_cluster_key

OURS = [
    "__recluster_key_note",
    "__recluster_key_0",
    "__recluster_set",
    "__Recluster_Output",
    "__recluster_share",
]


# More rows of one value than fit into a block are split by a share, which takes a shuffle and one more column.
@pytest.mark.alike
@pytest.mark.parametrize("key", [["truncate(10, k)", "truncate(3, __recluster_set)"], ["truncate(10, id)"]])
@pytest.mark.parametrize("any_schema", ["true", "false"])
def test_columns_named_like_ours_keep_their_values(spark: Any, schema: str, key: list[str], any_schema: str) -> None:
    columns = f"id bigint, k int, {', '.join(f'`{column}` string' for column in OURS)}, __recluster_end bigint"
    name = create_table(spark, f"{schema}.t", columns, {"write.spark.accept-any-schema": any_schema})
    values = ", ".join(f"concat('{column} ', id) `{column}`" for column in OURS)
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id, if(id % 9 < 4, 7, cast(rand(1) * 1000 as int)) k, "
        f"{values}, -id __recluster_end from range(240)"
    )
    before = spark.sql(f"select * from {name} order by id").collect()
    assert recluster(spark, name, key, depth=1, block_rows=40).rounds
    assert spark.sql(f"select * from {name} order by id").collect() == before


# As many rows as before are no proof: the counts of NULLs, which the writer keeps, have to agree too.
FAULTS: dict[str, tuple[str, str]] = {  # what is written of column v, and of which rows
    "read 1200 values beside NULLs in column v and wrote 1199": ("if({0} = 7, null, {2})", "true"),
    "read 1080 rows and wrote 1079": ("{2}", "{0} != 7"),
}


@pytest.mark.parametrize("message", FAULTS)
@pytest.mark.parametrize(("method", "version"), [("native", 2), ("spark", 2), ("native", 3), ("spark", 3)])
def test_a_merge_that_loses_a_row_or_a_value_is_found_out(
    spark: Any,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    message: str,
    method: str,
    version: int,
) -> None:
    """Spark's writer repairs what the native one has lost; what that loses changes nothing."""
    properties = {"format-version": version, "write.delete.mode": "merge-on-read"}
    name = make_table(spark, schema, files=4, rows=300, properties=properties)
    if "1080" in message:  # where rows are deleted, NULLs are not counted
        spark.sql(f"delete from {name} where id % 10 = 3")
    value, rows = FAULTS[message]
    write, statement = spark_writer.write_files, BlockSql.statement

    def write_others(table: Any, frame: Any, *others: Any) -> Any:
        columns = ("id", "k", "v")
        frame = frame.where(rows.format(*columns)).withColumn("v", F.expr(value.format(*columns)))
        return write(table, frame, *others)

    def job_of_others(**fields: Any) -> Any:
        columns = ("c0", "c1", value.format("c0", "c1", "c2"), *fields["columns"][3:])
        return NativeJob(**{**fields, "columns": columns})

    def other_statement(self: Any, *arguments: Any) -> Any:
        of_all = statement(self, *arguments)
        return replace(of_all, where=f"{of_all.where} and {rows.format('c0')}")

    monkeypatch.setattr(native, "NativeJob", job_of_others)
    monkeypatch.setattr(BlockSql, "statement", other_statement)
    if method == "native":
        assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=200).rounds
        assert f"{name}: the native writer {message}. Spark's takes over." in caplog.text
        assert writers(spark, name) == ["spark: verification"]
        assert orphans(spark, name) == set()
        return
    monkeypatch.setattr(spark_writer, "write_files", write_others)
    found_out = pytest.raises(MergeFailedError, match=rf"{message}\. This round changed nothing")
    with stays_as_it_is(spark, name), merge_method(method), found_out:
        recluster(spark, name, "k", depth=1, block_rows=200)


def test_a_column_without_counts_is_passed_over(spark: Any, schema: str) -> None:
    properties = {"write.metadata.metrics.column.v": "none"}
    name = make_table(spark, schema, properties=properties)
    spark.sql(f"alter table {name} add columns (s struct<x: int, l: array<int>>, later string)")
    spark.sql(
        f"insert into {name} select id, id, 'v', named_struct('x', null, 'l', array(1, null)), 'x' from range(100)"
    )
    spark.sql(f"alter table {name} drop column later")
    spark.sql(f"alter table {name} unset tblproperties ('write.metadata.metrics.column.v')")
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=1000).rounds


@pytest.mark.alike
@pytest.mark.parametrize("keys", [1000, 3])  # the second has values of several blocks
@pytest.mark.parametrize("paths", ["true", "false"])
def test_hashes_before_file_names_do_no_harm(spark: Any, schema: str, keys: int, paths: str) -> None:
    """Iceberg then puts a hash before file names, which may look like the number of a Spark partition."""
    properties = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": paths,
        "write.delete.mode": "merge-on-read",
        "write.delete.granularity": "partition",
    }
    name = make_table(spark, schema, files=4, rows=300, keys=keys, partitioned="bucket(4, id)", properties=properties)
    spark.sql(f"delete from {name} where id % 10 = 3")
    partitions = f"select _partition, count(*) from {name} group by 1 order by 1"
    before, rows = checksum(spark, name), spark.sql(partitions).collect()
    result = recluster(spark, name, "k", depth=1, block_rows=90)
    assert result.rounds[0].sets == 4
    assert checksum(spark, name) == before
    assert spark.sql(partitions).collect() == rows
    if keys == 1000:
        assert clustering_information(spark, name)["max_depth"] <= 2


# All that is refused: tests/unit/test_cluster_key.py.
REFUSED = {"a.l.element": "only structs have fields", "hilbert(k, m)": "has no order"}


def test_a_key_that_is_refused_changes_nothing(spark: Any, schema: str) -> None:
    """A sort order within a list would make every INSERT of every writer fail."""
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k int, v string, l array<int>, m map<string, int>, "
        "a struct<b: int, l: array<int>, m: map<string, int>>) using iceberg"
    )
    values = "id, 'v', array(1), map('k', 1), named_struct('b', 1, 'l', array(1), 'm', null)"
    insert = f"insert into {name} select {values} from range(9)"
    spark.sql(insert)
    before = metadata_file(spark, name)
    for key, message in REFUSED.items():
        for look in (recluster, clustering_information):
            with pytest.raises(ClusterKeyError, match=message):
                look(spark, name, key)
    assert metadata_file(spark, name) == before
    spark.sql(insert)
    assert recluster(spark, name, "a.B").cluster_key == "a.b"
    spark.sql(insert)


def test_a_name_of_a_branch_or_of_metadata_is_no_table(spark: Any, hadoop_catalog: str) -> None:
    """The error has the name to use instead, with its catalog."""
    name = make_table(spark, f"{hadoop_catalog}.sales", name="`of day`", files=2, rows=10)
    for kind in ("branch b1", "tag x"):
        spark.sql(f"alter table {name} create {kind}")
    snapshot = IcebergTable.load(spark, name).current_snapshot()
    assert snapshot is not None
    at = int(snapshot.at.timestamp() * 1000) + 1
    for suffix, message in {
        "branch_b1": "is branch b1 of a table, .*: name ",
        "tag_x": "is tag x of a table, .*: name ",
        f"snapshot_id_{snapshot.id}": "is an older snapshot of a table, .*: name ",
        "snapshot_id_1": "ame ",
        f"at_timestamp_{at}": "is an older snapshot of a table, .*: name ",
        "at_timestamp_1": "ame ",
        "files": "is the metadata table files of a table, .*: name ",
        "changes": "is the change log of a table, .*: name ",
        "branch_nope": "ame ",
    }.items():
        instead = f"{message}{re.escape(name)}, and a branch other than main by the argument branch$"
        for look in (recluster, clustering_information):
            with stays_as_it_is(spark, name), pytest.raises(NotAnIcebergTableError, match=instead):
                look(spark, f"{name}.{suffix}", "k")
    like_a_branch = make_table(spark, f"{hadoop_catalog}.sales", name="branch_b1")
    assert recluster(spark, like_a_branch, "k", depth=1, block_rows=1000).depth_after < 2


def test_columns_that_differ_in_case_only_are_two(spark: Any, hadoop_catalog: str) -> None:
    name = f"{hadoop_catalog}.s.t"
    with spark_settings(spark, {"spark.sql.caseSensitive": "true"}):
        spark.sql(f"create table {name} (id int, k int, K int) using iceberg")
        for _ in range(4):
            spark.sql(f"insert into {name} select /*+ coalesce(1) */ id, id, 7 * id % 400 from range(400)")
        rows = spark.sql(f"select * from {name} order by id").collect()
        result = recluster(spark, name, "K", depth=1, block_rows=400)
        assert result.cluster_key == "K"
        assert clustering_information(spark, name, "K")["average_depth"] == 1
        assert clustering_information(spark, name, "k")["average_depth"] > 2
        assert recluster(spark, name, ["K", "k"], depth=1, block_rows=400, final=True).cluster_key == "K, k"
        assert spark.sql(f"select * from {name} order by id").collect() == rows
        keys = map(parse_cluster_key, ("hilbert(k, id)", "hilbert(K, id)"))
        assert len({curve_digest(IcebergTable.load(spark, name), key) for key in keys}) == 2
        with pytest.raises(ClusterKeyError, match="there is no column 'ID'"):
            recluster(spark, name, "ID")
    with pytest.raises(ClusterKeyError, match="'k' is ambiguous: it may be k or K"):
        recluster(spark, name, "k")


def test_recorded_counts_that_are_wrong_fail_the_round(spark: Any, schema: str) -> None:
    """Another writer's file claims NULLs that it does not hold."""
    name = make_table(spark, schema)
    table = IcebergTable.load(spark, name)
    file = table.java.newScan().includeColumnStats().planFiles().iterator().next().file()
    trees = jvm(spark).java.util.TreeMap
    nulls = trees(file.nullValueCounts())
    nulls.putAll(trees(file.valueCounts()).tailMap(3))  # every v
    metrics = table.iceberg.Metrics(
        file.recordCount(), None, file.valueCounts(), nulls, None, file.lowerBounds(), file.upperBounds()
    )
    forged = table.iceberg.DataFiles.builder(table.java.spec()).copy(file).withMetrics(metrics).build()
    # Under the same path: it is taken out and put back in.
    table.java.newDelete().deleteFile(file).commit()
    table.java.newAppend().appendFile(forged).commit()
    spark.sql(f"refresh table {name}")
    wrong = r"read 5000 values beside NULLs in column v and wrote 6000.*or of the writer that counted"
    with stays_as_it_is(spark, name), pytest.raises(MergeFailedError, match=wrong):
        recluster(spark, name, "k", depth=1, block_rows=1000)
