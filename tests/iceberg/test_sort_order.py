"""The key of a table: its sort order, the property that names a curve, and the levels that are for one key only."""

from __future__ import annotations

from typing import Any

import pytest
from tables import append, checksum, levels, make_table, metadata_file

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.sort_order import (
    TableChange,
    check_bounds_are_recorded,
    is_cluster_key,
    remove_clustering,
    sort_order_text,
    table_cluster_key,
)
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.maintenance import recluster, suspend_recluster

CURVE, LED = "hilbert(k, v)", "id, hilbert(k, v)"
BY_ID = "id ASC NULLS FIRST"


def key_of(spark: Any, name: str) -> str | None:
    key = table_cluster_key(IcebergTable.load(spark, name))
    return None if key is None else str(key)


def change(spark: Any, name: str, key: str) -> None:
    TableChange(parse_cluster_key(key)).commit(IcebergTable.load(spark, name))


@pytest.mark.parametrize(("key", "order"), [(CURVE, ""), (LED, BY_ID), ("id", BY_ID)])
def test_a_key_is_the_sort_order_as_far_as_that_can_name_it(
    spark: Any, schema: str, key: str, order: str
) -> None:
    name = make_table(spark, schema, files=0)
    change(spark, name, key)
    table = IcebergTable.load(spark, name)
    assert (sort_order_text(table), str(table_cluster_key(table))) == (order, key)
    assert is_cluster_key(table, parse_cluster_key(key))
    assert ("recluster.cluster_by" in table.properties) is ("hilbert" in key)
    columns = {field.column for field in parse_cluster_key(key).fields}
    full = {n.rpartition(".")[2] for n, value in table.properties.items() if value == "full"}
    assert full == columns
    before = metadata_file(spark, name)
    change(spark, name, key)
    assert metadata_file(spark, name) == before


@pytest.mark.parametrize("other", ["hilbert(v, k)", "hilbert(k, id)", "id", "k, v", "id, hilbert(k, v)"])
def test_keys_that_differ_in_the_curve_alone_are_two(spark: Any, schema: str, other: str) -> None:
    name = make_table(spark, schema, files=0)
    for here, there in ((CURVE, other), (other, CURVE)):
        change(spark, name, here)
        assert not is_cluster_key(IcebergTable.load(spark, name), parse_cluster_key(there))
        change(spark, name, there)
        assert key_of(spark, name) == there


def test_a_plain_key_takes_the_property_of_a_curve_away(spark: Any, schema: str) -> None:
    """`id` is the sort order of both keys, so the property alone tells them apart."""
    name = make_table(spark, schema, files=0)
    change(spark, name, LED)
    change(spark, name, "id")
    assert key_of(spark, name) == "id"
    assert "recluster.cluster_by" not in IcebergTable.load(spark, name).properties


def test_a_plain_key_leaves_the_property_of_a_plain_key(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0, properties={"recluster.cluster_by": "k"})
    change(spark, name, "id")
    assert IcebergTable.load(spark, name).properties["recluster.cluster_by"] == "k"


@pytest.mark.parametrize(
    ("order", "recorded", "expected"),
    [
        ("v", LED, "v"),
        ("id", CURVE, "id"),
        (None, LED, None),
        ("id", "hilbert(k)", "id"),
        ("id", "nonsense(", "id"),
        (None, "", None),
        (None, "k", None),
        ("id", "id, zorder(k, v)", LED),
    ],
)
def test_the_sort_order_wins_over_a_property_that_begins_otherwise(
    spark: Any, schema: str, order: str | None, recorded: str, expected: str | None
) -> None:
    name = make_table(spark, schema, files=0, properties={"recluster.cluster_by": recorded})
    if order:
        spark.sql(f"alter table {name} write ordered by {order}")
    assert key_of(spark, name) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("recorded", ["hilbert(k, gone)", "hilbert(days(v), k)", "nonsense(", "hilbert(k)"])
