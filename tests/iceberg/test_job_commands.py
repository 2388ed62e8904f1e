"""The commands of ``dbt-recluster`` in the session that is there."""

import json
from typing import Any

import pytest
from tables import append, checksum, keyed, local_path, make_table, metadata_file, stays_as_it_is

from dbt_recluster.api import clustering_depth, clustering_history, clustering_information
from dbt_recluster.iceberg.table_properties import AUTO_KEY

DEEP = ("--depth", "1")


@pytest.fixture
def as_json(run_json: Any) -> Any:
    """Runs a command with ``--json``; returns its exit code and what it answered for each table by name."""

    def as_json(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, answer, _ = run_json(*arguments)
        return code, {table["table"].rpartition(".")[2]: table for table in answer["tables"]}

    return as_json


@pytest.fixture
def sales(uncached_catalog: str) -> str:
    return f"{uncached_catalog}.sales"


@pytest.mark.thorough
def test_options_of_the_command_line_win_over_the_table_s(spark: Any, sales: str, run_json: Any, as_json: Any) -> None:
    table = keyed(spark, sales, rows=200, depth="1", block_rows="100", final="true", depht="2")
    before = checksum(spark, table)
    code, answer, err = run_json("recluster", table, "--depth", "50")
    assert (code, answer["tables"][0]["blocks_in"]) == (0, 0)
    assert f"{table}: table property recluster.option.depht is not an option of dbt-recluster" in err
    assert as_json("information", table)[1]["t"]["small_block_count"] == 0  # full at 100 rows
    code, answers = as_json("recluster", table)
    assert code == 0
    assert answers["t"]["blocks_out"] >= 12  # of 100 rows each
    assert answers["t"]["depth_after"] == clustering_depth(spark, table, "k")["average_depth"] == 1
    _, answer, err = run_json("recluster", table, "--block-rows", "2000", "--depth", "0.01")
    assert answer["tables"][0]["blocks_out"] in (0, 1)
    assert f"{table}: block_rows 2000 is for this call; one without it merges the blocks again. To keep it: " in err
    assert checksum(spark, table) == before
    assert clustering_history(spark, table).entries[-1].by == "manual"


def test_the_key_of_the_model_is_the_key_until_another_is_named(spark: Any, sales: str, run: Any, as_json: Any) -> None:
    """`create or replace table` drops the sort order and keeps the properties (apache/iceberg#4889)."""
    table = make_table(spark, sales, rows=100, properties={"recluster.cluster_by": "k"})
    code, answers = as_json("recluster", table, *DEEP)
    assert (code, answers["t"]["cluster_key"], answers["t"]["blocks_in"]) == (0, "k", 6)
    properties = dict(map(tuple, spark.sql(f"show tblproperties {table}").collect()))
    assert properties["sort-order"] == "k ASC NULLS FIRST"
    code, _, err = run("recluster", table, "--cluster-by", "v, id", *DEEP)
    assert code == 0
    assert f"{table}: its model has cluster_by k and makes that its sort order again" in err
    assert clustering_information(spark, table)["cluster_key"] == "v, id"
    run("recluster", table, "--cluster-by", "k, hilbert(v, id)", *DEEP)
    spark.sql(f"alter table {table} rename column k to q")
    code, answers = as_json("recluster", table, *DEEP)
    assert (code, answers["t"]["cluster_key"]) == (0, "q, hilbert(v, id)")


@pytest.mark.thorough
def test_a_curve_is_the_key_until_another_is_named(spark: Any, sales: str, run: Any, as_json: Any) -> None:
    """No sort order tells of it: the property does, to who names the table and to who names its namespace."""
    table = make_table(spark, sales, rows=100)
    code, _, err = run("recluster", table, "--cluster-by", "zorder(k, id)", *DEEP)
    assert (code, err.count("zorder is treated as hilbert, so the cluster key is hilbert(k, id)")) == (0, 1)
    append(spark, table, 600, 300, files=3)
    before = checksum(spark, table)
    recluster = ("recluster", "--namespace", sales, *DEEP)
    for command in (("recluster", table, *DEEP), recluster, ("information", table)):
        code, answers = as_json(*command)
        assert (code, answers["t"]["cluster_key"]) == (0, "hilbert(k, id)")
    code, _, err = run("recluster", table, "--cluster-by", "id", *DEEP)
    assert (code, "the next run of its model changes the key back to hilbert(k, id)" in err) == (0, True)
    assert as_json(*recluster)[1]["t"]["cluster_key"] == "id"
    assert checksum(spark, table) == before


@pytest.mark.thorough
def test_a_failing_table_of_a_namespace_stops_no_other(spark: Any, sales: str, as_json: Any, run: Any) -> None:
    orders = keyed(spark, sales, "orders", depth="1", block_rows="50")
    keyed(spark, sales, "broken", depth="banana")
    keyed(spark, sales, "descending", "k desc nulls last")
    left_alone = keyed(spark, sales, "left_alone", automatic_clustering="false", depth="1")
    make_table(spark, sales, name="plain", files=1, rows=10)
    within = keyed(spark, f"{sales}.eu", "within", depth="1", block_rows="50")
    files = {name: metadata_file(spark, f"{sales}.{name}") for name in ("left_alone", "plain", "descending")}
    wrong = "table property recluster.option.depth must be a number"

    code, answers = as_json("recluster", "--namespace", sales)
    assert (code, set(answers)) == (1, {"orders", "broken"})
    assert wrong in answers["broken"]["error"]
    assert clustering_depth(spark, orders, "k")["average_depth"] == 1
    assert files == {name: metadata_file(spark, f"{sales}.{name}") for name in files}
    code, answers = as_json("information", "--catalog", sales.partition(".")[0])
    assert (code, set(answers)) == (0, {"orders", "broken", "left_alone", "within"})
    assert run("recluster", "--namespace", sales)[2].splitlines()[-2:] == [
        f"1 table of {sales} left out, by automatic_clustering: false",
        "1 of 2 tables failed",
    ]
    code, out, err = run("recluster", left_alone, f"{sales}.broken", within)
    assert code == 1
    assert [line.partition(":")[0] for line in out.splitlines() if line[0] != " "] == [left_alone, within]
    assert f"{within}: round 1 merged " in err  # off a terminal, too
    failure, count = (line for line in err.splitlines() if ": round " not in line)
    assert failure.startswith(f"{sales}.broken: {wrong}")
    assert count == "1 of 3 tables failed"


def test_a_dry_run_changes_nothing(spark: Any, sales: str, run: Any, as_json: Any) -> None:
    table = keyed(spark, sales, depth="1", block_rows="50")
    with stays_as_it_is(spark, table):
        code, out, _ = run("recluster", table, "--dry-run")
        assert (code, "total: " in out) == (0, True)
        assert out.startswith(f"{table}: would recluster 6 blocks")
        assert len(as_json("recluster", table, "--dry-run")[1]["t"]["plan"]["sets"]) == 1


def test_a_wrong_property_stops_only_what_needs_it(spark: Any, sales: str, run: Any) -> None:
    """It stands in the way of what needs it, and of nothing else."""
    table = keyed(spark, sales)
    spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = 'k desc')")
    for command in ("suspend", "resume", "history"):
        assert run(command, table)[0] == 0
    code, out, err = run("recluster", table, "--cluster-by", "k", *DEEP)
    assert (code, "reclustered 6 blocks" in out) == (0, True)
    assert "table property recluster.cluster_by: cluster_by item 'k desc'" in err
    assert run("recluster", table)[0] == 0  # by its sort order
    spark.sql(f"alter table {table} write unordered")
    code, _, err = run("recluster", table)
    assert (code, "table property recluster.cluster_by" in err) == (2, True)
    # A sort order that is no key does not either where the model's is recorded.
    spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = 'k')")
    spark.sql(f"alter table {table} write locally ordered by k desc")
    code, out, _ = run("overview", table)
    assert (code, "well clustered" in out) == (0, True)


