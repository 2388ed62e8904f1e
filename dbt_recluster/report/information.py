"""Clustering metrics as people read them: aligned figures, the depths as bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from dbt_recluster.report.text import size

_WIDTH = 40


def information(found: Mapping[str, Any]) -> str:
    """Return a table's metrics: the figures, then how many blocks have which depth."""
    where = f" where {found['where']}" if found["where"] else ""
    heading = f"{found['table']} by {found['cluster_key']}{where}"
    if found["snapshot_id"] is None:
        return f"{heading}: never written, so there is nothing to measure"
    figures = [
        ("snapshot", f"{found['snapshot_id']} of {found['snapshot_at'][:19].replace('T', ' ')} UTC"),
        ("blocks", f"{found['total_block_count']:,} ({found['constant_block_count']:,} constant)"),
        ("rows", f"{found['total_rows']:,}"),
        ("size", size(found["total_bytes"])),
        ("average depth", f"{found['average_depth']:g}"),
        ("average overlaps", f"{found['average_overlaps']:g}"),
        ("depth of 95 %, 99 %, all", f"{found['p95_depth']}, {found['p99_depth']}, {found['max_depth']}"),
        ("clustering ratio", f"{found['clustering_ratio']:g} of 100"),
        ("relative clustering ratio", f"{found['relative_clustering_ratio']:g}"),
        ("depth where blocks meet", f"{found['overlap_point_depth']:g}"),
    ]
    width = max(len(name) for name, _ in figures)
    lines = [heading, *(f"  {name.ljust(width)}  {value}" for name, value in figures)]
    lines += _bars("depth", {_bucket(name): count for name, count in found["block_depth_histogram"].items()})
    if list(found["level_histogram"]) != ["0"]:
        lines += _bars("level", found["level_histogram"])
    return "\n".join(lines)


def measure(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows one figure of a table in one line."""
    return lambda found: f"{found['table']} by {found['cluster_key']}: {found[name]:g}"


def suspended(found: Mapping[str, Any]) -> str:
    """Return that a table is suspended, and how to resume it."""
    resume = f"dbt run-operation resume_recluster --args '{{table: {found['table']}}}'"
    return f"{found['table']}: suspended since {found['suspended']}; to resume: {resume}"


def resumed(found: Mapping[str, Any]) -> str:
    """Return that a table is reclustered again, or always was."""
    since = found["was_suspended"]
    return f"{found['table']}: {f'resumed, was suspended since {since}' if since else 'was not suspended'}"


def _bucket(name: str) -> str:
    """Return how a bucket of the histogram reads: exact up to 16, above that the end of a doubling range."""
    depth = int(name)
    return str(depth) if depth <= 16 else f"{depth // 2 + 1} to {depth}"


def _bars(title: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    most = max(counts.values())
    label = max(len(title), *map(len, counts))
    number = max(len("blocks"), *(len(f"{count:,}") for count in counts.values()))
    block = _block()
    lines = ["", f"  {title.rjust(label)}  {'blocks'.rjust(number)}"]
    for name, count in counts.items():
        length = max(1, round(_WIDTH * count / most)) if count else 0
        lines.append(f"  {name.rjust(label)}  {f'{count:,}'.rjust(number)}  {block * length}".rstrip())
    return lines


def _block() -> str:
    """Return what bars are made of; a terminal that cannot show a full block gets a number sign."""
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"
