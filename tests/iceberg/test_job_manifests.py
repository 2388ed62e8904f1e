"""The command on the tables of a manifest, whichever dbt has written it."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from manifests import node, write_manifest, write_results
from tables import append, checksum, make_table, metadata_file, stays_as_it_is

from dbt_recluster.api import clustering_depth
from dbt_recluster.exceptions import Interrupted
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.job.service import ChangedTables


class Project:
    """A manifest of tables that are there, and the command on them."""

    def __init__(self, spark: Any, directory: Path, catalog: str, run_json: Any) -> None:
        self.spark, self.catalog, self.run_json = spark, catalog, run_json
        self.path = directory / "manifest.json"
        self.nodes: dict[str, Any] = {}
        self.adapter = "spark"

    def make(self, *names: str) -> list[str]:
        """Make tables of six overlapping files."""
        return [make_table(self.spark, f"{self.catalog}.sales", name=name, rows=100) for name in names]

    def add(self, name: str, *, reads: str = "", sql: str = "", **config: Any) -> Any:
        """Add a model, which may read another one by a query; its table has more than eight full blocks."""
        if "cluster_by" in config:
            config = {"block_rows": 50, **config}
        parents = {"nodes": [f"model.shop.{reads}"] if reads else []}
        self.nodes[name] = node(name, depends_on=parents, compiled_code=sql, config=config)
        return self.nodes[name]

    def write(self, **statuses: str) -> tuple[str, ...]:
        """Write the manifest, and the results of a run if there is one; return the arguments that name them."""
        arguments = ("--manifest", str(write_manifest(self.path, self.nodes.values(), adapter_type=self.adapter)))
        if not statuses:
            return arguments
        of_nodes = {f"model.shop.{name}": status for name, status in statuses.items()}
        return *arguments, "--run-results", str(write_results(self.path.with_name("run-results.json"), of_nodes))

    def run(self, command: str, *arguments: str, **statuses: str) -> tuple[int, Any, str]:
        """Run a command on the manifest, with the tables in the catalog unless it is said where they are."""
        place = () if "--map" in arguments else ("--catalog", self.catalog)
        return self.run_json(command, *self.write(**statuses), *place, *arguments)

    def refuse(self, command: str, *arguments: str, **statuses: str) -> str:
        """Run a command that is wrong as a whole; return its error."""
        code, answer, _ = self.run(command, *arguments, **statuses)
        assert (code, answer["tables"]) == (2, [])
        return str(answer["error"])


@pytest.fixture
def project(tmp_path: Path, uncached_catalog: str, spark: Any, run_json: Any) -> Project:
    return Project(spark, tmp_path, uncached_catalog, run_json)


def names(answer: Any) -> list[str]:
    return [each["table"].rpartition(".")[2] for each in answer["tables"]]


@pytest.mark.thorough
def test_a_build_is_followed_by_one_command(spark: Any, project: Project) -> None:
    built = ("orders", "daily", "curved", "manual", "plain")
    tables = project.make(*built, "failed")
    before = [checksum(spark, table) for table in tables]
    project.add("orders", cluster_by=["k", "id"], recluster_depth=1)
    project.add("daily", meta={"recluster": {"cluster_by": "k", "depth": 1, "block_rows": 60}})
    project.add("curved", meta={"recluster": {"cluster_by": ["v", "zorder(id, k)"], "depth": 1, "block_rows": 50}})
    project.add("failed", cluster_by="k")
    project.add("manual", cluster_by="k", automatic_clustering=False)
    project.add("plain")
    project.add("a_view", materialized="view", cluster_by="k")
    statuses = {**dict.fromkeys(built, "success"), "failed": "error"}
    code, answer, err = project.run("recluster", "--map", f"awsdatacatalog={project.catalog}", **statuses)
    assert (code, names(answer)) == (0, ["curved", "daily", "orders"])
    assert "left out, by automatic_clustering: false" in err
    assert [each["cluster_key"] for each in answer["tables"]] == ["v, hilbert(id, k)", "k", "k, id"]
    assert [each["depth_after"] for each in answer["tables"][1:]] == [1, 1]
    assert answer["tables"][1]["blocks_out"] >= 10
    assert clustering_depth(spark, tables[-1], "k")["average_depth"] > 1
    assert [checksum(spark, table) for table in tables] == before
    code, answer, err = project.run("information", "--select", "daily", "model.shop.plain")
    assert (code, names(answer), answer["tables"][0]["average_depth"]) == (0, ["daily"], 1)
    assert answer["tables"][0]["options"]["cluster_by"]["origin"] == "project"
    assert "1 table of the selection left out: only what is an Iceberg table with cluster_by is meant" in err


def test_tables_that_are_missing_or_of_another_format(spark: Any, schema: str, project: Project) -> None:
    project.make("orders")
    project.add("orders", cluster_by="k")
    project.add("gone", cluster_by="k")
    code, answer, err = project.run("recluster")
    assert (code, names(answer)) == (0, ["orders"])
    assert f"{project.catalog}.sales.gone is skipped: " in err
    for code, answer, _ in (
        project.run("recluster", gone="success", orders="success"),
        project.run("recluster", "--select", "gone", "orders"),
    ):
        assert (code, names(answer)) == (1, ["gone", "orders"])
        assert answer["tables"][0]["error"]
    code, answer, err = project.run("recluster", orders="error")
    assert (code, answer["tables"], "built no table that" in err) == (0, [], True)
    make_table(spark, schema, name="orders", rows=100)
    spark.sql(f"create table {schema}.plain using parquet as select 1 as k")
    for name in ("orders", "plain"):
        project.add(name, cluster_by="k")["schema"] = schema
    place, built = "awsdatacatalog=spark_catalog", {"orders": "success", "plain": "success"}
    code, answer, err = project.run("recluster", "--map", place, **built)
    assert (code, names(answer)) == (0, ["orders"])
    assert f"spark_catalog.{schema}.plain is skipped: " in err


def test_a_table_is_no_model_of_another_case_that_is_not_built(project: Project) -> None:
    (made,) = project.make("Orders")
    project.add("orders", cluster_by="k")
    code, answer, err = project.run("recluster", made, "--cluster-by", "k", "--block-rows", "50", "--depth", "1")
    assert (code, names(answer), answer["tables"][0]["depth_after"]) == (0, ["Orders"], 1), err


@pytest.mark.parametrize("adapter", ["trino", "athena", "spark"])
def test_names_are_folded_as_the_adapter_folds_them(spark: Any, project: Project, adapter: str) -> None:
    """Trino and Athena know lower case only, and dbt's manifest has what the model says."""
    made = make_table(spark, f"{project.catalog}.`my-mart`", name="orders", rows=100)
    project.adapter = adapter
    place, relation = {"database": "Lake", "schema": "My-Mart"}, '"Lake"."My-Mart"."Orders"'
    project.add("Orders", cluster_by="k", recluster_depth=1).update(place, relation_name=relation)
    project.add("report", reads="Orders", sql=f'select * from {relation} where "k" = 7')
    catalog = ("--map", f"Lake={project.catalog}")
    if adapter == "spark":
        assert "My-Mart" in project.refuse("recluster", *catalog, Orders="success")
        return
    code, answer, err = project.run("recluster", *catalog, Orders="success")
    (done,) = answer["tables"]
    assert (code, done["depth_after"], made in done["table"]) == (0, 1, True), err
    assert project.run("import-reads", *catalog, Orders="success")[1]["tables"][0]["recorded"] == 1
    project.add("orders", cluster_by="k").update(database="lake", schema="my-mart")
    code, answer, _ = project.run_json("recluster", *project.write())
    assert (code, "have one table, lake.`my-mart`.orders" in answer["error"]) == (2, True)


