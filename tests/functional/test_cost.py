"""estimate_clustering_cost: what the planner expects against what reclustering then really reads."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from dbt.tests.util import run_dbt
from operations import EVENTS, PLAIN, Operations, load_once, operate, operate_json

from dbt_recluster.maintenance import clustering_history, estimate_clustering_cost, recluster


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
        assert (found.first_seconds, found.actual_bytes_per_day) == (None, 0)
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
        assert "in fact           0 bytes a day in that time, by the table's history" in log
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
            ("{table: plain}", "plain has no cluster key: neither the property"),
            ("{table: events, cluster_by: nope}", "there is no column 'nope'"),
            ("{table: events, cluster_by: 3}", "cluster_by must be a string or a list of strings"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("estimate_clustering_cost", arguments, passes=False)


PEOPLE = """
{{ config(materialized='table') }}
select id, pmod(hash(id), 1000) as k, if(id % 4 = 0, {{ var('load', 0) }}, 0) as v
from range(1000 + 100 * {{ var('load', 0) }})
"""
MERGED = """
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', cluster_by='k', block_rows=500) }}
select * from {{ ref('people') }}
"""
HISTORY = """
{% snapshot people_history %}
{{ config(unique_key='id', strategy='check', check_cols=['v'], target_schema=schema, cluster_by='k') }}
select * from {{ ref('people') }}
{% endsnapshot %}
"""


class TestCopyOnWrite:
    """Merges and snapshots of dbt write a whole file again for each row of it that has changed."""

    LOADS = 3

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"people.sql": PEOPLE, "merged.sql": MERGED}

    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {"people_history.sql": HISTORY}

    @pytest.mark.thorough
    def test_rows_written_again_are_not_loaded(self, project: Any, spark: Any) -> None:
        rows: dict[str, list[int]] = {"merged": [], "people_history": []}
        for load in range(self.LOADS):
            load_once(load)
            run_dbt(["snapshot"])
            for name, counts in rows.items():
                counts.append(spark.table(f"{project.test_schema}.{name}").count())
        assert rows["merged"] == [1000, 1100, 1200]
        for name, counts in rows.items():
            table = f"{project.test_schema}.{name}"
            history = clustering_history(spark, table)
            new = [counts[0], *(after - before for before, after in pairwise(counts))]
            assert [entry.rows_loaded for entry in history] == new
            assert sum(entry.rows_out for entry in history) > 2 * sum(new)
            found = estimate_clustering_cost(spark, table)
            total = spark.table(f"{table}.files").agg({"file_size_in_bytes": "sum"}).first()[0]
            assert 0.5 * total < found.loaded_bytes_per_day < 1.5 * total
            # Each of them leaves one block, which is never too deep.
            assert (found.loads, found.bytes_per_day, found.actual_bytes_per_day) == (self.LOADS, (0, 0), 0)
