"""Prove that a merge wrote the rows it read, before anybody commits it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import MergeFailedError
from dbt_recluster.iceberg.block_set import BlockSet, MergedSet
from dbt_recluster.iceberg.scan import column_counts, written_counts

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable


def deal_out(table: IcebergTable, files: Sequence[Any], sets: Sequence[BlockSet]) -> list[list[Any]]:
    """Return the new files of each set.

    Spark hands files over in the order of the partitions that wrote them, and partitions stand in the order of sets.
    So the files of a set end where its rows do. File names would tell the same only under Iceberg's own location
    providers.

    Args:
        table: The table.
        files: What one job wrote, in order.
        sets: What the job merged, in order.

    Raises:
        MergeFailedError: The rows do not add up.
    """
    dealt: list[list[Any]] = []
    rest = iter(files)
    for each in sets:
        own: list[Any] = []
        rows, expected = 0, each.live_rows or 0
        while rows < expected and (file := next(rest, None)) is not None:
            own.append(file)
            rows += int(file.recordCount())
        if rows != expected:
            raise _changed(table, each, f"read {expected} rows and wrote {rows}")
        dealt.append(own)
    if surplus := sum(int(file.recordCount()) for file in rest):
        raise _changed(table, sets[-1], f"wrote {surplus} rows that no block had")
    return dealt


def check_merge(table: IcebergTable, snapshot_id: int, merged: Sequence[MergedSet]) -> None:
    """Hold the new blocks' partitions and counts of values and NULLs against those of the blocks they replace.

    Counts are compared for each column where all files of a set have them, old and new, and no delete applies.

    Args:
        table: The table.
        snapshot_id: The snapshot that the merged blocks are of.
        merged: What was merged.

    Raises:
        MergeFailedError: They differ.
    """
    for result in merged:
        partition = result.tasks[0].file().partition()
        if partition.size() and not all(file.partition().equals(partition) for file in result.files):
            raise _changed(table, result.source, "wrote rows into another partition")
    whole = [result for result in merged if result.files and not result.source.has_deletes]
    if not whole:
        return
    columns = _countable_columns(table)
    read = [[str(task.file().location()) for task in result.tasks] for result in whole]
    old = column_counts(table, snapshot_id, [path for paths in read for path in paths])
    new = written_counts(table, [file for result in whole for file in result.files])
    for result, paths in zip(whole, read, strict=True):
        written = [str(file.location()) for file in result.files]
        for what, place in (("values", 0), ("NULLs", 1)):
            before = _totals([old[path][place] for path in paths])
            after = _totals([new[path][place] for path in written])
            for field_id in columns.keys() & before.keys() & after.keys():
                if before[field_id] != after[field_id]:
                    raise _changed(
                        table,
                        result.source,
                        f"read {before[field_id]} {what} in column {columns[field_id]} and wrote {after[field_id]}",
                    )


def _changed(table: IcebergTable, each: BlockSet, what: str) -> MergeFailedError:
    return MergeFailedError(
        f"Merging {len(each.files)} blocks of {table.name} {what}. This round changed nothing. It is a fault of "
        "dbt-recluster, or of the writer that counted the blocks' rows; please report it."
    )


def _totals(counts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Return the sum for each column that every file has a count of."""
    known = set.intersection(*(set(each) for each in counts))
    return {field_id: sum(each[field_id] for each in counts) for field_id in known}


def _countable_columns(table: IcebergTable) -> dict[int, str]:
    """Return columns and struct fields by field id. Writers disagree on what they count within lists and maps."""
    schema = json.loads(table.iceberg.SchemaParser.toJson(table.java.schema()))
    return dict(_leaves(schema, ""))


def _leaves(struct: Mapping[str, Any], prefix: str) -> Iterator[tuple[int, str]]:
    for field in struct["fields"]:
        name = f"{prefix}{field['name']}"
        if isinstance(field["type"], str):
            yield field["id"], name
        elif field["type"]["type"] == "struct":
            yield from _leaves(field["type"], f"{name}.")
