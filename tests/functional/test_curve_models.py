"""Keys with a curve through dbt: ``cluster_by: hilbert(a, b)``."""

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from clustered_models import EVENTS, Clustering, models_of, run_load
from dbt.tests.util import write_file

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import table_cluster_key

CURVE = "hilbert(k, id)"


def is_alter(line: str) -> bool:
    return line.strip().startswith("alter table")


class TestKeyChanges(Clustering):
    """From key to key, plain or with a curve, and to none; each change is told once, on the model's line."""

    MODELS = {"events.sql": EVENTS}

    @pytest.mark.thorough
    def test_a_changed_key_is_applied_on_the_next_run(self, project: Any, sql: Any, spark: Any) -> None:
        curve, plain = "hilbert(k, id)", set[str]()
        keys = ["k", "days(ts), k", None, curve, curve, "v, hilbert(id, k)", None, "v", "k"]
        for load, (before, cluster_by) in enumerate(zip([None, *keys], keys, strict=False)):
            given = "" if cluster_by is None else f"cluster_by={cluster_by!r}, "
            text = EVENTS.replace("cluster_by='k', ", given)
            write_file(text, project.project_root, "models", "events.sql")
            last = load == len(keys) - 1
            variables = json.dumps({"load": load, "automatic_clustering": not last})
            (result,), log = run_load(load, "--log-level", "debug", "--vars", variables)
            key = table_cluster_key(IcebergTable.load(spark, f"{project.test_schema}.events"))
            assert (result.status, key and str(key)) == ("success", cluster_by)
            assert any(map(is_alter, log.splitlines())) is (load == 0 or cluster_by != before)
            message, changed = result.adapter_response["_message"], before not in (None, cluster_by)
            removed = f"cluster_by removed, was {before}: no longer sorted or reclustered"
            assert (removed in message) is (changed and cluster_by is None)
            assert (f"cluster_by was {before}" in message) is (changed and cluster_by is not None)
            rows = sql("select count(*), count(distinct id) from {schema}.events")[0]
            assert rows[:] == (1000 * (load + 1),) * 2
            names = {name for name in self.properties(sql, "events") if not name.startswith("write.metadata.metrics")}
            plain = plain or names
            if cluster_by is None:
                left = {name for name in names if name.startswith("recluster.") or name == "sort-order"}
                assert left <= ({"recluster.checkpoint"} if load > 2 else set())
        assert "cluster_by was v, depth now " in message
        assert names - {"recluster.levels", "recluster.checkpoint"} <= plain
        assert self.properties(sql, "events")["write.distribution-mode"] == "range"


class TestSortedLoads(Clustering):
    """From the second load on, for the first recluster draws the boundaries."""

    SQL = (
        "select cast(id + 5000 * {{ var('load', 0) }} as bigint) as id, pmod(xxhash64(id, {{ var('load', 0) }}), 997) "
        "as k, id % 3 as p from range(5000)"
    )
    CONFIGS: dict[str, dict[str, Any]] = {
        "appended": {"cluster_by": "zorder(k, id)"},
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
    def test_loads_are_sorted_along_the_curve(self, project: Any, sql: Any, spark: Any) -> None:
        _, log = run_load(0, "--log-level", "debug")
        assert log.count("order by") == 1  # `led`, by the column before its curve
        assert log.count("zorder is treated as hilbert, so the cluster key is hilbert(k, id)") == 1
        distributed = {"led", "parted", "overwritten"}
        for load in (1, 2):
            vars_ = json.dumps({"load": load, "automatic_clustering": False})
            _, log = run_load(load, "--vars", vars_, "--log-level", "debug")
            assert log.count("order by") == len(self.SORTED)
            altered = {line.split()[2].rpartition(".")[2] for line in log.splitlines() if is_alter(line)}
            assert altered == (distributed if load == 1 else set())
            for name in self.CONFIGS:
                self.check(project, sql, spark, name, load)
        for name in self.CONFIGS:
            mode = "none" if name in distributed else None
            assert self.properties(sql, name).get("write.distribution-mode") == mode

    def check(self, project: Any, sql: Any, spark: Any, name: str, load: int) -> None:
        keeps = name not in ("overwritten", "replaced")
        rows = sql(f"select count(*), count(distinct id), sum(id) from {{schema}}.{name}")[0]
        ids = range(0 if keeps else 5000 * load, 5000 * (load + 1))
        assert rows[:] == (len(ids), len(ids), sum(ids))
        table = ClusteredTable(spark, f"{project.test_schema}.{name}")
        assert table.key_curve.current is not None
        loaded = sql(
            f"select p, k, id, _file, _pos from {{schema}}.{name} where id >= {5000 * load} order by _file, _pos"
        )
        columns = [pa.array([row[field.column] for row in loaded], pa.int64()) for field in table.key.on_curve]
        places = table.key_curve.current.index_of_load(columns).tolist()
        by_p = name in ("led", "parted", "overwritten")
        order = [(row._file, by_p and row.p, place) for row, place in zip(loaded, places, strict=True)]
        within = sum(left <= right for left, right in pairwise(order)) / len(order)
        assert (within > 0.999) is (name in self.SORTED), (name, within)
