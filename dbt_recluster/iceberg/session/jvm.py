"""Access to Spark's JVM from Python: its names and values, functions composed for it, and its shutdown.

A call from Python into the JVM takes a tenth of a millisecond: too long for each file of a table. Python composes a
function of method handles instead, and the JVM applies it to a whole collection.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession
else:  # types alone: pyspark takes a while to import, and the methods of dbt that connect to a server do without
    DataFrame = SparkSession = Any

T = TypeVar("T")

STRING = "java.lang.String"
CONTENT_FILE = "org.apache.iceberg.ContentFile"
STRUCT = "org.apache.iceberg.StructLike"
_GUAVA = "org.apache.iceberg.relocated.com.google.common.base"
_ICEBERG_TYPE = "org.apache.iceberg.types.Type"
OBJECT = "java.lang.Object"
_ARRAY = "[Ljava.lang.Object;"
_PRIMITIVES = {"boolean": "java.lang.Boolean", "int": "java.lang.Integer", "long": "java.lang.Long"}

# Separators that no path and no number contains.
FIELDS, _LINES = "\1", "\0"


class JavaNames:
    """A Java package or class that looks each name up once.

    py4j asks the JVM for each part of a dotted name at each use: half of the calls of a small recluster.
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


def java_session(spark: SparkSession) -> Any:
    """Return the Java ``SparkSession``."""
    return spark._jsparkSession


def java_context(spark: SparkSession) -> Any:
    """Return the Java ``SparkContext``, or None if Spark has been stopped."""
    context = spark.sparkContext._jsc
    return context and context.sc()


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the active session of this thread, as Spark SQL does.

    Iceberg's classes read the configuration of the active session; without one they see no catalog.
    """
    jvm(spark).org.apache.spark.sql.SparkSession.setActiveSession(java_session(spark))


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
    elements, result = list(items), jvm(spark).java.util.ArrayList()
    if elements and all(isinstance(item, str) for item in elements):
        result.addAll(guava.base.Splitter.on("\0").splitToList("\0".join(elements)))  # one call, not one for each
    else:
        for item in elements:
            result.add(item)
    return result


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Collect a DataFrame as Arrow, by Spark 4's public method or the private one of 3.5."""
    source: Any = frame  # no version's stubs know both
    if hasattr(source, "toArrow"):
        return source.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = source._collect_as_arrow()
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
    context = java_context(spark)
    return context is None or bool(context.isStopped())


def silence_errors(spark: SparkSession) -> None:
    """Discard Java's standard error from now on; logs are unaffected."""
    with suppress(Exception):  # the JVM may be gone
        java = jvm(spark).java
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


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


