"""The key of a table: its sort order, the property that names a curve, and the levels that are for one key only."""

from typing import Any

import pytest
from tables import (
    append,
    create_table,
    expire,
    levels,
    make_table,
    metadata_file,
    planned,
    recluster_keeping_rows,
    recorded_levels,
    runs,
)

from dbt_recluster.api import clustering_information, recluster, suspend_recluster
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.session.jvm import java_items, java_list
from dbt_recluster.iceberg.sort_order import (
    TableChange,
    check_bounds_are_recorded,
    is_cluster_key,
    remove_clustering,
    sort_order_text,
    table_cluster_key,
)
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.report import result_text

CURVE, LED = "hilbert(k, v)", "id, hilbert(k, v)"
BY_ID = "id ASC NULLS FIRST"


def key_of(spark: Any, name: str) -> str | None:
    key = table_cluster_key(IcebergTable.load(spark, name))
    return None if key is None else str(key)


def change(spark: Any, name: str, key: str) -> None:
    TableChange(parse_cluster_key(key)).commit(IcebergTable.load(spark, name))


@pytest.mark.parametrize(("key", "order"), [(CURVE, ""), (LED, BY_ID), ("id", BY_ID)])
def test_a_key_is_the_sort_order_as_far_as_that_can_name_it(spark: Any, schema: str, key: str, order: str) -> None:
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


@pytest.mark.parametrize(
    ("one", "other"),
    [*((CURVE, key) for key in ("hilbert(v, k)", "hilbert(k, id)", "id", "k, v", LED)), (LED, "id")],
)
def test_keys_that_differ_in_the_curve_alone_are_two(spark: Any, schema: str, one: str, other: str) -> None:
    name = make_table(spark, schema, files=0)
    for here, there in ((one, other), (other, one)):
        change(spark, name, here)
        assert not is_cluster_key(IcebergTable.load(spark, name), parse_cluster_key(there))
        change(spark, name, there)
        assert key_of(spark, name) == there
        recorded = IcebergTable.load(spark, name).properties.get("recluster.cluster_by")
        assert recorded == (there if "hilbert" in there else None)


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


def test_a_key_of_quoted_names_is_read_back(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "`order date` date, s struct<`a,b`: int>, `c``d` int")
    key = parse_cluster_key(["hilbert(months(`order date`), s.`a,b`, truncate(5, `c``d`))"])
    key = key.check(IcebergTable.load(spark, name).columns())
    TableChange(key).commit(IcebergTable.load(spark, name))
    table = IcebergTable.load(spark, name)
    assert table_cluster_key(table) == key
    check_bounds_are_recorded(table, key)


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
        with pytest.raises(ClusterKeyError, match=r"name another key with cluster_by, or run remove_clustering$"):
            recluster(spark, name)
    else:
        recluster(spark, name, block_rows=50, depth=1)
        assert key_of(spark, name) in ("hilbert(s.x, s.q.d)", "hilbert(q.x, q.c.d)")
    assert planned(spark, name, "k", depth=1, block_rows=100) is not None
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=100, final=True).depth_after == 1
    assert key_of(spark, name) == "k"
    of_curve = (
        "recluster.cluster_by",
        "recluster.curve.",
        "recluster.settled",
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


def test_levels_rise_and_survive_a_rewrite_of_the_manifests(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    for start in range(10_000, 13_000, 1000):
        append(spark, name, start, 1000)
        recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert max(levels(spark, name)) >= 2
    before = levels(spark, name)
    spark.sql(f"call system.rewrite_manifests('{name}')")
    assert levels(spark, name) == before
    expire(spark, name)
    assert levels(spark, name) == before
    # Levels of blocks that are gone are dropped.
    spark.sql(f"delete from {name}")
    append(spark, name, 0, 1000, files=3)
    recluster(spark, name, depth=1, block_rows=1000)
    entries = spark.sql(f"select snapshot_id from {name}.entries where status < 2").collect()
    assert set(recorded_levels(spark, name)) == {row[0] for row in entries}
    append(spark, name, 10_000, 900, files=3)
    shown = clustering_information(spark, name)
    assert shown["levels"]["0"] == {"blocks": 3, "rows": 900, "average_depth": 3.0}
    assert "level  blocks" in result_text.information(shown)


def test_tables_without_sequence_numbers_keep_levels(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, properties={"format-version": 1})
    result = recluster(spark, name, "k", depth=1, block_rows=1000)
    (committed,) = result.rounds
    assert recorded_levels(spark, name) == {committed.snapshot_ids[0]: max(levels(spark, name))}
    spark.sql(f"alter table {name} set tblproperties ('format-version' = '2')")
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
@pytest.mark.alike
@pytest.mark.parametrize("version", [1, 2])
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
@pytest.mark.alike
@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (["k", "v"], "id, cast(id * 7 % 3 as int), if(id % 50 = 0, null, string(id))"),
        ("k", "id, cast(id * 7 % 1000 as int), 'v'"),
        ("k", "id, if(id % 3 = 0, null, 7), 'v'"),
        (["truncate(100, k)", "v"], "id, cast(id * 7 % 1000 as int), string(id)"),
    ],
)
def test_real_runs_are_recognised_by_their_bounds(spark: Any, schema: str, key: Any, rows: str) -> None:
    name = make_table(spark, schema, files=0)
    for load in range(2):
        spark.sql(f"insert into {name} select /*+ repartition(3) */ {rows} from range({load}, 6000, 2)")
    result = recluster(spark, name, key, depth=1, block_rows=1000)
    assert result.blocks_out >= 6
    expire(spark, name)
    forget_exact_levels(spark, name)
    assert set(levels(spark, name)) == {1}
    (run,) = runs(spark, name)
    assert run == result.rounds[-1].snapshot_ids[-1]
    assert not recluster(spark, name, depth=1, block_rows=1000).rounds


@pytest.mark.parametrize(
    ("there", "version"),
    [
        ("k, v", 2),
        pytest.param("hilbert(v, k)", 1, marks=pytest.mark.thorough),
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
    assert levels(spark, name).count(0) == 4  # though an unsorted table gives all blocks the same sort order id
    assert recluster_keeping_rows(spark, name, there, depth=1, block_rows=100).rounds
    recorded = RecordedLevels.from_properties(IcebergTable.load(spark, name).properties)
    assert bool(recorded.curve) is ("hilbert" in there)
    assert max(levels(spark, name)) > 0
    change(spark, name, CURVE)
    assert set(levels(spark, name)) == {0}
