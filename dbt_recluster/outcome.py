"""What a recluster did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dbt_recluster.dry_run import DryRun


@dataclass(frozen=True)
class Round:
    """One round that was committed: plan, merge, commit."""

    sets: int
    blocks_in: int
    blocks_out: int
    bytes_in: int
    bytes_out: int
    rows: int
    seconds: float
    snapshot_ids: tuple[int, ...]
    conflicts: int = 0
    orphans: tuple[str, ...] = ()


@dataclass
class ReclusterReport:
    """What a recluster did, or would do.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        rounds: The rounds that were committed, in order.
        blocks_before, blocks_after: Blocks of the table.
        depth_before, depth_after: Average depth over the blocks that ``where`` admits.
        conflicts: How often a commit started again because another writer was faster.
        seconds: Wall time of everything.
        reason: Why it stopped.
        suspended: Since when the table is suspended, which is why nothing, or nothing more, was done.
        plan: With ``dry_run``, what the next round would do.
        orphans: Files written for blocks that another writer then changed, which could not be deleted.
    """

    table: str
    cluster_key: str
    rounds: list[Round] = field(default_factory=list)
    blocks_before: int = 0
    blocks_after: int = 0
    depth_before: float = 0.0
    depth_after: float = 0.0
    conflicts: int = 0
    seconds: float = 0.0
    reason: str = ""
    suspended: str | None = None
    plan: DryRun | None = None
    orphans: list[str] = field(default_factory=list)

    @property
    def blocks_in(self) -> int:
        """Blocks rewritten, over all rounds."""
        return sum(each.blocks_in for each in self.rounds)

    @property
    def blocks_out(self) -> int:
        """Blocks written, over all rounds."""
        return sum(each.blocks_out for each in self.rounds)

    @property
    def bytes_in(self) -> int:
        """Bytes of the blocks rewritten."""
        return sum(each.bytes_in for each in self.rounds)

    @property
    def bytes_out(self) -> int:
        """Bytes of the blocks written."""
        return sum(each.bytes_out for each in self.rounds)

    @property
    def rows(self) -> int:
        """Rows rewritten, over all rounds."""
        return sum(each.rows for each in self.rounds)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and strings."""
        return {
            "table": self.table,
            "cluster_key": self.cluster_key,
            "rounds": len(self.rounds),
            "blocks_in": self.blocks_in,
            "blocks_out": self.blocks_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "rows": self.rows,
            "blocks_before": self.blocks_before,
            "blocks_after": self.blocks_after,
            "depth_before": self.depth_before,
            "depth_after": self.depth_after,
            "conflicts": self.conflicts,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
            "suspended": self.suspended,
            "orphans": self.orphans,
            **({"plan": self.plan.as_dict()} if self.plan else {}),
        }
