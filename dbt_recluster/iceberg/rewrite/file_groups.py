"""File groups: the files of a block set, a DataFrame of given files, and the files that replace them.

Iceberg packs the tasks of a staged set into Spark partitions by weight, while a write has to know which partition reads
which files. So every scan partition is given the weight that fills one Spark partition, and the packing looks at one
partition at a time.

Each piece that a file can be split into weighs one opened file, and pieces in the same partition are joined again. So
the split offsets of a copied data file set its weight.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import ConcurrentChangeError, ReclusterError
from dbt_recluster.iceberg.rewrite.key_sql import Cuts, count_blocks
from dbt_recluster.iceberg.session.environment import SparkModule, cached_table
from dbt_recluster.iceberg.session.jvm import java_array, java_items, java_list, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_FILES_PER_PARTITION = 64
# Larger than any file, so tasks are packed by their pieces only.
_OPEN_WEIGHT = 1 << 40
# Makes a write create files and no snapshot. On Spark 4.1 the table's name does so, and this only marks the query.
REWRITE_OPTION = "rewritten-file-scan-task-set-id"


@dataclass(frozen=True, eq=False)
class BlockFile:
    """A block to be merged."""

    task: Any  # its Java scan task, which has its delete files
    rows: int  # including deleted ones
    bytes: int
    deletes: int  # delete files that apply to it
    row_groups: int

    @cached_property
    def path(self) -> str:
        """The file's location."""
        return str(self.task.file().location())


@dataclass(frozen=True)
class FileGroup:
    """The files of one block set, all of one partition.

    Groups of one round with equal runs are committed as one (see :mod:`dbt_recluster.iceberg.commit`).
    """

    files: tuple[BlockFile, ...]
    spec_id: int  # which the new files keep
    level: int  # of the new blocks
    run: int
    live_rows: int | None  # that the delete files leave, or None if only reading them would tell

    @property
    def rows(self) -> int:
        """Rows to read, including deleted ones."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.bytes for file in self.files)

    @cached_property
    def partition(self) -> Any:
        """Their partition of the table, a Java ``StructLike``."""
        return self.files[0].task.file().partition()


@dataclass(frozen=True)
class GroupPlan:
    """A file group, and where to cut it."""

    number: int  # position among the groups of the round
    group: FileGroup
    cuts: Cuts
    is_sorted: Sequence[bool]  # for each file
    is_utf_8: bool  # the text of the key

    @property
    def blocks(self) -> int:
        """The number of blocks; some may turn out to have no row."""
        return count_blocks(self.cuts)


@dataclass(frozen=True)
class RewrittenGroup:
    """A file group and the uncommitted Java data files that replace it."""

    source: FileGroup
    files: tuple[Any, ...]
    not_native: str | None = None  # why Spark's writer wrote it

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The locations of the new files."""
        return tuple(str(file.location()) for file in self.files)

    @cached_property
    def rows(self) -> int:
        """Rows in the new files."""
        return sum(int(file.recordCount()) for file in self.files)

    @cached_property
    def bytes(self) -> int:
        """Bytes of the new files."""
        return sum(int(file.fileSizeInBytes()) for file in self.files)


def writers_text(refusals: Iterable[str | None]) -> str:
    """Return what wrote groups, given why each was not written natively: ``native``, or ``spark: deletes``."""
    reasons = sorted({reason.partition(":")[0] for reason in refusals if reason})
    return f"spark: {', '.join(reasons)}" if reasons else "native"


@dataclass(frozen=True)
class ScanPartition:
    """Files that one Spark partition reads."""

    files: tuple[BlockFile, ...]
    spec_id: int
    group: int = 0  # position of their file group among those that are packed together


def file_group(
    tasks: Mapping[str, Any], paths: Sequence[str], spec_id: int, level: int, run: int
) -> FileGroup:
    """Return the group of the files at ``paths``; one without a scan task is a ConcurrentChangeError."""
    files, deletes = list[BlockFile](), list[Any]()
    for path in paths:
        if path not in tasks:
            raise ConcurrentChangeError(f"{path} is no longer part of the table")
        file, count = tasks[path].file(), int(tasks[path].deletes().size())
        deletes += java_items(tasks[path].deletes()) if count else []
        offsets = file.splitOffsets()
        row_groups = 1 if offsets is None else max(1, int(offsets.size()))
        rows, size = int(file.recordCount()), int(file.fileSizeInBytes())
        files.append(BlockFile(tasks[path], rows, size, count, row_groups))
    live_rows = None
    # Deletion vectors count the rows of their block; other deletes may span several blocks.
    if all(delete.contentOffset() is not None for delete in deletes):
        live_rows = sum(file.rows for file in files) - sum(int(delete.recordCount()) for delete in deletes)
    return FileGroup(tuple(files), spec_id, level, run, live_rows)


def scan_partitions(groups: Sequence[FileGroup], parallelism: int) -> list[ScanPartition]:
    """Pack the files of each group, in order, into partitions that keep all cores busy."""
    limit = sum(group.bytes for group in groups) // (4 * parallelism)
    partitions: list[ScanPartition] = []
    for number, group in enumerate(groups):
        packed: list[list[BlockFile]] = [[]]
        for file in group.files:
            full = sum(other.bytes for other in packed[-1]) + file.bytes > limit
            if packed[-1] and (full or len(packed[-1]) == _FILES_PER_PARTITION):
                packed.append([])
            packed[-1].append(file)
        partitions += [ScanPartition(tuple(files), group.spec_id, group=number) for files in packed]
    return partitions


