"""Java exceptions: their causes, their classes, and messages that people can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_MAX_CAUSES = 20


def causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind ``error`` and its causes, outermost first; a Python error has none."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    origin: Any = None
    if isinstance(error, Py4JJavaError):
        origin = error.java_exception
    elif isinstance(error, CapturedException):
        origin = error._origin
    for _ in range(_MAX_CAUSES):
        if origin is None:
            return
        yield origin
        origin = origin.getCause()


def is_caused_by(error: BaseException, *class_names: str) -> bool:
    """Whether the causes of ``error`` include a Java exception of one of these exact, fully qualified classes."""
    return any(cause.getClass().getName() in class_names for cause in causes(error))


def is_instance(error: BaseException, interface: str) -> bool:
    """Whether the Java exception behind ``error`` itself has this class or interface; its causes do not count."""
    outermost = next(causes(error), None)
    if outermost is None:
        return False
    kind = outermost.getClass()
    while kind is not None:
        if interface in (kind.getName(), *(implemented.getName() for implemented in kind.getInterfaces())):
            return True
        kind = kind.getSuperclass()
    return False


def short_message(error: BaseException) -> str:
    """Return the first line of :func:`readable_message`, without the query plan that Spark appends."""
    text = readable_message(error).strip()
    return re.split(r"\n|; line \d+", text, maxsplit=1)[0].strip()


def readable_message(error: BaseException) -> str:
    """Return the message of an error without Java's stack trace.

    pyspark's own exceptions read well. A bare Py4JJavaError prints the whole trace, of which users need the innermost
    message.
    """
    from py4j.protocol import Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return str(error)
    chain = [(cause.getClass().getSimpleName(), cause.getMessage()) for cause in causes(error)]
    for name, message in reversed(chain):
        if message:
            return f"{name}: {message}"
    return chain[-1][0] if chain else str(error)
