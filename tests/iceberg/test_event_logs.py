"""Spark's event logs: genuine ones, and whatever else lies where they should be."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dbt_recluster.advice.imported_reads import (
    LONGEST_LINE,
    EventLogs,
    ImportedReads,
    LoggedFilters,
    LogProgress,
    scans,
)
from dbt_recluster.api import ClusteredTable, forget_reads, import_reads
from dbt_recluster.clustering.table_reads import RecordedReads
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.event_logs import EventLogFiles
from dbt_recluster.iceberg.predicates import RangeParser, range_types

STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
YESTERDAY = datetime.now(timezone.utc) - timedelta(days=1)


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, v string, d date, `odd name, (n)` string) using iceberg")
    spark.sql(f"insert into {name} select id, 'x', date'2026-01-01', 'x' from range(100)")
    spark.sql(f"create table {schema}.days (day date) using iceberg")
    spark.sql(f"insert into {schema}.days values (date'2026-01-01')")
    spark.sql(f"create view {schema}.late as select k, d as day from {name} where k >= 50")
    return name


# Of the table with a column of every type.
PREDICATES = [
    "day >= date'2026-01-01' and day < date'2026-02-01'",
    "ts > timestamp'1970-01-01 00:00:00.5' and ts <= timestamp'2026-01-07 00:00:00'",
    "tz < timestamp_ntz'1900-04-01 12:00:00'",
    "i in (1, 2, 5) and s = 'a'",
    "i = 1 or i > 7",
    "i = 1 or n < 3",
    "(l = 1 and u > 'b') or (l = 2 and u < 'c')",
    "u like 'k1%'",
    "u = 'a, (b) AND c'",
    "u <> 'a' and i >= 3",
    "not (i < 3) and d is not null",
    "i not in (1, 2) and day = date'2026-01-03'",
    "n > 1.5 and w <= 7",
    "d between 1.5 and 1e300",
    "f > 2.5",
    "b = X'AB00'",
    "flag",
    "not flag",
    "st.x = 3 and st.`a b` = 'x = y'",
    "ts is null",
]


@contextmanager
def logging(spark: Any, directory: Path, **settings: str) -> Iterator[None]:
    """Have Spark's own listener log all that happens, as `spark.eventLog.enabled` does."""
    directory.mkdir(exist_ok=True)
    context, java = spark.sparkContext._jsc.sc(), spark._jvm
    conf = context.conf().clone()
    for name, value in settings.items():
        conf.set(f"spark.eventLog.{name.replace('_', '.')}", value)
    listener = java.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(),
        java.scala.Option.apply(None),
        java.java.io.File(str(directory)).toURI(),
        conf,
        context.hadoopConfiguration(),
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [{}, {"rolling_enabled": "true", "compress": "true", "compression_codec": "zstd"}],
    ids=["plain", "rolled and compressed"],
)
def test_a_genuine_log_gives_the_reads_of_its_queries(
    spark: Any, schema: str, table: str, typed: tuple[str, Any], tmp_path: Path, settings: dict[str, str]
) -> None:
    """Also where a column is named like the text of a filter."""
    name_of_all_types, _ = typed
    queries = [
        f"select * from {table} where k between 10 and 20 and v like 'x%'",
        f"select count(v) from {table} join {schema}.days on d = day where day >= date'2026-01-01'",
        f"select max(k) from {schema}.late where day < date'2026-02-01' or k > 90",
        f"select k from {table} where d = date'2026-01-01' union all select k from {table} where k = 7",
        f"select day from {schema}.days where day > (select min(d) from {table} where k in (1, 3))",
        f"select k from {table} where `odd name, (n)` = 'x = y' and k = 3",
        f"select * from {table}.files",
    ]
    of_all_types = [f"select id from {name_of_all_types} where {where}" for where in PREDICATES]
    (tmp_path / "eventlog_v2_empty").mkdir()
    with logging(spark, tmp_path, **settings):
        for query in (*queries, *of_all_types):
            spark.sql(query).collect()

    def import_both(name: str, queries: list[str]) -> ImportedReads:
        """Import from the log and from the queries, which must find the same."""
        logged, of_log = import_reads(spark, name, str(tmp_path)), recorded(name)
        forget_reads(spark, name)
        planned = import_reads(spark, name, queries={str(place): query for place, query in enumerate(queries)})
        assert recorded(name) == of_log
        assert (logged.left_out, logged.scans, logged.ranges) == ([], planned.scans, planned.ranges)
        return logged

    def recorded(name: str) -> set[str]:
        text = ClusteredTable(spark, name).iceberg.properties[table_properties.READS]
        return {json.dumps(read.columns, default=str) for read in RecordedReads.parse(text).reads}

    imported = import_both(table, queries)
    assert (imported.scans, imported.ranges) == (7, 9)
    assert import_both(name_of_all_types, of_all_types).scans == len(PREDICATES)


