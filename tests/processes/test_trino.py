"""dbt-trino builds tables with a real Trino, and the command clusters them by the manifest, run after run."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
import trino
from dbt_command import Project
from ports import HOST
from sessions import UNCACHED, catalog_settings, of_postgres

RUNS = 6
ROWS = 20_000  # of each run
CATALOG = "lake_of_trino"
# The config of each model, and a read of few of its rows.
MODELS = {
    "plain": ("cluster_by='k'", "k between 500000 and 501000"),
    "partitioned": (
        "cluster_by='k'; properties={'partitioning': \"ARRAY['region']\"}",
        "region = 'r1' and k between 500000 and 501000",
    ),
    "merged": (
        "cluster_by='k'; incremental_strategy='merge'; unique_key='id'; properties={'sorted_by': \"ARRAY['k DESC']\"}",
        "k between 500000 and 501000",
    ),
    "curve": ("cluster_by='hilbert(k, m)'", "m between 500000 and 501000"),
}
# A quarter of the rows of a run has the ids of the run before.
SQL = f"""
select id, (id * bigint '611953' + {{{{ var('run') }}}}) % 1000000 as k, id * bigint '350377' % 1000000 as m,
    'r' || cast(id % 4 as varchar) as region, {{{{ var('run') }}}} as loaded
