"""Reclustering real tables: what it must never change, and what it must."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as parquet
import pytest
from tables import append, checksum, levels, make_table, metadata_file

from dbt_recluster.advice.cost_model import CostModel
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import (
    ClusterKeyError,
    NotAnIcebergTableError,
    OptionError,
    PredicateError,
)
from dbt_recluster.iceberg import iceberg_table
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.maintenance import blocks_opened, clustering_information, recluster
from dbt_recluster.planner import STRATEGIES


def test_properties_are_read_once_after_each_change(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, reads = IcebergTable.load(spark, make_table(spark, schema, files=1)), []
    read = iceberg_table.java_map
    monkeypatch.setattr(iceberg_table, "java_map", lambda *of: reads.append(of) or read(*of))
    assert "a" not in table.properties
    assert "a" not in table.properties
    assert len(reads) == 1
    table.set_property("a", "1")
    assert table.properties["a"] == "1"


def test_a_dry_run_changes_nothing(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    before = metadata_file(spark, name)
    plan = recluster(spark, name, "k", depth=1, dry_run=True).plan
    assert plan is not None
    assert [each.blocks for each in plan.sets] == [6]
    assert metadata_file(spark, name) == before
    assert table_cluster_key(IcebergTable.load(spark, name)) is None


def test_the_rows_stay_and_the_depth_falls(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    before = checksum(spark, name)
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    assert checksum(spark, name) == before
    assert (result.depth_before, result.blocks_in, result.blocks_before) == (6.0, 6, 6)
    assert result.depth_after < 2
    assert (result.rows, result.conflicts, len(result.rounds)) == (6000, 0, 1)
    assert (
        result.blocks_after == result.blocks_out == clustering_information(spark, name)["total_block_count"]
    )
    assert blocks_opened(spark, name, "k = 500") <= 2
    assert len(set(levels(spark, name))) == 1
    assert min(levels(spark, name)) > 0
    file = metadata_file(spark, name)
    assert recluster(spark, name, "k", depth=1, block_rows=1000, final=True).rounds == []
    assert metadata_file(spark, name) == file
    # The commit tells what it did, and the blocks record the sort order and keep their bounds.
    row = spark.sql(f"select operation, summary from {name}.snapshots order by committed_at desc").first()
    summary = {key.removeprefix("recluster."): value for key, value in row.summary.items()}
    assert (row.operation, int(summary["level"])) == ("replace", min(levels(spark, name)))
    assert (int(summary["blocks_in"]), int(summary["bytes_in"])) == (6, result.bytes_in)
    bounds = "readable_metrics.k.lower_bound lo, readable_metrics.k.upper_bound hi"
    files = spark.sql(f"select sort_order_id, {bounds} from {name}.files order by lo").collect()
    assert {row.sort_order_id for row in files} == {1}
    assert all(left.hi <= right.lo for left, right in pairwise(files))


@pytest.mark.alike
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_comes_to_rest(spark: Any, schema: str, strategy: str) -> None:
    name = make_table(spark, schema)
    before = checksum(spark, name)
    result = recluster(spark, name, "k", depth=2, block_rows=1000, strategy=strategy, final=True)
    assert (result.depth_before, checksum(spark, name)) == (6.0, before)
    assert result.depth_after <= 2
    assert not recluster(spark, name, "k", depth=2, block_rows=1000, strategy=strategy, final=True).rounds


def test_the_blocks_of_a_merge_have_a_limit(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    for given in ({"max_merge_blocks": 2}, {}):
        plan = recluster(spark, name, "k", depth=1, strategy="width", dry_run=True, **given).plan
        assert plan is not None
        assert [one.blocks for one in plan.sets] == ([2, 2, 2] if given else [6])
    with pytest.raises(OptionError, match="max_merge_blocks must be a whole number above 1, at most"):
        recluster(spark, name, max_merge_blocks=1)


def test_sets_span_from_null_to_nan(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k double, other double) using iceberg")
    for _ in range(3):
        rows = "values (null, 7), (1, 5), (double('NaN'), 5), (2, null)"
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ * from {rows}")
    for key, lower, upper in (("k", "NULL", "NaN"), ("hilbert(k, other)", "NULL, NULL", "NaN, 7.0")):
        plan = recluster(spark, name, key, depth=1, dry_run=True).plan
        assert plan is not None
        assert [(each.lower, each.upper) for each in plan.sets] == [(lower, upper)]


def test_what_a_read_of_one_key_opens_is_estimated(spark: Any, schema: str) -> None:
    small = {
        "write.parquet.row-group-size-bytes": 32768,
        "write.parquet.row-group-check-min-record-count": 10,
        "write.parquet.page-row-limit": 100,  # pages of the usual size are compressed before a row group is full
    }
    name = make_table(spark, schema, files=4, rows=5000, keys=100_000, properties=small)
    unsorted = clustering_information(spark, name, "k")
    assert unsorted["key_read_bytes"] == pytest.approx(unsorted["total_bytes"], rel=0.01)
    planned = recluster(spark, name, "k", depth=1, dry_run=True).plan
    assert planned is not None
    assert planned.key_read_bytes == unsorted["key_read_bytes"]
    assert planned.expected_key_read_row_groups == 1
    recluster(spark, name, "k", depth=1)
    append(spark, name, 20_000, 5000, keys=100_000)
    after = clustering_information(spark, name)
    groups = _row_groups(spark, name)
    opened = [
        [size for least, greatest, size in groups if least <= key <= greatest]
        for key in range(500, 99_500, 500)
    ]
    assert after["key_read_row_groups"] == pytest.approx(sum(map(len, opened)) / len(opened), rel=0.1)
    assert after["key_read_bytes"] == pytest.approx(sum(map(sum, opened)) / len(opened), rel=0.3)
    spark.sql(f"alter table {name} set tblproperties ('write.format.default' = 'orc')")
    assert "key_read_bytes" not in clustering_information(spark, name)


def _row_groups(spark: Any, name: str) -> list[tuple[int, int, int]]:
    """Bounds of the key and bytes of all row groups, by the files' own footers."""
    groups = []
    for file in spark.sql(f"select file_path from {name}.files").collect():
        footer = parquet.ParquetFile(unquote(urlparse(file[0]).path)).metadata
        for group in map(footer.row_group, range(footer.num_row_groups)):
            bounds = group.column(1).statistics
            size = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
            groups.append((bounds.min, bounds.max, size))
    return groups


