"""The results of operations as text for people: reclusters with their progress, plans and history, and all others."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from dbt_recluster.advice.cost_model import PriceList
from dbt_recluster.advice.overview import Overview
from dbt_recluster.clustering.result import Progress, ReclusterResult
from dbt_recluster.clustering.table_state import Suspension
from dbt_recluster.exceptions import orphan_note
from dbt_recluster.text import count_noun, depth_bucket, moment_text, printable, shortened, size, span, table

# Commands that resume a suspended table.
RESUME_WITH_DBT = "dbt run-operation resume_recluster --args '{table: %s}'"
RESUME_WITHOUT_DBT = "dbt-recluster resume %s"

_HISTORY_NOTE = "amplification: rows rewritten by reclustering for each row loaded, as far back as snapshots are kept."
_UNDONE_NOTE = "clustered: rows that reclustering had written, and that another writer's rewrite merged with others."


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


def standing(depth: float | None, threshold: float | None, word: str = "depth ") -> str:
    """Return the depth beside its threshold, ``depth 1.4, at most 4``; empty if no depth is known."""
    if depth is None or threshold is None:
        return "" if depth is None else f"{word}{depth:.1f}"
    relation = "above" if depth > threshold else "at most"
    return f"{word}{depth:.{_decimals(depth, threshold)}f}, {relation} {threshold:.4g}"


def _caused(text: str, result: ReclusterResult) -> str:
    """Return a text with what merges were for, and the reason without the depth comparison."""
    return ": ".join(filter(None, [text, "; ".join(filter(None, [result.purpose, result.cause]))]))


def model_line(result: ReclusterResult) -> str:
    """Return the result in one phrase for a model's line: ``depth 20.0 -> 1.0, 40 blocks into 61``."""
    if result.suspended and not result.rounds:
        return not_reclustered(result)
    depth, threshold = result.depth_after, result.threshold
    is_above = bool(depth and threshold and depth > threshold)
    if is_above and result.verdict == "well clustered":  # a small table, or one whose levels are below
        is_above, threshold = False, None
    if not result.rounds:
        now = standing(depth, threshold)
        waits = now and result.waits_for
        chose = f"; {result.purpose}" if result.purpose else ""
        return f"{now}{chose}; next recluster after {waits}" if waits else _caused(now, result)
    change = f"depth {depths(result.depth_before, depth)}"
    above = f"above {threshold:.4g}" if is_above else ""
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
    outcome = ", ".join(filter(None, [now, ": ".join(filter(None, [result.verdict, result.cause]))]))
    purpose = f" ({result.purpose})" if result.purpose else ""
    if result.plan is not None and result.plan.sets:
        sets = result.plan.sets
        blocks = count_noun(sum(planned.blocks for planned in sets), "block")
        would = f"would recluster {blocks} ({size(result.plan.bytes)}) in {count_noun(len(sets), 'set')}{purpose}"
        if result.held:
            otherwise = "once resumed" if result.suspended else "by hand"
            would = f"a build would recluster nothing now: {result.held}; {otherwise}, it {would}"
        return f"{name}: {would}; {outcome}"
    if result.held:
        outcome = f"{outcome}; besides, {result.held}"
    if not result.rounds:
        if result.suspended:
            return f"{name}: {not_reclustered(result)}; to resume: {resume % result.table}"
        return f"{name}: {not_reclustered(result) if result.limited else f'nothing to do, {outcome}'}{purpose}"
    rounds = f" in {len(result.rounds)} rounds" if len(result.rounds) > 1 else ""
    change = f"depth {depths(result.depth_before, result.depth_after)}"
    done = [f"reclustered {count_noun(result.blocks_in, 'block')} into {result.blocks_out}{purpose}", change]
    done += [f"{size(result.bytes_in)} rewritten{rounds} in {result.seconds:.1f}s"]
    done += [] if result.loss is None else [loss_text(result.loss)]
    orphans = f". {orphan_note(result.table, result.orphans)}" if result.orphans else ""
    lines = [f"{name}: {', '.join(done)}{orphans}", outcome]
    if result.key_read_bytes is not None:
        lines.append(f"a read of one key opens about {size(result.key_read_bytes)}")
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
        )
        for number, planned in enumerate(plan.sets, start=1)
    ]
    header = ("set", "level", "blocks", "into", "rows", "size", result.cluster_key, "deepest", "after")
    seconds = "duration unknown, because the snapshots record no recluster of this table"
    if plan.estimated_seconds is not None:
        seconds = f"about {plan.estimated_seconds:.1f} s at the speed of this table's earlier reclusters"
    change = depths(result.depth_before, plan.expected_depth, "about ")
    total = f"total: {size(plan.bytes)}, {plan.rows:,} rows, {seconds}; depth {change}"
    if plan.key_read_bytes is not None and plan.expected_key_read_bytes is not None:
        opened = f"{size(plan.key_read_bytes)} -> {size(plan.expected_key_read_bytes)}"
        total += f"\na read of one key opens about {opened}"
    if plan.writer != "native":
        total += f"\nSpark writes the blocks, not the native writer: {plan.writer.removeprefix('spark: ')}"
    return f"{table(header, rows)}\n{total}"


