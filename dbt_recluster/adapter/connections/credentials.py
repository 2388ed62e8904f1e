"""The keys of a profile, their checks and their secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.spark.connections import SparkCredentials
from dbt_common.dataclass_schema import StrEnum, ValidationError
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import as_dbt_errors, hide_in_logs
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.environment import DEFAULT_CATALOG, SPARK_CONNECT, require_pyspark
from dbt_recluster.iceberg.session.redaction import redact, secrets_in, secrets_in_command
from dbt_recluster.text import did_you_mean


class ConnectionMethod(StrEnum):
    """How to reach Spark."""

    EMBEDDED = "embedded"
    SESSION = "session"
    THRIFT = "thrift"
    HTTP = "http"
    ODBC = "odbc"

    @property
    def in_process(self) -> bool:
        """Whether Spark's driver runs in this process, unless Spark Connect reaches another one."""
        return self in (ConnectionMethod.EMBEDDED, ConnectionMethod.SESSION)

    @property
    def runs_python_models(self) -> bool:
        """Whether dbt-spark can submit Python models, which takes Databricks' API."""
        return self in (ConnectionMethod.HTTP, ConnectionMethod.ODBC)


_OF_EVERY_METHOD = ("schema", "method", "database", "server_side_parameters")


@dataclass(repr=False)
class ReclusterCredentials(SparkCredentials):
    """A profile of ``type: recluster``.

    Attributes:
        path: ``method: embedded`` only: the directory of the lake.
        spark_log_level: ``method: embedded`` only: the log4j level at which Spark logs to standard error.
        class_archive: Whether a Spark in dbt's process caches its classes in the user's cache directory, to start
            faster.
        catalog: The catalog of models that name none, which is their relations' database. Each connection begins with
            ``use``. None is the current catalog of the connection.
        recluster_session: ``thrift``, ``http`` and ``odbc``: settings of a Spark session in dbt's own process that
            reclusters the connection's tables; or the address of their catalog, a Hive metastore or a REST catalog.
        recluster_submit: The same methods, and ``session`` over Spark Connect: the command that submits the
            reclustering job at the end of dbt's run.
        recluster_submit_timeout: Seconds after which that command is stopped.
    """

    method: ConnectionMethod = None  # type: ignore[assignment]
    # dbt-spark wants strings, but YAML reads `false` and `4` as a boolean and a number.
    server_side_parameters: dict[str, Any] = field(default_factory=dict)
    path: str | None = None
    spark_log_level: str | None = None
    class_archive: bool = True
    catalog: str | None = None
    recluster_session: dict[str, Any] | None = None
    recluster_submit: list[Any] | None = None
    recluster_submit_timeout: float | None = None

    @classmethod
    def validate(cls, data: Any) -> None:
        """Check the keys of a profile, of which dbt ignores unknown ones, before their values."""
        hide_in_logs(_secrets_of(data))
        keys = [f.name for f in fields(cls) if not f.name.startswith("_")]
        for key in data:
            if key not in keys:
                meant = did_you_mean(str(key), sorted([*keys, "type", "threads"]), "there are")
                raise DbtRuntimeError(f"the profile has no key `{key}`; {meant}")
        if data.get("recluster_submit") is not None:
            with as_dbt_errors():
                check_submit(data["recluster_submit"], data.get("recluster_submit_timeout"))
        try:
            super().validate(_completed(data))
        except ValidationError as e:
            key = "".join(f"`{name}`: " for name in list(e.path)[:1])
            raise ValidationError(redact(f"{key}{e.message}")) from None  # it repeats the value

    @classmethod
    def __pre_deserialize__(cls, data: dict[Any, Any]) -> dict[Any, Any]:
        """Complete a profile of `dbt init`."""
        completed: dict[Any, Any] = super().__pre_deserialize__(_completed(data))
        return completed

    def __post_init__(self) -> None:
        """Check the keys that the method needs, and fill in its defaults."""
        if problem := self._problem():
            raise DbtRuntimeError(problem)
        if self.method.in_process:
            self.host = self.host or "localhost"
        if self.recluster_session is not None:
            self.recluster_session = _texts(self.recluster_session)
            with as_dbt_errors():
                default_catalog(self.recluster_session, self.catalog)
        if self.method == ConnectionMethod.SESSION:
            with as_dbt_errors():
                require_pyspark()  # dbt-spark's message would install a pyspark that Iceberg has no module for
        parameters = _texts(self.server_side_parameters)
        super().__post_init__()
        self.database = self.catalog
        # dbt-spark overwrites spark.sql.ansi.enabled; the profile takes precedence.
        self.server_side_parameters = {**self.server_side_parameters, **parameters}
        hide_in_logs(_secrets_of(vars(self)))

    def _problem(self) -> str | None:
        method, submits = self.method, self.recluster_submit is not None
        if method is None:
            methods = ", ".join(ConnectionMethod)
            return f"The profile needs `method`: {methods}. `embedded` needs nothing but a directory."
        is_embedded = method == ConnectionMethod.EMBEDDED
        if is_embedded and not self.path:
            return "`method: embedded` needs `path` in the profile: the directory of the lake, e.g. path: lakehouse"
        of_server = {f.name: f.default for f in fields(SparkCredentials)} if method.in_process else {}
        server_keys = [
            key for key, default in of_server.items() if key not in _OF_EVERY_METHOD and vars(self)[key] != default
        ]
        if method == ConnectionMethod.SESSION and "host" in server_keys:
            server_keys.remove("host")  # dbt-spark asks for one
        if server_keys:
            keys = ", ".join(f"`{key}`" for key in server_keys)
            return (
                f"{keys} in the profile: `method: {method}` connects to no server. Leave that out, or name its method"
            )
        if not is_embedded and (self.path or self.spark_log_level):
            return f"`path` and `spark_log_level` belong to `method: embedded`, not to `method: {method}`"
        over_connect = method == ConnectionMethod.SESSION and not os.environ.keys().isdisjoint(SPARK_CONNECT)
        if method.in_process and (self.recluster_session is not None or (submits and not over_connect)):
            return (
                f"`recluster_{'submit' if self.recluster_session is None else 'session'}` belongs to methods that "
                f"connect to a Spark elsewhere. With `method: {method}`, that Spark itself reclusters, and "
                "server_side_parameters configure it; over Spark Connect, which takes SPARK_REMOTE in the "
                "environment, the job of `recluster_submit` does."
            )
        if self.recluster_session is not None and submits:
            return "`recluster_session` and `recluster_submit` are two ways to the same end; name one in the profile"
        return None

    @property
    def in_process(self) -> bool:
        """Whether Spark's driver, which reclustering needs, runs in this process."""
        return self.method.in_process and self.recluster_submit is None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.connection_info())})"

    @property
    def type(self) -> str:
        """The adapter's name in profiles."""
        return "recluster"

    @property
    def unique_field(self) -> str:
        """Unique field of the connection, hashed for dbt's telemetry."""
        return self.path or str(self.host)

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        """Return the connection's identity; ``with_aliases``, as for dbt's ``target``, it includes ``database``."""
        yield from super().connection_info(with_aliases=with_aliases)
        if with_aliases and self.database is not None:
            yield "database", self.database

    def _connection_keys(self) -> tuple[str, ...]:
        keys = ("method", "catalog") if self.catalog else ("method",)
        path = ("path",) if self.path else ()
        return (*keys, *path, "schema") if self.method.in_process else (*keys, *super()._connection_keys())


