"""The archive of Spark's classes, which one process leaves behind and later ones map."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from dbt_command import Project
from programs import run
from runtime import iceberg_jar

from dbt_recluster.iceberg.session.local_spark import find_archive, find_java_home

MODEL = {"events.sql": "{{ config(materialized='table', cluster_by='k') }} select id as k from range(10)"}
PROFILE = {
    "method": "embedded",
    "path": "lake",
    "server_side_parameters": {"spark.driver.extraClassPath": str(iceberg_jar())},  # not from another cache
}
# Nothing of this run's own archive.
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LINE = "after this command, unless the machine is busy, Spark's classes are put into"
# Starts the lake as dbt does, runs a job, and tells what Java did.
START = """
import json, sys
from dbt_recluster.iceberg.session import embedded

spark = embedded.start("lake")
assert spark.range(10).count() == 10
System = spark._jvm.java.lang.System
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(json.dumps([str(System.getProperty("java.vm.info")), list(arguments)]))
"""


class Lake:
    """A project with an archive, which its first run has left behind."""

    def __init__(self, directory: Path) -> None:
        self._project = Project(directory / "p", PROFILE, MODEL)
        # At the lowest priority, making the archive would wait for all tests that run beside it.
        usual = directory / "bin" / "nice"
        usual.parent.mkdir(parents=True)
        usual.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        usual.chmod(0o700)
        loads = usual.with_name("sitecustomize.py")
        loads.write_text('import os\nos.getloadavg = lambda: (float(os.environ["LOAD"]), 0, 0)\n')
        self._environment = {
            "XDG_CACHE_HOME": str(directory / "cache"),
            "SPARK_SUBMIT_OPTS": PLAIN,
            "PATH": f"{usual.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{loads.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "LOAD": "0",
        }
        self._cache = directory / "cache" / "dbt-recluster"
        self.run("debug")
        assert not list(self._cache.iterdir())  # it ran no job
        assert LINE in self.run("run", LOAD="999")
        assert not list(self._cache.iterdir())
        assert LINE in self.run("run")
        (self.archive,) = self._cache.glob("*.jsa")
        deadline = time.monotonic() + 240
        while not self.archive.stat().st_size:  # until Java has made it
            assert time.monotonic() < deadline, list(self._cache.iterdir())
            time.sleep(0.2)

    def run(self, command: str, **environment: str) -> str:
        code, out, err = self._project.run(command, **{**self._environment, **environment})
        assert (code, err) == (0, ""), out
        return out

    def start(self, options: str = "") -> tuple[bool, bool]:
        """Start Spark once more; return whether Java was given the archive, and whether it uses one."""
        environment = {**os.environ, **self._environment, "SPARK_SUBMIT_OPTS": f"{PLAIN} {options}"}
        started = run(sys.executable, "-c", START, cwd=self._project.root, env=environment)
        assert "archive" not in started.stderr
        info, arguments = json.loads(started.stdout.splitlines()[-1])
        return f"-XX:SharedArchiveFile={self.archive}" in arguments, "sharing" in info


def test_an_archive_is_used_until_it_is_damaged_and_made_again_after_a_week(tmp_path: Path) -> None:
    """Unverified, Java maps a damaged one, and a zero where a class should be ends the process."""
    lake = Lake(tmp_path / "a lake")
    assert LINE not in lake.run("run")
    assert lake.start("-XX:StartFlightRecording") == (True, True)
    lake.archive.chmod(0o600)
    size = lake.archive.stat().st_size
    with lake.archive.open("r+b") as archive:
        archive.seek(size // 4)
        archive.write(bytes(size // 2))
    assert lake.start() == (True, False)
    lake.archive.write_bytes(b"")  # while it is made, or where Java cannot make it
    assert lake.start() == (True, False)
    week_ago = time.time() - 8 * 86_400
    os.utime(lake.archive, (week_ago, week_ago))
    assert LINE in lake.run("debug")
    assert not lake.archive.exists()


def test_a_profile_turns_the_archive_off(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", {**PROFILE, "class_archive": False}, MODEL)
    out = project.succeed("run", XDG_CACHE_HOME=str(tmp_path / "cache"), SPARK_SUBMIT_OPTS=PLAIN)
    assert LINE not in out
    assert not (tmp_path / "cache").exists()


def test_no_archive_where_spark_could_not_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_archive(version: int = 17, **settings: str) -> bool:
        return find_archive(find_java_home(), version, settings) is not None

    cache = tmp_path / "cache" / "dbt-recluster"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert has_archive()
    for environment in ("gone", "cache"):
        (cache / f"{environment}.jars").symlink_to(tmp_path / environment)
        (cache / f"{environment}.jsa").touch()
    (cache / "runtime.jar").touch()
    assert has_archive()
    assert {file.name for file in cache.iterdir()} == {"cache.jars", "cache.jsa", "runtime.jar"}
    assert not has_archive(11)
    assert not has_archive(**{"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=own.jsa"})
    cache.chmod(0o777)
    assert not has_archive()
    shutil.rmtree(cache)
    cache.write_text("a file")
    assert not has_archive()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert not has_archive()
