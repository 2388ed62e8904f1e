"""The native writer writes the files that Spark's would: rows, order, types, field ids, metrics, readers."""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from merges import SMALL_ROW_GROUPS, merge_groups, rows_by_file
from pyiceberg.table import StaticTable
from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import functions as F
from tables import (
    EXTREMES,
    append_files,
    checksum,
    create_table,
    local_path,
    make_table,
    merge_method,
    metadata_file,
    recluster_keeping_rows,
    spark_settings,
    writers,
)

from dbt_recluster.api import recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import native
from dbt_recluster.iceberg.rewrite.native import SWITCH
from dbt_recluster.iceberg.session.jvm import jvm
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key

# A column of every type; `{h}` is a random number below 1024, which is another one for each column.
COLUMNS = {
    "flag boolean": "{h} % 2 = 0",
    "i int": "cast({h} % 500 - 250 as int)",
    "l bigint": "({h} - 500) * 9000000000000000",
    "f float": "if({h} % 9 = 0, float(-0.0), cast({h} / 3.0 as float))",
    "d double": "case {h} % 9 when 1 then -0.0D when 2 then 0.0D else ({h} - 500) / 7.0D end",
    "n decimal(9,2)": "cast(({h} - 500) / 100.0 as decimal(9, 2))",
    "m decimal(20,3)": "cast(({h} - 500) / 1000.0 as decimal(20, 3))",
    "w decimal(38,10)": "cast(({h} - 300) * 1000000000000000 as decimal(38, 10))",
    "day date": "date_add(date '1969-01-01', cast({h} as int))",
    "ts timestamp": "timestamp_micros(({h} - 500) * 3600000001)",
    "tz timestamp_ntz": "cast(timestamp_micros(({h} - 900) * 86400000001) as timestamp_ntz)",
    "s string": "if({h} % 9 = 0, repeat(chr(cast({h} as int)), 50), concat('a common prefix é', {h}))",
    "b binary": "unhex(lpad(hex({h} * 61), 6, '0'))",
    "st struct<x: int, `a b`: date>": "named_struct('x', cast({h} as int), 'a b', date_from_unix_date(int({h})))",
    "a array<string>": "array('x', null, string({h}))",
    "ls array<struct<y: int>>": "if({h} % 5 = 0, array(), array(named_struct('y', cast({h} as int)), null))",
    "mp map<string, double>": "map('k', double({h}), string({h}), null)",
}
PLAIN = [column.split()[0] for column in COLUMNS][:13]
EXTREME = {**EXTREMES, "string": r"""'', '\\', '\'"`${x}', '\n', repeat('x', 3000), string(X'f48fbfbf')"""}
KEYS = [
    *PLAIN,
    "st.x",
    "days(ts)",
    "hours(tz)",
    "months(day)",
    "years(ts)",
    "truncate(3, s)",
    "truncate(2, b)",
]
KEYS += ["truncate(7, i)", "truncate(100, l)"]
# Rows of a value that fills several blocks are spread by where they are read, which the writers number differently.
FEW_VALUES = {"flag", "years(ts)", "truncate(3, s)"}


def make_pair(spark: Any, schema: str, seed: int, loads: Sequence[int], nulls: int, extremes: bool) -> list[str]:
    """Make two tables of the same files, of some rows each; every `nulls`-th value is NULL."""
    names = [f"{schema}.by_{method}_{seed}" for method in ("native", "spark")]
    for name in names:
        create_table(spark, name, ", ".join(["id bigint", *COLUMNS]), SMALL_ROW_GROUPS)
        start = 0
        for rows in loads:
            values = []
            for place, (column, sql) in enumerate(COLUMNS.items()):
                value = sql.format(h=f"(xxhash64({seed}, id, {place}) & 1023)")
                kind = column.partition(" ")[2]
                if extremes and kind in EXTREME:
                    array = f"array({EXTREME[kind]})"
                    value = f"if(id % 7 = 1, get({array}, cast(id % size({array}) as int)), {value})"
                values.append(f"if((id + {place}) % {nulls} = 0, null, {value})")
            spark.sql(
                f"insert into {name} select /*+ coalesce(1) */ id, {', '.join(values)} "
                f"from range({start}, {start + rows}, 1, 1)"
            )
            start += rows
    return names


