"""This package's errors and log lines as dbt shows them."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.exceptions import DbtBaseException, DbtRuntimeError

from dbt_recluster.iceberg.session.redaction import hide, redact, short_message, without_known_secrets

logger = AdapterLogger("Recluster")
# Whether this process runs the macro of an operation, which may call other macros.
_in_operation = False


class ConfigurationError(DbtRuntimeError):
    """A user's mistake, shown without the stack of our macros."""

    CODE = 10007
    MESSAGE = "Configuration Error"

    @property
    def type(self) -> str:
        """The heading's first word."""
        return "Configuration"

    def process_stack(self) -> list[str]:
        """Return no lines: users do not call our macros."""
        return []

    def __str__(self, prefix: str = "! ") -> str:
        """Return the message, with a heading if the node is known."""
        return str(self.msg) if self.node is None else super().__str__(prefix)


def hide_in_logs(secrets: Iterable[str]) -> None:
    """Hide secrets on dbt's terminal and in its log.

    dbt itself hides only the values of environment variables, which every process that it starts would inherit.
    """
    hide(secrets)
    for dbt_logger in get_event_manager().loggers:
        if not isinstance(dbt_logger.scrubber, _Scrubber):
            dbt_logger.scrubber = _Scrubber(dbt_logger.scrubber)


class _Scrubber(partial[str]):
    """Hides secrets in a line of dbt's log, after the function of dbt."""

    def __call__(self, line: str) -> str:
        return without_known_secrets(super().__call__(line))


@contextmanager
def as_dbt_errors(node: Any = None) -> Iterator[None]:
    """Raise errors as dbt's, in one line with the node; the traceback goes to dbt's log."""
    try:
        yield
    except DbtBaseException:
        raise
    except Exception as e:  # including bugs, which failure() labels as such
        raise ConfigurationError(failure(e), node=node) from e


@contextmanager
def redacted_errors() -> Iterator[None]:
    """Redact dbt's errors, which quote the server and its settings."""
    try:
        yield
    except DbtRuntimeError as e:
        e.msg = redact(str(e.msg))
        raise


@contextmanager
def interrupted_operation() -> Iterator[None]:
    """Within ``dbt run-operation``, end with one line and a shell's exit code on Ctrl-C.

    dbt prints the traceback of a ``KeyboardInterrupt``, and exits as after an error of its own.
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
        error.exit_code = 128 + signal.SIGINT  # type: ignore[misc]


def failure(error: Exception) -> str:
    """Return an error's message, and write its traceback to dbt's log at debug level."""
    logger.debug(redact("".join(traceback.format_exception(error))))
    return message(error)


def message(error: Exception) -> str:
    """Return an error's message: dbt's without its heading, Java's without the stack trace."""
    return redact(str(error.msg)) if isinstance(error, DbtRuntimeError) else short_message(error)
