"""Keys with a curve through dbt: ``cluster_by: hilbert(a, b)``."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from clustered_models import EVENTS, Clustering, config, run_load
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.maintenance import blocks_opened, clustering_information

CURVE, LED = "hilbert(k, id)", ["p", "hilbert(days(ts), id)"]
LED_KEY = "p, hilbert(days(ts), id)"
ROWS = "select id, pmod(hash(id), 50) as k, id % 3 as p, timestamp_seconds(id * 1000) as ts from range(300)"


class Curves(Clustering):
    @pytest.fixture
    def key(self, project: Any, spark: Any) -> Any:
        """Returns the key that a table has, as the next reader sees it."""

        def key(table: str) -> str | None:
            found = table_cluster_key(IcebergTable.load(spark, f"{project.test_schema}.{table}"))
            return None if found is None else str(found)

        return key

    @pytest.fixture
    def listed(self, sql: Any) -> Any:
        return lambda table: dict(tuple(row) for row in sql(f"show tblproperties {{schema}}.{table}"))


class TestMaterializations(Curves):
    """Each twice, one by a curve alone and one by a curve behind a column where that differs."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        incremental = {"materialized": "incremental", "block_rows": 50, "recluster_depth": 1.5}
        return {
            "a_table.sql": config(materialized="table", cluster_by=LED) + ROWS,
            "alone.sql": config(materialized="table", cluster_by=CURVE) + ROWS,
            "appended.sql": config(cluster_by=CURVE, incremental_strategy="append", **incremental) + ROWS,
            "merged.sql": config(cluster_by=LED, incremental_strategy="merge", unique_key="id", **incremental)
            + ROWS,
            "overwritten.sql": config(
                cluster_by=CURVE, incremental_strategy="insert_overwrite", partition_by="p", **incremental
            )
            + ROWS,
            "batches.sql": config(
                materialized="incremental",
                incremental_strategy="microbatch",
                event_time="ts",
                batch_size="day",
                begin="1970-01-01",
                partition_by="day",
                cluster_by="zorder(k, id)",
            )
            + "select *, cast(ts as date) as day from {{ ref('raw') }}",
            "raw.sql": config(materialized="table", event_time="ts") + ROWS,
        }

    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {
            "history.sql": "{% snapshot history %}"
            + config(
                strategy="check", unique_key="id", check_cols=["k"], cluster_by="hilbert(dbt_valid_from, id)"
            )
            + "select * from {{ ref('a_table') }}{% endsnapshot %}"
        }

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {
            "days.csv": "day,name\n2026-01-03,it's\n2026-01-01,\n2026-01-02,100%\n",
            "days.yml": "seeds: [{name: days, config: {cluster_by: 'hilbert(months(day), name)', "
            "column_types: {day: date, name: string}}}]",
        }

    @pytest.mark.thorough
    def test_all(self, project: Any, sql: Any, key: Any, listed: Any) -> None:
        keys = {
            "a_table": LED_KEY,
            "alone": CURVE,
            "appended": CURVE,
            "merged": LED_KEY,
            "overwritten": CURVE,
            "batches": CURVE,
            "history": "hilbert(dbt_valid_from, id)",
            "days": "hilbert(months(day), name)",
        }
        inserted = ["batches", "overwritten"]  # and partitioned
        snapshots = 0
        times = ["--event-time-start", "1970-01-01", "--event-time-end", "1970-01-05"]
        for attempt in range(2):
            results, log = run_dbt_and_capture(["--log-level", "debug", "build", *times])
            assert {str(result.status) for result in results} == {"success"}
            assert log.count("zorder is taken for hilbert, so the cluster key is hilbert(k, id)") == 1
            for table, expected in keys.items():
                assert key(table) == expected
                order = "p ASC NULLS FIRST" if expected == LED_KEY else ""
                assert self.order(sql, table) == order
                distributed = "none" if attempt and table in inserted else "range" if order else None
                assert listed(table).get("write.distribution-mode") == distributed
            altered = [line.split()[2].rpartition(".")[2] for line in log.splitlines() if is_alter(line)]
            # A replaced table gets its sort order back; a curve alone has none, and no statement. Inserts are sorted
            # by the query from the second time on.
            assert sorted(altered) == sorted(["a_table", "days", *(inserted if attempt else ["merged"])])
            counts = [sql(f"select count(*) from {{schema}}.{table}")[0][0] for table in keys]
            assert counts == [300, 300, 300 * (attempt + 1), 300, 300, 300, 300, 3]
            assert len(sql("select * from {schema}.alone.snapshots")) > snapshots
            snapshots = len(sql("select * from {schema}.alone.snapshots"))


def is_alter(line: str) -> bool:
    return line.strip().startswith("alter table")


