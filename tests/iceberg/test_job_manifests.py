"""The command on the tables of a manifest, whichever dbt has written it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from tables import append, checksum, make_table, metadata_file

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.job.command_line import main
from dbt_recluster.maintenance import clustering_depth


class Project:
    """A manifest of tables that are there."""

    def __init__(self, directory: Path, catalog: str) -> None:
        self.catalog = catalog
        self.path = directory / "manifest.json"
        self.results = directory / "run_results.json"
        self.nodes: dict[str, Any] = {}
        self.adapter = "spark"

    def add(self, name: str, database: str | None = "awsdatacatalog", **config: Any) -> str:
        unique_id = f"model.shop.{name}"
        self.nodes[unique_id] = {
            "unique_id": unique_id,
            "resource_type": "model",
            "name": name,
            "alias": name,
            "database": database,
            "schema": "sales",
            "fqn": ["shop", name],
            "original_file_path": f"models/{name}.sql",
            "depends_on": {"nodes": []},
            "config": {"materialized": "table", **config},
        }
        return unique_id

    def write(self, _arguments: dict[str, Any] | None = None, **statuses: str) -> tuple[str, ...]:
        """Write both files, of a run with some arguments; return the arguments of the command that name them."""

        def metadata(kind: str, version: int) -> dict[str, str]:
            schema = f"https://schemas.getdbt.com/dbt/{kind}/v{version}.json"
            facts = {"generated_at": "2026-01-02", "invocation_id": "a", "adapter_type": self.adapter}
            return {"dbt_schema_version": schema, **facts}

        self.path.write_text(json.dumps({"metadata": metadata("manifest", 12), "nodes": self.nodes}))
        results = [{"unique_id": f"model.shop.{name}", "status": status} for name, status in statuses.items()]
        run = {"metadata": metadata("run-results", 6), "results": results, "args": _arguments or {}}
        self.results.write_text(json.dumps(run))
        return "--manifest", str(self.path), *(("--run-results", str(self.results)) if statuses else ())


@pytest.fixture
def project(tmp_path: Path, hadoop_catalog: str, spark: Any) -> Project:
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return Project(tmp_path, hadoop_catalog)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; returns its exit code, its JSON and standard error."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main([*arguments, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return run


def table(spark: Any, project: Project, name: str) -> str:
    return make_table(spark, f"{project.catalog}.sales", name=name, rows=100)


def names(answer: Any) -> list[str]:
    return [each["table"].rpartition(".")[2] for each in answer["tables"]]


@pytest.mark.thorough
def test_a_build_is_followed_by_one_command(spark: Any, project: Project, run: Any) -> None:
    tables = {name: table(spark, project, name) for name in ("orders", "daily", "failed", "manual", "plain")}
    before = {name: checksum(spark, each) for name, each in tables.items()}
    project.add("orders", cluster_by=["k", "id"], recluster_depth=1)
    project.add("daily", meta={"recluster": {"cluster_by": "k", "depth": 1, "block_rows": 200}})
    project.add("failed", cluster_by="k")
    project.add("manual", cluster_by="k", automatic_clustering=False)
    project.add("plain")
    project.add("a_view", materialized="view", cluster_by="k")
    statuses = {
        "orders": "success",
        "daily": "success",
        "failed": "error",
        "manual": "success",
        "plain": "success",
    }
    chosen = project.write(**statuses)

    code, answer, err = run("recluster", *chosen, "--map", f"awsdatacatalog={project.catalog}")
    assert (code, names(answer)) == (0, ["daily", "orders"])
    assert "1 table of" in err and "left out, by automatic_clustering: false" in err  # noqa: PT018
    keys = {each["table"].rpartition(".")[2]: each["cluster_key"] for each in answer["tables"]}
    assert keys == {"orders": "k, id", "daily": "k"}
    assert all(each["depth_after"] == 1 for each in answer["tables"])
    assert next(each for each in answer["tables"] if each["table"].endswith("daily"))["blocks_out"] == 3
    assert clustering_depth(spark, tables["failed"], "k") > 1
    assert {name: checksum(spark, each) for name, each in tables.items()} == before

    code, answer, err = run(
        "information", *project.write(), "--catalog", project.catalog, "--select", "daily", "model.shop.plain"
    )
    assert (code, names(answer), answer["tables"][0]["average_depth"]) == (0, ["daily"], 1)
    assert "1 table of the selection left out: only what has cluster_by is meant" in err


@pytest.mark.thorough
def test_models_with_a_curve(spark: Any, project: Project, run: Any) -> None:
    tables = {name: table(spark, project, name) for name in ("orders", "daily")}
    before = {name: checksum(spark, each) for name, each in tables.items()}
    project.add("orders", cluster_by="hilbert(k, id)", recluster_depth=1)
    project.add("daily", meta={"recluster": {"cluster_by": ["v", "zorder(id, k)"], "depth": 1}})
    place = ("--catalog", project.catalog)
    code, answer, _ = run("recluster", *project.write(), *place)
    assert (code, names(answer)) == (0, ["daily", "orders"])
    keys = {each["table"].rpartition(".")[2]: each["cluster_key"] for each in answer["tables"]}
    assert keys == {"orders": "hilbert(k, id)", "daily": "v, hilbert(id, k)"}
    assert all(each["blocks_in"] for each in answer["tables"])
    assert {name: checksum(spark, each) for name, each in tables.items()} == before
    files = {name: metadata_file(spark, each) for name, each in tables.items()}
    for wrong in (["hilbert(k, id)", "v"], "hilbert(k)", {"hilbert": ["k", "id"]}, "hilbert(k, nope)"):
        project.add("daily", meta={"recluster": {"cluster_by": wrong}})
        code, answer, err = run("recluster", *project.write(), *place)
        assert code == 2
        assert "daily" in answer["error"] + err
        assert {name: metadata_file(spark, each) for name, each in tables.items()} == files


def test_tables_that_are_missing(spark: Any, project: Project, run: Any) -> None:
    table(spark, project, "orders")
    project.add("orders", cluster_by="k")
    project.add("gone", cluster_by="k")
    place = ("--catalog", project.catalog)
    code, answer, err = run("recluster", *project.write(), *place)
    assert (code, names(answer)) == (0, ["orders"])
    assert f"{project.catalog}.sales.gone is passed over: " in err
    code, answer, err = run("recluster", *project.write(gone="success", orders="success"), *place)
    assert (code, names(answer)) == (1, ["gone", "orders"])
    assert answer["tables"][0]["error"]
    code, answer, err = run("recluster", *project.write(), *place, "--select", "gone", "orders")
    assert (code, names(answer)) == (1, ["gone", "orders"])
    assert f"{project.catalog}.sales.gone" in err
    code, answer, err = run("recluster", *project.write(orders="error"), *place)
    assert (code, answer["tables"]) == (0, [])
    assert "nothing that the run of" in err


@pytest.mark.parametrize("adapter", ["trino", "athena", "spark"])
def test_names_are_folded_as_the_adapter_folds_them(
    spark: Any, project: Project, run: Any, adapter: str
) -> None:
    """Trino and Athena know lower case only, and dbt's manifest has what the model says."""
    made = make_table(spark, f"{project.catalog}.`my-mart`", name="orders", rows=100)
    project.adapter = adapter
    node = project.nodes[project.add("Orders", database="Lake", cluster_by="k", recluster_depth=1)]
    node |= {"schema": "My-Mart", "relation_name": '"Lake"."My-Mart"."Orders"'}
    reader = project.nodes[project.add("report")]
    reader |= {
        "compiled_code": 'select * from "Lake"."My-Mart"."Orders" where "k" = 7',
        "depends_on": {"nodes": ["model.shop.Orders"]},
    }
    chosen = (*project.write(Orders="success"), "--map", f"Lake={project.catalog}")
    code, answer, err = run("recluster", *chosen)
    if adapter == "spark":
        assert (code, "My-Mart" in answer["error"]) == (2, True)
        return
    assert (code, answer["tables"][0]["depth_after"], made in answer["tables"][0]["table"]) == (0, 1, True), (
        err
    )
    assert run("import-reads", *chosen)[1]["tables"][0]["recorded"] == 1
    project.nodes[project.add("orders", database="lake", cluster_by="k")]["schema"] = "my-mart"
    code, answer, _ = run("recluster", *project.write())
    assert (code, "have one table, lake.`my-mart`.orders" in answer["error"]) == (2, True)


