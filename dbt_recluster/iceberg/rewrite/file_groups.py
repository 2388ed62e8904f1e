"""File groups: the files of a block set, a DataFrame of given files, and the files that replace them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import ConcurrentChangeError, ReclusterError
from dbt_recluster.iceberg.rewrite.key_sql import Cuts, count_blocks
from dbt_recluster.iceberg.session.environment import SparkModule, cached_table
from dbt_recluster.iceberg.session.jvm import java_items, java_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# Larger than any file: each row group is then packed alone, and the files of Spark's partitions are known.
_SPLIT_SIZE = 1 << 40
# Makes a write create files and no snapshot. On Spark 4.1 the table's name does so, and this only marks the query.
REWRITE_OPTION = "rewritten-file-scan-task-set-id"


@dataclass(frozen=True, eq=False)
class BlockFile:
    """A block to be merged."""

    task: Any  # its Java scan task, which has its delete files
    rows: int  # including deleted ones
    bytes: int
    deletes: tuple[Any, ...]  # Java delete files that apply to it
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


def file_group(
    tasks: Mapping[str, Any], paths: Sequence[str], spec_id: int, level: int, run: int
) -> FileGroup:
    """Return the group of the files at ``paths``; one without a scan task is a ConcurrentChangeError."""
    files = list[BlockFile]()
    for path in paths:
        if path not in tasks:
            raise ConcurrentChangeError(f"{path} is no longer part of the table")
        file, deletes = tasks[path].file(), tasks[path].deletes()
        offsets = file.splitOffsets()
        row_groups = 1 if offsets is None else max(1, int(offsets.size()))
        rows, size = int(file.recordCount()), int(file.fileSizeInBytes())
        listed = () if deletes.isEmpty() else tuple(java_items(deletes))
        files.append(BlockFile(tasks[path], rows, size, listed, row_groups))
    live_rows = None
    # Deletion vectors count the rows of their block; other deletes may span several blocks.
    all_deletes = [delete for file in files for delete in file.deletes]
    if all(delete.contentOffset() is not None for delete in all_deletes):
        live_rows = sum(file.rows for file in files) - sum(int(d.recordCount()) for d in all_deletes)
    return FileGroup(tuple(files), spec_id, level, run, live_rows)


@dataclass(frozen=True)
class StagedFiles:
    """Staged files of file groups."""

    set_id: str  # of the rewrite
    frame: DataFrame  # of which each Spark partition reads rows of one file, in order
    group_of: list[int]  # position of the file group that each partition reads
    file_of: list[int]  # position of its file among those of all groups
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
def staged(table: IcebergTable, groups: Sequence[FileGroup]) -> Iterator[StagedFiles]:
    """Stage the files of groups for reading; remove them from Iceberg's caches afterwards."""
    set_id = str(uuid.uuid4())
    read_id = f"{set_id}-read"
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    read = [(number, file) for number, group in enumerate(groups) for file in group.files]
    pieces = [(place, number) for place, (number, file) in enumerate(read) for _ in range(file.row_groups)]
    tasks = java_list(table.spark, (file.task for _, file in read))
    # The function that the scan itself will call.
    packed = table.iceberg.util.TableScanUtil.planTaskGroups(tasks, _SPLIT_SIZE, 1, _SPLIT_SIZE)
    if packed.size() != len(pieces):
        raise ReclusterError(
            f"Iceberg packed {len(pieces)} row groups of {table.name} into {packed.size()} partitions. "
            "Nothing was written. This version of Iceberg packs differently; please report it."
        )
    packing = {"split-size": str(_SPLIT_SIZE), "file-open-cost": str(_SPLIT_SIZE), "lookback": "1"}
    manager.stageTasks(table.java, read_id, tasks)
    try:
        with SparkModule.of(table.spark).staged_rows(table.identifier, read_id, packing) as (frame, schema):
            group_of, file_of = [number for _, number in pieces], [place for place, _ in pieces]
            yield StagedFiles(set_id, frame, group_of, file_of, schema)
    finally:
        manager.removeTasks(table.java, read_id)
        coordinator.clearRewrite(table.java, set_id)