def balance_text(rewritten: int, saved: int) -> str:
    """Return the cost and the benefit of a day, and the loss if there is one."""
    text = f"{size(rewritten)} a day rewritten, {size(saved)} a day not read because of it"
    return text if rewritten <= saved else f"{text}: {loss_text(rewritten - saved)}"


def loss_text(loss: int) -> str:
    """Return the loss of a day's reclustering, with advice."""
    return f"it costs {size(loss)} a day more than it saves; consider recluster_depth: auto, or no cluster_by"


def undone_text(rows: int) -> str:
    """Return how many rows of ours other writers have merged."""
    return f"{count_noun(rows, 'row')} that reclustering had written"


def history(values: Mapping[str, Any], prices: PriceList | None = None) -> str:
    """Write a table's history, a line for each round and each other commit."""
    entries = values["entries"]
    if not entries:
        since = f" since {moment_text(values['since'])}" if values["since"] else ""
        return f"{values['table']}: no commit{since}"
    rows = [history_row(entry, prices) for entry in entries]
    lines = table(list(rows[0]), [list(row.values()) for row in rows])
    notes = [_UNDONE_NOTE] if any(entry["rows_undone"] for entry in entries) else []
    notes += [
        f"{moment_text(of['at'])[:19]} auto chose {of['cluster_by']} after {count_noun(round(of['reads']), 'read')}: "
        f"in 30 days, {size(of['saved_bytes'])} less is read for {size(of['key_bytes'])} rewritten"
        for of in entries
        if of["kind"] == "key"
    ]
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

    undone = f" ({entry['rows_undone']:,} clustered)" if entry["rows_undone"] and not is_recluster else ""
    return {
        "time (UTC)": moment_text(entry["at"])[:19],
        "what": entry["kind"],
        "by": entry["cluster_by"] if entry["kind"] == "key" else entry["by"] or "-",
        "level": ", ".join(map(str, entry["levels"])),
        "blocks": change("blocks"),
        "size": change("bytes", size),
        "rows": change("rows") + undone,
        "depth": "" if before is None or after is None else depths(before, after),
        "seconds": "" if entry["seconds"] is None else f"{entry['seconds']:.1f}",
        **({} if prices is None else {"spent": prices.text(entry["spent"]) if is_recluster else ""}),
        "conflicts": "" if entry["conflicts"] is None else str(entry["conflicts"]),
        "amplification": "" if entry["kind"] == "key" else f"{entry['write_amplification']:.2f}",
    }


_OVERVIEW = ("table", "verdict", "depth", "threshold", "loaded", "rewritten", "last recluster")
_OVERVIEW_BYTES = ("loaded_bytes_week", "rewritten_bytes_week")
_OVERVIEW_NOTE = "loaded, rewritten: in the past 7 days. last recluster: UTC."
_MOST_LINES = 20


