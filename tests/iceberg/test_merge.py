"""Merging alone, by both methods: the same rows, in blocks of the right size, sorted and disjoint."""

from itertools import accumulate, pairwise
from typing import Any

import pytest
from merges import SMALL_ROW_GROUPS, merge_groups, rows_by_file
from tables import MERGE_METHODS, append, checksum, create_table, make_table

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import merge, native
from dbt_recluster.iceberg.rewrite.spark_writer import partition_salts
from dbt_recluster.iceberg.session.jobs import job_group
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key

Key = str | list[str]


def merge_and_check(
    spark: Any,
    name: str,
    key: Key,
    block_rows: int,
    method: str | None = None,
    *,
    order: str | None = None,
    rows: str | None = None,
    refusals: list[str | None] | None = None,
) -> list[list[Any]]:
    """Merge each partition of a table as one group, commit and check; return the new data files of each group.

    Args:
        spark: The session.
        name: The table.
        key: Its cluster key from now on.
        block_rows: The most rows of a block.
        method: How to merge.
        order: A Spark expression that sorts like the key, if that is not the key itself.
        rows: A query of everything that must stay, if the table's checksum cannot tell.
        refusals: Where why each group was not merged natively is added.
    """

    def content() -> Any:
        return spark.sql(rows).collect() if rows else checksum(spark, name)

    before, table = content(), IcebergTable.load(spark, name)
    parsed = parse_cluster_key(key).check(table.columns())
    TableChange(parsed).commit(table)
    sets = merge_groups(table, parsed, block_rows, method, refusals=refusals)
    assert content() == before
    check_blocks(spark, name, order or (key if isinstance(key, str) else ", ".join(key)), sets, block_rows)
    return sets


def check_blocks(spark: Any, name: str, order: str, sets: list[list[Any]], block_rows: int) -> None:
    """Check that blocks are sorted as they are labelled, that those of a group are disjoint, and their size."""
    inside = rows_by_file(spark, name, f"dense_rank() over (order by {order})")
    sort_order = IcebergTable.load(spark, name).java.sortOrder().orderId()
    labels = spark.sql(f"select distinct sort_order_id from {name}.data_files").collect()
    assert [label for (label,) in labels] == [sort_order] != [0]
    for files in sets:
        ranks = [inside[file.location()] for file in files]
        assert all(block == sorted(block) for block in ranks)
        ranks.sort(key=lambda block: (block[0], block[-1]))
        for left, right in pairwise(ranks):
            # Equal ends only where one value has blocks of its own.
            assert left[-1] <= right[0]
            assert left[-1] < right[0] or left[0] == left[-1] or right[0] == right[-1]
        assert all(len(block) <= block_rows for block in ranks)
        for block, following in pairwise(ranks):
            # The rows of one value that fills several blocks are spread over them randomly.
            chance = 4 * block_rows**0.5 if following[0] == block[-1] or block[0] == block[-1] else 0
            assert len(block) >= block_rows / 2 - chance


COLUMNS = ["i", "d", "s", "ts"]
# Spark and Iceberg treat most of these like one above.
SIMILAR_COLUMNS = ["n", "flag", "st.x", "l", "f", "b", "w", "day", "tz"]
EXPRESSIONS = [
    ("hours(ts)", "floor(unix_micros(ts) / 3600000000)"),
    ("days(ts)", "floor(unix_micros(ts) / 86400000000)"),
    ("months(day)", "year(day) * 12 + month(day)"),
    ("years(tz)", "year(tz)"),
    ("truncate(35, s)", "substr(s, 1, 35)"),
    ("truncate(2, b)", "substr(b, 1, 2)"),
    ("truncate(10, i)", "floor(i / 10)"),
    ("truncate(50, n)", "n - pmod(n, 0.050)"),
    ("truncate(50, w)", "w - pmod(w, 0.0000000050)"),
    (["flag", "s"], "flag, s"),
    (["flag", "b", "n", "i", "day"], "flag, b, n, i, day"),  # as many columns as users like
    (["d", "i"], "d, i"),
    (["years(day)", "s"], "year(day), s"),
    (["truncate(35, s)", "n"], "substr(s, 1, 35), n"),
    (["truncate(100, i)", "days(tz)", "f"], "floor(i / 100), cast(tz as date), f"),
]


EXHAUSTIVE = [*((name, name) for name in SIMILAR_COLUMNS), *EXPRESSIONS]