@pytest.mark.thorough
def test_parts_of_a_table_stay_over_each_other_until_a_depth_of_1(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=8, keys=100_000)
    half = spark.sql(f"select sum(file_size_in_bytes) from {name}.files").first()[0] * 6 // 10
    parts = [recluster(spark, name, "k", block_rows=1000, max_bytes=half)]
    while parts[-1].rounds:
        assert len(parts) < 5
        parts.append(recluster(spark, name, block_rows=1000, max_bytes=half))
    assert parts[-1].reason.endswith("is at most 4, and a depth of 1 would merge further")
    assert 2 <= parts[-1].depth_after <= 4
    assert recluster(spark, name, depth=1, block_rows=1000).rounds
    finished = recluster(spark, name, depth=1, block_rows=1000, max_bytes=half)
    assert (finished.reducible_depth, finished.reason) == (1, "reducible depth 1 is at most 1")


def test_where_chooses_whole_blocks(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, partitioned="truncate(500, k)")
    before = checksum(spark, name)
    result = recluster(spark, name, "k", depth=1, where="k < 100", block_rows=1000)
    assert result.blocks_in == 6
    assert checksum(spark, name) == before
    assert levels(spark, name).count(0) == 6  # the other partition
    assert recluster(spark, name, "k", depth=1, where="k < 100", block_rows=1000).rounds == []
    assert recluster(spark, name, "k", depth=1, where="k = -1", block_rows=1000).rounds == []