def test_a_table_that_spark_cannot_cluster_fails_alone(spark: Any, project: Project, run: Any) -> None:
    """A mistake in a model ends the command before it begins; a type that Spark lacks is that table's own failure."""
    for name in ("orders", "timed", "identified"):
        table(spark, project, name)
    for name, kind in {"timed": "TimeType", "identified": "UUIDType"}.items():
        loaded = IcebergTable.load(spark, f"{project.catalog}.sales.{name}")
        loaded.java.updateSchema().addColumn("u", getattr(loaded.iceberg.types.Types, kind).get()).commit()
    project.add("orders", cluster_by="k", recluster_depth=1)
    project.add("timed", cluster_by="k")
    project.add("identified", cluster_by="u")
    chosen = (*project.write(), "--catalog", project.catalog)
    code, answer, err = run("recluster", *chosen)
    errors = {each["table"].rpartition(".")[2]: each.get("error") for each in answer["tables"]}
    assert (code, errors.pop("orders")) == (1, None)
    assert "cannot be read by Spark" in errors["timed"]
    assert "a column of type uuid has no order to cluster by" in errors["identified"]
    assert "2 of 3 tables failed" in err
    assert clustering_depth(spark, f"{project.catalog}.sales.orders", "k") == 1
    assert run("information", *chosen)[0] == 1


