"""Checkpoints: the snapshot up to which nothing is left to do, and the partitions where something is.

If a plan leaves nothing to do outside the partitions of its sets, its commit records them, the planned snapshot and its
own snapshots. The next check reads these partitions, and those that differ from the last of these snapshots, or from
the planned one if others committed meanwhile. A check that finds nothing to do must not commit, so only the process
remembers it. Without a checkpoint, a check reads the whole table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from dbt_recluster.clustering.curve_boundaries import curve_properties
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import digest
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.changed_partitions import (
    ChangedPartitions,
    PartitionText,
    changed_partitions,
    partition_of,
)
from dbt_recluster.iceberg.recorded_levels import level_properties
from dbt_recluster.iceberg.snapshots import GREATEST_LONG
from dbt_recluster.iceberg.table_properties import CHECKPOINT
from dbt_recluster.planner import Blocks, Plan, Policy, plan

logger = logging.getLogger(__name__)

# The earlier name of the property, still read.
_OLD_PROPERTY = "recluster.looked"
NO_CHECKPOINT: Mapping[str, str | None] = {CHECKPOINT: None, _OLD_PROPERTY: None}
# The last rules, and the snapshot of each table, by which this process found nothing to do.
_REMEMBERED: dict[str, tuple[str, int]] = {}


class Checkpoint:
    """The checkpoint of a table under the rules of this moment: all that a plan depends on besides the blocks.

    It is not recorded if the rules change meanwhile: threads may share Iceberg's table object, and commit to it.

    Attributes:
        policy: The policy to plan with, without `max_bytes`, which only puts work off.
        where: A predicate that restricts the plan; then nothing is remembered or recorded.
    """

    def __init__(self, table: ClusteredTable, policy: Policy, where: str | None = None) -> None:
        self._table, self.where = table, where
        self.policy = replace(policy, max_bytes=None)
        self._rules = self._rules_of(table.iceberg)

    def changed(self, snapshot_id: int) -> ChangedPartitions | None:
        """Return the partitions that changed until a snapshot or had something left to do; None for the whole table."""
        changes = (
            changed_partitions(self._table.iceberg, since, snapshot_id, partitions)
            for since, partitions in self._earlier(snapshot_id)
        )
        return next((changed for changed in changes if changed is not None), None)

    def is_of(self, snapshot_id: int) -> bool:
        """Whether a snapshot is of the commit that recorded the checkpoint, directly on what that had planned."""
        if self.where is not None or (recorded := self._recorded()) is None:
            return False
        planned, committed, _ = recorded
        return committed[-1] == snapshot_id and self._follow_one_another([planned, *committed])

    def remember(self, snapshot_id: int | None) -> None:
        """Remember in this process that nothing is left to do in a snapshot; None is that of an empty table."""
        is_of_main = self._table.iceberg.branch is None
        if snapshot_id is not None and self.where is None and is_of_main and self._still_holds():
            _REMEMBERED[self._table.iceberg.uuid] = digest(self._rules), snapshot_id

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
        self, planned: int, committed: Sequence[int], files: Sequence[Any], after: IcebergTable
    ) -> Mapping[str, str | None]:
        """Return the properties of a commit whose plan leaves nothing to do outside the partitions of its sets.

        Args:
            planned: The snapshot that was planned.
            committed: The snapshots that the commit adds, in order.
            files: A Java data file of each set.
            after: The table after the commit, which still lacks these properties.
        """
        if not self._still_holds():
            return NO_CHECKPOINT
        rules = digest(self._rules_of(after))
        checkpoint = {"rules": rules, "planned": planned, "committed": list(committed)}
        texts = sorted({partition_of(self._table.iceberg, file) for file in files})
        partitions = [(spec_id, json.loads(values)) for spec_id, values in texts]
        text = CHECKPOINT.dump({**checkpoint, "partitions": partitions})
        if len(text) > CHECKPOINT.longest:
            text = CHECKPOINT.dump(checkpoint)
        return {**NO_CHECKPOINT, CHECKPOINT: text}

    def _earlier(self, snapshot_id: int) -> Iterator[tuple[int, Sequence[PartitionText]]]:
        """Yield snapshots that were checked by the same rules, youngest first, and the partitions left to do."""
        known_rules, remembered = _REMEMBERED.get(self._table.iceberg.uuid, ("", 0))
        if known_rules == digest(self._rules):
            yield remembered, ()
        if (recorded := self._recorded()) is None:
            return
        planned, committed, partitions = recorded
        # A rollback takes the work of the commit back, and not the property.
        if not self._table.iceberg.is_ancestor(committed[-1], of=snapshot_id):
            return
        if partitions is not None and self._follow_one_another([planned, *committed]):
            yield committed[-1], partitions
        yield planned, ()

    def _recorded(self) -> tuple[int, list[int], list[PartitionText] | None] | None:
        """Return the planned snapshot, the committed ones and the partitions, None if not recorded by these rules."""
        properties = self._table.iceberg.properties
        return CHECKPOINT.load(properties.get(CHECKPOINT) or properties.get(_OLD_PROPERTY), self._read)

    def _read(self, recorded: Mapping[str, Any]) -> tuple[int, list[int], list[PartitionText] | None] | None:
        planned, committed = int(recorded["planned"]), list(map(int, recorded["committed"]))
        is_snapshot = committed and max(planned, *committed) <= GREATEST_LONG
        if recorded["rules"] != digest(self._rules) or not is_snapshot:
            return None
        if (given := recorded.get("partitions")) is None:
            return planned, committed, None
        return planned, committed, [(int(spec_id), json.dumps(values)) for spec_id, values in given]

    def _follow_one_another(self, snapshots: Sequence[int]) -> bool:
        """Whether each snapshot but the first is in the table, and the one before is its parent."""
        later = map(self._table.iceberg.snapshot, snapshots[1:])
        return all(s is not None and s.parent == before for s, before in zip(later, snapshots, strict=False))

    def _still_holds(self) -> bool:
        return self._rules == self._rules_of(self._table.iceberg)

    def _rules_of(self, iceberg: IcebergTable) -> Mapping[str, Any]:
        properties = iceberg.properties
        return {
            "version": _version(),
            "table": iceberg.uuid,
            "key": str(self._table.key),
            "curve": curve_properties(properties),
            "reads": repr(self._table.key_reads),
            "policy": asdict(replace(self.policy, block_bytes=self._table.block_bytes)),
            "schema": iceberg.schema_json,
            "spec": int(iceberg.java.spec().specId()),
            "sort_order": iceberg.sort_order_id,
            "levels": level_properties(properties),
        }


def nothing_to_do(table: ClusteredTable, policy: Policy) -> str | None:
    """Plan the partitions that changed since the checkpoint; return why nothing is left to do, or None."""
    try:
        snapshot = table.iceberg.current_snapshot()
        if snapshot is None or snapshot.count("total-data-files") is None:
            return None
        checkpoint = Checkpoint(table, policy)
        changed = checkpoint.changed(snapshot.id)
        if changed is None:
            return None
        reason = "nothing has changed since the last check of the table"
        if len(changed):
            blocks = table.blocks_among(changed, snapshot.id)
            planned = plan(blocks, checkpoint.policy)
            # Loads under a curve are sampled before they are planned.
            is_unread = blocks.layout is not None and blocks.layout.load.any()
            if planned.block_sets or planned.limited or is_unread:
                return None
            partitions = f"{len(changed)} partition{'s' if len(changed) > 1 else ''}"
            reason = f"{planned.reason} in the {partitions} changed since the last check of the table"
        checkpoint.remember(snapshot.id)
    except Exception:
        # A check of the whole table fails too, or does better.
        logger.debug("%s: the partitions that changed could not be read", table.name, exc_info=True)
        return None
    return reason


@cache
def _version() -> str:
    """The version of the package: another one may plan otherwise."""
    return metadata.version("dbt-recluster")