class JavaFunctions:
    """Composes Java functions in a session's JVM. A handle is a ``java.lang.invoke.MethodHandle``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = jvm(spark)
        self._invoke = self._jvm.java.lang.invoke
        self._handles = self._invoke.MethodHandles
        self._lookup = self._jvm.remember(("lookup",), self._handles.publicLookup)

    def method(self, owner: str, name: str, returns: str, *takes: str) -> Any:
        """Return a handle of a public method; ``boolean`` and fully qualified class names are types."""
        return self._find("findVirtual", owner, name, returns, *takes)

    def value_at(self, places: Sequence[int]) -> Any:
        """Return a handle from an Iceberg struct to the value at a place, or at places in nested structs."""
        get = self.method(STRUCT, "get", OBJECT, "int", "java.lang.Class")
        get_at = [self._given(get, 1, place, self._class(OBJECT)) for place in places]
        return reduce(lambda first, last: self.then(self.as_type(first, STRUCT, STRUCT), last), get_at)

    def item_of(self, key: int) -> Any:
        """Return a handle from a Java map, or null, to its value for an integer key, or null."""
        get = self._given(self.method("java.util.Map", "get", OBJECT, OBJECT), 1, key)
        is_null = self._static("java.util.Objects", "isNull", "boolean", OBJECT)
        null = self._handles.empty(self._type(OBJECT, OBJECT))
        return self._handles.guardWithTest(is_null, null, self.as_type(get, OBJECT, OBJECT))

    def decoded(self, iceberg_type: Any) -> Any:
        """Return a handle that decodes a bound of this Iceberg type, or null."""
        conversions = "org.apache.iceberg.types.Conversions"
        decode = self._static(conversions, "fromByteBuffer", OBJECT, _ICEBERG_TYPE, "java.nio.ByteBuffer")
        return self.as_type(decode.bindTo(iceberg_type), OBJECT, OBJECT)

    def to_json(self, iceberg_type: Any) -> Any:
        """Return a handle that writes a value of this Iceberg type as JSON; fields of structs have their ids."""
        parser = "org.apache.iceberg.SingleValueParser"
        return self._static(parser, "toJson", STRING, _ICEBERG_TYPE, OBJECT).bindTo(iceberg_type)

    def as_type(self, handle: Any, returns: str, takes: str) -> Any:
        """Return a handle with the argument and result of ``handle`` cast."""
        return handle.asType(self._type(returns, takes))

    def file_of_task(self) -> Any:
        """Return a handle from a scan task to its file."""
        return self.method("org.apache.iceberg.ContentScanTask", "file", CONTENT_FILE)

    def then(self, first: Any, second: Any) -> Any:
        """Return a handle that applies ``first`` and then ``second``."""
        return self._handles.filterReturnValue(first, second)

    def fields(self, owner: str, values: Sequence[Any]) -> Any:
        """Return a handle that writes an ``owner`` as text, for :meth:`records` and :meth:`lines`.

        A value is a handle, or the name of a getter and what that returns.
        """
        handles = [self.method(owner, *value) if isinstance(value, tuple) else value for value in values]
        join = self.method(f"{_GUAVA}.Joiner", "join", STRING, _ARRAY)
        join = join.bindTo(self._joiner(FIELDS).useForNull("null"))
        text = join.asCollector(self._class(_ARRAY), len(handles))
        as_objects = [self.as_type(handle, OBJECT, owner) for handle in handles]
        text = self._handles.filterArguments(text, 0, java_array(self._spark, self._invoke.MethodHandle, as_objects))
        same_argument = java_array(self._spark, self._jvm.int, [0] * len(handles))
        return self._handles.permuteArguments(text, self._type(STRING, owner), same_argument)

    def function(self, handle: Any) -> Any:
        """Return a ``java.util.function.Function``."""
        return self._interface("java.util.function.Function", handle)

    def predicate(self, handle: Any) -> Any:
        """Return a ``java.util.function.Predicate``."""
        return self._interface("java.util.function.Predicate", handle)

    def no_consumer(self) -> Any:
        """Return a ``java.util.function.Consumer`` that does nothing."""
        return self._interface("java.util.function.Consumer", self._handles.empty(self._type(OBJECT, OBJECT)))

    def recorder(self, interface: str, calls: Any) -> Any:
        """Return an implementation of an interface that appends the array of each call's arguments to a Java queue."""
        java = self._jvm.java.lang
        add = self.method("java.util.Queue", "add", "boolean", OBJECT).bindTo(calls)
        # Spark calls equals() to remove a listener.
        false = self._handles.constant(self._class(OBJECT), False)
        ignored = java_array(self._spark, java.Class, [self._class("boolean")])
        call = self.then(add, self._handles.dropArguments(false, 0, ignored))
        before = java_array(self._spark, java.Class, [self._class(OBJECT), self._class("java.lang.reflect.Method")])
        call = self._handles.dropArguments(self.as_type(call, OBJECT, _ARRAY), 0, before)
        handler = self._interface("java.lang.reflect.InvocationHandler", call)
        interfaces = java_array(self._spark, java.Class, [self._class(interface)])
        loader = self._class(interface).getClassLoader()
        return java.reflect.Proxy.newProxyInstance(loader, interfaces, handler)

    def strings(self, iterable: Any) -> list[str]:
        """Return the non-empty strings of a Java iterable or iterator."""
        text = str(self._joiner(_LINES).join(iterable))
        return text.split(_LINES) if text else []

    def records(self, iterable: Any) -> list[list[str]]:
        """Return the fields of each text that :meth:`fields` wrote."""
        return [text.split(FIELDS) for text in self.strings(iterable)]

    def lines(self, iterable: Any) -> bytes:
        """Return such texts as lines."""
        # Joined by NUL, since py4j escapes line breaks.
        return str(self._joiner(_LINES).join(iterable)).encode().replace(_LINES.encode(), b"\n")

    def _static(self, owner: str, name: str, returns: str, *takes: str) -> Any:
        return self._find("findStatic", owner, name, returns, *takes)

    def _find(self, kind: str, owner: str, name: str, returns: str, *takes: str) -> Any:
        def find() -> Any:
            return getattr(self._lookup, kind)(self._class(owner), name, self._type(returns, *takes))

        return self._jvm.remember((kind, owner, name, returns, *takes), find)

    def _given(self, handle: Any, place: int, *values: Any) -> Any:
        """Return a handle with the arguments from ``place`` on bound to values."""
        array = java_array(self._spark, self._jvm.java.lang.Object, list(values))
        return self._handles.insertArguments(handle, place, array)

    def _joiner(self, separator: str) -> Any:
        return self._jvm.org.apache.iceberg.relocated.com.google.common.base.Joiner.on(separator)

    def _interface(self, name: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(name), handle)

    def _class(self, name: str) -> Any:
        if boxed := _PRIMITIVES.get(name):
            primitive = java_class(self._spark, boxed)
            return self._jvm.remember(name, lambda: primitive.getField("TYPE").get(None))
        return java_class(self._spark, name)

    def _type(self, returns: str, *takes: str) -> Any:
        arguments = java_array(self._spark, self._jvm.java.lang.Class, [self._class(name) for name in takes])
        return self._invoke.MethodType.methodType(self._class(returns), arguments)