def method_of(name: str) -> str:
    return name.rsplit("_", 2)[1]


def merged(spark: Any, name: str, key: Sequence[str], block_rows: int, method: str) -> list[Any]:
    """Merge the table as one group and return its files, in the order of their first rows' ids."""
    table = IcebergTable.load(spark, name)
    parsed = parse_cluster_key(list(key)).check(table.columns())
    TableChange(parsed).commit(table)
    refused: list[Any] = []
    with merge_method(method):
        merge_groups(table, parsed, block_rows, refusals=refused)
    assert (refused == [None]) == (method == "native"), refused
    counts = "record_count, value_counts, null_value_counts, nan_value_counts, sort_order_id, spec_id, content"
    return list(spark.sql(f"select file_path, {counts}, lower_bounds, upper_bounds from {name}.files").collect())


def hashed(spark: Any, name: str) -> Any:
    """A checksum of all rows; Spark hashes no maps."""
    columns = ", ".join(column.split()[0] for column in COLUMNS).replace("mp", "map_entries(mp)")
    return spark.sql(f"select count(*), sum(cast(xxhash64(id, {columns}) as decimal(38, 0))) from {name}").first()


def parquet_schema(path: str) -> str:
    return str(pq.ParquetFile(local_path(path)).schema).partition("{")[2]


def with_dictionary(footer: Any) -> list[str]:
    """Return the columns of the first row group that have values and a dictionary."""
    chunks = map(footer.row_group(0).column, range(footer.num_columns))
    return [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page and chunk.statistics.num_values]


def without_zeros(bounds: Any) -> dict[int, bytes]:
    """Bounds in which both zeros of floats are one: footers have -0.0 as the least and 0.0 as the greatest."""
    return {key: bytes(value).rstrip(b"\x00\x80") for key, value in bounds.items()}


def check_same(spark: Any, schema: str, key: Sequence[str], pair: Sequence[str], block_rows: int) -> None:
    before = hashed(spark, pair[0])
    files = {name: merged(spark, name, key, block_rows, method_of(name)) for name in pair}
    inside = {name: rows_by_file(spark, name, "id") for name in pair}
    by_rows = [
        sorted((sorted(inside[name][file.file_path]), number) for number, file in enumerate(files[name]))
        for name in pair
    ]
    is_cut_alike = not FEW_VALUES & set(key)
    if is_cut_alike:
        assert [rows for rows, _ in by_rows[0]] == [rows for rows, _ in by_rows[1]]
    for counts in ("value_counts", "null_value_counts", "nan_value_counts"):
        ours, theirs = (sum((Counter(file[counts]) for file in files[name]), Counter()) for name in pair)
        assert ours == theirs
    for (_, ours), (_, theirs) in zip(*by_rows, strict=True):
        native_file, spark_file = files[pair[0]][ours].asDict(), files[pair[1]][theirs].asDict()
        paths = native_file.pop("file_path"), spark_file.pop("file_path")
        if is_cut_alike:
            for side in ("lower_bounds", "upper_bounds"):
                assert without_zeros(native_file.pop(side)) == without_zeros(spark_file.pop(side))
            assert native_file == spark_file
        assert parquet_schema(paths[0]) == parquet_schema(paths[1])
        metadata, of_spark = (pq.ParquetFile(local_path(path)).metadata for path in paths)
        assert metadata.row_group(0).column(0).has_offset_index
        assert metadata.row_group(0).column(0).has_column_index
        if is_cut_alike and metadata.num_row_groups == of_spark.num_row_groups == 1:
            assert with_dictionary(metadata) == with_dictionary(of_spark)
    assert hashed(spark, pair[0]) == hashed(spark, pair[1]) == before
    # Row groups are skipped by statistics, and pages by their index.
    for column in PLAIN:
        values = spark.sql(f"select {column} from {pair[1]} where id % 40 = 3 and id % 7 != 1").collect()
        for (value,) in values[:2]:
            if value is None:
                continue
            frames = [spark.table(name) for name in pair]
            ours, theirs = (frame.where(frame[column] >= value).count() for frame in frames)
            assert ours == frames[0].select(F.count_if(frames[0][column] >= value)).first()[0]  # of all rows
            # Iceberg orders -0.0 below 0.0, so its own files may hide rows.
            assert ours == theirs or (value == 0 and ours > theirs), (column, value)


