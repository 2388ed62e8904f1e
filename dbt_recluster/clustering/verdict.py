"""The verdict on a table, decided here alone from what is known of it, and the sentences of its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from dbt_recluster.planner import Plan, Reason, Why
from dbt_recluster.text import count_noun, size

Verdict = Literal[
    "failing",
    "missing",
    "deep",
    "stuck",
    "waiting",
    "suspended",
    "not clusterable",
    "unclustered",
    "well clustered",
]
# What each says of a table, the worst first.
VERDICTS: dict[Verdict, str] = {
    "failing": "It cannot be read, its key or options are refused, or its last recluster failed.",
    "missing": "A model's table that does not exist.",
    "deep": "It is above its threshold, and a recluster would merge blocks.",
    "stuck": "It is above its threshold, and no block may be merged "
    "([reasons](../guides/not-reclustered.md#it-needs-nothing)).",
    "waiting": "It is above its threshold, and waits for a condition of its own, or automatic clustering is off.",
    "suspended": "It is suspended; its depth is shown.",
    "not clusterable": "It has a key of a type without an order, or no bounds of it.",
    "unclustered": "It has no cluster key.",
    "well clustered": "It needs nothing: it is at or below its threshold, as a whole or in each level, or small.",
}


@dataclass(frozen=True)
class Facts:
    """What is known of a table. Texts are empty where there is no such fact."""

    missing: str = ""  # why there is no table
    error: str = ""  # why it cannot be read, or its key or options are refused
    keyless: str = ""  # why it has no cluster key
    refusal: str = ""  # why its key cannot be used
    suspension: str = ""
    failure: str = ""  # of the last recluster
    waits: tuple[Reason, ...] = ()  # what keeps builds from reclustering it now
    plan: Plan = field(default_factory=Plan)  # of the whole table
    # Of the blocks that a predicate admits, None without one; and the reason to name beside the verdict.
    admitted: Plan | None = None
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Standing:
    """The verdict on a table, and why."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()

    @property
    def text(self) -> str:
        """The reasons as one sentence."""
        return reason_text(self.reasons)

    @property
    def cause(self) -> str:
        """The reasons without the depth comparison."""
        return cause_text(self.reasons)


def decide(facts: Facts) -> Standing:
    """Return the verdict that some facts give."""
    told: tuple[tuple[Verdict, Stop, str], ...] = (
        ("missing", Stop.STATED, facts.missing),
        ("failing", Stop.STATED, facts.error),
        ("unclustered", Stop.STATED, facts.keyless),
        ("not clusterable", Stop.STATED, facts.refusal),
        ("suspended", Stop.SUSPENDED, facts.suspension),
        ("failing", Stop.FAILED, facts.failure),
    )
    for verdict, kind, fact in told:
        if fact:
            return Standing(verdict, (Reason(kind, (fact,)),))
    plan, reasons = facts.plan, (*facts.plan.reasons, *facts.notes)
    if plan.depth <= plan.threshold or plan.by_level or plan.is_small:
        return Standing("well clustered", reasons)
    if not (facts.admitted or plan).can_merge:
        return Standing("stuck", reasons)
    return Standing("waiting", facts.waits) if facts.waits else Standing("deep", reasons)


class Stop(Enum):
    """Kinds of reasons that no plan gives: their sentences, with a place for each figure."""

    STATED = "{}"
    SUSPENDED = "suspended since {}"
    FAILED = "the last recluster failed: {}"
    AUTOMATIC_OFF = "automatic clustering is off"
    NO_CONDITION_MET = "no condition met: {}"
    NEXT_AFTER = "next recluster after {}"
    NO_BLOCK_ADMITTED = "no block can hold a row that the predicate admits"
    LEFT_OUT = "the predicate leaves {} out"
    NO_SET_IN_TIME = "no block set can be rewritten in {} s; one needs about {} s"
    MOST_ROUNDS = "stopped after {} rounds"
    NOT_LOWERED = "the last merge did not lower it, and nothing has arrived since"
    UNCHANGED = "nothing has changed since the last check of the table"
    STILL_CLUSTERED = "unchanged since its last recluster"
    # After the reasons of a plan.
    OF_CHANGED_PARTITIONS = "in the {} changed since the last check of the table"
    ARRIVED_LATE = "blocks that arrived meanwhile, {}, are left to the next run"
    BUDGET_TOO_SMALL = "the budget is smaller than what loads add: about {} a day"
    BUDGET_USED = "budget used; {} left"
    ROUND_DONE = "one round done; {} left"


# What the figures of some count.
_NOUNS = {
    Stop.OF_CHANGED_PARTITIONS: "partition",
    **dict.fromkeys((Stop.LEFT_OUT, Stop.BUDGET_USED, Stop.ROUND_DONE), "block"),
}
_NOTES = (Stop.LEFT_OUT, Stop.ARRIVED_LATE, Stop.BUDGET_USED, Stop.ROUND_DONE, Stop.BUDGET_TOO_SMALL)
# What goes before a reason that follows another.
_LINKS: dict[Enum, str] = {
    Stop.OF_CHANGED_PARTITIONS: " ",
    Stop.NOT_LOWERED: ": ",
    **dict.fromkeys((*_NOTES, Stop.NO_BLOCK_ADMITTED, Stop.NEXT_AFTER), "; "),
}


def reason_text(reasons: Sequence[Reason]) -> str:
    """Return reasons as one sentence."""
    text = ""
    for reason in reasons:
        text += (_LINKS.get(reason.kind, ", and ") if text else "") + _sentence(reason)
    return text


def cause_text(reasons: Sequence[Reason]) -> str:
    """Return the reasons, without the depth comparison, as one sentence."""
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
        case Why.SMALL_TABLE, least:
            return f"the table has fewer than {least} full blocks, so its depth matters little"
        case Why.NO_GAIN, is_curve:
            return f"no merge would {'pay for itself' if is_curve else 'lower it'}"
        case Why.NO_SET_FITS, budget, needed:
            return f"no block set fits into {size(budget)}; it needs {size(needed, up=True)}"
        case Stop.BUDGET_TOO_SMALL, need:
            return Stop.BUDGET_TOO_SMALL.value.format(size(need))
        case Stop() as stop, *figures:
            noun = _NOUNS.get(stop)
            return stop.value.format(*(count_noun(of, noun) if noun else of for of in figures))
        case Why.NO_BLOCKS, *_:
            return "no blocks"
        case Why.SINGLE_KEYS, *_:
            return "all are full blocks of a single key"
    raise AssertionError(reason)
