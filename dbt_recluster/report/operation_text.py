"""The results of operations as text for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dbt_recluster.report.recluster_text import (
    RESUME_WITH_DBT,
    added_and_removed,
    balance_text,
    depths,
    key_read_text,
    undone_text,
)
from dbt_recluster.text import count_noun, depth_bucket, moment, size, span, table

_BAR_WIDTH = 40
_MOST_KEYS = 12
_MOST_KEYS_BY_QUERY = 3
_LONGEST_QUERY = 60

_HISTORY_HEADER = (
    "time (UTC)",
    "what",
    "by",
    "level",
    "blocks",
    "size",
    "rows",
    "average depth",
    "seconds",
    "conflicts",
    "amplification",
)
_HISTORY_NOTE = (
    "amplification: rows rewritten by reclustering for each row loaded, as far back as snapshots are kept. "
    "~: expected by the planner; another commit came before it was measured."
)

_UNDONE_NOTE = (
    "undone: rows that reclustering had written, and that another writer's rewrite merged with others."
)


def information(values: Mapping[str, Any]) -> str:
    """Write a table's metrics: figures, then the number of blocks of each depth and level."""
    where = f" where {values['where']}" if values["where"] else ""
    heading = f"{values['table']} by {values['cluster_key']}{where}{_suspended_text(values)}"
    if values["snapshot_id"] is None:
        return f"{heading}: never written, so there is nothing to measure"
    figures = [
        ("snapshot", f"{values['snapshot_id']} of {moment(values['snapshot_at'])} UTC"),
        ("blocks", f"{values['total_block_count']:,} ({values['constant_block_count']:,} constant)"),
        ("rows", f"{values['total_rows']:,}"),
        ("size", size(values["total_bytes"])),
        (
            "small blocks",
            f"{values['small_block_count']:,}; {values['fragmentation']:g} blocks for each full one, "
            f"{values['max_fragmentation']:g} in the worst partition",
        ),
        *([("rows undone", undone_text(values["rows_undone"]))] if values["rows_undone"] else []),
        ("average depth", f"{values['average_depth']:g}"),
        *_curve_figures(values.get("curve")),
        *([("read depth", f"{values['read_depth']:g}")] if "read_depth" in values else []),
        *([("wasted", f"{values['share_wasted']:.1%}")] if "share_wasted" in values else []),
        *([("read of one key", _key_read(values))] if "key_read_bytes" in values else []),
        ("average overlaps", f"{values['average_overlaps']:g}"),
        ("depth of 95 %, 99 %, all", f"{values['p95_depth']}, {values['p99_depth']}, {values['max_depth']}"),
        ("clustering ratio", f"{values['clustering_ratio']:g} of 100"),
        ("relative clustering ratio", f"{values['relative_clustering_ratio']:g}"),
        ("depth where blocks meet", f"{values['overlap_point_depth']:g}"),
    ]
    width = max(len(name) for name, _ in figures)
    lines = [heading, *(f"  {name.ljust(width)}  {value}" for name, value in figures)]
    depths = {depth_bucket(name): count for name, count in values["block_depth_histogram"].items()}
    lines += _bars("depth", depths)
    if list(values["level_histogram"]) != ["0"]:
        lines += _bars("level", values["level_histogram"])
    return "\n".join(lines)


def _key_read(values: Mapping[str, Any]) -> str:
    opened = key_read_text(values["key_read_bytes"], values["key_read_row_groups"])
    return f"about {opened}, by the sizes of files"


