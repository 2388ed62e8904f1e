"""Rows and tables at stake: no odd name, location, setting or statistic changes a row or blocks a table."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tables import Meanwhile, append, checksum, make_table, metadata_file, orphans, staged_sets

from dbt_recluster.exceptions import ClusterKeyError, MergeFailedError, NotAnIcebergTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import merge
from dbt_recluster.iceberg.session.jvm import jvm
from dbt_recluster.maintenance import clustering_history, clustering_information, recluster

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
def test_columns_named_like_ours_keep_their_values(
    spark: Any, schema: str, key: list[str], any_schema: str
) -> None:
    name = f"{schema}.t"
    columns = ", ".join(f"`{column}` string" for column in OURS)
    spark.sql(
        f"create table {name} (id bigint, k int, {columns}, __recluster_end bigint) using iceberg "
        f"tblproperties ('write.spark.accept-any-schema' = '{any_schema}')"
    )
    values = ", ".join(f"concat('{column} ', id) `{column}`" for column in OURS)
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id, if(id % 9 < 4, 7, cast(rand(1) * 1000 as int)) k, "
        f"{values}, -id __recluster_end from range(240)"
    )
    before = spark.sql(f"select * from {name} order by id").collect()
    assert recluster(spark, name, key, depth=1, block_rows=40).rounds
    assert spark.sql(f"select * from {name} order by id").collect() == before


def test_a_merge_that_changes_a_column_is_found_out(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows as before are no proof: the counts of NULLs, which the writer keeps, have to agree too."""
    name = make_table(spark, schema)
    before = checksum(spark, name)
    write = merge.write_files

    def write_with_a_fault(table: Any, rows: Any, *args: Any) -> Any:
        return write(table, rows.selectExpr("id", "k", "if(id = 7, null, v) v"), *args)

    monkeypatch.setattr(merge, "write_files", write_with_a_fault)
    with pytest.raises(
        MergeFailedError, match=r"read 0 NULLs in column v and wrote 1\. This round changed nothing"
    ):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()


def test_a_column_without_counts_is_passed_over(spark: Any, schema: str) -> None:
    properties = {"write.metadata.metrics.column.v": "none"}
    name = make_table(spark, schema, properties=properties)
    spark.sql(f"alter table {name} add columns (s struct<x: int, l: array<int>>, later string)")
    spark.sql(
        f"insert into {name} select id, id, 'v', named_struct('x', null, 'l', array(1, null)), 'x' from range(100)"
    )
    spark.sql(f"alter table {name} drop column later")
    spark.sql(f"alter table {name} unset tblproperties ('write.metadata.metrics.column.v')")
    before = checksum(spark, name)
    assert recluster(spark, name, "k", depth=1, block_rows=1000).rounds
    assert checksum(spark, name) == before


@pytest.mark.alike
@pytest.mark.parametrize("keys", [1000, 3])  # by ranges, by a shuffle
@pytest.mark.parametrize("paths", ["true", "false"])
def test_an_object_store_layout(spark: Any, schema: str, keys: int, paths: str) -> None:
    """Iceberg then puts a hash before file names, which may look like the number of a Spark partition."""
    properties = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": paths,
        "write.delete.mode": "merge-on-read",
        "write.delete.granularity": "partition",
    }
    name = make_table(
        spark, schema, files=4, rows=300, keys=keys, partitioned="bucket(4, id)", properties=properties
    )
    spark.sql(f"delete from {name} where id % 10 = 3")
    partitions = f"select _partition, count(*) from {name} group by 1 order by 1"
    before, rows = checksum(spark, name), spark.sql(partitions).collect()
    result = recluster(spark, name, "k", depth=1, block_rows=90)
    assert result.rounds[0].sets == 4
    assert checksum(spark, name) == before
    assert spark.sql(partitions).collect() == rows
    if keys == 1000:
        assert clustering_information(spark, name)["max_depth"] <= 2


