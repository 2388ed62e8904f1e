"""Configs of clustered models: what is recorded, refused and warned of."""

from typing import Any

import pytest
from clustered_models import Clustering, config, models_of
from dbt.tests.util import run_dbt, run_dbt_and_capture

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import sort_order_text


def altered(log: str) -> list[str]:
    return [line.strip() for line in log.splitlines() if line.strip().startswith("alter table")]


class TestHiddenValues(Clustering):
    """Spark shows ********* for a property whose name or value contains ``url``, ``token``, ``secret``..."""

    MODELS = models_of(
        "select concat('u', id) as url, id % 7 as `api token` from range(100)",
        pages={"cluster_by": ["truncate(2, url)", "`api token`"], "recluster_where": "url <> 'u1'"},
        replaced={"materialized": "table"},
    )

    @pytest.mark.thorough
    @pytest.mark.usefixtures("project")
    def test_values_that_spark_hides_are_compared(self, sql: Any, spark: Any, project: Any) -> None:
        run_dbt(["run"])
        shown = dict(tuple(row) for row in sql("show tblproperties {schema}.pages"))
        assert "redacted" in shown["sort-order"]  # otherwise this test shows nothing
        sql("alter table {schema}.replaced write ordered by url desc nulls last, truncate(2, `api token`)")
        _, log = run_dbt_and_capture(["run", "--log-level", "debug"])
        (changed,) = altered(log)
        assert changed.endswith(
            ".replaced write locally ordered by `url` DESC NULLS LAST, truncate(2, `api token`) ASC NULLS FIRST"
        )
        table = IcebergTable.load(spark, f"{project.test_schema}.replaced")
        assert sort_order_text(table) == "url DESC NULLS LAST, truncate(api token, 2) ASC NULLS FIRST"


class TestWrongConfigs(Clustering):
    QUERY = "select 1 as id, timestamp '2026-01-01' as ts, map(1, 1) as m"
    # What else is no key and no option: tests/unit/test_cluster_key.py and operations/test_model_options.py.
    WRONG: list[tuple[dict[str, Any], str]] = [
        (
            {"cluster_by": "bucket(4, id)"},
            "cluster_by item 'bucket(4, id)' is not supported. An item is a column",
        ),
        ({"cluster_by": "hilbert(id, m)"}, "cluster_by item m: a column of type map<int,int> has no order"),
        ({"cluster_by": "id", "recluster_depth": "deep"}, "recluster_depth must be a number of at least 1"),
        ({"cluster_by": "id", "recluster_where": "id % 2 = 1"}, "'id % 2 = 1' cannot choose blocks of the model"),
        ({"cluster_by": "id", "recluster_after": {"weeks": 2}}, "recluster_after must be a mapping of commits, rows"),
    ]
    MODELS = models_of(QUERY, "table", **{f"wrong_{n}": items for n, (items, _) in enumerate(WRONG)})

    def test_an_error_before_any_data_is_written(self, project: Any, sql: Any) -> None:
        results = run_dbt(["run"], expect_pass=False)
        messages = {result.node.name: str(result.message) for result in results}
        for number, (_, text) in enumerate(self.WRONG):
            name = f"wrong_{number}"
            assert text in messages[name], messages[name]
            assert name in messages[name]  # the model
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []


class TestColumnsOfTheModelAndOfTheTable(Clustering):
    """The key is checked against what the table has, and against what the model is about to add."""

    def test_another_spelling_of_a_column_is_the_same_key(self, run: Any, sql: Any) -> None:
        run("m", "select 1 as userid, 2 as b", cluster_by="userid")
        run("m", "select 2 as UserId, 2 as b", cluster_by="USERID")
        assert self.order(sql, "m") == "userid ASC NULLS FIRST"
        assert sql("select count(*) from {schema}.m")[0][0] == 2

    def test_a_key_on_a_new_column_needs_a_schema_change(self, run: Any, sql: Any) -> None:
        query = "select 3 as userid, 2 as b, 1 as c"
        message = run("m", query, passes=False, cluster_by=["c", "b"])
        assert "cluster_by names c, which the model selects and its table does not have yet" in message
        run("m", query, cluster_by=["c", "b"], on_schema_change="append_new_columns")
        assert self.order(sql, "m") == "c ASC NULLS FIRST, b ASC NULLS FIRST"
        assert sql("select count(*), count(c) from {schema}.m")[0][:] == (3, 1)

    def test_a_key_is_checked_after_the_hook_of_its_query(self, run: Any, sql: Any) -> None:
        hook = "create or replace temporary view made_by_hook as select 7 as code"
        query, options = "select code from made_by_hook", {"materialized": "table", "pre_hook": hook}
        run("hooked", query, cluster_by="truncate(2, code)", **options)
        assert self.order(sql, "hooked") == "truncate(code, 2) ASC NULLS FIRST"
        message = run("hooked", query, cluster_by="nope", passes=False, **options)
        assert "cluster_by item nope: there is no column 'nope'" in message

    def test_a_query_that_ends_in_a_semicolon(self, run: Any, sql: Any) -> None:
        options = {"cluster_by": ["k", "v"], "on_schema_change": "append_new_columns"}
        run("ended", "select 1 as k, ';' as v, 2 as old;\n-- that's all;", **options)
        run("ended", "select 2 as k, ';' as v; /* ; */;", **options)
        assert sql("select k, v, old from {schema}.ended order by 1") == [(1, ";", 2), (2, ";", None)]


