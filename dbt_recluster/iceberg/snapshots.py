"""Snapshots and branches of an Iceberg table, as Python values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.jvm import OBJECT, STRING, JavaFunctions, java_items, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GREATEST_LONG = 2**63 - 1
MAIN = "main"
_SNAPSHOT = "org.apache.iceberg.Snapshot"


def whole_number(text: str) -> int | None:
    """Parse the value of a property or a summary; None if it is not a whole number that Java's long holds."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(GREATEST_LONG))
    return int(text) if is_number and int(text) <= GREATEST_LONG else None


@dataclass(frozen=True)
class Snapshot:
    """One commit.

    Attributes:
        parent: The id of the snapshot before it, which may have expired, or None.
        sequence_number: Ascends with commits; 0 in tables of format version 1.
        at: The time of the commit, UTC.
        operation: ``append``, ``overwrite``, ``delete`` or ``replace``.
        summary: Iceberg's figures, and ours under ``recluster.``.
    """

    id: int
    parent: int | None
    sequence_number: int
    at: datetime
    operation: str
    summary: Mapping[str, str]

    def count(self, name: str) -> int | None:
        """Return a count of the summary, or None if it is missing."""
        return whole_number(self.summary.get(name, ""))


def read_snapshots(spark: SparkSession, snapshots: Any) -> list[Snapshot]:
    """Read all snapshots of a Java list in one call."""
    text = jvm(spark).remember(("snapshot as text",), partial(_snapshot_as_text, spark))
    records = JavaFunctions(spark).records(snapshots.stream().map(text).iterator())
    return [
        Snapshot(
            id=int(snapshot),
            parent=None if parent == "null" else int(parent),
            sequence_number=int(sequence),
            at=datetime.fromtimestamp(int(millis) / 1000, tz=timezone.utc),
            operation=operation,
            summary=json.loads(summary) or {},
        )
        for snapshot, parent, sequence, millis, operation, summary in records
    ]


def _snapshot_as_text(spark: SparkSession) -> Any:
    """Return a Java function that writes a snapshot as text.

    Iceberg's ``SnapshotParser`` would read the manifests of snapshots of early writers, which have no manifest list.
    """
    functions, mapper = JavaFunctions(spark), jvm(spark).org.apache.iceberg.util.JsonUtil.mapper()
    kind = str(mapper.getClass().getName())
    write = functions.method(kind, "writeValueAsString", STRING, OBJECT).bindTo(mapper)
    summary = functions.method(_SNAPSHOT, "summary", "java.util.Map")
    values = [
        ("snapshotId", "long"),
        ("parentId", "java.lang.Long"),
        ("sequenceNumber", "long"),
        ("timestampMillis", "long"),
        ("operation", STRING),
        functions.then(summary, functions.as_type(write, STRING, "java.util.Map")),
    ]
    return functions.function(functions.fields(_SNAPSHOT, values))


def branch_heads(table: Any) -> dict[str, int]:
    """Return the current snapshot of each branch of a Java table."""
    refs = {str(ref.getKey()): ref.getValue() for ref in java_items(table.refs().entrySet())}
    return {name: int(ref.snapshotId()) for name, ref in refs.items() if ref.isBranch()}
