"""Read chosen files as a DataFrame whose partitions are chosen too.

Iceberg packs the files of a staged set into Spark's partitions by weight. For one job to write the blocks of
many sets, it must be known which partition reads what. So the weights are arranged: every group of files is
made to weigh exactly as much as a partition takes, with the packing told to look at one partition at a time.

A file weighs the more the more pieces it can be split into, since each piece counts as one file to open at
the least; and pieces that end up side by side in a partition are put together again. The offsets at which
a copy of the file's description claims that it can be split are ours to choose.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.block_set import BlockFile
from dbt_recluster.iceberg.jvm import java_array, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.table import IcebergTable

# What opening a file weighs: more than any file's bytes, so that those never decide.
_OPEN_WEIGHT = 1 << 40
# Groups times files of the largest group: how many pieces Iceberg has to pack.
MAX_PIECES = 2_000_000


@dataclass(frozen=True)
class FileGroup:
    """Files that one Spark partition reads.

    Attributes:
        files: The files.
        spec_id: Their partition spec.
        filter: An Iceberg expression; row groups that hold no matching row are skipped. None reads all.
            Rows that do not match are read where they share a row group with some that do.
    """

    files: tuple[BlockFile, ...]
    spec_id: int
    filter: Any | None = None


@dataclass(frozen=True)
class StagedFiles:
    """Staged files.

    Attributes:
        set_id: The id under which they are staged and under which a rewrite of them is to be written.
        frame: Their rows: partition i is group i.
    """

    set_id: str
    frame: DataFrame


@contextmanager
def staged(table: IcebergTable, groups: Sequence[FileGroup]) -> Iterator[StagedFiles]:
    """Stage groups of files; nothing of it is left in the JVM afterwards.

    Args:
        table: The table the files are of.
        groups: What each partition of the DataFrame reads.
    """
    set_id = str(uuid.uuid4())
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    tasks, weight = _packed(table, groups)
    manager.stageTasks(table.java, set_id, tasks)
    try:
        # load(), not table(): on v3 tables the latter drops the row ids without a word.
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


def _packed(table: IcebergTable, groups: Sequence[FileGroup]) -> tuple[Any, int]:
    """Return the tasks of all groups in one list and what a partition weighs, in files."""
    factory = _TaskFactory(table)
    weights = {1 + file.deletes for group in groups for file in group.files}
    unit = math.lcm(*weights) if math.lcm(*weights) <= 64 else 1
    heaviest = max(sum(1 + file.deletes for file in group.files) for group in groups)
    weight = -(-heaviest // unit) * unit
    factory.prepare(weight)
    tasks = jvm(table.spark).java.util.ArrayList()
    sizes = []
    for group in groups:
        before = tasks.size()
        for task in factory.tasks(group, weight):
            tasks.add(task)
        sizes.append(tasks.size() - before)
    # The very function that the scan calls.
    packed = table.iceberg.util.TableScanUtil.planTaskGroups(tasks, weight * _OPEN_WEIGHT, 1, _OPEN_WEIGHT)
    if packed.size() != len(groups):
        raise ReclusterError(
            f"{len(groups)} groups of files of {table.name} were packed into {packed.size()} partitions. "
            "Nothing was written. This version of Iceberg packs in another way; please report it."
        )
    return tasks, weight


class _TaskFactory:
    """Make scan tasks of a given weight."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._iceberg = table.iceberg
        self._schema = table.iceberg.SchemaParser.toJson(table.java.schema())
        self._specs: dict[int, tuple[Any, str]] = {}
        self._no_deletes = java_array(table.spark, table.iceberg.DeleteFile, [])
        self._everything = table.iceberg.expressions.Expressions.alwaysTrue()
        self._offsets: Any = None
        self._copies: dict[int, Any] = {}
        self._deletes: dict[int, Any] = {}

    def prepare(self, most: int) -> None:
        """Make ready for files of up to ``most`` pieces."""
        longs = java_array(self._table.spark, jvm(self._table.spark).long, list(range(most)))
        self._offsets = self._iceberg.relocated.com.google.common.primitives.Longs.asList(longs)

    def tasks(self, group: FileGroup, weight: int) -> list[Any]:
        """Return the tasks of ``group``, which together weigh ``weight``."""
        spec, spec_json = self._spec(group.spec_id)
        wanted = self._everything if group.filter is None else group.filter
        residuals = self._iceberg.expressions.ResidualEvaluator.of(spec, wanted, True)
        pieces = [1] * len(group.files)
        missing = weight - sum(1 + file.deletes for file in group.files)
        for position, file in enumerate(group.files):
            more = min(missing // (1 + file.deletes), file.bytes - 1)
            if more > 0 and (file.deletes == 0 or missing % (1 + file.deletes) == 0):
                pieces[position] += more
                missing -= more * (1 + file.deletes)
        made = [
            self._task(file, spec, spec_json, residuals, count)
            for file, count in zip(group.files, pieces, strict=True)
        ]
        if missing:
            made += self._fillers(group.files[0], spec, spec_json, missing)
        return made

    def _fillers(self, file: BlockFile, spec: Any, spec_json: str, missing: int) -> list[Any]:
        """Return tasks that read nothing and weigh ``missing``."""
        never = self._iceberg.expressions.Expressions.alwaysFalse()
        residuals = self._iceberg.expressions.ResidualEvaluator.unpartitioned(never)
        plain = replace(file, deletes=0)
        made = []
        while missing:
            count = min(missing, file.bytes)
            made.append(self._task(plain, spec, spec_json, residuals, count))
            missing -= count
        return made

    def _task(self, file: BlockFile, spec: Any, spec_json: str, residuals: Any, pieces: int) -> Any:
        copy = self._copies.get(id(file.task)) if pieces == 1 else None
        if copy is None:
            original = file.task.file()
            builder = self._iceberg.DataFiles.builder(spec).copy(original)
            copy = builder.withSplitOffsets(self._offsets.subList(0, pieces)).build()
            # The builder forgets them, and v3's rows inherit theirs from the file.
            copy.setDataSequenceNumber(original.dataSequenceNumber())
            copy.setFileSequenceNumber(original.fileSequenceNumber())
            if pieces == 1:
                self._copies[id(file.task)] = copy
        deletes = self._delete_array(file) if file.deletes else self._no_deletes
        return self._iceberg.BaseFileScanTask(copy, deletes, self._schema, spec_json, residuals)

    def _delete_array(self, file: BlockFile) -> Any:
        array = self._deletes.get(id(file.task))
        if array is None:
            array = java_array(self._table.spark, self._iceberg.DeleteFile, list(file.task.deletes()))
            self._deletes[id(file.task)] = array
        return array

    def _spec(self, spec_id: int) -> tuple[Any, str]:
        if spec_id not in self._specs:
            spec = self._table.java.specs().get(spec_id)
            self._specs[spec_id] = spec, self._iceberg.PartitionSpecParser.toJson(spec)
        return self._specs[spec_id]
