"""Java functions composed of method handles.

A call from Python into the JVM takes a tenth of a millisecond: too long for each file of a table. Python composes the
function instead, and the JVM applies it to a whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.jvm import JavaNames, java_array, java_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def hidden_method(self, owner: str, *names: str) -> Any:
        """Return a handle of a non-public method without arguments; ``names`` are those of different versions."""

        def look_up() -> Any:
            declared = {str(method.getName()) for method in self._class(owner).getDeclaredMethods()}
            name = next((name for name in names if name in declared), names[0])
            method = self._class(owner).getDeclaredMethod(name, None)
            method.setAccessible(True)
            return self._lookup.unreflect(method)

        return self._jvm.remember(("hidden", owner, *names), look_up)

    def as_type(self, handle: Any, returns: str, takes: str) -> Any:
        """Return a handle with the argument and result of ``handle`` cast."""
        return handle.asType(self._type(returns, takes))

    def location_of_task(self) -> Any:
        """Return a handle from a scan task to the location of its file."""
        return self.then(self.file_of_task(), self.method(CONTENT_FILE, "location", STRING))

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
        text = self._handles.filterArguments(text, 0, self._array(self._invoke.MethodHandle, as_objects))
        same_argument = self._array(self._jvm.int, [0] * len(handles))
        return self._handles.permuteArguments(text, self._type(STRING, owner), same_argument)

    def is_in(self, values: Any, handle: Any) -> Any:
        """Return a handle that tells whether a Java set contains the string that ``handle`` returns."""
        contains = self.method("java.util.Set", "contains", "boolean", OBJECT).bindTo(values)
        return self.then(handle, self.as_type(contains, "boolean", STRING))

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
        ignored = self._array(java.Class, [self._class("boolean")])
        call = self.then(add, self._handles.dropArguments(false, 0, ignored))
        before = self._array(java.Class, [self._class(OBJECT), self._class("java.lang.reflect.Method")])
        call = self._handles.dropArguments(self.as_type(call, OBJECT, _ARRAY), 0, before)
        handler = self._interface("java.lang.reflect.InvocationHandler", call)
        interfaces = self._array(java.Class, [self._class(interface)])
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
        array = self._array(self._jvm.java.lang.Object, list(values))
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
        arguments = self._array(self._jvm.java.lang.Class, [self._class(name) for name in takes])
        return self._invoke.MethodType.methodType(self._class(returns), arguments)

    def _array(self, element: JavaNames, items: list[Any]) -> Any:
        return java_array(self._spark, element, items)


def parse_counts(text: str) -> dict[int, int]:
    """Parse the text of a Java map of integers, ``{1=20, 2=20}`` or ``null``."""
    pairs = (pair.split("=") for pair in text.strip("{}").split(", ")) if "=" in text else ()
    return {int(key): int(value) for key, value in pairs}