@pytest.mark.parametrize(
    "key", [["i", "s"], *(pytest.param([key], marks=pytest.mark.exhaustive) for key in KEYS)], ids=str
)
def test_both_writers_write_the_same(spark: Any, schema: str, key: list[str]) -> None:
    pair = make_pair(spark, schema, 1, (300, 300, 200), 11, extremes=True)
    check_same(spark, schema, key, pair, 170)


@pytest.mark.exhaustive
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    key=st.lists(
        st.sampled_from(KEYS),
        min_size=1,
        max_size=3,
        unique_by=lambda item: item.split("(")[-1].strip(")")[-3:],
    ),
    seed=st.integers(0, 1 << 30),
    loads=st.lists(st.integers(1, 400), min_size=1, max_size=4),
    nulls=st.integers(2, 40),
    block_rows=st.integers(20, 500),
)
def test_random_tables_are_written_alike(
    spark: Any, schema: str, key: list[str], seed: int, loads: list[int], nulls: int, block_rows: int
) -> None:
    pair = make_pair(spark, schema, seed, loads, nulls, extremes=False)
    check_same(spark, schema, key, pair, block_rows)


def test_other_readers_see_the_same_rows(spark: Any, schema: str) -> None:
    pair = make_pair(spark, schema, 2, (200, 200), 7, extremes=False)
    for name in pair:
        merged(spark, name, ["day", "i"], 90, method_of(name))
    read = [
        StaticTable.from_metadata(str(metadata_file(spark, name))).scan(
            row_filter="i >= 10 and s > 'a common prefix é5'"
        )
        for name in pair
    ]
    ours, theirs = (scan.to_arrow().drop_columns(["mp"]).sort_by("id") for scan in read)
    assert len(ours) > 10
    assert ours.equals(theirs)


@pytest.mark.alike
@pytest.mark.parametrize("key", ["v", "k", "truncate(3, v)"])
@pytest.mark.parametrize("kind", ["string", "binary", "struct<x: string>"])
def test_values_without_statistics_have_bounds(spark: Any, schema: str, kind: str, key: str) -> None:
    """Arrow leaves both ends out of the statistics of a row group if one is longer than 4 KB."""
    name = create_table(spark, f"{schema}.t", f"k int, v {kind}", {"write.parquet.row-group-size-bytes": 20_000})
    long = "concat('{}', repeat(hex(xxhash64(id)), 400))"
    text = f"case id div 500 when 0 then {long.format('a')} when 3 then {long.format('z')} else concat('m', id) end"
    value, field = (f"named_struct('x', {text})", "v.x") if "struct" in kind else (f"cast({text} as {kind})", "v")
    for load in range(4):
        rows = f"range({load}, 2000, 4, 1)"
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ cast(id as int), {value} from {rows}")

    ends = [f"cast('{end}' as {kind if kind == 'binary' else 'string'})" for end in "by"]
    ends += [f"(select {field} from {name} order by {field} {way} limit 1)" for way in ("", "desc")]
    conditions = ["{0} < {1}", "{0} > {2}", "{0} between {1} and {2}", "{0} <= {3}", "{0} >= {4}"]

    def counts() -> list[int]:
        of = (f"select count(*) from {name} where {condition.format(field, *ends)}" for condition in conditions)
        return [spark.sql(query).first()[0] for query in of]

    before = counts()
    assert before == [500, 500, 1000, 1, 1]
    assert recluster_keeping_rows(spark, name, key.replace("v", field), depth=1, block_rows=700).depth_after == 1
    assert counts() == before
    assert writers(spark, name) == ["native"]


