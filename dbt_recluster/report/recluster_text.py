"""Reclusters as text for people: progress, result, the plan of a dry run, and the history of a table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from dbt_recluster.advice.cost_model import PriceList
from dbt_recluster.clustering.result import Progress, ReclusterResult
from dbt_recluster.exceptions import orphan_note
from dbt_recluster.text import count_noun, moment, size, table

# Commands that resume a suspended table.
RESUME_WITH_DBT = "dbt run-operation resume_recluster --args '{table: %s}'"
RESUME_WITHOUT_DBT = "dbt-recluster resume %s"

_MOST_NAMED = 5

_HISTORY_NOTE = (
    "amplification: rows rewritten by reclustering for each row loaded, as far back as snapshots are kept."
)
# Notes on what is not in every history, by its figure.
_NOTES = {
    "benefit_cost": "benefit/cost: younger loads over the blocks merged, times the rows within their keys, for each "
    "row rewritten; left: the greatest ratio of blocks not merged.",
    "rows_undone": "undone: rows that reclustering had written, and that another writer's rewrite merged with others.",
}


class ProgressLines:
    """A progress callback that logs lines; a terminal, if there is one, shows the current round while it runs."""

    def __init__(self, log: Callable[[str], Any], terminal: TextIO | None = None) -> None:
        self._log = log
        self._terminal = terminal if terminal is not None and terminal.isatty() else None
        self._logged = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a round."""
        line = _describe(progress)
        if self._terminal is not None:
            # A line that wraps cannot be overwritten.
            width = shutil.get_terminal_size().columns - 1
            shown = "" if progress.committed or progress.failed else line[:width]
            self._terminal.write(f"\r\x1b[K{shown}")
            self._terminal.flush()
            is_due = progress.committed
        else:
            is_due = progress.merged is None or time.monotonic() - self._logged >= 10
        if is_due and not progress.failed:
            self._logged = time.monotonic()
            self._log(line)


def _describe(progress: Progress) -> str:
    blocks, seconds = count_noun(progress.blocks, "block"), progress.seconds
    start = f"{progress.table}: round {progress.round}"
    if progress.merged is not None:
        sets = f" ({progress.merged_sets} of {progress.sets} sets)" if progress.sets > 1 else ""
        left = "" if seconds is None else f", about {seconds:.0f} s left"
        # A narrow terminal cuts the end off, so the changing values come first.
        return f"{start}, {int(100 * progress.merged)} % done{sets}{left}: {blocks}, {size(progress.bytes)}"
    verb, duration = "merges", "" if seconds is None else f", about {seconds:.0f} s by this table's history"
    if progress.committed:
        verb, duration = "merged", f", in {seconds or 0:.1f} s"
    share = "" if progress.percent is None else f", {progress.percent} % of the bytes allowed"
    what = f"{blocks} in {count_noun(progress.sets, 'set')}, {size(progress.bytes)}"
    return f"{start} {verb} {what}{duration}{share}"


def standing(depth: float | None, threshold: float | None) -> str:
    """Return the depth beside its threshold, ``depth 1.4, below 4``; empty if no depth is known."""
    if depth is None or threshold is None:
        return "" if depth is None else f"depth {depth:.1f}"
    relation = "below" if depth < threshold else "above" if depth > threshold else "at most"
    return f"depth {depth:.{_decimals(depth, threshold)}f}, {relation} {threshold:.4g}"


def _caused(text: str, result: ReclusterResult) -> str:
    """Return a text with the part of the reason that depth, threshold and verdict leave open."""
    return ": ".join(filter(None, [text, result.cause]))


def _verdict(result: ReclusterResult) -> str:
    return _caused(result.verdict, result)


def summary(result: ReclusterResult) -> str:
    """Return the result in one phrase for a model's line: ``depth 20.0 -> 1.0, 40 blocks into 61``."""
    if not result.rounds:
        waits = "" if result.waits_for is None else f"next recluster after {result.waits_for}"
        now = standing(result.depth_after, result.threshold)
        return (
            not_reclustered(result)
            if result.suspended
            else f"{now}; {waits}"
            if now and waits
            else _caused(now, result)
        )
    depth, threshold = result.depth_after, result.threshold
    change = f"depth {depths(result.depth_before, depth)}"
    above = f"above {threshold:.4g}" if depth and threshold and depth > threshold else ""
    blocks = f"{count_noun(result.blocks_in, 'block')} into {result.blocks_out}"
    loss = "" if result.loss is None else loss_text(result.loss)
    return _caused(", ".join(filter(None, [change, above, blocks, loss])), result)


