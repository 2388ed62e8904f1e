"""Read given files as a DataFrame whose partitions are given too.

Iceberg packs the files of a staged set into Spark partitions by weight. A job that writes the blocks of several file
groups has to know which partition reads which files, so the weights are arranged: every scan partition weighs exactly
as much as Iceberg puts into one Spark partition, and the packing considers one partition at a time.

A file's weight grows with the pieces it can be split into, because each piece counts as at least one file to open, and
pieces that end up in the same partition are joined again. So the split offsets in a copy of the file's description set
its weight.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.rewrite.file_groups import BlockFile, ScanPartition
from dbt_recluster.iceberg.session.jvm import java_array, java_class, java_items, java_list, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# The weight of opening a file: more than any file's bytes, so that bytes never decide.
_OPEN_WEIGHT = 1 << 40
# Partitions times files of the largest partition: the number of pieces that Iceberg has to pack.
MAX_PIECES = 2_000_000


@dataclass(frozen=True)
class StagedFiles:
    """Staged files.

    This class and :func:`staged` are all that knows the options by which Iceberg's module for Spark 3.5 and 4.0 reads
    and rewrites given files. Its module for 4.1 does both by names of tables (apache/iceberg#15301).

    Attributes:
        set_id: The id under which they are staged, and under which a rewrite of them has to be written.
        frame: Their rows; Spark partition i reads scan partition i.
    """

    set_id: str
    frame: DataFrame

    def rewrite(self, table: IcebergTable, rows: DataFrame, options: Mapping[str, str]) -> list[Any]:
        """Write rows as new files of ``table``, which need not be committed, without a snapshot.

        Returns:
            The Java data files.
        """
        cache = _table_cache(table)
        # Iceberg takes the table of this name from here, as for rewrites of its own, and not from the catalog.
        cache.add(self.set_id, table.java)
        try:
            writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", self.set_id)
            writer.options(**options).mode("append").save(self.set_id)
        finally:
            cache.remove(self.set_id)
        return self.written(table)

    def written(self, table: IcebergTable) -> list[Any]:
        """Return the Java data files of a rewrite that has ended, in the order of the partitions that wrote them."""
        coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
        if not coordinator.fetchSetIds(table.java).contains(self.set_id):
            return []
        return java_items(coordinator.fetchNewFiles(table.java, self.set_id))


@contextmanager
def staged(table: IcebergTable, partitions: Sequence[ScanPartition]) -> Iterator[StagedFiles]:
    """Stage files for reading, and remove every trace of them from the JVM afterwards."""
    set_id = str(uuid.uuid4())
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    tasks, weight = _weighted_tasks(table, partitions)
    manager.stageTasks(table.java, set_id, tasks)
    try:
        # load(), not table(): on v3 tables the latter drops the row ids silently.
        frame = (
            table.spark.read.format("iceberg")
            .option("scan-task-set-id", set_id)
            .option("split-size", str(weight * _OPEN_WEIGHT))
            .option("file-open-cost", str(_OPEN_WEIGHT))
            .option("lookback", "1")
            .load(table.identifier)
        )
        yield StagedFiles(set_id, frame)
    finally:
        manager.removeTasks(table.java, set_id)
        coordinator.clearRewrite(table.java, set_id)


def _table_cache(table: IcebergTable) -> Any:
    # py4j takes the static `get` for the other one, which has an argument.
    return (
        java_class(table.spark, "org.apache.iceberg.spark.SparkTableCache")
        .getMethod("get", None)
        .invoke(None, None)
    )


def _weighted_tasks(table: IcebergTable, partitions: Sequence[ScanPartition]) -> tuple[Any, int]:
    """Return the tasks of all partitions in one Java list, and the weight of a partition in opened files."""
    weights = {1 + file.deletes for partition in partitions for file in partition.files}
    unit = math.lcm(*weights) if math.lcm(*weights) <= 64 else 1
    heaviest = max(sum(1 + file.deletes for file in partition.files) for partition in partitions)
    weight = -(-heaviest // unit) * unit
    factory = _TaskFactory(table, weight)
    tasks = java_list(table.spark, (task for partition in partitions for task in factory.tasks(partition)))
    # The function that the scan itself will call.
    packed = table.iceberg.util.TableScanUtil.planTaskGroups(tasks, weight * _OPEN_WEIGHT, 1, _OPEN_WEIGHT)
    if packed.size() != len(partitions):
        raise ReclusterError(
            f"Iceberg packed {len(partitions)} groups of files of {table.name} into {packed.size()} partitions. "
            "Nothing was written. This version of Iceberg packs differently; please report it."
        )
    return tasks, weight


class _TaskFactory:
    """Makes scan tasks of a given total weight for each partition.

    Args:
        table: The table.
        weight: The weight of a partition.
    """

    def __init__(self, table: IcebergTable, weight: int) -> None:
        self._table = table
        self._weight = weight
        self._schema = table.iceberg.SchemaParser.toJson(table.java.schema())
        self._specs: dict[int, tuple[Any, str]] = {}
        self._no_deletes = java_array(table.spark, table.iceberg.DeleteFile, [])
        longs = jvm(table.spark).java.util.stream.LongStream.range(0, weight).toArray()
        self._offsets = table.iceberg.relocated.com.google.common.primitives.Longs.asList(longs)
        self._copies: dict[int, Any] = {}
        self._deletes: dict[int, Any] = {}

    def tasks(self, partition: ScanPartition) -> list[Any]:
        """Return the tasks of a partition."""
        expressions = self._table.iceberg.expressions
        spec = self._spec(partition.spec_id)
        wanted = expressions.Expressions.alwaysTrue() if partition.filter is None else partition.filter
        residuals = expressions.ResidualEvaluator.of(spec[0], wanted, True)
        pieces = [1] * len(partition.files)
        missing = self._weight - sum(1 + file.deletes for file in partition.files)
        for position, file in enumerate(partition.files):
            more = min(missing // (1 + file.deletes), file.bytes - 1)
            if more > 0 and (file.deletes == 0 or missing % (1 + file.deletes) == 0):
                pieces[position] += more
                missing -= more * (1 + file.deletes)
        tasks = [
            self._task(file, spec, residuals, count)
            for file, count in zip(partition.files, pieces, strict=True)
        ]
        return tasks + self._fillers(partition.files[0], spec, missing)

    def _fillers(self, file: BlockFile, spec: tuple[Any, str], missing: int) -> list[Any]:
        """Return tasks that read nothing and weigh ``missing``."""
        expressions = self._table.iceberg.expressions
        residuals = expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysFalse())
        without_deletes = replace(file, deletes=0)
        tasks = []
        while missing:
            count = min(missing, file.bytes)
            tasks.append(self._task(without_deletes, spec, residuals, count))
            missing -= count
        return tasks

    def _task(self, file: BlockFile, spec: tuple[Any, str], residuals: Any, pieces: int) -> Any:
        copy = self._copies.get(id(file.task)) if pieces == 1 else None
        if copy is None:
            copy = self._copy(file.task.file(), spec[0], pieces)
            if pieces == 1:
                self._copies[id(file.task)] = copy
        deletes = self._delete_array(file) if file.deletes else self._no_deletes
        return self._table.iceberg.BaseFileScanTask(copy, deletes, self._schema, spec[1], residuals)

    def _copy(self, original: Any, spec: Any, pieces: int) -> Any:
        """Describe a file again, as one that can be split into ``pieces``."""
        builder = self._table.iceberg.DataFiles.builder(spec).copy(original)
        copy = builder.withSplitOffsets(self._offsets.subList(0, pieces)).build()
        # The builder drops them, and rows of v3 tables inherit theirs from the file.
        copy.setDataSequenceNumber(original.dataSequenceNumber())
        copy.setFileSequenceNumber(original.fileSequenceNumber())
        return copy

    def _delete_array(self, file: BlockFile) -> Any:
        array = self._deletes.get(id(file.task))
        if array is None:
            delete_file = self._table.iceberg.DeleteFile
            array = java_array(self._table.spark, delete_file, java_items(file.task.deletes()))
            self._deletes[id(file.task)] = array
        return array

    def _spec(self, spec_id: int) -> tuple[Any, str]:
        """Return a partition spec and its JSON."""
        if spec_id not in self._specs:
            spec = self._table.java.specs().get(spec_id)
            self._specs[spec_id] = spec, self._table.iceberg.PartitionSpecParser.toJson(spec)
        return self._specs[spec_id]
