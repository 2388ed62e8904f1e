"""This package's errors as dbt shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt_common.exceptions import CompilationError, DbtRuntimeError

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.errors import short_message


@contextmanager
def as_dbt_errors(node: Any = None, kind: type[DbtRuntimeError] = CompilationError) -> Iterator[None]:
    """Raise this package's errors as dbt's, which knows how to show them beside the node."""
    try:
        yield
    except ReclusterError as e:
        raise kind(str(e), node=node) from e


def message(error: Exception) -> str:
    """Return what an error says: dbt's without the heading that its text has, Java's without the trace."""
    if isinstance(error, ReclusterError):
        return str(error)
    return str(getattr(error, "msg", None) or short_message(error))
