"""The results of operations as text for people; those of reclusters are in ``recluster_text``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dbt_recluster.advice.cost_model import PriceList
from dbt_recluster.advice.overview import Overview
from dbt_recluster.clustering.table import Suspension
from dbt_recluster.report.recluster_text import balance_text, key_read_text, standing, undone_text
from dbt_recluster.text import count_noun, depth_bucket, moment, size, span, table

_OVERVIEW = ("table", "verdict", "depth", "threshold", "loaded", "rewritten", "last recluster", "gain")
_OVERVIEW_BYTES = ("loaded_bytes_week", "rewritten_bytes_week")
_OVERVIEW_NOTE = (
    "loaded, rewritten: in the past 7 days. last recluster: UTC. gain: blocks fewer that a query for one key opens, "
    "for\neach GB that a recluster rewrites."
)
_LONGEST_QUERY = 60
_MOST_LINES = 20


def information(values: Mapping[str, Any]) -> str:
    """Write a table's metrics: depth, threshold and verdict, then the rest, and its blocks by depth and by level."""
    where = f" where {values['where']}" if values["where"] else ""
    branch = f", branch {values['branch']}," if values.get("branch") else ""
    heading = f"{values['table']}{branch} by {values['cluster_key']}{where}{_suspended_text(values)}"
    if values["snapshot_id"] is None:
        return f"{heading}: never written, so there is nothing to measure"
    undone, key_read, opened = values["rows_undone"], None, []
    if "key_read_bytes" in values:
        key_read = key_read_text(values["key_read_bytes"], values["key_read_row_groups"])
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
        ("snapshot", f"{values['snapshot_id']} of {moment(values['snapshot_at'])} UTC"),
        ("blocks", f"{values['total_block_count']:,} ({values['constant_block_count']:,} constant)"),
        ("rows", f"{values['total_rows']:,}"),
        ("size", size(values["total_bytes"])),
        ("small blocks", small),
        ("rows undone", undone_text(undone) if undone else None),
        *opened,
        ("wasted", f"{values['share_wasted']:.1%}" if "share_wasted" in values else None),
        ("read of one key", f"about {key_read}, by the sizes of files" if key_read else None),
        ("average overlaps", f"{values['average_overlaps']:.1f}"),
        ("clustering ratio", f"{values['clustering_ratio']:.1f} of 100"),
        ("relative clustering ratio", f"{values['relative_clustering_ratio']:.2f} of 1"),
    ]
    by_depth = {depth_bucket(name): count for name, count in values["block_depth_histogram"].items()}
    by_level = [
        (level, f"{of['blocks']:,}", f"{of['rows']:,}", f"{of['average_depth']:.1f}")
        for level, of in values["levels"].items()
    ]
    lines = table(("level", "blocks", "rows", "depth"), by_level).splitlines()
    levels = ["", *(f"  {line}" for line in lines)] if list(values["levels"]) != ["0"] else []
    return "\n".join([heading, *_aligned(figures), *_bars("depth", by_depth), *levels])


def _depth_and_verdict(values: Mapping[str, Any]) -> str:
    now = standing(values["depth"], values["threshold"]).removeprefix("depth ")
    why = f": {values['reason']}" if values["verdict"] in ("failing", "not clusterable", "stuck") else ""
    return ", ".join(filter(None, [now, f"{values['verdict']}{why}"]))


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
        rows.append((name, "", "", "", *sums, "", "", *_money(part, prices)))
    header = (*_OVERVIEW, *(() if prices is None else ("spent 7 d", "saved 7 d")))
    lines = [f"{count_noun(len(tables), 'table')}: {verdicts}", table(header, rows), _OVERVIEW_NOTE]
    if prices is not None:
        lines.append(f"{prices.assumption}. Totals are of what is known.")
    lines += [f"  {t.table}: {t.reason}" for t in tables if t.verdict not in ("deep", "well clustered")]
    return "\n".join(lines)


def _money(figures: Mapping[str, Any], prices: PriceList | None) -> tuple[str, ...]:
    names = () if prices is None else ("spent_week", "saved_week")
    return tuple(prices.text(figures[name]) for name in names if prices is not None)


