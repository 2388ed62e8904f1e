"""suggest_cluster_by: on a table whose best key is known."""

from __future__ import annotations

from typing import Any

import pytest
from operations import PLAIN, Operations, operate, operate_json

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.maintenance import (
    estimate_clustering_cost,
    forget_reads,
    import_reads,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.text import size

EVENTS = """
{{ config(materialized='incremental', block_rows=1000) }}
select id, pmod(hash(id), 1000) as k, pmod(hash(id * 7), 50) as shop, id % 2 = 0 as flag, array(id) as list,
  if(id % 10 = 0, null, concat('v', pmod(hash(id), 1000))) as v
from range({{ var('load', 0) * 5000 }}, {{ var('load', 0) * 5000 + 5000 }}, 1, 5)
"""


class TestSuggestion(Operations):
    LOADS = 2  # of five files each
    MODELS = {"events.sql": EVENTS, "plain.sql": PLAIN}

    def test_for_queries(self, project: Any, table: str, spark: Any) -> None:
        queries = ["shop = 7", "shop in (3, 4)", "k between 100 and 120"]
        found = suggest_cluster_by(spark, table, queries, block_rows=1000)
        assert {each.cluster_by for each in found.candidates} == {
            ("shop",),
            ("k",),
            ("shop", "k"),
            ("k", "shop"),
            ("hilbert(k, shop)",),
        }
        # Each of them opens a part of the blocks on a curve.
        assert found.candidates[0].cluster_by == ("hilbert(k, shop)",)
        assert found.advice.startswith("By hilbert(k, shop)")
        assert max(found.candidates[0].opened) < found.candidates[0].blocks
        assert found.candidates[0].skipped_now == 0
        by_key = {each.cluster_by: each.skipped_then for each in found.candidates}
        # By one column the queries for the other still open every block.
        assert by_key["k",] < 0.4 < by_key["shop",] < 0.7
        assert found.opened == (found.blocks,) * 3
        opened = {each.cluster_by: each.opened for each in found.candidates}
        blocks = {each.cluster_by: each.blocks for each in found.candidates}
        assert opened["shop",][0] <= opened["shop",][1] < opened["shop",][2] == blocks["shop",]
        assert opened["k",][2] < opened["k",][0] == blocks["k",]

    def test_whole_queries_by_name_and_their_dissent(self, project: Any, table: str, spark: Any) -> None:
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

    def test_queries_that_restrict_nothing(self, project: Any, table: str, spark: Any) -> None:
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
        assert suggest_cluster_by(spark, table, nothing, block_rows=500).queries == (
            "`shop` = cast('7' as int)",
        )
        forget_reads(spark, table)

    def test_costs_are_those_of_the_estimate(self, project: Any, table: str, spark: Any) -> None:
        options = {"depth": 1, "block_rows": 1000}
        found = suggest_cluster_by(spark, table, ["shop = 7 and k = 3"], **options)
        assert len(found.candidates) == 5
        for each in found.candidates:
            if each.cluster_by == ("hilbert(k, shop)",):  # its boundaries are those of a sample
                continue
            cost = estimate_clustering_cost(spark, table, list(each.cluster_by), **options)
            assert (each.first_bytes, each.bytes_per_day) == (cost.first_bytes, cost.bytes_per_day)
            assert each.first_bytes > 0
        (by_id,) = suggest_cluster_by(spark, table, ["id = 7"], **options).candidates
        assert (by_id.first_bytes, by_id.bytes_per_day) == (0, (0, 0))  # loads come in its order

    @pytest.mark.exhaustive
    def test_where_no_load_is_known(self, project: Any, table: str, spark: Any) -> None:
        old = f"{project.test_schema}.old"
        spark.sql(f"create table {old} using iceberg as select /*+ repartition(10) */ * from {table}")
        recluster(spark, old, "shop", depth=1, block_rows=1000, final=True)
        spark.sql(
            f"call spark_catalog.system.expire_snapshots(table => '{old}', older_than => timestamp '2999-01-01')"
        )
        found = suggest_cluster_by(spark, old, ["k = 7"], block_rows=1000).candidates
        assert {each.cluster_by: each.bytes_per_day for each in found} == {("k",): None, ("shop",): None}
        assert "unknown" in operate("suggest_cluster_by", f"{{table: {old}, queries: k = 7}}")

    def test_without_queries(self, project: Any, table: str, spark: Any) -> None:
        found = suggest_cluster_by(spark, table, block_rows=1000)
        keys = {each.cluster_by for each in found.candidates}
        assert keys == {("id",), ("k",), ("shop",), ("v",)}  # no array, no boolean
        by_key = {each.cluster_by: each for each in found.candidates}
        assert by_key["id",].gain < 0.1  # loads come in its order
        assert by_key["k",].gain > 0.5
        assert "give the predicates of your queries" in found.advice

    def test_when_not_to_cluster(self, project: Any, table: str, spark: Any) -> None:
        few = suggest_cluster_by(spark, f"{project.test_schema}.plain")
        assert (few.candidates, few.advice) == (
            (),
            "Do not cluster it yet: a query opens at most its 1 block",
        )
        none = suggest_cluster_by(spark, table, ["id = 5000"], block_rows=1000)
        assert none.advice.startswith("Do not cluster it: no key skips")

    def test_for_people_and_programs(self, project: Any, table: str) -> None:
        log = operate("suggest_cluster_by", "{table: events, queries: 'shop = 7'}")
        assert "by 10,000 sampled rows and 1 query" in log
        assert "By shop (0% of the blocks skipped now" in log
        found = operate_json("suggest_cluster_by", "{table: events, queries: ['shop = 7'], format: json}")
        (shop,) = found["candidates"]
        assert shop["cluster_by"] == ["shop"]
        assert shop["first_bytes"] > 0
        assert len(shop["bytes_per_day"]) == 2
        assert "blocks opened by  now  by shop" in log
        row = next(line for line in log.splitlines() if line.split()[:1] == ["shop"])
        assert size(shop["first_bytes"]) in row
        assert f"{size(shop['bytes_per_day'][0])} to {size(shop['bytes_per_day'][1])}" in row or (
            size(shop["bytes_per_day"][0]) in row
        )

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{}", "needs a table"),
            ("{table: events, queries: nope = 1}", "'nope = 1' cannot choose blocks"),
            ("{table: events, queries: flag}", "no column to cluster by among those that the queries name"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("suggest_cluster_by", arguments, passes=False)