class TestKeyChanges(Curves):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS}

    @pytest.mark.thorough
    def test_from_a_plain_key_to_a_curve_and_back(
        self, project: Any, sql: Any, key: Any, listed: Any
    ) -> None:
        plain: set[str] = set()
        keys = ["k", "hilbert(k, id)", "hilbert(k, id)", "v, hilbert(id, k)", "v", "hilbert(id, v)", "k"]
        for load, cluster_by in enumerate(keys):
            write_file(EVENTS.replace("'k'", f"{cluster_by!r}"), project.project_root, "models", "events.sql")
            (result,), log = run_load(load, "--log-level", "debug")
            assert result.status == "success"
            assert key("events") == cluster_by
            assert any(map(is_alter, log.splitlines())) is (load in (0, 1, 3, 4, 5, 6))
            changed = load > 0 and cluster_by != keys[load - 1]
            assert (f"cluster_by was {keys[load - 1]}" in result.adapter_response["_message"]) is changed
            rows = sql("select count(*), count(distinct id) from {schema}.events")[0]
            assert rows[:] == (1000 * (load + 1),) * 2
            names = {name for name in listed("events") if not name.startswith("write.metadata.metrics")}
            if load == 0:
                plain = names
        assert names - {"recluster.levels", "recluster.checkpoint"} <= plain
        assert listed("events")["write.distribution-mode"] == "range"

    @pytest.mark.thorough
    def test_taken_away(self, project: Any, key: Any, listed: Any) -> None:
        for load, cluster_by in enumerate(["hilbert(k, id)", "v, hilbert(k, id)"]):
            text = EVENTS.replace("'k'", f"{cluster_by!r}")
            write_file(text, project.project_root, "models", "events.sql")
            run_load(load)
            assert key("events") == cluster_by
            text = EVENTS.replace("cluster_by='k', ", "")
            write_file(text, project.project_root, "models", "events.sql")
            run_load(load)
            assert key("events") is None
            left = {name for name in listed("events") if name.startswith("recluster.")}
            assert left <= {"recluster.checkpoint"}


class TestWrongCurves(Curves):
    WRONG = {  # noqa: RUF012
        "one": ("hilbert(id)", "cluster_by item hilbert(id): a curve has two to four columns, not 1"),
        "none": ("hilbert()", "cluster_by item hilbert(): a curve has two to four columns, not 0"),
        "five": ("hilbert(id, ts, s.f, t, u)", "a curve has two to four columns, not 5"),
        "inside": ("hilbert(id, hilbert(ts, t))", "cluster_by item hilbert(ts, t): a curve is the last item"),
        "not_last": (["hilbert(id, ts)", "t"], "cluster_by item hilbert(id, ts): a curve is the last item"),
        "two_curves": (["hilbert(id, ts)", "zorder(t, u)"], "a curve is the last item"),
        "twice": ("hilbert(id, ID)", "cluster_by names id twice"),
        "twice_led": (["days(ts)", "hilbert(id, ts)"], "cluster_by names ts twice, once on a curve"),
        "a_map": ("hilbert(id, m)", "cluster_by item m: a column of type map<int,int> has no order"),
        "an_array": ("hilbert(a, id)", "cluster_by item a: a column of type array<int> has no order"),
        "a_struct": ("zorder(id, s)", "cluster_by item s: a column of type struct<f:int> has no order"),
        "unknown": ("hilbert(id, nope)", "cluster_by item nope: there is no column 'nope'"),
        "transform": ("hilbert(days(id), t)", "days(id): id is int, and this expression needs date"),
        "bucket": (
            "hilbert(bucket(4, id), t)",
            "cluster_by item 'bucket(4, id)' is not supported. An item is",
        ),
    }

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        rows = (
            "select 1 as id, timestamp '2026-01-01' as ts, map(1, 1) as m, array(1) as a, "
            "named_struct('f', 1) as s, 't' as t, 'u' as u"
        )
        return {
            f"{name}.sql": config(materialized="table", cluster_by=key) + rows
            for name, (key, _) in self.WRONG.items()
        } | {"there.sql": config(materialized="incremental", cluster_by="{KEY}") + rows}

    def test_an_error_before_any_data_is_written(self, project: Any, sql: Any) -> None:
        results = run_dbt(["run", "--exclude", "there"], expect_pass=False)
        messages = {result.node.name: str(result.message) for result in results}
        for name, (_, text) in self.WRONG.items():
            assert text in messages[name], messages[name]
            assert name in messages[name]  # the model
        assert "hilbert(a, b)" in messages["bucket"]
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []

    @pytest.mark.thorough
    def test_a_table_that_is_there_stays_as_it_is(self, project: Any, spark: Any) -> None:
        text = self.models_text(project)
        write_file(text.replace("{KEY}", "hilbert(id, t)"), project.project_root, "models", "there.sql")
        run_dbt(["run", "--select", "there"])
        table = IcebergTable.load(spark, f"{project.test_schema}.there")
        before = table.metadata_file
        for wrong, _ in self.WRONG.values():
            write_file(text.replace("'{KEY}'", repr(wrong)), project.project_root, "models", "there.sql")
            run_dbt(["run", "--select", "there"], expect_pass=False)
            table.refresh()
            assert table.metadata_file == before

    @staticmethod
    def models_text(project: Any) -> str:
        with open(f"{project.project_root}/models/there.sql") as file:
            return file.read()