def test_a_table_that_spark_cannot_cluster_fails_alone(spark: Any, project: Project) -> None:
    """A mistake in a model ends the command before it begins; a type that Spark lacks is that table's own failure."""
    tables = project.make("orders", "timed", "identified")
    for name, kind in zip(tables[1:], ("TimeType", "UUIDType"), strict=True):
        loaded = IcebergTable.load(spark, name)
        loaded.java.updateSchema().addColumn("u", getattr(loaded.iceberg.types.Types, kind).get()).commit()
    project.add("orders", cluster_by="k", recluster_depth=1)
    project.add("timed", cluster_by="k")
    project.add("identified", cluster_by="u")
    code, answer, err = project.run("recluster")
    errors = dict(zip(names(answer), (each.get("error") for each in answer["tables"]), strict=True))
    assert (code, errors["orders"]) == (1, None)
    assert "cannot be read by Spark" in errors["timed"]
    assert "a column of type uuid has no order to cluster by" in errors["identified"]
    assert "2 of 3 tables failed" in err
    assert clustering_depth(spark, tables[0], "k")["average_depth"] == 1
    assert project.run("information")[0] == 1


@pytest.mark.thorough
def test_options_of_the_manifest_are_recorded(spark: Any, project: Project) -> None:
    """Those who name the table, its namespace or its catalog afterwards go by them, as after a build of dbt's."""
    (name,) = project.make("orders")
    project.add("orders", meta={"recluster": {"cluster_by": "k", "depth": 1, "block_rows": 75}})
    catalog = ("--catalog", project.catalog)

    def options() -> dict[str, str]:
        rows = map(tuple, spark.sql(f"show tblproperties {name}").collect())
        prefix = "recluster.option."
        return {key.removeprefix(prefix): value for key, value in rows if key.startswith(prefix)}

    assert project.run("recluster", "--dry-run")[0] == 0
    assert options() == {}
    assert project.run("recluster", "--block-rows", "60")[1]["tables"][0]["blocks_out"] >= 10
    assert options() == {"depth": "1", "block_rows": "75"}
    append(spark, name, 600, 300, files=3)
    for choice in ([name], ["--namespace", f"{project.catalog}.sales"], catalog):
        code, answer, _ = project.run_json("recluster", *choice)
        (done,) = answer["tables"]
        assert (code, done["depth_after"], done["blocks_after"]) == (0, 1, 13)
    file = metadata_file(spark, name)
    assert project.run("recluster")[0] == 0
    assert metadata_file(spark, name) == file
    project.add("orders", meta={"recluster": {"cluster_by": "k", "automatic_clustering": False}})
    assert project.run("recluster")[1]["tables"] == []
    assert options() == {"automatic_clustering": "false"}
    assert project.run_json("recluster", *catalog)[1]["tables"] == []


