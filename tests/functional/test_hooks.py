"""`{{ recluster() }}` as a post_hook: it reclusters the model's table then and there, and nobody does so again."""

import json
from pathlib import Path
from typing import Any

import pytest
from clustered_models import Clustering, config, microbatch, models_of, snapshot
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

from dbt_recluster.api import clustering_history, recluster

ROWS = (
    "select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k, concat('v', id) as v "
    "from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})"
)
KEYED = {"materialized": "incremental", "cluster_by": "k", "recluster_depth": 1, "block_rows": 100}


class Hooked(Clustering):
    """Projects of models whose table is reclustered by a hook."""

    @pytest.fixture
    def rounds(self, project: Any, spark: Any) -> Any:
        """Returns the rounds of reclustering of a table."""

        def rounds(name: str) -> list[Any]:
            table = f"{project.test_schema}.{name}"
            spark.sql(f"refresh table {table}")
            return [entry for entry in clustering_history(spark, table).entries if entry.is_recluster]

        return rounds

    @staticmethod
    def write(project: Any, name: str, hook: Any, query: str = ROWS, **items: Any) -> None:
        text = config(**{**KEYED, "post_hook": hook, **items}) + query
        write_file(text, project.project_root, "models", f"{name}.sql")

    @staticmethod
    def load(load: int, *more: str, expect_pass: bool = True) -> tuple[dict[str, Any], str]:
        results, log = run_dbt_and_capture(
            ["build", "--vars", json.dumps({"load": load}), *more], expect_pass=expect_pass
        )
        return {result.node.name: result for result in results}, log


class TestModels(Hooked):
    HOOKS: dict[str, Any] = {
        "own": ["select 1", "{{ dbt.recluster(this) }}"],
        "wrapped": "{{ tidy() }}",
        "conditional": "{% if var('load') == 2 %}{{ recluster() }}{% endif %}",
    }
    MODELS = models_of(
        ROWS,
        final={**KEYED, "recluster_depth": 1000, "post_hook": "{{ recluster(final=true, depth=1) }}"},
        by_hand={**KEYED, "automatic_clustering": False, "post_hook": "{{ recluster() }}"},
        **{name: {**KEYED, "post_hook": hook} for name, hook in HOOKS.items()},
    )
    MACROS = {"tidy.sql": "{% macro tidy() %}{{ recluster() }}{% endmacro %}"}

    def test_each_load_is_reclustered_once_by_the_hook(self, project: Any, spark: Any, rounds: Any) -> None:
        for load in range(3):
            results, log = self.load(load)
            done = {name for name, result in results.items() if result.adapter_response.get("recluster_rounds")}
            assert done == ({*results} if load else set())
            assert log.count(" blocks into ") == len(done)
        for name in results:
            of_table = rounds(name)
            assert len(of_table) == 2, name
            assert {entry.by for entry in of_table} == {"run"}
            assert self.depth(project, spark, name) == 1
        figures = results["final"].adapter_response
        assert figures["average_depth"] == 1
        assert figures["rows_rewritten"] > 0
        assert figures["_message"].startswith("OK (depth ")

    def test_a_plan_or_a_branch_leaves_the_table_to_the_automatic_recluster(self, project: Any, rounds: Any) -> None:
        branch = [
            "alter table {{ this }} create branch if not exists audit",
            "{{ recluster(branch='audit') }}",
        ]
        hooks = {
            "planned": "{{ recluster(dry_run=true) }}",
            "branched": branch,
            "listed": "{{ recluster([this]) }}",
        }
        for name, hook in hooks.items():
            self.write(project, name, hook)
        for load in range(2):
            results, log = self.load(load, "--select", *hooks)
        assert {name: len(rounds(name)) for name in hooks} == dict.fromkeys(hooks, 1)
        assert f"1 of 1 {project.test_schema}.planned: would recluster 2 blocks" in log
        assert "branch audit: " in results["branched"].message
        assert results["branched"].adapter_response["recluster_rounds"] == 1

    def test_the_hook_reclusters_nothing_where_clustering_is_off(self, project: Any, rounds: Any) -> None:
        before = len(rounds("own"))
        self.load(3, "--select", "own", "--empty")
        self.load(3, "--select", "own", "--vars", "{load: 3, automatic_clustering: false}")
        run_dbt(["compile", "--select", "own"])
        run_dbt(["docs", "generate", "--select", "own"])
        assert len(rounds("own")) == before

    def test_a_changed_key_is_noted_once_on_the_models_line(self, project: Any, sql: Any, rounds: Any) -> None:
        self.write(project, "own", "{{ recluster() }}", cluster_by="v")
        before = len(rounds("own"))
        _, log = self.load(4, "--select", "own")
        assert log.count("cluster_by was k") == 1
        assert (self.order(sql, "own"), len(rounds("own"))) == ("v ASC NULLS FIRST", before + 1)

    def test_a_replaced_table_is_clustered_before_the_hook(self, project: Any, sql: Any, rounds: Any) -> None:
        again = "create or replace table {{ this }} using iceberg as select * from {{ this }}"
        self.write(project, "replaced", [again, "{{ recluster(dry_run=false) }}"], materialized="table")
        for load in range(2):
            results, _ = self.load(load, "--select", "replaced")
            assert "recluster_reason" in results["replaced"].adapter_response
            assert self.order(sql, "replaced") == "k ASC NULLS FIRST"
        self.write(project, "replaced", ["{{ recluster() }}", again], materialized="table")
        self.load(0, "--select", "replaced")
        assert self.order(sql, "replaced") == "k ASC NULLS FIRST"


