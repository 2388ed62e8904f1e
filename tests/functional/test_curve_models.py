"""Keys with a curve through dbt: ``cluster_by: hilbert(a, b)``."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from clustered_models import EVENTS, Clustering, days, models_of, run_load, snapshot
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from tables import metadata_file

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
        return lambda table: self.properties(sql, table)


class TestMaterializations(Curves):
    """Each twice, one by a curve alone and one by a curve behind a column where that differs."""

    SMALL = {"block_rows": 50, "recluster_depth": 1.5}
    BATCHES = {
        "incremental_strategy": "microbatch",
        "event_time": "ts",
        "batch_size": "day",
        "begin": "1970-01-01",
    }
    MODELS = models_of(
        ROWS,
        a_table={"materialized": "table", "cluster_by": LED},
        alone={"materialized": "table", "cluster_by": CURVE},
        appended={"cluster_by": CURVE, "incremental_strategy": "append", **SMALL},
        merged={"cluster_by": LED, "incremental_strategy": "merge", "unique_key": "id", **SMALL},
        overwritten={
            "cluster_by": CURVE,
            "incremental_strategy": "insert_overwrite",
            "partition_by": "p",
            **SMALL,
        },
        raw={"materialized": "table", "event_time": "ts"},
    ) | models_of(
        "select *, cast(ts as date) as day from {{ ref('raw') }}",
        batches={"partition_by": "day", "cluster_by": "zorder(k, id)", **BATCHES},
    )
    SNAPSHOTS = snapshot("history", "a_table", ["k"], cluster_by="hilbert(dbt_valid_from, id)")
    SEEDS = days("hilbert(months(day), name)")

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
    """From key to key, plain or with a curve, and to none; each change is told once, on the model's line."""

    MODELS = {"events.sql": EVENTS}

    @pytest.mark.thorough
    def test_every_change_on_the_next_run(self, project: Any, sql: Any, key: Any, listed: Any) -> None:
        curve, plain = "hilbert(k, id)", set[str]()
        keys = ["k", "days(ts), k", None, curve, curve, "v, hilbert(id, k)", "v", "hilbert(id, v)", "k"]
        keys += [curve, None, "v, hilbert(k, id)", None, "v", "k"]
        for load, (before, cluster_by) in enumerate(zip([None, *keys], keys, strict=False)):
            given = "" if cluster_by is None else f"cluster_by={cluster_by!r}, "
            text = EVENTS.replace("cluster_by='k', ", given)
            write_file(text, project.project_root, "models", "events.sql")
            last = load == len(keys) - 1
            variables = json.dumps({"load": load, "automatic_clustering": not last})
            (result,), log = run_load(load, "--log-level", "debug", "--vars", variables)
            assert (result.status, key("events")) == ("success", cluster_by)
            assert any(map(is_alter, log.splitlines())) is (load == 0 or cluster_by != before)
            message, changed = result.adapter_response["_message"], before not in (None, cluster_by)
            removed = f"cluster_by removed, was {before}: no longer sorted or reclustered"
            assert (removed in message) is (changed and cluster_by is None)
            assert (f"cluster_by was {before}" in message) is (changed and cluster_by is not None)
            rows = sql("select count(*), count(distinct id) from {schema}.events")[0]
            assert rows[:] == (1000 * (load + 1),) * 2
            names = {name for name in listed("events") if not name.startswith("write.metadata.metrics")}
            plain = plain or names
            if cluster_by is None:
                left = {name for name in names if name.startswith("recluster.") or name == "sort-order"}
                assert left <= ({"recluster.checkpoint"} if load > 2 else set())
        assert "cluster_by was v, depth now " in message
        assert names - {"recluster.levels", "recluster.checkpoint"} <= plain
        assert listed("events")["write.distribution-mode"] == "range"


class TestWrongCurves(Curves):
    SQL = (
        "select 1 as id, timestamp '2026-01-01' as ts, map(1, 1) as m, array(1) as a, "
        "named_struct('f', 1) as s, 't' as t, 'u' as u"
    )
    WRONG = {
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
        return models_of(
            self.SQL, "table", **{name: {"cluster_by": key} for name, (key, _) in self.WRONG.items()}
        )

    def test_an_error_before_any_data_is_written(self, project: Any, sql: Any) -> None:
        results = run_dbt(["run"], expect_pass=False)
        messages = {result.node.name: str(result.message) for result in results}
        for name, (_, text) in self.WRONG.items():
            assert text in messages[name], messages[name]
            assert name in messages[name]  # the model
        assert "hilbert(a, b)" in messages["bucket"]
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []

    def test_a_table_that_is_there_stays_as_it_is(self, project: Any, run: Any, spark: Any) -> None:
        run("there", self.SQL, cluster_by="hilbert(id, t)")
        before = metadata_file(spark, f"{project.test_schema}.there")
        for name in ("one", "a_map", "unknown"):
            run("there", self.SQL, passes=False, cluster_by=self.WRONG[name][0])
            assert metadata_file(spark, f"{project.test_schema}.there") == before


class TestSortedLoads(Curves):
    """From the second load on, for the first recluster draws the boundaries."""

    SQL = (
        "select cast(id + 5000 * {{ var('load', 0) }} as bigint) as id, pmod(xxhash64(id, {{ var('load', 0) }}), 997) "
        "as k, id % 3 as p from range(5000)"
    )
    CONFIGS: dict[str, dict[str, Any]] = {
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

    MODELS = models_of(SQL, **CONFIGS)

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
            for name in self.CONFIGS:
                self.check(project, sql, spark, name, load)
        modes = {name: listed(name).get("write.distribution-mode") for name in self.CONFIGS}
        assert modes == {
            **dict.fromkeys(self.CONFIGS),
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

    MODELS = {
        "events.sql": EVENTS.replace("'k'", "'hilbert(k, id)'").replace("block_rows=500", "block_rows=100")
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