def test_tables_that_fail_have_a_line_each(spark: Any, sales: str, run: Any, as_json: Any) -> None:
    table = make_table(spark, sales, files=1, rows=10)
    assert run("recluster", "--namespace", sales)[::2] == (0, f"no table of {sales} has a cluster key\n")
    assert as_json("recluster", "--namespace", sales) == (0, {})
    code, out, err = run("recluster", table, f"{sales}.nowhere", "no.such.t", f"{table}.snapshots")
    assert (code, out) == (2, "")
    starts = [
        f"{table} has no cluster key: neither the property recluster.cluster_by nor a sort order; name one",
        f"{sales}.nowhere cannot be loaded: ",
        "no.such.t cannot be loaded: Spark has no catalog no",
        f"{table}.snapshots is the metadata table snapshots of a table",
        "4 of 4 tables failed",
    ]
    assert all(line.startswith(start) for line, start in zip(err.splitlines(), starts, strict=True)), err
    other = keyed(spark, sales, "other", depth="1")
    code, _, err = run("recluster", other, "--where", "nothing = 1")
    assert (code, len(err.splitlines())) == (2, 1)
    assert run("recluster", other, table)[0] == 1  # one is done, one refused
    append(spark, other, 600, 300, files=3)
    local_path(spark.table(f"{other}.files").first().file_path).unlink()
    code, _, err = run("recluster", other, "--final")
    assert (code, "could not be merged" in err) == (1, True)


