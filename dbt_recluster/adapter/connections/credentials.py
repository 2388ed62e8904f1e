"""The profile: dbt-spark's methods and ``embedded``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.spark.connections import SparkCredentials
from dbt_common.dataclass_schema import StrEnum, ValidationError
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import as_dbt_errors, hide_in_logs
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.environment import connects_remotely, require_pyspark
from dbt_recluster.redaction import redact, secrets_in, secrets_in_command
from dbt_recluster.text import did_you_mean

# Keys of a profile that dbt reads itself.
_OF_DBT = ("type", "threads")
DEFAULT_CATALOG = "spark.sql.defaultCatalog"
_CATALOG = re.compile(r"spark\.sql\.catalog\.(\w+)")
# Iceberg's types of catalogs, by the scheme of the address.
_CATALOG_TYPES = {"thrift": "hive", "http": "rest", "https": "rest"}
# A year, in seconds.
_LONGEST = 31_536_000


class ConnectionMethod(StrEnum):
    """How to reach Spark."""

    EMBEDDED = "embedded"
    SESSION = "session"
    THRIFT = "thrift"
    HTTP = "http"
    ODBC = "odbc"

    @property
    def in_process(self) -> bool:
        """Whether Spark's driver runs in this Python process, unless it is reached by Spark Connect."""
        return self in (ConnectionMethod.EMBEDDED, ConnectionMethod.SESSION)

    @property
    def runs_python_models(self) -> bool:
        """Whether dbt-spark can submit Python models, which it does through the API of Databricks."""
        return self in (ConnectionMethod.HTTP, ConnectionMethod.ODBC)


@dataclass(repr=False)
class ReclusterCredentials(SparkCredentials):
    """A profile of ``type: recluster``.

    Attributes:
        path: ``method: embedded`` only: the directory of the lake.
        spark_log_level: ``method: embedded`` only: a level of log4j, to see Spark's log on standard error.
        class_archive: Whether a Spark in dbt's process may keep its classes in the user's cache directory, to start
            faster.
        catalog: The catalog of models that name none; their relations have it as their database. Each connection starts
            by using it. None means the current catalog of the Spark that the method reaches.
        recluster_session: ``thrift``, ``http`` and ``odbc``: the settings of a Spark session in dbt's own process,
            which reclusters the tables that are built over the connection; or the address of the catalog of these
            tables, a Hive metastore or a REST catalog.
        recluster_submit: ``thrift``, ``http`` and ``odbc``, instead, and ``session`` over Spark Connect: the command
            that submits the job which reclusters, at the end of dbt's run.
        recluster_submit_timeout: Seconds after which that command is ended.
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
        """Check the keys of a profile before their values; dbt ignores those that it does not know."""
        hide_in_logs(_secrets_of(data))
        known = [f.name for f in fields(cls) if not f.name.startswith("_")]
        for key in data:
            if key not in known:
                meant = did_you_mean(str(key), sorted([*known, *_OF_DBT]), "there are")
                raise DbtRuntimeError(f"the profile has no key `{key}`; {meant}")
        if data.get("recluster_submit") is not None:
            with as_dbt_errors():
                check_submit(data["recluster_submit"], data.get("recluster_submit_timeout"))
        try:
            super().validate(_completed(data))
        except ValidationError as e:
            raise ValidationError(redact(str(e.message))) from None  # it repeats the value

    @classmethod
    def __pre_deserialize__(cls, data: dict[Any, Any]) -> dict[Any, Any]:
        """Replace what `dbt init` writes by what it stands for."""
        completed: dict[Any, Any] = super().__pre_deserialize__(_completed(data))
        return completed

    def __post_init__(self) -> None:
        """Fill in what the method implies and check what it needs."""
        parameters = {str(name): _text(value) for name, value in self.server_side_parameters.items()}
        if self.method is None:
            raise DbtRuntimeError(
                f"The profile needs `method`: {', '.join(ConnectionMethod)}. `embedded` needs nothing but a directory."
            )
        if self.method.in_process:
            self.host = self.host or "localhost"
        if self.method == ConnectionMethod.EMBEDDED and not self.path:
            raise DbtRuntimeError(
                "`method: embedded` needs `path` in the profile: the directory of the lake, e.g. path: lakehouse"
            )
        if self.method != ConnectionMethod.EMBEDDED and (self.path or self.spark_log_level):
            raise DbtRuntimeError(
                f"`path` and `spark_log_level` belong to `method: embedded`, not to `method: {self.method}`"
            )
        self._check_session()
        if self.method == ConnectionMethod.SESSION:
            with as_dbt_errors():
                require_pyspark()  # dbt-spark names the newest one
        super().__post_init__()
        self.database = self.catalog
        # dbt-spark overwrites spark.sql.ansi.enabled; here the profile takes precedence.
        self.server_side_parameters.update(parameters)
        hide_in_logs(_secrets_of(vars(self)))

    @property
    def in_process(self) -> bool:
        """Whether Spark's driver runs in this Python process, which reclustering needs."""
        return self.method.in_process and self.recluster_submit is None

    def __repr__(self) -> str:
        """Return what identifies the connection, without anything secret."""
        return f"{type(self).__name__}({dict(self.connection_info())})"

    def _check_session(self) -> None:
        """Check the keys that belong to connections to a Spark elsewhere."""
        is_remote = self.method == ConnectionMethod.SESSION and connects_remotely()
        for name in ("recluster_session",) if is_remote else ("recluster_session", "recluster_submit"):
            if self.method.in_process and getattr(self, name) is not None:
                raise DbtRuntimeError(
                    f"`{name}` belongs to methods that connect to a Spark elsewhere. With `method: {self.method}`, "
                    "that Spark itself reclusters, and server_side_parameters configure it; over Spark Connect, which "
                    "takes SPARK_REMOTE in the environment, the job of `recluster_submit` does."
                )
        if self.recluster_session is not None and self.recluster_submit is not None:
            raise DbtRuntimeError(
                "`recluster_session` and `recluster_submit` are two ways to the same end; name one in the profile"
            )
        if self.recluster_session is not None:
            given = self.recluster_session.items()
            self.recluster_session = {str(name): _text(value) for name, value in given if value is not None}
            with as_dbt_errors():
                default_catalog(self.recluster_session, self.catalog)

    @property
    def type(self) -> str:
        """The adapter's name in profiles."""
        return "recluster"

    @property
    def unique_field(self) -> str:
        """The value that tells connections apart; dbt hashes it."""
        return self.path if self.path is not None else str(self.host)

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        """Return what identifies the connection; with aliases, as dbt does for ``target``, also ``database``."""
        yield from super().connection_info(with_aliases=with_aliases)
        if with_aliases and self.database is not None:
            yield "database", self.database

    def _connection_keys(self) -> tuple[str, ...]:
        catalog = ("catalog",) if self.catalog else ()
        if self.method.in_process:
            return ("method", *catalog, "path", "schema") if self.path else ("method", *catalog, "schema")
        return ("method", *catalog, *super()._connection_keys())


