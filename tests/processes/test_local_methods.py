"""`method: embedded`, and `method: session` with the user's own settings and catalogs; each dbt in its own process."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbt_command import EVENTS, Project, hadoop_lake, session_settings
from jobs import EXTENSIONS

# What URLs and shells would read in another way.
LAKE = "a lake's ü, 50% #1 & $HOME"
WORDS = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=500) }}
select id, pmod(hash(id), 100) as k, '%s' as v from range(1000)"""
FILES = "{{ config(materialized='table', file_format='%s') }} select 1 as id"
# The word that tells that the warehouse answers, from a process that did not build the table.
ASK = "{% macro ask() %}{% do log('rows: ' ~ run_query('select count(*), count(distinct v) from analytics.events')"
ASK += ".rows[0].values() | join(' '), info=true) %}{% endmacro %}"

# Rows, and the reclusters that were committed, before and after one more.
LOOK = """
{% macro look() %}
  {% set counts %}
    select count(*), count(distinct k), (select count(*) from analytics.big.snapshots where operation = 'replace')
    from analytics.big
  {% endset %}
  {% do log('found: ' ~ run_query(counts).rows[0].values() | join(' '), info=true) %}
{% endmacro %}
{% macro look_recluster_look() %}
  {% do look() %}
  {% do recluster(table='big') %}
  {% do look() %}
{% endmacro %}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    models = {"events.sql": WORDS % "a", "files.sql": FILES % "iceberg"}
    made = Project(tmp_path / "a project", {"method": "embedded", "path": LAKE}, models)
    (made.root / "macros").mkdir()
    (made.root / "macros" / "ask.sql").write_text(ASK)
    yield made
    made.stop()


def test_two_runs_leave_nothing_but_the_lake_and_are_silent(project: Project) -> None:
    code, out, err = project.run("run")
    assert (code, err) == (0, "")
    assert "OK created sql incremental model analytics.events" in out
    assert not [line for line in out.splitlines() if "WARN" in line and "PASS=2" not in line]
    (project.root / "models" / "files.sql").write_text(FILES % "parquet")
    code, out, err = project.run("run")
    assert (code, err) == (0, ""), out
    assert f"They are in {project.root / LAKE / 'warehouse' / 'analytics.db' / 'files'}." in out
    assert ", reclustered " in out
    of_project = {"dbt_project.yml", "profiles.yml", "models", "macros"}
    assert project.files() - {".user.yml"} == {*of_project, "logs", "target", LAKE}
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    shown = subprocess.run(
        ["git", "status", "--short", LAKE], cwd=project.root, capture_output=True, check=True
    )
    assert shown.stdout == b""
    out = project.succeed("run-operation", "ask")
    assert "rows: 2000 1" in out


def test_what_cannot_be_logged_is_left_out(project: Project) -> None:
    """On a full disk, log4j printed each line with a stack trace."""
    log = project.root / LAKE / "logs" / "spark.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    code, out, err = project.run("run")
    assert (code, err) == (0, ""), err
    assert "Exception" not in out
    assert "No space left" not in out


def test_debug_and_settings(project: Project) -> None:
    profile = {"type": "recluster", "method": "embedded", "path": LAKE, "schema": "analytics"}
    settings = {"spark.app.name": "mine", "spark.sql.shuffle.partitions": 7, "spark.ui.enabled": False}
    target = {**profile, "spark_log_level": "INFO", "server_side_parameters": settings}
    project.write("profiles.yml", {"p": {"target": "dev", "outputs": {"dev": target}}})
    code, out, err = project.run("debug")
    assert code == 0, out
    assert "All checks passed!" in out
    assert " INFO " in err
    question = "run_query('set spark.sql.shuffle.partitions').rows[0][1]"
    macro = "{% macro ask() %}{% do log(" + question + ", info=true) %}{% endmacro %}"
    (project.root / "macros" / "ask.sql").write_text(macro)
    out = project.succeed("run-operation", "ask")
    assert out.splitlines()[-1].endswith(" 7")


def contents(lake: Path) -> dict[str, str]:
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in lake.rglob("*")
        if path.is_file() and "logs" not in path.parts
    }


def test_a_second_process_is_turned_away_and_a_killed_one_is_not_in_the_way(project: Project) -> None:
    first = start_slow_model(project)
    lake = project.root / LAKE
    before = contents(lake / "warehouse")
    assert before
    out = project.fail("run", "--target-path", "target2", "--log-path", "logs2")
    assert f"process {first.pid} works in the lake {lake}" in out
    assert "Nothing was changed" in out
    assert contents(lake / "warehouse") == before

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    project.succeed("run", "--select", "events")


# A Spark that does not start leaves a JVM, which has the lock of the lake.
START_AGAIN = """
from dbt_recluster.adapter import session as embedded
from dbt_recluster.exceptions import SparkEnvironmentError

