"""Checkpoints: the snapshot up to which nothing is left to do, the partitions where something is, and settled blocks.

If a plan leaves nothing to do outside the partitions of its sets, its commit records them, the planned snapshot and its
own snapshots. The next check reads these partitions, and those that differ from the last of these snapshots, or from
the planned one if others committed meanwhile. A check that finds nothing to do must not commit, so only the process
remembers it. Without a checkpoint, a check reads the whole table.

The interval of a block on a curve is an estimate, so merged blocks may still overlap by it, and another merge may
change nothing. A commit therefore records, for each partition that it merges, the depth of its rows, and the commits
since they were less deep. Until another writer changes the partition, or its rows are less deep than recorded, the
blocks of these commits are settled: among themselves they count as one run. So every merge lowers the depth or leaves
fewer blocks that are not settled, and rounds end.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np

from dbt_recluster.clustering.options import digest, parse_number
from dbt_recluster.clustering.process_cache import CACHE
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_curve import curve_properties
from dbt_recluster.clustering.verdict import Facts, Stop, decide
from dbt_recluster.iceberg.iceberg_table import GREATEST_LONG, IcebergTable, PropertyChanges
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, read_blocks
from dbt_recluster.iceberg.metadata.changed_partitions import (
    ChangedPartitions,
    PartitionText,
    changed_partitions,
    partition_of,
)
from dbt_recluster.iceberg.session.environment import package_version
from dbt_recluster.iceberg.table_properties import CHECKPOINT, LEVELS, PREFIX, SETTLED
from dbt_recluster.key.types import BoolArray, FloatArray, IntArray
from dbt_recluster.planner import Blocks, Plan, Policy, Reason, plan

logger = logging.getLogger(__name__)

# In the checkpoint's property, the last snapshot that was warned of.
_WARNED = "warned"


class Checkpoint:
    """The checkpoint of a table, valid for one fingerprint of the planner's inputs besides the blocks: the rules.

    It is not recorded if the rules change meanwhile: threads may share Iceberg's table object, and commit to it. With a
    predicate ``where``, which restricts the plan, nothing is remembered or recorded.
    """

    def __init__(self, table: ClusteredTable, policy: Policy, where: str | None = None) -> None:
        self._table, self.where = table, where
        self.policy = replace(policy, max_bytes=None)  # a budget only postpones work
        self._rules = self._rules_of(table.iceberg)

    def changed(self, snapshot_id: int) -> ChangedPartitions | None:
        """Return the partitions that changed until a snapshot or had something left to do; None for the whole table."""
        for since, partitions in self._earlier(snapshot_id):
            changed = changed_partitions(self._table.iceberg, since, snapshot_id, partitions)
            if changed is not None:
                return changed
        return None

    def is_of(self, snapshot_id: int) -> bool:
        """Whether a snapshot is of the commit that recorded the checkpoint, and on top of the planned one."""
        if self.where is not None or (recorded := self._recorded()) is None:
            return False
        planned, committed, _ = recorded
        return committed[-1] == snapshot_id and self._follow(planned, committed)

    def remember(self, snapshot_id: int | None, planned: Plan) -> None:
        """Remember in this process that a plan of a snapshot is empty; None is the snapshot of an empty table."""
        is_of_main = self._table.iceberg.branch is None
        if snapshot_id is not None and self.where is None and is_of_main and self._still_holds():
            CACHE.remember_empty_plan(self._table.iceberg.uuid, digest(self._rules), snapshot_id, planned)

    @property
    def remembered(self) -> tuple[int, Plan] | None:
        """The snapshot and the empty plan that this process remembers by the same rules, or None."""
        return CACHE.empty_plan(self._table.iceberg.uuid, digest(self._rules))

    @property
    def is_well_clustered(self) -> bool:
        """Whether the table was well clustered by the last plan that this process remembers, or the last commit."""
        if (remembered := self.remembered) is not None:
            return decide(Facts(plan=remembered[1])).verdict == "well clustered"
        _, committed, _ = self._recorded() or (0, [], None)
        snapshot = self._table.iceberg.snapshot(committed[-1]) if committed else None
        depth = parse_number(snapshot.summary.get(f"{PREFIX}depth_after")) if snapshot else None
        least = float(self.policy.thresholds(np.ones(1, np.int64))[0]) / self.policy.tolerance
        return depth is not None and (depth <= least or self.policy.by_level)

    def leaves_nothing(self, blocks: Blocks, planned: Plan) -> bool:
        """Whether nothing is left to do outside the partitions of a plan's sets."""
        if self.where is not None:
            return False
        in_sets = [block_set.partition for block_set in planned.block_sets]
        others = np.flatnonzero(~np.isin(blocks.partition, in_sets))
        # A budget leaves sets out, and a strategy may take the partitions that gain most before the others.
        rest = plan(blocks.take(others), self.policy)
        return not rest.block_sets and not rest.limited

    def properties(
        self, planned: int, committed: Sequence[int], tasks: Sequence[Any], after: IcebergTable
    ) -> PropertyChanges:
        """Return the properties of a commit whose plan leaves nothing to do outside the partitions of its sets.

        They name the planned snapshot and those committed, in order, and the partitions of the scan ``tasks``, one of
        each set; ``after`` is the table after the commit, still without them.
        """
        if not self._still_holds():
            return {}
        checkpoint = {"rules": digest(self._rules_of(after)), "planned": planned, "committed": list(committed)}
        texts = sorted({partition_of(self._table.iceberg, task) for task in tasks})
        partitions = [(spec_id, json.loads(values)) for spec_id, values in texts]
        text = CHECKPOINT.dump({**checkpoint, "partitions": partitions})
        return {CHECKPOINT: text if len(text) <= CHECKPOINT.longest else CHECKPOINT.dump(checkpoint)}

    def _earlier(self, snapshot_id: int) -> Iterator[tuple[int, Sequence[PartitionText]]]:
        """Yield snapshots that were checked by the same rules, youngest first, and the partitions left to do."""
        if (remembered := self.remembered) is not None:
            yield remembered[0], ()
        planned, committed, partitions = self._recorded() or (0, [], None)
        # A rollback takes the work of the commit back, and not the property.
        if not committed or not self._table.iceberg.is_ancestor(committed[-1], of=snapshot_id):
            return
        if partitions is not None and self._follow(planned, committed):
            yield committed[-1], partitions
        yield planned, ()

    def _recorded(self) -> tuple[int, list[int], list[PartitionText] | None] | None:
        """Return the planned snapshot, the committed ones and the partitions, None if not recorded by these rules."""
        properties = self._table.iceberg.properties
        return CHECKPOINT.load(properties.get(CHECKPOINT), self._read)

    def _read(self, recorded: Mapping[str, Any]) -> tuple[int, list[int], list[PartitionText] | None] | None:
        planned, committed = int(recorded["planned"]), list(map(int, recorded["committed"]))
        is_snapshot = committed and max(planned, *committed) <= GREATEST_LONG
        if recorded["rules"] != digest(self._rules) or not is_snapshot:
            return None
        if (partitions := recorded.get("partitions")) is None:
            return planned, committed, None
        return planned, committed, [(int(spec_id), json.dumps(values)) for spec_id, values in partitions]

    def _follow(self, planned: int, committed: Sequence[int]) -> bool:
        """Whether each committed snapshot is in the table, and its parent is the one before, at first the planned."""
        parents = [s and s.parent for s in map(self._table.iceberg.snapshot, committed)]
        return parents == [planned, *committed[:-1]]

    def _still_holds(self) -> bool:
        return self._rules == self._rules_of(self._table.iceberg)

    def _rules_of(self, iceberg: IcebergTable) -> Mapping[str, Any]:
        properties = iceberg.properties
        return {
            "version": package_version(),  # another one may plan otherwise
            "table": iceberg.uuid,
            "key": str(self._table.key),
            "curve": curve_properties(properties),
            "reads": repr(self._table.key_reads),
            "policy": asdict(replace(self.policy, block_bytes=self._table.block_bytes)),
            "schema": iceberg.schema_json,
            "spec": iceberg.spec_id,
            "sort_order": iceberg.sort_order_id,
            "levels": properties.get(LEVELS),
        }