def _completed(profile: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a profile without keys left empty in `dbt init`, and the settings for a catalog given by its address."""
    completed = {key: value for key, value in profile.items() if value != ""}
    session = completed.get("recluster_session")
    if isinstance(session, str) and (kind := _CATALOG_TYPES.get(session.partition("://")[0])):
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
    """Return the session's catalog of names of two parts.

    It is the default catalog that the settings name, the profile's catalog, or the only catalog in the settings.
    """
    if default := settings.get(DEFAULT_CATALOG) or catalog:
        return default
    matches = (_CATALOG.fullmatch(name) for name in settings)
    configured = sorted({match.group(1) for match in matches if match})
    if len(configured) != 1:
        which = f"{len(configured)} catalogs ({', '.join(configured)})" if configured else "no catalog"
        raise OptionError(
            f"recluster_session names {which}. Set {DEFAULT_CATALOG} to the one of the connection's tables, and "
            "spark.sql.catalog.<name> to what it is"
        )
    return configured[0]


def check_submit(command: Any, timeout: Any) -> None:
    """Check ``recluster_submit`` and ``recluster_submit_timeout`` of a profile."""
    are_words = isinstance(command, list) and all(isinstance(word, (str, int)) for word in command)
    if not command or not are_words:
        raise OptionError(
            "recluster_submit must be a list of words, such as [spark-submit, --master, yarn]; no shell reads it"
        )
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
        raise OptionError(
            f"recluster_submit_timeout must be a number of seconds above 0, and at most {_LONGEST}"
        )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _secrets_of(profile: Mapping[str, Any]) -> Iterator[str]:
    """Return what is secret in the values of a profile, whether they are of the right types or not."""
    for name, value in profile.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
        elif name == "recluster_submit" and isinstance(value, list):
            yield from secrets_in_command(value)
        elif value is not None:
            for item in value if isinstance(value, list) else [value]:
                yield from secrets_in({name: item})
