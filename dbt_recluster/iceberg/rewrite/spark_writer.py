"""Spark's writer: a shuffle sends each row to its block, and Iceberg's Java writer makes a file of each.

As in ``rewrite_data_files``, a staged set of scan tasks is read through ``scan-task-set-id``, and a write with
``rewritten-file-scan-task-set-id`` creates files and no snapshot. Iceberg deletes the files of a failed task, but not
those of the job's other tasks. Their names are made of the tasks' numbers and of the id that Spark gave to the query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.exceptions import ConcurrentChangeError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.file_groups import (
    BlockStart,
    FileGroup,
    GroupPlan,
    RewrittenGroup,
    delete_unfinished,
    discard_files,
    merge_error,
    staged,
)
from dbt_recluster.iceberg.session.internals import cached_table, query_id
from dbt_recluster.iceberg.session.jobs import RoundJobs, task_attempts, wait_until
from dbt_recluster.iceberg.session.jvm import DataFrame, JavaFunctions, SparkSession, java_items, java_session, jvm
from dbt_recluster.iceberg.sort_order import FILE_FORMAT
from dbt_recluster.key.box_tree import SHARES, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import quote
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.sql import KeySql, Step, box_steps, constants, literal, search_steps

# Blocks are cut by rows; the writer's estimate of bytes starts new files too early (twice as many in one trial).
_NO_LIMIT_BYTES = 1 << 50
# Makes a write create files and no snapshot. On Spark 4.1 the table's name does so, and this only marks the query.
REWRITE_OPTION = "rewritten-file-scan-task-set-id"


@dataclass(frozen=True)
class SparkWriter:
    """Writes file groups of a table; ``pending`` is the table as the commit will leave it."""

    table: IcebergTable
    pending: IcebergTable
    key: ClusterKey
    curve: Curve | None

    def write(self, plans: Sequence[GroupPlan], jobs: RoundJobs) -> dict[int, RewrittenGroup]:
        """Write groups; return each by its number."""
        spec_of, groups, written = attrgetter("group.spec_id"), dict[int, RewrittenGroup](), list[Any]()
        try:
            for spec_id, members in groupby(sorted(plans, key=spec_of), key=spec_of):
                of_job = list(members)
                files = self._write(of_job, jobs, spec_id)
                written += files
                merged = assign_files(self.table, files, [plan.group for plan in of_job])
                groups |= {plan.number: group for plan, group in zip(of_job, merged, strict=True)}
        except BaseException as e:
            discard_files(self.table, [str(file.location()) for file in written], e)
            raise
        return groups

    def _write(self, plans: Sequence[GroupPlan], jobs: RoundJobs, spec_id: int) -> list[Any]:
        """Write the blocks of groups in one job; return the new files, group after group."""
        writers = [plan for plan in plans for _ in range(plan.blocks)]
        tag, files = str(uuid.uuid4()), [file for plan in plans for file in plan.group.files]
        with staged(self.table, files, is_exact=True) as (frame, schema):
            # Spark matches columns by name. After two columns swap names, each would get the values of the other.
            if not schema.asStruct().equals(self.pending.java.schema().asStruct()):
                raise ConcurrentChangeError(f"The columns of {self.table.name} changed before its blocks were read.")
            rows = self._blocks(frame, plans)
            with jobs.write("merge by a shuffle", tag, [plan.number for plan in writers], 2):
                written_to = [plan.group.partition for plan in writers]
                return write_files(self.pending, rows, tag, spec_id, written_to)

    def _blocks(self, frame: DataFrame, plans: Sequence[GroupPlan]) -> DataFrame:
        """Return a sorted Spark partition for each new block of the groups."""
        from pyspark.sql import functions as F

        key = KeySql(self.key, self.table.columns().types, self.curve, f"recluster_{uuid.uuid4().hex}")
        group, block, salt = (f"{key.place}_{name}" for name in ("group", "block", "salt"))
        rows, steps, order = _with_group(frame, plans, group), key.steps(), [*key.order]
        if any(plan.has_shares for plan in plans):
            order.append(key.share)
        if trees := [plan.cuts for plan in plans if isinstance(plan.cuts, BoxTree)]:
            steps += box_steps(trees, group, [*key.ranks, key.share], block)
        else:
            steps += _cut_steps(plans, {group: "int", **key.order, key.share: "int"}, block)
        blocks = sum(plan.blocks for plan in plans)
        steps.append([f"get({constants(partition_salts(rows.sparkSession, blocks), 'int')}, {block}) as {salt}"])
        for step in steps:
            rows = rows.selectExpr("*", *step)
        return (
            rows.repartition(blocks, salt).sortWithinPartitions(*map(F.expr, order)).select(*map(quote, frame.columns))
        )


def _with_group(frame: DataFrame, plans: Sequence[GroupPlan], group: str) -> DataFrame:
    """Add the number of each row's group, by the location of its file."""
    from pyspark.sql import functions as F

    if len(plans) == 1:
        return frame.withColumn(group, F.lit(0))
    of_files = [(file.path, number) for number, plan in enumerate(plans) for file in plan.group.files]
    path = f"{group}_path"
    groups = frame.sparkSession.createDataFrame(of_files, f"{path} string, {group} int")
    return frame.withColumn(path, F.input_file_name()).join(F.broadcast(groups), path)


