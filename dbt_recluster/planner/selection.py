"""What a plan selects, and why: the strategy's sets, compactions, and blocks with many deleted rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import BlockSets, Candidates, WorstDepth, fit_into_bytes, no_sets
from dbt_recluster.planner.compaction import select_compactions
from dbt_recluster.planner.gain import Gain, reveals_less
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies import BY_NAME
from dbt_recluster.planner.strategies.axis import Intervals, Prices
from dbt_recluster.text import size as size_text

# Kinds of sets: of the strategy, of small neighbours, and of one block with many deleted rows.
MERGE, COMPACTION, DELETED = range(3)


@dataclass(frozen=True, eq=False)
class Selection:
    """The sets of a plan, best first."""

    sets: BlockSets
    kind: IntArray  # `MERGE`, `COMPACTION` or `DELETED` for each set, int64 (sets,)
    worst: WorstDepth  # the depth that the strategy compared with a threshold

    def of(self, kind: int) -> BlockSets:
        """The sets of one kind."""
        return self.sets.only(self.kind == kind)


def select_sets(blocks: Blocks, eligible: Candidates, thresholds: FloatArray, policy: Policy) -> Selection:
    """Select the strategy's sets, compactions and blocks with deleted rows, as far as they fit into the budget."""
    strategy = BY_NAME[policy.strategy]
    sets, worst = no_sets(), WorstDepth()
    if len(eligible):
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
    worth = blocks.deleted_at_least(policy.deleted_share)[eligible.position]
    worth[taken] = False
    if policy.max_merge_bytes is not None:
        worth &= eligible.bytes <= policy.max_merge_bytes
    member = np.flatnonzero(worth)
    return BlockSets(member, np.arange(len(member)))


def _worthwhile(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> BlockSets:
    """The sets that lower a depth, leave fewer blocks, or rewrite a block with many deleted rows."""
    sets = sets.only(reveals_less(blocks, sets.at(eligible.position)))
    if len(sets) == 0:
        return sets
    gain = Gain.of(blocks, sets.at(eligible.position))
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
    prices = Prices.of(intervals, eligible)
    hull = sets.greatest(prices.high) - sets.least(prices.low)
    # A block alone on the axis is two units long.
    removed = (sets.total(prices.length) - hull) / 2
    wasted = sets.total(eligible.deleted_share * (intervals.length / 2 + 1))
    fewer = np.maximum(sets.size - expected_blocks(eligible, sets, policy), 0)
    cost = sets.total(eligible.bytes if eligible.bytes.any() else eligible.rows)
    savings: FloatArray = (np.maximum(removed, 0) + fewer + wasted) / np.maximum(cost, 1)
    return savings


def expected_blocks(eligible: Candidates, sets: BlockSets, policy: Policy) -> IntArray:
    """Blocks that merging each set will write: int64 (sets,)."""
    bytes_left = np.ceil(eligible.bytes * (1 - eligible.deleted_share)).astype(np.int64)
    return policy.full_block.count(sets.total(eligible.rows - eligible.deleted), sets.total(bytes_left))


def reason_of(blocks: Blocks, eligible: Candidates, selection: Selection, policy: Policy) -> str:
    """Describe what is selected, or why nothing is."""
    depth, limit, by_reads = selection.worst
    where = " in the worst partition" if blocks.partition.any() else ""
    figure = f"{'reducible read depth' if by_reads else 'reducible depth'} {depth:.4g}{where}"
    parts = [f"{figure} is above {limit:.4g}"] if (selection.kind == MERGE).any() else []
    if len(compactions := selection.of(COMPACTION)):
        parts.append(_compactions_text(eligible, compactions, policy))
    if deleted := len(selection.of(DELETED)):
        have = "1 block has" if deleted == 1 else f"{deleted} blocks have"
        parts.append(f"{have} {policy.deleted_share:.0%} or more of the rows deleted")
    if parts:
        return ", and ".join(parts)
    unnarrowed = blocks.extents.unnarrowed | blocks.unbounded & (blocks.level > 0)
    count = np.count_nonzero(unnarrowed & ~blocks.fixed)
    left = f"a merge did not narrow the bounds of {'1 block' if count == 1 else f'{count} blocks'}"
    if depth == 0:
        reason = "no block can be narrowed: all are full blocks of a single key"
        return f"{reason}, or {left}" if count else reason
    reason = f"{figure} is at most {limit:.4g}"
    if depth > limit:
        reason = f"{figure} is above {limit:.4g}, but no merge would lower it"
    elif depth > 1 and policy.max_bytes is not None:
        reason += ", and a depth of 1 would merge further"  # runs still overlap
    return f"{reason}, and {left}" if count else reason


def _compactions_text(eligible: Candidates, compactions: BlockSets, policy: Policy) -> str:
    """Describe compactions: "53 small blocks make 6 full ones"."""
    is_small = policy.full_block.is_small
    rows, size = eligible.rows[compactions.member], eligible.bytes[compactions.member]
    count, small = len(compactions.member), int(np.count_nonzero(is_small(rows, size)))
    written = int(expected_blocks(eligible, compactions, policy).sum())
    blocks = f"{count} small blocks" if small == count else f"{count} blocks, {small} of them small,"
    # Compactions of a lower tier leave small blocks.
    is_lower_tier = is_small(compactions.total(eligible.rows), compactions.total(eligible.bytes)).any()
    return f"{blocks} make {written} {'larger' if is_lower_tier else 'full'} one{'s' if written > 1 else ''}"


def limited_reason(reason: str, limit: int, needed: int) -> str:
    """Add to the reason for an unlimited plan that no set of it fits into a limit of bytes, and what would do."""
    return f"{reason}, and no block set fits into {size_text(limit)}; {size_text(needed, up=True)} would do"