def information(values: Mapping[str, Any]) -> str:
    """Write a table's metrics: depth, threshold and verdict, then the rest, and its blocks by depth and by level."""
    where = f" where {values['where']}" if values["where"] else ""
    branch = f", branch {values['branch']}," if values.get("branch") else ""
    heading = f"{values['table']}{branch} by {values['cluster_key']}{where}{_suspended_text(values)}"
    if values["snapshot_id"] is None:
        return f"{heading}: never written, so there is nothing to measure"
    undone, key_read, opened = values["rows_undone"], values.get("key_read_bytes"), []
    if curve := values.get("curve"):
        blocks, at_once = curve["total_block_count"], curve["sorted_block_count"]
        opened = [
            (name, f"opens {now:.1f} of {blocks:,} blocks, {then:.1f} of {at_once:,} sorted at once")
            for name, now, then in opened_on_curve(curve)
        ]
    small = (
        f"{values['small_block_count']:,}; {values['fragmentation']:.1f} blocks for each full one, "
        f"{values['max_fragmentation']:.1f} in the worst partition"
    )
    figures = [
        ("depth", _depth_and_verdict(values)),
        ("snapshot", f"{values['snapshot_id']} of {moment_text(values['snapshot_at'])}"),
        ("blocks", f"{values['total_block_count']:,} ({values['constant_block_count']:,} of a single key)"),
        ("rows", f"{values['total_rows']:,}"),
        ("size", size(values["total_bytes"])),
        ("small blocks", small),
        ("merged by others", undone_text(undone) if undone else None),
        *opened,
        ("wasted", f"{values['share_wasted']:.1%}" if "share_wasted" in values else None),
        ("read of one key", f"about {size(key_read)}, by the sizes of files" if key_read else None),
        ("average overlaps", f"{values['average_overlaps']:.1f}"),
        ("clustering ratio", f"{values['clustering_ratio']:.1f} of 100"),
    ]
    by_depth = {depth_bucket(name): count for name, count in values["block_depth_histogram"].items()}
    by_level = [
        (level, f"{of['blocks']:,}", f"{of['rows']:,}", f"{of['average_depth']:.1f}")
        for level, of in values["levels"].items()
    ]
    lines = table(("level", "blocks", "rows", "depth"), by_level).splitlines()
    levels = ["", *(f"  {line}" for line in lines)] if list(values["levels"]) != ["0"] else []
    return "\n".join([heading, *_aligned(figures), *_bars("depth", by_depth), *levels, *_options(values["options"])])


