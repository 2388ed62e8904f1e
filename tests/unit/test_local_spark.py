from __future__ import annotations

import zipfile
from pathlib import Path

import pyspark
import pytest

from dbt_recluster.exceptions import OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import EXTENSIONS
from dbt_recluster.iceberg.session.local_spark import (
    check_jars,
    iceberg_jar,
    iceberg_settings,
    log_options,
)
from dbt_recluster.iceberg.session.starter import outside_settings

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2"
of_spark_3_5 = pytest.mark.skipif(
    not pyspark.__version__.startswith("3.5."), reason="the jar of the package is for Spark 3.5"
)


@of_spark_3_5
@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {"spark.driver.extraClassPath": "{jar}"}),
        (
            {"spark.driver.extraClassPath": "/postgresql.jar"},
            {"spark.driver.extraClassPath": "/postgresql.jar:{jar}"},
        ),
        (
            {"spark.master": "spark://host:7077", "spark.jars": "/a.jar"},
            {"spark.jars": "/a.jar,{jar}"},
        ),
        ({"spark.jars.packages": f"a:b:1,{PACKAGES}"}, {}),
        ({"spark.jars": "/jars/iceberg-spark-runtime.jar"}, {}),
        (
            {"spark.driver.extraClassPath": "/iceberg/iceberg-aws-bundle-1.10.2.jar"},
            {"spark.driver.extraClassPath": "/iceberg/iceberg-aws-bundle-1.10.2.jar:{jar}"},
        ),
    ],
)
def test_the_jar_is_added_where_none_is_named(given: dict[str, str], added: dict[str, str]) -> None:
    expected = {name: value.format(jar=iceberg_jar()) for name, value in added.items()}
    assert iceberg_settings(given) == {**expected, "spark.sql.extensions": EXTENSIONS}


def test_extensions_are_added_to_others() -> None:
    jar = {"spark.jars.packages": PACKAGES}
    other = iceberg_settings({**jar, "spark.sql.extensions": "a.B"})
    assert other == {"spark.sql.extensions": f"a.B,{EXTENSIONS}"}
    assert iceberg_settings({**jar, "spark.sql.extensions": f"{EXTENSIONS},a.B"}) == {}


def test_a_spark_with_iceberg_gets_no_second_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "iceberg-spark-runtime-3.5_2.12-1.9.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert iceberg_settings({}) == {"spark.sql.extensions": EXTENSIONS}


def make_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core: str) -> Path:
    """Have SPARK_HOME name a Spark of another version; return an empty home."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / f"spark-core_{core}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def put_jar(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("a", "b")
    return path


def test_the_jar_of_another_spark_comes_from_maven_or_ivy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tested release before the newest; no file that is not a jar, and none for another Spark or Scala."""
    home = make_spark(tmp_path, monkeypatch, "2.13-4.0.5")
    maven = home / ".m2/repository/org/apache/iceberg"
    name = "iceberg-spark-runtime-4.0_2.13"
    put_jar(maven / "iceberg-spark-runtime-4.1_2.13/1.12.0/iceberg-spark-runtime-4.1_2.13-1.12.0.jar")
    put_jar(maven / name / "1.13.0-SNAPSHOT" / f"{name}-1.13.0-SNAPSHOT.jar")
    put_jar(maven / name / "1.12.0" / f"{name}-1.12.0.jar").write_bytes(b"cut off")
    missing = (
        "Iceberg's runtime for Spark 4.0 is missing: .*mvn dependency:get "
        f"-Dartifact=org.apache.iceberg:{name}:1.10.2`, or set spark.jars.packages in the profile"
    )
    assert "spark.driver.extraClassPath" not in iceberg_settings({})
    with pytest.raises(SparkEnvironmentError, match=missing):
        iceberg_settings({}, needs_jar=True)
    ivy = put_jar(home / f".ivy2.5.2/jars/org.apache.iceberg_{name}-1.9.3.jar")
    assert iceberg_jar() == ivy
    newest = put_jar(maven / name / "1.11.0" / f"{name}-1.11.0.jar")
    assert iceberg_settings({})["spark.driver.extraClassPath"] == str(newest)
    assert iceberg_jar() == newest
    tested = put_jar(maven / name / "1.10.2" / f"{name}-1.10.2.jar")
    assert iceberg_jar() == tested


def test_a_spark_without_iceberg_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_spark(tmp_path, monkeypatch, "2.13-4.2.1")
    with pytest.raises(
        SparkEnvironmentError, match=r"^Spark 4.2 is not supported yet: .* 3.5, 4.0 and 4.1\. "
    ):
        iceberg_jar()


def test_unfit_jars_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_spark(tmp_path, monkeypatch, "2.13-4.0.5")
    of_4_0 = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.2"
    check_jars({})
    check_jars({"spark.jars.packages": of_4_0, "spark.jars": "/a/iceberg-spark-runtime-4.0_2.13-1.10.2.jar"})
    with pytest.raises(
        SparkEnvironmentError,
        match=r"is for Spark 3.5, .* 4.0. .* place of iceberg-spark-runtime-3.5_2.12-1.10.2",
    ):
        check_jars({"spark.jars.packages": PACKAGES})
    put_jar(tmp_path / "more" / "iceberg-spark-runtime-4.0_2.13-1.11.0.jar")
    with pytest.raises(
        SparkEnvironmentError,
        match=r"load 2 Iceberg runtimes, iceberg-.*-1.10.2.jar and iceberg-.*-1.11.0.jar\.",
    ):
        check_jars(
            {"spark.jars.packages": of_4_0, "spark.driver.extraClassPath": f"/a.jar:{tmp_path}/more/*"}
        )


def test_what_spark_submit_finds_without_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults, own, given = (tmp_path / name for name in ("spark-defaults.conf", "own file", "given"))
    defaults.write_text("spark.a defaults\nspark.sql.catalog.lake = x\nnot.spark 1\n")
    own.write_text("spark.a own \n")
    given.write_text("spark.a\tgiven\nspark.jars.packages = a:b:1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert outside_settings() == {"spark.a": "defaults", "spark.sql.catalog.lake": "x"}
    words = (
        f"--properties-file '{own}' --conf spark.b=c=d --packages {PACKAGES} --master=local[3] pyspark-shell"
    )
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    named = {"spark.b": "c=d", "spark.jars.packages": PACKAGES, "spark.master": "local[3]"}
    assert outside_settings() == {"spark.a": "own", **named}
    assert outside_settings(given) == {"spark.a": "given", **named}
    assert outside_settings(tmp_path / "nothing") == named
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-java-options -client --name -x pyspark-shell")
    assert outside_settings(own) == {"spark.a": "own", "spark.app.name": "-x"}


@pytest.mark.parametrize("level", ["loud", "", "INFO -Xmx1m"])
def test_a_log_level_that_spark_lacks_is_refused(level: str) -> None:
    with pytest.raises(OptionError, match=r"spark_log_level must be one of ALL, DEBUG, .*, not"):
        log_options(Path("spark.log"), level)


def test_a_log_level_in_any_case() -> None:
    assert "-Drecluster.log.level=info" in log_options(Path("spark.log"), "Info")