@pytest.mark.parametrize(
    ("key", "order"),
    [
        *((name, name) for name in COLUMNS),
        *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in EXHAUSTIVE),
    ],
    ids=str,
)
def test_every_type_and_expression_is_a_key(spark: Any, typed: tuple[str, Any], key: Key, order: str) -> None:
    # Merges read files in the order of another key, or those that the one before wrote.
    refusals: list[str | None] = []
    for name, method, block_rows in ((typed[0], "spark", 110), (f"{typed[0]}_native", "native", 170)):
        merge_and_check(spark, name, key, block_rows, method, order=order, refusals=refusals)
    assert refusals == ["off", "key" if "pmod" in order else None]  # DuckDB truncates no decimals


def writers_at_once(spark: Any, group: str) -> int:
    """Return how many tasks of a stage of a job group's merge ran at the same time, at most."""
    context, tracker = spark.sparkContext._jsc.sc(), spark.sparkContext.statusTracker()
    context.listenerBus().waitUntilEmpty()
    most = 0
    for job in tracker.getJobIdsForGroup(group):
        if "merge" not in str(context.statusStore().job(job).description()):
            continue
        tasks, ends = context.statusStore().taskList(max(tracker.getJobInfo(job).stageIds), 0, 1000), []
        for task in map(tasks.apply, range(tasks.size())):
            started = task.launchTime().getTime()
            ends += [(started, 1), (started + task.duration().get(), -1)]
        most = max(most, *accumulate(change for _, change in sorted(ends)))
    return most


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
def test_two_tasks_of_a_merge_write_at_once(
    spark: Any, schema: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_LEAST_BYTES", 1)
    name = make_table(spark, schema, files=4, rows=2000, properties=SMALL_ROW_GROUPS)
    with job_group(spark, schema):
        merge_and_check(spark, name, "k", 500, method)
    assert writers_at_once(spark, schema) >= 2


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("key", ["f", "d"])
@pytest.mark.parametrize("infinite", ["Infinity", "-Infinity"])
def test_infinite_numbers_are_beyond_every_cut(spark: Any, schema: str, key: str, infinite: str) -> None:
    name = create_table(spark, f"{schema}.t", "id bigint, d double, f float")
    for place in range(4):
        spark.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, double(d), float(d) from (select id * 10 + {place} id, "
            f"if(id % 3 > 0, '{infinite}', string(id)) d from range(60)) order by double(d)"
        )
    rows = f"select id, string(d), string(f) from {name} order by id"
    merge_and_check(spark, name, [key, "id"], 40, "native", rows=rows)


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("first", ["-0.0", "0.0"])
def test_zeros_of_both_signs_are_one_value(spark: Any, schema: str, method: str, first: str) -> None:
    """One value to Spark, two to Iceberg: -0.0 is below 0.0 in its bounds and filters."""
    signs = f"'{first}', '{'0.0' if first == '-0.0' else '-0.0'}'"
    # Each of these with each zero has a file of its own, in which the zero is the least value, the greatest, or both.
    others = "'-1', '0.0', '-0.0', 'NaN', '1'"
    for version, partitioned in ((2, None), (1, "g")):
        for number, (key, block_rows) in enumerate((("d", 150), (["f", "id"], 70), (["d", "id"], 50))):
            name, columns = f"{schema}.v{version}_{number}", "id bigint, d double, f float, g float"
            create_table(spark, name, columns, {"format-version": version}, partitioned)
            spark.sql(
                f"insert into {name} select id, double(d), float(d), float(zero) from (select id, zero, "
                f"if(id div 10 % 3 = 0, zero, other) d from (select n % 30 * 10 + n div 30 id, "
                f"array({others})[n div 60] other, array({signs})[n div 30 % 2] zero "
                "from (select id n from range(0, 300, 1, 10))))"
            )
            assert spark.table(f"{name}.files").count() == 10
            rows = f"select id, string(d), string(f), string(g) from {name} order by id"
            merge_and_check(spark, name, key, block_rows, method, rows=rows)


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("partition", ["s", ""])
def test_text_beyond_utf_8_is_cut_right(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, method: str, partition: str
) -> None:
    """Iceberg decodes it before it compares it, so it is in another order there, which a sample need not show."""
    monkeypatch.setattr(merge, "_SAMPLED_PER_BLOCK", 40)
    fanout = {"write.spark.fanout.enabled": "true"}
    name = create_table(spark, f"{schema}.t", "id bigint, s string", fanout, partition)
    odd = "if(id % 100 = 1, X'80', cast('é' as binary))"  # between z and é, while what it is decoded to is above
    insert = f"insert into {name} select /*+ coalesce(1) */ id, cast({{}} as string) from range({{}}, {{}})"
    for number, (value, count) in enumerate([("cast('z' as binary)", 90), ("cast('é' as binary)", 31), (odd, 31)]):
        spark.sql(insert.format(value, 100 * number, 100 * number + count))
    for number in (3, 4):
        for key, block_rows in (("s", 150), (["s", "id"], 70), ("truncate(1, s)", 110), (["id", "s"], 50)):
            order = "substr(s, 1, 1)" if "truncate" in key else None
            merge_and_check(spark, name, key, block_rows, method, order=order)
        odd = "unhex(element_at(array('FF', '80', '61FF', 'F09F9880', 'EFBFBD', 'C3'), int(id % 6 + 1)))"
        spark.sql(insert.format(odd, 100 * number, 100 * number + 80))


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("key", [["v", "k"], "k", "v"], ids=str)
def test_a_frequent_value_has_blocks_of_its_own(spark: Any, schema: str, key: Key) -> None:
    name = create_table(spark, f"{schema}.t", "id bigint, k int, v string")
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id, if(id % 10 = 0, cast(rand(1) * 1000 as int), null), "
        "if(id % 10 = 1, concat('v', id), 'the same') from range(10000)"
    )
    merge_and_check(spark, name, key, 1000)
    column = f"readable_metrics.{key if key == 'k' else 'v'}"
    constant = f"coalesce({column}.lower_bound = {column}.upper_bound, {column}.lower_bound is null)"
    assert spark.table(f"{name}.files").where(constant).count() >= 8


