"""`method: embedded`, and `method: session` with the user's own settings and catalogs; each dbt in its own process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbt_command import EVENTS, Project, one_line, session_settings
from jobs import EXTENSIONS
from programs import interrupt, run, wait_for
from sessions import hadoop_lake

# What URLs and shells would read in another way.
LAKE = "a lake's ü, 50% #1 & $HOME"
FILES = "{{ config(materialized='table', file_format='%s') }} select 1 as id"
# Goes on until the process ends.
SLOW = """-- depends_on: {{ ref('events') }}
{{ config(materialized='table') }} select count(*) as n from range(1000000000000000L) where id % 7 = 3"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    models = {"events.sql": EVENTS, "files.sql": FILES % "iceberg"}
    made = Project(tmp_path / "a project", {"method": "embedded", "path": LAKE}, models)
    yield made
    made.stop()


def test_two_runs_leave_nothing_but_the_lake_and_are_silent(project: Project) -> None:
    code, out, err = project.run("run")
    assert (code, err) == (0, "")
    assert "OK created sql incremental model analytics.events" in out
    assert not [line for line in out.splitlines() if "WARN" in line and "PASS=2" not in line]
    project.write("models/files.sql", FILES % "parquet")
    code, out, err = project.run("run")
    assert (code, err) == (0, ""), out
    assert f"They are moved to {project.root / LAKE / 'warehouse' / 'analytics.db' / 'files'}." in out
    assert " blocks into " in out
    of_project = {"dbt_project.yml", "profiles.yml", "models", ".user.yml"}
    assert project.files() - of_project == {"logs", "target", LAKE}
    run("git", "init", "-q", cwd=project.root)
    assert run("git", "status", "--short", LAKE, cwd=project.root).stdout == ""
    assert project.ask("select count(*), count(distinct id) from analytics.events") == (2000, 1000)
    command = str(Path(sys.executable).with_name("dbt-recluster"))
    out = run(command, "information", "analytics.events", "--lake", LAKE, cwd=project.root).stdout
    assert out.startswith("analytics.events by ")


def test_what_cannot_be_logged_is_left_out(project: Project) -> None:
    """On a full disk, log4j printed each line with a stack trace."""
    log = project.root / LAKE / "logs" / "spark.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    code, out, err = project.run("run")
    assert (code, err) == (0, ""), err
    assert "Exception" not in out
    assert "No space left" not in out


def test_debug_starts_spark_with_the_settings_of_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    settings = {"spark.app.name": "mine", "spark.sql.shuffle.partitions": 7, "spark.ui.enabled": False}
    profile = {
        "method": "embedded",
        "path": LAKE,
        "spark_log_level": "INFO",
        "server_side_parameters": settings,
    }
    project = Project(tmp_path / "p", profile, {})
    code, out, err = project.run("debug")
    assert code == 0, out
    assert "All checks passed!" in out
    assert " INFO " in err
    assert project.ask("select '${spark.sql.shuffle.partitions}', current_timezone()") == ("7", "UTC")


def test_a_second_process_is_turned_away_and_a_killed_or_interrupted_one_is_not_in_the_way(
    project: Project,
) -> None:
    project.write("models/slow.sql", SLOW)
    begins, lake = "START sql table model analytics.slow", project.root / LAKE
    first = project.start("run")
    wait_for(first, begins)
    out = project.fail("run", "--target-path", "target2", "--log-path", "logs2")
    assert f"process {first.pid} works in the lake {lake}" in out
    assert "Nothing was changed" in out
    first.kill()
    first.wait()
    code, out, _ = interrupt(project.start("run"), begins, after=3)  # dbt says so before it sends the statement
    assert code != 0, out
    # Neither of the runs that were ended, nor the one that was turned away, has lost or doubled a load.
    assert project.ask("select count(*) from analytics.events") == (2000,)


# A Spark that does not start leaves a JVM, which has the lock of the lake.
START_AGAIN = """
from dbt_recluster.iceberg.session import embedded
from dbt_recluster.exceptions import SparkEnvironmentError

try:
    embedded.start("lake", {"spark.serializer": "no.such.Serializer"})
except SparkEnvironmentError as e:
    print(e)
print(embedded.start("lake").sql("select 1").collect())
"""


def test_a_start_that_fails_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    out = run(sys.executable, "-c", START_AGAIN, cwd=tmp_path).stdout
    assert "Spark does not start: ClassNotFoundException: no.such.Serializer" in out
    assert "[Row(1=1)]" in out


@pytest.mark.alike
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dbt_project.yml", "is a file; the embedded method needs"),
        ("dbt_project.yml/lake", "cannot be used as a lake: Not a directory"),
    ],
)
def test_a_path_that_is_no_directory_is_refused(path: str, message: str, tmp_path: Path) -> None:
    out = Project(tmp_path / "p", {"method": "embedded", "path": path}, {"events.sql": EVENTS}).fail("run")
    assert message in out
    assert "[Errno" not in out


def test_a_catalog_of_iceberg_tables_only(tmp_path: Path) -> None:
    """A catalog of the user's own: here Iceberg's Hadoop catalog, which has no views."""
    spark = session_settings(tmp_path, **hadoop_lake(tmp_path / "lake"))
    spark["spark.jars"] = spark.pop("spark.driver.extraClassPath")
    profile = {"method": "session", "catalog": "lake", "server_side_parameters": spark}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    project.write("models/seen.sql", "{{ config(materialized='view') }} select 1 as id")
    project.succeed("debug")
    for _ in range(2):
        out = project.fail("run", code=1)
    assert " blocks into " in out
    assert "PASS=1 WARN=0 ERROR=1" in out
    sentence = "view is not supported by catalog: lake. Let the model be a table or ephemeral, or use a catalog"
    assert sentence in one_line(out)
    out = project.succeed("run-operation", "recluster", "--args", "{table: events, final: true}")
    assert "1 of 1 lake.analytics.events: " in out


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
        **METASTORE,
        "spark.sql.catalog.spark_catalog.cache-enabled": False,
        "spark.hadoop.iceberg.engine.hive.lock-enabled": False,
        "spark.hadoop.datanucleus.schema.autoCreateAll": True,
        "spark.hadoop.hive.metastore.schema.verification": False,
    }
    profile = {"method": "session", "server_side_parameters": session_settings(tmp_path, **catalog)}
    models = {"files.sql": FILES % "parquet", "blocks.sql": FILES % "iceberg"}
    project = Project(tmp_path / "p", profile, models)
    for _ in range(2):
        project.succeed("run")
    project.write("models/blocks.sql", FILES % "orc")
    out = project.fail("run", "--select", "blocks", code=1)
    assert "analytics.blocks cannot be replaced by a table of orc: the files of the present one stay in" in out
    assert project.ask("select * from analytics.blocks") == (1,)