class TestSortedLoads(Curves):
    """From the second load on, for the first recluster draws the boundaries."""

    SQL = (
        "select cast(id + 5000 * {{ var('load', 0) }} as bigint) as id, pmod(xxhash64(id, {{ var('load', 0) }}), 997) "
        "as k, id % 3 as p from range(5000)"
    )
    MODELS: dict[str, dict[str, Any]] = {  # noqa: RUF012
        "appended": {"cluster_by": CURVE},
        "led": {"cluster_by": ["p", "hilbert(k, id)"]},
        "parted": {"cluster_by": CURVE, "partition_by": ["p"]},
        "buckets": {"cluster_by": CURVE, "partition_by": "bucket(2, p)"},
        "overwritten": {"cluster_by": CURVE, "incremental_strategy": "insert_overwrite", "partition_by": "p"},
        "replaced": {"cluster_by": CURVE, "materialized": "table"},
        "merged": {"cluster_by": CURVE, "incremental_strategy": "merge", "unique_key": "id"},
        "unsorted": {"cluster_by": CURVE, "sort_on_load": False},
    }
    SORTED = ("appended", "led", "parted", "overwritten", "replaced")

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            f"{name}.sql": config(**{"materialized": "incremental", **items}) + self.SQL
            for name, items in self.MODELS.items()
        }

    @pytest.mark.thorough
    def test_they_are_along_the_curve(self, project: Any, sql: Any, spark: Any, listed: Any) -> None:
        results, log = run_load(0, "--log-level", "debug")
        assert {str(result.status) for result in results} == {"success"}
        assert log.count("order by") == 1  # `led`, by the column before its curve
        for load in (1, 2):
            vars_ = json.dumps({"load": load, "automatic_clustering": False})
            results, log = run_dbt_and_capture(["run", "--vars", vars_, "--log-level", "debug"])
            assert {str(result.status) for result in results} == {"success"}
            assert log.count("order by") == len(self.SORTED)
            altered = {line.split()[2].rpartition(".")[2] for line in log.splitlines() if is_alter(line)}
            assert altered == ({"led", "parted", "overwritten"} if load == 1 else set())
            for name in self.MODELS:
                self.check(project, sql, spark, name, load)
        modes = {name: listed(name).get("write.distribution-mode") for name in self.MODELS}
        assert modes == {
            **dict.fromkeys(self.MODELS),
            **dict.fromkeys(["led", "parted", "overwritten"], "none"),
        }

    def check(self, project: Any, sql: Any, spark: Any, name: str, load: int) -> None:
        keeps = name not in ("overwritten", "replaced")
        rows = sql(f"select count(*), count(distinct id), sum(id) from {{schema}}.{name}")[0]
        ids = range(0 if keeps else 5000 * load, 5000 * (load + 1))
        assert rows[:] == (len(ids), len(ids), sum(ids))
        table = ClusteredTable(spark, f"{project.test_schema}.{name}")
        assert table.curve is not None
        loaded = sql(
            f"select p, k, id, _file, _pos from {{schema}}.{name} where id >= {5000 * load} order by _file, _pos"
        )
        columns = [
            pa.array([row[field.column] for row in loaded], pa.int64()) for field in table.key.on_curve
        ]
        places = table.curve.index_of_load(columns).tolist()
        order = [(row._file, row.p if name in ("led", "parted", "overwritten") else 0, place)
                 for row, place in zip(loaded, places, strict=True)]  # fmt: skip
        within = sum(left <= right for left, right in pairwise(order)) / len(order)
        assert (within > 0.999) is (name in self.SORTED), (name, within)


class TestFromLoadToRecluster(Curves):
    """Loads in no order are reclustered along the curve, and both columns skip blocks."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": EVENTS.replace("'k'", "'hilbert(k, id)'").replace(
                "block_rows=500", "block_rows=100"
            )
        }

    def test_three_runs(self, project: Any, sql: Any, spark: Any) -> None:
        name, rewritten = f"{project.test_schema}.events", 0
        for load in range(3):
            (result,), _ = run_load(load)
            rewritten += result.adapter_response.get("blocks_rewritten", 0)
            assert result.adapter_response["average_depth"] <= 2.1  # merges begin 5 % above the threshold
            rows = sql("select count(*), count(distinct id), sum(id) from {schema}.events")[0]
            ids = range(1000 * (load + 1))
            assert rows[:] == (len(ids), len(ids), sum(ids))
        assert rewritten > 0
        information = clustering_information(spark, name)
        assert information["cluster_key"] == "hilbert(k, id)"
        blocks = information["total_block_count"]
        assert blocks > 10
        for where in ("k between 500 and 510", "id between 500 and 530"):
            assert blocks_opened(spark, name, where) < blocks / 2
        run_dbt(["run-operation", "clustering_information", "--args", "{table: events}"])
        run_dbt(["run-operation", "recluster", "--args", "{table: events, final: true, depth: 1.5}"])
        assert sql("select count(*), sum(id) from {schema}.events")[0][:] == (3000, sum(range(3000)))
