"""The keys of a profile, the settings of `recluster_session`, and what is secret in them."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from dbt_common.dataclass_schema import ValidationError
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.events.logger import LoggerConfig
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.clustering_session import session_settings
from dbt_recluster.adapter.connections.credentials import ReclusterCredentials, default_catalog
from dbt_recluster.exceptions import OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session import embedded
from dbt_recluster.iceberg.session.environment import EXTENSIONS, refuse_spark_connect

LAKE = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of the test's own."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})


def credentials(**profile: Any) -> ReclusterCredentials:
    """Read a profile as dbt does; None takes a key away."""
    data = {"method": "embedded", "path": "lake", "schema": "analytics", **profile}
    data = {key: value for key, value in data.items() if value is not None}
    ReclusterCredentials.validate(data)
    return ReclusterCredentials.from_dict(data)


def remote(**profile: Any) -> ReclusterCredentials:
    pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")
    return credentials(**{"method": "thrift", "host": "spark", "path": None, **profile})


@pytest.mark.parametrize(("method", "path"), [("embedded", "lakehouse"), ("session", None)])
def test_a_profile_of_this_process_is_short(method: str, path: str | None) -> None:
    made = credentials(method=method, path=path)
    assert (made.type, made.method.in_process, made.database) == ("recluster", True, None)
    shown = {"method": method, **({"path": path} if path else {}), "schema": "analytics"}
    assert dict(made.connection_info()) == shown
    assert made.unique_field == (path or "localhost")
    elsewhere = remote(method="http", host="spark.example.com/", token="t", cluster="c", user="u")
    assert (elsewhere.method.in_process, elsewhere.host) == (False, "spark.example.com")
    assert "token" not in dict(elsewhere.connection_info())


ELSEWHERE = "belongs to methods that connect to a Spark elsewhere"
SUBMIT = ["spark-submit"]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"path": None}, "needs `path`"),
        ({"method": "session"}, "belong to `method: embedded`"),
        ({"method": "sesion"}, r"'sesion' is not one of \['embedded', 'session', 'thrift', 'http', 'odbc'\]"),
        ({"method": None}, "needs `method`: embedded, session, thrift, http, odbc"),
        ({"treads": 1}, r"the profile has no key `treads`; did you mean threads\?"),
        ({"zzz": 1}, "the profile has no key `zzz`; there are auth, catalog"),
        ({"recluster_session": LAKE}, f"`recluster_session` {ELSEWHERE}"),
        ({"recluster_submit": SUBMIT}, f"`recluster_submit` {ELSEWHERE}.*; over Spark Connect, which"),
        *(
            ({"recluster_submit": words}, r"a list of words, such as \[spark-submit, --master, yarn\]")
            for words in ("spark-submit", "spark-submit --master yarn", [], [["a"]], {"a": 1})
        ),
        ({"host": "spark", "token": "abcdef"}, "`host`, `token` in the profile: `method: embedded` connects to no"),
        ({"method": "session", "path": None, "host": "NA", "port": 1}, " `port` in the profile: `method: session`"),
        *(
            ({key: "flase"}, f"`{key}`: 'flase' is not ")  # the value of a switch or a number is shown
            for key in ("class_archive", "connect_retries", "connect_timeout", "retry_all", "use_ssl")
        ),
        *(
            ({"recluster_submit": SUBMIT, "recluster_submit_timeout": limit}, "_timeout must be a number")
            for limit in (0, -1, "soon", True, math.nan, 10**400)
        ),
    ],
)
def test_a_mistake_in_a_profile_is_named(profile: dict[str, Any], message: str) -> None:
    with pytest.raises((DbtRuntimeError, ValidationError), match=message):
        credentials(**profile)


def test_spark_settings_of_the_profile_win_and_are_texts() -> None:
    assert credentials().server_side_parameters == {"spark.sql.ansi.enabled": "false"}
    made = credentials(server_side_parameters={"spark.sql.ansi.enabled": True, "a": 4})
    assert made.server_side_parameters == {"spark.sql.ansi.enabled": "true", "a": "4"}
    session = {**LAKE, "spark.ui.enabled": False, "spark.cores": 4, "spark.sql.catalog.lake.token": None}
    made = remote(recluster_session=session)
    assert made.recluster_session == {**LAKE, "spark.ui.enabled": "false", "spark.cores": "4"}


def test_a_lake_is_not_where_java_derby_or_hive_cannot_start(tmp_path: Path) -> None:
    """It is said before anything is made; else logs and metastore would lie beside the lake."""
    for special in (":", ";", '"', "\\", "\n", "${"):
        with pytest.raises(OptionError, match="with which Spark and its metastore cannot start"):
            embedded.start(str(tmp_path / f"a{special}b"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OptionError, match="'s3://bucket/lake' is not a local directory"):
        embedded.start("s3://bucket/lake")


@pytest.mark.parametrize(
    ("catalog", "address", "implementation", "kind"),
    [
        ("lake", "https://c:8181/", "SparkCatalog", "rest"),
        ("", "thrift://m:9083", "SparkSessionCatalog", "hive"),
    ],
)
def test_an_answer_to_dbt_init_becomes_settings(catalog: str, address: str, implementation: str, kind: str) -> None:
    made, prefix = (
        remote(catalog=catalog, recluster_session=address),
        f"spark.sql.catalog.{catalog or 'spark_catalog'}",
    )
    settings = {prefix: f"org.apache.iceberg.spark.{implementation}"}
    assert made.recluster_session == {**settings, f"{prefix}.type": kind, f"{prefix}.uri": address}
    assert made.database == (catalog or None)
    assert remote(recluster_session="").recluster_session is None


def test_a_session_over_spark_connect_submits_a_job() -> None:
    os.environ["SPARK_REMOTE"] = "sc://spark:15002"
    made = credentials(method="session", path=None, recluster_submit=SUBMIT)
    assert (made.method.in_process, made.in_process) == (True, False)
    with pytest.raises(DbtRuntimeError, match=f"`recluster_session` {ELSEWHERE}"):
        credentials(method="session", path=None, recluster_session=LAKE)


def test_the_session_has_one_catalog() -> None:
    assert default_catalog(LAKE, None) == "lake"
    assert default_catalog({**LAKE, "spark.sql.catalog.other": "x"}, "lake") == "lake"
    assert default_catalog({**LAKE, "spark.sql.defaultCatalog": "twin"}, "lake") == "twin"
    with pytest.raises(OptionError, match=r"names 2 catalogs \(lake, other\)\. Set spark.sql.defaultCatalog"):
        default_catalog({**LAKE, "spark.sql.catalog.other": "x"}, None)
    with pytest.raises(DbtRuntimeError, match="recluster_session names no catalog"):
        remote(recluster_session={"spark.master": "local[2]"})


def test_the_settings_of_the_session_win_over_the_defaults() -> None:
    plain = session_settings(LAKE, "lake", Path("/logs/x.log"))
    assert (plain["spark.sql.defaultCatalog"], plain["spark.sql.extensions"]) == ("lake", EXTENSIONS)
    assert plain["spark.sql.catalog.lake.cache-enabled"] == "false"
    given = {**LAKE, "spark.master": "yarn", "spark.driver.extraJavaOptions": "-Xss4m"}
    own = session_settings(given, "lake", Path("/logs/x.log"))
    assert own["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert "spark.driver.host" not in own


def test_secrets_of_the_profile_are_hidden_and_in_no_environment() -> None:
    log = get_event_manager()
    log.add_logger(LoggerConfig(name="a log"))
    try:
        session = {**LAKE, "spark.sql.catalog.lake.credential": "client:open-wide"}
        submit = ["spark-submit", "--conf=spark.a.password=of-submit", "--token", "a-token"]
        made = remote(recluster_session=session, password="of-thrift")
        remote(recluster_submit=submit, server_side_parameters={"spark.a.key": "of-server"})
        line = "open-wide of-submit a-token of-thrift of-server"
        assert log.loggers[-1].scrubber(line) == "***** ***** ***** ***** *****"
    finally:
        log.loggers.pop()
    assert not any(secret in text for secret in line.split() for text in os.environ.values())
    assert not any(secret in repr(made) for secret in line.split())
    assert "recluster_session" not in dict(made.connection_info())


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": 12345678},
        {"token": ["12345678"]},
        {"server_side_parameters": "password=12345678"},
        {"recluster_session": "password=12345678"},
        {"recluster_submit": [{"a": "password=12345678"}]},
    ],
)
def test_a_key_of_the_wrong_type_is_named_without_its_value(wrong: dict[str, Any]) -> None:
    with pytest.raises((DbtRuntimeError, ValidationError)) as e:
        remote(**wrong)
    assert "12345678" not in str(e.value)
    assert next(iter(wrong)) in str(e.value)


def test_spark_connect_is_refused_in_one_sentence() -> None:
    refuse_spark_connect("wait", {})
    with pytest.raises(SparkEnvironmentError, match=r"SPARK_REMOTE is set to sc://spark:15002, .* Unset it, or wait$"):
        refuse_spark_connect("wait", {"SPARK_REMOTE": "sc://spark:15002/;token=abc"})
    with pytest.raises(SparkEnvironmentError, match="SPARK_CONNECT_MODE_ENABLED is set, so"):
        refuse_spark_connect("wait", {"SPARK_CONNECT_MODE_ENABLED": "1"})