@pytest.mark.alike
def test_the_narrow_bounds_of_one_column_are_not_those_of_another(spark: Any, schema: str) -> None:
    metrics = "write.metadata.metrics.column."
    settings = {f"{metrics}k": "truncate(4)", f"{metrics}v": "none"}  # files without bounds verify nothing
    name = create_table(spark, f"{schema}.t", "k string, v string", settings)
    text = "concat('message ', id % 10, if(id % 10 = 7, repeat('x', 5000), ''))"
    for load in range(2):
        rows = f"range({load}, 200, 2)"
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ concat('k', id), {text} from {rows}")
    spark.sql(f"alter table {name} unset tblproperties ('{metrics}v')")
    values = [f"message {digit}" for digit in range(-1, 10)] + ["messa", "messb", f"message 7{'x' * 5000}"]
    values += ["k", "k0", "k199", "k4", "k99", "l"]
    conditions = [f"{column} {way} '{v}'" for column in "kv" for way in ("<", "<=", "=", ">=", ">") for v in values]

    def counts() -> list[list[int]]:
        read = StaticTable.from_metadata(str(metadata_file(spark, name)))
        by_spark = [f"count(*) filter (where {condition})" for condition in conditions]
        each = [spark.table(name).where(condition).count() for condition in conditions]
        return [each, list(spark.table(name).selectExpr(*by_spark).first()), [read.scan(c).count() for c in conditions]]

    before = counts()
    assert before[0] == before[1] == before[2]
    recluster_keeping_rows(spark, name, "k", depth=1, block_rows=70)
    assert counts() == before
    assert writers(spark, name) == ["native"]


PARTITIONS = {
    "int": "7",
    "string": "de",
    "date": "2026-01-02",
    "decimal(9,2)": "1.50",
    "boolean": "true",
    "double": "1.5",
}


@pytest.mark.alike
@pytest.mark.parametrize("kind", PARTITIONS)
def test_files_may_lack_the_column_of_their_partition(spark: Any, schema: str, kind: str) -> None:
    name = create_table(spark, f"{schema}.t", f"k int, p {kind}, v string", partitioned="p, bucket(2, k)")
    partition = f"p={PARTITIONS[kind]}/k_bucket=1"
    loads = [pa.table({"k": pa.array(range(load, 900, 3), pa.int32()), "v": ["v"] * 300}) for load in range(3)]
    append_files(spark, name, loads, partition)
    spark.sql(f"insert into {name} select cast(id as int), null, 'w' from range(10)")
    if kind == "int":
        spark.sql(f"alter table {name} alter column p type bigint")
    of_partition = f"select count(*) from {name} where p = cast('{PARTITIONS[kind]}' as {kind})"
    assert spark.sql(of_partition).first()[0] == 900
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=400).rounds
    assert spark.sql(of_partition).first()[0] == 900
    assert writers(spark, name) == ["native"]


def test_a_partition_by_a_field_of_a_struct_is_left_to_spark(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k int, s struct<p: int>", partitioned="s.p")
    for load in range(3):
        spark.sql(f"insert into {name} select int(id), named_struct('p', 7) from range({load}, 900, 3, 1)")
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=400).rounds
    assert writers(spark, name) == ["spark: partition"]


