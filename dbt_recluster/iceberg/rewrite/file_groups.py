"""File groups: the files of a block set, the Spark partitions that read them, and the files that replace them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dbt_recluster.exceptions import ConcurrentChangeError
from dbt_recluster.iceberg.session.jvm import java_items

_FILES_PER_PARTITION = 64


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

    @property
    def has_deletes(self) -> bool:
        """Whether any delete file applies."""
        return any(file.deletes for file in self.files)

    @cached_property
    def partition(self) -> Any:
        """Their partition of the table, a Java ``StructLike``."""
        return self.files[0].task.file().partition()


@dataclass(frozen=True)
class RewrittenGroup:
    """A file group and the uncommitted Java data files that replace it."""

    source: FileGroup
    files: tuple[Any, ...]

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


@dataclass(frozen=True)
class ScanPartition:
    """Files that one Spark partition reads."""

    files: tuple[BlockFile, ...]
    spec_id: int
    filter: Any | None = None  # Iceberg's expression by which readers skip row groups; others are read whole
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
        files: list[BlockFile] = []
        for file in group.files:
            full = sum(packed.bytes for packed in files) + file.bytes > limit
            if files and (full or len(files) == _FILES_PER_PARTITION):
                partitions.append(ScanPartition(tuple(files), group.spec_id, group=number))
                files = []
            files.append(file)
        partitions.append(ScanPartition(tuple(files), group.spec_id, group=number))
    return partitions
