"""estimate_clustering_cost: what the planner expects against what reclustering then really reads."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from operations import EVENTS, PLAIN, Operations, operate, operate_json

from dbt_recluster.maintenance import estimate_clustering_cost, recluster


class TestCost(Operations):
    LOADS = 6

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        by_part = EVENTS.replace("select id", "select id % 2 as p, id").replace(
            "cluster_by='k'", "cluster_by='k', partition_by='p'"
        )
        return {"events.sql": EVENTS, "parts.sql": by_part, "plain.sql": PLAIN}

    def test_before_the_first_clustering(self, project: Any, table: str, spark: Any, sql: Any) -> None:
        size = sql("select sum(file_size_in_bytes) from {schema}.events.files")[0][0]
        found = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        assert (found.depth, found.expected_depth, found.first_bytes) == (6, 1, size)
        assert (found.loads, found.days) == (6, 1)
        assert found.loaded_bytes_per_day == size
        low, high = found.bytes_per_day
        assert 0 < low <= high
        assert (found.first_seconds, found.actual_bytes_per_day) == (None, None)
        # loads that arrive in the order of a key need no reclustering by it
        by_id = estimate_clustering_cost(spark, table, "id", depth=1, block_rows=500)
        assert (by_id.first_bytes, by_id.loads, by_id.bytes_per_day) == (0, 6, (0, 0))

    def test_partitions_never_meet(self, project: Any, spark: Any) -> None:
        found = estimate_clustering_cost(spark, f"{project.test_schema}.parts", depth=1, block_rows=500)
        assert (found.depth, found.expected_depth, found.loads) == (6, 1, 6)

    def test_for_people_and_programs(self, project: Any, table: str) -> None:
        log = operate("estimate_clustering_cost", "{table: events}")
        assert f"{table} by k\n  first clustering " in log
        assert "6 loads in 1 day," in log
        assert "duration          unknown" in log
        found = operate_json("estimate_clustering_cost", "{table: events, cluster_by: v, format: json}")
        assert (found["table"], found["cluster_key"]) == (table, "v")

    def test_afterwards(self, project: Any, table: str, spark: Any) -> None:
        expected = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        report = recluster(spark, table, depth=1, block_rows=500, final=True)
        assert report.bytes_in == expected.first_bytes
        found = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        assert found.first_bytes == 0
        assert found.actual_bytes_per_day == report.bytes_in
        assert found.seconds_per_day is not None
        later = datetime.now(timezone.utc) + timedelta(days=8)
        assert estimate_clustering_cost(spark, table, now=later).loads == 0
        log = operate("estimate_clustering_cost", "{table: events}")
        assert "first clustering  nothing to do, average depth is 1.0" in log
        assert "in fact " in log

    @pytest.mark.exhaustive
    def test_a_week_that_is_played_through_comes_true(self, project: Any, spark: Any) -> None:
        """Loads of which the first are clustered and then forgotten, each of the others reclustered once."""
        name = f"{project.test_schema}.played"
        spark.sql(f"create table {name} (id bigint, k int) using iceberg")
        spark.sql(f"alter table {name} write locally ordered by k")

        def load(number: int) -> None:
            spark.sql(
                f"insert into {name} select /*+ repartition(2) */ id, cast(rand({number}) * 1000 as int) "
                f"from range({number * 1000}, {number * 1000 + 1000})"
            )

        for number in range(4):
            load(number)
        recluster(spark, name, depth=2, block_rows=500, final=True)
        expire = (
            "call spark_catalog.system.expire_snapshots(table => '{}', older_than => timestamp '2999-01-01')"
        )
        spark.sql(expire.format(name))
        spent = 0
        for number in range(4, 10):
            load(number)
            spent += recluster(spark, name, depth=2, block_rows=500).bytes_in
        found = estimate_clustering_cost(spark, name, depth=2, block_rows=500)
        assert found.loads == 6
        low, high = found.bytes_per_day
        assert 0 < low <= high
        assert low == pytest.approx(spent, rel=0.25)
        assert found.actual_bytes_per_day == pytest.approx(
            spent, rel=0.6
        )  # the first clustering is in the window

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: no.table}", "no.table cannot be loaded"),
            ("{table: plain}", "plain has no sort order; name a cluster key"),
            ("{table: events, cluster_by: nope}", "there is no column 'nope'"),
            ("{table: events, cluster_by: 3}", "cluster_by must be a string or a list of strings"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("estimate_clustering_cost", arguments, passes=False)
