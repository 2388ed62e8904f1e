"""Reads that are imported, from queries and from Spark's event logs, and recorded with the table."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import add_catalog, checksum, make_even_table, make_table

from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.api import (
    ClusteredTable,
    clustering_information,
    clustering_reads,
    clustering_report,
    forget_reads,
    import_reads,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.exceptions import EventLogError, OptionError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.report.html import draw_depth_curve, shows_ends


@pytest.fixture
def loaded(spark: Any, schema: str) -> str:
    return make_even_table(spark, schema)


def write_log(spark: Any, path: Path, queries: list[str], ago: timedelta = timedelta(0), **names: str) -> Path:
    """Write a log as Spark does of queries, with the plans that it makes of them and other names of tables."""
    lines = [{"Event": "SparkListenerLogStart", "Spark Version": "3.5.0"}]
    explain = spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    for number, query in enumerate(queries):
        plan = str(spark.sql(query)._jdf.queryExecution().explainString(explain))
        for name, logged_as in names.items():
            plan = plan.replace(name, logged_as)
        at = datetime.now(timezone.utc) - ago - timedelta(seconds=len(queries) - number)
        began = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
        event = {"Event": began, "physicalPlanDescription": plan, "time": int(at.timestamp() * 1000)}
        lines.append(event)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*map(json.dumps, lines), '{"Event":"org.apache.spark.sql.exec']))
    return path


def test_a_log_is_counted_once_and_fades(spark: Any, loaded: str, tmp_path: Path) -> None:
    query, month_ago = f"select * from {loaded} where k = ", datetime.now(timezone.utc) - timedelta(days=30)
    write_log(spark, tmp_path / "app-1", [f"{query} 1"] * 4, timedelta(days=14))
    assert import_reads(spark, loaded, str(tmp_path)).scans == 0  # of the past seven days
    assert import_reads(spark, loaded, str(tmp_path), since=month_ago).scans == 4
    (read,) = clustering_reads(spark, loaded, "k").reads
    assert (read.source, read.imported_from, read.columns) == ("recorded", "event log", {"k": [1, 1]})
    assert read.weight == pytest.approx(1.0, rel=0.01)  # four, two weeks ago
    again = import_reads(spark, loaded, str(tmp_path), since=month_ago)
    assert (again.scans, again.recorded) == (0, 1)
    write_log(spark, tmp_path / "app-2", [f"{query} 2"], timedelta(minutes=5))
    assert import_reads(spark, loaded, str(tmp_path)).scans == 1
    assert [read.columns["k"][0] for read in clustering_reads(spark, loaded, "k").reads] == [1, 2]


def test_logs_of_other_clusters_hide_no_read(spark: Any, loaded: str, tmp_path: Path) -> None:
    """What one cluster has asked today does not hide what another asked yesterday, and names may have hyphens."""
    name, query = f"{spark.catalog.currentCatalog()}.{loaded}", f"select * from {loaded} where k = 1"
    other, elsewhere = f"my-lake.{loaded}", {name: f"my-lake.{loaded}"}
    write_log(spark, tmp_path / "a/app-1", [query])
    log = str(write_log(spark, tmp_path / "b/app-1", [query], timedelta(days=1), **elsewhere))
    imported = import_reads(spark, loaded, str(tmp_path / "b"))
    assert imported.scans == 0
    assert f"in 1 logs; {other} is: name it with logged_as" in imported.left_out[0]
    assert table_properties.READS not in ClusteredTable(spark, loaded).iceberg.properties
    assert import_reads(spark, loaded, str(tmp_path / "a")).scans == 1
    assert import_reads(spark, loaded, log, logged_as=other).scans == 1  # a log may be named itself
    assert import_reads(spark, loaded, str(tmp_path / "a")).scans == 0
    with pytest.raises(EventLogError, match="cannot be listed"):
        import_reads(spark, loaded, str(tmp_path / "nowhere"))
    with pytest.raises(OptionError, match="name Spark's event logs with event_log"):
        import_reads(spark, loaded)


def test_a_query_log_names_two_parts_of_a_table_in_any_catalog(spark: Any, hadoop_catalog: str, tmp_path: Path) -> None:
    catalog = f"Capital_{hadoop_catalog}"
    add_catalog(spark, catalog, type="hadoop", warehouse=tmp_path.as_uri())
    name, log = make_table(spark, f"{catalog}.sales", name="orders", rows=100), tmp_path / "queries.jsonl"
    log.write_text(json.dumps({"query": "select * from prod.orders where k = 1"}))
    imported = import_reads(spark, name, query_log=str(log), logged_as="prod.orders")
    assert (imported.scans, imported.left_out) == (1, [])


def test_reads_are_imported_from_a_log_of_trino(
    spark: Any, loaded: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of its queries only ranges stay, and no message quotes one."""
    schema, name = loaded.split(".")
    spark.sql(f"create table {schema}.other (k bigint) using iceberg")
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    queries: list[dict[str, Any]] = [
        {
            "query": f'select count(*) from iceberg.{loaded} where "k" = 7',
            "count": 3,
            "user": "ann@example.org",
        },
        {"query": f"select 1 from {schema.upper()}.{name} o where element_at(array[p], 1) = 0 and o.k <= 5"},
        {"query": f"create table iceberg.{schema}.x as select * from {name} where k = 11", "schema": schema},
        {"query": f"select * from iceberg.{loaded} a join iceberg.{schema}.other b on a.k = b.k where b.k = 13"},
        {"query": f"select * from nowhere.{name} where k = 424242"},
        {"query": f"select geometry_union(k) from {loaded} where p = 'my secret'"},
        {"query": f"select * from {loaded} where k = 'my secret"},
        {"query": f"delete from {loaded} where k = 424242"},
        {"query": f"execute immediate 'select * from {loaded} where k = ?' using 424242"},
        {"query": "select * from somewhere where k = 1"},
        {"query": f"select * from {loaded} where k = 17", "time": "2026-01-01T00:00:00Z"},
        {"query": f"select * from {loaded} where k = 21", "count": "many"},
        {"query": f"use iceberg; with {name} as (select * from {loaded} where k = 23) select * from {name};"},
    ]
    last = len(queries) - 1
    lines = [{"time": (hour_ago + timedelta(seconds=i)).isoformat(), **entry} for i, entry in enumerate(queries)]
    log = tmp_path / "queries.jsonl"
    log.write_text("\n".join([*map(json.dumps, lines), '{"query": 1', "[]", '{"query": "x", "count": -1}\n']))
    given: dict[str, Any] = {"query_log": str(log), "dialect": "trino", "logged_as": f"iceberg.{loaded}"}
    imported = import_reads(spark, loaded, **given)
    assert (imported.imported_from, imported.scans) == ("query log", 5)
    text = "\n".join(imported.left_out)
    assert imported.left_out == [
        f"1 line, such as 5: table or view not found `spark_catalog`.`nowhere`.`{name}`",
        "1 line, such as 6: unresolved routine",
        "1 line, such as 7: sqlglot cannot parse it",
        "2 lines, such as 8, 9: a command is no query",
        f"4 lines, such as {last}, {last + 2}, {last + 3}, {last + 4}: malformed",
    ]
    reads = {str(read.columns): read.weight for read in clustering_reads(spark, loaded, "k").reads}
    assert reads == {
        "{'k': [7, 7]}": pytest.approx(3, rel=0.01),
        "{'k': [None, 5]}": pytest.approx(1, rel=0.01),
        "{'k': [11, 11]}": pytest.approx(1, rel=0.01),
        "{'k': [13, 13]}": pytest.approx(1, rel=0.01),
        "{'k': [23, 23]}": pytest.approx(1, rel=0.01),
    }
    kept = ClusteredTable(spark, loaded).iceberg.properties[table_properties.READS]
    assert not any(word in f"{kept}{text}{caplog.text}" for word in ("select", "ann@", "424242", "secret", "jsonl"))
    assert import_reads(spark, loaded, **given).scans == 0
    with log.open("a") as more:  # as of the last change of the file
        more.write(json.dumps({"query": f"select * from {loaded} where k = 19"}))
    assert import_reads(spark, loaded, **given).scans == 1
    assert recluster(spark, loaded, "k", depth="auto", dry_run=True).reason
    with pytest.raises(EventLogError, match="cannot be read"):
        import_reads(spark, loaded, query_log=str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(OptionError, match="by query_log, which may have a dialect"):
        import_reads(spark, loaded, str(tmp_path), dialect="trino")


def test_a_late_query_counts_and_one_of_the_future_waits(spark: Any, loaded: str, tmp_path: Path) -> None:
    log, now, lines = tmp_path / "queries.jsonl", datetime.now(timezone.utc), list[str]()

    def imported(*reads: tuple[int, timedelta], **given: Any) -> tuple[list[int], list[str]]:
        """Log queries of values, so long ago each; return the values that are imported, and what is left out."""
        before = {read.columns["k"][0]: read.weight for read in clustering_reads(spark, loaded, "k").reads}
        for value, ago in reads:
            query = {"query": f"select * from {loaded} where k = {value}", "time": (now - ago).isoformat()}
            lines.append(json.dumps(query))
        log.write_text("\n".join(lines))
        left_out = import_reads(spark, loaded, query_log=str(log), **given).left_out
        after = {read.columns["k"][0]: read.weight for read in clustering_reads(spark, loaded, "k").reads}
        return [value for value in after if after[value] > before.get(value, 0) + 0.1], left_out

    hour, future = timedelta(hours=1), "1 read: a time in the future"
    assert imported((1, hour), (2, timedelta(days=-27000)), (3, 3 * hour)) == ([1, 3], [future])
    assert imported((4, timedelta(0))) == ([4], [future])
    assert imported((5, 2 * hour), (5, timedelta(days=3)), since=now - 4 * hour) == ([5], [future])
    new, left_out = imported()
    assert (new, left_out[0]) == ([], future)
    assert "is read by no new query since" in left_out[1]
    del lines[:-1]  # another file of that name
    assert imported((6, 4 * timedelta(days=1)), (1, timedelta(days=4)))[0] == [1, 6]
    lines.clear()
    (found,) = imported((7, 4 * timedelta(days=1)))[1][:1]
    assert "1 read of" in found
    assert "2 of that day were counted before" in found


def test_a_log_that_appears_late_or_grows_counts_once(spark: Any, loaded: str, tmp_path: Path) -> None:
    query, hour = f"select * from {loaded} where k = ", timedelta(hours=1)
    logs = tmp_path / "logs"

    def scans() -> int:
        return import_reads(spark, loaded, str(logs)).scans

    write_log(spark, logs / "app-2.inprogress", [f"{query} 1"] * 2, hour)
    closed = write_log(spark, logs / "app-3", [f"{query} 2"] * 3, hour)
    os.utime(closed, (closed.stat().st_mtime - 86400,) * 2)  # so that it need not be read again
    assert scans() == 5
    # Some file systems show a log when it is closed.
    write_log(spark, logs / "app-1", [f"{query} 3"], 3 * hour)
    grown = write_log(spark, logs / "app-2.inprogress", [f"{query} 1"] * 4, hour)
    assert scans() == 3
    grown.rename(logs / "app-2")
    assert scans() == 0
    write_log(spark, logs / "app-4", [f"{query} 4"], 2 * hour)
    assert scans() == 1


@pytest.mark.thorough
def test_what_was_recorded_is_followed_by_everybody_until_it_is_forgotten(spark: Any, loaded: str) -> None:
    assert "share_wasted" not in clustering_information(spark, loaded, "k")
    queries = {
        "model.a": f"select * from {loaded} where k between 310 and 750",
        "model.b": f"select * from {loaded} where p = 3",
        "model.c": "select * from nowhere",
    }
    imported = import_reads(spark, loaded, queries=queries)
    assert (imported.scans, imported.ranges, imported.recorded) == (2, 2, 2)
    assert imported.left_out[0].startswith("model.c: a query cannot be planned")
    assert suggest_cluster_by(spark, loaded).queries[0] == (
        "`k` >= cast('310' as bigint) and `k` <= cast('750' as bigint)"
    )
    before = checksum(spark, loaded)
    information = clustering_reads(spark, loaded, "k")
    assert information.share_wasted == 3 / 20 == clustering_information(spark, loaded, "k")["share_wasted"]
    of_key, other = information.reads
    # Five of ten blocks of each of four loads; of four over an end, one and a half hold nothing that a sorted one had.
    assert (of_key.blocks, of_key.blocks_wasted) == (20, 3.0)
    assert (other.columns, other.blocks) == ({"p": [3, 3]}, None)
    assert recluster(spark, loaded, "k", depth=2, block_rows=100, final=True).blocks_in == 8
    assert checksum(spark, loaded) == before
    assert clustering_reads(spark, loaded).share_wasted == 0
    assert recluster(spark, loaded, depth=2, block_rows=100, reads="even", dry_run=True).plan
    assert [forget_reads(spark, loaded)["forgotten"] for _ in range(2)] == [2, 0]
    assert clustering_reads(spark, loaded).reads == []


def test_a_project_replaces_what_it_read_before(spark: Any, loaded: str) -> None:
    table = ClusteredTable(spark, loaded, "k")
    for value in (1, 2):
        queries = {"model.a": f"select * from {loaded} where k = {value}"}
        assert not has_recorded(table, queries)
        record_queries(table, queries)
        assert has_recorded(ClusteredTable(spark, loaded), queries)
    assert [read.columns for read in clustering_reads(spark, loaded, "k").reads] == [{"k": [2, 2]}]
    # Compiled for another schema, it takes nothing away.
    assert record_queries(table, {"a": "select 1"}).recorded == 1


def test_what_others_wrote_into_the_property_harms_nothing(spark: Any, loaded: str) -> None:
    gone, unbounded = '["x", 1, {"gone": [1, 2]}]', '["x", 1, {"p": [null, null]}]'
    text = f'{{"reads": [["x", 2, {{"k": [3, 3], "gone": [1, 2]}}], {gone}, {unbounded}]}}'
    spark.sql(f"alter table {loaded} set tblproperties ('{table_properties.READS}' = '{text}')")
    assert [read.columns for read in clustering_reads(spark, loaded, "k").reads] == [{"k": [3, 3]}]
    text = '{"reads": [["project", 1, {"k": ["a", "b"]}]]}'
    spark.sql(f"alter table {loaded} set tblproperties ('{table_properties.READS}' = '{text}')")
    assert clustering_reads(spark, loaded, "k").share_wasted is None
    assert recluster(spark, loaded, "k", dry_run=True).plan


@pytest.mark.thorough
def test_the_report_shows_where_reads_end(spark: Any, loaded: str) -> None:
    recluster(spark, loaded, "k", depth=3, block_rows=100, where="k < 300")
    unknown = clustering_report(spark, ClusteredTable(spark, loaded, "k"))
    assert not shows_ends(unknown)
    import_reads(spark, loaded, queries={"q": f"select * from {loaded} where k between 310 and 750"})
    report = clustering_report(spark, ClusteredTable(spark, loaded, "k"))
    assert shows_ends(report)
    assert report.now.ends.sum() == 2
    assert np.round(report.now.at[report.now.ends > 0], 1).tolist() == [0.3, 0.7]
    # A bar for each of both ends.
    assert (draw_depth_curve(report).count("--load"), draw_depth_curve(unknown).count("--load")) == (2, 0)


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
    spark.sql(f"alter table {table} rename column k to j")  # which keeps its reads
    assert {"j": [9, 10]} in [read.columns for read in clustering_reads(spark, table, "j").reads]
    spark.sql(f"alter table {table} rename column j to k")
    assert len(clustering_reads(spark, table, "k").reads) == 2
    spark.sql(f"create or replace table {table} (k string, x decimal(10, 2)) using iceberg")
    spark.sql(f"insert into {table} values ('a', 1.5)")
    assert clustering_reads(spark, table, "k").reads == []
    assert recluster(spark, table, "k", dry_run=True).warnings == []


def test_values_that_no_column_holds_restrict_nothing(spark: Any, loaded: str, tmp_path: Path) -> None:
    longest = 2**63 - 1
    write_log(spark, tmp_path / "app-1", [f"select * from {loaded} where k > {longest}"])
    import_reads(spark, loaded, str(tmp_path))
    for reads in (None, [f"k > {longest}"], [f"k = {longest} or k = 3"]):
        assert recluster(spark, loaded, "k", dry_run=True, reads=reads).warnings == []
