"""Java exceptions: their causes, classes, and readable messages without secrets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.session.jvm import java_map, jvm
from dbt_recluster.iceberg.session.redaction import hide, redact, secrets_in


def causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind ``error`` and its causes, outermost first; a Python error has none."""
    if "py4j" not in sys.modules:
        return  # py4j may be missing
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    origin: Any = None
    if isinstance(error, Py4JJavaError):
        origin = error.java_exception
    elif isinstance(error, CapturedException):
        origin = error._origin
    for _ in range(20):
        if origin is None:
            return
        yield origin
        origin = origin.getCause()


def is_caused_by(error: BaseException, *class_names: str) -> bool:
    """Whether ``error`` or one of its causes has exactly one of these Java classes."""
    return any(cause.getClass().getName() in class_names for cause in causes(error))


def is_instance(error: BaseException, interface: str) -> bool:
    """Whether the Java exception behind ``error`` is an instance of a class or interface; its causes do not count."""
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    outermost = next(causes(error), None)
    return outermost is not None and bool(is_instance_of(SparkContext._gateway, outermost, interface))


def short_message(error: BaseException) -> str:
    """Return one line for users: our own message, or that of :func:`readable_message` without Spark's query plan."""
    if isinstance(error, ReclusterError):
        return str(error)
    text = re.split(r"\n|; line \d+", readable_message(error).strip(), maxsplit=1)[0].strip()
    package = type(error).__module__.partition(".")[0]
    is_of_others = package in ("dbt", "dbt_common", "py4j", "pyspark") or not isinstance(error, Exception)
    if is_of_others or isinstance(error, (OSError, ImportError, MemoryError)):  # memory, disk or network
        return text
    return f"this is a fault of dbt-recluster, please report it: {type(error).__name__}: {text}"


@contextmanager
def raise_as(
    kind: type[ReclusterError],
    what: str,
    *,
    advice: str = "",
    explain: Callable[[BaseException], str] = short_message,
) -> Iterator[None]:
    """Raise an error of Spark or Iceberg in the block as ``kind``: what failed, the error's message, and advice."""
    try:
        yield
    except ReclusterError:
        raise
    except Exception as e:
        message = explain(e)
        raise kind(f"{what}: {message.rstrip('.')}. {advice}" if advice else f"{what}: {message}") from e


def readable_message(error: BaseException) -> str:
    """Return the message of an error without secrets and without Java's stack trace."""
    with suppress(Exception):  # Spark may be gone
        from pyspark.sql import SparkSession

        if (spark := SparkSession.getActiveSession()) is not None:
            as_java = jvm(spark).scala.collection.JavaConverters.mapAsJavaMap
            hide(secrets_in(java_map(spark, as_java(spark._jsparkSession.conf().getAll()))))
    return redact(_java_message(error))


def _java_message(error: BaseException) -> str:
    if getattr(error, "desc", None):  # pyspark's own exception
        return str(error)
    # A Py4JJavaError prints the whole trace, of which users need the innermost message.
    messages = [(cause.getClass().getSimpleName(), cause.getMessage()) for cause in causes(error)]
    for name, message in reversed(messages):
        if message:
            return f"{name}: {message}"
    return messages[-1][0] if messages else str(error)