def _overview_row(of: Overview) -> tuple[str, ...]:
    depth = "-" if of.depth is None else f"{of.depth:.1f}"
    threshold = "-" if of.threshold is None else f"{of.threshold:g}"
    sizes = ["-" if (count := getattr(of, name)) is None else size(count) for name in _OVERVIEW_BYTES]
    last = "-" if of.last_recluster is None else moment(of.last_recluster)[:16]
    gain = "-" if of.gain_per_gigabyte is None else f"{of.gain_per_gigabyte:,.1f}"
    return of.table, of.verdict, depth, threshold, *sizes, last, gain


def _suspended_text(values: Mapping[str, Any]) -> str:
    return f", suspended since {Suspension(**values['suspension'])}" if values["suspension"] else ""


def suspended(values: Mapping[str, Any], resume: str) -> str:
    """Write that a table is suspended, and the command that resumes it, with ``%s`` for the table's name."""
    name = values["table"]
    return f"{name}: suspended since {Suspension(**values['suspension'])}; to resume: {resume % name}"


def resumed(values: Mapping[str, Any]) -> str:
    """Write that a table is resumed, or was not suspended."""
    since = values["was_suspended"]
    return f"{values['table']}: {f'resumed, was suspended since {since}' if since else 'was not suspended'}"


def removed(values: Mapping[str, Any]) -> str:
    """Write what was removed from a table."""
    if not values["properties"]:
        return f"{values['table']}: nothing to remove"
    order = f"the sort order {values['sort_order']} and " if values["sort_order"] else ""
    verb = "would remove" if values["dry_run"] else "removed"
    return f"{values['table']}: {verb} {order}{', '.join(values['properties'])}"


def cost(values: Mapping[str, Any], prices: PriceList | None = None) -> str:
    """Write what the first clustering and each day after it would cost, and how certain that is."""
    first, verdict = f"nothing to do, average depth is {values['depth']:.1f}", "needs no clustering"
    if values["first_bytes"]:
        fewer = max(0.0, values["depth"] - values["expected_depth"])
        verdict = (
            f"a query for one key opens {fewer:.1f} blocks fewer for {size(values['first_bytes'])} rewritten"
        )
        first = (
            f"{size(values['first_bytes'])} read and written, average depth "
            f"{values['depth']:.1f} -> {values['expected_depth']:.1f} expected{_seconds(values['first_seconds'])}"
        )
    per_day, replayed = "unknown: the snapshots record no load of the past seven days", None
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
    certainty = (
        "rows are assumed to be spread evenly within each block; from one round after each load to rounds until "
        "nothing is left"
    )
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
        amounts = (
            f"first clustering {first}, each day {per_day}; in fact {spent} a day spent, {saved} a day saved"
        )
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
    """Write the blocks that each query opens under the best keys."""
    keys = values["candidates"][:3]
    header = ("blocks opened by", "now", *(f"by {', '.join(key['cluster_by'])}" for key in keys))
    rows = []
    for place, (query, now) in enumerate(zip(values["queries"], values["opened"], strict=True)):
        name = " ".join(query.split())
        short = name if len(name) <= _LONGEST_QUERY else f"{name[: _LONGEST_QUERY - 3]}..."
        rows.append((short, f"{now:,}", *(f"{key['opened'][place]:,}" for key in keys)))
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
    start = (f"{read['source']}{origin}", f"{read['weight']:.3g}")
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
    return f"{what}; history begins at {moment(values['kept_since'])} UTC, {kept} kept"


def _orphans(values: Mapping[str, Any]) -> str:
    files = values["files"]
    before = f"older than {moment(values['older_than'])} UTC"
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
        return f"would look at {files} of one partition"
    return f"{'would rewrite' if values['dry_run'] else 'rewrote'} {files} into {values['after']:,}"


def _aligned(figures: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return a line for each name that has a value, the values in one column."""
    shown = [(name, value) for name, value in figures if value is not None]
    width = max(len(name) for name, _ in shown)
    return [f"  {name.ljust(width)}  {value}" for name, value in shown]


def _first_lines(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    every = list(lines)
    more = len(every) - _MOST_LINES
    return [*every[:_MOST_LINES], *([f"  and {more:,} more"] if more > 0 else [])]
