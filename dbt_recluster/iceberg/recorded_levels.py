"""The levels and runs of blocks, recorded by snapshot in one table property of bounded size.

A manifest entry keeps the id and the sequence number of the snapshot that added its file, also when manifests are
rewritten and snapshots expire. A run is one of our snapshots. The property has the level of each by its sequence
number, or by its id until a later commit knows the number, and always in tables of format version 1. If the levels do
not fit, those of the lower half of the numbers become one mean: their blocks are old, since a merge would have given
them a new number.

The mean is a guess: blocks of other writers have sequence numbers too, and since Iceberg 1.11 the table's sort order
id. So under the mean, only blocks with disjoint bounds are a run.

No sort order can name a curve, so the property has a digest of it; without one, the levels are for the sort order. A
lost level makes its blocks level 0, which costs work and never rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.iceberg_table import GREATEST_LONG, IcebergTable, whole_number
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.session.jvm import CONTENT_FILE, STRING, JavaFunctions, java_list
from dbt_recluster.iceberg.sort_order import CURVE_DIGEST, curve_digest, is_cluster_key, key_id
from dbt_recluster.iceberg.table_properties import LEVELS
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.types import BoolArray, IntArray

# Python's digits to the base of 26, and ours.
_DIGITS, _LETTERS = "0123456789abcdefghijklmnop", "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class RecordedLevels:
    """The levels of snapshots."""

    by_number: Mapping[int, int] = field(default_factory=dict)  # of the blocks that each added, by its number
    last_old: int = 0  # the last number up to which snapshots without their own level have `mean_old`
    mean_old: int = 0
    curve: str = ""  # a digest of the key if it has a curve

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> RecordedLevels:
        """Read a table's properties; a malformed one is ignored."""
        return LEVELS.load(properties.get(LEVELS), cls._of_json) or cls()

    @classmethod
    def _of_json(cls, recorded: Mapping[str, Any]) -> RecordedLevels:
        packed: dict[int, int] = {}
        for level, differences in recorded["levels"].items():
            packed |= dict.fromkeys(accumulate(_unpacked(differences)), int(level))
        last_old, mean_old = map(int, recorded["old"])
        numbers = (*packed, *packed.values(), last_old, mean_old)
        if min(numbers) < 0 or max(numbers) > GREATEST_LONG:
            raise ValueError(recorded)
        return cls(packed, last_old, mean_old, str(recorded.get("curve", ""))[:CURVE_DIGEST])

    def look_up(self, number: IntArray) -> IntArray:
        """Return the level of snapshots, -1 if unknown: int64 (n,)."""
        numbers, place = np.unique(number, return_inverse=True)
        of_old = {n: self.mean_old for n in numbers.tolist() if 0 < n <= self.last_old}
        levels = {**of_old, **self.by_number}
        return np.array([levels.get(n, -1) for n in numbers.tolist()], dtype=np.int64)[place]

    def packed(self) -> str:
        """Return a text that records this, or as much as fits."""
        by_level: dict[int, list[int]] = {}
        for number, level in sorted(self.by_number.items()):
            by_level.setdefault(level, [0]).append(number)
        differences = {
            level: "".join(_packed(number - before) for before, number in pairwise(numbers))
            for level, numbers in by_level.items()
        }
        curve = {"curve": self.curve} if self.curve else {}
        recorded = {**curve, "old": [self.last_old, self.mean_old], "levels": differences}
        text = LEVELS.dump(recorded)
        return text if len(text) <= LEVELS.longest else self._with_more_old().packed()

    def _with_more_old(self) -> RecordedLevels:
        numbers = sorted(self.by_number)
        half = (len(numbers) + 1) // 2
        old, young = np.array(numbers[:half]), numbers[half:]
        # Weighted by the range of numbers that each level stands for.
        share = np.maximum(np.diff(old, prepend=self.last_old), 0)
        levels = [self.mean_old, *(self.by_number[n] for n in numbers[:half])]
        mean = np.average(levels, weights=[self.last_old, *share.tolist()])
        young_levels = {n: self.by_number[n] for n in young}
        last_old = max(self.last_old, numbers[half - 1])
        return replace(self, by_number=young_levels, last_old=last_old, mean_old=round(float(mean)))


