"""clustering_information, clustering_depth and clustering_ratio, as users call them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from dbt.cli.main import dbtRunner
from operations import EVENTS, PLAIN, Operations, operate, operate_json

from dbt_recluster.maintenance import clustering_depth, clustering_information, clustering_ratio


class TestInformation(Operations):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        a_view = "{{ config(materialized='view') }} select 1 as id"
        return {"events.sql": EVENTS, "plain.sql": PLAIN, "a_view.sql": a_view}

    def test_for_people(self, project: Any, table: str) -> None:
        log = operate("clustering_information", "{table: events}")
        assert f"{table} by k\n" in log
        lines = log.partition(f"{table} by k\n")[2].splitlines()
        assert lines[0].split() == ["depth", "4", "of", "4,", "well", "clustered"]
        assert not any("depth" in line for line in lines[1:] if "depth  blocks" not in line)
        assert "  depth  blocks\n      4       4  " in log

    def test_for_programs(self, project: Any, table: str, spark: Any) -> None:
        found = operate_json("clustering_information", "{table: events, format: json}")
        assert found == clustering_information(spark, table, block_rows=500)
        assert found["cluster_key"] == "k"
        assert (found["average_depth"], found["threshold"], found["verdict"]) == (4, 4, "well clustered")
        assert found["block_depth_histogram"] == {"00004": 4}
        assert found["snapshot_at"].endswith("+00:00")
        listed = operate_json("clustering_information", f"{{table: [events, {table}], format: json}}")
        assert listed == [found, found]

    def test_another_key_and_a_predicate(self, project: Any, table: str, spark: Any) -> None:
        found = operate_json(
            "clustering_information",
            "{table: events, cluster_by: [id, k], where: 'id < 1500', format: json}",
        )
        assert (found["cluster_key"], found["total_block_count"], found["average_depth"]) == ("id, k", 2, 1)
        assert clustering_depth(spark, table, "id") == 1
        assert clustering_ratio(spark, table, "id") == 100

    def test_single_numbers(self, project: Any, table: str) -> None:
        assert f"{table} by k: 4\n" in operate("clustering_depth", "{table: events}")
        assert f"{table} by k: 39.794\n" in operate("clustering_ratio", "{table: events}")
        assert operate_json("clustering_depth", "{table: events, format: json}") == {
            "table": table,
            "cluster_key": "k",
            "suspended": None,
            "suspension": None,
            "average_depth": 4.0,
        }

    def test_every_clustered_model(self, project: Any, table: str) -> None:
        assert [each["table"] for each in operate_json("clustering_depth", "{format: json}")] == [table]

    def test_a_table_without_blocks(self, project: Any, sql: Any, spark: Any) -> None:
        sql("create table {schema}.empty (k int) using iceberg")
        name = f"{project.test_schema}.empty"
        assert "never written" in operate("clustering_information", f"{{table: {name}, cluster_by: k}}")
        assert clustering_information(spark, name, "k")["snapshot_id"] is None
        log = operate("clustering_depth", f"{{table: {name}, cluster_by: k, where: nope = 1}}", passes=False)
        assert "'nope = 1' cannot choose blocks" in log

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: nope}", "nope is no model, seed or snapshot of this project"),
            ("{table: no.table}", "no.table cannot be loaded"),
            (
                "{table: plain}",
                "plain has no cluster key: neither the property recluster.cluster_by nor a sort order",
            ),
            ("{table: events, cluster_by: nope}", "nope: there is no column 'nope'; the columns are id, k"),
            ("{table: events, cluster_by: {a: 1}}", "cluster_by must be a string or a list of strings"),
            ("{table: events, where: 7}", "where must be a SQL predicate"),
            ("{table: events, where: 'nope > 1'}", "'nope > 1' cannot choose blocks"),
            ("{table: events, format: xml}", "format must be text or json, not 'xml'"),
            (
                "{tables: events}",
                "has no argument 'tables'; did you mean table?",
            ),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        for name in ("clustering_information", "clustering_depth", "clustering_ratio"):
            assert message in operate(name, arguments, passes=False)

    def test_names_that_are_nearly_right(self, project: Any) -> None:
        for wrong, right in {
            "clustering_dept": "clustering_depth",
            "reclster": "recluster",
            "frobnicate": "",
        }.items():
            said: list[str] = []
            dbtRunner(callbacks=[lambda event, said=said: said.append(event.info.msg)]).invoke(
                ["run-operation", wrong]
            )
            assert (f"did you mean {right}?" in "\n".join(said)) == bool(right)
        log = operate("clustering_depth", "{table: a_view}", passes=False)
        assert "a_view is a view, which has no blocks of its own" in log

    def test_the_lake_is_no_part_of_a_repository(self, lake: Path, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
        status = [
            "git",
            "--work-tree",
            str(lake.parent),
            "status",
            "--porcelain",
            "--ignored",
            "--",
            f":/{lake.name}",
        ]
        done = subprocess.run(status, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("!! ")
        assert len(done.stdout.splitlines()) == 1

    def test_the_others_have_their_turn(self, project: Any, table: str) -> None:
        log = operate("clustering_depth", "{table: [no.table, events]}", passes=False)
        assert f"{table} by k: 4\n" in log
        assert "no.table cannot be loaded" in log
