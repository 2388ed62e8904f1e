"""What a plan selects, and why: the strategy's sets, compactions, and blocks with many deleted rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, WorstDepth, fit_into_bytes, no_sets
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.compaction import select_compactions
from dbt_recluster.planner.gain import Gain, reveals_less
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies import BY_NAME
from dbt_recluster.planner.strategies.axis import Intervals, Prices
from dbt_recluster.text import size

# Kinds of sets: of the strategy, of small neighbours, and of one block with many deleted rows.
MERGE, COMPACTION, DELETED = range(3)


@dataclass(frozen=True, eq=False)
class Selection:
    """The sets of a plan.

    Attributes:
        sets: The sets, best first.
        kind: `MERGE`, `COMPACTION` or `DELETED` for each set, int64 (sets,).
        worst: The depth that the strategy compared with a threshold.
    """

    sets: BlockSets
    kind: IntArray
    worst: WorstDepth

    def of(self, kind: int) -> BlockSets:
        """The sets of one kind."""
        return self.sets.only(self.kind == kind)


def select_sets(blocks: Blocks, eligible: Candidates, thresholds: FloatArray, policy: Policy) -> Selection:
    """Select the strategy's sets, compactions and blocks with deleted rows, as far as they fit into the budget."""
    strategy = BY_NAME[policy.strategy]
    sets, worst = strategy.select(eligible, thresholds, policy.max_set_bytes)
    sets = _worthwhile(blocks, eligible, sets, policy)
    kind = np.full(len(sets), MERGE)
    if strategy.compacts:
        compactions = select_compactions(blocks, eligible, sets.member, policy)
        taken = np.concatenate([sets.member, compactions.member])
        deleted = _select_deleted(blocks, eligible, taken, policy)
        kind = np.repeat([MERGE, COMPACTION, DELETED], [len(sets), len(compactions), len(deleted)])
        sets = sets.then(compactions).then(deleted)
        # The order of the strategy, or along the key, where there is nothing to compare.
        if len(deleted) or len(np.unique(kind)) > 1:
            order = np.argsort(-_savings(eligible, sets, policy), kind="stable")
            sets, kind = sets.in_order(order), kind[order]
    fits = fit_into_bytes(eligible, sets, policy.max_bytes)
    return Selection(sets.only(fits), kind[fits], worst)


def _select_deleted(blocks: Blocks, eligible: Candidates, taken: IntArray, policy: Policy) -> BlockSets:
    """Make a set of each block that has `Policy.deleted_share` of its rows deleted and is in no other set.

    Merging it with itself writes the rows that are left, within its bounds, so no key becomes deeper, and the new
    block has no deleted rows, so it is not selected again. ``taken`` are the positions in the candidates of the blocks
    of other sets, int64 (m,).
    """
    if blocks.deleted is None:
        return no_sets()
    worth = blocks.deleted_at_least(policy.deleted_share)[eligible.position]
    worth[taken] = False
    if policy.max_merge_bytes is not None:
        worth &= eligible.bytes <= policy.max_merge_bytes
    member = np.flatnonzero(worth)
    return BlockSets(member, np.arange(len(member)))


