"""`recluster_depth: auto`, and what reclustering costs and saves, on real tables."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from dbt_recluster.advice.cost_model import CostModel, auto_depth, recluster_table
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.iceberg import table_properties
from dbt_recluster.maintenance import (
    ClusteredTable,
    clustering_report_data,
    estimate_clustering_cost,
    recluster,
)
from dbt_recluster.planner import Policy
from dbt_recluster.report.html import write_report
from dbt_recluster.report.operation_text import cost

LOADS = 6


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    """Six loads of ten blocks over the same keys."""
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k bigint) using iceberg tblproperties ('write.distribution-mode' = 'none')"
    )
    for _ in range(LOADS):
        spark.range(0, 1000, 1, 10).selectExpr("id as k").writeTo(name).append()
    return name


def reads(weight: float) -> list[dict[str, Any]]:
    return [{"where": f"k = {key}", "weight": weight} for key in (150, 350, 750)]


def threshold(spark: Any, table: str) -> float | None:
    text = ClusteredTable(spark, table, "k").iceberg.properties.get(table_properties.AUTO_DEPTH)
    return None if text is None else json.loads(text)["depth"]


@pytest.mark.parametrize(("weight", "depth"), [(1000, 1.5), (0.001, 16)])
def test_many_reads_want_a_low_threshold_and_few_a_high_one(
    spark: Any, table: str, weight: float, depth: float
) -> None:
    done = recluster(spark, table, "k", depth="auto", block_rows=100, reads=reads(weight))
    assert threshold(spark, table) == depth
    assert bool(done.rounds) == (depth < LOADS)


@pytest.mark.thorough
def test_without_reads_it_is_the_default(spark: Any, table: str) -> None:
    assert recluster(spark, table, "k", depth="auto", block_rows=100).rounds
    assert threshold(spark, table) == Policy().depth


def recorded(depth: float, since: str, at: str, rewriting: float = 1) -> str:
    return json.dumps({"depth": depth, "since": since, "at": at, "rewriting": rewriting})


def test_it_holds_for_a_day(spark: Any, table: str) -> None:
    def record(text: str) -> None:
        spark.sql(f"alter table {table} set tblproperties ('{table_properties.AUTO_DEPTH}' = '{text}')")

    keyed = ClusteredTable(spark, table, "k")
    keyed.reads.follow(ReclusterOptions(reads=reads(1000)).reads)
    record(recorded(12, "2026-01-01", "2999-01-01T00:00:00+00:00"))
    keyed.refresh()
    assert auto_depth(keyed).depth == 12
    options = ReclusterOptions(depth="auto", block_rows=100, reads=reads(1000))
    assert not recluster_table(keyed, options).rounds
    old = "2020-01-01T00:00:00"
    for text in (
        recorded(12, old, old),
        "7",
        '{"depth": "x"}',
        '{"depth": 0, "at": 3}',
        recorded(12, old, old, -1),
    ):
        record(text)
        keyed.refresh()
        assert auto_depth(keyed).depth == 1.5, text
    # How much a table rewrites shows after a week under one threshold; until then it counts as recorded.
    record(recorded(1.5, old, old, 2))
    keyed.refresh()
    assert auto_depth(keyed).rewriting == 0.1  # nothing was rewritten in this week
    record(recorded(1.5, now(), old, 2))
    keyed.refresh()
    assert auto_depth(keyed).rewriting == 2
    # Reads that are forgotten ask for nothing.
    keyed.reads.follow(())
    assert auto_depth(keyed).depth == Policy().depth


def now() -> str:
    return datetime.now(timezone.utc).isoformat()


def test_a_dry_run_and_an_estimate_record_nothing(spark: Any, table: str) -> None:
    planned = recluster(spark, table, "k", depth="auto", block_rows=100, reads=reads(1000), dry_run=True)
    assert planned.plan is not None
    assert planned.plan.sets
    assert estimate_clustering_cost(spark, table, "k", depth="auto").first_bytes
    clustering_report_data(spark, table, "k", depth="auto")
    assert threshold(spark, table) is None


@pytest.mark.thorough
def test_what_reclustering_saved(spark: Any, table: str, tmp_path: Any) -> None:
    """Twin: the bytes of the blocks whose bounds hold a key of a read, before the recluster and after it."""
    spark.sql(
        f"""alter table {table} set tblproperties ('recluster.option.reads' = '{json.dumps(reads(2))}')"""
    )
    keyed = ClusteredTable(spark, table, "k")
    assert CostModel(keyed, Policy()).balance() is None

    def opened() -> int:
        return sum(2 * opened_bytes(spark, table, key) for key in (150, 350, 750))

    before = opened()
    done = recluster(spark, table, "k", depth=1, block_rows=100)
    saved = (before - opened()) / 2
    found = estimate_clustering_cost(spark, table)
    assert found.actual_bytes_per_day == done.bytes_in
    assert found.saved_bytes_per_day == pytest.approx(saved, rel=0.05)
    text = cost(found.as_dict())
    assert "a day not read because of it: it costs" in text
    assert text.splitlines()[-2].endswith(
        "a day more than it saves; consider recluster_depth: auto, or no cluster_by"
    )
    report = clustering_report_data(spark, table)
    assert report.balance is not None
    assert report.balance.saved == found.saved_bytes_per_day
    (page, _) = write_report([report], tmp_path / "report.html")
    assert "Reclustering: " in page.read_text()
    # Reads that are asked a thousand times as often pay for it.
    keyed = ClusteredTable(spark, table)
    keyed.reads.follow(ReclusterOptions(reads=reads(2000)).reads)
    balance = CostModel(keyed, Policy()).balance()
    assert balance is not None
    assert balance.saved == pytest.approx(1000 * found.saved_bytes_per_day, rel=1e-3)
    assert balance.rewritten < balance.saved


def test_a_loss_is_told_only_after_the_first_week(spark: Any, table: str) -> None:
    spark.sql(
        f"""alter table {table} set tblproperties ('recluster.option.reads' = '{json.dumps(reads(0.1))}')"""
    )
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
    def saved() -> int:
        keyed = ClusteredTable(spark, table, "k")
        keyed.reads.follow(ReclusterOptions(reads=reads(2)).reads)
        balance = CostModel(keyed, Policy()).balance()
        assert balance is not None
        return balance.saved

    recluster(spark, table, "k", depth=1, block_rows=100)
    before = saved()
    spark.sql(f"create table {table}_copy using iceberg as select * from {table}")
    spark.sql(f"insert overwrite {table} select /*+ repartition_by_range(10, k) */ k from {table}_copy")
    assert 0 < saved() <= 1.1 * before


def opened_bytes(spark: Any, table: str, key: int) -> int:
    metadata = ClusteredTable(spark, table, "k").metadata()
    lower, upper = (np.array(column[0].to_pylist()) for column in (metadata.lower, metadata.upper))
    return int(metadata.bytes[(lower <= key) & (key <= upper)].sum())
