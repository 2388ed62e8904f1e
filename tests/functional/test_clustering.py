"""Clustering through dbt, as users meet it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from operations import operate
from tables import make_table

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import sort_order_text

EVENTS = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=2, block_rows=500) }}
select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k, timestamp_seconds(id * 1000) as ts, concat('v', id) as v
from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})
"""


def config(**items: Any) -> str:
    return "{{ config(" + ", ".join(f"{key}={value!r}" for key, value in items.items()) + ") }}\n"


def run_load(load: int, *more: str) -> tuple[Any, str]:
    results, log = run_dbt_and_capture(["run", "--vars", json.dumps({"load": load}), *more])
    return results, log


class Clustering:
    @pytest.fixture
    def sql(self, project: Any) -> Any:
        return lambda statement: project.run_sql(statement.format(schema=project.test_schema), fetch="all")

    @staticmethod
    def order(sql: Any, table: str) -> str:
        rows = dict(tuple(row) for row in sql(f"show tblproperties {{schema}}.{table}"))
        return str(rows.get("sort-order", ""))

    @staticmethod
    def depth(project: Any, spark: Any, table: str) -> float:
        from dbt_recluster.maintenance import clustering_information

        return float(clustering_information(spark, f"{project.test_schema}.{table}")["average_depth"])


class TestLoads(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS}

    def test_a_table_stays_clustered(self, project: Any, sql: Any, spark: Any) -> None:
        reclustered = 0
        for load in range(6):
            results, log = run_load(load)
            response = results[0].adapter_response
            if response["blocks_rewritten"]:
                reclustered += 1
                assert f"(reclustered {response['blocks_rewritten']} blocks into" in log
                assert response["_message"] in log
            assert response["average_depth"] == self.depth(project, spark, "events") <= 4
            assert (
                sql("select count(*), count(distinct id) from {schema}.events")[0][:]
                == (1000 * (load + 1),) * 2
            )
        assert reclustered >= 1
        stored = json.loads((Path(project.project_root) / "target" / "run_results.json").read_text())
        assert isinstance(stored["results"][0]["adapter_response"]["average_depth"], float)
        assert self.order(sql, "events") == "k ASC NULLS FIRST"


class TestStatements(Clustering):
    """The statements that a clustered model sends, and those that it does not."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS, "plain.sql": "{{ config(materialized='incremental') }} select 1 as id"}

    def test_no_alter_when_nothing_changed(self, project: Any) -> None:
        _, first = run_load(0, "--log-level", "debug")
        assert first.count("alter table") == 1
        assert f"alter table {project.test_schema}.events write ordered by `k`" in first
        assert "order by `k`" in first
        _, second = run_load(1, "--log-level", "debug")
        assert "alter table" not in second
        plain = [line for line in second.splitlines() if "plain" in line]
        assert not any("tblproperties" in line or "describe query" in line for line in plain)


class TestRecordedOptions(Clustering):
    """Options are recorded in the table for jobs without dbt, by one statement and only when they change."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": "{{ config(materialized='incremental', cluster_by='k', recluster_depth=var('depth', none), "
            "recluster_where=var('where', none)) }} select id, id % 7 as k, concat('v', id) as v from range(100)",
            "replaced.sql": "{{ config(materialized='table', cluster_by='k', block_rows=var('rows', none)) }} "
            "select 1 as k",
        }

    def test_a_change_is_one_statement(self, project: Any, sql: Any) -> None:
        def run(**variables: Any) -> list[str]:
            command = ["run", "--vars", json.dumps(variables), "--log-level", "debug"]
            _, log = run_dbt_and_capture(command)
            return [line.strip() for line in log.splitlines() if line.strip().startswith("alter table")]

        def options(table: str) -> dict[str, str]:
            rows = (tuple(row) for row in sql(f"show tblproperties {{schema}}.{table}"))
            prefix = "recluster.option."
            return {name.removeprefix(prefix): value for name, value in rows if name.startswith(prefix)}

        assert all(" write ordered by " in statement for statement in run(depth=2, rows=500))
        assert (options("events"), options("replaced")) == ({"depth": "2"}, {"block_rows": "500"})
        events = f"alter table {project.test_schema}.events"
        assert not [each for each in run(depth=2, rows=500) if each.startswith(events)]
        changed = [each for each in run(depth=3, where="v <> 'it\\'s'") if each.startswith(events)]
        assert len(changed) == 1
        assert options("events") == {"depth": "3", "where": "v <> 'it\\'s'"}
        assert options("replaced") == {}
        removed = [each for each in run() if each.startswith(events)]
        assert len(removed) == 1
        assert options("events") == {}


