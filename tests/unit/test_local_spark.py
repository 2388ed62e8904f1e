from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.environment import EXTENSIONS
from dbt_recluster.iceberg.session.local_spark import iceberg_jar, iceberg_settings, log_options
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