def test_one_value_in_files_of_one_row_fills_several_blocks(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k int, v string")
    append_files(spark, name, (pa.table({"k": pa.array([7], pa.int32()), "v": [str(n)]}) for n in range(400)))
    recluster_keeping_rows(spark, name, "k", depth=1, block_rows=50)
    blocks = [row.record_count for row in spark.sql(f"select record_count from {name}.files").collect()]
    assert max(blocks) <= 50
    assert writers(spark, name) == ["native"]


@pytest.mark.parametrize("method", ["native", "spark"])
def test_times_in_milliseconds_are_not_taken_for_microseconds(spark: Any, schema: str, method: str) -> None:
    """By Iceberg's vectorized reader they are, and in the bounds that Iceberg takes from such files."""
    name = create_table(spark, f"{schema}.t", "k int, ts timestamp, tn timestamp_ntz")
    for load in range(2):
        keys = pa.array(range(load, 1000, 2), pa.int32())
        times = [keys.cast(pa.int64()).cast(pa.timestamp("ms", zone)) for zone in ("UTC", None)]
        append_files(spark, name, [pa.table([keys, *times], ["k", "ts", "tn"])])
    with merge_method(method):
        assert recluster(spark, name, "k", depth=1, block_rows=500).rounds
    rows = spark.sql(
        f"select k * 1000 k, unix_micros(ts) ts, tn = cast(ts as timestamp_ntz) same from {name}"
    ).collect()
    assert len(rows) == 1000
    assert all(row.k == row.ts and row.same for row in rows)
    assert spark.sql(f"select count(*) from {name} where ts >= timestamp_micros(500000)").first()[0] == 500


@pytest.mark.parametrize("kind", ["string", "timestamp"])
def test_types_that_duckdb_reads_otherwise_are_left_to_spark(spark: Any, schema: str, kind: str) -> None:
    """Text of files that do not say it is text, and nanoseconds, which are microseconds to Iceberg."""
    name = create_table(spark, f"{schema}.t", f"k int, v {kind}")
    for load in range(2):
        keys = pa.array(range(load, 900, 2), pa.int32())
        text = pa.array([f"{'aéz'[key % 3]}é" for key in keys.to_pylist()]).cast(pa.binary())
        values = text if kind == "string" else keys.cast(pa.int64()).cast(pa.timestamp("ns", "UTC"))
        append_files(
            spark,
            name,
            [pa.table([keys, values], ["k", "v"])],
            use_dictionary=kind == "timestamp",
            write_statistics=False,
        )
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=500).rounds
    assert writers(spark, name) == ["spark: types"]


def test_names_that_avro_does_not_allow_keep_their_metrics_modes(spark: Any, schema: str) -> None:
    """Files have other names for such columns; and of more than 100 columns, those of the key have bounds."""
    properties = {"write.metadata.metrics.column.pii-mail": "none", "write.metadata.metrics.column.a b.c-d": "counts"}
    columns = ", ".join(f"c{number} int" for number in range(110))
    values = f"'mail', named_struct('c-d', 3), {', '.join(['1'] * 110)}"
    of_files = []
    for method in ("native", "spark"):
        name = f"{schema}.by_{method}"
        create_table(spark, name, f"`pii-mail` string, `a b` struct<`c-d`: int>, {columns}, `order id` int", properties)
        for load in range(3):
            spark.sql(f"insert into {name} select /*+ coalesce(1) */ {values}, int(id) from range({load}, 900, 3, 1)")
        with merge_method(method):
            result = recluster_keeping_rows(spark, name, "`order id`", depth=1, block_rows=300)
        assert (result.depth_before, result.depth_after) == (3, 1)
        files = spark.sql(f"select lower_bounds, upper_bounds, value_counts, nan_value_counts from {name}.files")
        of_files.append(sorted(map(str, files.collect())))
    assert of_files[0] == of_files[1]


