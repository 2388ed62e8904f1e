"""The commands of ``dbt-recluster`` in the session that is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tables import append, checksum, make_table, metadata_file

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.job.command_line import main
from dbt_recluster.maintenance import clustering_history, clustering_information, recluster

Run = Any


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; returns its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def as_json(run: Run) -> Any:
    """Runs a command with ``--json``; returns its exit code and what it answered for each table by name."""

    def as_json(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = run(*arguments, "--json")
        (line,) = out.splitlines()
        answer = json.loads(line)
        assert answer["exit_code"] == code
        return code, {table["table"].rpartition(".")[2]: table for table in answer["tables"]}

    return as_json


@pytest.fixture
def sales(spark: Any, hadoop_catalog: str) -> str:
    """A namespace of a catalog that keeps no table in memory."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return f"{hadoop_catalog}.sales"


def keyed(spark: Any, schema: str, name: str, order: str = "k", **options: str) -> str:
    """Make a table of six overlapping files with a sort order, and options among its properties."""
    properties = {f"recluster.option.{option}": value for option, value in options.items()}
    table = make_table(spark, schema, name=name, rows=100, properties=properties)
    spark.sql(f"alter table {table} write locally ordered by {order}")
    return table


def depth(spark: Any, table: str) -> float:
    return float(clustering_information(spark, table, "k")["average_depth"])


@pytest.mark.thorough
def test_options_come_from_the_table_and_those_of_the_command_line_win(
    spark: Any, sales: str, as_json: Any
) -> None:
    table = keyed(spark, sales, "t", depth="1", block_rows="100", final="true")
    before = checksum(spark, table)
    assert as_json("recluster", table, "--depth", "50")[1]["t"]["blocks_in"] == 0
    assert as_json("information", table)[1]["t"]["small_block_count"] == 0  # six full blocks of 100 rows
    code, answers = as_json("recluster", table)
    assert code == 0
    assert answers["t"]["blocks_out"] >= 6  # of 100 rows each
    assert answers["t"]["depth_after"] == depth(spark, table) == 1
    one = as_json("recluster", table, "--block-rows", "1000", "--depth", "0.01")[1]["t"]
    assert one["blocks_out"] in (0, 1)
    assert checksum(spark, table) == before
    assert clustering_history(spark, table)[-1].by == "manual"


def test_the_key_of_the_model_outlives_a_lost_sort_order(spark: Any, sales: str, as_json: Any) -> None:
    """`create or replace table` drops the sort order and keeps the properties (apache/iceberg#4889)."""
    table = make_table(spark, sales, name="t", rows=100, properties={"recluster.cluster_by": "k"})
    code, answers = as_json("recluster", table, "--depth", "1")
    assert (code, answers["t"]["cluster_key"], answers["t"]["blocks_in"]) == (0, "k", 6)
    assert dict(map(tuple, spark.sql(f"show tblproperties {table}").collect()))["sort-order"] == (
        "k ASC NULLS FIRST"
    )


def test_another_key_on_the_command_line_wins_with_a_warning(spark: Any, sales: str, run: Run) -> None:
    table = make_table(spark, sales, name="t", rows=100, properties={"recluster.cluster_by": "k"})
    code, out, err = run("recluster", table, "--cluster-by", "v, id", "--depth", "1")
    assert (code, out.partition(" 6 blocks")[0]) == (0, f"{table}: reclustered")
    assert f"{table}: its model has cluster_by k and makes that its sort order again" in err
    assert clustering_information(spark, table)["cluster_key"] == "v, id"


@pytest.mark.thorough
def test_a_curve_is_the_key_until_another_is_named(spark: Any, sales: str, run: Run, as_json: Any) -> None:
    """No sort order tells of it: the property does, to who names the table and to who names its namespace."""
    table = make_table(spark, sales, name="t", rows=100)
    code, _, err = run("recluster", table, "--cluster-by", "zorder(k, id)", "--depth", "1")
    assert (code, err.count("zorder is taken for hilbert, so the cluster key is hilbert(k, id)")) == (0, 1)
    append(spark, table, 600, 300, files=3)
    before = checksum(spark, table)
    for choice in ([table], ["--namespace", sales]):
        code, answers = as_json("recluster", *choice, "--depth", "1")
        assert (code, answers["t"]["cluster_key"]) == (0, "hilbert(k, id)")
    assert as_json("information", table)[1]["t"]["cluster_key"] == "hilbert(k, id)"
    code, _, err = run("recluster", table, "--cluster-by", "id", "--depth", "1")
    assert (code, "it was clustered by hilbert(k, id), and is again once" in err) == (0, True)
    code, answers = as_json("recluster", "--namespace", sales, "--depth", "1")
    assert (code, answers["t"]["cluster_key"]) == (0, "id")
    assert checksum(spark, table) == before


