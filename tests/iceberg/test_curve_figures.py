"""What people see of a table with a curve: held against Iceberg's own planning of each read."""

import json
import re
from typing import Any

import numpy as np
import pytest
from tables import create_table

from dbt_recluster.advice.cost_model import SCAN, THRESHOLDS, auto_depth
from dbt_recluster.api import (
    ClusteredTable,
    blocks_opened,
    clustering_information,
    clustering_reads,
    estimate_clustering_cost,
    recluster,
)
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.report import html, result_text
from dbt_recluster.report.report_data import report_data

pytestmark = pytest.mark.thorough

ROWS, BLOCK_ROWS = 2_000, 100
KEY = "hilbert(customer, day)"
SORTED: dict[str, Any] = {"depth": 1, "block_rows": BLOCK_ROWS, "final": True}


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    """Four loads in four files each, whose rows lie anywhere in two columns; a third is of tenants."""
    name = create_table(spark, f"{schema}.orders", "id bigint, customer int, day date, tenant int")
    for number in range(4):
        load(spark, name, number)
    return name


def load(spark: Any, name: str, number: int) -> None:
    spark.range(number * ROWS, (number + 1) * ROWS).selectExpr(
        "id",
        "pmod(hash(id, 1), 1000) as customer",
        "date_add(date'2026-01-01', cast(pmod(hash(id, 2), 300) as int)) as day",
        "cast(pmod(hash(id, 3), 3) as int) as tenant",
    ).repartition(4).writeTo(name).append()


@pytest.mark.exhaustive
def test_information_is_what_reads_open(spark: Any, table: str) -> None:
    recluster(spark, table, KEY, **SORTED)
    load(spark, table, 4)
    information = clustering_information(spark, table, block_rows=BLOCK_ROWS)
    curve = information["curve"]
    opened = {
        "customer": [blocks_opened(spark, table, f"customer = {value}") for value in range(7, 1_000, 31)],
        "day": [
            blocks_opened(spark, table, f"day = date_add(date'2026-01-01', {value})") for value in range(3, 300, 11)
        ],
    }
    means = {column: float(np.mean(blocks)) for column, blocks in opened.items()}
    assert curve["point_blocks"] == pytest.approx(means, rel=0.1)
    assert curve["box_blocks"] < min(curve["point_blocks"].values())
    assert curve["total_block_count"] == information["total_block_count"]
    recluster(spark, table, **SORTED)
    now = clustering_information(spark, table, block_rows=BLOCK_ROWS)["curve"]
    for column, blocks in now["point_blocks"].items():
        assert blocks <= curve["point_blocks"][column]
        assert curve["sorted_point_blocks"][column] == pytest.approx(blocks, rel=0.3)
    text = result_text.information(clustering_information(spark, table, block_rows=BLOCK_ROWS))
    opens = f"opens {now['point_blocks']['day']:.1f} of {now['total_block_count']} blocks, "
    assert re.search(f"one value of day +{re.escape(opens)}", text)
    assert "curve" not in clustering_information(spark, table, "customer")


def test_reads_of_any_column_of_the_curve_are_measured_and_steer_no_plan(spark: Any, table: str) -> None:
    recluster(spark, table, KEY, **SORTED)
    load(spark, table, 4)
    wheres = ["customer = 17", "customer between 100 and 180", "day >= date'2026-03-03'"]
    wheres += ["day = date'2026-05-05' and customer < 300", "id = 5"]
    IcebergTable.load(spark, table).set_property("recluster.option.reads", json.dumps(wheres))
    keyed = ClusteredTable(spark, table)
    assert keyed.key_reads is None
    information = clustering_reads(spark, keyed)
    *of_curve, other = information.reads
    assert other.blocks is None
    assert [read.blocks for read in of_curve] == [blocks_opened(spark, table, where) for where in wheres[:-1]]
    assert all(0 <= read.blocks_wasted < read.blocks for read in of_curve)
    wasted = information.share_wasted
    assert clustering_information(spark, table)["share_wasted"] == wasted > 0.05
    recluster(spark, table, **SORTED)
    assert clustering_reads(spark, table).share_wasted < wasted
    assert estimate_clustering_cost(spark, table, block_rows=BLOCK_ROWS).saved_bytes_per_day is not None


@pytest.mark.exhaustive
def test_reads_of_leading_columns_steer_plans_as_before(spark: Any, table: str) -> None:
    IcebergTable.load(spark, table).set_property("recluster.option.reads", '["tenant = 1", "customer = 3"]')
    keyed = ClusteredTable(spark, table, f"tenant, {KEY}")
    assert keyed.key_reads is not None
    assert (keyed.key_reads.lower, keyed.key_reads.upper) == ([[1]], [[1]])
    recluster(spark, table, f"tenant, {KEY}", **SORTED)
    opened = [blocks_opened(spark, table, where) for where in ("tenant = 1", "customer = 3")]
    assert [read.blocks for read in clustering_reads(spark, table).reads] == opened
    assert "read_depth" in clustering_information(spark, table)


def test_auto_goes_by_figures_of_a_curve(spark: Any, table: str) -> None:
    recluster(spark, table, KEY, depth=4, block_rows=BLOCK_ROWS)
    depths = []
    for weight in (0.001, 1_000_000):
        keyed = ClusteredTable(spark, table)
        keyed.reads.follow(RECLUSTER_OPTIONS["reads"].read("reads", [{"where": "customer = 17", "weight": weight}]))
        depths.append(auto_depth(keyed).depth)
    assert depths == [THRESHOLDS[len(SCAN[2]) - 1], THRESHOLDS[0]]


def test_a_dry_run_names_the_corners_of_each_set(spark: Any, table: str) -> None:
    """The least and the greatest value of each column."""
    plan = recluster(spark, table, KEY, depth=1, block_rows=BLOCK_ROWS, dry_run=True).plan
    assert plan is not None
    row = spark.sql(f"select min(customer), min(day), max(customer), max(day) from {table}").first()
    assert min(planned.lower for planned in plan.sets) == f"{row[0]}, {row[1]}"
    assert max(planned.upper for planned in plan.sets) == f"{row[2]}, {row[3]}"


@pytest.mark.alike
@pytest.mark.parametrize("key", [KEY, f"tenant, {KEY}"])
def test_the_report_shows_the_curve(spark: Any, table: str, key: str, tmp_path: Any) -> None:
    recluster(spark, table, key, **SORTED)
    data = report_data(ClusteredTable(spark, table), ReclusterOptions(block_rows=BLOCK_ROWS))
    assert data.before is not None
    # One axis: every block of the sorted table has a place of its own on it.
    assert data.before.depth.max() > data.after.depth.max()
    assert bool(data.now.labels) == key.startswith("tenant")
    # Along each column of the curve, blocks are where the least and the greatest values of their rows are.
    assert list(data.on_curve) == ["customer", "day"]
    rows = spark.sql(f"select min(customer) a, max(customer) b from {table} group by input_file_name()")
    ends = [(row.a, row.b) for row in rows.collect()]
    first, last = min(ends)[0], max(end for _, end in ends)
    layout = data.on_curve["customer"]
    places = np.column_stack([layout.lower, layout.upper]) * (last - first) + first
    assert sorted(map(tuple, places.round().astype(int).tolist())) == sorted(ends)
    assert layout.labels[0] == (0.0, str(first))
    html.write_report([data], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Depth along the curve" in page
    assert "one value of customer opens" in page