def test_a_catalog_without_any_of_the_tables(project: Project) -> None:
    project.add("orders", cluster_by="k")
    project.add("daily", cluster_by="k")
    for command in ("recluster", "information"):
        for place in ((), ("--map", "awsdatacatalog=no_such_catalog")):
            error = project.refuse(command, *place)
            assert f"Spark has none of the 2 tables of {project.path} that are meant: " in error
            assert "--catalog or --map say which of its catalogs has them" in error
        project.refuse(command, orders="success")


WRONG = {
    "models/misfit.sql is wrong: recluster_depth must be a number": {
        "cluster_by": "k",
        "recluster_depth": "x",
    },
    "cluster_by must be a string or a list": {"meta": {"recluster": {"cluster_by": {"hilbert": ["k", "id"]}}}},
    "there is no column 'nope'": {"cluster_by": "hilbert(k, nope)"},
    "nope > 1": {"meta": {"recluster": {"cluster_by": "k", "where": "nope > 1"}}},
}


def test_all_nodes_are_checked_before_anything_is_done(spark: Any, project: Project) -> None:
    orders, _ = project.make("orders", "misfit")
    project.add("orders", cluster_by="k")
    with stays_as_it_is(spark, orders):
        for message, config in WRONG.items():
            project.add("misfit", **config)
            error = project.refuse("recluster")
            assert message in error
            assert "misfit" in error


def test_what_a_node_has_beside_its_key_is_warned_of(spark: Any, project: Project) -> None:
    (name,) = project.make("orders")
    spark.sql(f"alter table {name} write locally ordered by v desc")
    project.add("orders", cluster_by="k", recluster_dept=2, properties={"sorted_by": "ARRAY['v DESC']"})
    misspelt = f"{name}: there is no config recluster_dept; did you mean recluster_depth?"
    replaced = f"{name}: the cluster key k overrides its model's sorted_by (ARRAY['v DESC'])"
    code, _, err = project.run("recluster")
    assert (code, err.count(misspelt), err.count(replaced)) == (0, 1, 1)
    assert replaced not in project.run("recluster")[2]


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


def test_nodes_are_named_and_other_operations_take_them(project: Project) -> None:
    project.make("orders", "daily", "plain")
    project.add("orders", cluster_by="k")
    project.add("daily", cluster_by="k")
    project.add("plain")
    assert names(project.run("suspend", "--select", "orders")[1]) == ["orders"]
    assert project.run("recluster", "orders")[1]["tables"][0]["suspended"]
    both = ("orders", f"{project.catalog}.sales.daily")
    assert names(project.run("resume", *both)[1]) == ["orders", "daily"]
    assert names(project.run("expire-snapshots", "plain", "--dry-run")[1]) == ["plain"]
    for wrong in (("dayly",), ("--select", "orders", "dayly")):
        assert "did you mean daily?" in project.refuse("recluster", *wrong)