def test_where_follows_the_session_in_the_case_of_names(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    assert blocks_opened(spark, name, "K >= 0") == 6
    assert recluster(spark, name, "k", depth=1, block_rows=1000, where="K >= 0").rounds
    assert (
        recluster(spark, name, "k", where="K is null").reason
        == "no block can hold a row that the predicate admits"
    )


def test_the_budget_is_kept(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=8)
    size = spark.sql(f"select max(file_size_in_bytes) from {name}.files").first()[0]
    result = recluster(spark, name, "k", depth=1, max_bytes=f"{3 * size} B", final=True, block_rows=1000)
    assert 0 < result.bytes_in <= 3 * size
    assert recluster(spark, name, "k", depth=1, max_bytes=1).rounds == []


def test_nulls_and_nans_have_their_place(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k double, id bigint) using iceberg")
    spark.sql(
        f"insert into {name} select /*+ repartition(5) */ case id % 10 when 0 then null when 1 then double('NaN') "
        "else rand(1) end, id from range(2500)"
    )
    before = checksum(spark, name)
    result = recluster(spark, name, "k", depth=2, block_rows=200, final=True)
    assert checksum(spark, name) == before
    assert result.reason
    assert blocks_opened(spark, name, "k = 0.5") <= 2
    assert blocks_opened(spark, name, "k is null") <= 3


def test_an_estimate_with_where_is_of_the_blocks_that_it_admits(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    # Blocks of the whole range lie over narrow ones; only the narrow ones match.
    spark.sql(
        f"insert into {name} select /*+ repartition(3) */ id, cast(id % 10 as int), 'few' from range(3000)"
    )
    append(spark, name, 3000, 3000, files=3)
    options = ReclusterOptions(final=True, depth=1, where="v = 'few'", block_rows=1000)
    table = ClusteredTable(spark, name, "k")
    estimate = CostModel.of(table, options).recluster(table.predicate(options.where))
    result = Recluster(table, options).run()
    assert (estimate.blocks, estimate.depth) == (3, result.depth_before) == (3, 3.0)
    assert (estimate.bytes, estimate.rounds) == (result.bytes_in, len(result.rounds))
    assert estimate.expected_depth == result.depth_after == 1.0


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("depth", [1, 2])
def test_frequent_values_come_to_rest(spark: Any, schema: str, depth: int) -> None:
    """Most rows have one of four values, each of which fills more than a block: its parts are small by chance."""
    name = make_table(spark, schema, files=0)
    value = "case id % 6 when 0 then 5 when 1 then 1 when 2 then 2 when 3 then 2 when 4 then 9 else id end"
    for start in range(0, 200, 40):
        spark.sql(
            f"insert into {name} select id, cast({value} as int), 'v' from range({start}, {start + 40})"
        )
    before = checksum(spark, name)
    result = recluster(spark, name, "k", depth=depth, block_rows=30, final=True)
    assert 1 <= len(result.rounds) <= 2
    assert checksum(spark, name) == before
    assert not recluster(spark, name, "k", depth=depth, block_rows=30).rounds


def test_one_value_everywhere_comes_to_rest(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    spark.sql(f"update {name} set k = 1")
    before = checksum(spark, name)
    for _ in range(3):
        recluster(spark, name, "k", depth=1, block_rows=500, final=True)
    assert recluster(spark, name, "k", depth=1, block_rows=500, final=True).rounds == []
    assert checksum(spark, name) == before


@pytest.mark.parametrize("written", [False, True])
def test_an_empty_table(spark: Any, schema: str, written: bool) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int) using iceberg")
    if written:
        spark.sql(f"insert into {name} values (1)")
        spark.sql(f"delete from {name}")
    result = recluster(spark, name, "k", final=True)
    assert (result.rounds, result.blocks_before, result.depth_after) == ([], 0, 0.0)
    assert clustering_information(spark, name)["total_block_count"] == 0
    assert blocks_opened(spark, name, "k = 1") == 0


def test_keys_with_odd_names(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (`a key` int, `Order` int, `sum(x)` int, `tick``ed` int) using iceberg")
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id % 99, id % 98, id % 97, id % 96 from range(400)"
    )
    before = checksum(spark, name)
    for key in ("`a key`", "order", "`sum(x)`", "`tick``ed`"):
        assert recluster(spark, name, key, depth=1, block_rows=50, final=True).depth_after <= 2
    assert checksum(spark, name) == before


def test_a_field_of_a_struct(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (id bigint, place struct<city: string, zip: int>) using iceberg")
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id, "
        "named_struct('city', 'x', 'zip', cast(rand(1) * 99 as int)) from range(2000)"
    )
    before = checksum(spark, name)
    result = recluster(spark, name, "place.zip", depth=1, block_rows=500, final=True)
    assert (result.depth_before, checksum(spark, name)) == (4.0, before)
    assert result.depth_after <= 2


BAD_INPUT: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"table": "nope.t"}, NotAnIcebergTableError, r"nope\.t cannot be loaded"),
    ({"table": "a b"}, NotAnIcebergTableError, "'a b' is not the name of a table"),
    (
        {},
        ClusterKeyError,
        "has no cluster key: neither the property recluster.cluster_by nor a sort order",
    ),
    ({"cluster_by": "nope"}, ClusterKeyError, "there is no column 'nope'"),
    ({"cluster_by": "bucket(2, k)"}, ClusterKeyError, "not supported"),
    ({"cluster_by": "days(k)"}, ClusterKeyError, "needs date"),
    ({"cluster_by": "k", "depth": 0}, OptionError, "depth must be"),
    ({"cluster_by": "k", "max_bytes": "10 GX"}, OptionError, "max_bytes must be a number of bytes"),
    ({"cluster_by": "k", "max_bytes": 0}, OptionError, "max_bytes must be"),
    ({"cluster_by": "k", "max_bytes": 1.5}, OptionError, "max_bytes must be"),
    ({"cluster_by": "k", "block_rows": -1}, OptionError, "block_rows must be"),
    ({"cluster_by": "k", "block_rows": 10**30}, OptionError, "block_rows must be"),
    ({"cluster_by": "k", "depth": 10**400}, OptionError, "depth must be a number of at least 1"),
    ({"cluster_by": "k", "depth": float("inf")}, OptionError, "depth must be a number of at least 1"),
    ({"cluster_by": "k", "strategy": "best"}, OptionError, "strategy must be one of"),
    ({"cluster_by": "k", "where": "nope = 1"}, PredicateError, "cannot be resolved"),
    ({"cluster_by": "k", "where": "k ="}, PredicateError, "cannot choose blocks"),
    ({"cluster_by": "k", "where": "rand() < 0.5"}, PredicateError, "Cannot convert"),
    ({"cluster_by": "k", "where": "1=1; drop table x"}, PredicateError, "cannot choose blocks"),
]


def test_bad_input_changes_nothing(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=2, rows=10)
    before = metadata_file(spark, name)
    for call, error, message in BAD_INPUT:
        with pytest.raises(error, match=message):
            recluster(spark, **{"table": name, **call})
        assert metadata_file(spark, name) == before, call
    spark.sql(f"alter table {name} write ordered by k desc")
    with pytest.raises(ClusterKeyError, match="is not a cluster key"):
        recluster(spark, name)
