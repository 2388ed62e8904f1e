"""Access to Spark's JVM from Python: its names, values and exceptions, and its shutdown."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.session.redaction import hide, redact, secrets_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class JavaNames:
    """A Java package or class that looks each name up once.

    py4j asks the JVM at every mention, and for every part of ``org.apache.iceberg.expressions.Expressions``, which was
    half of the calls of a small recluster.
    """

    def __init__(self, java: Any) -> None:
        self._java = java
        self._remembered: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

        value = getattr(self._java, name)
        if isinstance(value, JavaPackage) and name[:1].isupper():
            return value  # a missing class, which a jar may add later
        if isinstance(value, (JavaPackage, JavaClass)):
            value = JavaNames(value)
        if isinstance(value, (JavaNames, JavaMember)):
            self.__dict__[name] = value
        return value

    def __call__(self, *arguments: Any) -> Any:
        """Construct an object of the class."""
        return self._java(*arguments)

    def remember(self, key: Any, make: Callable[[], T]) -> T:
        """Return the result of ``make`` from the first call with ``key``."""
        if key not in self._remembered:
            self._remembered[key] = make()
        result: T = self._remembered[key]
        return result


_root: JavaNames | None = None


def jvm(spark: SparkSession) -> JavaNames:
    """Return the root of the JVM's packages: ``jvm(spark).java.util.ArrayList()``."""
    global _root
    root = _root
    if root is None or root._java is not spark._jvm:
        root = _root = JavaNames(spark._jvm)
    return root


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the active session of this thread, as Spark SQL does.

    Iceberg's classes read the configuration of the active session; without one they see no catalog.
    """
    jvm(spark).org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def user(spark: SparkSession) -> str:
    """Return the user that Spark runs as."""
    return str(spark.sparkContext.sparkUser())


def java_class(spark: SparkSession, name: str) -> Any:
    """Return the ``java.lang.Class`` called ``name``, loaded from the jars that Spark was given."""
    java_lang = jvm(spark).java.lang

    def load() -> Any:
        return java_lang.Class.forName(name, True, java_lang.Thread.currentThread().getContextClassLoader())

    return jvm(spark).remember(name, load)


def java_items(collection: Any) -> list[Any]:
    """Return the elements of a Java collection; iterating would end with a Java exception, which takes 20 ms."""
    return list(collection.toArray())


def java_array(spark: SparkSession, element: JavaNames, items: list[Any]) -> Any:
    """Return a Java array of ``items`` of the class ``element``."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(element._java, len(items))
    for position, item in enumerate(items):
        array[position] = item
    return array


def java_list(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return a Java list of ``items``, a Python or Java iterable."""
    from py4j.java_gateway import JavaObject

    guava = jvm(spark).org.apache.iceberg.relocated.com.google.common
    if isinstance(items, JavaObject):
        return guava.collect.Lists.newArrayList(items)
    given, result = list(items), jvm(spark).java.util.ArrayList()
    if given and all(isinstance(item, str) for item in given):
        result.addAll(
            guava.base.Splitter.on("\0").splitToList("\0".join(given))
        )  # one call, not one for each
    else:
        for item in given:
            result.add(item)
    return result


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Collect a DataFrame as Arrow, by Spark 4's public method or the private one of 3.5."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()  # type: ignore[operator]  # the stubs of 3.5 do not know it
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()
    if not batches:
        return to_arrow_schema(frame.schema).empty_table()
    return pa.Table.from_batches(batches)


def java_map(spark: SparkSession, entries: Any) -> dict[str, str]:
    """Return a Java map of strings, fetched in one call as JSON; iterating would cost several calls per entry."""
    iceberg = jvm(spark).org.apache.iceberg
    mapper = jvm(spark).remember(("json mapper",), iceberg.util.JsonUtil.mapper)
    result: dict[str, str] = json.loads(mapper.writeValueAsString(entries))
    return result


class JavaStandardError(io.TextIOBase):
    """The standard error of Spark's JVM; needs no session.

    spark-submit sends both outputs of its child Python to its own standard output.
    """

    def __init__(self) -> None:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
        jvm_root: Any = SparkContext._jvm
        self._stream = jvm_root.java.lang.System.err

    def write(self, text: str) -> int:
        """Write a text."""
        self._stream.print(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, unless the JVM is gone."""
        with suppress(Exception):
            self._stream.flush()


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session's Spark has been stopped."""
    context = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def end() -> None:
    """Stop Spark and end the JVM of this process, if any; it releases files and locks a moment later."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        with suppress(Exception):  # the JVM may be gone
            SparkContext._active_spark_context.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin:
        process.stdin.close()  # the JVM exits when its standard input closes
    # The next session of this process would use the dead gateway.
    SparkContext._gateway = None
    SparkContext._jvm = None


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