class TestSeedsSnapshotsAndBatches(Hooked):
    HOOK = "seeds: [{name: sown, config: {cluster_by: k, post_hook: '{{ recluster() }}'}}]"
    SEEDS = {"sown.csv": "k\n1\n", "sown.yml": HOOK}
    OUTSIDE = {"sql": "{{ recluster() }}", "transaction": False}
    SNAPSHOTS = snapshot("seen", "raw", "all", cluster_by="k", post_hook=OUTSIDE)
    MODELS = microbatch()
    OF_FOLDER = {"+post-hook": ["{{ recluster(final=true) }}"]}
    PROJECT_CONFIG_UPDATE = {"models": {"test": {"batches": OF_FOLDER}}}

    @pytest.mark.thorough
    def test_seeds_snapshots_and_batches_are_reclustered_by_a_hook(self, project: Any) -> None:
        times = ["--event-time-start", "2026-01-01", "--event-time-end", "2026-01-04"]
        for _ in range(2):
            results, log = run_dbt_and_capture(["--log-level", "debug", "build", *times])
            for name in ("sown", "seen", "batches"):
                assert log.count(f".{name}: nothing to do") == 1, name
        reasons = {result.node.name: result.adapter_response.get("recluster_reason") for result in results}
        assert reasons["sown"]
        assert reasons["seen"]


