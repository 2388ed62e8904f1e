"""The profile's ``recluster_session``: a Spark session in this process beside a connection that leads elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.adapter.dbt_errors import message
from dbt_recluster.exceptions import OptionError, ReclusterError, SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import (
    SESSION_CATALOG,
    check_environment,
    refuse_spark_connect,
)
from dbt_recluster.iceberg.session.local_spark import (
    DEFAULTS,
    find_java_home,
    iceberg_settings,
    local_settings,
    log_options,
)
from dbt_recluster.iceberg.session.starter import (
    is_running,
    new_session,
    outside_settings,
    session_of,
    start_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_FILE = "recluster_session.log"

_CATALOG = re.compile(r"spark\.sql\.catalog\.(\w+)")
_DEFAULT_CATALOG = "spark.sql.defaultCatalog"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

logger = AdapterLogger("Recluster")


class ReclusterSession:
    """The Spark session that reclusters the tables of a connection. It starts when the first table is due.

    Args:
        settings: ``recluster_session`` of the profile.
        catalog: ``catalog`` of the profile, or None.
        log_directory: Where Spark's log goes.

    Raises:
        OptionError: ``settings`` do not say which catalog holds the tables.
    """

    def __init__(self, settings: Mapping[str, str], catalog: str | None, log_directory: Path) -> None:
        self._settings = settings
        self.catalog = default_catalog(settings, catalog)
        self._log = log_directory.resolve() / LOG_FILE
        self._error: ReclusterError | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; the first call starts Spark, which takes seconds.

        Raises:
            SparkEnvironmentError: Spark does not start, or lacks what clustering needs. It is tried once.
        """
        return session_of({**self._settings, _DEFAULT_CATALOG: self.catalog}, self._start_once)

    def describe(self) -> str:
        """Return the session's catalog in words, without any value that might be secret."""
        prefix = f"spark.sql.catalog.{self.catalog}"
        kinds = (self._settings.get(f"{prefix}.{key}") for key in ("type", "catalog-impl"))
        kind = next(filter(None, kinds), None) or self._settings.get(prefix, "not configured")
        return f"{self.catalog} ({kind.rpartition('.')[2]})"

    def _start_once(self) -> SparkSession:
        if self._error is not None:
            raise self._error
        try:
            return self._start()
        except Exception as e:
            self._error = SparkEnvironmentError(f"recluster_session: {message(e)}")
            raise self._error from e

    def _start(self) -> SparkSession:
        began = time.monotonic()
        refuse_spark_connect("run dbt without it")
        settings = session_settings(self._settings, self.catalog, self._log)
        embedded.announce("starting Spark for recluster_session", find_java_home())
        if is_running():
            spark = new_session(settings)
        else:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            spark = start_spark(settings)
        check_environment(spark)
        logger.debug(f"recluster_session answered after {time.monotonic() - began:.1f} s")
        return spark


def default_catalog(settings: Mapping[str, str], catalog: str | None) -> str:
    """Return the session's catalog of names of two parts.

    It is the default catalog that the settings name, the profile's catalog, or the only catalog in the settings.

    Args:
        settings: ``recluster_session`` of the profile.
        catalog: ``catalog`` of the profile, the connection's name for it, or None.

    Raises:
        OptionError: There is none, or more than one.
    """
    if chosen := settings.get(_DEFAULT_CATALOG) or catalog:
        return chosen
    matches = (_CATALOG.fullmatch(name) for name in settings)
    configured = sorted({match.group(1) for match in matches if match})
    if len(configured) != 1:
        which = (
            f"names {len(configured)} catalogs ({', '.join(configured)})"
            if configured
            else "names no catalog"
        )
        raise OptionError(
            f"recluster_session {which}. Set {_DEFAULT_CATALOG} to the one of the connection's tables, and "
            "spark.sql.catalog.<name> to what it is"
        )
    return configured[0]


def session_settings(given: Mapping[str, str], catalog: str, log: Path) -> dict[str, str]:
    """Return the settings to start the session with: those ``given``, and what they leave out.

    Args:
        given: ``recluster_session`` of the profile.
        catalog: The catalog of names of two parts.
        log: The file for Spark's warnings and errors.
    """
    is_local = given.get("spark.master", "local").startswith("local")
    settings = {
        **(local_settings() if is_local else {**DEFAULTS, "spark.ui.enabled": "false"}),
        _DEFAULT_CATALOG: catalog,
        # A table that was built over the connection is never the one in this session's cache.
        f"spark.sql.catalog.{catalog}.cache-enabled": "false",
        **given,
    }
    if settings.get(f"spark.sql.catalog.{catalog}") == SESSION_CATALOG:
        settings.setdefault("spark.sql.catalogImplementation", "hive")
    settings |= iceberg_settings({**outside_settings(), **settings})
    options = log_options(log)
    settings[_JAVA_OPTIONS] = f"{options} {settings.get(_JAVA_OPTIONS, '')}".strip()
    return settings