@pytest.mark.thorough
def test_options_of_the_manifest_are_recorded(spark: Any, project: Project, run: Any) -> None:
    """Those who name the table, its namespace or its catalog afterwards go by them, as after a build of dbt's."""
    name = table(spark, project, "orders")
    project.add("orders", meta={"recluster": {"cluster_by": "k", "depth": 1, "block_rows": 100}})
    place = ("--catalog", project.catalog)

    def options() -> dict[str, str]:
        rows = map(tuple, spark.sql(f"show tblproperties {name}").collect())
        return {key: value for key, value in rows if key.startswith("recluster.option.")}

    assert run("recluster", *project.write(), *place, "--dry-run")[0] == 0
    assert options() == {}
    assert run("recluster", *project.write(), *place, "--block-rows", "90")[1]["tables"][0]["blocks_out"] == 7
    assert options() == {"recluster.option.depth": "1", "recluster.option.block_rows": "100"}
    append(spark, name, 600, 300, files=3)
    for choice in ([name], ["--namespace", f"{project.catalog}.sales"], place):
        code, answer, _ = run("recluster", *choice)
        (done,) = answer["tables"]
        assert (code, done["depth_after"], done["blocks_after"]) == (0, 1, 10)
    file = metadata_file(spark, name)
    assert run("recluster", *project.write(), *place)[0] == 0
    assert metadata_file(spark, name) == file
    project.add("orders", meta={"recluster": {"cluster_by": "k", "automatic_clustering": False}})
    assert run("recluster", *project.write(), *place)[1]["tables"] == []
    assert options() == {"recluster.option.automatic_clustering": "false"}
    assert run("recluster", *place)[1]["tables"] == []


def test_a_sort_order_of_the_model_that_the_key_replaces(spark: Any, project: Project, run: Any) -> None:
    name = table(spark, project, "orders")
    spark.sql(f"alter table {name} write locally ordered by v desc")
    project.add("orders", cluster_by="k", properties={"sorted_by": "ARRAY['v DESC']"})
    chosen = (*project.write(), "--catalog", project.catalog)
    said = f"{name}: its model's sorted_by (ARRAY['v DESC']) gives way to the cluster key k"
    assert said in run("recluster", *chosen)[2]
    assert said not in run("recluster", *chosen)[2]


@pytest.mark.parametrize("command", ["recluster", "information"])
def test_a_catalog_without_any_of_the_tables(project: Project, run: Any, command: str) -> None:
    project.add("orders", cluster_by="k")
    project.add("daily", cluster_by="k")
    for place in ((), ("--catalog", project.catalog), ("--map", "awsdatacatalog=no_such_catalog")):
        code, answer, err = run(command, *project.write(), *place)
        assert (code, answer["tables"], len(err.splitlines())) == (2, [], 1)
        assert f"Spark has none of the 2 tables of {project.path} that are meant: " in answer["error"]
        assert "--catalog or --map say which of its catalogs has them" in answer["error"]
    code, answer, _ = run(command, *project.write(orders="success"))
    assert (code, answer["tables"]) == (2, [])


def test_a_table_of_another_format_is_passed_over(
    spark: Any, schema: str, project: Project, run: Any
) -> None:
    make_table(spark, schema, name="orders", rows=100)
    spark.sql(f"create table {schema}.plain using parquet as select 1 as k")
    for name in ("orders", "plain"):
        project.nodes[project.add(name, cluster_by="k")]["schema"] = schema
    place = ("--catalog", "spark_catalog")
    code, answer, err = run("recluster", *project.write(orders="success", plain="success"), *place)
    assert (code, names(answer)) == (0, ["orders"])
    assert f"spark_catalog.{schema}.plain is passed over: " in err