def depths(before: float | None, after: float | None, about: str = "") -> str:
    """Return ``8.3 -> 1.4``, with enough decimals to tell the two apart, and ``about`` before the second."""
    if before is None or after is None:
        return " -> ".join("unknown" if depth is None else f"{depth:.1f}" for depth in (before, after))
    decimals = _decimals(before, after)
    return f"{before:.{decimals}f} -> {about}{after:.{decimals}f}"


def _decimals(one: float, other: float) -> int:
    """Return the decimals, at least one, that tell two depths apart."""
    different = (n for n in (1, 2, 3) if f"{one:.{n}f}" != f"{other:.{n}f}")
    return 1 if one == other else next(different, 4)


def not_reclustered(result: ReclusterResult) -> str:
    """Return why nothing was done."""
    now = standing(result.depth_after, result.threshold)
    return ", ".join(filter(None, [f"not reclustered: {result.cause}", now]))


def recluster_line(result: ReclusterResult, resume: str = RESUME_WITH_DBT) -> str:
    """Return what was done, the depth and its threshold, and the verdict; ``%s`` in ``resume`` is the name."""
    name = result.table if result.branch is None else f"{result.table}, branch {result.branch}"
    now = standing(result.depth_after, result.threshold)
    outcome = ", ".join(filter(None, [now, _verdict(result)]))
    if result.plan is not None and result.plan.sets:
        sets = result.plan.sets
        blocks = count_noun(sum(planned.blocks for planned in sets), "block")
        what = f"{blocks} ({size(result.plan.bytes)}) in {count_noun(len(sets), 'set')}"
        return f"{name}: would recluster {what}; {outcome}"
    if not result.rounds:
        if result.suspended:
            return f"{name}: {not_reclustered(result)}; to resume: {resume % result.table}"
        return f"{name}: {not_reclustered(result) if result.limited else f'nothing to do, {outcome}'}"
    rounds = f" in {len(result.rounds)} rounds" if len(result.rounds) > 1 else ""
    change = f"depth {depths(result.depth_before, result.depth_after)}"
    done = [f"reclustered {count_noun(result.blocks_in, 'block')} into {result.blocks_out}", change]
    done += [f"{size(result.bytes_in)} rewritten{rounds} in {result.seconds:.1f}s"]
    done += [] if result.loss is None else [loss_text(result.loss)]
    orphans = f". {orphan_note(result.table, result.orphans)}" if result.orphans else ""
    lines = [f"{name}: {', '.join(done)}{orphans}", outcome]
    if result.key_read_bytes is not None:
        opened = key_read_text(result.key_read_bytes, result.key_read_row_groups)
        lines.append(f"a read of one key opens about {opened}")
    return "\n  ".join(lines)


def plan_table(result: ReclusterResult) -> str:
    """Return the plan of a dry run: a line for each block set, and totals. Empty without a plan."""
    plan = result.plan
    if plan is None or not plan.sets:
        return ""
    rows = [
        (
            str(number),
            f"{planned.level} -> {planned.new_level}",
            str(planned.blocks),
            str(planned.expected_blocks),
            f"{planned.rows:,}",
            size(planned.bytes),
            f"{planned.lower} to {planned.upper}",
            str(planned.depth),
            str(planned.expected_depth),
            ratio_text(planned.benefit_cost, planned.benefit_cost_left),
        )
        for number, planned in enumerate(plan.sets, start=1)
    ]
    columns = ("set", "level", "blocks", "into", "rows", "size")
    header = (*columns, result.cluster_key, "deepest", "after", "benefit/cost")
    seconds = "duration unknown, because the snapshots record no recluster of this table"
    if plan.estimated_seconds is not None:
        seconds = f"about {plan.estimated_seconds:.1f} s at the speed of this table's earlier reclusters"
    change = depths(result.depth_before, plan.expected_depth, "about ")
    total = f"total: {size(plan.bytes)}, {plan.rows:,} rows, {seconds}; depth {change}"
    if plan.key_read_bytes is not None and plan.expected_key_read_bytes is not None:
        before = key_read_text(plan.key_read_bytes, plan.key_read_row_groups)
        after = key_read_text(plan.expected_key_read_bytes, plan.expected_key_read_row_groups)
        total += f"\na read of one key opens about {before} -> {after}"
    if plan.writer != "native":
        total += f"\nSpark writes the blocks, not the native writer: {plan.writer.removeprefix('spark: ')}"
    return f"{table(header, rows)}\n{total}"