try:
    embedded.start("lake", {"spark.serializer": "no.such.Serializer"})
except SparkEnvironmentError as e:
    print(e)
print(embedded.start("lake").sql("select 1").collect())
"""


def test_a_start_that_fails_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-c", START_AGAIN], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Spark does not start: ClassNotFoundException: no.such.Serializer" in started.stdout
    assert "[Row(1=1)]" in started.stdout


def start_slow_model(project: Project) -> subprocess.Popen[str]:
    """Run `events` and then a model that goes on until the process ends, and return once that one has begun."""
    slow = "{{ config(materialized='table') }} select count(*) as n from range(1000000000000000L) where id % 7 = 3"
    (project.root / "models" / "slow.sql").write_text(f"-- depends_on: {{{{ ref('events') }}}}\n{slow}")
    process = project.start("run")
    project.wait_for_log("START sql table model analytics.slow", process, 120)
    time.sleep(3)  # dbt says so before it sends the statement
    return process


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C, and see that dbt ends soon and says that it failed."""
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert time.monotonic() - started < 30
    assert process.returncode != 0, out


def test_ctrl_c_ends_soon_and_leaves_the_lake_usable(project: Project) -> None:
    process = start_slow_model(project)
    interrupt(process)
    project.succeed("run", "--select", "events")


def test_ctrl_c_in_the_middle_of_a_merge_leaves_the_table_as_it_was(project: Project) -> None:
    """The data of the run is there, and nothing of the recluster that came after it."""
    (project.root / "models" / "big.sql").write_text(
        "{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=25000) }}"
        "select id, xxhash64(id, '{{ invocation_id }}') as k, sha2(string(id), 512) as v from range(500000)"
    )
    project.succeed("run", "--select", "big")
    (project.root / "logs" / "dbt.log").unlink()
    process = project.start("run", "--select", "big")
    project.wait_for_log("big: round 1 merges", process, 240)
    time.sleep(2)
    interrupt(process)
    (project.root / "macros" / "look.sql").write_text(LOOK)
    out = project.succeed("run-operation", "look_recluster_look")
    assert re.findall("found: (.*)", out) == ["1000000 1000000 0", "1000000 1000000 1"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dbt_project.yml", "is a file; the embedded method needs"),
        ("dbt_project.yml/lake", "cannot be used as a lake: Not a directory"),
    ],
)
def test_a_path_that_is_no_directory(path: str, message: str, tmp_path: Path) -> None:
    out = Project(tmp_path / "p", {"method": "embedded", "path": path}, {"events.sql": WORDS % "a"}).fail(
        "run"
    )
    assert message in out
    assert "[Errno" not in out