def test_a_suspended_table_says_how_to_resume(spark: Any, sales: str, run: Any, as_json: Any) -> None:
    table = keyed(spark, sales, depth="1")
    for command, done in (("suspend", "suspended "), ("recluster", "not reclustered: suspended ")):
        code, out, _ = run(command, table)
        assert (code, out.partition("since")[0]) == (0, f"{table}: {done}")
        assert f"; to resume: dbt-recluster resume {table}" in out
    assert as_json("resume", table)[1]["t"]["was_suspended"]
    assert run("resume", table)[1] == f"{table}: was not suspended\n"


def test_a_namespace_holds_odd_names_and_other_tables(spark: Any, sales: str, schema: str, as_json: Any) -> None:
    spark.sql(f"create table {sales}.`of day` (`a b` int) using iceberg")
    spark.sql(f"alter table {sales}.`of day` write ordered by `a b`")
    keyed(spark, sales, "`tabelle_ü`")
    code, answers = as_json("recluster", "--namespace", sales)
    keys = {name: answer["cluster_key"] for name, answer in answers.items()}
    assert (code, keys) == (0, {"`of day`": "`a b`", "`tabelle_ü`": "k"})
    keyed(spark, schema)
    spark.sql(f"create table {schema}.p using parquet as select 1 k")
    spark.sql(f"create view {schema}.w as select 1 k")
    code, answers = as_json("recluster", "--namespace", schema)
    assert (code, list(answers)) == (0, ["t"])


def test_places_that_do_not_exist_are_wrong_usage(uncached_catalog: str, broken_catalog: str, run: Any) -> None:
    here, no_catalog = uncached_catalog, "Spark has no catalog no: set spark.sql.catalog.no to org.apache"
    for place, name, wrong, message in (
        ("--namespace", f"{here}.no", 2, f"there is no namespace no in catalog {here}"),
        ("--namespace", "no.sales", 2, no_catalog),
        ("--catalog", "no", 2, no_catalog),
        ("--catalog", broken_catalog, 1, f"catalog {broken_catalog} does not start: Unknown catalog type"),
    ):
        code, out, err = run("information", place, name)
        assert (code, out, len(err.splitlines())) == (wrong, "", 1)
        assert err.startswith(f"dbt-recluster: {message}")


def test_auto_chooses_and_changes_a_key_without_a_project(spark: Any, sales: str, as_json: Any) -> None:
    def reads(*columns: str) -> str:
        return json.dumps(
            [{"where": f"{column} = {value}", "weight": 1000} for column in columns for value in (7, 300)]
        )

    options = {"recluster.option.block_rows": "50", "recluster.option.reads": reads("k", "id")}
    table = make_table(spark, sales, rows=150, properties={AUTO_KEY: "{}", **options})
    make_table(spark, sales, name="left_alone")
    every = "--namespace", sales
    code, answers = as_json("information", *every)
    assert (code, list(answers), answers["t"]["error"]) == (0, ["t"], None)
    assert answers["t"]["reason"] == f"{table}: no key yet: the next recluster compares keys"
    code, answers = as_json("recluster", *every)
    assert (code, answers["t"]["cluster_key"], answers["t"]["blocks_in"]) == (0, "hilbert(id, k)", 6)
    properties = dict(map(tuple, spark.sql(f"show tblproperties {table}").collect()))
    assert properties["recluster.cluster_by"] == "hilbert(id, k)"
    # From a curve to a column, once the rows have doubled.
    spark.sql(f"alter table {table} set tblproperties ('recluster.option.reads' = '{reads('k')}')")
    assert as_json("recluster", *every)[1]["t"]["cluster_key"] == "hilbert(id, k)"
    append(spark, table, 900, 900, files=6)
    code, answers = as_json("recluster", *every)
    assert (code, answers["t"]["cluster_key"]) == (0, "k")
    assert answers["t"]["purpose"].startswith("auto chose k: ")
    properties = dict(map(tuple, spark.sql(f"show tblproperties {table}").collect()))
    assert (properties["recluster.cluster_by"], properties["sort-order"]) == ("k", "k ASC NULLS FIRST")
    assert not any(name.startswith("recluster.curve.") for name in properties)
