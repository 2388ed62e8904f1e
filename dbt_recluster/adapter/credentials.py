"""The profile: dbt-spark's methods and ``embedded``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.spark.connections import SparkCredentials
from dbt_common.dataclass_schema import StrEnum
from dbt_common.exceptions import DbtRuntimeError


class ConnectionMethod(StrEnum):
    """How to reach Spark."""

    EMBEDDED = "embedded"
    SESSION = "session"
    THRIFT = "thrift"
    HTTP = "http"
    ODBC = "odbc"

    @property
    def in_process(self) -> bool:
        """Whether Spark's driver runs in this Python process, which reclustering needs."""
        return self in (ConnectionMethod.EMBEDDED, ConnectionMethod.SESSION)

    @property
    def runs_python_models(self) -> bool:
        """Whether dbt-spark can submit Python models, which it does through the API of Databricks."""
        return self in (ConnectionMethod.HTTP, ConnectionMethod.ODBC)


@dataclass
class ReclusterCredentials(SparkCredentials):
    """A profile of ``type: recluster``.

    Attributes:
        path: ``method: embedded`` only: the directory of the lake.
        spark_log_level: ``method: embedded`` only: a level of log4j, to see Spark's log on standard error.
    """

    method: ConnectionMethod = None  # type: ignore[assignment]
    # dbt-spark wants strings, but YAML reads `false` and `4` as a boolean and a number.
    server_side_parameters: dict[str, Any] = field(default_factory=dict)
    path: str | None = None
    spark_log_level: str | None = None

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
        super().__post_init__()
        # dbt-spark overwrites spark.sql.ansi.enabled; here the profile takes precedence.
        self.server_side_parameters.update(parameters)

    @property
    def type(self) -> str:
        """The adapter's name in profiles."""
        return "recluster"

    @property
    def unique_field(self) -> str:
        """The value that tells connections apart; dbt hashes it."""
        return self.path if self.path is not None else str(self.host)

    def _connection_keys(self) -> tuple[str, ...]:
        if self.method.in_process:
            return ("method", "path", "schema") if self.path else ("method", "schema")
        return ("method", *super()._connection_keys())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