class TestHooksThatCannot(Hooked):
    PROJECT_CONFIG_UPDATE = {"on-run-end": "select assert_true({{ var('fine', 'true') }}, 'at the end')"}

    def message(self, project: Any, hook: Any, name: str, *, expect_pass: bool = False, **items: Any) -> str:
        self.write(project, name, hook, **items)
        results, log = self.load(0, "--select", name, expect_pass=expect_pass)
        return log if expect_pass else str(results[name].message)

    def test_an_early_call_is_refused_before_the_build(self, project: Any, sql: Any) -> None:
        early = "is called before its table is built: it is for a post_hook, and in quotes"
        unquoted = config(**KEYED).replace(") }}", "") + ", post_hook=recluster()) }}" + ROWS
        write_file(unquoted, project.project_root, "models", "unquoted.sql")
        results, _ = self.load(0, "--select", "unquoted", expect_pass=False)
        assert early in str(results["unquoted"].message)
        Path(project.project_root, "models", "unquoted.sql").unlink()
        assert early in self.message(project, "select 1", "early", pre_hook="{{ recluster() }}")
        names = {"unquoted", "early"}
        assert not names & {row.tableName for row in sql("show tables in {schema}")}

    def test_a_wrong_argument_after_the_build_is_a_warning(self, project: Any) -> None:
        messages = {
            "depth=var('load')": "depth must be",
            "dept=1": "recluster has no argument 'dept'; did you mean depth?",
            "cluster_by='v'": "has cluster_by k; change it there instead of naming v here",
            "where='nope > 1'": "nope",
        }
        for arguments, text in messages.items():
            log = self.message(project, f"{{{{ recluster({arguments}) }}}}", "wrong", expect_pass=True)
            assert "wrong was built but not reclustered: " in log, arguments
            assert text in log

    def test_an_operation_before_the_first_build_has_nothing_to_do(self, project: Any, sql: Any) -> None:
        before = ["{{ suspend_recluster() }}", "{{ recluster(dry_run=true) }}"]
        log = self.message(project, "select 1", "paused", pre_hook=before, expect_pass=True)
        assert f"suspend_recluster: {project.test_schema}.paused is not built yet" in log
        self.load(1, "--select", "paused")
        assert "recluster.suspended" in self.properties(sql, "paused")

    def test_prices_that_are_none_are_an_error(self, project: Any) -> None:
        self.write(project, "priced", "select 1")
        results, _ = self.load(0, "--select", "priced", "--vars", "{recluster_prices: nonsense}", expect_pass=False)
        assert "var recluster_prices must be" in str(results["priced"].message)

    def test_a_query_in_a_hook_is_run_to_its_end(self, project: Any) -> None:
        """Spark is lazy: a guard that is not fetched guards nothing."""
        guard = "select assert_true(id < 2, 'guarded') from range(3)"
        assert "guarded" in self.message(project, "select 1", "guarded", pre_hook=guard)
        self.write(project, "ended", "select 1")
        _, log = self.load(0, "--select", "ended", "--vars", "{load: 0, fine: 'false'}", expect_pass=False)
        assert "at the end" in log

    def test_a_recluster_that_fails_is_a_warning(self, project: Any, sql: Any) -> None:
        log = self.message(project, "{{ recluster(branch='nobranch') }}", "failing", expect_pass=True)
        assert log.count(f"{project.test_schema}.failing was built but not reclustered: ") == 1
        assert sql("select count(*) from {schema}.failing")[0][0] == 1000
        results, _ = self.load(1, "--warn-error", "--select", "failing", expect_pass=False)
        assert "was built but not reclustered: " in str(results["failing"].message)

    @pytest.mark.thorough
    def test_the_hook_has_no_effect_without_a_key_or_blocks(self, project: Any, sql: Any, rounds: Any) -> None:
        hook, parquet = "{{ recluster() }}", {"materialized": "table", "file_format": "parquet"}
        for name, items in (("viewed", {"materialized": "view"}), ("parquet", parquet)):
            log = self.message(project, hook, name, expect_pass=True, **items)
            text = f"recluster() has no effect on {name}: there is no Iceberg table of that name"
            assert log.count(text) == 1
        log = self.message(project, hook, "unkeyed", expect_pass=True, cluster_by=[])
        assert f"recluster FAILED: {project.test_schema}.unkeyed has no cluster key" in log
        sql("alter table {schema}.unkeyed write locally ordered by k")
        for load in range(1, 3):
            self.load(load, "--select", "unkeyed")
        assert rounds("unkeyed")
        assert self.order(sql, "unkeyed") == "k ASC NULLS FIRST"