@pytest.mark.thorough
def test_a_range_is_written_as_sql_that_means_the_same(spark: Any, typed: tuple[str, Any]) -> None:
    table = ClusteredTable(spark, typed[0], "i")
    of_table = RangeParser(table.iceberg, table.columns)
    for where in PREDICATES:
        for ranges in of_table.of_predicate(table.predicate(where)):
            text = of_table.sql(ranges)
            assert of_table.of_predicate(table.predicate(text)) == [ranges], (where, text)


def event(plan: Any, rest: str = '"sparkPlanInfo": {}', at: datetime | None = None) -> str:
    time = int((at or datetime.now(timezone.utc)).timestamp() * 1000)
    plan = json.dumps(plan)
    return f'{{"Event": "{STARTED}", "physicalPlanDescription": {plan}, {rest}, "time": {time}}}'


def scan(filters: str = "k = 1", table: str = "lake.s.t") -> str:
    return f"\n(1) BatchScan {table}\n{table} (branch=null) [filters={filters}, groupedBy=]\n"


NODE = "\n(1) BatchScan lake.s.t\nOutput [1]: [k#1]\n"


def found(spark: Any, path: Path) -> tuple[list[str], list[str]]:
    """Return the filters in a log, and what is wrong with it."""
    logs = EventLogs(EventLogFiles(spark, str(path)), "lake.s.t", {})
    return [filters for _, filters in logs.scans(of_yesterday())], logs.files.faults


def of_yesterday() -> LogProgress:
    """Nothing is imported yet, and queries since yesterday shall be."""
    return LogProgress(None, YESTERDAY, datetime.now(timezone.utc))


def test_the_texts_of_every_spark_are_known_at_once(spark: Any, table: str, tmp_path: Path) -> None:
    """A log may come from another Spark than the one that reads it. A text that none has written is told."""
    of_4_1 = "table=lake.s.t, schemaId=0, snapshotId=7, branch=null, filters=k = 2, v = ', groupedBy=)'"
    texts = [
        "lake.s.t (branch=null) [filters=k = 1, groupedBy=]",
        f"IcebergScan({of_4_1}, runtimeFilters=, groupedBy=)",
        f"IcebergCopyOnWriteScan({of_4_1}, groupedBy=k)",
        "IcebergIncrementalScan(table=lake.s.t, startSnapshotId=1, endSnapshotId=2, filters=k = 4, runtimeFilters=, "
        "groupedBy=)",
        "IcebergStagedScan(table=lake.s.t, taskSetID=7)",  # what a merge reads
    ]
    (tmp_path / "app-1").write_text("\n".join(event(f"{NODE}{text}\n") for text in texts))
    assert found(spark, tmp_path) == (["k = 1", *["k = 2, v = ', groupedBy=)'"] * 2, "k = 4"], [])
    unknown = [
        f"{NODE}lake.s.t where k = 1\n{NODE}IcebergScan(table=lake.s.t, filters=k = 1)",
        "+- BatchScan lake.s.t[k#1] lake.s.t (branch=null) [filters=k = 1, groupedBy=] RuntimeFilters: []",
        "+- BatchScan lake.s.t[k#1] IcebergScan(table=lake.s.t, filters=, groupedBy=) RuntimeFilters: []",
        NODE.replace("lake.s.t", "lake.s.other"),
    ]
    (tmp_path / "app-1").write_text("\n".join(map(event, unknown)))
    imported = import_reads(spark, table, str(tmp_path), logged_as="lake.s.t")
    assert imported.scans == 0
    (left_out,) = imported.left_out
    assert left_out.startswith("app-1: unknown text of a scan, 4 times. Known are those of Iceberg 1.10 to 1.12")


