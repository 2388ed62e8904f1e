"""This package's errors as dbt shows them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.exceptions import DbtBaseException, DbtRuntimeError

from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.redaction import hide, redact

# 128 and the number of SIGINT.
_INTERRUPTED = 130

logger = AdapterLogger("Recluster")
# Whether this process runs the macro of an operation, which may call other macros.
_in_operation = False


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


def hide_in_logs(secrets: Iterable[str]) -> None:
    """Have this invocation of dbt write asterisks in place of secrets, on the terminal and in its log.

    dbt itself hides the values of environment variables of a certain name, which every process that is started from
    then on would inherit.
    """
    hide(secrets)
    for dbt_logger in get_event_manager().loggers:
        if not isinstance(dbt_logger.scrubber, _Scrubber):
            dbt_logger.scrubber = _Scrubber(dbt_logger.scrubber)


@dataclass(frozen=True)
class _Scrubber:
    """Hides secrets in a line of dbt's log, after dbt has hidden those that it knows."""

    of_dbt: Callable[[str], str]

    def __call__(self, line: str) -> str:
        return redact(self.of_dbt(line), guess=False)


@contextmanager
def as_dbt_errors(node: Any = None) -> Iterator[None]:
    """Raise errors as dbt's, in one line and beside the node; the traceback is in dbt's log."""
    try:
        yield
    except DbtBaseException:
        raise
    except Exception as e:
        raise ConfigurationError(failure(e), node=node) from e


@contextmanager
def redacted_errors() -> Iterator[None]:
    """Take what looks like a secret out of dbt's errors, which quote the server and its settings."""
    try:
        yield
    except DbtRuntimeError as e:
        e.msg = redact(str(e.msg))
        raise


@contextmanager
def interrupted_operation() -> Iterator[None]:
    """Within ``dbt run-operation``, have Ctrl-C end dbt with one line and the exit code that shells give it.

    dbt prints the traceback of a ``KeyboardInterrupt`` and ends as after an error of its own.
    """
    global _in_operation
    context = click.get_current_context(silent=True)
    if context is None or context.info_name != "run-operation" or _in_operation:
        yield
        return
    _in_operation = True
    try:
        yield
    except KeyboardInterrupt as e:
        context.call_on_close(_exit_as_interrupted)
        raise ConfigurationError(str(e) or "interrupted") from e
    finally:
        _in_operation = False


def _exit_as_interrupted() -> None:
    """Change the exit code that an exception carries through click."""
    error = sys.exc_info()[1]
    if isinstance(error, click.ClickException):
        error.exit_code = _INTERRUPTED  # type: ignore[misc]


def failure(error: Exception) -> str:
    """Return an error's message, and write its traceback to dbt's log at debug level."""
    logger.debug(redact("".join(traceback.format_exception(error))))
    return message(error)


def message(error: Exception) -> str:
    """Return an error's message: dbt's without its heading, Java's without the stack trace."""
    return redact(str(error.msg)) if isinstance(error, DbtRuntimeError) else short_message(error)
