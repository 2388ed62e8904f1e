from __future__ import annotations

from typing import Any

import pytest
from dbt_common.dataclass_schema import ValidationError
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ConnectionMethod, ReclusterCredentials


def credentials(**profile: Any) -> ReclusterCredentials:
    data = {"schema": "analytics", **profile}
    ReclusterCredentials.validate(data)
    made: ReclusterCredentials = ReclusterCredentials.from_dict(data)
    return made


def test_the_four_line_profile() -> None:
    made = credentials(method="embedded", path="lakehouse")
    assert made.type == "recluster"
    assert made.method == ConnectionMethod.EMBEDDED
    assert made.method.in_process
    assert made.unique_field == "lakehouse"
    assert dict(made.connection_info()) == {"method": "embedded", "path": "lakehouse", "schema": "analytics"}


def test_session_needs_no_host() -> None:
    made = credentials(method="session")
    assert made.method.in_process
    assert dict(made.connection_info()) == {"method": "session", "schema": "analytics"}


@pytest.mark.parametrize("method", ["http", "thrift"])
def test_remote_methods_are_as_in_dbt_spark(method: str) -> None:
    pytest.importorskip("pyhive")
    made = credentials(method=method, host="spark.example.com/", token="t", cluster="c", user="u")
    assert not made.method.in_process
    assert made.host == "spark.example.com"
    assert "token" not in dict(made.connection_info())


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"method": "embedded"}, "needs `path`"),
        ({"method": "session", "path": "lake"}, "belong to `method: embedded`"),
        ({"method": "sesion"}, r"'sesion' is not one of \['embedded', 'session', 'thrift', 'http', 'odbc'\]"),
        ({}, "needs `method`: embedded, session, thrift, http, odbc"),
        ({"path": "lake", "spark_log_level": "INFO"}, "needs `method`: embedded, session"),
    ],
)
def test_what_is_missing_or_wrong_is_said(profile: dict[str, Any], message: str) -> None:
    with pytest.raises((DbtRuntimeError, ValidationError), match=message):
        credentials(**profile)


def test_any_spark_setting_of_the_profile_wins() -> None:
    assert credentials(method="session").server_side_parameters == {"spark.sql.ansi.enabled": "false"}
    made = credentials(method="session", server_side_parameters={"spark.sql.ansi.enabled": True, "a": 4})
    assert made.server_side_parameters == {"spark.sql.ansi.enabled": "true", "a": "4"}
