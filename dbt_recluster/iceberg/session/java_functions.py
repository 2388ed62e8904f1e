"""Java functions made of Java's own method handles.

A call from Python into the JVM takes a tenth of a millisecond, so Python never calls a method once per file. It
describes the function with method handles and lets the JVM apply it to a whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.jvm import java_array, java_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRING = "java.lang.String"
CONTENT_FILE = "org.apache.iceberg.ContentFile"
_ICEBERG_TYPE = "org.apache.iceberg.types.Type"
_SCAN_TASK = "org.apache.iceberg.ContentScanTask"
OBJECT = "java.lang.Object"
_PRIMITIVES = {"boolean": "java.lang.Boolean", "int": "java.lang.Integer", "long": "java.lang.Long"}

# Separators that no path and no number contains.
_FIELDS, _LINES = "\1", "\0"


class JavaFunctions:
    """Builds Java functions in the JVM of a session; a handle is a ``java.lang.invoke.MethodHandle``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._invoke = jvm(spark).java.lang.invoke
        self._lookup = jvm(spark).remember(("lookup",), self._invoke.MethodHandles.publicLookup)

    def method(self, owner: str, name: str, returns: str, *takes: str) -> Any:
        """Return a handle of a public method; ``boolean`` and fully qualified class names are types."""

        def look_up() -> Any:
            return self._lookup.findVirtual(self._class(owner), name, self._type(returns, *takes))

        return jvm(self._spark).remember((owner, name, returns, *takes), look_up)

    def hidden_method(self, owner: str, name: str) -> Any:
        """Return a handle of a method without arguments that Iceberg keeps to its own package."""

        def look_up() -> Any:
            method = self._class(owner).getDeclaredMethod(name, None)
            method.setAccessible(True)
            return self._lookup.unreflect(method)

        return jvm(self._spark).remember(("hidden", owner, name), look_up)

    def as_type(self, handle: Any, returns: str, takes: str) -> Any:
        """Return a handle that casts what another one takes and returns."""
        return handle.asType(self._type(returns, takes))

    def item_of(self, key: int) -> Any:
        """Return a handle that takes a Java map, or null, to its value for a whole number, or null."""
        handles, java = self._invoke.MethodHandles, jvm(self._spark).java
        get = self.method("java.util.Map", "get", OBJECT, OBJECT)
        get = handles.insertArguments(
            get, 1, java_array(self._spark, java.lang.Object, [java.lang.Integer.valueOf(key)])
        )
        is_null = self._static("java.util.Objects", "isNull", "boolean", OBJECT)
        is_null = is_null.asType(self._type("boolean", "java.util.Map"))
        return handles.guardWithTest(is_null, handles.empty(self._type(OBJECT, "java.util.Map")), get)

    def bound_as_json(self, iceberg_type: Any) -> Any:
        """Return a handle that writes a bound of this Iceberg type, which may be null, as JSON."""
        conversions = "org.apache.iceberg.types.Conversions"
        read = self._static(conversions, "fromByteBuffer", OBJECT, _ICEBERG_TYPE, "java.nio.ByteBuffer")
        read = read.bindTo(iceberg_type).asType(self._type(OBJECT, OBJECT))
        return self.then(read, self._to_json(iceberg_type))

    def location_of_task(self) -> Any:
        """Return a handle that takes a scan task to the location of its file."""

        def make() -> Any:
            return self.then(self.file_of_task(), self.method(CONTENT_FILE, "location", STRING))

        return jvm(self._spark).remember(("location_of_task",), make)

    def file_of_task(self) -> Any:
        """Return a handle that takes a scan task to its file."""
        return self.method(_SCAN_TASK, "file", CONTENT_FILE)

    def json_of(self, type_of_values: Any) -> Any:
        """Return a handle that writes an Iceberg struct of this type as JSON, by the ids of its fields."""
        return self._to_json(type_of_values).asType(self._type(STRING, "org.apache.iceberg.StructLike"))

    def then(self, first: Any, second: Any) -> Any:
        """Return a handle that applies ``first`` and then ``second``."""
        return self._invoke.MethodHandles.filterReturnValue(first, second)

    def fields(self, owner: str, handles: Sequence[Any]) -> Any:
        """Return a handle that writes an ``owner`` as the text of each handle's result (see :func:`split_fields`)."""
        handles_class = self._invoke.MethodHandles
        text = self._static(STRING, "format", STRING, STRING, "[Ljava.lang.Object;")
        text = text.bindTo(_FIELDS.join(["%s"] * len(handles)))
        text = text.asCollector(self._class("[Ljava.lang.Object;"), len(handles))
        as_objects = [handle.asType(self._type(OBJECT, owner)) for handle in handles]
        text = handles_class.filterArguments(
            text, 0, java_array(self._spark, self._invoke.MethodHandle, as_objects)
        )
        same_argument = java_array(self._spark, jvm(self._spark).int, [0] * len(handles))
        return handles_class.permuteArguments(text, self._type(STRING, owner), same_argument)

    def is_in(self, values: Any, handle: Any) -> Any:
        """Return a handle that tells whether a Java set contains the string that ``handle`` returns."""
        contains = self.method("java.util.Set", "contains", "boolean", OBJECT).bindTo(values)
        contains = contains.asType(contains.type().changeParameterType(0, self._class(STRING)))
        arguments = java_array(self._spark, self._invoke.MethodHandle, [handle])
        return self._invoke.MethodHandles.filterArguments(contains, 0, arguments)

    def function(self, handle: Any) -> Any:
        """Return a ``java.util.function.Function``."""
        return self._interface("java.util.function.Function", handle)

    def predicate(self, handle: Any) -> Any:
        """Return a ``java.util.function.Predicate``."""
        return self._interface("java.util.function.Predicate", handle)

    def no_consumer(self) -> Any:
        """Return a ``java.util.function.Consumer`` that does nothing."""
        nothing = self._invoke.MethodHandles.empty(self._type(OBJECT, OBJECT))
        return self._interface("java.util.function.Consumer", nothing)

    def recorder(self, interface: str, calls: Any) -> Any:
        """Return an object of any interface that adds the arguments of each call, an array, to a Java queue."""
        handles, java, array = self._invoke.MethodHandles, jvm(self._spark).java, "[Ljava.lang.Object;"
        add = self.method("java.util.Queue", "add", "boolean", OBJECT).bindTo(calls)
        # It is equal to nothing: Spark compares listeners when it removes one.
        false = handles.constant(self._class(OBJECT), False)
        ignored = java_array(self._spark, java.lang.Class, [self._class("boolean")])
        call = self.then(add, handles.dropArguments(false, 0, ignored)).asType(self._type(OBJECT, array))
        before = [self._class(OBJECT), self._class("java.lang.reflect.Method")]
        call = handles.dropArguments(call, 0, java_array(self._spark, java.lang.Class, before))
        handler = self._interface("java.lang.reflect.InvocationHandler", call)
        interfaces = java_array(self._spark, java.lang.Class, [self._class(interface)])
        return java.lang.reflect.Proxy.newProxyInstance(
            self._class(interface).getClassLoader(), interfaces, handler
        )

    def lines(self, stream: Any) -> str:
        """Collect a Java stream of strings into one string (see :func:`split_lines`)."""
        return str(stream.collect(jvm(self._spark).java.util.stream.Collectors.joining(_LINES)))

    def lines_of(self, iterable: Any) -> str:
        """Collect a Java iterable of strings likewise."""
        guava = jvm(self._spark).org.apache.iceberg.relocated.com.google.common
        return str(guava.base.Joiner.on(_LINES).join(iterable))

    def _to_json(self, iceberg_type: Any) -> Any:
        parser = "org.apache.iceberg.SingleValueParser"
        return self._static(parser, "toJson", STRING, _ICEBERG_TYPE, OBJECT).bindTo(iceberg_type)

    def _static(self, owner: str, name: str, returns: str, *takes: str) -> Any:
        return self._lookup.findStatic(self._class(owner), name, self._type(returns, *takes))

    def _interface(self, name: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(name), handle)

    def _class(self, name: str) -> Any:
        if boxed := _PRIMITIVES.get(name):
            primitive = java_class(self._spark, boxed)
            return jvm(self._spark).remember(name, lambda: primitive.getField("TYPE").get(None))
        return java_class(self._spark, name)

    def _type(self, returns: str, *takes: str) -> Any:
        arguments = java_array(self._spark, jvm(self._spark).java.lang.Class, [self._class(t) for t in takes])
        return self._invoke.MethodType.methodType(self._class(returns), arguments)


def split_lines(text: str) -> list[str]:
    """Return the strings that :meth:`JavaFunctions.lines` collected."""
    return text.split(_LINES) if text else []


def split_fields(line: str) -> list[str]:
    """Return the fields that :meth:`JavaFunctions.fields` wrote."""
    return line.split(_FIELDS)


def parse_counts(text: str) -> dict[int, int]:
    """Read the text of a Java map of integers, ``{1=20, 2=20}`` or ``null``."""
    pairs = (pair.split("=") for pair in text.strip("{}").split(", ")) if "=" in text else ()
    return {int(key): int(value) for key, value in pairs}
