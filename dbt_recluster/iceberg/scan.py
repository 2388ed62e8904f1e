"""Iceberg's own scan planning: which files a query opens, and the scan tasks of chosen files.

A call from Python into the JVM costs a tenth of a millisecond, so nothing here calls once per file of the table: Iceberg's
lazy iterables do, fed with functions made from Java's own method handles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable


def file_paths(table: IcebergTable, snapshot_id: int, expression: Any) -> list[str]:
    """Return the paths of the data files that a scan of ``snapshot_id`` filtered by ``expression`` opens."""
    tasks = table.java.newScan().useSnapshot(snapshot_id).filter(expression).ignoreResiduals().planFiles()
    try:
        paths = table.iceberg.io.CloseableIterable.transform(tasks, _path_function(table))
        joined = _guava(table).base.Joiner.on("\0").join(paths)
    finally:
        tasks.close()
    return joined.split("\0") if joined else []


def scan_tasks(table: IcebergTable, snapshot_id: int, paths: Sequence[str], expression: Any | None = None) -> dict[str, Any]:
    """Return the scan tasks of the files at ``paths``, with their delete files, by path.

    Args:
        table: The table.
        snapshot_id: The snapshot to plan.
        paths: The files; one that is not live in the snapshot is missing in the answer.
        expression: A filter that every wanted file passes, to plan less than the whole table.
    """
    scan = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals()
    if expression is not None:
        scan = scan.filter(expression)
    wanted = table.spark._jvm.java.util.HashSet()
    for path in paths:
        wanted.add(path)
    tasks = scan.planFiles()
    try:
        matching = table.iceberg.io.CloseableIterable.filter(tasks, _path_predicate(table, wanted))
        chosen = _guava(table).collect.Lists.newArrayList(matching)
    finally:
        tasks.close()
    return {task.file().location(): task for task in chosen}


def _guava(table: IcebergTable) -> Any:
    return table.iceberg.relocated.com.google.common


def _path_handle(table: IcebergTable) -> Any:
    """Return a method handle that takes a scan task to its file's path."""
    invoke = table.spark._jvm.java.lang.invoke
    lookup = invoke.MethodHandles.publicLookup()
    content_file = _class(table, "org.apache.iceberg.ContentFile")
    to_file = lookup.findVirtual(
        _class(table, "org.apache.iceberg.ContentScanTask"), "file", invoke.MethodType.methodType(content_file)
    )
    to_path = lookup.findVirtual(
        content_file, "location", invoke.MethodType.methodType(_class(table, "java.lang.String"))
    )
    return invoke.MethodHandles.filterReturnValue(to_file, to_path)


def _path_function(table: IcebergTable) -> Any:
    invoke = table.spark._jvm.java.lang.invoke
    function = _class(table, "java.util.function.Function")
    return invoke.MethodHandleProxies.asInterfaceInstance(function, _path_handle(table))


def _path_predicate(table: IcebergTable, wanted: Any) -> Any:
    invoke = table.spark._jvm.java.lang.invoke
    java_object = _class(table, "java.lang.Object")
    contains = invoke.MethodHandles.publicLookup().findVirtual(
        _class(table, "java.util.Set"),
        "contains",
        invoke.MethodType.methodType(_class(table, "java.lang.Boolean").getField("TYPE").get(None), java_object),
    )
    contains = contains.bindTo(wanted)
    string = _class(table, "java.lang.String")
    contains = contains.asType(contains.type().changeParameterType(0, string))
    filters = table.spark.sparkContext._gateway.new_array(invoke.MethodHandle, 1)
    filters[0] = _path_handle(table)
    handle = invoke.MethodHandles.filterArguments(contains, 0, filters)
    return invoke.MethodHandleProxies.asInterfaceInstance(_class(table, "java.util.function.Predicate"), handle)


def _class(table: IcebergTable, name: str) -> Any:
    loader = table.java.getClass().getClassLoader()
    return table.spark._jvm.java.lang.Class.forName(name, True, loader)