def _cut_steps(plans: Sequence[GroupPlan], types: Mapping[str, str], block: str) -> list[Step]:
    """Return steps of which the last is the column ``block``: how many blocks of all groups begin up to a row.

    ``types`` are those of the columns that sort all rows: the group, those of the key, and the share. Spark compares
    structs like tuples, NULL first.
    """

    def struct(values: Iterable[str]) -> str:
        fields = (f"'{place}', {value}" for place, value in enumerate(values))
        return f"named_struct({', '.join(fields)})"

    starts = list[str]()
    for number, plan in enumerate(plans):
        assert not isinstance(plan.cuts, BoxTree)
        first = [BlockStart([pa.scalar(None)] * (len(types) - 2))] if number else []
        for cut in (*first, *plan.cuts):
            values = [pa.scalar(number), *cut.key, pa.scalar(round(cut.share * SHARES))]
            starts.append(struct(map(literal, values, types.values())))
    if not starts:
        return [[f"0 as {block}"]]
    step = [f"array({', '.join(starts)}) as {block}_starts", f"{struct(types)} as {block}_key"]
    search = search_steps([f"{block}_key"], [f"{block}_starts"], len(starts).bit_length(), block)
    return [step, *search, [f"{block}_0_0 as {block}"]]


def partition_salts(spark: SparkSession, partitions: int) -> list[int]:
    """Return, for each partition, an integer that Spark's hash partitioning sends there."""
    tried = partitions * (20 + partitions.bit_length())  # 1 of 10**8 such tries misses a partition
    # From a value, so that the driver computes it without a job.
    query = f"select transform(sequence(0, {tried}), salt -> pmod(hash(salt), {partitions})) from values (0)"
    sent = spark.sql(query).first()
    assert sent is not None
    salts = np.unique(sent[0], return_index=True)[1].tolist()
    assert len(salts) == partitions
    return list(salts)


def write_files(table: IcebergTable, rows: DataFrame, tag: str, spec_id: int, partitions: Sequence[Any]) -> list[Any]:
    """Write one data file for each partition of sorted ``rows``; return the Java data files in that order.

    ``tag`` is that of the Spark jobs, and the id of the rewrite to Iceberg; ``partitions`` are Java partitions of the
    table. After an error all files are deleted, or an OrphanFilesError names those left, if they are known.
    """
    options = {
        REWRITE_OPTION: tag,
        "use-table-distribution-and-ordering": "false",
        "target-file-size-bytes": str(_NO_LIMIT_BYTES),
        "output-spec-id": str(spec_id),
    }
    tasks = TaskFiles(table, tag, spec_id, partitions)
    with tasks.watched():
        try:
            return _write_without_snapshot(table, rows, options)
        except BaseException as e:
            delete_unfinished(table, tag, tasks.paths, e)
            raise