def _curve_figures(curve: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Write what reads of the columns of a curve open."""
    if curve is None:
        return []
    blocks, at_once = f"{curve['total_block_count']:,}", f"{curve['sorted_block_count']:,}"
    return [
        (name, f"opens {now:.1f} of {blocks} blocks, {then:.1f} of {at_once} sorted at once")
        for name, now, then in opened_on_curve(curve)
    ]


def opened_on_curve(curve: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return each kind of read of a curve's columns, and the blocks that it opens now and in a table sorted at once."""
    points = [
        (f"one value of {column}", now, curve["sorted_point_blocks"][column])
        for column, now in curve["point_blocks"].items()
    ]
    return [*points, ("1 % of each column", curve["box_blocks"], curve["sorted_box_blocks"])]


def measure(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that writes a single metric of a table."""
    return lambda values: (
        f"{values['table']} by {values['cluster_key']}: {values[name]:g}{_suspended_text(values)}"
    )


def _suspended_text(values: Mapping[str, Any]) -> str:
    return f", suspended since {values['suspended']}" if values["suspended"] else ""


def suspended(values: Mapping[str, Any], resume: str = RESUME_WITH_DBT) -> str:
    """Write that a table is suspended, and how to resume it (see :func:`recluster_line`)."""
    command = resume % values["table"]
    return f"{values['table']}: suspended since {values['suspended']}; to resume: {command}"


def resumed(values: Mapping[str, Any]) -> str:
    """Write that a table is resumed, or was not suspended."""
    since = values["was_suspended"]
    return f"{values['table']}: {f'resumed, was suspended since {since}' if since else 'was not suspended'}"


def removed(values: Mapping[str, Any]) -> str:
    """Write what was taken out of a table."""
    if not values["properties"]:
        return f"{values['table']}: nothing to remove"
    order = f"the sort order {values['sort_order']} and " if values["sort_order"] else ""
    return f"{values['table']}: removed {order}{', '.join(values['properties'])}"


def history(values: Mapping[str, Any]) -> str:
    """Write a table's history, one line for each round and other commit."""
    entries = values["entries"]
    if not entries:
        return f"{values['table']}: no commit" + (f" since {values['since']}" if values["since"] else "")
    lines = table(_HISTORY_HEADER, [_history_line(entry) for entry in entries])
    notes = [_HISTORY_NOTE, *([_UNDONE_NOTE] if any(entry["rows_undone"] for entry in entries) else [])]
    return "\n".join((values["table"], lines, *notes))


def cost(values: Mapping[str, Any]) -> str:
    """Write what the first clustering and each day after it would cost, and how certain that is."""
    low, high = values["bytes_per_day"]
    first = f"nothing to do, average depth is {values['depth']:.1f}"
    if values["first_bytes"]:
        first = (
            f"{size(values['first_bytes'])} read and written, average depth "
            f"{values['depth']:.1f} -> {values['expected_depth']:.1f} expected{_seconds(values['first_seconds'])}"
        )
    lines = [f"{values['table']} by {values['cluster_key']}", f"  first clustering  {first}"]
    if not values["loads"] and not values["rewrites"]:
        lines.append("  each day          unknown: the snapshots record no load of the past seven days")
    else:
        days = "1 day" if values["days"] == 1 else f"{values['days']:g} days"
        per_day = f"{span(size(low), size(high))} to stay clustered{_seconds(values['seconds_per_day'])}"
        rewrites = f" and {count_noun(values['rewrites'], 'rewrite')} of rows" if values["rewrites"] else ""
        loads = f"{count_noun(values['loads'], 'load')}{rewrites} in {days}"
        replayed = f"{loads}, {size(values['loaded_bytes_per_day'])} a day"
        lines += [f"  each day          {per_day}", f"  replayed          {replayed}"]
    if values["actual_bytes_per_day"] is not None:
        actual = f"{size(values['actual_bytes_per_day'])} a day in that time, by the table's history"
        lines.append(f"  in fact           {actual}")
    if values["saved_bytes_per_day"] is not None:
        balance = balance_text(values["actual_bytes_per_day"], values["saved_bytes_per_day"])
        lines.append(f"  balance           {balance}")
    if values["first_seconds"] is None:
        lines.append("  duration          unknown: the snapshots record no recluster of this table")
    lines.append(
        "  certainty         rows are assumed to be spread evenly within each block; from one round after each load to "
        "rounds until nothing is left"
    )
    return "\n".join(lines)


def suggestion(values: Mapping[str, Any]) -> str:
    """Write the keys that were tried as a table, and what to do."""
    heading = f"{values['table']}: {values['blocks']:,} blocks"
    not_tried = ", ".join(f"{name} ({kind})" for name, kind in values["not_tried"])
    ending = f"\nNot tried, because they cannot be a key: {not_tried}." if not_tried else ""
    ending += "".join(f"\nLeft out, {line}." for line in values["left_out"])
    if not values["candidates"]:
        return f"{heading}\n{values['advice']}.{ending}"
    queries = values["queries"]
    basis = (
        "1 query"
        if len(queries) == 1
        else f"{len(queries):,} queries"
        if queries
        else "queries for one value of the key's first column"
    )
    rows = [
        (
            ", ".join(key["cluster_by"]),
            f"{key['distinct']:,}",
            f"{key['skipped_now']:.0%}",
            f"{key['skipped_then']:.0%}",
            f"{key['blocks']:,}",
            size(key["first_bytes"]),
            _sizes(key["bytes_per_day"]),
        )
        for key in values["candidates"][:_MOST_KEYS]
    ]
    header = ("key", "distinct", "skipped now", "skipped then", "blocks then", "to cluster", "to keep a day")
    parts = [f"{heading}, by {values['sampled']:,} sampled rows and {basis}", table(header, rows)]
    if queries:
        parts.append(_opened_by_key(values))
    parts += [f"{values['advice']}.", *(f"But {line}." for line in values["dissent"])]
    return "\n".join(parts) + ending


def _opened_by_key(values: Mapping[str, Any]) -> str:
    """Write the blocks that each query opens under the best keys."""
    keys = values["candidates"][:_MOST_KEYS_BY_QUERY]
    header = ("blocks opened by", "now", *(f"by {', '.join(key['cluster_by'])}" for key in keys))
    rows = [
        (_shortened(query), f"{now:,}", *(f"{key['opened'][place]:,}" for key in keys))
        for place, (query, now) in enumerate(zip(values["queries"], values["opened"], strict=True))
    ]
    all_blocks = ("of all blocks", f"{values['blocks']:,}", *(f"{key['blocks']:,}" for key in keys))
    return table(header, [*rows, all_blocks])


def _shortened(query: str) -> str:
    text = " ".join(query.split())
    return text if len(text) <= _LONGEST_QUERY else f"{text[: _LONGEST_QUERY - 3]}..."


def _history_line(entry: Mapping[str, Any]) -> tuple[str, ...]:
    start = (moment(entry["at"]), entry["kind"], entry["by"] or "-")
    amplification = f"{entry['write_amplification']:.2f}"
    if entry["kind"] != "recluster":
        blocks = added_and_removed(entry["blocks_in"], entry["blocks_out"], "{:,}".format)
        sizes = added_and_removed(entry["bytes_in"], entry["bytes_out"], size)
        rows = added_and_removed(entry["rows_in"], entry["rows_out"], "{:,}".format)
        rows += f" ({entry['rows_undone']:,} undone)" if entry["rows_undone"] else ""
        return (*start, "", blocks, sizes, rows, "", "", "", amplification)
    return (
        *start,
        ", ".join(map(str, entry["levels"])),
        f"{entry['blocks_in']:,} -> {entry['blocks_out']:,}",
        f"{size(entry['bytes_in'])} -> {size(entry['bytes_out'])}",
        f"{entry['rows_in']:,}",
        _depths(entry),
        "" if entry["seconds"] is None else f"{entry['seconds']:.1f}",
        str(entry["conflicts"]),
        amplification,
    )


def _depths(entry: Mapping[str, Any]) -> str:
    if entry["depth_before"] is None or entry["depth_after"] is None:
        return ""
    expected = "~" if entry["depth_after_is"] == "expected" else ""
    return depths(entry["depth_before"], entry["depth_after"], expected)


def _seconds(ends: Sequence[float] | None) -> str:
    if ends is None:
        return ""
    return f", {span(f'{ends[0]:.1f}', f'{ends[1]:.1f}')} s at the speeds of this table's reclusters"


def _sizes(ends: Sequence[int] | None) -> str:
    return "unknown" if ends is None else span(size(ends[0]), size(ends[1]))


def _bars(title: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    most = max(counts.values())
    label = max(len(title), *map(len, counts))
    number = max(len("blocks"), *(len(f"{count:,}") for count in counts.values()))
    bar = _bar_character()
    lines = ["", f"  {title.rjust(label)}  {'blocks'.rjust(number)}"]
    for name, count in counts.items():
        length = max(1, round(_BAR_WIDTH * count / most)) if count else 0
        lines.append(f"  {name.rjust(label)}  {f'{count:,}'.rjust(number)}  {bar * length}".rstrip())
    return lines


def _bar_character() -> str:
    """Return a full block, or a number sign if standard output cannot encode it."""
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"
