"""Clustering through dbt, as users meet it."""

import json
from pathlib import Path
from typing import Any

import pytest
from clustered_models import EVENTS, Clustering, config, days, microbatch, models_of, run_load, snapshot
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from merges import rows_by_file


class TestLoads(Clustering):
    MODELS = {"events.sql": EVENTS, "plain.sql": "{{ config(materialized='incremental') }} select 1 as id"}

    def test_a_table_stays_clustered(self, project: Any, sql: Any, spark: Any) -> None:
        reclustered = 0
        for load in range(6):
            (result,), log = run_load(load, "--select", "events")
            response = result.adapter_response
            if response["blocks_rewritten"]:
                reclustered += 1
                assert f", {response['blocks_rewritten']} blocks into" in log
                assert response["_message"] in log
            assert response["average_depth"] == self.depth(project, spark, "events") <= 4
            assert sql("select count(*), count(distinct id) from {schema}.events")[0][:] == (1000 * (load + 1),) * 2
        assert reclustered >= 1
        stored = json.loads((Path(project.project_root) / "target" / "run_results.json").read_text())
        assert isinstance(stored["results"][0]["adapter_response"]["average_depth"], float)
        assert self.order(sql, "events") == "k ASC NULLS FIRST"

    def test_a_full_refresh_is_as_a_first_build_and_later_runs_alter_nothing(self, project: Any, sql: Any) -> None:
        _, first = run_load(3, "--full-refresh", "--log-level", "debug")
        assert first.count("alter table") == 1
        assert f"alter table {project.test_schema}.events write ordered by `k`" in first
        assert "order by `k`" in first
        assert self.order(sql, "events") == "k ASC NULLS FIRST"
        assert sql("select count(*) from {schema}.events")[0][0] == 1000
        _, second = run_load(4, "--log-level", "debug")
        assert "alter table" not in second
        plain = [line for line in second.splitlines() if "plain" in line]
        assert not any("tblproperties" in line or "describe query" in line for line in plain)


class TestMaterializations(Clustering):
    """table, incremental by merge and by insert_overwrite, snapshot and seed: each twice, and each keeps its order."""

    MODELS = models_of(
        "select id, pmod(hash(id), 50) as k, id % 3 as p from range(300)",
        a_table={"materialized": "table", "cluster_by": ["k", "id"], "file_format": "ICEBERG"},
        merged={"incremental_strategy": "merge", "unique_key": "id", "cluster_by": "k"},
        overwritten={"incremental_strategy": "insert_overwrite", "partition_by": "p", "cluster_by": "k"},
        unsorted={"cluster_by": "k", "sort_on_load": False},
        replaced={"materialized": "table"},
    ) | models_of("select {{ var('n', 0) }} as n", "view", a_view={})
    SNAPSHOTS = {
        **snapshot("history", "a_table", ["k"], cluster_by="dbt_valid_from"),
        **snapshot("curved", "a_table", ["k"], cluster_by="hilbert(dbt_valid_from, id)"),
    }
    SEEDS = days("hilbert(months(day), name)")
    ORDERS = {
        "a_table": "k ASC NULLS FIRST, id ASC NULLS FIRST",
        **dict.fromkeys(("merged", "overwritten", "unsorted"), "k ASC NULLS FIRST"),
        "history": "dbt_valid_from ASC NULLS FIRST",
    }
    CURVES = {"curved": "hilbert(dbt_valid_from, id)", "days": "hilbert(months(day), name)"}

    def test_every_materialization_keeps_its_rows_and_order(self, project: Any, sql: Any) -> None:
        snapshots: list[int] = []
        for attempt in range(2):
            run_dbt(["build", "--vars", f"n: {attempt}"])
            assert {name: self.order(sql, name) for name in self.ORDERS} == self.ORDERS
            keys = {name: self.properties(sql, name)["recluster.cluster_by"] for name in self.CURVES}
            assert keys == self.CURVES
            for name in ("merged", "overwritten", "history", "curved"):
                assert sql(f"select count(*) from {{schema}}.{name}")[0][0] == 300
            assert sql("select n from {schema}.a_view")[0][0] == attempt
            rows = sql("select cast(day as string), name from {schema}.days order by day")
            assert [tuple(row) for row in rows] == [
                ("2026-01-01", None),
                ("2026-01-02", "100%"),
                ("2026-01-03", "it's"),
            ]
            # create or replace, not drop and create: the first snapshot is still there
            history = sql("select snapshot_id from {schema}.a_table.snapshots order by committed_at")
            assert [row[0] for row in history][: len(snapshots)] == snapshots
            snapshots = [row[0] for row in history]
            if attempt == 0:
                sql("alter table {schema}.replaced write ordered by id desc nulls last")
        assert len(snapshots) >= 2
        assert self.order(sql, "replaced") == "id DESC NULLS LAST"  # set by hand, and kept
        properties = self.properties(sql, "unsorted")
        assert properties["write.distribution-mode"] == "none"
        assert properties["write.metadata.metrics.column.k"] == "full"

    def test_a_load_arrives_sorted(self, project: Any, spark: Any) -> None:
        for rows in rows_by_file(spark, f"{project.test_schema}.a_table", "k, id").values():
            assert rows == sorted(rows)