def test_what_is_no_event_is_counted_and_passed_over(spark: Any, tmp_path: Path) -> None:
    deep = 100_000
    tree = '"sparkPlanInfo": ' + '{"children": [' * deep + "]}" * deep
    plans = [("1e20", '"x"'), ("1e12", "7"), ("null", '"x"'), ("7", '"\\ud800"')]
    lines = [
        event(scan("k = 1")),
        event(scan("k = 2"), tree),  # deeper than Python reads
        event(scan("k = 2"), tree[:-1]),
        event(scan("k = 3"), '"sparkPlanInfo": ["' + '\\" {' * 100_000),
        event(7),
        f'{{"Event": "{STARTED}"}}',
        event(scan("k = 4") + "x" * LONGEST_LINE),
        "[" * deep,
        event(scan("k = 5"), '"description": "\\"time\\": {["'),
        event(scan("k = 6"), at=YESTERDAY - timedelta(days=1)),
        *(f'{{"Event": "{STARTED}", "time": {at}, "physicalPlanDescription": {plan}}}' for at, plan in plans),
        *(event("ä€" * 700_000 + scan(f"k = {number}")) for number in (7, 8)),  # the JVM sends less at once
    ]
    log = tmp_path / "app-1"
    log.write_text("\n".join([*lines, event(scan())[:-20]]))  # the last line is still written
    wrong = ["app-1: 9 lines are malformed, too long or too deep"]
    assert found(spark, log) == ([f"k = {number}" for number in (1, 5, 7, 8)], wrong)


def test_no_log_is_copied_as_a_whole_and_what_precedes_a_broken_part_counts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, plain, log = tmp_path / "scratch", tmp_path / "plain", tmp_path / "app-1.lz4"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    plain.write_text("\n".join(event(scan(f"k = {number}") + "x" * 10_000) for number in range(2_000)))
    compress(spark, plain, log, "lz4")
    most = 0
    logs = EventLogs(EventLogFiles(spark, str(log)), "lake.s.t", {})
    for number, (_, filters) in enumerate(logs.scans(of_yesterday())):
        assert filters == f"k = {number}"
        most = max(most, sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file()))
    assert number == 1_999
    assert most < plain.stat().st_size / 4
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    scanned, faults = found(spark, log)
    assert 500 < len(scanned) < 1_500
    assert faults == ["app-1.lz4: could not be read to its end"]
    no_log = tmp_path / "app-2.zstd"
    no_log.write_bytes(b"no zstd at all")
    assert found(spark, no_log) == ([], ["app-2.zstd: could not be read to its end"])
    assert list(scratch.iterdir()) == []


def compress(spark: Any, plain: Path, path: Path, codec: str) -> None:
    java, io = spark._jvm.java, spark._jvm.org.apache.spark.io
    conf = spark.sparkContext._jsc.sc().conf()
    stream = io.CompressionCodec.createCodec(conf, codec).compressedOutputStream(java.io.FileOutputStream(str(path)))
    java.nio.file.Files.copy(java.io.File(str(plain)).toPath(), stream)
    stream.close()


@pytest.mark.thorough
def test_plans_of_any_shape_take_time_by_their_length() -> None:
    """Each of these took the square of it, or went deeper than Python does."""
    many = 300_000
    for noise in ("\n", " \n", "x (branch=", "x (branch=a) [filters=", ", groupedBy=", ", groupedBy=]", "]"):
        for plan in (noise * many, f"{noise * many}\n{scan()}", f"{scan()}{noise * many}"):
            assert len(list(scans(plan))) <= 2, noise
    assert list(scans(f"{' ' * many}lake.s.t (branch=b) [filters=, groupedBy=[k]] ")) == [("lake.s.t", "")]
    logged = LoggedFilters(range_types({"k": "int", "v": "string"}))
    broken = [text * many for text in ("(", "'", "v = 'a", "not(", "(k = 1 OR ", "((k = 1))")]
    broken += ["(k = 1 OR k = 2 AND k = 3)", "(k = 1", "k = 1)", "(k = 1 k = 2)", "()", ""]
    assert [logged.ranges(filters) for filters in broken] == [[]] * len(broken)
    unlike = ", ".join(f"v != '{number}'" for number in range(many // 10))
    assert logged.ranges(f"{unlike}, k = 3") == [{"k": (3, 3)}]
    nested = "(" * 150 + "k = 0" + "".join(f" OR k = {number})" for number in range(1, 151))
    assert [of_row["k"] for of_row in logged.ranges(nested)] == [(number, number) for number in range(151)]
    assert logged.ranges("(" * many + "k = 3" + ")" * many) == [{"k": (3, 3)}]
