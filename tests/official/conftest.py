"""dbt's own tests run in the embedded session catalog; at night, with NIGHTLY set, in two catalogs beside it as well.

``jdbc`` is Iceberg's JdbcCatalog on PostgreSQL, ``rest`` its REST catalog; the profile names them, so that relations
there have three parts.
"""

from collections.abc import Iterator
from typing import Any

import postgres
import pytest
import rest_server
import thrift_server
from nightly import NIGHTLY

SESSION_CATALOG = "spark_catalog"
CATALOGS = [SESSION_CATALOG, *(["jdbc", "rest"] if NIGHTLY else [])]


@pytest.fixture(scope="session")
def jdbc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a catalog `jdbc`."""
    with postgres.server_or_skip() as url:
        yield thrift_server.catalog("jdbc", url, tmp_path_factory.mktemp("jdbc"))


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a catalog `rest`."""
    with rest_server.server(tmp_path_factory.mktemp("rest")) as server:
        yield server.settings("rest")


@pytest.fixture(scope="class", params=CATALOGS)
def catalog(request: pytest.FixtureRequest) -> str:
    """The catalog that a class runs in."""
    return str(request.param)


@pytest.fixture(scope="class")
def dbt_profile_target(
    catalog: str, request: pytest.FixtureRequest, spark: Any, dbt_profile_target: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if catalog == SESSION_CATALOG:
        yield {**dbt_profile_target}
        return
    for name, value in request.getfixturevalue(catalog).items():
        spark.conf.set(name, value)
    yield {**dbt_profile_target, "catalog": catalog}
    spark.catalog.setCurrentCatalog(SESSION_CATALOG)  # other profiles name none, and would keep this one


# Not those of the class in the catalog before.


@pytest.fixture(scope="class")
def unique_schema(catalog: str, unique_schema: str) -> str:
    return f"{unique_schema}_{catalog}"


@pytest.fixture(scope="class")
def project_root(catalog: str, tmpdir_factory: Any) -> Any:
    return tmpdir_factory.mktemp("project")


@pytest.fixture(scope="class")
def profiles_root(catalog: str, tmpdir_factory: Any) -> Any:
    return tmpdir_factory.mktemp("profile")
