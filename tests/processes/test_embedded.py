"""`method: embedded`, each dbt in a process of its own."""

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
from dbt_command import Project

# What URLs and shells would read in another way.
LAKE = "a lake's ü, 50% #1 & $HOME"
EVENTS = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=500) }}
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
    models = {"events.sql": EVENTS % "a", "files.sql": FILES % "iceberg"}
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
    assert project.files() == {
        "dbt_project.yml",
        "profiles.yml",
        "models",
        "macros",
        "logs",
        "target",
        ".user.yml",
        LAKE,
    } - ({".user.yml"} - project.files())
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    shown = subprocess.run(
        ["git", "status", "--short", LAKE], cwd=project.root, capture_output=True, check=True
    )
    assert shown.stdout == b""
    _, out, _ = project.run("run-operation", "ask")
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
    _, out, _ = project.run("run-operation", "ask")
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
    code, out, _ = project.run("run", "--target-path", "target2", "--log-path", "logs2")
    assert code != 0
    assert f"process {first.pid} works in the lake {lake}" in out
    assert "Nothing was changed" in out
    assert contents(lake / "warehouse") == before

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    code, out, _ = project.run("run", "--select", "events")
    assert code == 0, out


# A Spark that does not start leaves a JVM, which has the lock of the lake.
START_AGAIN = """
from dbt_recluster.adapter.connections import embedded
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
    log = project.root / "logs" / "dbt.log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "START sql table model analytics.slow" in log.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
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
    code, out, _ = project.run("run", "--select", "events")
    assert code == 0, out


def test_ctrl_c_in_the_middle_of_a_merge_leaves_the_table_as_it_was(project: Project) -> None:
    """The data of the run is there, and nothing of the recluster that came after it."""
    (project.root / "models" / "big.sql").write_text(
        "{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=25000) }}"
        "select id, xxhash64(id, '{{ invocation_id }}') as k, sha2(string(id), 512) as v from range(500000)"
    )
    code, out, _ = project.run("run", "--select", "big")
    assert code == 0, out
    log = project.root / "logs" / "dbt.log"
    log.unlink()
    process = project.start("run", "--select", "big")
    deadline = time.monotonic() + 240
    while not (log.exists() and "big: round 1 merges" in log.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    interrupt(process)
    (project.root / "macros" / "look.sql").write_text(LOOK)
    code, out, _ = project.run("run-operation", "look_recluster_look")
    assert code == 0, out
    assert re.findall("found: (.*)", out) == ["1000000 1000000 0", "1000000 1000000 1"]


def test_a_path_that_is_a_file(project: Project) -> None:
    target = {"type": "recluster", "method": "embedded", "path": "dbt_project.yml", "schema": "analytics"}
    project.write("profiles.yml", {"p": {"target": "dev", "outputs": {"dev": target}}})
    code, out, _ = project.run("run")
    assert code != 0
    assert "is a file; the embedded method needs" in out


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profile = {"method": "embedded", "path": str(tmp_path / "file" / "lake")}
    code, out, _ = Project(tmp_path / "p", profile, {"events.sql": EVENTS % "a"}).run("run")
    assert code != 0
    assert "cannot be used as a lake: Not a directory" in out
    assert "[Errno" not in out
