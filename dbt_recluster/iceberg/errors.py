"""Turn Java exceptions into Python ones and into sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind ``error`` and its causes, outermost first; nothing for a Python error."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    origin: Any = None
    if isinstance(error, Py4JJavaError):
        origin = error.java_exception
    elif isinstance(error, CapturedException):
        origin = error._origin
    seen = 0
    while origin is not None and seen < 20:
        yield origin
        origin = origin.getCause()
        seen += 1


def is_caused_by(error: BaseException, *class_names: str) -> bool:
    """Whether a Java exception of one of these classes (fully qualified, exact) is in the chain of ``error``."""
    return any(cause.getClass().getName() in class_names for cause in causes(error))


def is_instance(error: BaseException, interface: str) -> bool:
    """Whether the Java exception behind ``error``, not those that caused it, is of this class or interface."""
    outermost = next(causes(error), None)
    if outermost is None:
        return False
    kind = outermost.getClass()
    while kind is not None:
        if interface in (kind.getName(), *(each.getName() for each in kind.getInterfaces())):
            return True
        kind = kind.getSuperclass()
    return False


def short_message(error: BaseException) -> str:
    """Return the first sentence or two of :func:`readable_message`, without the plan that Spark adds to it."""
    text = readable_message(error).strip()
    return re.split(r"\n|; line \d+", text, maxsplit=1)[0].strip()


def readable_message(error: BaseException) -> str:
    """Return what went wrong without Java's stack trace.

    pyspark's own exceptions read well. A bare Py4JJavaError prints the whole trace: of it, the innermost
    message that says anything is what the user needs.
    """
    from py4j.protocol import Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return str(error)
    chain = [(cause.getClass().getSimpleName(), cause.getMessage()) for cause in causes(error)]
    for name, message in reversed(chain):
        if message:
            return f"{name}: {message}"
    return chain[-1][0] if chain else str(error)