@pytest.mark.thorough
def test_dbt_ls_writes_a_manifest_while_its_lines_are_awaited(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.make("orders", "fresh")
    project.add("orders", cluster_by="v")

    def list_nodes() -> str:
        listed = [project.add("orders", cluster_by="k"), project.add("fresh", cluster_by="id")]
        project.write()
        return "".join(json.dumps({"unique_id": node["unique_id"]}) + "\n" for node in listed)

    with standard_input(monkeypatch, list_nodes):
        code, answer, _ = project.run("information", "--select", "-")
    keys = dict(zip(names(answer), (each["cluster_key"] for each in answer["tables"]), strict=True))
    assert (code, keys) == (0, {"orders": "k", "fresh": "id"})
    with standard_input(monkeypatch, lambda: ""):
        assert "standard input is empty" in project.refuse("recluster", "--select", "-")


def test_queries_of_the_manifest_are_recorded(project: Project) -> None:
    project.make("orders")
    project.adapter = "athena"
    relation = '"awsdatacatalog"."sales"."orders"'
    project.add("orders", cluster_by="k")["relation_name"] = relation
    for name, sql in {
        "report": f"select count(*) from {relation} where k between 10 and 20",
        "quoted": f"""select count(*) from {relation} o where o."k" between 30 and 40 and "v" <> 'it''s' """,
        "translated": f"select approx_distinct(v) from {relation} where k = 7 fetch first 3 rows only",
        "foreign": f'select geometry_union("k") from {relation}',
    }.items():
        project.add(name, reads="orders", sql=sql)["language"] = "sql"
    code, answer, _ = project.run("import-reads", "orders")
    (imported,) = answer["tables"]
    assert (code, imported["recorded"]) == (0, 3)
    assert [line.partition(": ")[0] for line in imported["left_out"]] == ["model.shop.foreign"]
    reads = project.run("clustering-reads", "orders")[1]["tables"][0]["reads"]
    assert sorted(read["columns"]["k"] for read in reads) == [[7, 7], [10, 20], [30, 40]]


def test_an_overview_shows_what_is_wrong_beside_the_rest(project: Project) -> None:
    project.make("orders", "misfit", "flat", "idle")
    project.add("orders", cluster_by="k")
    project.add("misfit", cluster_by="no_such_column")
    project.add("flat", cluster_by="k", recluster_depth="deep")
    project.add("idle", cluster_by="id", recluster_depth=99)
    code, answer, err = project.run("overview", "--fail-on", "deep")
    assert (code, names(answer)) == (1, ["flat", "misfit", "orders", "idle"])
    verdicts = [each["verdict"] for each in answer["tables"]]
    assert verdicts == ["failing", "failing", "deep", "well clustered"]
    assert answer["totals"]["verdicts"] == {"failing": 2, "deep": 1, "well clustered": 1}
    assert "models/flat.sql is wrong: recluster_depth must be a number" in answer["tables"][0]["reason"]
    assert answer["error"] == f"{project.catalog}.sales.orders is deep"
    assert "2 of 4 tables failed" in err
    code, answer, _ = project.run("overview", "orders", "idle", "--fail-on", "deep")
    assert (code, names(answer), "orders is deep" in answer["error"]) == (3, ["orders", "idle"], True)
    sales = ("--namespace", f"{project.catalog}.sales")
    code, answer, _ = project.run_json("overview", *sales, "--fail-on", "failing,well-clustered")
    assert (code, answer["tables"], answer["error"]) == (0, [], None)  # none of them has a sort order
    with pytest.raises(SystemExit):
        project.run("overview", "--fail-on", "shallow")


def test_a_table_that_is_gone_is_missing_in_the_overview_and_in_the_metrics(
    spark: Any, project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "r.prom"

    def verdicts() -> list[str]:
        return re.findall(r'verdict\{table="\w+\.\w+\.(\w+)",verdict="([\w ]+)"\} 1\.0', file.read_text())

    gone, _ = project.make("gone", "orders")
    for name in ("gone", "orders"):
        project.add(name, cluster_by="id", recluster_depth=99)
    project.run("recluster", "--metrics", str(file))
    assert verdicts() == [("gone", "well clustered"), ("orders", "well clustered")]
    spark.sql(f"drop table {gone}")
    code, answer, _ = project.run("recluster", "--metrics", str(file))
    assert (code, names(answer), verdicts()[0]) == (0, ["orders"], ("gone", "missing"))
    code, answer, _ = project.run("overview", "--fail-on", "missing")
    assert (code, names(answer), answer["tables"][0]["verdict"]) == (3, ["gone", "orders"], "missing")
    assert answer["error"] == f"{project.catalog}.sales.gone is missing"


def test_a_service_reads_a_manifest_once_and_meets_what_is_built_later(
    project: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.make("orders")
    for name in ("orders", "late"):
        project.add(name, cluster_by="k", recluster_depth=1)
    arguments = ("recluster", *project.write(), "--catalog", project.catalog, "--every", "1h", "--json")
    between = iter((project.path.unlink, lambda: project.make("late")))

    def wait(_: ChangedTables) -> None:
        if (change := next(between, None)) is None:
            raise Interrupted
        change()

    monkeypatch.setattr(ChangedTables, "wait", wait)
    code, out, err = run(*arguments)
    assert (code, list(map(names, map(json.loads, out.splitlines())))) == (0, [["orders"], ["orders"], ["late"], []])
    assert err.count("late is skipped") == 1