from (select {{{{ var('run') }}}} * {ROWS * 3 // 4} + (a - 1) * 10000 + b as id
    from unnest(sequence(1, {ROWS // 10_000})) x(a) cross join unnest(sequence(1, 10000)) y(b))
"""
# Names that Spark and Trino would write in another way.
ORDERS = """{{ config(materialized='table', schema='My-Mart', meta={'recluster': {'cluster_by': 'k'}}) }}
select k, id from {{ ref('plain') }}"""
SCHEMA_NAME = "{% macro generate_schema_name(name, node) %}{{ name or target.schema }}{% endmacro %}"
COUNTS = "select count(*), sum(id), sum(k), sum(m), sum(loaded), sum(id * k % 1000003) from {}"


@pytest.fixture(scope="module")
def server(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[trino.Trino]:
    directory = tmp_path_factory.mktemp("trino")
    with postgres.server_or_skip() as url:
        catalog = {**of_postgres(url), **UNCACHED, ".warehouse": (directory / "warehouse").as_uri()}
        for name, value in catalog_settings(CATALOG, catalog).items():
            spark.conf.set(name, value)
        spark.sql(f"show namespaces in {CATALOG}")
        with trino.server(directory, CATALOG, url, (directory / "warehouse").as_uri()) as running:
            yield running


class Shop:
    """A project of dbt-trino's, and the command on its manifest."""

    def __init__(self, directory: Path, port: int, run_json: Any) -> None:
        self._run_json = run_json
        models = {"Orders.sql": ORDERS}
        for name, (config, _) in MODELS.items():
            key, *others = config.split("; ")
            recluster = f"{{'cluster_by': {key.partition('=')[2]}, 'block_rows': 4000, 'depth': 1}}"
            arguments = ", ".join(["materialized='incremental'", *others, f"meta={{'recluster': {recluster}}}"])
            models[f"{name}.sql"] = f"{{{{ config({arguments}) }}}}{SQL}"
        profile = {"type": "trino", "method": "none", "user": "tests", "host": HOST, "port": port, "threads": 2}
        place = {"database": "iceberg", "schema": "sales"}
        self._project = Project(directory, {**profile, **place}, models, dbt=[trino.dbt()])
        self._project.write("macros/generate_schema_name.sql", SCHEMA_NAME)

    def build(self, number: int) -> None:
        """Run all models."""
        self._project.succeed("run", "--vars", json.dumps({"run": number}), PYTHONPATH="")

    def recluster(self, *arguments: str) -> tuple[dict[str, Any], str]:
        """Run the command; return what it did to each table, and standard error."""
        code, answer, err = self._run_json("recluster", *arguments)
        assert code == 0, err
        return {each["table"].removeprefix(f"{CATALOG}."): each for each in answer["tables"]}, err

    @property
    def manifest(self) -> tuple[str, ...]:
        """The arguments that name the tables of the last build."""
        target = self._project.root / "target"
        results = ("--run-results", str(target / "run_results.json"), "--map", f"iceberg={CATALOG}")
        return ("--manifest", str(target / "manifest.json"), *results)


def test_tables_of_dbt_trino_are_reclustered(
    spark: Any, server: trino.Trino, tmp_path: Path, run_json: Any, capsys: Any
) -> None:
    shop = Shop(tmp_path / "shop", server.port, run_json)

    def read(name: str, where: str | None = None) -> trino.Answer:
        # All columns: the key alone is compressed to nothing.
        where = where or MODELS[name][1]
        return server.ask(f"select sum(id), sum(k), sum(m) from iceberg.sales.{name} where {where}")

    def counts() -> dict[str, list[Any]]:
        return {name: server.ask(COUNTS.format(f"iceberg.sales.{name}")).rows[0] for name in MODELS}

    def counts_of_spark() -> dict[str, list[Any]]:
        return {name: list(spark.sql(COUNTS.format(f"{CATALOG}.sales.{name}")).first()) for name in MODELS}

    def distinct(name: str) -> list[Any]:
        return [row[2] for row in server.ask(f"show stats for iceberg.sales.{name}").rows]

    for number in range(RUNS):
        shop.build(number)
        rows, before = counts(), {name: read(name) for name in MODELS}
        done, err = shop.recluster(*shop.manifest)
        assert set(done) == {"`my-mart`.orders", *(f"sales.{name}" for name in MODELS)}
        assert ("the cluster key k overrides its model's sorted_by (ARRAY['k DESC'])" in err) == (number == 0)
        # Trino has written one file of the first load, or one for each partition. Under a curve it is cut by itself.
        merged = {name for name in MODELS if done[f"sales.{name}"]["rounds"]}
        assert merged == (set(MODELS) if number else {"curve"})
        after = {name: read(name) for name in MODELS}
        assert counts() == rows == counts_of_spark()
        for name in MODELS:
            whole = read(name, "true")
            bytes_read = [f"{each.bytes_read:,}" for each in (before[name], after[name], whole)]
            with capsys.disabled():
                print("\nrun {}, {}: {} bytes read before, {} after, of {}".format(number + 1, name, *bytes_read))
            assert after[name].rows == before[name].rows
            # Trino skips pages within the file of a load, so that a load costs a read of one column of a curve little.
            # Of two loads of five blocks each, a read of one column opens up to three blocks each.
            share = 1 / 2 if number > 1 else 2 / 3
            most = share * whole.bytes_read if name == "curve" else before[name].bytes_read
            assert after[name].bytes_read < most or not number

    # Trino's counts of distinct values survive the expiry of the snapshots that they were made for.
    known = {name: distinct(name) for name in MODELS}
    for name in MODELS:
        server.ask(f"alter table iceberg.sales.{name} execute expire_snapshots(retention_threshold => '0s')")
        server.ask(f"alter table iceberg.sales.{name} execute remove_orphan_files(retention_threshold => '0s')")
    # Those of `merged` are from before its last run changed rows, so that the merge after it did not carry them on.
    assert {name: distinct(name) for name in MODELS if any(distinct(name))} == {
        name: of_columns for name, of_columns in known.items() if name != "merged"
    }
    assert all(None not in of_columns[:-1] for of_columns in known.values())
    assert counts() == rows

    # Every write that Trino has; it begins with the statistics that were carried over.
    for name in MODELS:
        table = f"iceberg.sales.{name}"
        server.ask(f"insert into {table} select id + 1000000, k, m, region, 9 from {table} where loaded = 0")
        server.ask(f"update {table} set m = m + 1 where k < 100000")
        server.ask(f"delete from {table} where k between 200000 and 300000")
        server.ask(
            f"merge into {table} t using (select id + 1 id, max(k) k from {table} where k > 900000 group by 1) s "
            "on t.id = s.id "
            "when matched then update set k = s.k when not matched then insert values (s.id, s.k, 0, 'new', 9)"
        )
        assert name == "merged" or distinct(name)[0] > known[name][0]
        server.ask(f"analyze {table}")
        server.ask(f"alter table {table} execute optimize_manifests")
    rows = counts()
    # Options of the models hold for who names the catalog.
    done, _ = shop.recluster("--catalog", CATALOG)
    assert all(done[f"sales.{name}"]["blocks_after"] > 8 for name in MODELS)
    assert counts() == rows == counts_of_spark()

    def paths() -> set[str]:
        return {row[0] for row in server.ask('select file_path from iceberg.sales."plain$files"').rows}

    ours = paths()
    server.ask("alter table iceberg.sales.plain execute optimize(file_size_threshold => '4kB')")
    assert paths() == ours
    server.ask("alter table iceberg.sales.plain execute optimize(file_size_threshold => '100MB')")
    _, err = shop.recluster(f"{CATALOG}.sales.plain")
    assert f"{CATALOG}.sales.plain: trino merged " in err
    assert "OPTIMIZE (Trino" in err
    assert counts() == rows == counts_of_spark()


def test_reads_of_the_event_listener_are_imported(server: trino.Trino, tmp_path: Path, run_json: Any) -> None:
    """As docs/guides/query-logs.md has it: from an event for each query to a threshold by cost."""
    table, read = "iceberg.logged.orders", "select max(id) from {} where k between 500 and 520"
    server.ask("create schema if not exists iceberg.logged")
    server.ask(f"create table {table} (k bigint, id bigint)")
    for load in range(6):
        rows = f"unnest(sequence({load * 5000}, {load * 5000 + 4999})) as t(id)"
        server.ask(f"insert into {table} select id * 7919 % 10000, id from {rows}")
    before = server.ask(read.format(table)).bytes_read
    for _ in range(9):
        server.ask(read.format('"iceberg"."logged"."orders"'))
    server.ask(f"select listagg(cast(id as varchar)) within group (order by id) from {table} where k = 7")
    server.ask("select 'the last'")
    deadline = time.monotonic() + 60
    while b"the last" not in (server.events.read_bytes() if server.events.exists() else b""):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    log = tmp_path / "queries.jsonl"
    with log.open("w") as lines:
        for event in map(json.loads, server.events.read_text().splitlines()):
            place = {name: event["context"].get(name) for name in ("catalog", "schema")}
            lines.write(json.dumps({"query": event["metadata"]["query"], "time": event["createTime"], **place}) + "\n")

    def run(*arguments: str) -> dict[str, Any]:
        code, answer, err = run_json(*arguments, f"{CATALOG}.logged.orders")
        assert code == 0, err
        return answer["tables"][0]

    imported = run("import-reads", f"--query-log={log}", "--dialect=trino", f"--logged-as={table}")
    assert imported["scans"] == 10
    assert run("recluster", "--cluster-by=k", "--depth=auto", "--block-rows=1000", "--final")["rounds"]
    assert server.ask(read.format(table)).bytes_read < before / 2