def test_a_property_that_does_not_fit_costs_no_row(spark: Any, schema: str, recorded: str) -> None:
    name = make_table(spark, schema, properties={"recluster.cluster_by": recorded})
    rows, before = checksum(spark, name), metadata_file(spark, name)
    with pytest.raises(ClusterKeyError):
        recluster(spark, name)
    assert metadata_file(spark, name) == before
    assert recluster(spark, name, "hilbert(k, id)", depth=1, block_rows=500).rounds
    assert checksum(spark, name) == rows
    assert key_of(spark, name) == "hilbert(k, id)"


@pytest.mark.thorough
def test_an_order_set_by_hand_is_the_key_until_the_curve_comes_back(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    assert recluster(spark, name, LED, depth=1, block_rows=500).rounds
    rows = checksum(spark, name)
    spark.sql(f"alter table {name} write ordered by k")
    assert recluster(spark, name, depth=1, block_rows=500).cluster_key == "k"
    assert checksum(spark, name) == rows
    recluster(spark, name, LED, depth=1, block_rows=500)
    assert (key_of(spark, name), checksum(spark, name)) == (LED, rows)


def test_names_that_need_quotes(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (`order date` date, s struct<`a,b`: int>, `c``d` int) using iceberg")
    key = parse_cluster_key(["hilbert(months(`order date`), s.`a,b`, truncate(5, `c``d`))"])
    key = key.check(IcebergTable.load(spark, name).columns())
    TableChange(key).commit(IcebergTable.load(spark, name))
    table = IcebergTable.load(spark, name)
    assert table_cluster_key(table) == key
    check_bounds_are_recorded(table, key)


def test_bounds_of_all_columns_of_a_curve_are_needed(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, properties={"write.metadata.metrics.column.v": "none"})
    with pytest.raises(Exception, match="records no bounds of v"):
        recluster(spark, name, CURVE)
    assert key_of(spark, name) is None


def test_removing_clustering_takes_the_curve(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    change(spark, name, LED)
    order, names = remove_clustering(IcebergTable.load(spark, name))
    assert (order, names) == (BY_ID, ["recluster.cluster_by", "write.distribution-mode"])
    assert key_of(spark, name) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("there", "version"),
    [
        ("hilbert(v, k)", 1),
        ("k, v", 2),
        pytest.param("hilbert(k, id)", 2, marks=pytest.mark.exhaustive),
        pytest.param("id, hilbert(k, v)", 2, marks=pytest.mark.exhaustive),
    ],
)
def test_levels_are_for_one_key(spark: Any, schema: str, there: str, version: int) -> None:
    name = make_table(spark, schema, files=8, rows=100, properties={"format-version": version})
    assert recluster(spark, name, CURVE, depth=1, block_rows=100).rounds
    assert min(levels(spark, name)) > 0
    change(spark, name, there)
    assert set(levels(spark, name)) == {0}
    change(spark, name, CURVE)
    assert min(levels(spark, name)) > 0  # nothing was merged under the other key
    append(spark, name, 800, 400, files=4)
    assert recluster(spark, name, there, depth=1, block_rows=100).rounds
    recorded = RecordedLevels.of(IcebergTable.load(spark, name).properties)
    assert bool(recorded.curve) is ("hilbert" in there)
    assert max(levels(spark, name)) > 0
    change(spark, name, CURVE)
    assert set(levels(spark, name)) == {0}


@pytest.mark.thorough
def test_loads_of_an_unsorted_table_are_level_0(spark: Any, schema: str) -> None:
    """Their sort order id is that of reclustered blocks."""
    name = make_table(spark, schema, files=8, rows=100)
    assert recluster(spark, name, CURVE, depth=1, block_rows=100).rounds
    blocks = len(levels(spark, name))
    append(spark, name, 800, 400, files=4)
    assert levels(spark, name)[:4] == [0] * 4
    assert levels(spark, name)[4] > 0
    assert len(levels(spark, name)) == blocks + 4


@pytest.mark.thorough
def test_ids_tell_nothing_of_the_age_of_loads(spark: Any, schema: str) -> None:
    """In format version 1 levels are by id, and a load may have one below those that became a mean."""
    name = make_table(spark, schema, files=8, rows=100, properties={"format-version": 1})
    assert recluster(spark, name, CURVE, depth=1, block_rows=100).rounds
    recorded = RecordedLevels.of(IcebergTable.load(spark, name).properties)
    old = RecordedLevels(last_old=2**63 - 1, mean_old=3, curve=recorded.curve)
    spark.sql(f"alter table {name} set tblproperties ('{table_properties.LEVELS}' = '{old.packed()}')")
    assert set(levels(spark, name)) == {0}


def test_levels_recorded_before_there_were_curves(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=8, rows=100)
    assert recluster(spark, name, "k", depth=1, block_rows=100).rounds
    text = IcebergTable.load(spark, name).properties[table_properties.LEVELS]
    assert "curve" not in text  # as earlier versions write and read it
    assert min(levels(spark, name)) > 0
    change(spark, name, "k, hilbert(id, v)")  # the same sort order
    assert set(levels(spark, name)) == {0}


def curve_over_a_struct(spark: Any, name: str) -> None:
    spark.sql(f"create table {name} (k int, s struct<x: int, c: struct<d: int>>) using iceberg")
    struct = "named_struct('x', int(id * 7 % 100), 'c', named_struct('d', int(id * 13 % 100)))"
    spark.sql(f"insert into {name} select /*+ repartition(4) */ int(id % 10), {struct} from range(800)")
    recluster(spark, name, "hilbert(s.x, s.c.d)", depth=1, block_rows=100, final=True)


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["drop column s.c", "rename column s.c to q", "rename column s to q"])
def test_a_lost_field_of_a_curve_leaves_nothing_behind(spark: Any, schema: str, lost: str) -> None:
    """Iceberg keeps the metrics modes of a struct's lost fields, and refuses every change of properties then."""
    name = f"{schema}.t"
    curve_over_a_struct(spark, name)
    spark.sql(f"alter table {name} {lost}")
    with pytest.raises(Exception, match=r"could not find column s\.(x|c\.d) from table prop"):
        spark.sql(f"alter table {name} set tblproperties ('any' = 'thing')")
    if "drop" in lost:
        with pytest.raises(
            ClusterKeyError, match=r"name another key with cluster_by, or run remove_clustering$"
        ):
            recluster(spark, name)
    else:
        recluster(spark, name, block_rows=50, depth=1)
        assert key_of(spark, name) in ("hilbert(s.x, s.q.d)", "hilbert(q.x, q.c.d)")
    rows = checksum(spark, name)
    assert recluster(spark, name, "k", depth=1, block_rows=100, dry_run=True).plan is not None
    assert recluster(spark, name, "k", depth=1, block_rows=100, final=True).depth_after == 1
    assert (key_of(spark, name), checksum(spark, name)) == ("k", rows)
    of_curve = (
        "recluster.cluster_by",
        "recluster.curve.",
        "recluster.rest",
        "write.metadata.metrics.column.s.c",
    )
    properties = IcebergTable.load(spark, name).properties
    assert not [each for each in properties if each.startswith(of_curve)]


@pytest.mark.thorough
@pytest.mark.parametrize("operation", [suspend_recluster, "remove_clustering"])
def test_the_first_change_after_a_lost_field_clears_up(spark: Any, schema: str, operation: Any) -> None:
    name = f"{schema}.t"
    curve_over_a_struct(spark, name)
    spark.sql(f"alter table {name} drop column s.c")
    if operation == "remove_clustering":
        _, names = remove_clustering(IcebergTable.load(spark, name))
        assert "recluster.curve.s.c.d" in names
    else:
        operation(spark, name)
    spark.sql(f"alter table {name} set tblproperties ('any' = 'thing')")