def test_a_required_field_of_a_struct_that_is_null(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k int, s array<struct<x: int not null>>")
    value = "array(if(id % 3 = 0, null, named_struct('x', int(id))))"
    for load in range(3):
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ int(id), {value} from range({load}, 900, 3, 1)")
    plan = recluster(spark, name, "k", depth=1, block_rows=300, dry_run=True).plan
    assert plan is not None
    assert plan.writer == "spark: types"
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=300).rounds


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "deletes": (
        {"write.delete.mode": "merge-on-read"},
        "delete from {} where id % 7 = 0",
    ),  # more than are borne
    "format": ({"write.format.default": "orc"}, ""),
    "properties": ({"write.parquet.bloom-filter-enabled.column.k": "true"}, ""),
    "types": ({}, "alter table {} add column s struct<x: float>"),
    "nan": ({}, "alter table {} add column d double; insert into {} values (-1, 500, 'v', double('NaN'))"),
    "evolved": (
        {},
        "alter table {} add column s struct<x: int>; insert into {} values (-1, 500, 'v', named_struct('x', 1)); "
        "alter table {} add column s.y int",
    ),
    # DuckDB reads no such text.
    "error InvalidInputException": ({}, "insert into {} values (-1, 500, string(X'ff80'))"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_spark_writes_what_would_not_be_the_same(
    spark: Any, schema: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_MOST_DELETED", 10)
    properties, statements = REFUSED[reason]
    name = make_table(spark, schema, files=3, rows=200, properties=properties)
    for statement in filter(None, statements.split("; ")):
        spark.sql(statement.format(name))
    before = checksum(spark, name)
    known = {"deletes", "format", "properties", "types"}  # before files are read
    plan = recluster(spark, name, "k", depth=1, block_rows=200, dry_run=True).plan
    assert plan is not None
    assert plan.writer == (f"spark: {reason}" if reason in known else "native")
    assert recluster(spark, name, "k", depth=1, block_rows=200).rounds
    assert writers(spark, name) == [f"spark: {reason}"]
    assert checksum(spark, name) == before


def test_a_renamed_and_an_added_column_are_found_by_their_ids(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=200)
    for statement in ("rename column v to w", "add column v string after id", "alter column k type bigint"):
        spark.sql(f"alter table {name} {statement}")
    spark.sql(f"insert into {name} values (-1, 'v', -1, 'w')")
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=200).rounds
    assert writers(spark, name) == ["native"]


def test_object_storage_scatters_the_files_of_a_set(spark: Any, schema: str, tmp_path: Path) -> None:
    properties = {"write.object-storage.enabled": "true", "write.data.path": tmp_path.as_uri()}
    name = make_table(spark, schema, files=3, rows=200, properties=properties)
    assert recluster(spark, name, "k", depth=1, block_rows=60).rounds
    assert writers(spark, name) == ["native"]
    paths = [row.file_path for row in spark.sql(f"select file_path from {name}.files").collect()]
    assert len({path.rpartition("/")[0] for path in paths}) == len(paths) > 5
    assert all(path.startswith(f"file:{tmp_path}/") for path in paths)  # as Hadoop spells a URI of file:///


def test_the_rows_of_a_new_file_decide_on_its_dictionaries(spark: Any, schema: str) -> None:
    """A value that comes back soon in a load comes back late among eight loads, and Java gives up its dictionary."""
    small = {**SMALL_ROW_GROUPS, "write.parquet.row-group-size-bytes": 20_000}
    name = create_table(spark, f"{schema}.t", "k bigint, in_loads bigint, few bigint", small)
    for load in range(8):
        rows = spark.range(5_000).repartition(1).sortWithinPartitions("id")
        columns = [f"id * 8 + {load}", f"xxhash64(id % 600, {load})", "id % 3"]
        rows.selectExpr(*map("{} as {}".format, columns, spark.table(name).columns)).writeTo(name).append()

    def with_a_dictionary() -> set[str]:
        paths = [row.file_path for row in spark.sql(f"select file_path from {name}.files").collect()]
        footers = [pq.ParquetFile(local_path(path)).metadata for path in paths]
        return {column for footer in footers for column in with_dictionary(footer)}

    assert with_a_dictionary() == {"in_loads", "few"}
    recluster_keeping_rows(spark, name, "k", depth=1, block_rows=20_000)
    assert writers(spark, name) == ["native"]
    assert with_a_dictionary() == {"few"}


def test_a_session_turns_the_native_writer_off(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=200)
    with spark_settings(spark, {SWITCH: "false"}):
        assert recluster(spark, name, "k", depth=1, block_rows=200).rounds
    assert writers(spark, name) == ["spark: off"]


@pytest.mark.parametrize(
    ("given", "megabytes"),
    [
        ({"master": "local[2]"}, 1024),
        ({"master": "yarn"}, 192),  # of the least overhead, 384
        ({"master": "yarn", "executor.cores": "4", "executor.memory": "8g"}, 0),  # 819 for four cores
        ({"master": "yarn", "executor.cores": "4", "executor.memoryOverhead": "4096"}, 512),
        ({"master": "yarn", "yarn.executor.memoryOverhead": "1g"}, 512),
        ({"master": "yarn", "executor.memory": "8g", "yarn.executor.memoryOverheadFactor": "0.1875"}, 768),  # of EMR
        ({"master": "yarn", "executor.memory": "8g", "executor.memoryOverheadFactor": "0.2"}, 819),
        (
            {
                "master": "k8s://x",
                "executor.cores": "4",
                "executor.memory": "8g",
                "kubernetes.memoryOverheadFactor": "0.4",
            },
            409,
        ),
        # Limits of addresses, of which a worker reserves over two gigabytes.
        ({"master": "local[2]", "executor.pyspark.memory": "2g"}, 0),
        ({"master": "yarn", "executor.cores": "2", "executor.pyspark.memory": "6g"}, 384),
    ],
)
def test_a_task_gets_half_of_its_share_for_python(spark: Any, given: dict[str, str], megabytes: int) -> None:
    parse = jvm(spark).org.apache.spark.network.util.JavaUtils.byteStringAsMb
    settings = {f"spark.{name}": value for name, value in given.items()}
    with nullcontext() if megabytes else pytest.raises(native.NotNative, match="memory"):
        assert native.task_memory(settings, parse) >> 20 == megabytes


def test_tasks_need_nothing_of_ours(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of executors has no dbt-recluster."""
    from pyspark import RDD, SparkContext

    sent: list[bytes] = []

    def remember(self: Any, function: Any) -> Any:
        sent.append(cloudpickle.dumps(function))
        return mapped(self, function)

    def remember_tasks(self: Any, rows: Any, count: int) -> Any:
        sent.extend(pickled for *_, pickled in rows)
        return parallelize(self, rows, count)

    mapped, parallelize = RDD.map, SparkContext.parallelize
    monkeypatch.setattr(RDD, "map", remember)
    monkeypatch.setattr(SparkContext, "parallelize", remember_tasks)
    name = make_table(spark, schema, files=3, rows=200)
    assert recluster(spark, name, "k", depth=1, block_rows=200).rounds
    assert writers(spark, name) == ["native"]
    program = "import pickle, sys; sys.modules['dbt_recluster'] = None; pickle.load(sys.stdin.buffer)"
    assert len(sent) == 2
    for pickled in sent:
        subprocess.run([sys.executable, "-c", program], input=pickled, check=True)


def test_workers_without_the_packages_are_named_once(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    python = str(Path(sys._base_executable).resolve())  # that of no virtual environment
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    monkeypatch.setattr(native, "_FAILED", defaultdict(list))
    for name in ("first", "second"):
        table = make_table(spark, schema, files=3, rows=200, name=name)
        assert recluster(spark, table, "k", depth=1, block_rows=200).rounds
        assert writers(spark, table) == ["spark: packages"]
    warned = [record.message for record in caplog.records if "packages: duckdb is missing" in record.message]
    assert len(warned) == 1


def test_what_cannot_be_sent_to_workers_is_written_by_spark(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with pyspark 3.5 on Python 3.14."""

    def fail(*_: Any) -> None:
        raise PicklingError("Could not serialize object: RecursionError")

    monkeypatch.setattr(native, "_FAILED", defaultdict(list))
    monkeypatch.setattr(CloudPickleSerializer, "dumps", fail)
    name = make_table(spark, schema, files=3, rows=200)
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=200).rounds
    assert writers(spark, name) == ["spark: error PicklingError"]


def test_workers_that_died_are_tried_once_more(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    def wrote(name: str, method: str) -> None:
        table = make_table(spark, schema, files=3, rows=200, name=name)
        assert recluster_keeping_rows(spark, table, "k", depth=1, block_rows=200).rounds
        assert writers(spark, table) == [method]

    def die(*_: Any) -> None:
        os._exit(1)

    here = sys.modules[__name__]
    monkeypatch.setattr(native, "_FAILED", defaultdict(list))
    register_pickle_by_value(here)
    try:
        for attempt in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(native.native_tasks, "write_pieces", die)
                wrote(f"died_{attempt}", "spark: error Py4JJavaError")
            wrote(f"next_{attempt}", "spark: error Py4JJavaError" if attempt else "native")
    finally:
        unregister_pickle_by_value(here)
