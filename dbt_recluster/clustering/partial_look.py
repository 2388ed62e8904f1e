"""A look at what has changed since the last one: enough to tell that there is nothing to do, on most runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.clustering.last_look import Look
from dbt_recluster.planner import Policy, plan

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NothingToDo:
    """What a partial look tells of a table.

    Attributes:
        reason: Why there is nothing to do.
        blocks: Blocks of the table, read or not.
    """

    reason: str
    blocks: int


def look_at_changes(table: KeyedTable, policy: Policy) -> NothingToDo | None:
    """Plan the partitions that have changed since the last look.

    Returns:
        None if there may be something to do, and the whole table has to be read.
    """
    try:
        return _look(table, policy)
    except Exception:
        # A look at the whole table fails too, or does better.
        logger.debug("%s: the partitions that changed could not be read", table.name, exc_info=True)
        return None


def _look(table: KeyedTable, policy: Policy) -> NothingToDo | None:
    snapshot = table.iceberg.current_snapshot()
    if snapshot is None:
        return None
    blocks = snapshot.count("total-data-files")
    if blocks is None:
        return None
    look = Look(table, policy)
    changed = look.changed(snapshot.id)
    if changed is None:
        return None
    reason = "nothing has changed since the last look at the table"
    if len(changed):
        planned = plan(table.blocks_among(changed, snapshot.id), look.policy)
        if planned.block_sets or planned.limited:
            return None
        partitions = f"{len(changed)} partition{'s' if len(changed) > 1 else ''}"
        reason = f"{planned.reason} in the {partitions} changed since the last look at the table"
    look.remember(snapshot.id)
    return NothingToDo(reason, blocks)