class TestHiddenValues(Clustering):
    """Spark shows ********* for a property whose name or value contains ``url``, ``token``, ``secret``..."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        rows = "select concat('u', id) as url, id % 7 as `api token` from range(100)"
        options = {"materialized": "incremental", "recluster_where": "url <> 'u1'"}
        return {
            "pages.sql": config(cluster_by=["truncate(2, url)", "`api token`"], **options) + rows,
            "replaced.sql": config(materialized="table") + rows,
        }

    @pytest.mark.usefixtures("project")
    def test_they_are_compared_nevertheless(self, sql: Any, spark: Any, project: Any) -> None:
        run_dbt(["run"])
        shown = dict(tuple(row) for row in sql("show tblproperties {schema}.pages"))
        assert "redacted" in shown["sort-order"]  # otherwise this test shows nothing
        sql("alter table {schema}.replaced write ordered by url desc nulls last, truncate(2, `api token`)")
        _, log = run_dbt_and_capture(["run", "--log-level", "debug"])
        changed = [line.strip() for line in log.splitlines() if line.strip().startswith("alter table")]
        assert len(changed) == 1
        assert changed[0].endswith(
            ".replaced write locally ordered by `url` DESC NULLS LAST, truncate(2, `api token`) ASC NULLS FIRST"
        )
        table = IcebergTable.load(spark, f"{project.test_schema}.replaced")
        assert sort_order_text(table) == "url DESC NULLS LAST, truncate(api token, 2) ASC NULLS FIRST"


class TestMaterializations(Clustering):
    """table, incremental by merge and by insert_overwrite, snapshot and seed: each twice, and each keeps its order."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        rows = "select id, pmod(hash(id), 50) as k, id % 3 as p from range(300)"
        return {
            "a_table.sql": config(materialized="table", cluster_by=["k", "id"]) + rows,
            "merged.sql": config(
                materialized="incremental", incremental_strategy="merge", unique_key="id", cluster_by="k"
            )
            + rows,
            "overwritten.sql": config(
                materialized="incremental",
                incremental_strategy="insert_overwrite",
                partition_by="p",
                cluster_by="k",
            )
            + rows,
            "unsorted.sql": config(materialized="incremental", cluster_by="k", sort_on_load=False) + rows,
            "replaced.sql": config(materialized="table") + rows,
        }

    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {
            "history.sql": "{% snapshot history %}"
            + config(strategy="check", unique_key="id", check_cols=["k"], cluster_by="dbt_valid_from")
            + "select * from {{ ref('a_table') }}{% endsnapshot %}"
        }

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {
            "days.csv": "day,name\n2026-01-03,it's\n2026-01-01,\n2026-01-02,100%\n",
            "days.yml": "seeds: [{name: days, config: {cluster_by: day, column_types: {day: date, name: string}}}]",
        }

    def test_all(self, project: Any, sql: Any) -> None:
        ids: dict[str, Any] = {}
        for attempt in range(2):
            results = run_dbt(["build"])
            assert {result.status for result in results} == {"success"}
            assert self.order(sql, "a_table") == "k ASC NULLS FIRST, id ASC NULLS FIRST"
            for name in ("merged", "overwritten", "unsorted"):
                assert self.order(sql, name) == "k ASC NULLS FIRST", name
            assert self.order(sql, "history") == "dbt_valid_from ASC NULLS FIRST"
            assert self.order(sql, "days") == "day ASC NULLS FIRST"
            assert sql("select count(*) from {schema}.merged")[0][0] == 300
            assert sql("select count(*) from {schema}.overwritten")[0][0] == 300
            assert sql("select count(*) from {schema}.history")[0][0] == 300
            rows = sql("select cast(day as string), name from {schema}.days order by day")
            assert [tuple(row) for row in rows] == [
                ("2026-01-01", None),
                ("2026-01-02", "100%"),
                ("2026-01-03", "it's"),
            ]
            # create or replace, not drop and create: the first snapshot is still there
            snapshots = sql("select snapshot_id from {schema}.a_table.snapshots order by committed_at")
            history = [row[0] for row in snapshots]
            assert history[: len(ids.get("a_table", []))] == ids.get("a_table", [])
            ids["a_table"] = history
            if attempt == 0:
                sql("alter table {schema}.replaced write ordered by id desc nulls last")
        assert len(ids["a_table"]) >= 2
        assert self.order(sql, "replaced") == "id DESC NULLS LAST"  # set by hand, and kept
        properties = dict(tuple(row) for row in sql("show tblproperties {schema}.unsorted"))
        assert properties["write.distribution-mode"] == "none"
        assert properties["write.metadata.metrics.column.k"] == "full"

    def test_a_load_arrives_sorted(self, project: Any, sql: Any) -> None:
        rows = sql("select _file, _pos, k, id from {schema}.a_table order by _file, _pos")
        for left, right in pairwise(rows):
            assert left._file != right._file or (left.k, left.id) <= (right.k, right.id)