def test_all_nodes_are_checked_before_anything_is_done(spark: Any, project: Project, run: Any) -> None:
    orders = table(spark, project, "orders")
    table(spark, project, "misfit")
    file = metadata_file(spark, orders)
    project.add("orders", cluster_by="k")
    project.add("flat", meta={"recluster": {"cluster_by": "k", "depth": -3}})
    project.add("deep", cluster_by="k", recluster_depth="deep")
    place = ("--catalog", project.catalog)
    code, answer, _ = run("recluster", *project.write(), *place)
    assert (code, answer["tables"]) == (2, [])
    assert "models/flat.sql is wrong: meta.recluster.depth must be a number" in answer["error"]
    assert "models/deep.sql is wrong: recluster_depth must be a number" in answer["error"]
    del project.nodes["model.shop.flat"], project.nodes["model.shop.deep"]
    project.add("misfit", cluster_by="no_such_column")
    code, answer, _ = run("recluster", *project.write(), *place)
    assert (code, answer["tables"]) == (2, [])
    assert "no_such_column" in answer["error"]
    project.add("misfit", meta={"recluster": {"cluster_by": "k", "where": "no_such_column > 1"}})
    code, answer, _ = run("recluster", *project.write(), *place)
    assert (code, answer["tables"]) == (2, [])
    assert "no_such_column" in answer["error"]
    assert "misfit" in answer["error"]
    assert metadata_file(spark, orders) == file


def test_a_misspelt_option_is_a_warning(spark: Any, project: Project, run: Any) -> None:
    table(spark, project, "orders")
    project.add(
        "orders", recluster_dept=2, meta={"recluster": {"cluster_by": "k", "finall": 1}, "reclustr": 1}
    )
    code, answer, err = run("recluster", *project.write(), "--catalog", project.catalog)
    assert (code, len(answer["tables"])) == (0, 1)
    for text in (
        "there is no config recluster_dept; did you mean recluster_depth?",
        "there is no meta.recluster.finall; did you mean final?",
        "meta.reclustr is not read; did you mean meta.recluster?",
    ):
        assert err.count(f"{project.catalog}.sales.orders: {text}") == 1


@contextmanager
def standard_input(monkeypatch: pytest.MonkeyPatch, write: Callable[[], str]) -> Iterator[None]:
    """Put a pipe in the place of standard input, into which another thread writes a moment later."""
    end, start = map(os.fdopen, os.pipe(), "rw")

    def fill() -> None:
        with start:
            start.write(write())

    with end, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", end)
        Timer(0.3, fill).start()
        yield


def test_names_what_dbt_lists_and_other_operations(
    spark: Any, project: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "daily", "plain"):
        table(spark, project, name)
    project.add("orders", cluster_by="k")
    project.add("daily", cluster_by="k")
    project.add("plain")
    chosen = (*project.write(), "--catalog", project.catalog)
    assert names(run("suspend", *chosen, "--select", "orders")[1]) == ["orders"]
    assert run("recluster", *chosen, "orders")[1]["tables"][0]["suspended"]
    assert names(run("resume", *chosen, "orders", f"{project.catalog}.sales.daily")[1]) == ["orders", "daily"]
    assert names(run("expire-snapshots", *chosen, "plain", "--dry-run")[1]) == ["plain"]
    with standard_input(monkeypatch, lambda: '{"unique_id": "model.shop.daily"}\n'):
        assert names(run("history", *chosen, "--select", "-")[1]) == ["daily"]
    for wrong, message in {
        ("dayly",): "did you mean daily?",
        ("--select", "orders", "dayly"): "did you mean daily?",
        ("--select", "orders", "tag:hourly"): "dbt --quiet ls --select 'tag:hourly' --output json",
    }.items():
        code, answer, _ = run("recluster", *chosen, *wrong)
        assert (code, answer["tables"]) == (2, [])
        assert message in answer["error"]
    code, answer, _ = run("recluster", *project.write(), "--map", "awsdatacatalog=lake", "--map", "hive=lake")
    assert (code, answer["tables"]) == (2, [])
    assert "--map hive: no table of" in answer["error"]


@pytest.mark.thorough
def test_dbt_ls_writes_a_manifest_while_its_lines_are_awaited(
    spark: Any, project: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "fresh"):
        table(spark, project, name)
    project.add("orders", cluster_by="v")
    chosen = project.write()

    def list_nodes() -> str:
        listed = [project.add("orders", cluster_by="k"), project.add("fresh", cluster_by="id")]
        project.write()
        return "".join(json.dumps({"unique_id": unique_id}) + "\n" for unique_id in listed)

    with standard_input(monkeypatch, list_nodes):
        code, answer, _ = run("information", *chosen, "--catalog", project.catalog, "--select", "-")
    assert code == 0
    assert {each["table"].rpartition(".")[2]: each["cluster_key"] for each in answer["tables"]} == {
        "orders": "k",
        "fresh": "id",
    }
    with standard_input(monkeypatch, lambda: ""):
        code, answer, _ = run("recluster", *chosen, "--catalog", project.catalog, "--select", "-")
    assert (code, answer["tables"]) == (2, [])
    assert "standard input is empty" in answer["error"]


