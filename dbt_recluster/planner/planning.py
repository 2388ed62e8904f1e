"""The plan: the block sets to merge now, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, Intervals, fewest_chains
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.box_sets import BoxSets
from dbt_recluster.planner.candidates import (
    Candidates,
    Selected,
    SetArrays,
    WorstDepth,
    fit_into_bytes,
    no_sets,
    own_depth,
)
from dbt_recluster.planner.compaction import select_compactions
from dbt_recluster.planner.merges import BlockSet, Gain, Plan, Reason, Why, reveals_less, simulate
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS, MANY_SMALL, Policy
from dbt_recluster.planner.strategies.payback import compacted_levels, written_levels
from dbt_recluster.planner.strategies.strategy import BY_NAME

# Kinds of sets: of the strategy, by boxes, of small neighbours, and of one block with many deleted rows.
_MERGE, _BOXES, _COMPACTION, _DELETED = range(4)


def plan(blocks: Blocks, policy: Policy) -> Plan:
    """Plan which block sets to merge now, in O(n log n).

    The same blocks give the same plan in any order. Repeating plan and merge ends with an empty plan. A merge raises
    the depth of no key, except of keys whose rows alone fill a block, and from 0 to 1 between small neighbours.
    With `payback`, blocks of which many rows are deleted are rewritten too, and large files under a curve, each alone.

    Args:
        blocks: n blocks.
        policy: The strategy, the threshold and the limits.

    Raises:
        PolicyError: The policy limits bytes, and the blocks' bytes are unknown.
    """
    budget = policy.set_limits.bytes
    if blocks.bytes is None and budget is not None:
        raise PolicyError("max_bytes and max_merge_bytes need the blocks' bytes, which are not known")
    if len(blocks) == 0:
        return Plan(reasons=(Reason(Why.NO_BLOCKS),), threshold=policy.threshold or 1.0)
    planner = _Planner(policy.candidates(blocks), policy)
    selection = planner.select()
    can_merge, left, needed = len(selection.sets) > 0, 0, None
    worst = planner.worst(selection)
    reasons = planner.reasons(selection, worst)
    if not can_merge and budget is not None:
        unlimited = planner.within(None)
        everything = unlimited.select()
        if left := len(everything.sets.member):
            least = int(everything.sets.total(planner.eligible.bytes).min())
            needed = _needed_bytes(lambda most: len(planner.within(most).select().sets) > 0, budget, least)
            reasons = *unlimited.reasons(everything, worst), Reason(Why.NO_SET_FITS, (budget, needed))
            unbudgeted = replace(planner, policy=replace(policy, max_bytes=None))
            can_merge = policy.max_merge_bytes is None or len(unbudgeted.select().sets) > 0
    sets = planner.block_sets(selection)
    planned = Plan(sets, rows=sum(s.rows for s in sets), bytes=sum(s.bytes for s in sets), reasons=reasons)
    limited, is_small = needed is not None, policy.is_small_table
    return replace(planned, limited=limited, left=left, can_merge=can_merge, is_small=is_small, **worst._asdict())


def _needed_bytes(suffices: Callable[[int], bool], budget: int, most: int) -> int:
    """Return the smallest budget, to a sixteenth, that leaves a set; ``budget`` leaves none, ``most`` does."""
    least = min(budget, most)
    while 2 * least < most and not suffices(max(1, 2 * least)):
        least = max(1, 2 * least)
    most = min(most, max(1, 2 * least))
    while most - least > max(1, most // 16):
        middle = (least + most) // 2
        least, most = (least, middle) if suffices(middle) else (middle, most)
    return most


@dataclass(frozen=True, eq=False)
class _Selection:
    """The sets of a plan, best first."""

    sets: SetArrays
    kind: IntArray  # of each set, int64 (sets,)
    worst: WorstDepth  # the depth that the strategy compared with a threshold

    def of(self, kind: int) -> SetArrays:
        """The sets of one kind."""
        return self.sets.only(self.kind == kind)


@dataclass(frozen=True, eq=False)
class _Planner:
    """The blocks that a plan may rewrite, and the policy that it follows."""

    eligible: Candidates
    policy: Policy

    def within(self, budget: int | None) -> _Planner:
        """The same planner with another budget and no limit on the bytes of a set."""
        return replace(self, policy=replace(self.policy, max_bytes=budget, max_merge_bytes=None))

    def select(self) -> _Selection:
        """Select the strategy's sets, compactions and blocks with deleted rows, within the budget."""
        eligible, policy = self.eligible, self.policy
        strategy = BY_NAME[policy.strategy]
        boxes, box_sets, worst = None, no_sets(), None
        if strategy.compacts and eligible.blocks.layout is not None and len(eligible) and not policy.is_small_table:
            boxes = BoxSets(eligible, eligible.blocks.layout, policy)
            box_sets = eligible.sets_of(boxes.select())
            worst = self._by_depth()[1] if len(box_sets) else None
        sets, of_rest = self._by_depth(box_sets.member)
        sets = no_sets() if policy.is_small_table else sets
        if boxes is not None:
            in_blocks = sets.at(eligible.position)
            sets = sets.only(np.array([boxes.pays(member) for member in in_blocks.members], np.bool_))
            taken = sets.then(box_sets).at(eligible.position).member
            box_sets = box_sets.then(eligible.sets_of(boxes.neighbours(taken)))
        kind = np.repeat([_MERGE, _BOXES], [len(sets), len(box_sets)])
        sets = sets.then(box_sets)
        if strategy.compacts:
            compactions = select_compactions(eligible, sets.member, policy)
            if (layout := eligible.blocks.layout) is not None:
                compactions = compactions.only(compactions.total(~layout.settled[eligible.position]) > 0)
            if policy.is_small_table and len(compactions.member) < MANY_SMALL:
                compactions = no_sets()
            deleted = self._deleted(np.concatenate([sets.member, compactions.member]))
            kind = np.append(kind, np.repeat([_COMPACTION, _DELETED], [len(compactions), len(deleted)]))
            sets = sets.then(compactions).then(deleted)
            # The order of the strategy, or along the key, where there is nothing to compare.
            if len(deleted) or len(np.unique(kind)) > 1:
                order = np.argsort(-self._savings(sets), kind="stable")
                sets, kind = sets.in_order(order), kind[order]
        fits = fit_into_bytes(eligible, sets, policy.max_bytes)
        return _Selection(sets.only(fits), kind[fits], worst or of_rest)

    def worst(self, selection: _Selection) -> WorstDepth:
        """The depth that decides, and the threshold as it was set.

        If no eligible block is above the threshold, measure all blocks that a merge could narrow but for their level or
        an earlier merge.
        """
        blocks, worst, tolerance = self.eligible.blocks, selection.worst, self.policy.tolerance
        could_be_narrowed = ~blocks.fixed & ~blocks.constant
        could_be_narrowed[self.eligible.position] = True
        is_met = worst.excess <= 1 or worst.by_level
        if is_met and np.count_nonzero(could_be_narrowed) > len(self.eligible):
            narrowable = Candidates.at(blocks, could_be_narrowed, self.policy.full_block)
            _, of_narrowable = replace(self, eligible=narrowable)._by_depth()
            worst = max(worst, of_narrowable, key=lambda one: one.excess)
        depth, threshold = (round(value / tolerance, 4) for value in worst[:2])
        partition = worst.partition if blocks.partition.any() else None
        return worst._replace(depth=max(depth, 1.0), threshold=threshold, partition=partition)

    def _by_depth(self, taken: IntArray | slice = slice(0)) -> Selected:
        """Select the strategy's sets among the candidates that are not taken, given by position."""
        free = np.ones(len(self.eligible), np.bool_)
        free[taken] = False
        place = np.flatnonzero(free)
        thresholds = self.policy.thresholds(np.bincount(self.eligible.blocks.partition))
        if not len(place):
            return no_sets(), WorstDepth(threshold=float(thresholds.max()))
        candidates = self.eligible if free.all() else self.eligible.take(free)
        limits = self.policy.set_limits._replace(pays=replace(self, eligible=candidates)._pays)
        sets, worst = BY_NAME[self.policy.strategy].select(candidates, thresholds, limits)
        return sets.at(place), worst

    def _pays(self, sets: SetArrays) -> BoolArray:
        """Whether each set lowers a depth, leaves fewer blocks, or rewrites a block with many deleted rows."""
        eligible, policy, in_blocks = self.eligible, self.policy, sets.at(self.eligible.position)
        gain, expected = Gain.from_sets(eligible.blocks, in_blocks), self.expected_blocks(sets)
        pays = gain.lowers_average(expected, policy.block_rows) | gain.lowers_reads() | (expected < sets.size)
        pays |= sets.total(eligible.deleted_share >= policy.deleted_share) > 0
        return pays & reveals_less(eligible.blocks, in_blocks)

    def _deleted(self, taken: IntArray) -> SetArrays:
        """Make a set of each candidate with `Policy.deleted_share` of its rows deleted that is not taken, by position.

        Merging it with itself writes the rows that are left, within its bounds, so no key becomes deeper, and the new
        block has no deleted rows, so it is not selected again.
        """
        pays = self.eligible.blocks.deleted_at_least(self.policy.deleted_share)[self.eligible.position]
        pays[taken] = False
        if self.policy.max_merge_bytes is not None:
            pays &= self.eligible.bytes <= self.policy.max_merge_bytes
        member = np.flatnonzero(pays)
        return SetArrays(member, np.arange(len(member)))

    def _savings(self, sets: SetArrays) -> FloatArray:
        """Blocks that reads need not open after each set is merged, for each byte rewritten: float64 (sets,).

        A read of one key opens every block over the key; a read of a range, or the planning of a scan, every block in
        the range. So a set saves the overlap that it removes, in lengths of blocks, and the number of blocks. Both
        count alike, as if each read of one key came with a read of a range as long as a block. Both kinds of read waste
        the share of a block's rows that is deleted.
        """
        eligible = self.eligible
        units = eligible.units()
        axis = eligible.weighted_axis(units)
        hull = sets.greatest(axis.high) - sets.least(axis.low)
        # A block alone on the axis is two units long.
        removed = (sets.total(axis.length) - hull) / 2
        wasted = sets.total(eligible.deleted_share * (units.length / 2 + 1))
        fewer = np.maximum(sets.size - self.expected_blocks(sets), 0)
        cost = sets.total(eligible.bytes if eligible.bytes.any() else eligible.rows)
        savings: FloatArray = (np.maximum(removed, 0) + fewer + wasted) / np.maximum(cost, 1)
        return savings

    def expected_blocks(self, sets: SetArrays) -> IntArray:
        """Blocks that merging each set will write: int64 (sets,)."""
        eligible = self.eligible
        bytes_left = np.ceil(eligible.bytes * (1 - eligible.deleted_share)).astype(np.int64)
        rows_left = sets.total(eligible.rows - eligible.deleted)
        return self.policy.full_block.count(rows_left, sets.total(bytes_left))

    def reasons(self, selection: _Selection, worst: WorstDepth) -> tuple[Reason, ...]:
        """Return the reasons for the selected sets, or for selecting none."""
        eligible, (depth, threshold, by_reads, by_level, partition) = self.eligible, worst
        compared = Reason(Why.DEPTH, (depth, threshold, by_reads, partition))
        reasons = []
        if boxes := len(selection.of(_BOXES)):
            reasons.append(Reason(Why.CURVE_COSTS, (boxes,)))
        if len(compactions := selection.of(_COMPACTION)):
            reasons.append(self._compacted(compactions))
        if deleted := len(selection.of(_DELETED)):
            reasons.append(Reason(Why.DELETED_ROWS, (deleted, self.policy.deleted_share)))
        is_compared = (selection.kind == _MERGE).any()
        if not len(selection.sets):
            is_compared = bool(len(eligible)) or depth > threshold
            reasons = self._left()
            if not len(eligible):
                reasons = [Reason(Why.NO_CANDIDATES, tuple(reasons))]
            elif by_level:
                reasons.insert(0, Reason(Why.LEVELS_WITHIN_THRESHOLD, (threshold,)))
            elif depth > threshold and self.policy.is_small_table:
                reasons = [Reason(Why.SMALL_TABLE, (LEAST_FULL_BLOCKS,))]
            elif depth > threshold:
                reasons = reasons or [Reason(Why.NO_GAIN, (eligible.blocks.layout is not None,))]
        return (compared, *reasons) if is_compared else tuple(reasons)

    def _left(self) -> list[Reason]:
        """Return why blocks are no candidates; single keys count only if there are no candidates at all."""
        blocks, most = self.eligible.blocks, self.policy.max_level
        at_most = ~blocks.fixed & (blocks.level >= most)
        unnarrowed = blocks.extents.unnarrowed | blocks.unbounded & (blocks.level > 0)
        unnarrowed &= ~blocks.fixed & ~at_most
        reasons = []
        if not len(self.eligible) and not (blocks.fixed | at_most | unnarrowed).all():
            reasons.append(Reason(Why.SINGLE_KEYS))
        if unnarrowed.any():
            reasons.append(Reason(Why.NOT_NARROWED, (int(unnarrowed.sum()),)))
        if at_most.any():
            reasons.append(Reason(Why.GREATEST_LEVEL, (most, int(at_most.sum()))))
        return reasons

    def _compacted(self, compactions: SetArrays) -> Reason:
        is_small, eligible = self.policy.full_block.is_small, self.eligible
        small = int(np.count_nonzero(is_small(eligible.rows, eligible.bytes)[compactions.member]))
        # Compactions of a lower tier leave small blocks.
        is_lower_tier = is_small(compactions.total(eligible.rows), compactions.total(eligible.bytes)).any()
        written = int(self.expected_blocks(compactions).sum())
        return Reason(Why.SMALL_BLOCKS, (len(compactions.member), small, written, not is_lower_tier))

    def block_sets(self, selection: _Selection) -> tuple[BlockSet, ...]:
        """Return the selected sets as `BlockSet` records."""
        eligible, sets = self.eligible, selection.sets
        if len(sets) == 0:
            return ()
        merged_levels = BY_NAME[self.policy.strategy].written_levels
        level = np.empty(len(sets), np.int64)
        for kind, levels in enumerate((merged_levels, written_levels, compacted_levels, compacted_levels)):
            level[selection.kind == kind] = levels(eligible, selection.of(kind))
        blocks, in_blocks = eligible.blocks, sets.at(eligible.position)
        columns: dict[str, list[Any]] = {
            "blocks": [np.sort(members) for members in in_blocks.members],
            "level": level.tolist(),
            "rows": sets.total(eligible.rows * (blocks.rows is not None)).tolist(),
            "bytes": sets.total(eligible.bytes).tolist(),
            "depth": own_depth(eligible, sets).tolist(),
            "expected_depth": _expected_depth(eligible, sets).tolist(),
            "expected_blocks": self.expected_blocks(sets).tolist(),
            "run": fewest_chains(level, in_blocks.least(blocks.lower), in_blocks.greatest(blocks.upper)),
            "partition": eligible.partition[sets.member[sets.start]].tolist(),
            "is_merge": (selection.kind <= _COMPACTION).tolist(),
        }
        records = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return tuple(BlockSet(**record) for record in records)


def _expected_depth(eligible: Candidates, sets: SetArrays) -> IntArray:
    """Greatest depth over each set's cells when every set has become disjoint blocks: int32 (sets,)."""
    untouched = np.ones(len(eligible), np.bool_)
    untouched[sets.member] = False
    first = np.append(sets.least(eligible.first), eligible.first[untouched])
    last = np.append(sets.greatest(eligible.last), eligible.last[untouched])
    cells = Intervals.from_closed(first, last)
    return cells.take(slice(len(sets))).greatest(cells.depth())


def simulate_rounds(blocks: Blocks, policy: Policy) -> Iterator[tuple[Plan, Blocks]]:
    """Repeat plan and merge until a plan is empty; yield each plan, with its own budget, and the blocks after it."""
    while (planned := plan(blocks, policy)).block_sets:
        blocks = simulate(blocks, planned, policy)
        yield planned, blocks