@pytest.mark.alike
@pytest.mark.parametrize("version", [2, 3])
def test_a_lost_row_is_noticed_where_others_are_deleted(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    properties = {"format-version": version, "write.delete.mode": "merge-on-read"}
    name = make_table(spark, schema, files=4, rows=300, properties=properties)
    spark.sql(f"delete from {name} where id % 10 = 3")
    before = checksum(spark, name)
    write = merge.write_files

    def write_with_a_fault(table: Any, rows: Any, *args: Any) -> Any:
        return write(table, rows.where("id != 7"), *args)

    monkeypatch.setattr(merge, "write_files", write_with_a_fault)
    with pytest.raises(MergeFailedError, match="read 1080 rows and wrote 1079"):
        recluster(spark, name, "k", depth=1, block_rows=200)
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()


def test_a_set_of_which_no_row_is_left(spark: Any, schema: str) -> None:
    properties = {"write.delete.mode": "merge-on-read"}
    name = make_table(spark, schema, files=4, rows=300, partitioned="bucket(3, id)", properties=properties)
    gone = spark.sql(f"select _file, _partition from {name} where id = 0").first()._partition
    ids = [
        row.id for row in spark.sql(f"select id, _partition from {name}").collect() if row._partition == gone
    ]
    # One by one: Iceberg drops files whole of which all rows are deleted at once.
    for part in (0, 1):
        spark.sql(f"delete from {name} where id in ({', '.join(map(str, ids[part::2]))})")
    before = checksum(spark, name)
    recluster(spark, name, "k", depth=1, block_rows=100, final=True)
    assert checksum(spark, name) == before
    assert clustering_information(spark, name)["total_rows"] == before[0]


REFUSED = {
    "a.l.element": "only structs have fields",
    "a.m.key": "only structs have fields",
    "a.m.value": "only structs have fields",
    "a.nope": "a has no field 'nope'",
    "a": "has no order to cluster by",
    "m": "has no order to cluster by",
    "l.element": "only structs have fields",
    "days(k)": "needs date or timestamp",
    "days(a.b)": "needs date or timestamp",
    "truncate(2147483648, v)": "the width must be at most 1073741824",
    "a.b.c": "a.b is int, and only structs have fields",
}


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


def test_only_the_main_branch_is_reclustered(spark: Any, hadoop_catalog: str) -> None:
    """The error has the name to use instead, with its catalog."""
    name = make_table(spark, f"{hadoop_catalog}.sales", name="`of day`", files=2, rows=10)
    for kind in ("branch b1", "tag x"):
        spark.sql(f"alter table {name} create {kind}")
    snapshot = IcebergTable.load(spark, name).current_snapshot()
    assert snapshot is not None
    before, at = metadata_file(spark, name), int(snapshot.at.timestamp() * 1000) + 1
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
            with pytest.raises(NotAnIcebergTableError, match=instead):
                look(spark, f"{name}.{suffix}", "k")
    assert metadata_file(spark, name) == before


def test_a_table_may_be_called_like_a_branch(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, name="branch_b1")
    assert recluster(spark, name, "k", depth=1, block_rows=1000).depth_after < 2


def test_writes_that_go_to_a_branch_first(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=2, rows=10, properties={"write.wap.enabled": "true"})
    spark.sql(f"alter table {name} create branch audit")
    before = metadata_file(spark, name)
    spark.conf.set("spark.wap.branch", "audit")
    try:
        with pytest.raises(NotAnIcebergTableError, match=r"spark\.wap\.branch sends .* to branch audit"):
            recluster(spark, name, "k")
        assert metadata_file(spark, name) == before
        assert clustering_information(spark, name, "k")["total_block_count"]
    finally:
        spark.conf.unset("spark.wap.branch")


@pytest.mark.parametrize("name", [None, 5, "", "a b", "nope.t", "x.y.z.t"])
def test_no_name_ends_in_a_raw_error(spark: Any, name: Any) -> None:
    with pytest.raises(NotAnIcebergTableError):
        recluster(spark, name, "k")


def test_columns_that_differ_in_case_only(spark: Any, hadoop_catalog: str) -> None:
    name = f"{hadoop_catalog}.s.t"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
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
        with pytest.raises(ClusterKeyError, match="there is no column 'ID'"):
            recluster(spark, name, "ID")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(ClusterKeyError, match="'k' is ambiguous: it may be k or K"):
        recluster(spark, name, "k")


def test_the_expected_depth_is_that_of_the_committed_sets(spark: Any, schema: str) -> None:
    """Another writer changes one of two sets: what is recorded must not include its merge."""
    name = make_table(
        spark, schema, files=0, partitioned="v", properties={"write.delete.mode": "copy-on-write"}
    )
    spark.sql(
        f"insert into {name} select /*+ repartition(6) */ id, cast(rand(1) * 1000 as int), id % 2 from range(4800)"
    )
    delete = f"delete from {name} where v = '1' and id < 3"
    meanwhile = Meanwhile("commit", lambda: spark.sql(delete))
    result = recluster(spark, name, "k", depth=1, block_rows=500, listener=meanwhile)
    assert result.rounds[0].sets == 1
    append(spark, name, 10_000, 10)  # so that nobody measures what the recluster left
    (entry,) = [entry for entry in clustering_history(spark, name) if entry.is_recluster]
    assert (entry.depth_before, entry.depth_after_is) == (6.0, "expected")
    # Five blocks of depth 1 in one partition, six of depth 6 in the other.
    assert entry.depth_after == 3.7273
    assert staged_sets(spark, name) == (0, 0)


def test_recorded_counts_that_are_wrong_fail_the_round(spark: Any, schema: str) -> None:
    """Another writer's file claims NULLs that it does not hold."""
    name = make_table(spark, schema)
    table = IcebergTable.load(spark, name)
    lists = table.iceberg.relocated.com.google.common.collect.Lists
    task = lists.newArrayList(table.java.newScan().includeColumnStats().planFiles())[0]
    file = task.file()
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
    before = checksum(spark, name)
    with pytest.raises(
        MergeFailedError,
        match=r"read 1000 NULLs in column v and wrote 0.*or of the writer that counted",
    ):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert checksum(spark, name) == before