def _packed(number: int) -> str:
    """Return a positive number to the base of 26, in letters of which the last is a capital."""
    text = np.base_repr(number, 26).lower().translate(str.maketrans(_DIGITS, _LETTERS))
    return text[:-1] + text[-1].upper()


def _unpacked(text: str) -> list[int]:
    """Return the numbers in a text; a ValueError if it is malformed."""
    numbers = re.findall("[a-z]*[A-Z]", text)
    if "".join(numbers) != text:
        raise ValueError("not a list of packed numbers")
    return [int(number.lower().translate(str.maketrans(_LETTERS, _DIGITS)), 26) for number in numbers]


@dataclass(frozen=True)
class LevelChanges:
    """How a commit changes the recorded levels."""

    planned: RecordedLevels  # when the commit was planned
    live: Mapping[int, int]  # of the snapshots that may have had blocks then, by number
    obsolete: frozenset[int]  # the numbers of those that have none once all block sets are replaced

    @classmethod
    def from_blocks(cls, table: IcebergTable, blocks: BlockMetadata, replaced: BoolArray) -> LevelChanges:
        """Read the levels of a table before a merge of those of its n blocks that are ``replaced``, bool (n,)."""
        planned = RecordedLevels.from_properties(table.properties)
        number, level = _of_blocks(RecordedLevels(planned.by_number), table, blocks)
        live = dict(zip(number[level >= 0].tolist(), level[level >= 0].tolist(), strict=True))
        if table.has_other_branches:
            # Other branches may have blocks of any recorded snapshot.
            return cls(planned, {**planned.by_number, **live}, frozenset())
        return cls(planned, live, frozenset(live) - frozenset(number[~replaced].tolist()))

    def properties(self, table: IcebergTable, added: Mapping[int, int], *, all_replaced: bool) -> dict[str, str | None]:
        """Return the properties to set, given the table as the commit leaves it.

        ``added`` has the level of each snapshot of the commit, by id; ``all_replaced`` says whether it replaces all
        block sets.
        """
        (_, curve), now = key_id(table), RecordedLevels.from_properties(table.properties)
        if now.curve != curve:
            now = RecordedLevels(curve=curve)
        gone = self.obsolete if all_replaced else ()
        live = self.live if self.planned.curve == curve else {}
        levels = {number: level for number, level in live.items() if number not in gone}
        # Merges that others have committed since the plan.
        levels |= {n: level for n, level in now.by_number.items() if n not in self.planned.by_number}
        # By id, since another commit may still take the sequence number.
        levels |= added
        return {LEVELS: replace(now, by_number=levels).packed()}


def levels_and_runs(table: IcebergTable, blocks: BlockMetadata, key: ClusterKey) -> tuple[IntArray, IntArray]:
    """Return the level and the run of each block, int64 (n,) each, 0 if unknown.

    Unknown are blocks of other writers, those sorted by a former key, and all blocks if ``key`` is not the table's.
    """
    unknown = np.zeros(len(blocks), dtype=np.int64)
    if LEVELS not in table.properties:
        return unknown, unknown
    recorded = RecordedLevels.from_properties(table.properties)
    # The digest binds the levels of a curve to the ids of its columns.
    if recorded.curve != curve_digest(table, key) or not (key.curve or is_cluster_key(table, key)):
        return unknown, unknown
    _, level = _of_blocks(recorded, table, blocks)
    _, exact = _of_blocks(RecordedLevels(recorded.by_number), table, blocks)
    guessed = (level >= 0) & (exact < 0)
    overlap = _overlapping_loads(blocks.take(guessed), len(key.leading))
    level = np.where(guessed & np.isin(blocks.added_by, overlap), -1, level)
    # Bounds overlap within runs of a curve, whose planner decides by boxes which loads are runs.
    is_run = (level >= 0) & ~(guessed & bool(key.curve))
    return np.maximum(level, 0), np.where(is_run, blocks.added_by, unknown)


