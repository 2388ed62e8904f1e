"""``cluster_by: auto``, from a model's config to its table."""

import json
from typing import Any

from clustered_models import Clustering, config, days, snapshot
from dbt.tests.util import run_dbt
from operations import operate, operate_json

from dbt_recluster.api import clustering_history, recluster
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CLUSTER_BY

# Loads come in the order of `id`; every block has all values of the other columns.
QUERY = """
select id, pmod(hash(id), 1000) as k, pmod(hash(id * 7), 500) as shop
from range({{ var('first', 0) }}, {{ var('first', 0) + var('rows', 1000) }}, 1, 5)
"""


def reads(column: str) -> list[dict[str, Any]]:
    return [{"where": f"{column} = {value}", "weight": 1000} for value in (7, 100, 333)]


class TestAutoKey(Clustering):
    MODELS = {"other.sql": config(materialized="table") + "select id, 'x' as auto from range(10)"}
    SEEDS = days("auto")
    SNAPSHOTS = snapshot("history", "other", ["auto"], cluster_by="auto")

    def test_a_key_is_chosen_once_the_table_is_large_and_read(self, project: Any, sql: Any, run: Any) -> None:
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
        # Without its sort order, the key is the one that is recorded.
        sql("alter table {schema}.events write unordered")
        (line,) = operate_json("clustering_overview", "{table: events, format: json}")["tables"]
        assert (line["verdict"], line["cluster_key"]) == ("well clustered", "shop")
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

    def test_a_table_is_rebuilt_by_its_key_and_needs_no_project(
        self, project: Any, sql: Any, run: Any, spark: Any
    ) -> None:
        name, words = f"{project.test_schema}.made", ("--vars", '{"rows": 6000}')
        made = {"materialized": "table", "cluster_by": "auto", "block_rows": 500, "recluster_reads": reads("k")}
        run("made", QUERY, *words, **made, automatic_clustering=False)
        assert self.order(sql, "made") == ""
        planned = recluster(spark, name, dry_run=True)
        assert (planned.cluster_key, len(planned.plan.sets)) == ("k", 1)
        assert planned.purpose.startswith("auto chose k: 30 days of the known reads open ")
        assert self.properties(sql, "made")[AUTO_KEY] == "{}"
        result = recluster(spark, name)
        assert (result.cluster_key, len(result.rounds)) == ("k", 1)
        assert self.order(sql, "made") == "k ASC NULLS FIRST"
        recorded = self.properties(sql, "made")[AUTO_KEY]
        # Each rebuild is sorted by it, and asks nothing.
        assert run("made", QUERY, *words, **made) == "OK (depth 1.0, at most 4)"
        assert self.order(sql, "made") == "k ASC NULLS FIRST"
        assert self.properties(sql, "made")[AUTO_KEY] == recorded
        information = operate_json("clustering_information", "{table: made, format: json}")
        assert information["cluster_key"] == "k"
        assert information["options"]["cluster_by"] == {"name": "cluster_by", "value": "auto", "origin": "model"}
        (chosen,) = [entry for entry in clustering_history(spark, name).entries if entry.kind == "key"]
        assert (chosen.cluster_by, chosen.reads) == ("k", 3000)
        assert chosen.saved_bytes > 1.5 * chosen.key_bytes > 0
        # A column that is gone leaves no key, and another one is chosen in that run.
        gone = QUERY.replace(" as k,", " as q,")
        assert "auto chose q: " in run("made", gone, *words, **{**made, "recluster_reads": reads("q")})
        run("made", gone, *words, **{**made, "cluster_by": []})
        assert self.order(sql, "made") == ""
        assert not self.properties(sql, "made").keys() & {AUTO_KEY, CLUSTER_BY}

    def test_a_choice_that_waits_and_columns_that_are_gone(self, project: Any, sql: Any, run: Any) -> None:
        given: dict[str, Any] = {"cluster_by": "auto", "block_rows": 500, "on_schema_change": "sync_all_columns"}
        words = ("--vars", '{"rows": 6000}')
        message = run("waiting", QUERY, *words, "--warn-error", passes=False, **given, recluster_reads=["nope = 3"])
        assert "reads: left out, 'nope = 3'" in message
        chose = run("waiting", QUERY, *words, **given, recluster_reads=reads("shop"), recluster_after={"commits": 9})
        assert "above 4; auto chose shop: " in chose
        assert chose.endswith("next recluster after 7 more commits)")
        # A dropped column takes its key along; a new one is chosen at once.
        gone = QUERY.replace(", pmod(hash(id * 7), 500) as shop", "")
        assert "auto chose k: " in run("waiting", gone, *words, **given, recluster_reads=reads("k"))
        assert self.order(sql, "waiting") == "k ASC NULLS FIRST"

    def test_seeds_snapshots_columns_of_that_name_and_wrong_uses(self, project: Any, sql: Any, run: Any) -> None:
        results = [*run_dbt(["seed"]), *run_dbt(["build", "--select", "other", "history"])]
        messages = {result.node.name: str(result.message) for result in results}
        assert all("no key yet: " in messages[name] for name in ("days", "history"))
        query = "select id, 'x' as auto from range(10)"
        run("column", query, cluster_by=["auto"])
        assert self.order(sql, "column") == "auto ASC NULLS FIRST"
        refused = "cluster_by: auto is a model's, and stays with its table"
        assert refused in operate("recluster", "{table: column, cluster_by: auto}", passes=False)
        # By a hook; another key is the model's to set.
        hooked = {
            "cluster_by": "auto",
            "block_rows": 500,
            "recluster_reads": reads("k"),
            "post_hook": "{{ recluster() }}",
        }
        assert "auto chose k: " in run("hooked", QUERY, "--vars", '{"rows": 6000}', **hooked)
        assert self.order(sql, "hooked") == "k ASC NULLS FIRST"
        message = operate("recluster", "{table: hooked, cluster_by: id}", passes=False)
        assert "has cluster_by auto; change it there instead of naming id here" in message
