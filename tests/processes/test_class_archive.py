"""The archive of Spark's classes, which one process leaves behind and later ones map."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from dbt_command import Project

from dbt_recluster.iceberg.session.class_archive import ClassArchive, find_archive
from dbt_recluster.iceberg.session.local_spark import find_java_home, iceberg_jar, spark_home

MODEL = {"events.sql": "{{ config(materialized='table', cluster_by='k') }} select id as k from range(10)"}
# Nothing of this run's own archive.
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LINE = "Spark's classes are put into"
# Starts the lake as dbt does, and tells what Java did.
START = """
import json, sys
from dbt_recluster.adapter.connections import embedded

spark = embedded.start("lake", {"spark.driver.extraClassPath": sys.argv[1]})
System = spark._jvm.java.lang.System
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(json.dumps([str(System.getProperty("java.vm.info")), list(arguments)]))
"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar on the class path that nobody else has, to change."""
    return write_jar(tmp_path / "of the test.jar", "a")


def write_jar(file: Path, content: str) -> Path:
    with zipfile.ZipFile(file, "w") as written:
        written.writestr(content, content)
    return file


def start(project: Project, class_path: str, environment: dict[str, str]) -> tuple[bool, bool]:
    """Start Spark once more; return whether Java was given an archive, and whether it uses one."""
    started = subprocess.run(
        [sys.executable, "-c", START, class_path],
        cwd=project.root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert "archive" not in started.stderr
    info, arguments = json.loads(started.stdout.splitlines()[-1])
    return any("SharedArchiveFile" in argument for argument in arguments), "sharing" in info


def test_an_archive_is_made_used_refused_and_replaced(tmp_path: Path, jar: Path) -> None:
    class_path = f"{iceberg_jar()}:{jar}"
    settings = {"spark.driver.extraClassPath": class_path}
    profile = {"method": "embedded", "path": "lake", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, MODEL)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_SUBMIT_OPTS": PLAIN}
    cache = tmp_path / "cache" / "dbt-recluster"

    code, out, err = project.run("debug", **environment)
    assert (code, err) == (0, ""), out
    assert "starting Spark with" in out
    assert LINE not in out  # it ran no job
    code, out, err = project.run("run", **environment)
    assert (code, err) == (0, ""), out
    assert LINE in out.splitlines()[-1]
    archive = wait_for_archive(cache)
    assert {file.name for file in cache.iterdir()} == {"lock", archive.name}

    assert start(project, class_path, environment) == (True, True)
    code, out, err = project.run("run", **environment)
    assert (code, err) == (0, ""), out
    assert LINE not in out

    archive.chmod(0o600)
    archive.write_bytes(b"no archive" * 1000)
    assert start(project, class_path, environment)[0]
    assert archive.stat().st_size == 0
    assert not start(project, class_path, environment)[0]

    write_jar(jar, "other classes")
    assert not start(project, class_path, environment)[0]
    assert not archive.exists()


def wait_for_archive(cache: Path) -> Path:
    deadline = time.monotonic() + 240
    while not (found := list(cache.glob("*.jsa"))) or (len(list(cache.iterdir())) > 2):
        assert time.monotonic() < deadline, list(cache.iterdir())
        time.sleep(0.2)
    return found[0]


def test_a_profile_turns_it_off(tmp_path: Path) -> None:
    profile = {"method": "embedded", "path": "lake", "class_archive": False}
    project = Project(tmp_path / "p", profile, MODEL)
    code, out, _ = project.run("run", XDG_CACHE_HOME=str(tmp_path / "cache"), SPARK_SUBMIT_OPTS=PLAIN)
    assert code == 0, out
    assert LINE not in out
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return tmp_path / "cache" / "dbt-recluster"


def find(jar: Path, version: int = 17, **settings: str) -> ClassArchive | None:
    given = {"spark.driver.extraClassPath": str(jar), **settings}
    return find_archive(find_java_home(), version, spark_home(), given)


def test_another_version_of_a_jar_has_another_archive(cache: Path, jar: Path) -> None:
    first = find(jar)
    assert first is not None
    assert first.class_list is not None
    first.file.write_bytes(b"x")
    found = find(jar)
    assert found is not None
    assert (found.file, found.class_list) == (first.file, None)
    write_jar(jar, "another")
    second = find(jar)
    assert second is not None
    assert second.file != first.file
    assert not first.file.exists()


def test_where_there_can_be_no_archive(cache: Path, jar: Path) -> None:
    assert find(jar, 11) is None
    assert find(jar, **{"spark.driver.extraJavaOptions": "-javaagent:a.jar"}) is None
    assert find(jar) is not None
    cache.chmod(0o777)
    assert find(jar) is None
    cache.rmdir()
    cache.write_text("a file")
    assert find(jar) is None


def test_a_relative_cache_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jar: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    found = find(jar)
    assert found is not None
    assert tmp_path in found.file.parents


def test_an_empty_jar_makes_no_archive(tmp_path: Path) -> None:
    """What raises when a process ends is printed below the command's own last line."""
    empty, listed, said = tmp_path / "empty.jar", tmp_path / "classes", list[str]()
    empty.touch()
    listed.write_text("org/apache/spark/scheduler/ResultTask id: 1\n")
    ClassArchive(Path("java"), tmp_path / "a.jsa", listed)._make(listed, str(empty), said.append)
    assert {file.name for file in tmp_path.iterdir()} == {"empty.jar", "lock"}
    assert said == []