def _worthwhile(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> BlockSets:
    """The sets that lower a depth, leave fewer blocks, or rewrite a block with many deleted rows."""
    sets = sets.only(reveals_less(blocks, eligible.position[sets.member], sets))
    if len(sets) == 0:
        return sets
    gain = Gain.of(blocks, eligible.position[sets.member], sets)
    expected = expected_blocks(eligible, sets, policy)
    worth = gain.lowers_average(expected, policy.block_rows) | gain.lowers_reads() | (expected < sets.size)
    return sets.only(worth | (sets.total(eligible.deleted_share >= policy.deleted_share) > 0))


def _savings(eligible: Candidates, sets: BlockSets, policy: Policy) -> FloatArray:
    """Blocks that reads need not open after each set is merged, for each byte rewritten: float64 (sets,).

    A read of one key opens every block over the key; a read of a range, or the planning of a scan, every block in the
    range. So a set saves the coverage that it removes, in lengths of blocks, and the number of blocks that it removes.
    Both count alike, as if each read of one key came with a read of a range as long as a block. Both kinds of read
    waste the share of a block's rows that is deleted.
    """
    intervals = Intervals.of(eligible.first, eligible.last)
    prices = Prices.of(intervals, eligible, np.arange(len(eligible))).take(sets.member)
    intervals = intervals.take(sets.member)
    hull = np.maximum.reduceat(prices.high, sets.start) - np.minimum.reduceat(prices.low, sets.start)
    # A block alone on the axis is two units long.
    removed = (np.add.reduceat(prices.length.astype(np.float64), sets.start) - hull) / 2
    fewer = np.maximum(sets.size - expected_blocks(eligible, sets, policy), 0)
    wasted = eligible.deleted_share[sets.member] * (intervals.length / 2 + 1)
    cost = sets.total(eligible.bytes if eligible.bytes.any() else eligible.rows)
    saved = np.maximum(removed, 0) + fewer + np.add.reduceat(wasted, sets.start)
    savings: FloatArray = saved / np.maximum(cost, 1)
    return savings


def expected_blocks(eligible: Candidates, sets: BlockSets, policy: Policy) -> IntArray:
    """Blocks that merging each set will write: int64 (sets,)."""
    rows, size = sets.total(eligible.live_rows), sets.total(eligible.live_bytes)
    return policy.full_block.count(rows, size)


def reason_of(blocks: Blocks, eligible: Candidates, selection: Selection, policy: Policy) -> str:
    """Describe what is selected, or why nothing is."""
    depth, limit, by_reads = selection.worst
    where = " in the worst partition" if blocks.partition.any() else ""
    figure = f"{'reducible read depth' if by_reads else 'reducible depth'} {depth:.4g}{where}"
    beside = [
        text
        for text in (
            _compactions_text(eligible, selection.of(COMPACTION), policy),
            _deleted_text(len(selection.of(DELETED)), policy),
        )
        if text
    ]
    if (selection.kind == MERGE).any():
        return ", and ".join([f"{figure} is above {limit:.4g}", *beside])
    if beside:
        return ", and ".join(beside)
    left = _unnarrowed_text(blocks)
    if depth == 0:
        return "no block can be narrowed: all are full blocks of a single key" + (
            f", or {left}" if left else ""
        )
    verdict = (
        f"is above {limit:.4g}, but no merge would lower it" if depth > limit else f"is at most {limit:.4g}"
    )
    if 1 < depth <= limit and policy.max_bytes is not None:
        verdict += ", and a depth of 1 would merge further"  # runs still overlap
    return f"{figure} {verdict}" + (f", and {left}" if left else "")


def _unnarrowed_text(blocks: Blocks) -> str:
    """Describe blocks that merges have not narrowed; nothing if there are none."""
    wide = blocks.extents.unnarrowed | blocks.unbounded & (blocks.level > 0)
    count = np.count_nonzero(wide & ~blocks.fixed)
    if count == 0:
        return ""
    return f"a merge did not narrow the bounds of {'1 block' if count == 1 else f'{count} blocks'}"


def _deleted_text(count: int, policy: Policy) -> str:
    """Describe blocks with deleted rows; nothing if there are none."""
    if count == 0:
        return ""
    blocks = "1 block has" if count == 1 else f"{count} blocks have"
    return f"{blocks} {policy.deleted_share:.0%} or more of the rows deleted"


def _compactions_text(eligible: Candidates, compactions: BlockSets, policy: Policy) -> str:
    """Describe compactions: "53 small blocks make 6 full ones"; nothing if there are none."""
    if len(compactions) == 0:
        return ""
    rows, size = eligible.rows[compactions.member], eligible.bytes[compactions.member]
    small = int(np.count_nonzero(policy.full_block.is_small(rows, size)))
    count, written = len(compactions.member), int(expected_blocks(eligible, compactions, policy).sum())
    joined = f"{count} small blocks" if small == count else f"{count} blocks, {small} of them small,"
    rows, size = compactions.total(eligible.rows), compactions.total(eligible.bytes)
    # Compactions of a lower tier leave small blocks.
    larger = policy.full_block.is_small(rows, size).any()
    kind = "larger" if larger else "full"
    return f"{joined} make {written} {kind} one{'s' if written > 1 else ''}"


def limited_reason(reason: str, limit: int, needed: int) -> str:
    """Add to the reason for an unlimited plan that no set of it fits into a limit of bytes, and what would do."""
    return f"{reason}, and no block set fits into {size(limit)}; {size(needed, up=True)} would do"
