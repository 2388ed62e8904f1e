"""Iceberg's own scan planning: which files a query opens, and the scan tasks of chosen files.

A call from Python into the JVM costs a tenth of a millisecond, so nothing here calls once per file of the
table: Iceberg's lazy iterables do, fed with functions made from Java's own method handles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.jvm import java_array, java_class, jvm

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


def scan_tasks(
    table: IcebergTable,
    snapshot_id: int,
    paths: Sequence[str],
    bounds_of: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the scan tasks of the files at ``paths``, with their delete files, by path.

    Args:
        table: The table.
        snapshot_id: The snapshot to plan.
        paths: The files; one that is not live in the snapshot is missing in the answer.
        bounds_of: Columns whose bounds the tasks' files are to know.
    """
    scan = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals()
    if bounds_of:
        scan = scan.includeColumnStats(list(bounds_of))
    wanted = jvm(table.spark).java.util.HashSet()
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
    invoke = jvm(table.spark).java.lang.invoke
    lookup = invoke.MethodHandles.publicLookup()
    content_file = java_class(table.spark, "org.apache.iceberg.ContentFile")
    scan_task = java_class(table.spark, "org.apache.iceberg.ContentScanTask")
    string = java_class(table.spark, "java.lang.String")
    to_file = lookup.findVirtual(scan_task, "file", invoke.MethodType.methodType(content_file))
    to_path = lookup.findVirtual(content_file, "location", invoke.MethodType.methodType(string))
    return invoke.MethodHandles.filterReturnValue(to_file, to_path)


def _path_function(table: IcebergTable) -> Any:
    function = java_class(table.spark, "java.util.function.Function")
    return jvm(table.spark).java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        function, _path_handle(table)
    )


def _path_predicate(table: IcebergTable, wanted: Any) -> Any:
    """Return a Java predicate of scan tasks: is the path of the task's file in the set ``wanted``?"""
    invoke = jvm(table.spark).java.lang.invoke
    boolean = java_class(table.spark, "java.lang.Boolean").getField("TYPE").get(None)
    any_object = java_class(table.spark, "java.lang.Object")
    java_set = java_class(table.spark, "java.util.Set")
    contains = invoke.MethodHandles.publicLookup().findVirtual(
        java_set, "contains", invoke.MethodType.methodType(boolean, any_object)
    )
    contains = contains.bindTo(wanted)
    contains = contains.asType(
        contains.type().changeParameterType(0, java_class(table.spark, "java.lang.String"))
    )
    path = java_array(table.spark, invoke.MethodHandle, [_path_handle(table)])
    handle = invoke.MethodHandles.filterArguments(contains, 0, path)
    predicate = java_class(table.spark, "java.util.function.Predicate")
    return invoke.MethodHandleProxies.asInterfaceInstance(predicate, handle)