def nothing_to_do(table: ClusteredTable, policy: Policy) -> Plan | None:
    """Plan the partitions that changed since the checkpoint; None if something is left to do."""
    try:
        snapshot = table.iceberg.current_snapshot()
        if snapshot is None or snapshot.count("total-data-files") is None:
            return None
        checkpoint = Checkpoint(table, policy)
        changed = checkpoint.changed(snapshot.id)
        if changed is None:
            return None
        _, last = checkpoint.remembered or (0, Plan())
        planned = replace(last, reasons=(Reason(Stop.UNCHANGED),))
        if len(changed):
            if not checkpoint.is_well_clustered:  # the verdict is of the whole table
                return None
            metadata = read_blocks(table.iceberg, table.key, snapshot.id, changed)
            blocks = table.planner_blocks(metadata)
            planned = table.plan(blocks, metadata, checkpoint.policy)
            # Loads under a curve are sampled before they are planned.
            is_unread = blocks.layout is not None and blocks.layout.load.any()
            if planned.block_sets or planned.limited or is_unread:
                return None
            scope = Reason(Stop.OF_CHANGED_PARTITIONS, (len(changed),))
            planned = replace(planned, reasons=(*planned.reasons, scope))
        checkpoint.remember(snapshot.id, planned)
    except Exception:
        # Fall back to a check of the whole table.
        logger.debug("%s: the partitions that changed could not be read", table.name, exc_info=True)
        return None
    return planned


def warned_of(table: IcebergTable) -> int | None:
    """Return the last snapshot that was warned of since the last recluster, or None."""
    return CHECKPOINT.load(table.properties.get(CHECKPOINT), lambda recorded: recorded.get(_WARNED))