def _write_without_snapshot(table: IcebergTable, rows: DataFrame, options: Mapping[str, str]) -> list[Any]:
    """Write rows; return the new Java data files. ``table`` may have uncommitted changes."""
    coordinator, set_id = table.iceberg.spark.FileRewriteCoordinator.get(), options[REWRITE_OPTION]
    try:
        with cached_table(table.spark, set_id, table.java):
            rows.write.format("iceberg").options(**options).mode("append").save(set_id)
        if not coordinator.fetchSetIds(table.java).contains(set_id):
            return []
        return java_items(coordinator.fetchNewFiles(table.java, set_id))
    finally:
        coordinator.clearRewrite(table.java, set_id)


class TaskFiles:
    """Finds the files that the tasks of one write have written; arguments as in :func:`write_files`."""

    def __init__(self, table: IcebergTable, set_id: str, spec_id: int, partitions: Sequence[Any]) -> None:
        self._table = table
        self._set_id = set_id
        self._spec = table.java.specs().get(spec_id)
        self._partitions = partitions
        self._ended = jvm(table.spark).java.util.concurrent.ConcurrentLinkedQueue()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the queries that end in this block, failed or not."""
        spark = self._table.spark
        manager, interface = java_session(spark).listenerManager(), "org.apache.spark.sql.util.QueryExecutionListener"
        listener = JavaFunctions(spark).recorder(interface, self._ended)
        manager.register(listener)
        try:
            yield
        finally:
            with suppress(Exception):  # Spark may be gone
                manager.unregister(listener)

    def paths(self) -> list[str]:
        """Return the files that the tasks may have written, once all have ended; call it within :meth:`watched`.

        If tasks still run, or Spark does not report the query, that is a TimeoutError.
        """
        tasks = task_attempts(self._table.spark, self._set_id)
        if not tasks:
            return []
        query, locations = query_id(self._table.spark, wait_until(self._write)), self._table.java.locationProvider()
        format_name = self._table.properties.get(FILE_FORMAT, "parquet")
        file_format = self._table.iceberg.FileFormat.fromString(format_name)
        paths = []
        for index, task_id in tasks:
            if index >= len(self._partitions):
                continue
            # As Iceberg's OutputFileFactory names them.
            name = file_format.addExtension(f"{index:05d}-{task_id}-{query}-0-00001")
            names = (name,) if self._spec.isUnpartitioned() else (self._spec, self._partitions[index], name)
            paths.append(str(locations.newDataLocation(*names)))
        return paths

    def _write(self) -> Any:
        """Return Iceberg's part of the query that writes, or None if Spark has not reported it yet."""
        while (event := self._ended.poll()) is not None:
            if len(event) < 3:  # a call of one of Object's methods
                continue
            plan = event[1].optimizedPlan()
            if plan.getClass().getSimpleName() == "AppendData" and plan.write().isDefined():
                rewrite = plan.writeOptions().get(REWRITE_OPTION)
                if rewrite.isDefined() and rewrite.get() == self._set_id:
                    return plan.write().get()
        return None


def assign_files(table: IcebergTable, files: Sequence[Any], groups: Sequence[FileGroup]) -> list[RewrittenGroup]:
    """Assign the new files of one job to the file groups that they replace, in the order that Spark wrote them in.

    If no file ends where the rows of a group do, that is a MergeFailedError.
    """
    rewritten = []
    remaining = iter(files)
    for group in groups:
        group_files: list[Any] = []
        rows, expected = 0, group.live_rows or 0
        while rows < expected and (file := next(remaining, None)) is not None:
            group_files.append(file)
            rows += int(file.recordCount())
        if rows != expected:
            raise merge_error(table, group, f"read {expected} rows and wrote {rows}")
        rewritten.append(RewrittenGroup(group, tuple(group_files)))
    if surplus := sum(int(file.recordCount()) for file in remaining):
        raise merge_error(table, groups[-1], f"wrote {surplus} rows that no block had")
    return rewritten