WRONG_CURVES = {
    "hilbert(k)": "cluster_by item hilbert(k): a curve has two to four columns, not 1",
    "hilbert(k, m)": "cluster_by item m: a column of type map<string,int> has no order",
    "hilbert(k, nope)": "cluster_by item nope: there is no column 'nope'",
}


def test_a_wrong_curve_changes_nothing(spark: Any, sales: str, run: Run) -> None:
    """Named by the caller, or found in a property that somebody wrote."""
    table = make_table(spark, sales, name="t", files=2, rows=10)
    spark.sql(f"alter table {table} add columns (m map<string, int>)")
    for key, text in WRONG_CURVES.items():
        spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = '{key}')")
        file = metadata_file(spark, table)
        code, out, err = run("recluster", table)
        assert code > 0
        assert text in out + err
        with pytest.raises(ClusterKeyError) as error:
            recluster(spark, table, key)
        assert text in str(error.value)
        assert metadata_file(spark, table) == file


@pytest.mark.thorough
def test_a_namespace_and_a_failure_in_it(spark: Any, sales: str, as_json: Any, run: Run) -> None:
    orders = keyed(spark, sales, "orders", depth="1")
    keyed(spark, sales, "broken", depth="banana")
    keyed(spark, sales, "descending", "k desc nulls last")
    left_alone = keyed(spark, sales, "left_alone", automatic_clustering="false", depth="1")
    make_table(spark, sales, name="plain", files=1, rows=10)
    keyed(spark, f"{sales}.eu", "within", depth="1")
    files = {name: metadata_file(spark, f"{sales}.{name}") for name in ("left_alone", "plain", "descending")}

    code, answers = as_json("recluster", "--namespace", sales)
    assert code == 1
    assert set(answers) == {"orders", "broken"}
    assert "table property recluster.option.depth must be a number" in answers["broken"]["error"]
    assert depth(spark, orders) == 1
    assert files == {name: metadata_file(spark, f"{sales}.{name}") for name in files}

    code, answers = as_json("information", "--catalog", sales.partition(".")[0])
    assert code == 0
    assert set(answers) == {"orders", "broken", "left_alone", "within"}
    assert answers["orders"]["average_depth"] == 1

    assert run("recluster", "--namespace", sales)[2].splitlines()[-2:] == [
        f"1 table of {sales} left out, by automatic_clustering: false",
        "1 of 2 tables failed",
    ]
    code, out, err = run("recluster", left_alone, f"{sales}.broken", f"{sales}.eu.within")
    assert code == 1
    assert [line.partition(":")[0] for line in out.splitlines() if line[0] != " "] == [
        left_alone,
        f"{sales}.eu.within",
    ]
    assert err.splitlines() == [
        f"{sales}.broken: table property recluster.option.depth must be a number of at least 1, one between 0 and "
        "1 to mean a share of the number of blocks, or auto, not 'banana'",
        "1 of 3 tables failed",
    ]


def test_a_dry_run_changes_nothing(spark: Any, sales: str, run: Run, as_json: Any) -> None:
    table = keyed(spark, sales, "t", depth="1")
    before = metadata_file(spark, table)
    code, out, _ = run("recluster", table, "--dry-run")
    assert code == 0
    assert out.startswith(f"{table}: would recluster 6 blocks")
    assert "total: " in out
    assert len(as_json("recluster", table, "--dry-run")[1]["t"]["plan"]["sets"]) == 1
    assert metadata_file(spark, table) == before


@pytest.mark.thorough
def test_maintain_does_what_is_due(spark: Any, sales: str, run: Run, as_json: Any) -> None:
    table = keyed(spark, sales, "t")
    for load in range(10):
        append(spark, table, 10_000 + load * 10, 10)
    due = f"{table}: would rewrite 11 manifests into 1\n"
    assert run("maintain", "--namespace", sales, "--dry-run")[:2] == (0, due)
    code, found = as_json("maintain", table, "--orphans")
    assert (code, [task["task"] for task in found["t"]["done"]]) == (0, ["rewrite_manifests"])
    assert run("maintain", table)[:2] == (0, f"{table}: nothing to do\n")


@pytest.mark.thorough
def test_suspend_history_estimate_and_resume(spark: Any, sales: str, run: Run, as_json: Any) -> None:
    table = keyed(spark, sales, "t", depth="1")
    code, out, _ = run("suspend", table)
    assert (code, out.partition("since")[0]) == (0, f"{table}: suspended ")
    assert f"; to resume: dbt-recluster resume {table}" in out
    code, out, _ = run("recluster", table)
    assert (code, out.partition("since")[0]) == (0, f"{table}: not reclustered: suspended ")
    assert f"; to resume: dbt-recluster resume {table}" in out
    assert as_json("resume", table)[1]["t"]["was_suspended"]
    assert run("resume", table)[1] == f"{table}: was not suspended\n"

    code, answers = as_json("estimate", table, "--block-rows", "100")
    assert (code, answers["t"]["expected_depth"]) == (0, 1)
    assert run("recluster", table)[0] == 0
    append(spark, table, 600, 10)
    entries = as_json("history", table)[1]["t"]["entries"]
    assert [entry["kind"] for entry in entries] == ["append", "recluster", "append"]
    assert as_json("history", table, "--since", "2100-01-01")[1]["t"]["entries"] == []
    assert "amplification" in run("history", table)[1]


