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


def column_counts(
    table: IcebergTable, snapshot_id: int, paths: Sequence[str]
) -> dict[str, tuple[dict[int, int], dict[int, int]]]:
    """Return the counts of values and of NULLs that the table records of its files at ``paths``.

    The counts stay in no Java object: tasks that knew those of all columns would be too large to plan with.

    Returns:
        By path: two maps from a column's field id to its count, empty where the file has no counts.
    """
    tasks = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals().includeColumnStats().planFiles()
    wanted = jvm(table.spark).java.util.HashSet()
    for path in paths:
        wanted.add(path)
    try:
        matching = table.iceberg.io.CloseableIterable.filter(tasks, _path_predicate(table, wanted))
        texts = table.iceberg.io.CloseableIterable.transform(matching, _counts_function(table, of_task=True))
        return _parse_counts(str(_guava(table).base.Joiner.on("\0").join(texts)))
    finally:
        tasks.close()


def written_counts(
    table: IcebergTable, files: Sequence[Any]
) -> dict[str, tuple[dict[int, int], dict[int, int]]]:
    """Return the same of files that are not part of the table yet."""
    java_files = jvm(table.spark).java.util.ArrayList()
    for file in files:
        java_files.add(file)
    texts = java_files.stream().map(_counts_function(table, of_task=False))
    return _parse_counts(str(texts.collect(jvm(table.spark).java.util.stream.Collectors.joining("\0"))))


def _counts_function(table: IcebergTable, *, of_task: bool) -> Any:
    """Return a Java function that writes a file, or that of a scan task, as ``path|value counts|NULL counts``."""
    spark = table.spark
    invoke = jvm(spark).java.lang.invoke
    handles, lookup = invoke.MethodHandles, invoke.MethodHandles.publicLookup()
    content_file, java_map = (
        java_class(spark, "org.apache.iceberg.ContentFile"),
        java_class(spark, "java.util.Map"),
    )
    string, any_object = java_class(spark, "java.lang.String"), java_class(spark, "java.lang.Object")
    objects = java_class(spark, "[Ljava.lang.Object;")
    parts = [
        lookup.findVirtual(content_file, name, invoke.MethodType.methodType(kind))
        for name, kind in (("location", string), ("valueCounts", java_map), ("nullValueCounts", java_map))
    ]
    as_objects = invoke.MethodType.methodType(any_object, content_file)
    text = lookup.findStatic(string, "format", invoke.MethodType.methodType(
            string, java_array(spark, jvm(spark).java.lang.Class, [string, objects])
        ))
    text = text.bindTo("%s\1%s\1%s").asCollector(objects, len(parts))
    text = handles.filterArguments(
        text, 0, java_array(spark, invoke.MethodHandle, [part.asType(as_objects) for part in parts])
    )
    same = java_array(spark, jvm(spark).int, [0] * len(parts))
    text = handles.permuteArguments(text, invoke.MethodType.methodType(string, content_file), same)
    if of_task:
        text = handles.filterReturnValue(_file_handle(table), text)
    function = java_class(spark, "java.util.function.Function")
    return invoke.MethodHandleProxies.asInterfaceInstance(function, text)


def _parse_counts(joined: str) -> dict[str, tuple[dict[int, int], dict[int, int]]]:
    found = {}
    for line in joined.split("\0") if joined else ():
        path, values, nulls = line.split("\1")
        found[path] = _parse_map(values), _parse_map(nulls)
    return found


def _parse_map(text: str) -> dict[int, int]:
    """Read a Java map of integers, ``{1=20, 2=20}`` or ``null``."""
    pairs = (pair.split("=") for pair in text.strip("{}").split(", ")) if "=" in text else ()
    return {int(key): int(value) for key, value in pairs}


def _guava(table: IcebergTable) -> Any:
    return table.iceberg.relocated.com.google.common


def _path_handle(table: IcebergTable) -> Any:
    """Return a method handle that takes a scan task to its file's path."""
    invoke = jvm(table.spark).java.lang.invoke
    lookup = invoke.MethodHandles.publicLookup()
    content_file = java_class(table.spark, "org.apache.iceberg.ContentFile")
    string = java_class(table.spark, "java.lang.String")
    to_path = lookup.findVirtual(content_file, "location", invoke.MethodType.methodType(string))
    return invoke.MethodHandles.filterReturnValue(_file_handle(table), to_path)


def _file_handle(table: IcebergTable) -> Any:
    """Return a method handle that takes a scan task to its file."""
    invoke = jvm(table.spark).java.lang.invoke
    content_file = java_class(table.spark, "org.apache.iceberg.ContentFile")
    scan_task = java_class(table.spark, "org.apache.iceberg.ContentScanTask")
    return invoke.MethodHandles.publicLookup().findVirtual(
        scan_task, "file", invoke.MethodType.methodType(content_file)
    )


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
