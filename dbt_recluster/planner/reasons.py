"""Why there is, or is not, something to do, in words."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.block_sets import BlockSets
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.selected_sets import COMPACTION, MERGE, PURGE, SelectedSets, expected_blocks
from dbt_recluster.planner.small_blocks import small_blocks

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def reason_of(blocks: Blocks, eligible: Candidates, selected: SelectedSets, policy: Policy) -> str:
    """Describe what is selected, or why nothing is."""
    depth, limit, by_reads = selected.measured
    where = " in the worst partition" if blocks.partition.any() else ""
    figure = f"{'reducible read depth' if by_reads else 'reducible depth'} {depth:.4g}{where}"
    beside = [
        text
        for text in (
            _joins_text(eligible, selected.of(COMPACTION), policy),
            _purges_text(len(selected.of(PURGE)), policy),
        )
        if text
    ]
    if (selected.kind == MERGE).any():
        return ", and ".join([f"{figure} is above {limit:.4g}", *beside])
    if beside:
        return ", and ".join(beside)
    left = _unnarrowed_text(blocks)
    if depth == 0:
        return "no block can be narrowed: all are full blocks of a single key" + (
            f", or {left}" if left else ""
        )
    found = (
        f"is above {limit:.4g}, but no merge would lower it" if depth > limit else f"is at most {limit:.4g}"
    )
    if 1 < depth <= limit and policy.max_bytes is not None:
        found += ", and a depth of 1 would merge further"  # parts of a table stay over each other
    return f"{figure} {found}" + (f", and {left}" if left else "")


def _unnarrowed_text(blocks: Blocks) -> str:
    """Describe blocks that merges have not narrowed; nothing if there are none."""
    count = np.count_nonzero(blocks.unnarrowed & (blocks.level >= 0) | blocks.unbounded & (blocks.level > 0))
    if count == 0:
        return ""
    return f"a merge did not narrow the bounds of {'1 block' if count == 1 else f'{count} blocks'}"


def _purges_text(count: int, policy: Policy) -> str:
    """Describe blocks with deleted rows; nothing if there are none."""
    if count == 0:
        return ""
    blocks = "1 block has" if count == 1 else f"{count} blocks have"
    return f"{blocks} {policy.deleted_share:.0%} or more of the rows deleted"


def _joins_text(eligible: Candidates, joins: BlockSets, policy: Policy) -> str:
    """Describe joins: "53 small blocks make 6 full ones"; nothing if there are none."""
    if len(joins) == 0:
        return ""
    rows, size = eligible.rows[joins.member], eligible.bytes[joins.member]
    small = int(np.count_nonzero(small_blocks(rows, size, policy.block_rows, policy.block_bytes)))
    count, written = len(joins.member), int(expected_blocks(eligible, joins, policy).sum())
    joined = f"{count} small blocks" if small == count else f"{count} blocks, {small} of them small,"
    rows, size = joins.total(eligible.rows), joins.total(eligible.bytes)
    # The joins of a lower tier leave small blocks.
    larger = small_blocks(rows, size, policy.block_rows, policy.block_bytes).any()
    kind = "larger" if larger else "full"
    return f"{joined} make {written} {kind} one{'s' if written > 1 else ''}"


def limited_reason(reason: str, needed: int, policy: Policy) -> str:
    """Add to a reason that the policy's limits leave nothing of what it describes.

    Args:
        reason: The reason without limits.
        needed: Bytes for which something would be left.
        policy: The policy.
    """
    limit = min(limit for limit in (policy.max_bytes, policy.max_merge_bytes) if limit is not None)
    return f"{reason}, and no block set fits into {size(limit)}; {size(needed, up=True)} would do"


def size(count: int, *, up: bool = False) -> str:
    """Return a number of bytes in the unit that reads best: ``1.4 GB``.

    Args:
        count: The bytes.
        up: Round up, so that as a limit the text suffices.
    """
    unit, factor = best_unit(count)
    if factor == 1:
        return f"{count} bytes"
    tenths = -(-count * 10 // factor) if up else round(count * 10 / factor)
    return f"{tenths / 10:.1f} {unit}"


def best_unit(count: int) -> tuple[str, int]:
    """Return the unit that a number of bytes reads best in, and its bytes."""
    power = 0
    while count / 1024**power >= 1024 and power < len(_UNITS) - 1:
        power += 1
    return _UNITS[power], 1024**power
