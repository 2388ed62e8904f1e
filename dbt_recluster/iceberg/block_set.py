"""The blocks that one merge reads and those that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt_recluster.exceptions import ConcurrentChangeError


@dataclass(frozen=True)
class BlockFile:
    """A block to be merged.

    Attributes:
        task: Its Java scan task, which knows its delete files.
        rows: Rows in the file, deleted ones included.
        bytes: Size of the file.
        deletes: How many delete files apply to it.
        deleted_rows: How many rows they delete, None where that takes reading them.
        row_groups: How many row groups it has: what a reader can skip.
    """

    task: Any
    rows: int
    bytes: int
    deletes: int
    deleted_rows: int | None
    row_groups: int


@dataclass(frozen=True)
class BlockSet:
    """Blocks of one partition to be merged into new ones.

    Attributes:
        files: The blocks.
        spec_id: Their partition spec, which the new blocks keep.
        level: The level of the new blocks.
        run: Sets of one round with equal numbers make one run (see :mod:`dbt_recluster.iceberg.commit`).
        counted_rows: Rows that its delete files leave, where they were counted by reading them.
    """

    files: tuple[BlockFile, ...]
    spec_id: int
    level: int
    run: int
    counted_rows: int | None = None

    @property
    def rows(self) -> int:
        """Rows to read, deleted ones included."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.bytes for file in self.files)

    @property
    def live_rows(self) -> int | None:
        """Rows that its delete files leave, None where nobody has counted them."""
        deleted = [file.deleted_rows for file in self.files]
        if None in deleted:
            return self.counted_rows
        return self.rows - sum(count or 0 for count in deleted)

    @property
    def has_deletes(self) -> bool:
        """Whether any row may have been deleted."""
        return any(file.deletes for file in self.files)


@dataclass(frozen=True)
class MergedSet:
    """What one merge wrote.

    Attributes:
        source: The blocks it read, and the level and run of those it wrote.
        files: The Java data files it wrote, not yet part of the table.
        rows: Rows in ``files``.
        bytes: Bytes in ``files``.
    """

    source: BlockSet
    files: list[Any]
    rows: int
    bytes: int

    @property
    def tasks(self) -> list[Any]:
        """The Java scan tasks of the blocks it read."""
        return [file.task for file in self.source.files]


def block_set(tasks: Mapping[str, Any], paths: Sequence[str], spec_id: int, level: int, run: int) -> BlockSet:
    """Return the set of the blocks at ``paths``.

    Args:
        tasks: The scan tasks by path (see :func:`dbt_recluster.iceberg.scan.scan_tasks`).
        paths: The blocks.
        spec_id: Their partition spec.
        level: The level of the new blocks.
        run: The run of the new blocks.

    Raises:
        ConcurrentChangeError: One of them is not there any more.
    """
    missing = [path for path in paths if path not in tasks]
    if missing:
        raise ConcurrentChangeError(f"{missing[0]} is not part of the table any more")
    return BlockSet(tuple(_block_file(tasks[path]) for path in paths), spec_id, level, run)


def _block_file(task: Any) -> BlockFile:
    file, deletes = task.file(), task.deletes()
    count = int(deletes.size())
    offsets = file.splitOffsets()
    return BlockFile(
        task,
        rows=int(file.recordCount()),
        bytes=int(file.fileSizeInBytes()),
        deletes=count,
        deleted_rows=_deleted_rows(deletes) if count else 0,
        row_groups=max(1, offsets.size()) if offsets is not None else 1,
    )


def _deleted_rows(deletes: Any) -> int | None:
    """A deletion vector knows how many rows it deletes; what other delete files hold may be of other blocks."""
    if any(delete.contentOffset() is None for delete in deletes):
        return None
    return sum(int(delete.recordCount()) for delete in deletes)
