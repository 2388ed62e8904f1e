"""``cluster_by: auto``, from a model's config to its table."""

import json
from typing import Any

from clustered_models import Clustering
from operations import operate, operate_json

from dbt_recluster.iceberg.table_properties import AUTO_KEY

# Loads come in the order of `id`; every block has all values of the other columns.
QUERY = """
select id, pmod(hash(id), 1000) as k, pmod(hash(id * 7), 500) as shop
from range({{ var('first', 0) }}, {{ var('first', 0) + var('rows', 1000) }}, 1, 5)
"""


def reads(column: str) -> list[dict[str, Any]]:
    return [{"where": f"{column} = {value}", "weight": 1000} for value in (7, 100, 333)]


class TestAutoKey(Clustering):
    MODELS = {"other.sql": "select 1 as id"}

    def test_the_whole_way(self, project: Any, sql: Any, run: Any) -> None:
        first = 0

        def load(rows: int, column: str = "", *flags: str, cluster_by: Any = "auto") -> str:
            nonlocal first
            given = {"recluster_reads": reads(column)} if column else {}
            words = ("--vars", json.dumps({"first": first, "rows": rows}), *flags)
            first += rows
            return str(run("events", QUERY, *words, cluster_by=cluster_by, block_rows=500, **given))

        # Too small, and no reads known; then too small alone.
        assert "no key yet: 5 blocks, no reads known" in load(1000)
        assert "no key yet: 10 blocks, fewer than 8 full ones" in load(1000, "k")
        assert self.order(sql, "events") == ""
        assert "no key yet: 10 blocks, fewer than 8 full ones" in operate("clustering_information", "{table: events}")
        (line,) = operate_json("clustering_overview", "{table: events, format: json}")["tables"]
        assert (line["verdict"], line["cause"]) == ("unclustered", "no key yet: 10 blocks, fewer than 8 full ones")
        # Large enough: chosen and reclustered in that run.
        message = load(3000, "k")
        assert "auto chose k: " in message
        assert "15 blocks into 11" in message
        assert self.order(sql, "events") == "k ASC NULLS FIRST"
        # Other reads: not before the rows have doubled, and then once.
        assert "auto" not in load(1000, "shop")
        assert "auto chose shop: " in load(9000, "shop")
        assert "auto" not in load(1000, "k")
        assert self.order(sql, "events") == "shop ASC NULLS FIRST"
        suggestion = operate("suggest_cluster_by", "{table: events}")
        assert "cluster_by: auto keeps shop: neither its rows nor the reads" in suggestion
        history = operate("clustering_history", "{table: events}")
        assert history.count(" auto chose ") == 2
        # The key survives a rebuild, and its table is sorted by it.
        recorded = self.properties(sql, "events")[AUTO_KEY]
        first = 0
        load(6000, "k", "--full-refresh")
        assert self.order(sql, "events") == "shop ASC NULLS FIRST"
        assert self.properties(sql, "events")[AUTO_KEY] == recorded
        # A fixed key ends it.
        load(1000, "k", cluster_by=["k"])
        assert self.order(sql, "events") == "k ASC NULLS FIRST"
        assert AUTO_KEY not in self.properties(sql, "events")
