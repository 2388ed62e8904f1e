"""What people ask before they decide, and afterwards: a key, what it costs, and what has happened to the table."""

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from clustered_models import EVENTS as AUTOMATIC
from operations import EVENTS, PLAIN, Operations, load_once, operate, operate_json
from tables import expire

from dbt_recluster.api import (
    ClusteredTable,
    clustering_history,
    estimate_clustering_cost,
    forget_reads,
    import_reads,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.text import size

SHOPS = """
{{ config(materialized='incremental', block_rows=1000) }}
select id, pmod(hash(id), 1000) as k, pmod(hash(id * 7), 50) as shop, id % 2 = 0 as flag, array(id) as list,
  if(id % 10 = 0, null, concat('v', pmod(hash(id), 1000))) as v
from range({{ var('load', 0) * 5000 }}, {{ var('load', 0) * 5000 + 5000 }}, 1, 5)
"""


class TestSuggestion(Operations):
    LOADS = 2  # of five files each
    MODELS = {"events.sql": SHOPS, "plain.sql": PLAIN}

    def test_whole_queries_by_name_and_their_dissent(self, table: str, spark: Any) -> None:
        queries = {
            "one": f"select * from {table} where shop = 7",
            "two": f"select count(*) from {table} where shop in (3, 4) and id >= 0",
            "three": f"select max(v) from {table} where k = 100",
            **{f"shop {shop}": f"select * from {table} where shop = {shop}" for shop in range(10, 18)},
            "all": f"select count(v) from {table}",
            "broken": "select * from nowhere",
        }
        found = suggest_cluster_by(spark, table, queries, block_rows=500)
        assert found.queries[:3] == ("one", "two", "three")
        best = found.candidates[0]
        assert best.cluster_by[0] == "shop"
        (line,) = found.dissent
        assert line.startswith(f"three opens {best.opened[2]} blocks by {', '.join(best.cluster_by)}, and ")

    def test_queries_without_a_predicate_are_refused_or_left_out(self, table: str, spark: Any) -> None:
        with pytest.raises(PredicateError, match="restricts no column of"):
            suggest_cluster_by(spark, table, [f"select count(*) from {table}"])
        nothing = {"all": f"select count(v) from {table}", "broken": "select * from nowhere"}
        found = suggest_cluster_by(spark, table, nothing, block_rows=500)
        assert found.queries == ()
        assert "give the predicates" in found.advice
        (line,) = found.left_out
        assert line.startswith("broken: a query cannot be planned")
        # The recorded reads count then.
        import_reads(spark, table, queries={"of a dashboard": f"select * from {table} where shop = 7"})
        found = suggest_cluster_by(spark, table, nothing, block_rows=500)
        assert found.queries == ("`shop` = cast('7' as int)",)
        forget_reads(spark, table)

    def test_costs_are_those_of_the_estimate(self, table: str, spark: Any) -> None:
        options = {"depth": 1, "block_rows": 1000}
        found = suggest_cluster_by(spark, table, ["shop = 7", "k = 3"], **options)
        assert found.advice.startswith("By hilbert(k, shop)")
        plain = [each for each in found.candidates if each.cluster_by != ("hilbert(k, shop)",)]
        assert len(plain) == 4  # the boundaries of a curve are those of a sample
        for each in plain:
            cost = estimate_clustering_cost(spark, table, list(each.cluster_by), **options)
            assert (each.first_bytes, each.bytes_per_day) == (cost.first_bytes, cost.bytes_per_day)
            assert each.first_bytes > 0
        (by_id,) = suggest_cluster_by(spark, table, ["id = 7"], **options).candidates
        assert (by_id.first_bytes, by_id.bytes_per_day) == (0, (0, 0))  # loads come in its order

    @pytest.mark.exhaustive
    def test_the_daily_cost_is_unknown_once_the_loads_expired(self, project: Any, table: str, spark: Any) -> None:
        old = f"{project.test_schema}.old"
        spark.sql(f"create table {old} using iceberg as select /*+ repartition(10) */ * from {table}")
        recluster(spark, old, "shop", depth=1, block_rows=1000, final=True)
        expire(spark, old)
        found = suggest_cluster_by(spark, old, ["k = 7"], block_rows=1000).candidates
        assert {each.cluster_by: each.bytes_per_day for each in found} == {("k",): None, ("shop",): None}
        assert "unknown" in operate("suggest_cluster_by", f"{{table: {old}, queries: k = 7}}")

    def test_a_key_is_suggested_without_queries(self, table: str, spark: Any) -> None:
        found = suggest_cluster_by(spark, table, block_rows=1000)
        gains = {", ".join(each.cluster_by): each.gain for each in found.candidates}
        assert gains.keys() == {"id", "k", "shop", "v"}  # no array, no boolean
        assert gains["id"] < 0.1 < 0.5 < gains["k"]  # loads come in the order of id
        assert "give the predicates of your queries" in found.advice

    def test_the_suggestion_says_when_not_to_cluster(self, project: Any, table: str, spark: Any) -> None:
        few = suggest_cluster_by(spark, f"{project.test_schema}.plain")
        told = "Do not cluster it yet: a query opens at most its 1 block"
        assert (few.candidates, few.advice) == ((), told)
        none = suggest_cluster_by(spark, table, ["id = 5000"], block_rows=1000)
        assert none.advice.startswith("Do not cluster it: no key skips")

    def test_the_suggestion_as_text_and_json(self, table: str) -> None:
        log = operate("suggest_cluster_by", "{table: events, queries: 'shop = 7'}")
        assert "by 10,000 sampled rows and 1 query" in log
        assert "By shop (0% of the blocks skipped now" in log
        assert "blocks opened by  now  by shop" in log
        found = operate_json("suggest_cluster_by", "{table: events, queries: ['shop = 7'], format: json}")
        (shop,) = found["candidates"]
        assert shop["cluster_by"] == ["shop"]
        assert shop["first_bytes"] > 0
        row = next(line for line in log.splitlines() if line.split()[:1] == ["shop"])
        assert size(shop["first_bytes"]) in row
        assert size(shop["bytes_per_day"][0]) in row

    def test_a_boolean_column_is_refused_as_a_key(self, table: str) -> None:
        log = operate("suggest_cluster_by", "{table: events, queries: flag}", passes=False)
        assert "no column to cluster by among those that the queries name" in log


class TestCost(Operations):
    LOADS = 6
    MODELS = {
        "events.sql": EVENTS,
        "parts.sql": EVENTS.replace("select id", "select id % 2 as p, id").replace(
            "cluster_by='k'", "cluster_by='k', partition_by='p'"
        ),
    }

    def test_a_first_estimate_counts_every_block(self, project: Any, table: str, spark: Any, sql: Any) -> None:
        size = sql("select sum(file_size_in_bytes) from {schema}.events.files")[0][0]
        found = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        assert (found.average_depth, found.expected_average_depth, found.first_bytes) == (6, 1, size)
        # The one that made the table is no daily load.
        added = "select summary['added-files-size'] from {schema}.events.snapshots order by committed_at"
        assert (found.loads, found.days, found.loaded_bytes_per_day) == (5, 1, size - int(sql(added)[0][0]))
        low, high = found.bytes_per_day
        assert 0 < low <= high
        assert (found.first_seconds, found.actual_bytes_per_day) == (None, 0)
        # loads that arrive in the order of a key need no reclustering by it
        by_id = estimate_clustering_cost(spark, table, "id", depth=1, block_rows=500)
        assert (by_id.first_bytes, by_id.loads, by_id.bytes_per_day) == (0, 5, (0, 0))
        log = operate("estimate_clustering_cost", "{table: parts, cluster_by: id}")
        assert "first clustering  nothing to do, average depth is 1.0" in log
        # partitions never meet
        found = estimate_clustering_cost(spark, f"{project.test_schema}.parts", depth=1, block_rows=500)
        assert (found.average_depth, found.expected_average_depth, found.loads) == (6, 1, 5)
        log = operate("estimate_clustering_cost", "{table: events}")
        assert re.search(
            rf"{table} by k: a query for one key opens [\d.]+ blocks fewer for .* rewritten\n  first clustering ",
            log,
        )
        assert "5 loads in 1 day," in log
        assert "duration          unknown" in log
        assert "in fact           0 bytes a day in that time, by the table's history" in log


class TestHistory(Operations):
    LOADS = 3
    MODELS = {"events.sql": AUTOMATIC.replace("500", "100")}

    def test_the_history_has_loads_and_rounds(self, table: str, spark: Any) -> None:
        kinds = [entry.kind for entry in clustering_history(spark, table).entries]
        assert kinds == ["overwrite", "append", "append", "recluster"]
        recluster(spark, table, final=True, depth=1, block_rows=250)
        load_once(3, "--no-version-check")
        found = clustering_history(spark, table).entries
        first = found[3]
        assert (first.by, first.cluster_by, len(first.levels)) == ("run", "k", 1)
        assert (first.blocks_in, first.rows_in, first.conflicts) == (3, 3000, 0)
        assert first.bytes_in > 0
        assert first.seconds
        assert (first.depth_before, first.write_amplification) == (3, 1)
        rounds = [entry for entry in found if entry.kind == "recluster"]
        assert {entry.by for entry in rounds} <= {"run", "manual"}
        assert all(entry.depth_after is not None for entry in rounds)
        loads = [entry for entry in found if entry.kind != "recluster"]
        assert [(entry.by, entry.blocks_out, entry.rows_out) for entry in loads] == [("spark", 1, 1000)] * 4
        assert rewrite_speed(ClusteredTable(spark, table))

    def test_the_history_as_text_and_json(self, table: str, spark: Any) -> None:
        entries = clustering_history(spark, table).entries
        log = operate("clustering_history", "{table: events}")
        assert "time (UTC)" in log
        entry = next(entry for entry in entries if entry.kind == "recluster")
        assert f"{entry.blocks_in} -> {entry.blocks_out}" in log
        found = operate_json("clustering_history", "{table: events, since: 1 day, format: json}")
        assert found["table"] == table
        assert found["entries"] == [
            {**entry.as_dict(), "levels": list(entry.levels), "snapshot_ids": list(entry.snapshot_ids)}
            for entry in entries
        ]
        assert "no commit since" in operate("clustering_history", "{table: events, since: 2999-01-01}")
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        assert clustering_history(spark, table, later).entries == []

    def test_the_history_keeps_what_expiry_leaves(self, table: str, spark: Any) -> None:
        before = clustering_history(spark, table).entries
        expire(spark, table, keep=2)
        after = clustering_history(spark, table).entries
        assert 0 < len(after) < len(before)
        assert after[-1].snapshot_ids == before[-1].snapshot_ids

    def test_a_table_never_written_has_no_history(self, project: Any, sql: Any, spark: Any) -> None:
        sql("create table {schema}.empty (k int) using iceberg")
        assert clustering_history(spark, f"{project.test_schema}.empty").entries == []