class TestHooksThatReplaceTheTable(Clustering):
    """What a hook after the build leaves is what there is to cluster."""

    ANEW = "create or replace table {{ this }} using iceberg as select 2 as k, 3 as id"
    MODELS = models_of(
        "select 1 as k, 1 as id",
        dropped={"cluster_by": "k", "post_hook": "drop table {{ this }}"},
        viewed={
            "cluster_by": "k",
            "post_hook": ["drop table {{ this }}", "create view {{ this }} as select 1 as k"],
        },
        replaced={"cluster_by": "k", "post_hook": ANEW},
    )

    @pytest.mark.thorough
    def test_a_hook_may_leave_no_table_to_cluster(self, project: Any, sql: Any) -> None:
        for flags in ([], ["--full-refresh"], []):
            _, log = run_dbt_and_capture(["run", *flags])
            text = "cluster_by has no effect on {}: after its hooks there is no Iceberg table of that name"
            for name in ("dropped", "viewed"):
                assert log.count(text.format(name)) == 1
            assert "no effect on replaced" not in log
            assert self.order(sql, "replaced") == "k ASC NULLS FIRST"
            assert sql("select k, id from {schema}.replaced") == [(2, 3)]


class TestNoEffect(Clustering):
    MODELS = {
        "inline.sql": config(materialized="ephemeral", cluster_by="id") + "select 1 as id",
        "a_view.sql": config(materialized="view", cluster_by="id") + "select * from {{ ref('inline') }}",
        "files.sql": config(materialized="table", file_format="parquet", cluster_by="id")
        + "select * from {{ ref('inline') }}",
        # dbt-spark's own, and a project's own, are nobody's mistake.
        "misspelt.sql": config(
            materialized="table",
            cluster_bys="id",
            block_row=5,
            recluster_dept=4,
            meta={"recluster": {"cluster_by": "id", "dpeth": 3}, "reclustr": {"depth": 3}},
        )
        + "select 1 as id",
        "theirs.sql": config(materialized="table", clustered_by="id", buckets=2, clusters=3, recluster_dept=4)
        + "select 1 as id",
    }

    def test_misspelt_configs_are_named_once(self, project: Any) -> None:
        _, log = run_dbt_and_capture(["run", "--select", "misspelt", "theirs"])
        for text in (
            "there is no config cluster_bys; did you mean cluster_by?",
            "there is no config block_row; did you mean block_rows?",
            "there is no meta.recluster.dpeth; did you mean depth?",
            "meta.reclustr is not read; did you mean meta.recluster?",
        ):
            assert log.count(f"misspelt: {text}") == 1
        assert "theirs: there is no config clu" not in log
        # Of both models, as a config of the project is.
        assert log.count("there is no config recluster_dept; did you mean recluster_depth?") == 1

    def test_a_key_without_effect_is_a_warning_or_an_error_as_dbt_is_told(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["run", "--exclude", "misspelt"])
        for text in (
            "cluster_by has no effect on inline: an ephemeral model has no table",
            "cluster_by has no effect on a_view: a view has no data of its own to cluster",
            "cluster_by has no effect on files: its file_format is parquet, and only Iceberg tables can be clustered",
        ):
            assert log.count(text) == 1, text
        results = run_dbt(["--warn-error", "run"], expect_pass=False)
        messages = {result.node.name: str(result.message) for result in results}
        assert "no effect" in messages["a_view"]
        assert "there is no config" in messages["misspelt"]
