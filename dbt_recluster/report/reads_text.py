"""The reads of a table, as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbt_recluster.text import count_noun, size, table

_MOST = 20
_HEADER = ("source", "weight", "blocks", "wasted", "size", "asks for")


def reads(values: Mapping[str, Any]) -> str:
    """Write the reads of a table, the most frequent first, and the blocks that each opens."""
    heading = f"{values['table']} by {values['cluster_key']}: {count_noun(values['blocks'], 'block')}"
    notes = [f"  {line}" for line in values["left_out"]]
    if not values["reads"]:
        return "\n".join([f"{heading}, no reads are known", *notes])
    if values["share_wasted"] is not None:
        heading += f"; of the blocks that reads open, {values['share_wasted']:.0%} are wasted"
    lines = table(_HEADER, [_line(read) for read in values["reads"][:_MOST]])
    more = len(values["reads"]) - _MOST
    if more > 0:
        notes.append(f"  and {more:,} more; format: json has all")
    return "\n".join([heading, lines, *notes])


def imported(values: Mapping[str, Any]) -> str:
    """Write the result of an import."""
    scans, ranges, recorded = (
        count_noun(values[name], noun)
        for name, noun in (("scans", "scan"), ("ranges", "range"), ("recorded", "range"))
    )
    origin = values["imported_from"]
    lines = [f"{values['table']}: {scans} in the {origin}, {ranges}; {recorded} recorded with the table"]
    lines += [f"  left out: {line}" for line in values["left_out"][:_MOST]]
    more = len(values["left_out"]) - _MOST
    return "\n".join([*lines, *([f"  and {more:,} more"] if more > 0 else [])])


def forgotten(values: Mapping[str, Any]) -> str:
    """Write how many ranges were dropped."""
    count = values["forgotten"]
    return f"{values['table']}: {count_noun(count, 'range') + ' forgotten' if count else 'no reads were recorded'}"


def _line(read: Mapping[str, Any]) -> tuple[str, ...]:
    asked = ", ".join(f"{column} {_range(*ends)}" for column, ends in read["columns"].items())
    weight = f"{read['weight']:.3g}"
    origin = read["imported_from"]
    source = read["source"] if origin is None else f"{read['source']} ({origin})"
    if read["blocks"] is None:
        return (source, weight, "-", "-", "-", f"{asked} (not of the key)")
    return (
        source,
        weight,
        f"{read['blocks']:,}",
        f"{read['blocks_wasted']:,.1f}",
        size(read["bytes"]),
        asked,
    )


def _range(lower: Any, upper: Any) -> str:
    if lower == upper:
        return f"= {lower}"
    words: Sequence[str] = [
        *([] if lower is None else [f"from {lower}"]),
        *([] if upper is None else [f"to {upper}"]),
    ]
    return " ".join(words)