def _options(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for option in options.values():
        if (origin := option["origin"]) != "default":
            name, value = option["name"], option["value"]
            text = shortened(value if isinstance(value, str) else json.dumps(value))
            lines.append((name, text if origin == name else f"{text} ({origin})"))
    return ["", *(_aligned(lines) if lines else []), "  All other options have their defaults."]


def _depth_and_verdict(values: Mapping[str, Any]) -> str:
    now = standing(values["depth"], values["threshold"], word="")
    # The heading has the suspension.
    why = "" if values["verdict"] == "suspended" else _open_cause(values)
    return ", ".join(filter(None, [now, ": ".join(filter(None, [values["verdict"], why]))]))


def _open_cause(values: Mapping[str, Any]) -> str:
    """Return the cause of a verdict, if it is one to explain."""
    is_within = (values["depth"] or 0.0) <= (values["threshold"] or 0.0)
    return "" if values["verdict"] == "well clustered" and is_within else str(values["cause"])


def measure(values: Mapping[str, Any], name: str) -> str:
    """Write a single metric of a table."""
    figure = f"{name.replace('_', ' ')} {values[name]:.1f}"
    return f"{values['table']} by {values['cluster_key']}: {figure}{_suspended_text(values)}"


def opened_on_curve(curve: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return each kind of read of a curve's columns, and the blocks that it opens now and in a table sorted at once."""
    points = [
        (f"one value of {column}", now, curve["sorted_point_blocks"][column])
        for column, now in curve["point_blocks"].items()
    ]
    return [*points, ("1 % of each column", curve["box_blocks"], curve["sorted_box_blocks"])]


def _bars(title: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    bar, most = "█", max(counts.values())
    try:
        bar.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        bar = "#"
    lines = table((title, "blocks"), [(name, f"{count:,}") for name, count in counts.items()]).splitlines()
    lengths = [0, *(max(1, round(40 * count / most)) if count else 0 for count in counts.values())]
    bars = zip(lines, lengths, strict=True)
    return ["", *(f"  {line}  {bar * length}".rstrip() for line, length in bars)]


def overview(tables: Sequence[Overview], totals: Mapping[str, Any], prices: PriceList | None = None) -> str:
    """Write one line for each table, the totals, and the reason of each verdict that its figures do not explain."""
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in totals["verdicts"].items())
    parts = [("total", totals), *((name or "(none)", part) for name, part in totals.get("by", {}).items())]
    rows = [_overview_row(of) + _money(vars(of), prices) for of in tables]
    for name, part in parts:
        sums = [size(part[figure]) for figure in _OVERVIEW_BYTES]
        rows.append((name, "", "", "", *sums, "", *_money(part, prices)))
    header = (*_OVERVIEW, *(() if prices is None else ("spent 7 d", "saved 7 d")))
    lines = [f"{count_noun(len(tables), 'table')}: {verdicts}", table(header, rows), _OVERVIEW_NOTE]
    if prices is not None:
        lines.append(f"{prices.assumption}. Totals are of what is known.")
    lines += [printable(f"  {of.table}: {cause}") for of in tables if (cause := _open_cause(vars(of)))]
    return "\n".join(lines)


def _money(figures: Mapping[str, Any], prices: PriceList | None) -> tuple[str, ...]:
    return () if prices is None else (prices.text(figures["spent_week"]), prices.text(figures["saved_week"]))


def _overview_row(of: Overview) -> tuple[str, ...]:
    depth = "-" if of.depth is None else f"{of.depth:.1f}"
    threshold = "-" if of.threshold is None else f"{of.threshold:g}"
    sizes = ["-" if (count := getattr(of, name)) is None else size(count) for name in _OVERVIEW_BYTES]
    last = "-" if of.last_recluster is None else moment_text(of.last_recluster)[:16]
    return of.table, of.verdict, depth, threshold, *sizes, last


def _suspended_text(values: Mapping[str, Any]) -> str:
    return f", suspended since {Suspension(**values['suspension'])}" if values["suspension"] else ""


def suspended(values: Mapping[str, Any], resume: str) -> str:
    """Write that a table is suspended, and the command that resumes it, with ``%s`` for the table's name."""
    name = values["table"]
    return f"{name}: suspended since {Suspension(**values['suspension'])}; to resume: {resume % name}"


def resumed(values: Mapping[str, Any]) -> str:
    """Write that a table is resumed, or was not suspended."""
    since = values["was_suspended"]
    done = f"resumed, was suspended since {moment_text(since)}" if since else "was not suspended"
    return f"{values['table']}: {done}"


def removed(values: Mapping[str, Any]) -> str:
    """Write what was removed from a table."""
    if not values["properties"]:
        return f"{values['table']}: nothing to remove"
    order = f"the sort order {values['sort_order']} and " if values["sort_order"] else ""
    verb = "would remove" if values["dry_run"] else "removed"
    return f"{values['table']}: {verb} {order}{', '.join(values['properties'])}"


def cost(values: Mapping[str, Any], prices: PriceList | None = None) -> str:
    """Write what the first clustering and each day after it would cost, and how certain that is."""
    first, verdict = f"nothing to do, average depth is {values['average_depth']:.1f}", "needs no clustering"
    if values["first_bytes"]:
        now, then, rewritten = values["average_depth"], values["expected_average_depth"], size(values["first_bytes"])
        verdict = f"a query for one key opens {max(0.0, now - then):.1f} blocks fewer for {rewritten} rewritten"
        change = f"average depth {now:.1f} -> {then:.1f} expected{_seconds(values['first_seconds'])}"
        first = f"{rewritten} read and written, {change}"
    made = count_noun(values["replacements"], "load")
    besides = f" besides {made} that made the table anew" if values["replacements"] else ""
    per_day, replayed = f"unknown: the snapshots record no load of the past seven days{besides}", None
    if values["loads"] or values["rewrites"]:
        days = "1 day" if values["days"] == 1 else f"{values['days']:g} days"
        bytes_per_day = span(*map(size, values["bytes_per_day"]))
        per_day = f"{bytes_per_day} to stay clustered{_seconds(values['seconds_per_day'])}"
        rewrites = f" and {count_noun(values['rewrites'], 'rewrite')} of rows" if values["rewrites"] else ""
        loads = f"{count_noun(values['loads'], 'load')}{rewrites} in {days}"
        replayed = f"{loads}, {size(values['loaded_bytes_per_day'])} a day"
    actual, saved = values["actual_bytes_per_day"], values["saved_bytes_per_day"]
    in_fact = None if actual is None else f"{size(actual)} a day in that time, by the table's history"
    unknown = "unknown: the snapshots record no recluster of this table"
    certainty = "from one round after each load to as many as it takes; assumes rows spread evenly within each block"
    figures = [
        ("first clustering", first),
        ("each day", per_day),
        ("replayed", replayed),
        ("in fact", in_fact),
        ("balance", None if saved is None else balance_text(actual, saved)),
        ("duration", unknown if values["first_seconds"] is None else None),
        ("certainty", certainty),
    ]
    if prices is not None:
        ends = [values[name] or (None, None) for name in ("first_cost", "cost_per_day")]
        first, per_day = (span(*map(prices.text, amounts)) for amounts in ends)
        spent, saved = (prices.text(values[f"{word}_per_day"]) for word in ("spent", "saved"))
        amounts = f"first clustering {first}, each day {per_day}; in fact {spent} a day spent, {saved} a day saved"
        figures += [("money", amounts), ("assumed", prices.assumption)]
    return "\n".join([f"{values['table']} by {values['cluster_key']}: {verdict}", *_aligned(figures)])


def _seconds(ends: Sequence[float] | None) -> str:
    if ends is None:
        return ""
    return f", {span(f'{ends[0]:.1f}', f'{ends[1]:.1f}')} s at the speeds of this table's reclusters"


def suggestion(values: Mapping[str, Any]) -> str:
    """Write the keys that were tried as a table, and the advice."""
    not_tried = ", ".join(f"{name} ({kind})" for name, kind in values["not_tried"])
    ending = f"\nNot tried, because they cannot be a key: {not_tried}." if not_tried else ""
    ending += "".join(f"\nLeft out, {line}." for line in values["left_out"])
    ending += f"\ncluster_by: {values['auto']}." if values["auto"] else ""
    if not values["candidates"]:
        return f"{values['table']}: {values['advice']}.{ending}"
    queries = values["queries"]
    basis = "queries for one value of the key's first column"
    if queries:
        basis = "1 query" if len(queries) == 1 else f"{len(queries):,} queries"
    rows = [
        (
            ", ".join(key["cluster_by"]),
            f"{key['distinct']:,}",
            *(f"{key[share]:.0%}" for share in ("skipped_now", "skipped_then")),
            f"{key['blocks']:,}",
            size(key["first_bytes"]),
            "unknown" if key["bytes_per_day"] is None else span(*map(size, key["bytes_per_day"])),
        )
        for key in values["candidates"][:12]
    ]
    header = ("key", "distinct", "skipped now", "skipped then", "blocks then", "to cluster", "to keep a day")
    parts = [f"{values['table']}: {values['advice']}.", *(f"But {line}." for line in values["dissent"])]
    parts += [
        f"{values['blocks']:,} blocks, by {values['sampled']:,} sampled rows and {basis}",
        table(header, rows),
    ]
    if queries:
        parts.append(_opened_by_key(values))
    return "\n".join(parts) + ending


def _opened_by_key(values: Mapping[str, Any]) -> str:
    keys = values["candidates"][:3]
    header = ("blocks opened by", "now", *(f"by {', '.join(key['cluster_by'])}" for key in keys))
    rows = []
    for place, (query, now) in enumerate(zip(values["queries"], values["opened"], strict=True)):
        rows.append((shortened(query), f"{now:,}", *(f"{key['opened'][place]:,}" for key in keys)))
    all_blocks = ("of all blocks", f"{values['blocks']:,}", *(f"{key['blocks']:,}" for key in keys))
    return table(header, [*rows, all_blocks])


def reads(values: Mapping[str, Any]) -> str:
    """Write the reads of a table, the most frequent first, and the blocks that each opens."""
    heading = f"{values['table']} by {values['cluster_key']}: {count_noun(values['blocks'], 'block')}"
    notes = [f"  {line}" for line in values["left_out"]]
    if not values["reads"]:
        return "\n".join([f"{heading}, no reads are known", *notes])
    if values["share_wasted"] is not None:
        heading += f"; of the blocks that reads open, {values['share_wasted']:.0%} are wasted"
    header = ("source", "weight", "blocks", "wasted", "size", "asks for")
    lines = table(header, [_read_row(read) for read in values["reads"][:_MOST_LINES]])
    if (more := len(values["reads"]) - _MOST_LINES) > 0:
        notes.append(f"  and {more:,} more; format: json has all")
    return "\n".join([heading, lines, *notes])


def _read_row(read: Mapping[str, Any]) -> tuple[str, ...]:
    asked = []
    for column, (lower, upper) in read["columns"].items():
        ends = {"=": lower} if lower == upper else {"from": lower, "to": upper}
        asked.append(" ".join([column, *(f"{word} {end}" for word, end in ends.items() if end is not None)]))
    origin = f" ({read['imported_from']})" if read["imported_from"] else ""
    start = (f"{read['source']}{origin}", f"{read['weight']:,.{'0f' if read['weight'] >= 100 else '3g'}}")
    if read["blocks"] is None:
        return (*start, "-", "-", "-", f"{', '.join(asked)} (not of the key)")
    figures = f"{read['blocks']:,}", f"{read['blocks_wasted']:,.1f}", size(read["bytes"])
    return (*start, *figures, ", ".join(asked))


def imported(values: Mapping[str, Any]) -> str:
    """Write the result of an import."""
    scans, ranges = count_noun(values["scans"], "scan"), count_noun(values["ranges"], "range")
    heading = f"{values['table']}: {scans} in the {values['imported_from']}, {ranges}"
    recorded = f"{heading}; {count_noun(values['recorded'], 'range')} recorded with the table"
    return "\n".join([recorded, *_first_lines(f"  left out: {line}" for line in values["left_out"])])


def forgotten(values: Mapping[str, Any]) -> str:
    """Write how many ranges were dropped."""
    count = values["forgotten"]
    return f"{values['table']}: {count_noun(count, 'range') + ' forgotten' if count else 'no reads were recorded'}"


def maintained(values: Mapping[str, Any]) -> str:
    """Write the result of one maintenance task, or of all that were due."""
    texts = {"expire_snapshots": _expired, "remove_orphan_files": _orphans}
    tasks = values.get("done", [values])
    done = "; ".join(texts.get(task["task"], _rewritten)(task) for task in tasks)
    return f"{values['table']}: {done or 'nothing to do'}"


def _expired(values: Mapping[str, Any]) -> str:
    kept = count_noun(values["kept"], "snapshot")
    if not values["snapshots"] and not values["refs"]:
        return f"no snapshot to expire, {kept} kept"
    expired, freed = ("would expire", "free") if values["dry_run"] else ("expired", "freed")
    refs = f" and the tags and branches {', '.join(values['refs'])}" if values["refs"] else ""
    what = f"{expired} {count_noun(values['snapshots'], 'snapshot')}{refs}"
    if values["files"] is not None:
        size_of = "" if values["bytes"] is None else f" ({size(values['bytes'])})"
        what = f"{what} and {freed} {count_noun(values['files'], 'file')}{size_of}"
    return f"{what}; history begins at {moment_text(values['kept_since'])}, {kept} kept"


def _orphans(values: Mapping[str, Any]) -> str:
    files = values["files"]
    before = f"older than {moment_text(values['older_than'])}"
    if not files:
        return f"no orphan file {before}"
    verb, hint = ("would remove", "; dry_run: false removes them") if values["dry_run"] else ("removed", "")
    heading = f"{verb} {count_noun(len(files), 'orphan file')} {before}{hint}"
    return "\n".join([heading, *_first_lines(f"  {file}" for file in files)])


def _rewritten(values: Mapping[str, Any]) -> str:
    are_manifests = values["task"] == "rewrite_manifests"
    noun = "manifest" if are_manifests else "position delete file"
    if not values["before"]:
        return f"no {noun} to rewrite"
    files = count_noun(values["before"], noun)
    if values["dry_run"] and not are_manifests:
        return f"could compact up to {files} of one partition"
    return f"{'would rewrite' if values['dry_run'] else 'rewrote'} {files} into {values['after']:,}"


def _aligned(figures: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return a line for each name that has a value, the values in one column."""
    shown = [(name, value) for name, value in figures if value is not None]
    width = max(len(name) for name, _ in shown)
    return [f"  {name.ljust(width)}  {value}" for name, value in shown]


def _first_lines(lines: Iterable[str]) -> list[str]:
    every = list(lines)
    more = len(every) - _MOST_LINES
    return [*every[:_MOST_LINES], *([f"  and {more:,} more"] if more > 0 else [])]