def record_warning(table: IcebergTable, snapshot_id: int) -> None:
    """Record that a snapshot was warned of, up to the next recluster."""
    recorded = CHECKPOINT.load(table.properties.get(CHECKPOINT), dict) or {}
    table.set_property(CHECKPOINT, CHECKPOINT.dump({**recorded, _WARNED: snapshot_id}))


class SettledBlocks:
    """The record of settled blocks, applied to the blocks that are planned by a policy.

    ``recorded`` is the property. ``rules`` are a digest of all else that the plan depends on; they are part of the
    names of partitions, so records of other rules, like those of other files, count as none.
    """

    def __init__(
        self, blocks: Blocks, metadata: BlockMetadata, policy: Policy, recorded: str | None, rules: str
    ) -> None:
        self._blocks, self._metadata, self._policy, self._rules = blocks, metadata, policy, rules
        self._commits, self._recorded = SETTLED.load(recorded, self._read) or ([], {})

    def _read(self, record: Mapping[str, Any]) -> tuple[list[int], dict[str, tuple[float, int]]] | None:
        partitions = record["partitions"].items()
        commits = list(map(int, record["commits"]))
        of_partition = {str(name): (float(depth), range(len(commits))[first]) for name, (depth, first) in partitions}
        return commits, of_partition

    @cached_property
    def mask(self) -> BoolArray:
        """The settled blocks: bool (n,)."""
        settled = np.zeros(len(self._blocks), np.bool_)
        for number, (depth, first) in self._of_partition.items():
            if self._depths[number] >= depth - 1e-6:  # recorded depths are rounded
                is_of_commits = np.isin(self._metadata.added_by, self._commits[first:])
                settled |= is_of_commits & (self._blocks.partition == number)
        return settled

    def after(
        self,
        plan: Plan,
        paths: Sequence[tuple[Iterable[str], Iterable[str]]],
        commits: Sequence[int],
        shared: str | None = None,
    ) -> dict[str, str | None]:
        """Return the property after a commit of a plan, given the paths that each set wrote, and those it replaced.

        ``shared`` is the property before the commit if other branches may have records in it, which stay.
        """
        checksums = self._checksums.copy()
        for block_set, (written, replaced) in zip(plan.block_sets, paths, strict=True):
            checksums[block_set.partition] += _checksum(written) - _checksum(replaced)
        merged = {block_set.partition for block_set in plan.block_sets if block_set.is_merge}
        settling = set(np.unique(self._blocks.partition[self.mask]).tolist())
        old_commits, old = SETTLED.load(shared, self._read) or ([], {})
        ours, settled = [*self._commits, *commits], dict[str, tuple[float, int]]()
        commits = [*(commit for commit in self._commits if commit not in old_commits), *old_commits, *commits]
        for number in {**self._of_partition, **dict.fromkeys(merged)}:
            depth, first = self._of_partition.get(number, (np.inf, 0))
            if number in merged and number not in settling:
                depth, first = min(depth, float(self._depths[number])), len(self._commits)
            settled[self._name(checksums[number])] = (round(depth, 6), commits.index(ours[first]))
        kept = {n: (depth, commits.index(old_commits[first])) for n, (depth, first) in old.items() if n not in settled}
        kept |= settled
        while kept:
            oldest = min(first for _, first in kept.values())
            partitions = {name: [depth, first - oldest] for name, (depth, first) in kept.items()}
            text = SETTLED.dump({"commits": commits[oldest:], "partitions": partitions})
            if len(text) <= SETTLED.longest:
                return {SETTLED: text}
            del kept[next(iter(kept))]
        return {SETTLED: None}

    @cached_property
    def _of_partition(self) -> dict[int, tuple[float, int]]:
        """The depth and the first commit of each recorded partition, by its code."""
        if not self._recorded:  # spares the checksums
            return {}
        names = enumerate(map(self._name, self._checksums.tolist()))
        return {number: self._recorded[name] for number, name in names if name in self._recorded}

    def _name(self, checksum: int) -> str:
        """Return the name of a partition in the record: by its files and the rules."""
        return str(checksum + _checksum([self._rules]))

    @cached_property
    def _depths(self) -> FloatArray:
        """Mean depth of the eligible rows of each partition; touching does not count."""
        eligible = self._policy.candidates(self._blocks)
        partitions, weight = int(self._blocks.partition.max()) + 1, eligible.rows.astype(np.float64)
        rows = np.bincount(eligible.partition, weight, partitions)
        total = np.bincount(eligible.partition, eligible.cells().depths() * weight, partitions)
        depths: FloatArray = total / np.maximum(rows, 1)
        return depths

    @cached_property
    def _checksums(self) -> IntArray:
        """The checksum of the files of each partition: int64 (partitions,)."""
        of_paths = [_checksum([path]) for path in self._metadata.path.to_pylist()]
        return np.bincount(self._blocks.partition, of_paths).astype(np.int64)


def _checksum(paths: Iterable[str]) -> int:
    """Return the sum of the checksums of paths, which a merge updates by its own files."""
    return sum(zlib.crc32(path.encode()) for path in paths)
