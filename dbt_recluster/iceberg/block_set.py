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
        row_groups: How many row groups it has: what a reader can skip.
    """

    task: Any
    rows: int
    bytes: int
    deletes: int
    row_groups: int


@dataclass(frozen=True)
class BlockSet:
    """Blocks of one partition to be merged into new ones.

    Attributes:
        files: The blocks.
        spec_id: Their partition spec, which the new blocks keep.
        level: The level of the new blocks.
        run: Sets of one round with equal numbers make one run (see :mod:`dbt_recluster.iceberg.commit`).
    """

    files: tuple[BlockFile, ...]
    spec_id: int
    level: int
    run: int

    @property
    def rows(self) -> int:
        """Rows to read, deleted ones included."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.bytes for file in self.files)

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
    file = task.file()
    offsets = file.splitOffsets()
    return BlockFile(
        task,
        rows=int(file.recordCount()),
        bytes=int(file.fileSizeInBytes()),
        deletes=int(task.deletes().size()),
        row_groups=max(1, offsets.size()) if offsets is not None else 1,
    )
