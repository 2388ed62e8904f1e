"""Settled blocks: those along a curve that merges cannot narrow.

The interval of a block on a curve is an estimate, so merged blocks may still overlap by it, and another merge may
change nothing. A commit therefore records, for each partition that it merges, the depth of its rows, and the commits
since they were less deep. Until another writer changes the partition, or its rows are less deep than recorded, the
blocks of these commits are settled: among themselves they count as one run. So every merge lowers the depth or leaves
fewer blocks that are not settled, and rounds end.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray, IntArray
from dbt_recluster.planner import Blocks, Plan, Policy
from dbt_recluster.planner.arrays import FloatArray


class Rest:
    """The record of settled blocks, applied to the blocks that are planned.

    Args:
        blocks: The blocks.
        metadata: The same blocks.
        policy: The policy of the plan.
        recorded: The property, or None.
        rules: A digest of all else that the plan depends on. A record of other rules counts as none.
    """

    def __init__(
        self, blocks: Blocks, metadata: BlockMetadata, policy: Policy, recorded: str | None, rules: str
    ) -> None:
        self._blocks, self._metadata, self._policy, self._rules = blocks, metadata, policy, rules
        self._commits, self._recorded = table_properties.REST.load(recorded, self._read) or ([], {})

    def _read(self, record: Mapping[str, Any]) -> tuple[list[int], dict[str, tuple[float, int]]] | None:
        if record["rules"] != self._rules:
            return None
        partitions = {
            str(name): (float(depth), int(first)) for name, (depth, first) in record["partitions"].items()
        }
        return list(map(int, record["commits"])), partitions

    @cached_property
    def settled(self) -> BoolArray:
        """The settled blocks: bool (n,)."""
        settled = np.zeros(len(self._blocks), np.bool_)
        for number, (depth, first) in self._of_partition.items():
            if self._depths[number] >= depth - 1e-6:  # recorded depths are rounded
                settled |= (self._blocks.partition == number) & np.isin(
                    self._metadata.added_by, self._commits[max(first, 0) :]
                )
        return settled

    @property
    def settled_depth(self) -> float:
        """The greatest depth of a partition with settled blocks."""
        return float(self._depths[np.unique(self._blocks.partition[self.settled])].max())

    def after(
        self, plan: Plan, paths: Sequence[tuple[Iterable[str], Iterable[str]]], commits: Sequence[int]
    ) -> dict[str, str | None]:
        """Return the property after a commit.

        Args:
            plan: The plan.
            paths: The paths of the files that each of its sets wrote, and of those that it replaced.
            commits: The snapshots of the commit.
        """
        checksums = self._checksums.copy()
        for block_set, (written, replaced) in zip(plan.block_sets, paths, strict=True):
            checksums[block_set.partition] += _checksum(written) - _checksum(replaced)
        merged = {block_set.partition for block_set in plan.block_sets if block_set.is_merge}
        settling = set(np.unique(self._blocks.partition[self.settled]).tolist())
        kept = {}
        for number in {**self._of_partition, **dict.fromkeys(merged)}:
            depth, first = self._of_partition.get(number, (np.inf, 0))
            if number in merged and number not in settling:
                depth, first = min(depth, float(self._depths[number])), len(self._commits)
            kept[str(checksums[number])] = (round(depth, 6), first)
        while kept:
            oldest = min(first for _, first in kept.values())
            record = {
                "rules": self._rules,
                "commits": [*self._commits[oldest:], *commits],
                "partitions": {name: [depth, first - oldest] for name, (depth, first) in kept.items()},
            }
            text = table_properties.REST.dump(record)
            if len(text) <= table_properties.REST.longest:
                return {table_properties.REST: text}
            del kept[next(iter(kept))]
        return {table_properties.REST: None}

    @cached_property
    def _of_partition(self) -> dict[int, tuple[float, int]]:
        """The depth and the first commit of each recorded partition, by its code."""
        names = enumerate(map(str, self._checksums.tolist()))
        return {number: self._recorded[name] for number, name in names if name in self._recorded}

    @cached_property
    def _depths(self) -> FloatArray:
        """Mean depth of the eligible rows of each partition; touching does not count."""
        eligible = self._policy.candidates(self._blocks)
        partitions = int(self._blocks.partition.max()) + 1
        rows = np.bincount(eligible.partition, eligible.rows, partitions)
        total = np.bincount(
            eligible.partition, eligible.cells().depths() * eligible.rows.astype(np.float64), partitions
        )
        depths: FloatArray = total / np.maximum(rows, 1)
        return depths

    @cached_property
    def _checksums(self) -> IntArray:
        """The checksum of the files of each partition: int64 (partitions,)."""
        of_paths = [_checksum([path]) for path in self._metadata.path.to_pylist()]
        return np.bincount(self._blocks.partition, of_paths).astype(np.int64)


def _checksum(paths: Iterable[str]) -> int:
    """Return the sum of the checksums of paths, to which a merge adds those of its own files."""
    return sum(zlib.crc32(path.encode()) for path in paths)
