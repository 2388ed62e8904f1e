"""Versions of Spark, and of Iceberg's runtime for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.session import starter
from dbt_recluster.iceberg.session.environment import check_version, wrong_runtime

OF_3_5 = "file:/jars/iceberg-spark-runtime-3.5_2.12-1.10.2.jar"


def session(version: str) -> Any:
    return SimpleNamespace(version=version, _jsparkSession=None)


@pytest.mark.parametrize("version", ["3.5.0", "3.5.7-amzn-1", "4.0.0", "4.0.1", "4.1.4"])
def test_versions_that_are_supported(version: str) -> None:
    check_version(session(version))


@pytest.mark.parametrize("version", ["3.3.4", "3.4.2", "4.2.1", "4.3.0-preview2", "4.10.0", "5.0.0"])
def test_others_are_refused_by_name(version: str) -> None:
    with pytest.raises(SparkEnvironmentError) as e:
        check_version(session(version))
    assert str(e.value) == (
        f"Spark {version} is not supported: dbt-recluster runs on Spark 3.5, 4.0 and 4.1, and Iceberg 1.12 on none "
        "after 4.1. Nothing was changed"
    )


def test_it_is_refused_before_its_first_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg's extensions for Spark 4.1 fail on a later one with any statement."""
    monkeypatch.setattr(starter, "_start_jvm", lambda *_: {})
    monkeypatch.setattr(starter, "_session", lambda *_: session("4.2.1"))
    with pytest.raises(SparkEnvironmentError, match=r"^Spark 4\.2\.1 is not supported"):
        starter.start_spark({})


def test_a_runtime_for_another_spark_is_named() -> None:
    of_4_0 = OF_3_5.replace("3.5_2.12", "4.0_2.13")
    for jar, version in ((OF_3_5, "3.5.7"), (of_4_0, "4.0.1"), ("file:/jars/runtime.jar", "4.0.1")):
        assert wrong_runtime(jar, version) is None
    assert wrong_runtime(OF_3_5, "4.0.1") == (
        "This Iceberg runtime is for Spark 3.5, and the session's Spark is 4.0.1. Put iceberg-spark-runtime-4.0 in the "
        "place of iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
    )