class TestSwitches(Clustering):
    MODELS = {"events.sql": EVENTS.replace("recluster_depth=2", "recluster_depth=1")}

    def test_clustering_can_be_turned_off_for_one_run(
        self, project: Any, monkeypatch: pytest.MonkeyPatch, spark: Any
    ) -> None:
        for load in range(3):
            results, _ = run_load(load, "--vars", json.dumps({"load": load, "automatic_clustering": False}))
            assert "blocks_rewritten" not in results[0].adapter_response
        assert self.depth(project, spark, "events") == 3
        monkeypatch.setenv("DBT_RECLUSTER_AUTOMATIC_CLUSTERING", "false")
        results, _ = run_load(3)
        assert "blocks_rewritten" not in results[0].adapter_response
        monkeypatch.delenv("DBT_RECLUSTER_AUTOMATIC_CLUSTERING")
        results = run_dbt(["run", "--empty", "--vars", '{"load": 4}'])
        assert "blocks_rewritten" not in results[0].adapter_response
        assert self.depth(project, spark, "events") == 5
        results, _ = run_load(5)
        assert results[0].adapter_response["blocks_rewritten"] > 0


class TestFailureAfterTheBuild(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """A hook after the load sends later files to where none can be written."""
        hook = "alter table {{ this }} set tblproperties ('write.data.path' = 'file:/dev/null/nowhere')"
        more = f'recluster_depth=1, block_rows=100, sort_on_load=false, post_hook="{hook}"'
        return {
            "events.sql": EVENTS.replace("block_rows=500, recluster_depth=2", more).replace(
                "select id", "select /*+ repartition(2) */ id"
            ),
            "after.sql": "select * from {{ ref('events') }}",
        }

    def test_a_recluster_that_fails_after_the_build_is_a_warning(self, project: Any, sql: Any) -> None:
        _, log = run_load(0)
        assert "events was built but not reclustered: " in log
        assert sql("select count(*) from {schema}.after")[0][0] == 1000


class TestOneAlias(Clustering):
    """Threads share a session, and dbt-spark's temporary view has the name of the table alone."""

    MODELS = models_of(
        "select '{{ model.name }}' as country, id from range(9)",
        **{name: {"schema": name, "alias": "orders", "cluster_by": "id"} for name in ("de", "fr")},
    )

    def test_tables_of_one_name_get_their_own_rows(self, project: Any, sql: Any) -> None:
        for _ in range(3):
            run_dbt(["run", "--threads", "2"])
        for name in ("de", "fr"):
            assert sql(f"select country, count(*) from {{schema}}_{name}.orders group by 1") == [(name, 27)]
            sql(f"drop schema {{schema}}_{name} cascade")


class TestMicrobatch(Clustering):
    """Batches are reclustered once, after the last one."""

    MODELS = microbatch()
    TIMES = ("--event-time-start", "2026-01-01", "--event-time-end", "2026-01-04")

    def test_microbatches_are_reclustered_once_after_the_last(self, project: Any, sql: Any) -> None:
        for _ in range(2):
            _, log = run_dbt_and_capture(["--log-level", "debug", "run", *self.TIMES])
            assert log.count("batches: nothing to do") == 1
            assert log.count("show tblproperties") == 3
            assert sql("select count(*), count(distinct id) from {schema}.batches")[0][:] == (720, 720)
        assert self.order(sql, "batches") == "k ASC NULLS FIRST"

    def test_a_wrong_key_fails_in_the_metrics(self, project: Any, tmp_path: Path) -> None:
        """dbt refuses the model before it has macros."""
        file, batches = tmp_path / "default.prom", self.MODELS["batches.sql"]
        values = {"recluster_metrics_file": str(tmp_path / "{{ target.name }}.prom")}
        command = ["run", *self.TIMES, "--vars", json.dumps(values)]
        for key, passes, verdict in (("'k'", True, "well clustered"), ("'bucket(3, k)'", False, "failing")):
            write_file(batches.replace("'k'", key), project.project_root, "models", "batches.sql")
            run_dbt(command, expect_pass=passes)
            assert f'batches",verdict="{verdict}"}} 1.0' in file.read_text()
        write_file(batches, project.project_root, "models", "batches.sql")

    def test_the_last_batch_of_a_sample_and_of_a_retry(self, project: Any, sql: Any) -> None:
        def built(*command: str, passes: bool = True) -> int:
            _, log = run_dbt_and_capture(["--log-level", "debug", *command], expect_pass=passes)
            return int(log.count("tried: nothing to do"))

        batches = self.MODELS["batches.sql"] + " where {{ var('works', 'true') }}"
        write_file(batches, project.project_root, "models", "tried.sql")
        assert built("run", "--select", "raw", "tried", "--sample", "{'start': '2026-01-01', 'end': '2026-01-03'}") == 1
        late = "{works: \"day(at) != 2 or raise_error('late') is null\"}"
        assert built("run", "--full-refresh", "--select", "tried", *self.TIMES, "--vars", late, passes=False) == 1
        assert built("retry", "--vars", "{works: 'true'}") == 1
        assert sql("select count(*), count(distinct id) from {schema}.tried")[0][:] == (720, 720)

    def test_a_wrong_option_is_an_error_of_the_model(self, project: Any, sql: Any) -> None:
        """In a batch, dbt reports any error as unhandled, and that of the model is only ERROR."""
        wrong = {"meta": {"recluster": {"depth": "deep"}}}
        batches = {"incremental_strategy": "microbatch", "event_time": "at", "batch_size": "day"}
        text = config(materialized="incremental", begin="2026-01-01", **batches, **wrong)
        write_file(f"{text} select * from {{{{ ref('raw') }}}}", project.project_root, "models", "wrong.sql")
        command = ["run", "--select", "wrong", *self.TIMES]
        (result,), log = run_dbt_and_capture(command, expect_pass=False)
        assert "Configuration Error in model wrong (models/wrong.sql)" in result.message
        assert "meta.recluster.depth must be a number of at least 1" in result.message
        assert "Unhandled error" not in log
        assert log.count("meta.recluster.depth must be a number") == 1
        assert not [row for row in sql("show tables in {schema}") if row.tableName == "wrong"]
        run_dbt(["compile", "--select", "wrong"])
