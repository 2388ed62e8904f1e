"""The history of a table as people read it: one line a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt_recluster.report.text import size, table

_HEADER = (
    "time (UTC)",
    "what",
    "by",
    "level",
    "blocks",
    "size",
    "rows",
    "depth",
    "seconds",
    "conflicts",
    "amplification",
)
_NOTE = (
    "amplification: rows rewritten by reclustering for each row loaded, as far back as snapshots are kept. "
    "~: expected by the planner; a later commit came before it was measured."
)


def history(found: Mapping[str, Any]) -> str:
    """Return one table's history; ``found`` has its ``table`` and its ``entries`` as dictionaries."""
    entries = found["entries"]
    if not entries:
        return f"{found['table']}: no commit" + (f" since {found['since']}" if found["since"] else "")
    return "\n".join((found["table"], table(_HEADER, [_line(entry) for entry in entries]), _NOTE))


def _line(entry: Mapping[str, Any]) -> tuple[str, ...]:
    start = (entry["at"][:19].replace("T", " "), entry["kind"], entry["by"] or "-")
    last = f"{entry['write_amplification']:.2f}"
    if entry["kind"] != "recluster":
        return (
            *start,
            "",
            _moved(entry["blocks_in"], entry["blocks_out"], "{:,}".format),
            _moved(entry["bytes_in"], entry["bytes_out"], size),
            _moved(entry["rows_in"], entry["rows_out"], "{:,}".format),
            "",
            "",
            "",
            last,
        )
    return (
        *start,
        ", ".join(map(str, entry["levels"])),
        f"{entry['blocks_in']:,} -> {entry['blocks_out']:,}",
        f"{size(entry['bytes_in'])} -> {size(entry['bytes_out'])}",
        f"{entry['rows_in']:,}",
        _depths(entry),
        "" if entry["seconds"] is None else f"{entry['seconds']:.1f}",
        str(entry["conflicts"]),
        last,
    )


def _depths(entry: Mapping[str, Any]) -> str:
    if entry["depth_before"] is None or entry["depth_after"] is None:
        return ""
    expected = "~" if entry["depth_after_is"] == "expected" else ""
    return f"{entry['depth_before']:.1f} -> {expected}{entry['depth_after']:.1f}"


def _moved(out: int, into: int, text: Any) -> str:
    """Return ``+3``, ``-2`` or ``-2 +3``."""
    parts = [f"-{text(out)}"] if out else []
    return " ".join([*parts, f"+{text(into)}"] if into else parts)
