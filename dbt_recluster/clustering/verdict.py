"""How a table stands beside its threshold, and why: verdicts, and the sentences of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal, NamedTuple

from dbt_recluster.planner import Plan, Reason, Why
from dbt_recluster.text import count_noun, size

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


class Meaning(NamedTuple):
    """What a verdict says of a table."""

    text: str
    by_depth: bool = False  # whether depth and threshold say why


# What each says of a table, the worst first.
VERDICTS: dict[Verdict, Meaning] = {
    "failing": Meaning("It cannot be read, or its key or options are refused."),
    "missing": Meaning("A model's table that does not exist."),
    "deep": Meaning("It is above its threshold, and a recluster would merge blocks.", by_depth=True),
    "stuck": Meaning(
        "No merge brings it below its threshold ([reasons](../guides/not-reclustered.md#it-needs-nothing))."
    ),
    "not clusterable": Meaning("It has a key of a type without an order, or no bounds of it."),
    "suspended": Meaning("It is suspended; its depth is shown."),
    "unclustered": Meaning("It has no cluster key."),
    "well clustered by level": Meaning(
        "It is above its threshold, but no level is, by which `peak` and `above_average` merge."
    ),
    "well clustered": Meaning("It needs nothing.", by_depth=True),
}


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
    """Kinds of reasons to stop that no plan gives: their sentences, with a place for each figure."""

    SUSPENDED = "suspended since {}"
    NO_CONDITION_MET = "no condition met: {}"
    NO_BLOCK_ADMITTED = "no block can hold a row that the predicate admits"
    NO_SET_IN_TIME = "no block set can be rewritten in {} s; one needs about {} s"
    MOST_ROUNDS = "stopped after {} rounds"
    NOT_LOWERED = "the last merge did not lower it, and nothing has arrived since"
    UNCHANGED = "nothing has changed since the last check of the table"
    STILL_CLUSTERED = "unchanged since its last recluster"
    # After the reasons of a plan.
    OF_CHANGED_PARTITIONS = "in the {} changed since the last check of the table"
    ARRIVED_LATE = "blocks that arrived meanwhile, {}, are left to the next run"
    BUDGET_USED = "budget used; {} left"
    ROUND_DONE = "one round done; {} left"


# What the figures of some count.
_NOUNS = {Stop.OF_CHANGED_PARTITIONS: "partition", Stop.BUDGET_USED: "block", Stop.ROUND_DONE: "block"}
_NOTES = (Stop.ARRIVED_LATE, Stop.BUDGET_USED, Stop.ROUND_DONE)
# What goes before a reason that follows another.
_LINKS: dict[Enum, str] = {Stop.OF_CHANGED_PARTITIONS: " ", Stop.NOT_LOWERED: ": ", **dict.fromkeys(_NOTES, "; ")}


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
        case Why.DEPTH, depth, threshold, by_reads, partition:
            where = " at the ends of reads" * by_reads + ("" if partition is None else f" in partition {partition}")
            return f"depth {depth:.4g}{where} is {'above' if depth > threshold else 'at most'} {threshold:.4g}"
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
        case Why.LEVELS_WITHIN_THRESHOLD, threshold:
            return f"that of each level is at most {threshold:.4g}"
        case Why.NO_GAIN, is_curve:
            return f"no merge would {'pay for itself' if is_curve else 'lower it'}"
        case Why.NO_SET_FITS, budget, needed:
            return f"no block set fits into {size(budget)}; it needs {size(needed, up=True)}"
        case Stop() as stop, *figures:
            noun = _NOUNS.get(stop)
            return stop.value.format(*(count_noun(of, noun) if noun else of for of in figures))
        case Why.NO_BLOCKS, *_:
            return "no blocks"
        case Why.SINGLE_KEYS, *_:
            return "all are full blocks of a single key"
        case Why.RUNS_OVERLAP, *_:
            return "a depth of 1 would merge further"
    raise AssertionError(reason)
