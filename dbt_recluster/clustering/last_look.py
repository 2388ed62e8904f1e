"""The last look that found a table well clustered, so that the next one reads only what has changed since.

A plan that no limit cuts takes every block set there is, so nothing is to be done outside the partitions of its sets.
The commit that follows changes these partitions and no others. So it records, in a property of the table, the snapshot
that was planned, its own snapshots, and the partitions: whoever looks next reads these, and those that differ from the
commit's last snapshot, or, if others committed during the merge, those that differ from the planned one.

A look that finds nothing to do must not commit, and is remembered by the process alone. Forgetting either costs a look
at the whole table.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from typing import Any

from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.iceberg.changed_partitions import (
    ChangedPartitions,
    PartitionText,
    changed_partitions,
    partition_of,
)
from dbt_recluster.iceberg.recorded_levels import recorded_levels
from dbt_recluster.planner import Policy

PROPERTY = "recluster.looked"
# Tables that a process remembers.
_MOST = 10_000
# Characters of the property; a Hive metastore may hold 4,000.
_LONGEST = 2_000


class LastLook:
    """What the last look at a table found, by anybody who looked with the same rules.

    Args:
        table: The table.
        policy: The policy to look with. Its `max_bytes` does not matter: a look that it cuts is not recorded.
    """

    def __init__(self, table: KeyedTable, policy: Policy) -> None:
        self._table = table
        self._policy = policy

    def changed(self) -> ChangedPartitions | None:
        """Return the partitions that have changed since; None if the whole table has to be read."""
        for snapshot_id, partitions in self._looks():
            changed = changed_partitions(self._table.iceberg, snapshot_id, partitions)
            if changed is not None:
                return changed
        return None

    def remember(self) -> None:
        """Remember in this process that nothing is to be done in the current snapshot."""
        snapshot_id = self._table.iceberg.snapshot_id
        if snapshot_id is not None:
            _REMEMBERED.put(self._rules(self._levels()), snapshot_id)

    def properties(
        self, planned: int, committed: Sequence[int], files: Sequence[Any], levels: Mapping[int, int]
    ) -> Mapping[str, str | None]:
        """Return what a commit records if the plan that it carries out took every block set of a snapshot.

        Args:
            planned: The snapshot that was planned.
            committed: The snapshots that the commit adds, in order.
            files: A Java data file of each set.
            levels: The levels that the table has recorded after the commit, by snapshot.
        """
        look: dict[str, Any] = {"rules": self._rules(levels), "planned": planned}
        texts = sorted({partition_of(self._table.iceberg, file) for file in files})
        partitions = [(spec_id, json.loads(values)) for spec_id, values in texts]
        whole = json.dumps({**look, "committed": list(committed), "partitions": partitions})
        return {PROPERTY: whole if len(whole) <= _LONGEST else json.dumps(look)}

    def _looks(self) -> Iterator[tuple[int, Sequence[PartitionText]]]:
        """Yield the snapshots that were looked at with the same rules, the youngest first.

        Beside each are the partitions in which there may be something to do all the same.
        """
        rules = self._rules(self._levels())
        remembered = _REMEMBERED.get(rules)
        if remembered is not None:
            yield remembered, ()
        try:
            recorded = json.loads(self._table.iceberg.properties.get(PROPERTY, "{}"))
            if recorded["rules"] != rules:
                return
            planned, committed = int(recorded["planned"]), list(map(int, recorded.get("committed", ())))
            partitions = [
                (int(spec_id), json.dumps(values)) for spec_id, values in recorded.get("partitions", ())
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        if committed and self._follow_one_another([planned, *committed]):
            yield committed[-1], partitions
        yield planned, ()

    def _follow_one_another(self, snapshots: Sequence[int]) -> bool:
        """Whether each snapshot but the first is in the table, and the one before is its parent."""
        found = map(self._table.iceberg.snapshot, snapshots[1:])
        return all(s is not None and s.parent == before for s, before in zip(found, snapshots, strict=False))

    def _levels(self) -> dict[int, int]:
        return recorded_levels(self._table.iceberg.properties)

    def _rules(self, levels: Mapping[int, int]) -> str:
        """Return a digest of all that a plan depends on besides the blocks."""
        iceberg = self._table.iceberg
        rules = {
            "version": _version(),
            "table": iceberg.uuid,
            "key": str(self._table.key),
            "policy": asdict(replace(self._policy, max_bytes=None)),
            "schema": iceberg.schema_json,
            "spec": int(iceberg.java.spec().specId()),
            "sort_order": int(iceberg.java.sortOrder().orderId()),
            "levels": sorted(levels.items()),
        }
        return hashlib.sha256(json.dumps(rules).encode()).hexdigest()[:16]


def forget() -> None:
    """Forget what this process remembers, as if it had just begun."""
    _REMEMBERED.clear()


class _Remembered:
    """The snapshots that this process has looked at, by the rules of the look."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, rules: str) -> int | None:
        with self._lock:
            return self._snapshots.get(rules)

    def put(self, rules: str, snapshot_id: int) -> None:
        with self._lock:
            self._snapshots[rules] = snapshot_id
            self._snapshots.move_to_end(rules)
            if len(self._snapshots) > _MOST:
                self._snapshots.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._snapshots.clear()


_REMEMBERED = _Remembered()


@cache
def _version() -> str:
    """The version of the package: another one may plan otherwise."""
    return metadata.version("dbt-recluster")