def _overlapping_loads(blocks: BlockMetadata, items: int) -> IntArray:
    """Return the snapshots whose blocks overlap by their bounds of the first key items: int64.

    The bounds of an item count only if the blocks have a single value of each item before it.
    """
    ends = [_ranks(*bounds) for bounds in zip(blocks.lower[:items], blocks.upper, blocks.unbounded, strict=False)]
    by_item = [end for lower, upper in ends for end in (lower, upper)]
    order = np.lexsort([*by_item[::-1], blocks.partition, blocks.added_by])
    load, partition = blocks.added_by[order], blocks.partition[order]
    undecided = (load[1:] == load[:-1]) & (partition[1:] == partition[:-1])
    overlap = np.zeros(len(undecided), np.bool_)
    for lower, upper in ((lower[order], upper[order]) for lower, upper in ends):
        overlap |= undecided & (lower[1:] < upper[:-1])
        undecided &= (lower[:-1] == upper[:-1]) & (lower[:-1] == lower[1:]) & (lower[1:] == upper[1:])
    return np.unique(load[1:][overlap])


def _ranks(lower: pa.Array, upper: pa.Array, unbounded: BoolArray) -> tuple[IntArray, IntArray]:
    """Rank bounds: NULL is 0, NaN is above all values, and an unknown upper bound above NaN."""
    both = pa.concat_arrays([lower, upper])
    ranks = np.zeros(len(both), np.int64)
    ranks[both.is_valid().to_numpy(zero_copy_only=False)] = pc.rank(both.drop_null(), tiebreaker="dense")
    return ranks[: len(lower)], np.where(unbounded, len(both) + 1, ranks[len(lower) :])


def reclustered_rows_removed(table: IcebergTable, snapshot_id: int, rounds: Mapping[int, int]) -> tuple[int, int]:
    """Count the blocks, and their rows, that a commit removed and that recluster rounds had written.

    Only the commit's own manifests are read, so its parent may have expired. ``rounds`` has the sequence numbers of
    rounds by snapshot, besides those that the table records. In tables of format version 1 only blocks of these count.
    """
    functions, io = JavaFunctions(table.spark), table.java.io()
    getters = [("location", STRING), ("fileSequenceNumber", "java.lang.Long"), ("recordCount", "long")]
    as_text = functions.function(functions.fields(CONTENT_FILE, getters))

    def records(files: Any) -> list[list[str]]:
        return functions.records(java_list(table.spark, files).stream().map(as_text).iterator())

    removed = records(table.java.snapshot(snapshot_id).removedDataFiles(io))
    sequence, rows = (np.array([whole_number(r[place]) or 0 for r in removed], np.int64) for place in (1, 2))
    exact = RecordedLevels(RecordedLevels.from_properties(table.properties).by_number)
    ours = np.isin(sequence, [number for number in rounds.values() if number]) | (exact.look_up(sequence) >= 0)
    if not sequence.all():
        added = (table.java.snapshot(round_id).addedDataFiles(io) for round_id in rounds)
        paths = {record[0] for files in added for record in records(files)}
        ours |= np.array([record[0] in paths for record in removed])
    return int(ours.sum()), int(rows[ours].sum())


def _of_blocks(recorded: RecordedLevels, table: IcebergTable, blocks: BlockMetadata) -> tuple[IntArray, IntArray]:
    """Return the number of each block's snapshot and the block's level, -1 if unknown: int64 (n,) each."""
    number = np.where(blocks.sequence > 0, blocks.sequence, blocks.added_by)
    level = recorded.look_up(number)
    level = np.where(level < 0, recorded.look_up(blocks.added_by), level)
    order = table.sort_order_id
    if order == 0:
        # In an unsorted table blocks of other writers look like ours, and an id, unlike a sequence number, has no age.
        of_ids = RecordedLevels(recorded.by_number).look_up(blocks.added_by)
        level = np.where(blocks.sequence > 0, level, of_ids)
    return number, np.where(blocks.sort_order_id == order, level, -1)
