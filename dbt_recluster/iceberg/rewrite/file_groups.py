"""File groups: the files of a block set, staged for reading, and the uncommitted files that replace them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from dbt_recluster.exceptions import (
    ConcurrentChangeError,
    MergeFailedError,
    OrphanFilesError,
    UnsupportedTableError,
    orphan_note,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.internals import cached_table, reads_sets_by_name
from dbt_recluster.iceberg.session.jvm import DataFrame, java_items, java_list, java_session
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.key.box_tree import SHARE, BoxTree

logger = logging.getLogger(__name__)

_PARTITIONS_PER_CORE = 4
# Files without split offsets would be cut into as many pieces as a large cluster has cores.
_LEAST_SPLIT = 1 << 20
_FILES_PER_PARTITION = 64


@dataclass(frozen=True, eq=False)
class BlockFile:
    """A block to be merged."""

    task: Any  # its Java scan task, which has its delete files
    rows: int  # including deleted ones
    bytes: int
    deletes: tuple[Any, ...]  # Java delete files that apply to it

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
class BlockStart:
    """The key where a block begins, except the first, and the share of its rows that belongs to earlier blocks."""

    key: Sequence[pa.Scalar]
    share: float = 0.0


# How a file group is cut into blocks: all starts in ascending order, or along a curve the boxes.
Cuts = Sequence[BlockStart] | BoxTree


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
        return len(self.cuts) if isinstance(self.cuts, BoxTree) else len(self.cuts) + 1

    @property
    def has_shares(self) -> bool:
        """Whether the rows of one value fill several blocks."""
        if isinstance(self.cuts, BoxTree):
            return bool((self.cuts.column == SHARE).any())
        return any(cut.share for cut in self.cuts)


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


# What a writer returns: of each group, by its number, the new files or the reason why it did not write them.
Written = dict[int, RewrittenGroup | str]


def writers_text(refusals: Iterable[str | None]) -> str:
    """Return the writer of groups, given the reasons against the native one: ``native``, or ``spark: deletes``."""
    reasons = sorted({reason.partition(":")[0] for reason in refusals if reason})
    return f"spark: {', '.join(reasons)}" if reasons else "native"


def file_group(tasks: Mapping[str, Any], paths: Sequence[str], spec_id: int, level: int, run: int) -> FileGroup:
    """Return the group of the files at ``paths``; one without a scan task is a ConcurrentChangeError."""
    files = list[BlockFile]()
    for path in paths:
        if path not in tasks:
            raise ConcurrentChangeError(f"{path} is no longer part of the table")
        file, deletes = tasks[path].file(), tasks[path].deletes()
        rows, size = int(file.recordCount()), int(file.fileSizeInBytes())
        listed = () if deletes.isEmpty() else tuple(java_items(deletes))
        files.append(BlockFile(tasks[path], rows, size, listed))
    live_rows = None
    # Deletion vectors count the rows of their block; other deletes may span several blocks.
    all_deletes = [delete for file in files for delete in file.deletes]
    if all(delete.contentOffset() is not None for delete in all_deletes):
        live_rows = sum(file.rows for file in files) - sum(int(d.recordCount()) for d in all_deletes)
    return FileGroup(tuple(files), spec_id, level, run, live_rows)


@contextmanager
def staged(
    table: IcebergTable, files: Sequence[BlockFile], *, is_exact: bool = False
) -> Iterator[tuple[DataFrame, Any]]:
    """Stage files for reading, less their deleted rows; yield the rows and their Java schema.

    ``is_exact`` avoids the vectorized reader for times: up to Iceberg 1.12 it takes milliseconds for microseconds.
    """
    read_id, spark = f"{uuid.uuid4()}-read", table.spark
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    partitions = _PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism
    size = max(_LEAST_SPLIT, sum(file.bytes for file in files) // partitions)
    packing = {"split-size": str(size), "file-open-cost": str(size // _FILES_PER_PARTITION), "lookback": "1"}
    reader = spark.read.format("iceberg").options(**packing)
    if is_exact and any(kind.startswith("timestamp") for _, kind, _ in table.primitive_fields()):
        reader = reader.option("vectorization-enabled", "false")
    manager.stageTasks(table.java, read_id, java_list(spark, (file.task for file in files)))
    try:
        if reads_sets_by_name(spark):
            current = table.iceberg.spark.Spark3Util.loadIcebergTable(java_session(spark), table.identifier)
            with cached_table(spark, read_id, current):
                yield reader.load(read_id), current.schema()
        else:
            # load(), not table(): on v3 tables the latter drops the row ids silently.
            frame = reader.option("scan-task-set-id", read_id).load(table.identifier)
            relation = frame._jdf.queryExecution().analyzed().collectLeaves().head()
            yield frame, relation.table().table().schema()
    finally:
        manager.removeTasks(table.java, read_id)


def check_location(table: IcebergTable) -> None:
    """Raise an UnsupportedTableError if the table's properties give new files no location. Creates no file."""
    try:
        table.java.io().newOutputFile(table.java.locationProvider().newDataLocation("none.parquet"))
    except Exception as e:
        raise UnsupportedTableError(
            f"{table.name} cannot write data files: {short_message(e)}. Nothing was changed; check its properties "
            "write.data.path, write.object-storage.path and write.location-provider.impl."
        ) from e


def delete_unfinished(table: IcebergTable, tag: str, find: Callable[[], list[str]], error: BaseException) -> None:
    """Cancel the tagged jobs of a failed write, and delete its files at the paths of ``find``; see `discard_files`."""
    with suppress(Exception):  # Spark may be gone
        table.spark.sparkContext.cancelJobsWithTag(tag)
    try:
        paths = find()
    except Exception:
        if not isinstance(error, Exception):  # the caller re-raises KeyboardInterrupt
            return
        raise OrphanFilesError(
            f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. Files that Spark "
            "had begun may be left behind; remove_orphan_files removes them."
        ) from error
    discard_files(table, paths, error)


def delete_files(table: IcebergTable, paths: Iterable[str]) -> list[str]:
    """Delete uncommitted files; return the paths of those that could not be deleted."""
    io = table.java.io()
    orphans = []
    for path in paths:
        try:
            io.deleteFile(path)
        except Exception:
            orphans.append(path)
    return orphans


def discard_files(table: IcebergTable, paths: Sequence[str], error: BaseException) -> None:
    """Delete the files written before ``error``, which the caller raises again.

    Raises:
        OrphanFilesError: Some could not be deleted; ``error`` is the cause. After Ctrl-C they are logged instead.
    """
    try:
        orphans = delete_files(table, paths)
    except Exception:
        return  # if Spark itself is gone, ``error`` says why
    if not orphans:
        return
    if not isinstance(error, Exception):
        logger.warning("%s.", orphan_note(table.name, orphans))
        return
    if isinstance(error, OrphanFilesError) and error.__cause__ is not None:
        orphans, error = [*error.orphans, *orphans], error.__cause__
    raise OrphanFilesError(
        f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. "
        f"{orphan_note(table.name, orphans)}.",
        orphans=orphans,
    ) from error


def merge_error(table: IcebergTable, group: FileGroup, what: str) -> MergeFailedError:
    """Return the error of new files that do not hold the rows of a group."""
    return MergeFailedError(
        f"Merging {len(group.files)} blocks of {table.name} {what}. This round changed nothing. It is a fault of "
        "dbt-recluster, or of the writer that counted the blocks' rows; please report it."
    )