class TestOtherOperations(Hooked):
    MODELS = models_of(
        ROWS,
        first={**KEYED, "automatic_clustering": False},
        second={**KEYED, "post_hook": "{{ recluster(table=ref('first')) }}"},
        third={
            **KEYED,
            "automatic_clustering": False,
            "post_hook": ["{{ clustering_depth() }}", "{{ recluster(dry_run=true) }}"],
        },
        special={**KEYED, "materialized": "special", "post_hook": "{{ recluster() }}"},
    )
    MACROS = {
        "special.sql": """
{% materialization special, adapter='recluster' %}
  {{ run_hooks(pre_hooks) }}
  {% call statement('main') %}
{{ 'insert into ' ~ this if load_relation(this) else 'create table ' ~ this ~ ' using iceberg as' }} {{ sql }}
  {% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [this]}) }}
{% endmaterialization %}"""
    }

    @pytest.mark.thorough
    def test_an_operation_in_a_hook_is_for_its_own_model(self, project: Any, sql: Any, spark: Any, rounds: Any) -> None:
        for load in range(3):
            _, log = self.load(load)
        assert (len(rounds("first")), len(rounds("second"))) == (2, 2)
        assert rounds("first")[0].by == "manual"
        assert f"1 of 1 {project.test_schema}.first: reclustered" in log
        assert not rounds("third")
        assert f"{project.test_schema}.third by k: average depth 3.0" in log
        held = "a build would recluster nothing now: automatic clustering is off; by hand, it would recluster 3 blocks"
        assert f"1 of 1 {project.test_schema}.third: {held}" in log
        assert (len(rounds("special")), self.order(sql, "special")) == (3, "k ASC NULLS FIRST")
        assert recluster(spark, f"{project.test_schema}.third", depth=1).rounds


class TestTheHooksOfARun(Hooked):
    QUERY = ROWS + " where {{ var('where', 'true') }}"
    MODELS = models_of(QUERY, loaded={**KEYED, "automatic_clustering": False}, other=KEYED)
    HOOKS = [
        "{% if var('table', none) %}{{ recluster(table=var('table')) }}{% endif %}",
        "{{ suspend_recluster(table='loaded') }}",
    ]
    PROJECT_CONFIG_UPDATE = {"on-run-end": HOOKS}

    @pytest.fixture
    def is_changed(self, project: Any, sql: Any, spark: Any, rounds: Any) -> Any:
        """Returns whether the hooks have reclustered or suspended the table."""
        return lambda: (
            bool(rounds("loaded")),
            "recluster.suspended" in self.properties(sql, "loaded"),
        )

    @pytest.mark.thorough
    def test_hooks_act_only_when_tables_are_built(self, project: Any, sql: Any, is_changed: Any) -> None:
        for load in range(2):
            self.load(load)
            run_dbt(["run-operation", "resume_recluster", "--args", "{table: loaded}"])
        both = ["--vars", "{table: loaded}"]
        for command in (
            ["compile"],
            ["compile", "--no-introspect"],
            ["docs", "generate"],
            ["test"],
            ["show", "--inline", "{{ recluster(table='loaded') }}select 1"],
            ["ls"],
            ["run", "--empty", "--select", "other"],
        ):
            run_dbt([*command, *both])
            assert is_changed() == (False, False), command
        run_dbt(["run", "--select", "other", *both])
        assert is_changed() == (True, True)
        run_dbt(["run", "--select", "other", "--vars", "{where: nope}"], expect_pass=False)
        sql("alter table {schema}.loaded unset tblproperties ('recluster.suspended')")
        run_dbt(["retry", *both])
        assert is_changed() == (True, True)

    def test_hooks_fail_as_sql_does(self, project: Any, is_changed: Any) -> None:
        _, log = self.load(2, "--vars", "{load: 2, table: absent.t}", expect_pass=False)
        assert "keyboard interrupt" not in log
        assert "test.on-run-end.0 failed, error:" in log
        assert "the table failed: absent.t" in log
        assert "SKIP=1" in log
