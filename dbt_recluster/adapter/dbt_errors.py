"""This package's errors as dbt shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.java_errors import short_message


class ConfigurationError(DbtRuntimeError):
    """A mistake of the user, shown without the macros that it passed through."""

    CODE = 10007
    MESSAGE = "Configuration Error"

    @property
    def type(self) -> str:
        """The heading's first word."""
        return "Configuration"

    def process_stack(self) -> list[str]:
        """Return no lines: users do not call these macros."""
        return []

    def __str__(self, prefix: str = "! ") -> str:
        """Return the message, under a heading if a node is known."""
        return str(self.msg) if self.node is None else super().__str__(prefix)


@contextmanager
def as_dbt_errors(node: Any = None) -> Iterator[None]:
    """Raise this package's errors as dbt's, which are shown beside the node."""
    try:
        yield
    except ReclusterError as e:
        raise ConfigurationError(str(e), node=node) from e


def message(error: Exception) -> str:
    """Return an error's message: dbt's without its heading, Java's without the stack trace."""
    if isinstance(error, ReclusterError):
        return str(error)
    return str(getattr(error, "msg", None) or short_message(error))
