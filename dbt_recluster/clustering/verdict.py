"""How a table stands beside its threshold, and why: verdicts, and the sentences of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Literal, get_args

from dbt_recluster.planner import Plan, Reason, Why
from dbt_recluster.text import count_noun, size

# The worst first.
Verdict = Literal[
    "failing",
    "missing",
    "deep",
    "stuck",
    "not clusterable",
    "suspended",
    "unclustered",
    "well clustered by level",
    "well clustered",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def verdict_of(plan: Plan, *, is_suspended: bool = False) -> Verdict:
    """Return the verdict of a table that can be clustered, by the plan of its blocks."""
    if is_suspended:
        return "suspended"
    if plan.by_level:
        return "well clustered by level"
    if plan.depth <= plan.threshold:
        return "well clustered"
    return "deep" if plan.can_merge else "stuck"


class Stop(Enum):
    """Kinds of reasons to stop that no plan gives, and their figures."""

    SUSPENDED = auto()  # the suspension
    NO_CONDITION_MET = auto()  # the text of the conditions
    NO_BLOCK_ADMITTED = auto()
    MOST_ROUNDS = auto()  # rounds
    NOT_LOWERED = auto()
    UNCHANGED = auto()  # since the last check
    STILL_CLUSTERED = auto()  # since the last recluster
    # After the reasons of a plan.
    OF_CHANGED_PARTITIONS = auto()  # partitions
    ARRIVED_LATE = auto()  # blocks
    BUDGET_USED = auto()  # blocks left
    ROUND_DONE = auto()  # blocks left


# The sentences of those without figures.
_PLAIN: dict[Enum, str] = {
    Why.NO_BLOCKS: "no blocks",
    Why.SINGLE_KEYS: "all are full blocks of a single key",
    Why.RUNS_OVERLAP: "a depth of 1 would merge further",
    Stop.NO_BLOCK_ADMITTED: "no block can hold a row that the predicate admits",
    Stop.NOT_LOWERED: "the last merge did not lower it, and nothing has arrived since",
    Stop.UNCHANGED: "nothing has changed since the last check of the table",
    Stop.STILL_CLUSTERED: "unchanged since its last recluster",
}
_NOTES = (Stop.ARRIVED_LATE, Stop.BUDGET_USED, Stop.ROUND_DONE)
# What goes before a reason that follows another.
_LINKS: dict[Enum, str] = {
    Stop.OF_CHANGED_PARTITIONS: " ",
    Stop.NOT_LOWERED: ": ",
    **dict.fromkeys(_NOTES, "; "),
}


def reason_text(reasons: Sequence[Reason]) -> str:
    """Return reasons as one sentence."""
    text = ""
    for reason in reasons:
        text += (_LINKS.get(reason.kind, ", and ") if text else "") + _sentence(reason)
    return text


def cause_text(reasons: Sequence[Reason]) -> str:
    """Return the part of the sentence that depth, threshold and verdict leave open."""
    notes = [reason for reason in reasons if reason.kind in _NOTES]
    return reason_text(notes or [reason for reason in reasons if reason.kind is not Why.DEPTH])


def _sentence(reason: Reason) -> str:
    match reason.kind, *reason.figures:
        case Why.DEPTH, depth, limit, by_reads, of_partitions:
            where = " at the ends of reads" * by_reads + " in the worst partition" * of_partitions
            return f"depth {depth:.4g}{where} is {'above' if depth > limit else 'at most'} {limit:.4g}"
        case Why.DEPTH, depth:
            return f"depth {depth:.4g}"
        case Why.CURVE_COSTS, sets:
            merging = f"merging {count_noun(sets, 'block set')}"
            return f"{merging} saves reads of single columns more than it costs"
        case Why.SMALL_BLOCKS, count, small, written, are_full:
            blocks = f"{count} small blocks" if small == count else f"{count} blocks, {small} of them small,"
            size_of = "full" if are_full else "larger"
            return f"{blocks} make {written} {size_of} {'one' if written == 1 else 'ones'}"
        case Why.DELETED_ROWS, count, share:
            have = "1 block has" if count == 1 else f"{count} blocks have"
            return f"{have} {share:.0%} or more of the rows deleted"
        case Why.NO_CANDIDATES, *reasons:
            return f"no block can be narrowed: {', or '.join(map(_sentence, reasons)) or 'none may be rewritten'}"
        case Why.NOT_NARROWED, count:
            return f"a merge did not narrow the bounds of {count_noun(count, 'block')}"
        case Why.GREATEST_LEVEL, level, count:
            return f"merging ends at level {level}, reached by {count_noun(count, 'block')}"
        case Why.LEVELS_WITHIN_LIMIT, limit:
            return f"that of each level is at most {limit:.4g}"
        case Why.NO_GAIN, is_curve:
            return f"no merge would {'pay for itself' if is_curve else 'lower it'}"
        case Why.NO_SET_FITS, limit, needed:
            return f"no block set fits into {size(limit)}; {size(needed, up=True)} would do"
        case Stop.SUSPENDED, suspension:
            return f"suspended since {suspension}"
        case Stop.NO_CONDITION_MET, text:
            return f"no condition met: {text}"
        case Stop.MOST_ROUNDS, rounds:
            return f"stopped after {rounds} rounds"
        case Stop.OF_CHANGED_PARTITIONS, count:
            return f"in the {count_noun(count, 'partition')} changed since the last check of the table"
        case Stop.ARRIVED_LATE, count:
            return f"blocks that arrived meanwhile, {count}, are left to the next run"
        case Stop.BUDGET_USED, left:
            return f"budget used; {count_noun(left, 'block')} left"
        case Stop.ROUND_DONE, left:
            return f"one round done; {count_noun(left, 'block')} left"
    return _PLAIN[reason.kind]
