"""What keeping a table clustered costs and saves, played through for real; and `recluster_depth: auto`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from tables import create_table, make_even_table, planned, spark_settings

from dbt_recluster.advice.cost_model import CostModel, auto_depth
from dbt_recluster.advice.overview import table_overview
from dbt_recluster.api import (
    ClusteredTable,
    clustering_history,
    clustering_report,
    estimate_clustering_cost,
    recluster,
)
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.iceberg import table_properties
from dbt_recluster.planner import Policy
from dbt_recluster.report.html import write_report
from dbt_recluster.report.report_data import report_data
from dbt_recluster.report.result_text import cost

LOAD = (
    "insert into {table} select /*+ repartition(4) */ id, int(pmod(hash(id), 1000)) as k, 0 as p "
    "from range({number} * 4000, {number} * 4000 + 4000)"
)


def make(spark: Any, schema: str, name: str) -> str:
    """A table whose updates write whole blocks again, each of rows of many others."""
    properties = {
        **{f"write.{change}.mode": "copy-on-write" for change in ("delete", "update", "merge")},
        # Every block is written again by a task of its own.
        **{f"write.{change}distribution-mode": "none" for change in ("", "delete.", "update.", "merge.")},
        "read.split.target-size": "6000",
        "read.split.open-file-cost": "1",
    }
    table = create_table(spark, f"{schema}.{name}", "id bigint, k int, p int", properties, "p")
    spark.sql(f"alter table {table} write locally ordered by k")
    spark.sql(LOAD.format(table=table, number=0))
    return table


@pytest.mark.thorough
def test_loaded_rows_are_those_that_commits_add(spark: Any, schema: str) -> None:
    table = make(spark, schema, "t")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")  # dbt sets it in this session
    new = [4000]
    for statement, rows in [
        (f"update {table} set p = p where id % 100 = 1", 0),
        (f"delete from {table} where id < 1000", 0),
        (f"delete from {table} where p = 7", 0),
        (
            f"merge into {table} t using (select id, 1 as k, 0 as p from range(3500, 4500)) s on t.id = s.id "
            "when matched then delete when not matched then insert *",
            0,
        ),
        (f"insert into {table} select id, 1, 1 from range(4500, 4600)", 100),
        (f"delete from {table} where p = 1", 0),
        (f"insert overwrite {table} partition (p = 2) select id, 1 from range(5000, 5100)", 100),
        (f"insert overwrite {table} partition (p = 2) select id, 1 from range(5000, 5150)", 50),
    ]:
        spark.sql(statement)
        new.append(rows)
    with spark_settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        spark.sql(f"insert overwrite {table} select id, 1, 2 from range(5000, 5150)")
    new.append(150)
    # A deletion vector's rows are not written again with the block.
    spark.sql(f"alter table {table} set tblproperties ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')")
    spark.sql(f"delete from {table} where p = 2 and id < 5100")
    spark.sql(f"update {table} set k = 2 where p = 2 and id = 5120")
    new += [0, 0]
    recluster(spark, table, depth=1, block_rows=500, final=True)
    history = [entry for entry in clustering_history(spark, table).entries if not entry.is_recluster]
    assert [entry.rows_loaded for entry in history] == new
    assert all(entry.bytes_loaded <= entry.bytes_out for entry in history)


CHANGES = {
    "merge": "merge into {table} t using (select id, int(pmod(hash(id, {number}), 1000)) as k, 0 as p "
    "from range({number} * 1000, {number} * 1000 + 4000)) s on t.id = s.id "
    "when matched then update set * when not matched then insert *",
    "append": LOAD,
    "update": "update {table} set k = pmod(hash(id + {number}), 1000)",
    "delete": "delete from {table} where id % 10 = {number}",
    "overwrite": "insert overwrite {table} select /*+ repartition(4) */ id, int(pmod(hash(id), 1000)), 0 "
    "from range({number}, {number} + 4000)",
}


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("change", CHANGES)
def test_the_replay_drops_blocks_that_a_commit_replaced(spark: Any, schema: str, change: str) -> None:
    """Twin: the same commits on a table that is reclustered after each."""
    options: dict[str, Any] = {"depth": 1, "block_rows": 1000}

    def commits(name: str) -> Iterator[str]:
        table = make(spark, schema, name)
        yield table
        for number in range(1, 5):
            spark.sql(CHANGES[change].format(table=table, number=number))
            yield table

    played = f"{schema}.played"
    first, *later = (recluster(spark, table, **options) for table in commits("played"))
    found = estimate_clustering_cost(spark, played, **options)
    assert found.actual_bytes_per_day == first.bytes_in + sum(done.bytes_in for done in later)
    # A replay counts a row with the bytes that it was loaded with; sorted, it takes fewer.
    loads = [entry for entry in clustering_history(spark, played).entries if entry.is_change]
    loaded = sum(entry.bytes_out for entry in loads) / sum(entry.rows_out for entry in loads)
    spent = loaded * sum(done.rows for done in later)
    assert found.bytes_per_day[0] == pytest.approx(spent, rel=0.2)
    if change != "delete":  # what is rewritten block by block stays as clustered as it was
        *_, forecast = commits("forecast")
        found = estimate_clustering_cost(spark, forecast, **options)
        assert found.actual_bytes_per_day == 0
        assert found.bytes_per_day[0] == pytest.approx(spent, rel=0.2)


LOADS = 6


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    return make_even_table(spark, schema, LOADS)


def reads(weight: float) -> list[dict[str, Any]]:
    return [{"where": f"k = {key}", "weight": weight} for key in (150, 350, 750)]


def threshold(spark: Any, table: str) -> float | None:
    text = ClusteredTable(spark, table, "k").iceberg.properties.get(table_properties.AUTO_DEPTH)
    return None if text is None else json.loads(text)["depth"]


@pytest.mark.parametrize(("given", "depth"), [(reads(1000), 1), (reads(0.001), 16)], ids=["many reads", "few reads"])
def test_many_reads_want_a_low_threshold_and_few_a_high_one(spark: Any, table: str, given: Any, depth: float) -> None:
    done = recluster(spark, table, "k", depth="auto", block_rows=100, reads=given)
    assert threshold(spark, table) == depth
    assert bool(done.rounds) == (depth < LOADS)


def recorded(depth: float, since: str, at: str, rewriting: float = 1) -> str:
    return json.dumps({"depth": depth, "since": since, "at": at, "rewriting": rewriting})


def test_an_automatic_depth_holds_for_a_day(spark: Any, table: str) -> None:
    keyed = ClusteredTable(spark, table, "k")
    keyed.reads.follow(RECLUSTER_OPTIONS["reads"].read("reads", reads(1000)))

    def found(text: str) -> Any:
        spark.sql(f"alter table {table} set tblproperties ('{table_properties.AUTO_DEPTH}' = '{text}')")
        keyed.refresh()
        return auto_depth(keyed)

    assert found(recorded(12, "2026-01-01", "2999-01-01T00:00:00+00:00")).depth == 12
    assert not recluster(spark, keyed, depth="auto", block_rows=100, reads=reads(1000)).rounds
    old = "2020-01-01T00:00:00"
    wrong = ["7", '{"depth": "x"}', '{"depth": 0, "at": 3}']
    for text in (recorded(12, old, old), recorded(12, old, old, -1), *wrong):
        assert found(text).depth == 1, text
    # How much a table rewrites shows after a week under one threshold; until then it counts as recorded.
    assert found(recorded(1.5, old, old, 2)).rewriting == 0.1  # nothing was rewritten in this week
    assert found(recorded(1.5, datetime.now(timezone.utc).isoformat(), old, 2)).rewriting == 2
    # Reads that are forgotten ask for nothing.
    keyed.reads.follow(())
    assert auto_depth(keyed).depth == Policy().depth


def test_a_dry_run_and_an_estimate_record_nothing(spark: Any, table: str) -> None:
    assert planned(spark, table, "k", depth="auto", block_rows=100, reads=reads(1000)).sets
    assert estimate_clustering_cost(spark, table, "k", depth="auto").first_bytes
    report_data(ClusteredTable(spark, table, "k"), ReclusterOptions(depth="auto"))
    assert threshold(spark, table) is None


def balance_of(spark: Any, table: str, weight: float) -> Any:
    keyed = ClusteredTable(spark, table, "k")
    keyed.reads.follow(RECLUSTER_OPTIONS["reads"].read("reads", reads(weight)))
    return CostModel(keyed, Policy()).balance()


@pytest.mark.thorough
def test_the_saved_bytes_are_those_no_longer_opened(spark: Any, table: str, tmp_path: Any) -> None:
    """Twin: the bytes of the blocks whose bounds hold a key of a read, before the recluster and after it."""
    ClusteredTable(spark, table, "k").iceberg.set_property("recluster.option.reads", json.dumps(reads(2)))
    keyed = ClusteredTable(spark, table, "k")
    assert CostModel(keyed, Policy()).balance() is None

    def opened() -> int:
        return sum(2 * opened_bytes(spark, table, key) for key in (150, 350, 750))

    before = opened()
    done = recluster(spark, table, "k", depth=1, block_rows=100)
    saved = (before - opened()) / 2
    found = estimate_clustering_cost(spark, table)
    assert found.actual_bytes_per_day == done.bytes_in
    # It counts rows; blocks of so few rows take up to 7 % fewer bytes for each than those they replace.
    assert found.saved_bytes_per_day == pytest.approx(saved, rel=0.07)
    advice = "a day more than it saves; consider recluster_depth: auto, or no cluster_by"
    assert cost(found.as_dict()).splitlines()[-2].endswith(advice)
    report = clustering_report(spark, table)
    assert report.balance is not None
    assert report.balance.saved == found.saved_bytes_per_day
    write_report([report], tmp_path / "report.html")
    assert "Reclustering: " in (tmp_path / "report.html").read_text()
    # Reads that are asked a thousand times as often pay for it.
    balance = balance_of(spark, table, 2000)
    assert balance.saved == pytest.approx(1000 * found.saved_bytes_per_day, rel=1e-3)
    assert balance.rewritten < balance.saved


def test_a_loss_is_told_only_after_the_first_week(spark: Any, table: str) -> None:
    ClusteredTable(spark, table, "k").iceberg.set_property("recluster.option.reads", json.dumps(reads(0.1)))
    # What a new table's merges cost is no figure of each day to come.
    assert recluster(spark, table, "k", depth=1, block_rows=100).loss is None
    keyed = ClusteredTable(spark, table)
    a_week_on = keyed.snapshots()[0].at + timedelta(days=7)
    assert CostModel(keyed, Policy()).loss() is None
    assert CostModel(keyed, Policy(), a_week_on - timedelta(seconds=1)).loss() is None
    later = CostModel(keyed, Policy(), a_week_on)
    balance = later.balance()
    assert balance is not None
    assert later.loss() == balance.rewritten - balance.saved > 0


@pytest.mark.thorough
def test_rows_that_a_load_replaced_do_not_count_twice(spark: Any, table: str) -> None:
    recluster(spark, table, "k", depth=1, block_rows=100)
    before = balance_of(spark, table, 2).saved
    spark.sql(f"create table {table}_copy using iceberg as select * from {table}")
    spark.sql(f"insert overwrite {table} select /*+ repartition_by_range(10, k) */ * from {table}_copy")
    assert 0 < balance_of(spark, table, 2).saved <= 1.1 * before


def test_a_replaced_table_keeps_its_history(spark: Any, schema: str) -> None:
    """As by a full refresh, or by each build of a table model. The own commits of a branch are not its history."""
    name, source = f"{schema}.t", "select (id * 37) % 400 k from range(0, 400, 1, 1)"
    spark.sql(f"create or replace table {name} using iceberg as {source}")
    text = cost(estimate_clustering_cost(spark, name, "k").as_dict())
    assert "no load of the past seven days besides 1 load that made the table anew" in text
    spark.sql(f"insert into {name} {source}")
    recluster(spark, name, "k", depth=1, block_rows=100)
    spark.sql(f"alter table {name} create branch audit")
    spark.sql(f"insert into {name}.branch_audit {source}")
    loaded = ["overwrite", "append", "recluster"]
    for _ in range(2):
        spark.sql(f"create or replace table {name} using iceberg as {source}")
        loaded.append("overwrite")
    entries = clustering_history(spark, name).entries
    assert [entry.kind for entry in entries] == loaded
    assert entries[-1].write_amplification == 0.5  # of four loads
    overview = table_overview(ClusteredTable(spark, name, "k"), ReclusterOptions())
    assert overview.rewritten_bytes_week == entries[2].bytes_in > 0
    assert overview.loaded_bytes_week == sum(entry.bytes_out for entry in entries if entry.is_change)
    assert report_data(ClusteredTable(spark, name, "k"), ReclusterOptions()).before is None  # of this table alone


def test_a_budget_that_cannot_keep_up_is_said(spark: Any, schema: str) -> None:
    name, told = f"{schema}.t", []
    create_table(spark, name, "k int")
    spark.sql(f"alter table {name} write locally ordered by k")
    for _ in range(7):
        spark.sql(f"insert into {name} select /*+ repartition_by_range(10, k) */ cast(id as int) k from range(1000)")
        result = recluster(spark, name, depth=1.5, block_rows=100, max_bytes=5_000)
        told.append((result.depth_after, "the budget is smaller than what loads add: about " in result.cause))
    assert told[-1][1], told
    assert not told[2][1]
    options = ReclusterOptions(depth=1.5, block_rows=100, max_bytes=5_000)
    overview = table_overview(ClusteredTable(spark, name), options)
    assert overview.verdict == "deep"
    assert re.search(r"; the budget is smaller than what loads add: about \d+\.\d KB a day$", overview.reason)
    assert "budget" not in table_overview(ClusteredTable(spark, name), replace(options, max_bytes=None)).reason
    left = int(re.search(r"budget used; (\d+) blocks left", result.cause)[1])
    planned = Recluster(ClusteredTable(spark, name), replace(options, max_bytes=None, dry_run=True)).run().plan
    assert left == sum(each.blocks for each in planned.sets)


def opened_bytes(spark: Any, table: str, key: int) -> int:
    metadata = ClusteredTable(spark, table, "k").metadata()
    lower, upper = (np.array(column[0].to_pylist()) for column in (metadata.lower, metadata.upper))
    return int(metadata.bytes[(lower <= key) & (key <= upper)].sum())