def test_commands_that_build_nothing(spark: Any, project: Project, run: Any) -> None:
    file = metadata_file(spark, table(spark, project, "orders"))
    project.add("orders", cluster_by="k", recluster_depth=1)
    place = ("--catalog", project.catalog)
    for command in ("generate", "compile"):
        code, answer, _ = run("recluster", *project.write({"which": command}, orders="success"), *place)
        assert (code, answer["tables"]) == (2, [])
        assert f"is of dbt's command {command}, which builds no table" in answer["error"]
    empty = {"which": "build", "empty": True}
    code, answer, err = run("recluster", *project.write(empty, orders="success"), *place)
    assert (code, answer["tables"]) == (0, [])
    assert "has built, other than with --empty, has cluster_by" in err
    assert metadata_file(spark, f"{project.catalog}.sales.orders") == file
    full = {"which": "build", "empty": False}
    assert names(run("recluster", *project.write(full, orders="success"), *place)[1]) == ["orders"]


def test_queries_of_the_manifest_are_recorded(spark: Any, project: Project, run: Any) -> None:
    table(spark, project, "orders")
    project.add("orders", cluster_by="k")
    relation = '"awsdatacatalog"."sales"."orders"'
    project.nodes["model.shop.orders"]["relation_name"] = relation
    for name, sql in {
        "report": f"select count(*) from {relation} where k between 10 and 20",
        "quoted": f"""select count(*) from {relation} o where o."k" between 30 and 40 and "v" <> 'it''s' """,
        "foreign": f'select count(*) from {relation} where "k" = 7 fetch first 3 rows only',
    }.items():
        reader = project.nodes[project.add(name)]
        reader |= {"compiled_code": sql, "depends_on": {"nodes": ["model.shop.orders"]}, "language": "sql"}
    chosen = (*project.write(), "--catalog", project.catalog)
    code, answer, _ = run("import-reads", *chosen, "orders")
    (imported,) = answer["tables"]
    assert (code, imported["recorded"]) == (0, 2)
    assert [line.partition(": ")[0] for line in imported["left_out"]] == ["model.shop.foreign"]
    reads = run("clustering-reads", *chosen, "orders")[1]["tables"][0]["reads"]
    assert sorted(read["columns"]["k"] for read in reads) == [[10, 20], [30, 40]]


def test_bad_files_are_wrong_usage(project: Project, run: Any) -> None:
    project.add("orders", cluster_by="k")
    chosen = project.write(orders="success")
    project.path.write_text(project.path.read_text()[:-20])
    code, answer, err = run("recluster", *chosen)
    assert (code, answer["tables"], len(err.splitlines())) == (2, [], 1)
    assert "is not the manifest of dbt, or only a part of it" in answer["error"]


def test_an_overview_shows_what_is_wrong_beside_the_rest(spark: Any, project: Project, run: Any) -> None:
    for name in ("orders", "misfit", "flat", "idle"):
        table(spark, project, name)
    project.add("orders", cluster_by="k")
    project.add("misfit", cluster_by="no_such_column")
    project.add("flat", cluster_by="k", recluster_depth="deep")
    project.add("idle", cluster_by="id", recluster_depth=99)
    place = (*project.write(), "--catalog", project.catalog)
    code, answer, err = run("overview", *place, "--fail-on", "deep")
    assert (code, names(answer)) == (1, ["flat", "misfit", "orders", "idle"])
    verdicts = [each["verdict"] for each in answer["tables"]]
    assert verdicts == ["failing", "failing", "deep", "well clustered"]
    assert answer["totals"]["verdicts"] == {"failing": 2, "deep": 1, "well clustered": 1}
    assert "models/flat.sql is wrong: recluster_depth must be a number" in answer["tables"][0]["reason"]
    assert answer["error"] == f"{project.catalog}.sales.orders is deep"
    assert "2 of 4 tables failed" in err
    code, answer, _ = run(
        "overview", "--namespace", f"{project.catalog}.sales", "--fail-on", "failing,well-clustered"
    )
    assert (code, answer["tables"], answer["error"]) == (0, [], None)  # none of them has a sort order
    with pytest.raises(SystemExit):
        run("overview", *place, "--fail-on", "shallow")