@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("version", [3, 2])
def test_a_merge_applies_deletes_and_keeps_row_ids(spark: Any, schema: str, method: str, version: int) -> None:
    properties = {
        **SMALL_ROW_GROUPS,
        "format-version": version,
        "write.delete.granularity": "partition",
        **{f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update")},
    }
    name = make_table(spark, schema, files=0, properties=properties)
    for load in range(4):
        append(spark, name, load * 500, 500)
    # Files with none, one and several delete files, so that their weights differ when they are packed.
    spark.sql(f"delete from {name} where id % 7 = 0 and id > 500")
    spark.sql(f"delete from {name} where id % 5 = 0 and id between 600 and 1200")
    spark.sql(f"update {name} set v = 'changed' where id % 11 = 0 and id > 900")
    lineage = "select id, _row_id, _last_updated_sequence_number from {} order by id"
    rows = spark.sql(lineage.format(name)).collect() if version == 3 else None
    refused: list[str | None] = []
    # A commit drops one of the delete files that are older than all data, but not always the others: its threads race
    # (apache/iceberg#16978).
    for block_rows in (300, 170, 230):
        merge_and_check(spark, name, "k", block_rows, method, refusals=refused)
    assert refused == [None if method == "native" else "off"] * 3
    assert spark.table(f"{name}.delete_files").count() == 0
    if rows is not None:
        assert spark.sql(lineage.format(name)).collect() == rows


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("method", MERGE_METHODS)
def test_a_merge_keeps_wide_and_nested_rows(spark: Any, schema: str, method: str) -> None:
    name = f"{schema}.t"
    columns = ", ".join(f"c{i} int" for i in range(200))
    nested = "a array<struct<x: int, y: string>>, m map<string, array<int>>, s struct<t: struct<u: int>, v: binary>"
    spark.sql(f"create table {name} ({columns}, {nested}) using iceberg")
    values = ", ".join(f"cast(id * {i} % 97 as int)" for i in range(200))
    spark.sql(
        f"insert into {name} select /*+ repartition(3) */ {values}, "
        "if(id % 3 = 0, null, array(named_struct('x', cast(id as int), 'y', 'z'), null)), "
        "map('k', array(1, cast(id as int), null)), "
        "named_struct('t', if(id % 2 = 0, null, named_struct('u', cast(id % 50 as int))), 'v', X'00') from range(600)"
    )
    rows = f"select to_json(struct(*)) from {name} order by 1"
    for key in ("c199", "s.t.u"):
        merge_and_check(spark, name, key, 150, method, rows=rows)


@pytest.mark.thorough
def test_blocks_of_many_rows_are_cut_by_a_sample(spark: Any, schema: str) -> None:
    """More rows than are sampled: the limits hold all the same, also for data that repeats itself in step."""
    name = create_table(spark, f"{schema}.t", "id bigint, k int")
    spark.sql(f"insert into {name} select id, cast(id % 2500 as int) from range(0, 150000, 1, 3)")
    merge_and_check(spark, name, "k", 20_000)
    merge_and_check(spark, name, "k", 12_000)  # the files are sorted now


@pytest.mark.parametrize("partitions", [2, 7, 64, 1000])
def test_salts_reach_their_partitions(spark: Any, partitions: int) -> None:
    array = f"array({', '.join(map(str, partition_salts(spark, partitions)))})"
    found = spark.sql(f"select transform({array}, salt -> pmod(hash(salt), {partitions}))").first()[0]
    assert found == list(range(partitions))
