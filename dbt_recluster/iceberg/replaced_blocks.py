"""The commits that led to a table, at a glance, and the blocks of recluster rounds that one of them removed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dbt_recluster.iceberg.iceberg_table import Snapshot, whole_number
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.session.java_functions import (
    CONTENT_FILE,
    STRING,
    JavaFunctions,
    split_fields,
    split_lines,
)

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_SNAPSHOT = "org.apache.iceberg.Snapshot"


@dataclass(frozen=True)
class Commit:
    """A snapshot in brief.

    Attributes:
        snapshot_id: Its id.
        sequence: Its sequence number; 0 in tables of format version 1.
        operation: ``append``, ``overwrite``, ``delete`` or ``replace``.
        summary: Its summary as Java writes a map, to search in.
    """

    snapshot_id: int
    sequence: int
    operation: str
    summary: str


def commits(table: IcebergTable) -> list[Commit]:
    """Return the current snapshot and its ancestors, the youngest first, by one call into the JVM for all."""
    functions = JavaFunctions(table.spark)
    handles = [
        functions.method(_SNAPSHOT, "snapshotId", "long"),
        functions.method(_SNAPSHOT, "sequenceNumber", "long"),
        functions.method(_SNAPSHOT, "operation", STRING),
        functions.method(_SNAPSHOT, "summary", "java.util.Map"),
    ]
    lists = table.iceberg.relocated.com.google.common.collect.Lists
    ancestors = lists.newArrayList(table.iceberg.util.SnapshotUtil.currentAncestors(table.java))
    texts = ancestors.stream().map(functions.function(functions.fields(_SNAPSHOT, handles)))
    fields = map(split_fields, split_lines(functions.lines(texts)))
    return [Commit(int(snapshot), int(sequence), *texts) for snapshot, sequence, *texts in fields]


def reclustered_rows_removed(
    table: IcebergTable, snapshot: Snapshot, rounds: Collection[int]
) -> tuple[int, int]:
    """Return how many of the blocks that a commit removed recluster rounds had written, and the rows in them.

    The commit's own manifests list what it removed, so nothing else is read, and its parent may have expired.

    Args:
        table: The table.
        snapshot: The commit.
        rounds: Sequence numbers of rounds; the table records those of others.
    """
    functions = JavaFunctions(table.spark)
    handles = [
        functions.method(CONTENT_FILE, "fileSequenceNumber", "java.lang.Long"),
        functions.method(CONTENT_FILE, "sortOrderId", "java.lang.Integer"),
        functions.method(CONTENT_FILE, "recordCount", "long"),
    ]
    lists = table.iceberg.relocated.com.google.common.collect.Lists
    removed = lists.newArrayList(table.java.snapshot(snapshot.id).removedDataFiles(table.java.io()))
    texts = removed.stream().map(functions.function(functions.fields(CONTENT_FILE, handles)))
    fields = map(split_fields, split_lines(functions.lines(texts)))
    numbers = [[whole_number(text) or 0 for text in line] for line in fields]
    sequence, order, rows = np.array(numbers, np.int64).reshape(-1, 3).T
    is_sorted = (order == int(table.java.sortOrder().orderId())) & (order > 0)
    known = RecordedLevels.of(table.properties).look_up(sequence) >= 0
    # In tables of format version 1 the sort order is all there is.
    ours = np.isin(sequence, [number for number in rounds if number]) | (
        is_sorted & (known | (sequence == 0))
    )
    return int(ours.sum()), int(rows[ours].sum())