class TestKeyChanges(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS}

    def test_changed_on_the_next_run_and_cleared_when_taken_away(self, project: Any, sql: Any) -> None:
        run_load(0)
        write_file(
            EVENTS.replace("'k'", "['to_date(ts)', 'k']"), project.project_root, "models", "events.sql"
        )
        run_load(1)
        assert self.order(sql, "events") == "days(ts) ASC NULLS FIRST, k ASC NULLS FIRST"
        assert sql("select count(*) from {schema}.events")[0][0] == 2000

        write_file(EVENTS.replace("cluster_by='k', ", ""), project.project_root, "models", "events.sql")
        run_load(2)
        properties = dict(tuple(row) for row in sql("show tblproperties {schema}.events"))
        assert "sort-order" not in properties
        assert not [name for name in properties if name.startswith("recluster.")]
        assert sql("select count(*) from {schema}.events")[0][0] == 3000

    def test_a_full_refresh_is_as_a_first_build(self, project: Any, sql: Any) -> None:
        write_file(EVENTS, project.project_root, "models", "events.sql")
        run_load(3, "--full-refresh")
        assert self.order(sql, "events") == "k ASC NULLS FIRST"
        assert sql("select count(*) from {schema}.events")[0][0] == 1000


class TestWrongConfigs(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        rows = "select 1 as id, timestamp '2026-01-01' as ts"
        configs: dict[str, dict[str, Any]] = {
            "wrong_type": {"cluster_by": {"a": 1}},
            "unknown_column": {"cluster_by": "nope"},
            "unsupported": {"cluster_by": "bucket(4, id)"},
            "wrong_column_type": {"cluster_by": "days(id)"},
            "wrong_depth": {"cluster_by": "id", "recluster_depth": "deep"},
            "misspelt": {"cluster_by": "id", "recluster_depht": 3},
            "wrong_where": {"cluster_by": "id", "recluster_where": "nope > 1"},
            "where_too_clever": {"cluster_by": "id", "recluster_where": "id % 2 = 1"},
            "dotted": {"cluster_by": "`a.b`"},
        }
        return {f"{name}.sql": config(materialized="table", **each) + rows for name, each in configs.items()}

    def test_an_error_before_any_data_is_written(self, project: Any, sql: Any) -> None:
        results = run_dbt(["run"], expect_pass=False)
        messages = {result.node.name: result.message for result in results}
        for name, text in {
            "wrong_type": "cluster_by must be a string or a list of strings, not {'a': 1}",
            "unknown_column": "nope: there is no column 'nope'; the columns are id, ts",
            "unsupported": "cluster_by item 'bucket(4, id)' is not supported. An item is a column, days(ts)",
            "wrong_column_type": "days(id): id is int, and this expression needs date or timestamp",
            "wrong_depth": "recluster_depth must be a number of at least 1",
            "misspelt": "recluster_depht is not a config of dbt-recluster",
            "wrong_where": "where: 'nope > 1' cannot choose blocks of the model",
            "where_too_clever": "where: 'id % 2 = 1' cannot choose blocks of the model",
            "dotted": "a column with a dot in its name cannot be clustered by",
        }.items():
            assert text in messages[name], messages[name]
            assert name in messages[name]  # the model
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []


class TestColumnsOfTheModelAndOfTheTable(Clustering):
    """The key is checked against what the table has, and against what the model is about to add."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {}

    @staticmethod
    def run(project: Any, sql: str, *, expect_pass: bool = True, **items: Any) -> str:
        text = config(materialized="incremental", **items) + sql
        write_file(text, project.project_root, "models", "m.sql")
        (result,) = run_dbt(["run"], expect_pass=expect_pass)
        return str(result.message)

    def test_another_spelling_of_a_column(self, project: Any, sql: Any) -> None:
        self.run(project, "select 1 as userid, 2 as b", cluster_by="userid")
        self.run(project, "select 2 as UserId, 2 as b", cluster_by="USERID")
        assert self.order(sql, "m") == "userid ASC NULLS FIRST"
        assert sql("select count(*) from {schema}.m")[0][0] == 2

    def test_a_key_on_a_new_column(self, project: Any, sql: Any) -> None:
        query = "select 3 as userid, 2 as b, 1 as c"
        message = self.run(project, query, expect_pass=False, cluster_by=["c", "b"])
        assert "cluster_by names c, which the model selects and its table does not have yet" in message
        self.run(project, query, cluster_by=["c", "b"], on_schema_change="append_new_columns")
        assert self.order(sql, "m") == "c ASC NULLS FIRST, b ASC NULLS FIRST"
        assert sql("select count(*), count(c) from {schema}.m")[0][:] == (3, 1)

    def test_a_query_that_needs_its_hook(self, project: Any, sql: Any) -> None:
        hook = "create or replace temporary view made_by_hook as select 7 as code"
        options = {"materialized": "table", "pre_hook": hook}
        text = config(cluster_by="truncate(2, code)", **options) + "select code from made_by_hook"
        write_file(text, project.project_root, "models", "hooked.sql")
        run_dbt(["run", "--select", "hooked"])
        assert self.order(sql, "hooked") == "truncate(code, 2) ASC NULLS FIRST"
        text = config(cluster_by="nope", **options) + "select code from made_by_hook"
        write_file(text, project.project_root, "models", "hooked.sql")
        (result,) = run_dbt(["run", "--select", "hooked"], expect_pass=False)
        assert "cluster_by item nope: there is no column 'nope'" in result.message


class TestNoEffect(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "inline.sql": config(materialized="ephemeral", cluster_by="id") + "select 1 as id",
            "a_view.sql": config(materialized="view", cluster_by="id") + "select * from {{ ref('inline') }}",
            "files.sql": config(materialized="table", file_format="parquet", cluster_by="id")
            + "select * from {{ ref('inline') }}",
        }

    def test_one_warning_each(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["run"])
        assert {result.status for result in results} == {"success"}
        for text in (
            "cluster_by has no effect on inline: an ephemeral model has no table",
            "cluster_by has no effect on a_view: a view has no data of its own to cluster",
            "cluster_by has no effect on files: its file_format is parquet, and only Iceberg tables can be clustered",
        ):
            assert log.count(text) == 1, text

    def test_warnings_can_be_errors(self, project: Any) -> None:
        results = run_dbt(["--warn-error", "run"], expect_pass=False)
        assert "no effect" in str(next(result.message for result in results if result.node.name == "a_view"))


class TestViews(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"a_view.sql": "select {{ var('n', 1) }} as n"}

    def test_a_replaced_view_is_the_new_one(self, project: Any, sql: Any) -> None:
        for n in (1, 2, 3):
            run_dbt(["run", "--vars", json.dumps({"n": n})])
            assert sql("select n from {schema}.a_view")[0][0] == n


class TestSwitches(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS.replace("recluster_depth=2", "recluster_depth=1")}

    def test_off_for_one_run(self, project: Any, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
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
        more = f'recluster_depth=1, block_rows=500, sort_on_load=false, post_hook="{hook}"'
        return {
            "events.sql": EVENTS.replace("recluster_depth=2, block_rows=500", more).replace(
                "select id", "select /*+ repartition(2) */ id"
            ),
            "after.sql": "select * from {{ ref('events') }}",
        }

    def test_it_is_a_warning(self, project: Any, sql: Any) -> None:
        results, log = run_load(0)
        assert {result.status for result in results} == {"success"}
        assert "events was built but not reclustered: " in log
        assert sql("select count(*) from {schema}.after")[0][0] == 1000

    def test_it_honours_warn_error(self, project: Any) -> None:
        results = run_dbt(["--warn-error", "run", "--full-refresh"], expect_pass=False)
        assert [result.status for result in results] == ["error", "skipped"]


class TestMicrobatch(Clustering):
    """Batches are reclustered once, after the last one."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "raw.sql": config(materialized="table", event_time="at")
            + "select id, timestampadd(hour, cast(id % 72 as int), timestamp '2026-01-01') as at, "
            "cast(rand(1) * 100 as int) as k from range(720)",
            "batches.sql": config(
                materialized="incremental",
                incremental_strategy="microbatch",
                event_time="at",
                batch_size="day",
                begin="2026-01-01",
                partition_by="day",
                cluster_by="k",
                recluster_depth=1,
            )
            + "select *, cast(at as date) as day from {{ ref('raw') }}",
        }

    def test_batches(self, project: Any, sql: Any) -> None:
        times = ["--event-time-start", "2026-01-01", "--event-time-end", "2026-01-04"]
        for _ in range(2):
            _, log = run_dbt_and_capture(["--log-level", "debug", "run", *times])
            assert log.count("batches: nothing to do") == 1
            assert log.count("show tblproperties") == 3
            assert sql("select count(*), count(distinct id) from {schema}.batches")[0][:] == (720, 720)
        assert self.order(sql, "batches") == "k ASC NULLS FIRST"