def test_names_that_have_to_be_quoted(spark: Any, sales: str, as_json: Any) -> None:
    spark.sql(f"create table {sales}.`of day` (`a b` int) using iceberg")
    spark.sql(f"alter table {sales}.`of day` write ordered by `a b`")
    keyed(spark, sales, "`tabelle_ü`")
    code, answers = as_json("recluster", "--namespace", sales)
    assert (code, sorted(answers)) == (0, ["`of day`", "`tabelle_ü`"])
    assert answers["`of day`"]["cluster_key"] == "`a b`"


def test_a_key_that_is_none(spark: Any, sales: str, run: Run) -> None:
    """It stands in the way of what needs it, and of nothing else."""
    table = keyed(spark, sales, "t")
    spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = 'k desc')")
    for command in ("suspend", "resume", "history"):
        assert run(command, table)[0] == 0
    code, out, err = run("recluster", table, "--cluster-by", "k", "--depth", "1")
    assert (code, "reclustered 6 blocks" in out) == (0, True)
    assert "table property recluster.cluster_by: cluster_by item 'k desc'" in err
    code, _, err = run("recluster", table)
    assert (code, "table property recluster.cluster_by" in err) == (1, True)


def test_an_option_that_does_not_exist_is_named(spark: Any, sales: str, run: Run) -> None:
    table = keyed(spark, sales, "t", depht="1")
    code, _, err = run("recluster", table)
    assert code == 0
    assert (
        err
        == f"{table}: table property recluster.option.depht is not an option of dbt-recluster and is ignored\n"
    )


def test_tables_without_a_key_and_without_existence(spark: Any, sales: str, run: Run, as_json: Any) -> None:
    table = make_table(spark, sales, files=1, rows=10)
    code, out, err = run("recluster", table, f"{sales}.nowhere", f"{table}.snapshots")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0] == (
        f"{table} has no cluster key: neither the property recluster.cluster_by nor a sort order; "
        "name one with cluster_by"
    )
    assert lines[1].startswith(f"{sales}.nowhere cannot be loaded: ")
    assert lines[2].startswith(f"{table}.snapshots is the metadata table snapshots of a table")
    assert lines[3:] == ["3 of 3 tables failed"]
    code, _, err = run("recluster", "--namespace", sales)
    assert (code, err) == (0, f"no table of {sales} has a cluster key\n")
    assert as_json("recluster", "--namespace", sales) == (0, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--namespace", "{catalog}.nowhere"), "there is no namespace nowhere in catalog {catalog}"),
        (
            ("--namespace", "nocat.sales"),
            "Spark has no catalog nocat: set spark.sql.catalog.nocat to org.apache.iceberg.spark.SparkCatalog; and "
            "there is no namespace nocat.sales in catalog spark_catalog, the current one",
        ),
        (
            ("--catalog", "nowhere"),
            "Spark has no catalog nowhere: set spark.sql.catalog.nowhere to org.apache",
        ),
    ],
)
def test_places_that_do_not_exist_are_wrong_usage(
    sales: str, run: Run, arguments: tuple[str, str], message: str
) -> None:
    catalog = sales.partition(".")[0]
    code, out, err = run("information", *(word.format(catalog=catalog) for word in arguments))
    assert (code, out) == (2, "")
    assert err.startswith(f"dbt-recluster: {message.format(catalog=catalog)}")
    assert len(err.splitlines()) == 1


def test_a_catalog_that_does_not_start_is_blamed(broken_catalog: str, run: Run) -> None:
    error = f"catalog {broken_catalog} does not start: Unknown catalog type: nonsense\n"
    for place in (("--catalog", broken_catalog), ("--namespace", f"{broken_catalog}.sales")):
        assert run("information", *place) == (1, "", f"dbt-recluster: {error}")
    name = f"{broken_catalog}.sales.orders"
    assert run("information", name) == (1, "", f"{name}: {error}")


def test_the_session_catalog_holds_other_tables_too(spark: Any, schema: str, as_json: Any) -> None:
    keyed(spark, schema, "t", depth="1")
    spark.sql(f"create table {schema}.p using parquet as select 1 k")
    spark.sql(f"create view {schema}.w as select 1 k")
    code, answers = as_json("recluster", "--namespace", schema)
    assert (code, list(answers)) == (0, ["t"])


def test_a_wrong_predicate_fails_the_table(spark: Any, sales: str, run: Run) -> None:
    table = keyed(spark, sales, "t")
    code, _, err = run("recluster", table, "--where", "nothing = 1")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
