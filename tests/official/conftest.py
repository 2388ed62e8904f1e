"""dbt's own tests run in the embedded session catalog, or in the catalog that RECLUSTER_TEST_CATALOG names.

``jdbc`` is Iceberg's JdbcCatalog on PostgreSQL, ``rest`` its REST catalog: a catalog ``lake`` beside the session's,
which the profile names, so that relations have three parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import postgres
import pytest
import rest_server
import thrift_server

CATALOG = "lake"
VARIABLE = "RECLUSTER_TEST_CATALOG"
KINDS = ("session", "jdbc", "rest")


@pytest.fixture(scope="session")
def catalog_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of the catalog; empty for the session catalog."""
    kind = os.environ.get(VARIABLE, "session")
    assert kind in KINDS, f"{VARIABLE} is one of {KINDS}, not {kind}"
    with ExitStack() as servers:
        warehouse: Path = tmp_path_factory.mktemp("warehouse")
        if kind == "jdbc":
            url = servers.enter_context(postgres.server_or_skip())
            yield thrift_server.catalog(CATALOG, url, warehouse)
        elif kind == "rest":
            yield servers.enter_context(rest_server.server(warehouse)).settings(CATALOG)
        else:
            yield {}


@pytest.fixture(scope="session")
def dbt_profile_target(
    catalog_settings: dict[str, str], spark: Any, dbt_profile_target: dict[str, Any]
) -> dict[str, Any]:
    for name, value in catalog_settings.items():
        spark.conf.set(name, value)
    return {**dbt_profile_target, **({"catalog": CATALOG} if catalog_settings else {})}