@dataclass(frozen=True)
class StagedFiles:
    """Staged files."""

    set_id: str  # of the rewrite
    frame: DataFrame  # of which Spark partition i reads scan partition i
    schema: Any  # of the rows, in Java

    def rewrite(self, table: IcebergTable, rows: DataFrame, options: Mapping[str, str]) -> list[Any]:
        """Write rows without a snapshot; ``table`` may have uncommitted changes.

        Return the new Java data files, in the order of the partitions that wrote them. If the columns changed between
        the plan and the read, that is a ConcurrentChangeError.
        """
        # Spark matches columns by name. After two columns swap names, each would get the values of the other.
        if not self.schema.asStruct().equals(table.java.schema().asStruct()):
            raise ConcurrentChangeError(f"The columns of {table.name} changed before its blocks were read.")
        with cached_table(table.spark, self.set_id, table.java):
            writer = rows.write.format("iceberg").option(REWRITE_OPTION, self.set_id)
            writer.options(**options).mode("append").save(self.set_id)
        coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
        if not coordinator.fetchSetIds(table.java).contains(self.set_id):
            return []
        return java_items(coordinator.fetchNewFiles(table.java, self.set_id))


@contextmanager
def staged(table: IcebergTable, partitions: Sequence[ScanPartition]) -> Iterator[StagedFiles]:
    """Stage files for reading; remove them from Iceberg's caches afterwards."""
    set_id = str(uuid.uuid4())
    read_id = f"{set_id}-read"
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    tasks, weight = _weighted_tasks(table, partitions)
    packing = {
        "split-size": str(weight * _OPEN_WEIGHT),
        "file-open-cost": str(_OPEN_WEIGHT),
        "lookback": "1",
    }
    manager.stageTasks(table.java, read_id, tasks)
    try:
        with SparkModule.of(table.spark).staged_rows(table.identifier, read_id, packing) as (frame, schema):
            yield StagedFiles(set_id, frame, schema)
    finally:
        manager.removeTasks(table.java, read_id)
        coordinator.clearRewrite(table.java, set_id)


def _weighted_tasks(table: IcebergTable, partitions: Sequence[ScanPartition]) -> tuple[Any, int]:
    """Return the tasks of all partitions in one Java list, and the weight of a partition in opened files."""
    weight = max(map(_weight, partitions))
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


def _weight(partition: ScanPartition) -> int:
    return sum(1 + file.deletes for file in partition.files)


class _TaskFactory:
    """Makes scan tasks of a given total weight for each partition."""

    def __init__(self, table: IcebergTable, weight: int) -> None:
        self._iceberg = iceberg = table.iceberg
        self._weight = weight
        self._schema = table.schema_json
        longs = jvm(table.spark).java.util.stream.LongStream.range(0, weight).toArray()
        self._offsets = iceberg.relocated.com.google.common.primitives.Longs.asList(longs)
        self._spec = cache(table.java.specs().get)
        self._spec_json = cache(lambda spec_id: iceberg.PartitionSpecParser.toJson(self._spec(spec_id)))
        self._file = cache(self._file_of_pieces)
        expressions = iceberg.expressions
        self._everything = expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysTrue())
        self._nothing = expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysFalse())
        self._no_deletes = java_array(table.spark, iceberg.DeleteFile, [])
        self._deletes = cache(
            lambda file: java_array(table.spark, iceberg.DeleteFile, java_items(file.task.deletes()))
        )

    def tasks(self, partition: ScanPartition) -> list[Any]:
        """Return the tasks of a partition."""
        missing, tasks = self._weight - _weight(partition), []
        for file in partition.files:
            # With delete files, each piece weighs more than 1.
            more = min(missing, file.bytes - 1) if not file.deletes else 0
            deletes = self._deletes(file) if file.deletes else self._no_deletes
            tasks.append(self._task(file, partition.spec_id, 1 + more, deletes, self._everything))
            missing -= more
        while missing:  # the rest of the weight: tasks that open a file and read nothing
            file = partition.files[0]
            pieces = min(missing, file.bytes)
            tasks.append(self._task(file, partition.spec_id, pieces, self._no_deletes, self._nothing))
            missing -= pieces
        return tasks

    def _task(self, file: BlockFile, spec_id: int, pieces: int, deletes: Any, residuals: Any) -> Any:
        copy = self._file(file, spec_id, pieces)
        return self._iceberg.BaseFileScanTask(
            copy, deletes, self._schema, self._spec_json(spec_id), residuals
        )

    def _file_of_pieces(self, file: BlockFile, spec_id: int, pieces: int) -> Any:
        """Return the data file, or a copy of it that can be split into ``pieces``."""
        original = file.task.file()
        if pieces == file.row_groups:
            return original
        builder = self._iceberg.DataFiles.builder(self._spec(spec_id)).copy(original)
        copy = builder.withSplitOffsets(self._offsets.subList(0, pieces)).build()
        # The builder drops them, and rows of v3 tables inherit theirs from the file.
        copy.setDataSequenceNumber(original.dataSequenceNumber())
        copy.setFileSequenceNumber(original.fileSequenceNumber())
        return copy
