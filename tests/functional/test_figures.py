"""clustering_information, clustering_depth and clustering_ratio, as users call them, in dbt docs, and as a test."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dbt.cli.main import dbtRunner
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from operations import EVENTS, PLAIN, Operations, operate, operate_json

from dbt_recluster.api import (
    OPERATIONS,
    clustering_depth,
    clustering_information,
    clustering_ratio,
    recluster,
)

OF_FILE = """
models:
  - name: events
    meta: {recluster: {max_seconds: 900}}
"""


class TestInformation(Operations):
    MODELS = {
        "events.sql": EVENTS,
        "plain.sql": PLAIN,
        "models.yml": OF_FILE,
    }
    PROJECT_CONFIG_UPDATE = {
        "models": {"+recluster_strategy": "payback", "+block_rows": 7, "+recluster_max_bytes": "9 GB"}
    }

    def test_the_options_in_effect_have_their_origins(self, table: str, spark: Any) -> None:
        """The model's SQL and properties file, its folder, the run, and without the model the table."""
        expected = {
            "cluster_by": ("cluster_by", "k", "model"),
            "automatic_clustering": ("automatic_clustering", False, "model"),
            "block_rows": ("block_rows", 500, "model"),
            "max_seconds": ("meta.recluster.max_seconds", 900, "model"),
            "strategy": ("recluster_strategy", "payback", "dbt_project.yml"),
            "max_bytes": ("recluster_max_bytes", "9 GB", "dbt_project.yml"),
            "final": ("recluster_final", "false", "default"),
        }
        found = operate_json("clustering_information", "{table: events, format: json}")["options"]
        assert {name: tuple(found[name].values()) for name in expected} == expected
        log = operate("clustering_information", "{table: events}", more=("--vars", "recluster_max_bytes: 1 GB"))
        shown = [line.split() for line in log.splitlines()]
        assert ["recluster_max_bytes", "1073741824", "(var)"] in shown
        assert ["recluster_strategy", "payback", "(dbt_project.yml)"] in shown
        assert ["All", "other", "options", "have", "their", "defaults."] in shown
        assert "recluster_final" not in log
        off = "automatic_clustering: false"
        log = operate("clustering_information", "{table: events}", more=("--vars", off)).split()
        assert log[log.index("automatic_clustering") + 2] == "(var)"
        given = clustering_information(spark, table, block_rows=800)["options"]
        assert given["max_seconds"] == {
            "name": "recluster.option.max_seconds",
            "value": "900",
            "origin": "table property",
        }
        assert (given["block_rows"]["value"], given["block_rows"]["origin"]) == (800, "argument")
        assert given["cluster_by"]["origin"] == "table property"
        assert "sort_on_load" not in given

    def test_information_is_text_for_people(self, table: str) -> None:
        log = operate("clustering_information", "{table: events}")
        lines = log.partition(f"{table} by k\n")[2].splitlines()
        assert lines[0].split() == ["depth", "4.0,", "at", "most", "4,", "well", "clustered"]
        assert not any("depth" in line for line in lines[1:] if "depth  blocks" not in line)
        assert "  depth  blocks\n      4       4  " in log
        assert f"{table} by k: average depth 4.0\n" in operate("clustering_depth", "{table: events}")
        assert f"{table} by k: clustering ratio 39.8\n" in operate("clustering_ratio", "{table: events}")

    def test_information_as_json_is_that_of_the_function(self, table: str, spark: Any) -> None:
        found = operate_json("clustering_information", "{table: events, format: json}")
        measured = clustering_information(spark, table, block_rows=500)
        assert found == {**measured, "options": found["options"]}
        assert found["cluster_key"] == "k"
        assert (found["average_depth"], found["threshold"], found["verdict"]) == (4, 4, "well clustered")
        assert found["block_depth_histogram"] == {"00004": 4}
        assert found["snapshot_at"].endswith("+00:00")
        listed = operate_json("clustering_information", f"{{table: [events, {table}], format: json}}")
        assert listed == [found, found]
        (depth,) = operate_json("clustering_depth", "{format: json}")  # of every clustered model
        assert (depth["table"], depth["average_depth"], depth["suspended"]) == (table, 4.0, None)

    def test_information_measures_another_key_within_a_predicate(self, table: str, spark: Any) -> None:
        arguments = "{table: events, cluster_by: [id, k], where: 'id < 1500', format: json}"
        found = operate_json("clustering_information", arguments)
        assert (found["cluster_key"], found["total_block_count"], found["average_depth"]) == ("id, k", 2, 1)
        assert clustering_depth(spark, table, "id")["average_depth"] == 1
        assert clustering_ratio(spark, table, "id")["clustering_ratio"] == 100

    def test_information_of_an_unwritten_table_says_never_written(self, project: Any, sql: Any, spark: Any) -> None:
        sql("create table {schema}.empty (k int) using iceberg")
        name = f"{project.test_schema}.empty"
        assert "never written" in operate("clustering_information", f"{{table: {name}, cluster_by: k}}")
        assert clustering_information(spark, name, "k")["snapshot_id"] is None
        log = operate("clustering_depth", f"{{table: {name}, cluster_by: k, where: nope = 1}}", passes=False)
        assert "'nope = 1' cannot choose blocks" in log

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: plain}", "plain has no cluster key: neither the property recluster.cluster_by nor a"),
            ("{table: events, cluster_by: nope}", "nope: there is no column 'nope'; the columns are id, k"),
            ("{table: events, format: xml}", "format must be text or json, not 'xml'"),
        ],
    )
    def test_information_refuses_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("clustering_information", arguments, passes=False)

    @pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"import_reads"}))
    def test_every_operation_names_a_table_that_it_cannot_load(self, project: Any, name: str) -> None:
        assert "no.table cannot be loaded" in operate(name, "{table: no.table}", passes=False)

    @pytest.mark.parametrize(("wrong", "right"), [("reclster", "recluster"), ("frobnicate", "")])
    def test_a_misspelt_operation_is_answered_with_the_nearest_name(self, project: Any, wrong: str, right: str) -> None:
        said: list[str] = []
        listener = dbtRunner(callbacks=[lambda event: said.append(event.info.msg)])
        listener.invoke(["run-operation", wrong])
        assert (f"did you mean {right}?" in "\n".join(said)) == bool(right)

    @pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
    def test_the_lake_is_no_part_of_a_repository(self, lake: Path, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
        status = ["git", "--work-tree", str(lake.parent), "status", "--porcelain", "--ignored", "--"]
        status.append(f":/{lake.name}")
        done = subprocess.run(status, cwd=tmp_path, capture_output=True, text=True, check=True)
        (line,) = done.stdout.splitlines()
        assert line.startswith("!! ")


class TestCatalog(Operations):
    LOADS = 2
    MODELS = {
        "events.sql": EVENTS,
        "other.sql": EVENTS.replace("'k'", "['id', 'k']"),
        "curved.sql": EVENTS.replace("'k'", "'hilbert(id, k)'"),
        "plain.sql": PLAIN,
    }

    @pytest.mark.thorough
    def test_the_catalog_of_dbt_docs_has_the_statistics(self, project: Any, table: str, spark: Any) -> None:
        recluster(spark, table, depth=1, block_rows=500)
        run_dbt(["docs", "generate"])
        catalog = json.loads((Path(project.project_root) / "target" / "catalog.json").read_text())
        stats = {
            name.rpartition(".")[2]: {key: stat["value"] for key, stat in node["stats"].items()}
            for name, node in catalog["nodes"].items()
        }
        assert stats["events"]["cluster_key"] == "k"
        assert stats["events"]["block_count"] == clustering_information(spark, table)["total_block_count"]
        assert stats["events"]["last_recluster"].endswith(" UTC")
        assert (stats["other"]["cluster_key"], stats["other"]["average_depth"]) == ("id, k", 1)
        assert (stats["other"]["clustering_ratio"], stats["other"]["last_recluster"]) == (100, "never")
        assert "block_count" not in stats["plain"]
        curve = clustering_information(spark, f"{project.test_schema}.curved")["curve"]
        opened = [*curve["point_blocks"].values(), curve["box_blocks"]]
        assert [stats["curved"][f"opened_{number}"] for number in range(3)] == opened
        assert "opened_0" not in stats["events"]
        assert set(catalog["nodes"]["model.test.events"]["columns"]) == {"id", "k", "ts", "v"}


PROPERTIES = """
models:
  - name: events
    data_tests:
      - well_clustered: {name: model_passes, arguments: {max_average_depth: 4, max_p95_depth: 4, min_ratio: 39}}
      - well_clustered: {name: model_fails, arguments: {max_average_depth: 3.5, max_p95_depth: 3, min_ratio: 40}}
      - well_clustered: {name: other_key, arguments: {max_average_depth: 1, cluster_by: id, predicate: id < 2000}}
      - well_clustered: {name: warns, arguments: {max_average_depth: 1}, config: {severity: warn}}
sources:
  - name: lake
    schema: "{{ target.schema }}"
    tables:
      - name: loaded
        data_tests:
          - well_clustered: {name: good, arguments: {max_average_depth: 2, max_fragmentation: 2, cluster_by: [k]}}
          - well_clustered: {name: bad, arguments: {max_average_depth: 1, max_fragmentation: 1.9, cluster_by: [k]}}
"""
LIMITS = "max_average_depth, max_p95_depth, max_fragmentation, min_ratio"
WRONG = {
    "config: {}": f"well_clustered needs a limit: {LIMITS}",
    "arguments: {max_average_depth: 0}": "max_average_depth must be a number of at least 1, not 0",
    "arguments: {min_ratio: 1, predicate: nope = 1}": "'nope = 1' cannot choose blocks",
    "arguments: {max_averge_depth: 3}": "has no argument 'max_averge_depth'; did you mean max_average_depth?",
    "arguments: {min_ratio: 1}, config: {where: id < 3}": "use its argument `predicate`",
}


class TestWellClustered(Operations):
    MODELS = {"events.sql": EVENTS, "properties.yml": PROPERTIES}

    @pytest.fixture(scope="class", autouse=True)
    def source(self, project: Any, loaded: None) -> None:
        table = f"{project.test_schema}.loaded"
        project.run_sql(f"create table {table} (k int) using iceberg")
        for _ in range(2):
            project.run_sql(f"insert into {table} select /*+ coalesce(1) */ * from values (1), (9)")

    def test_well_clustered_fails_beyond_a_limit(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["test"], expect_pass=False)
        assert f"{project.test_schema}.events by k: max_average_depth is 3.5, and it has 4\n" in log
        assert f"{project.test_schema}.loaded by k: max_average_depth is 1, and it has 2\n" in log
        found = {result.node.name: (str(result.status), result.failures) for result in results}
        assert found == {
            "model_passes": ("pass", 0),
            "model_fails": ("fail", 3),
            "other_key": ("pass", 0),
            "warns": ("warn", 1),
            "good": ("pass", 0),
            "bad": ("fail", 2),
        }

    def test_well_clustered_refuses_wrong_arguments(self, project: Any) -> None:
        wrong = [f"{{well_clustered: {{name: wrong_{n}, {given}}}}}" for n, given in enumerate(WRONG)]
        text = f"models: [{{name: events, data_tests: [{', '.join(wrong)}]}}]"
        write_file(text, project.project_root, "models", "properties.yml")
        results, _ = run_dbt_and_capture(["test"], expect_pass=False)
        messages = {result.node.name: result.message for result in results}
        for number, message in enumerate(WRONG.values()):
            assert message in messages[f"wrong_{number}"]
