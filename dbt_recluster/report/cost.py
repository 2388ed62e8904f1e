"""A cost estimate as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbt_recluster.report.text import plural, size, table

_MOST_KEYS = 12


def cost(found: Mapping[str, Any]) -> str:
    """Return what the first clustering and each day after it would cost, and how sure that is."""
    low, high = found["bytes_per_day"]
    first = f"nothing to do, average depth is {found['depth']:.1f}"
    if found["first_bytes"]:
        first = (
            f"{size(found['first_bytes'])} read and written, average depth "
            f"{found['depth']:.1f} -> {found['expected_depth']:.1f} expected{_seconds(found['first_seconds'])}"
        )
    lines = [f"{found['table']} by {found['cluster_key']}", f"  first clustering  {first}"]
    if not found["loads"]:
        lines.append("  each day          not known: the snapshots hold no load of the past seven days")
    else:
        loads = (
            f"{plural(found['loads'], 'load')} in {found['days']:g} {'day' if found['days'] == 1 else 'days'}"
        )
        lines.append(
            f"  each day          {_range(size(low), size(high))} to keep it so{_seconds(found['seconds_per_day'])}"
        )
        lines.append(f"  played through    {loads}, {size(found['loaded_bytes_per_day'])} a day")
    if found["actual_bytes_per_day"] is not None:
        lines.append(
            f"  really rewritten  {size(found['actual_bytes_per_day'])} a day in that time, by the table's history"
        )
    if found["first_seconds"] is None:
        lines.append("  how long          not known: the snapshots hold no recluster of this table")
    lines.append(
        "  how sure          rows are taken to lie evenly within each block; from one round after each load to rounds "
        "until nothing is left"
    )
    return "\n".join(lines)


def _seconds(span: Sequence[float] | None) -> str:
    if span is None:
        return ""
    return f", {_range(f'{span[0]:.1f}', f'{span[1]:.1f}')} s at the speeds of this table's reclusters"


def _sizes(span: Sequence[int] | None) -> str:
    return "not known" if span is None else _range(size(span[0]), size(span[1]))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def suggestion(found: Mapping[str, Any]) -> str:
    """Return the keys that were tried as a table, and what to do."""
    heading = f"{found['table']}: {found['blocks']:,} blocks"
    if not found["candidates"]:
        return f"{heading}\n{found['advice']}."
    asked = (
        plural(len(found["queries"]), "predicate")
        if found["queries"]
        else "queries for one value of the key's first column"
    )
    rows = [
        (
            ", ".join(each["cluster_by"]),
            f"{each['distinct']:,}",
            f"{each['skipped_now']:.0%}",
            f"{each['skipped_then']:.0%}",
            size(each["first_bytes"]),
            _sizes(each["bytes_per_day"]),
        )
        for each in found["candidates"][:_MOST_KEYS]
    ]
    lines = table(("key", "distinct", "skipped now", "skipped then", "to cluster", "to keep a day"), rows)
    return f"{heading}, by {found['sampled']:,} sampled rows and {asked}\n{lines}\n{found['advice']}."