def key_read_text(opened: int, row_groups: float | None) -> str:
    """Return what a read of one key opens: ``12.0 MB in 3 row groups``."""
    number = f"{row_groups or 0:.1f}".removesuffix(".0")
    return f"{size(opened)} in {number} row group{'' if number == '1' else 's'}"


def ratio_text(ratio: float | None, left: float | None) -> str:
    """Return ``4.6 (2.9 left)``: the benefit-cost ratio of merged blocks, and the best of those left."""
    return "" if ratio is None else f"{ratio:.3g}" + ("" if left is None else f" ({left:.3g} left)")


def balance_text(rewritten: int, saved: int) -> str:
    """Return the cost and the benefit of a day, and the loss if there is one."""
    text = f"{size(rewritten)} a day rewritten, {size(saved)} a day not read because of it"
    return text if rewritten <= saved else f"{text}: {loss_text(rewritten - saved)}"


def loss_text(loss: int) -> str:
    """Return the loss of a day's reclustering, with advice."""
    return f"it costs {size(loss)} a day more than it saves; consider recluster_depth: auto, or no cluster_by"


def undone_text(rows: int) -> str:
    """Return how many clustered rows other writers have merged."""
    return f"{count_noun(rows, 'row')} that reclustering had written, merged by other writers"


def few_blocks(tables: Sequence[str], least: int) -> str:
    """Return that reclustered tables are too small to gain by it."""
    named = ", ".join(tables[:_MOST_NAMED])
    more = f" and {len(tables) - _MOST_NAMED:,} more" if len(tables) > _MOST_NAMED else ""
    it = "it" if len(tables) == 1 else "them"
    return f"{named}{more}: fewer than {least} blocks, so a query opens few anyhow; do not cluster {it} yet"


def history(values: Mapping[str, Any], prices: PriceList | None = None) -> str:
    """Write a table's history, a line for each round and each other commit."""
    entries = values["entries"]
    if not entries:
        return f"{values['table']}: no commit" + (f" since {values['since']}" if values["since"] else "")
    rows = [history_row(entry, prices) for entry in entries]
    lines = table(list(rows[0]), [list(row.values()) for row in rows])
    notes = [note for name, note in _NOTES.items() if any(entry[name] for entry in entries)]
    notes += [] if prices is None else [f"in all {prices.text(values['spent'])}; {prices.assumption}"]
    return "\n".join((values["table"], lines, _HISTORY_NOTE, *notes))


def history_row(entry: Mapping[str, Any], prices: PriceList | None = None) -> dict[str, str]:
    """Return the cells of a round or another commit, by heading."""
    before, after = entry["depth_before"], entry["depth_after"]
    is_recluster = entry["kind"] == "recluster"

    def change(of: str, text: Callable[[int], str] = "{:,}".format) -> str:
        removed, added = entry[f"{of}_in"], entry[f"{of}_out"]
        if is_recluster:
            return text(removed) if of == "rows" else f"{text(removed)} -> {text(added)}"
        return " ".join(f"{sign}{text(count)}" for sign, count in (("-", removed), ("+", added)) if count)

    undone = f" ({entry['rows_undone']:,} undone)" if entry["rows_undone"] and not is_recluster else ""
    return {
        "time (UTC)": moment(entry["at"]),
        "what": entry["kind"],
        "by": entry["by"] or "-",
        "level": ", ".join(map(str, entry["levels"])),
        "blocks": change("blocks"),
        "size": change("bytes", size),
        "rows": change("rows") + undone,
        "depth": "" if before is None or after is None else depths(before, after),
        "benefit/cost": ratio_text(entry["benefit_cost"], entry["benefit_cost_left"]),
        "seconds": "" if entry["seconds"] is None else f"{entry['seconds']:.1f}",
        **({} if prices is None else {"spent": prices.text(entry["spent"]) if is_recluster else ""}),
        "conflicts": "" if entry["conflicts"] is None else str(entry["conflicts"]),
        "amplification": f"{entry['write_amplification']:.2f}",
    }
