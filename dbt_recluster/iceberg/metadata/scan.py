"""Iceberg's scan planning: the files that a query opens, and the scan tasks and column counts of given files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.java_functions import CONTENT_FILE, STRING, JavaFunctions, parse_counts
from dbt_recluster.iceberg.session.jvm import java_items, java_list, jvm

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable


@dataclass(frozen=True)
class ColumnCounts:
    """The recorded counts of values, NULLs included, and of NULLs in a file's columns, by field id."""

    values: dict[int, int]
    nulls: dict[int, int]


def file_paths(table: IcebergTable, snapshot_id: int, expression: Any) -> list[str]:
    """Return the paths of the data files that a filtered scan of a snapshot opens."""
    functions = JavaFunctions(table.spark)
    scan = _scan(table, snapshot_id).caseSensitive(table.case_sensitive).filter(expression)
    with closing(scan.planFiles()) as tasks:
        location = functions.function(functions.location_of_task())
        return functions.strings(table.iceberg.io.CloseableIterable.transform(tasks, location))


def scan_tasks(
    table: IcebergTable, snapshot_id: int, paths: Sequence[str], bounds_of: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the Java scan tasks of the files that are live in a snapshot, by path, with the bounds of some columns."""
    scan = _scan(table, snapshot_id)
    if bounds_of:
        # The scan has the schema of the snapshot.
        ids, schema = table.field_ids, scan.schema()
        names = [schema.findColumnName(ids[column]) for column in bounds_of]
        scan = scan.includeColumnStats([name for name in names if name is not None])
    with closing(scan.planFiles()) as tasks:
        selected = java_items(java_list(table.spark, _at(table, tasks, paths)))
    return {str(task.file().location()): task for task in selected}


def changed_tasks(table: IcebergTable, snapshot_id: int | None, tasks: Mapping[str, Any]) -> set[str]:
    """Return the files that are no longer live in a snapshot, None if the table is empty, or have other delete files.

    ``tasks`` are the scan tasks by path when they were planned.
    """
    now = {} if snapshot_id is None else scan_tasks(table, snapshot_id, list(tasks))
    return {path for path, task in tasks.items() if path not in now or _deletes(task) != _deletes(now[path])}


def column_counts(table: IcebergTable, snapshot_id: int, paths: Sequence[str]) -> dict[str, ColumnCounts]:
    """Return the recorded column counts of files, by path.

    Scan tasks have none, since with the metrics of every column they would be too large for executors.
    """
    functions = JavaFunctions(table.spark)
    with closing(_scan(table, snapshot_id).includeColumnStats().planFiles()) as tasks:
        text = functions.function(functions.then(functions.file_of_task(), _counts_as_text(functions)))
        texts = table.iceberg.io.CloseableIterable.transform(_at(table, tasks, paths), text)
        return _parse(functions.records(texts))


def written_counts(table: IcebergTable, files: Sequence[Any]) -> dict[str, ColumnCounts]:
    """Return the column counts of Java data files that are not committed yet, by path."""
    functions = JavaFunctions(table.spark)
    text = functions.function(_counts_as_text(functions))
    return _parse(functions.records(java_list(table.spark, files).stream().map(text).iterator()))


def _scan(table: IcebergTable, snapshot_id: int) -> Any:
    return table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals()


def _at(table: IcebergTable, tasks: Any, paths: Sequence[str]) -> Any:
    """Return the Java scan tasks of the files at ``paths``."""
    functions = JavaFunctions(table.spark)
    wanted = jvm(table.spark).java.util.HashSet(java_list(table.spark, paths))
    is_at = functions.is_in(wanted, functions.location_of_task())
    return table.iceberg.io.CloseableIterable.filter(tasks, functions.predicate(is_at))


def _deletes(task: Any) -> set[tuple[str, Any]]:
    # Deletion vectors of several files share one file, at different offsets.
    return {(delete.location(), delete.contentOffset()) for delete in java_items(task.deletes())}


def _counts_as_text(functions: JavaFunctions) -> Any:
    getters = (("location", STRING), ("valueCounts", "java.util.Map"), ("nullValueCounts", "java.util.Map"))
    return functions.fields(CONTENT_FILE, getters)


def _parse(records: Sequence[Sequence[str]]) -> dict[str, ColumnCounts]:
    return {path: ColumnCounts(parse_counts(values), parse_counts(nulls)) for path, values, nulls in records}
