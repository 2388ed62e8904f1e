"""Reads that are imported, from queries and from Spark's event logs, and recorded with the table."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import checksum, make_even_table

from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.clustering.table_reads import RecordedReads
from dbt_recluster.exceptions import EventLogError, OptionError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.predicates import Ranges
from dbt_recluster.maintenance import (
    ClusteredTable,
    ReclusterOptions,
    clustering_information,
    clustering_reads,
    clustering_report_data,
    forget_reads,
    import_reads,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.report.html import depth_curve, shows_ends

TYPES = {
    "d": ("date", "date_add(date'2026-01-01', cast(id as int))"),
    "ts": ("timestamp", "timestamp'2026-01-01 12:00:00' + make_interval(0, 0, 0, cast(id as int))"),
    "u": ("string", "concat('k', id)"),
    "n": ("int", "cast(id as int)"),
    "x": ("decimal(10, 2)", "cast(id as decimal(10, 2))"),
    "f": ("double", "cast(id as double)"),
    "b": ("binary", "cast(concat('k', id) as binary)"),
    "o": ("boolean", "id > 3"),
    "`odd name, (n)`": ("string", "'x'"),
}
PREDICATES = [
    "d >= date'2026-01-01' and d < date'2026-02-01'",
    "ts > timestamp'2026-01-01 00:00:00.5' and ts <= timestamp'2026-01-07 00:00:00'",
    "n in (1, 2, 5) and u = 'a'",
    "n = 1 or n > 7",
    "n = 1 or x < 3",
    "(n = 1 and u > 'b') or (n = 2 and u < 'c')",
    "u like 'k1%'",
    "u = 'a, (b) AND c'",
    "u <> 'a' and n >= 3",
    "not (n < 3) and f is not null",
    "n not in (1, 2) and d = date'2026-01-03'",
    "x > 1.5 and x <= 7",
    "f between 1.5 and 1e300",
    "b = X'AB00'",
    "o",
    "not o",
    "`odd name, (n)` = 'x = y' and n = 3",
    "ts is null",
]


@pytest.fixture
def wide(spark: Any, schema: str) -> str:
    table = f"{schema}.wide"
    spark.sql(
        f"create table {table} ({', '.join(f'{c} {kind}' for c, (kind, _) in TYPES.items())}) using iceberg"
    )
    spark.sql(f"insert into {table} select {', '.join(value for _, value in TYPES.values())} from range(9)")
    return table


def events(spark: Any, queries: list[str], at: datetime) -> list[str]:
    """Events as Spark logs them when queries begin, with the plans that it makes of them."""
    return [
        json.dumps(
            {
                "Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
                "executionId": number,
                "description": "collect",
                "details": query,
                "physicalPlanDescription": plan_text(spark, query),
                "time": int((at + timedelta(seconds=number)).timestamp() * 1000),
            }
        )
        for number, query in enumerate(queries)
    ]


def plan_text(spark: Any, query: str) -> str:
    frame = spark.sql(query)
    explain = spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    return str(frame._jdf.queryExecution().explainString(explain))


def write_log(directory: Path, name: str, lines: list[str]) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    first = json.dumps({"Event": "SparkListenerLogStart", "Spark Version": "3.5.0"})
    path.write_text("\n".join([first, *lines, '{"Event":"org.apache.spark.sql.exec']), encoding="utf-8")
    return path


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.mark.thorough
def test_event_logs_give_the_same_reads_as_the_queries(spark: Any, wide: str, tmp_path: Path) -> None:
    queries = [f"select n, d from {wide} where {where}" for where in PREDICATES]
    for query in queries:
        by_query, by_log = (ClusteredTable(spark, wide, "n") for _ in range(2))
        record_queries(by_query, {"q": query})
        expected = RecordedReads.parse(by_query.iceberg.properties[table_properties.READS]).reads
        forget_reads(spark, by_query)
        directory = tmp_path / str(abs(hash(query)))
        write_log(directory, "app-1", events(spark, [query], now() - timedelta(hours=1)))
        imported = import_reads(spark, by_log, str(directory))
        assert (imported.scans, imported.left_out) == (1, []), query
        found = RecordedReads.parse(by_log.iceberg.properties[table_properties.READS]).reads
        assert [read.columns for read in found] == [read.columns for read in expected], query
        forget_reads(spark, by_log)


def test_a_log_is_counted_once_and_fades(spark: Any, wide: str, tmp_path: Path) -> None:
    query = f"select * from {wide} where n = 1"
    log = tmp_path / "logs"
    write_log(log, "app-1", events(spark, [query, query], now() - timedelta(days=14)))
    assert import_reads(spark, wide, str(log)).scans == 0  # of the past seven days
    assert import_reads(spark, wide, str(log), since=now() - timedelta(days=30)).scans == 2
    (read,) = clustering_reads(spark, wide, "n").reads
    assert (read.source, read.imported_from, read.columns) == ("recorded", "event log", {"n": [1, 1]})
    assert read.weight == pytest.approx(1.0, rel=0.01)  # two, two weeks ago
    again = import_reads(spark, wide, str(log), since=now() - timedelta(days=30))
    assert (again.scans, again.recorded) == (0, 1)
    write_log(
        log, "app-2", events(spark, [f"select * from {wide} where n = 2"], now() - timedelta(minutes=5))
    )
    assert import_reads(spark, wide, str(log)).scans == 1
    assert [read.columns["n"][0] for read in clustering_reads(spark, wide, "n").reads] == [1, 2]


def test_logs_of_other_tables_and_clusters(spark: Any, wide: str, tmp_path: Path) -> None:
    log = tmp_path / "logs"
    lines = events(spark, [f"select * from {wide} where n = 1"], now())
    name = ".".join([spark.catalog.currentCatalog(), wide])
    write_log(log, "app-1", [line.replace(name, f"prod.{wide}") for line in lines])
    imported = import_reads(spark, wide, str(log))
    assert imported.scans == 0
    assert f"in 1 logs; prod.{wide} is: name it with logged_as" in imported.left_out[0]
    assert table_properties.READS not in ClusteredTable(spark, wide).iceberg.properties
    assert import_reads(spark, wide, str(log), logged_as=f"prod.{wide}").scans == 1
    with pytest.raises(EventLogError, match="cannot be listed"):
        import_reads(spark, wide, str(tmp_path / "nowhere"))
    with pytest.raises(OptionError, match="needs event_log or queries"):
        import_reads(spark, wide)


@pytest.fixture
def loaded(spark: Any, schema: str) -> str:
    return make_even_table(spark, schema)


@pytest.mark.thorough
def test_what_was_recorded_is_followed_by_everybody_until_it_is_forgotten(spark: Any, loaded: str) -> None:
    imported = import_reads(
        spark,
        loaded,
        queries={
            "model.a": f"select * from {loaded} where k between 310 and 750",
            "model.b": f"select * from {loaded} where p = 3",
            "model.c": "select * from nowhere",
        },
    )
    assert (imported.scans, imported.ranges, imported.recorded) == (2, 2, 2)
    assert imported.left_out[0].startswith("model.c: a query cannot be planned")
    before = checksum(spark, loaded)
    information = clustering_reads(spark, loaded, "k")
    assert information.share_wasted == round(3 / 20, 4)
    of_key, other = information.reads
    # Five of ten blocks of each of four loads; of four over an end, one and a half hold nothing that a sorted one had.
    assert (of_key.blocks, of_key.blocks_wasted) == (20, 3.0)
    assert (other.columns, other.blocks) == ({"p": [3, 3]}, None)
    result = recluster(spark, loaded, "k", depth=2, block_rows=100, final=True)
    assert result.blocks_in == 8
    assert checksum(spark, loaded) == before
    assert clustering_reads(spark, loaded).share_wasted == 0
    assert recluster(spark, loaded, depth=2, block_rows=100, reads="even", dry_run=True).plan
    assert forget_reads(spark, loaded) == 2
    assert forget_reads(spark, loaded) == 0
    assert clustering_reads(spark, loaded).reads == []


def test_a_project_replaces_what_it_read_before(spark: Any, loaded: str) -> None:
    first = {"model.a": f"select * from {loaded} where k = 1"}
    table = ClusteredTable(spark, loaded, "k")
    assert not has_recorded(table, first)
    record_queries(table, first)
    assert has_recorded(ClusteredTable(spark, loaded), first)
    second = {"model.a": f"select * from {loaded} where k = 2"}
    assert not has_recorded(table, second)
    record_queries(table, second)
    assert [read.columns for read in clustering_reads(spark, loaded, "k").reads] == [{"k": [2, 2]}]


def test_reads_are_of_the_table_under_every_key(spark: Any, loaded: str) -> None:
    table = ClusteredTable(spark, loaded, "k")
    by_p = table.under("p")
    assert (table.key_reads, by_p.key_reads) == (None, None)
    record_queries(table, {"a": f"select * from {loaded} where p = 3"})
    assert (table.key_reads, by_p.key_reads.lower) == (None, [[3]])
    by_p.reads.follow(ReclusterOptions(reads=["k = 1"]).reads)
    assert (table.key_reads.lower, by_p.key_reads) == ([[1]], None)
    assert table.reads.forget() == 1
    assert by_p.reads.ranges == []


def test_what_others_wrote_into_the_property_harms_nothing(spark: Any, loaded: str) -> None:
    for text in ("{", "[]", '{"reads": [["project", 1, {"k": ["a", "b"]}]]}', '{"reads": 7}', "7"):
        spark.sql(f"alter table {loaded} set tblproperties ('{table_properties.READS}' = '{text}')")
        assert clustering_reads(spark, loaded, "k").share_wasted is None
        assert recluster(spark, loaded, "k", dry_run=True).plan
    gone, unbounded = '["x", 1, {"gone": [1, 2]}]', '["x", 1, {"p": [null, null]}]'
    text = f'{{"reads": [["x", 2, {{"k": [3, 3], "gone": [1, 2]}}], {gone}, {unbounded}]}}'
    spark.sql(f"alter table {loaded} set tblproperties ('{table_properties.READS}' = '{text}')")
    assert [read.columns for read in clustering_reads(spark, loaded, "k").reads] == [{"k": [3, 3]}]


@pytest.mark.thorough
def test_a_key_is_suggested_for_what_is_read(spark: Any, wide: str, schema: str) -> None:
    """Every type of value is written as SQL that means the same."""
    spark.sql(f"create table {schema}.big (k bigint, p int) using iceberg")
    spark.range(0, 10_000, 1, 10).selectExpr("id * 7919 % 10000 as k", "cast(id % 100 as int) as p").writeTo(
        f"{schema}.big"
    ).append()
    import_reads(
        spark, f"{schema}.big", queries={"q": f"select * from {schema}.big where k between 100 and 200"}
    )
    suggestion = suggest_cluster_by(spark, f"{schema}.big")
    assert suggestion.queries == ("`k` >= cast('100' as bigint) and `k` <= cast('200' as bigint)",)
    assert suggestion.candidates[0].cluster_by == ("k",)
    table = ClusteredTable(spark, wide, "n")
    of_table = Ranges(table.iceberg, table.columns)
    for where in PREDICATES:
        for ranges in of_table.of_predicate(table.predicate(where)):
            text = of_table.sql(ranges)
            assert of_table.of_predicate(table.predicate(text)) == [ranges], (where, text)


def test_information_says_what_is_wasted(spark: Any, loaded: str) -> None:
    assert "share_wasted" not in clustering_information(spark, loaded, "k")
    import_reads(spark, loaded, queries={"q": f"select * from {loaded} where k between 310 and 750"})
    assert clustering_information(spark, loaded, "k")["share_wasted"] == 0.15


@pytest.mark.thorough
def test_the_report_shows_where_reads_end(spark: Any, loaded: str) -> None:
    recluster(spark, loaded, "k", depth=3, block_rows=100, where="k < 300")
    unknown = clustering_report_data(spark, loaded, "k")
    assert not shows_ends(unknown)
    import_reads(spark, loaded, queries={"q": f"select * from {loaded} where k between 310 and 750"})
    report = clustering_report_data(spark, loaded, "k")
    assert shows_ends(report)
    assert report.now.ends.sum() == 2
    assert np.round(report.now.at[report.now.ends > 0], 1).tolist() == [0.3, 0.7]
    # A bar for each of both ends.
    assert (depth_curve(report).count("--load"), depth_curve(unknown).count("--load")) == (2, 0)


def test_reads_of_columns_that_changed_restrict_nothing(spark: Any, schema: str) -> None:
    """Recorded for a number, they are no range of texts: '9' to '10' would be one that ends before it begins."""
    table = f"{schema}.t"
    spark.sql(f"create table {table} (k int, x decimal(10, 4)) using iceberg")
    spark.sql(f"insert into {table} values (1, 1.5)")
    queries = {
        "a": f"select * from {table} where k between 9 and 10",
        "b": f"select * from {table} where x = 1.2345",
    }
    import_reads(spark, table, queries=queries)
    assert len(clustering_reads(spark, table, "k").reads) == 2
    spark.sql(f"create or replace table {table} (k string, x decimal(10, 2)) using iceberg")
    spark.sql(f"insert into {table} values ('a', 1.5)")
    assert clustering_reads(spark, table, "k").reads == []
    assert recluster(spark, table, "k", dry_run=True).warnings == []


def test_values_that_no_column_holds_restrict_nothing(spark: Any, loaded: str, tmp_path: Path) -> None:
    longest = 2**63 - 1
    log = write_log(
        tmp_path / "logs", "app-1", events(spark, [f"select * from {loaded} where k > {longest}"], now())
    )
    import_reads(spark, loaded, str(log))
    for reads in (None, [f"k > {longest}"], [f"k = {longest} or k = 3"]):
        assert recluster(spark, loaded, "k", dry_run=True, reads=reads).warnings == []


def test_places_of_logs_are_imported_one_by_one(spark: Any, wide: str, tmp_path: Path) -> None:
    """What one cluster has asked today does not hide what another asked yesterday, and names may have hyphens."""
    (line,) = events(spark, [f"select * from {wide} where n = 1"], now())
    name = ".".join([spark.catalog.currentCatalog(), wide])
    write_log(tmp_path / "a", "app-1", [line])
    (line,) = events(spark, [f"select * from {wide} where n = 2"], now() - timedelta(days=1))
    write_log(tmp_path / "b", "app-1", [line.replace(name, f"my-lake.{wide}")])
    assert import_reads(spark, wide, str(tmp_path / "a")).scans == 1
    log = str(tmp_path / "b/app-1")  # a log may be named itself
    assert import_reads(spark, wide, log, logged_as=f"my-lake.{wide}").scans == 1
    assert import_reads(spark, wide, str(tmp_path / "a")).scans == 0


def test_a_project_compiled_for_another_schema_takes_nothing_away(spark: Any, loaded: str) -> None:
    table = ClusteredTable(spark, loaded, "k")
    record_queries(table, {"a": f"select * from {loaded} where k = 1"})
    assert record_queries(table, {"a": "select 1"}).recorded == 1