class TestRunOperation(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": EVENTS.replace("cluster_by='k'", "cluster_by='k', automatic_clustering=false"),
            "others.sql": EVENTS.replace("cluster_by='k'", "cluster_by='ts', automatic_clustering=false"),
            "plain.sql": config(materialized="table") + "select 1 as id",
        }

    def operate(self, arguments: str, *, passes: bool = True) -> str:
        return operate("recluster", arguments, passes=passes)

    def test_by_hand(self, project: Any, sql: Any, spark: Any) -> None:
        assert f"1 of 2 {project.test_schema}.events: not built yet" in self.operate("{}")
        for load in range(4):
            run_load(load)
        schema = project.test_schema
        before = sql("select snapshot_id from {schema}.events.snapshots")

        log = self.operate("{table: events, dry_run: true}")
        assert f"1 of 1 {schema}.events: would recluster" in log
        assert sql("select snapshot_id from {schema}.events.snapshots") == before

        log = self.operate("{table: [events, " + f"{schema}.others], final: true, depth: 1}}")
        assert f"1 of 2 {schema}.events: reclustered" in log
        assert f"2 of 2 {schema}.others: " in log
        assert self.depth(project, spark, "events") <= 2
        assert sql("select count(*), count(distinct id) from {schema}.events")[0][:] == (4000, 4000)

        log = self.operate("{table: events, where: 'k < 10', depth: 1, max_bytes: 1 GB}")
        assert "events: nothing to do" in log

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: nope}", "nope is no model, seed or snapshot of this project"),
            ("{table: events, final: perhaps}", "final must be true or false"),
            ("{table: events, max_bytes: lots}", "max_bytes must be a number of bytes"),
            ("{table: events, depth: 0}", "depth must be a number of at least 1"),
            ("{table: events, strategy: best}", "strategy must be one of"),
            ("{table: [plain, events], where: 'nope = 1'}", "2 of 2 tables failed"),
            ("{table: no.table}", "1 of 1 tables failed: no.table"),
            ("{tables: events}", "recluster has no argument 'tables'; it takes table"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in self.operate(arguments, passes=False)

    def test_a_key_for_a_table_that_has_none(self, project: Any, sql: Any, spark: Any) -> None:
        """A table that dbt did not build gets its key here; a model's key is its model's business."""
        table = make_table(spark, project.test_schema, name="raw_trips", files=4)
        message = self.operate(f"{{table: {table}}}", passes=False)
        assert f"{table} has no sort order; name a cluster key with cluster_by" in message

        log = self.operate(f"{{table: {table}, cluster_by: k, depth: 1, dry_run: true}}")
        assert f"{table}: would recluster" in log
        assert self.order(sql, "raw_trips") == ""

        log = self.operate(f"{{table: {table}, cluster_by: [k, to_date(v)]}}", passes=False)
        assert "days(v): v is string, and this expression needs date or timestamp" in log
        assert self.order(sql, "raw_trips") == ""

        log = self.operate(f"{{table: {table}, cluster_by: k, depth: 1}}")
        assert f"{table}: reclustered 4 blocks" in log
        assert self.order(sql, "raw_trips") == "k ASC NULLS FIRST"
        assert self.depth(project, spark, "raw_trips") == 1
        assert f"{table}: nothing to do" in self.operate(f"{{table: {table}}}")

    def test_a_key_that_is_not_its_models(self, project: Any, sql: Any) -> None:
        run_load(9)
        before = self.order(sql, "events"), self.order(sql, "plain")
        message = self.operate("{table: events, cluster_by: ts}", passes=False)
        assert "events has cluster_by k; change it there instead of naming ts here" in message
        assert "events: nothing to do" in self.operate("{table: events, cluster_by: K}")
        message = self.operate("{table: [events, others], cluster_by: k}", passes=False)
        assert "cluster_by is for a single table: name it with table" in message
        message = self.operate("{cluster_by: k}", passes=False)
        assert "cluster_by is for a single table: name it with table" in message
        assert (self.order(sql, "events"), self.order(sql, "plain")) == before