@pytest.mark.alike
@pytest.mark.parametrize("is_named", [True, False], ids=["by the profile", "as the default"])
def test_a_catalog_of_iceberg_tables_only(is_named: bool, tmp_path: Path) -> None:
    """A catalog of the user's own: here Iceberg's Hadoop catalog, which has no views."""
    (tmp_path / "lake").mkdir()
    default = {} if is_named else {"spark.sql.defaultCatalog": "lake"}
    spark = session_settings(tmp_path, **hadoop_lake(tmp_path / "lake"), **default)
    if is_named:
        spark["spark.jars"] = spark.pop("spark.driver.extraClassPath")
    profile = {
        "method": "session",
        "server_side_parameters": spark,
        **({"catalog": "lake"} if is_named else {}),
    }
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    if is_named:
        project.succeed("debug")
    project.succeed("run")
    (project.root / "models" / "seen.sql").write_text("{{ config(materialized='view') }} select 1 as id")
    out = project.fail("run", code=1)
    assert ", reclustered " in out
    assert "PASS=1 WARN=0 ERROR=1" in out
    text = " ".join(out.split())
    assert (
        "view is not supported by catalog: lake. Let the model be a table or ephemeral, or use a catalog"
        in text
    )
    out = project.succeed("run-operation", "recluster", "--args", "{table: events, final: true}")
    assert f"1 of 1 {'lake.' if is_named else ''}analytics.events: " in out


NO_ANSWER = {
    "spark.sql.defaultCatalog": "lake",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.catalog.lake.uri": "http://127.0.0.1:9/",
}
METASTORE = {
    "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
    "spark.sql.catalog.spark_catalog.type": "hive",
}
NOTHING = dict.fromkeys(("spark.driver.extraClassPath", "spark.sql.extensions"), "")


@pytest.mark.parametrize(
    ("more", "messages"),
    [
        (
            NOTHING,
            [
                "Iceberg's classes are not loaded. Put the jar iceberg-spark-runtime for Spark 3.5 on spark.jars",
                f"Start the session with spark.sql.extensions={EXTENSIONS}",
                "the default catalog spark_catalog is Spark's built-in one, which holds no Iceberg tables",
            ],
        ),
        (METASTORE, ["has a Hive metastore of its own in this session, which cannot lock tables"]),
        (NO_ANSWER, ["lake does not answer"]),
    ],
    ids=["nothing", "a metastore of its own", "a catalog that does not answer"],
)
def test_debug_says_what_is_wrong(more: dict[str, str], messages: list[str], tmp_path: Path) -> None:
    spark = {name: value for name, value in session_settings(tmp_path, **more).items() if value != ""}
    profile = {"method": "session", "server_side_parameters": spark}
    out = Project(tmp_path / "p", profile, {"events.sql": EVENTS}).fail("debug")
    assert [message for message in messages if message not in out] == []


def test_another_format_in_the_session_catalog(tmp_path: Path) -> None:
    """A second run replaces the table. Iceberg's files lie where only the user may move them, which is said before."""
    catalog = {
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        "spark.sql.catalog.spark_catalog.cache-enabled": False,
        "spark.hadoop.iceberg.engine.hive.lock-enabled": False,
        "spark.hadoop.datanucleus.schema.autoCreateAll": True,
        "spark.hadoop.hive.metastore.schema.verification": False,
    }
    profile = {"method": "session", "server_side_parameters": session_settings(tmp_path, **catalog)}
    model = "{{{{ config(materialized='table', file_format='{}') }}}} select 1 as id"
    models = {"files.sql": model.format("parquet"), "blocks.sql": model.format("iceberg")}
    project = Project(tmp_path / "p", profile, models)
    for _ in range(2):
        project.succeed("run")
    (project.root / "models" / "blocks.sql").write_text(model.format("orc"))
    out = project.fail("run", "--select", "blocks", code=1)
    assert (
        "analytics.blocks cannot be replaced by a table of orc: the files of the present one stay in" in out
    )
    (project.root / "models" / "blocks.sql").write_text("select * from analytics.blocks")
    project.succeed("show", "--select", "blocks")


def test_spark_connect_is_refused_in_one_sentence(tmp_path: Path) -> None:
    profile = {"method": "session", "server_side_parameters": session_settings(tmp_path)}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    out = project.fail("run", SPARK_REMOTE="sc://127.0.0.1:9")
    assert (
        "SPARK_REMOTE is set to sc://127.0.0.1:9, so pyspark connects to that Spark by Spark Connect" in out
    )
    assert "Unset it, or add `recluster_submit` to the profile" in " ".join(out.split())
