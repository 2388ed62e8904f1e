"""A table under one cluster key: loaded once, the blocks of each snapshot read once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any, overload

import numpy as np
import pyarrow as pa

from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.process_cache import CACHE
from dbt_recluster.clustering.table_curve import TableCurve
from dbt_recluster.clustering.table_reads import TableReads
from dbt_recluster.clustering.table_state import Failure, Suspension
from dbt_recluster.exceptions import ClusterKeyError, NoKeyYetError, ReclusterError
from dbt_recluster.iceberg.iceberg_table import IcebergTable, Snapshot, whole_number
from dbt_recluster.iceberg.metadata.block_metadata import (
    BlockMetadata,
    partition_name,
    read_blocks,
    read_written_blocks,
)
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.rewrite.file_groups import RewrittenGroup
from dbt_recluster.iceberg.session.jvm import SparkSession, user
from dbt_recluster.iceberg.sort_order import (
    FILE_FORMAT,
    is_cluster_key,
    recorded_key,
    table_cluster_key,
    valid_cluster_key,
)
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CLUSTER_BY, ROW_GROUP_BYTES, SUSPENDED
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.types import BoolArray, IntArray
from dbt_recluster.planner import Blocks, ClusteringInformation, Plan, Policy, Reads, Why, clustering_information
from dbt_recluster.planner.curves import CURVE_TOLERANCE
from dbt_recluster.planner.merges import BlockSet
from dbt_recluster.planner.planning import plan
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS
from dbt_recluster.text import printable

ClusterBy = str | Sequence[str] | ClusterKey


@dataclass(frozen=True)
class SnapshotBlocks:
    """The blocks of a snapshot, and those that a plan may select from."""

    metadata: BlockMetadata
    eligible: IntArray  # positions in `metadata` of the planned blocks that the predicate admits
    blocks: Blocks  # the eligible blocks, in this order
    planned: Blocks  # `blocks`, then the remaining blocks as fixed: never merged, never made deeper
    planned_metadata: BlockMetadata

    @property
    def late(self) -> int:
        """Number of blocks that arrived too late to be planned."""
        return len(self.metadata) - len(self.planned_metadata)


class ClusteredTable:
    """An Iceberg table under a cluster key. It stays at one snapshot until :meth:`refresh`.

    Args:
        spark: A session with Iceberg's extensions.
        name: ``schema.table``, ``catalog.schema.table``, or a table of the current namespace.
        cluster_by: The cluster key; None is the table's sort order.

    Raises:
        NotAnIcebergTableError: There is no such table.
    """

    def __init__(self, spark: SparkSession, name: str, cluster_by: ClusterBy | None = None) -> None:
        self._attach(IcebergTable.load(spark, name), cluster_by)

    def _attach(
        self,
        iceberg: IcebergTable,
        cluster_by: ClusterBy | None,
        reads: TableReads | None = None,
        curve: Curve | None = None,
    ) -> ClusteredTable:
        self.iceberg, self.name = iceberg, iceberg.name
        self.cluster_by, self._curve = cluster_by, curve
        self._metadata: dict[int | None, BlockMetadata] = {}
        self._snapshots: list[Snapshot] | None = None
        self.reads = reads or TableReads(iceberg)
        return self

    def under(self, cluster_by: ClusterBy, curve: Curve | None = None) -> ClusteredTable:
        """Return the same loaded table under another key, and along a curve that is not recorded."""
        return ClusteredTable.__new__(ClusteredTable)._attach(self.iceberg, cluster_by, self.reads, curve)

    def on_branch(self, branch: str) -> ClusteredTable:
        """Return the same loaded table on a branch of this name, or raise OptionError if there is none."""
        return ClusteredTable.__new__(ClusteredTable)._attach(self.iceberg.on_branch(branch), self.cluster_by)

    def options(self, **options: Any) -> ReclusterOptions:
        """Return the given options, each else as the table records it, else its default."""
        return ReclusterOptions.from_properties(self.iceberg.properties, **options)

    @cached_property
    def columns(self) -> Columns:
        """The table's columns; raises UnsupportedTableError if Spark cannot read the table."""
        return self.iceberg.columns()

    @property
    def own_key(self) -> ClusterKey | None:
        """The key of the table itself, unchecked: its sort order, else what a model has set; None for neither.

        Raises:
            ClusterKeyError: The sort order is no key, or the property of the model.
        """
        iceberg = self.iceberg  # the last says why the sort order is none
        return valid_cluster_key(iceberg) or recorded_key(iceberg.properties) or table_cluster_key(iceberg)

    @cached_property
    def key(self) -> ClusterKey:
        """The cluster key, by default the table's own, checked against its columns.

        Raises:
            ClusterKeyError: ``cluster_by`` is not a key or does not fit the table, or the table has no sort order.
            NoKeyYetError: ``cluster_by: auto`` has chosen none yet.
        """
        key = self.own_key if self.cluster_by is None else self.cluster_by
        if key is None:
            if AUTO_KEY in self.iceberg.properties:
                raise NoKeyYetError(f"{self.name} has no cluster key yet: cluster_by is auto")
            missing = f"neither the property {CLUSTER_BY} nor a sort order"
            raise ClusterKeyError(f"{self.name} has no cluster key: {missing}; name one with cluster_by")
        try:
            return (key if isinstance(key, ClusterKey) else parse_cluster_key(key)).check(self.columns)
        except ClusterKeyError as e:
            if self.cluster_by is not None:
                raise
            raise ClusterKeyError(f"{e}; name another key with cluster_by, or run remove_clustering") from e

    @cached_property
    def key_curve(self) -> TableCurve:
        """The curve of the key, how it is drawn, and blocks along it."""
        return TableCurve(self.iceberg, self.key, self._curve)

    @property
    def block_bytes(self) -> int:
        """Bytes in a full block, by the table's property."""
        return self.iceberg.number_property("write.target-file-size-bytes", 512 * 2**20)

    @property
    def row_group_bytes(self) -> int | None:
        """Bytes in a row group, by the table's property; None if malformed, or if the table writes no Parquet."""
        properties = self.iceberg.properties
        if properties.get(FILE_FORMAT, "parquet").lower() != "parquet":
            return None
        size = whole_number(properties.get(ROW_GROUP_BYTES, str(128 * 2**20)))
        return size if size and size > 0 else None

    def refresh(self) -> None:
        """Move on to the current snapshot, under the same key; a ClusterKeyError if a column of the key is gone."""
        self.iceberg.refresh()
        self._metadata.clear()
        self._snapshots = None
        self.__dict__.pop("columns", None)
        if "key" in self.__dict__:
            self.key.check(self.columns)

    @property
    def suspended(self) -> str | None:
        """Since when reclustering is suspended, or None."""
        return None if (suspension := self.suspension) is None else suspension.since

    @property
    def suspension(self) -> Suspension | None:
        """The suspension of reclustering that has not ended, or None."""
        return Suspension.from_properties(self.iceberg.properties)

    @property
    def failure(self) -> Failure | None:
        """The failure of the last attempt to recluster the table, or None."""
        return Failure.from_properties(self.iceberg.properties)

    def suspend(self, reason: str | None = None, until: datetime | None = None) -> Suspension:
        """Keep everybody from reclustering the table until :meth:`resume` or a time; return the suspension.

        An earlier one keeps its start, and its reason and end unless given. A running recluster stops before its next
        round. A table that dbt recreates stays suspended.
        """
        current, end = self.suspension, until and until.isoformat(timespec="seconds")
        if current is None:
            current = Suspension(datetime.now(timezone.utc).isoformat(timespec="seconds"))
        elif reason is None and end is None:
            return current
        by = user(self.iceberg.spark)
        suspension = replace(current, by=by, until=end or current.until, reason=reason or current.reason)
        self.iceberg.set_property(SUSPENDED, SUSPENDED.dump(asdict(suspension)))
        return suspension

    def resume(self) -> str | None:
        """Allow reclustering again; return since when it was suspended, or None if it was not."""
        since = self.suspended
        if SUSPENDED in self.iceberg.properties:
            self.iceberg.set_property(SUSPENDED, None)
        return since

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that have not expired, oldest first, also those from before the table was replaced."""
        if self._snapshots is None:
            self._snapshots = self.iceberg.history()
        return self._snapshots

    @overload
    def predicate(self, where: str) -> Predicate: ...
    @overload
    def predicate(self, where: str | None) -> Predicate | None: ...
    def predicate(self, where: str | None) -> Predicate | None:
        """Parse a predicate, None for None, or raise PredicateError if it cannot select blocks of this table."""
        return where if where is None else Predicate.parse(self.iceberg, where)

    def policy(self, policy: Policy) -> Policy:
        """Return a policy with the full block of this table and its size, and the tolerance of a curve."""
        tolerance, is_small = CURVE_TOLERANCE if self.key.curve else 1.0, self.is_small(policy.block_rows)
        is_small &= policy.is_small_table
        return replace(policy, block_bytes=self.block_bytes, tolerance=tolerance, is_small_table=is_small)

    def is_small(self, block_rows: int) -> bool:
        """Return whether the table has fewer than `LEAST_FULL_BLOCKS` full blocks; without a known size, it has not."""
        current = self.iceberg.current_snapshot()
        rows, size = (current.count(f"total-{of}") if current else None for of in ("records", "files-size"))
        if rows is None or size is None:
            return False
        return max(rows / block_rows, size / self.block_bytes) < LEAST_FULL_BLOCKS

    @property
    def key_reads(self) -> Reads | None:
        """The ranges of the key's columns before its curve that reads ask for, or None if no read restricts them."""
        plain = ClusterKey(self.key.leading)
        return self.reads.for_key(plain).reads if plain.fields else None

    def item_texts(self, item: int, values: Sequence[pa.Scalar]) -> list[str]:
        """Return values of bounds of a key item as Spark prints its column."""
        field = self.key.fields[item]
        spark_type = self.columns.types[field.column]
        texts = [field.transform.printed(value, spark_type) if value.is_valid else "NULL" for value in values]
        printed = [text for text in texts if text is not None]
        if len(printed) < len(texts):
            printed = self.iceberg.printed(values, spark_type)
        # Neighbours in the key begin alike, and differ in the end.
        return [printable(text if len(text) <= 24 else f"{text[:8]}...{text[-13:]}") for text in printed]

    def metadata(self, snapshot_id: int | None = None) -> BlockMetadata:
        """Return the blocks of the current snapshot, or of an older one that the table still has."""
        snapshot_id = self.iceberg.snapshot_id if snapshot_id is None else snapshot_id
        if snapshot_id is None:
            return read_blocks(self.iceberg, self.key)
        if snapshot_id not in self._metadata:
            manifests = self.iceberg.manifest_list(snapshot_id)
            place = (manifests, snapshot_id, self.iceberg.schema_json, self.iceberg.spec_id, str(self.key))
            read = partial(read_blocks, self.iceberg, self.key, snapshot_id)
            self._metadata[snapshot_id] = CACHE.blocks(place, read)
        return self._metadata[snapshot_id]

    def blocks(
        self, where: Predicate | None = None, snapshot_id: int | None = None, added_by: Collection[int] | None = None
    ) -> SnapshotBlocks:
        """Return the blocks of the current snapshot, or of an older one, for the planner.

        Those that may hold a row of the predicate ``where`` are eligible. Levels are those of today: 0 in an older
        snapshot if no live block has the level any more. With ``added_by``, only blocks of these snapshots are planned.
        """
        metadata = self.metadata(snapshot_id)
        admitted = planned = np.ones(len(metadata), np.bool_)
        if where is not None:
            admitted = where.may_match(self.iceberg, metadata)
        if added_by is not None:
            planned = np.isin(metadata.added_by, list(added_by))
        eligible, others = np.flatnonzero(admitted & planned), np.flatnonzero(~admitted & planned)
        admissible = metadata if len(eligible) == len(metadata) else metadata.take(eligible)
        blocks = self.planner_blocks(admissible)
        if not len(others):
            return SnapshotBlocks(metadata, eligible, blocks, blocks, admissible)
        both = metadata.take(np.concatenate([eligible, others]))
        fixed = np.arange(len(both)) >= len(eligible)
        return SnapshotBlocks(metadata, eligible, blocks, self.planner_blocks(both, fixed=fixed), both)

    def current_blocks(self, where: Predicate | None = None, added_by: Collection[int] | None = None) -> SnapshotBlocks:
        """Return the blocks of the current snapshot; read again if other writers expire it meanwhile."""
        for _ in range(4):
            snapshot_id = self.iceberg.snapshot_id
            try:
                return self.blocks(where, added_by=added_by)
            except ReclusterError:
                raise
            except Exception:
                self.refresh()
                if self.iceberg.snapshot_id == snapshot_id:
                    raise
        return self.blocks(where, added_by=added_by)

    def blocks_after(
        self, blocks: SnapshotBlocks, kept: IntArray, merged: Sequence[tuple[RewrittenGroup, BlockSet]]
    ) -> Blocks:
        """Return the planned blocks that a round keeps, and with their true bounds those that it writes."""
        before = blocks.planned_metadata
        files = [file for group, _ in merged for file in group.files]
        of_sets = [(before.partition[s.blocks[0]], s.level, s.run) for _, s in merged]
        counts = [len(group.files) for group, _ in merged]
        partition, level, run = np.repeat(np.array(of_sets, np.int64), counts, axis=0).T
        written = read_written_blocks(self.iceberg, self.key, files, partition, -1 - run)
        metadata, fixed = before.take(kept).plus(written), np.append(kept >= len(blocks.eligible), run < 0)
        levels, runs = (values[: len(kept)] for values in levels_and_runs(self.iceberg, metadata, self.key))
        # No snapshot has so small an id as a run of the plan.
        return self.planner_blocks(metadata, np.append(levels, level), np.append(runs, 1 + run), fixed)

    def measure(self, blocks: Blocks, block_rows: int | None = None) -> ClusteringInformation:
        """Return the metrics of blocks of this table; ``block_rows`` as in :func:`clustering_information`."""
        full, is_sorted = (block_rows, self.block_bytes), is_cluster_key(self.iceberg, self.key)
        return clustering_information(blocks, *full, self.row_group_bytes, is_sorted=is_sorted)

    def plan(self, blocks: Blocks, metadata: BlockMetadata, policy: Policy) -> Plan:
        """Plan blocks of this table, with the name of the deepest partition in the reasons; ``metadata`` is theirs."""
        planned = plan(blocks, policy)
        if planned.partition is None:
            return planned
        name = partition_name(self.iceberg, metadata, int(np.argmax(blocks.partition == planned.partition)))
        named = {r: replace(r, figures=(*r.figures[:-1], name)) for r in planned.reasons if r.kind is Why.DEPTH}
        return replace(planned, reasons=tuple(named.get(reason, reason) for reason in planned.reasons))

    def planner_blocks(
        self,
        metadata: BlockMetadata,
        level: IntArray | None = None,
        run: IntArray | None = None,
        fixed: BoolArray | None = None,
        settled: BoolArray | None = None,
    ) -> Blocks:
        """Return blocks for the planner, with the recorded levels and runs unless others are given.

        Fixed blocks, and those that the snapshot lists more than once, are not rewritten. See :class:`SettledBlocks`.
        """
        if level is None or run is None:
            level, run = levels_and_runs(self.iceberg, metadata, self.key)
        if metadata.repeated is not None:
            fixed = metadata.repeated if fixed is None else fixed | metadata.repeated
        lower, upper, unbounded, layout = metadata.lower, metadata.upper, metadata.unbounded, None
        if self.key.curve:
            blocks = self.key_curve.blocks(metadata)
            samples = self.key_curve.samples(blocks.curve)
            layout = blocks.layout(run, metadata.added_by, level, settled, samples)
            lower, upper, unbounded = blocks.along_curve(layout.chain)
            run = np.where(layout.chain > 0, layout.chain, layout.run)
        return Blocks.build(
            lower=lower,
            upper=upper,
            rows=metadata.rows,
            bytes=metadata.bytes,
            level=level,
            run=run,
            partition=metadata.partition,
            unbounded=unbounded,
            deleted=metadata.deleted_rows,
            reads=self.key_reads,
            fixed=fixed,
            # Blocks of a key with leading columns are cut along it, and are no boxes.
            layout=None if self.key.leading else layout,
        )