def _completed(profile: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a profile without keys left empty in `dbt init`, with the settings for a catalog given by its address."""
    completed = {key: value for key, value in profile.items() if value != ""}
    session = completed.get("recluster_session")
    types = {"thrift": "hive", "http": "rest", "https": "rest"}  # Iceberg's, by the scheme of the address
    if isinstance(session, str) and (kind := types.get(session.partition("://")[0])):
        prefix = f"spark.sql.catalog.{completed.get('catalog', 'spark_catalog')}"
        implementation = "SparkCatalog" if completed.get("catalog") else "SparkSessionCatalog"
        completed["recluster_session"] = {
            prefix: f"org.apache.iceberg.spark.{implementation}",
            f"{prefix}.type": kind,
            f"{prefix}.uri": session,
        }
    elif session is not None and not isinstance(session, dict):
        raise DbtRuntimeError(
            "`recluster_session` must be a mapping of Spark settings to their values, or the address of the tables' "
            "catalog: thrift://host:port of a Hive metastore, or the URL of a REST catalog"
        )
    return completed


def default_catalog(settings: Mapping[str, str], catalog: str | None) -> str:
    """Return the session's default catalog: the settings' own, the profile's, or the only one in the settings."""
    if default := settings.get(DEFAULT_CATALOG) or catalog:
        return default
    configured = sorted({match[1] for name in settings if (match := re.fullmatch(r"spark\.sql\.catalog\.(\w+)", name))})
    if len(configured) != 1:
        which = f"{len(configured)} catalogs ({', '.join(configured)})" if configured else "no catalog"
        raise OptionError(
            f"recluster_session names {which}. Set {DEFAULT_CATALOG} to the one of the connection's tables, and "
            "spark.sql.catalog.<name> to its class"
        )
    return configured[0]


def check_submit(command: Any, timeout: Any) -> None:
    """Check ``recluster_submit`` and ``recluster_submit_timeout`` of a profile."""
    are_words = isinstance(command, list) and all(isinstance(word, (str, int)) for word in command)
    if not command or not are_words:
        raise OptionError(
            "recluster_submit must be a list of words, such as [spark-submit, --master, yarn]; no shell reads it"
        )
    year = 31_536_000
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= year):
        raise OptionError(f"recluster_submit_timeout must be a number of seconds above 0, and at most {year}")


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as Spark writes their values, without empty ones."""
    values = {str(name): value for name, value in settings.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _secrets_of(profile: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets in a profile, whatever the types of its values."""
    for name, value in profile.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
        elif name == "recluster_submit":
            yield from secrets_in_command(value if isinstance(value, list) else str(value).split())
        else:
            for item in value if isinstance(value, list) else [value]:
                yield from secrets_in({name: item})
