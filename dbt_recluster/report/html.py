"""The report as a self-contained HTML file: no network, no script, light and dark, readable on a phone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dbt_recluster.exceptions import ReportError
from dbt_recluster.report import figures
from dbt_recluster.report.operation_text import opened_on_curve
from dbt_recluster.report.recluster_text import added_and_removed, balance_text, depths, undone_text
from dbt_recluster.text import count_noun, size

if TYPE_CHECKING:
    from dbt_recluster.clustering.history import HistoryEntry
    from dbt_recluster.clustering.report_data import ReportData

_TEMPLATE = Path(__file__).with_name("page.html")
_LAST_COMMITS = 30


def write_report(
    reports: Sequence[ReportData],
    path: str | Path,
    *,
    title: str = "Clustering report",
    now: datetime | None = None,
) -> list[Path]:
    """Write the report, and a picture of the same name beside it for a terminal or a chat.

    Args:
        reports: The tables, at least one (see :func:`dbt_recluster.clustering.report_data.report_data`).
        path: The HTML file; its directory is created.
        title: Its heading.
        now: The time that it shows, by default now.

    Returns:
        The two files.

    Raises:
        ReportError: matplotlib is missing, or a file cannot be written. Then neither is.
    """
    ranked = sorted(reports, key=lambda report: (-report.estimate.gain, report.table))
    page = render(ranked, title, now or datetime.now(timezone.utc))
    picture = figures.overview_png(ranked)
    html = Path(path)
    png = html.with_suffix(".png")
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page, encoding="utf-8")
        png.write_bytes(picture)
    except OSError as e:
        raise ReportError(f"The report cannot be written to {html}: {e.strerror or e}") from e
    return [html, png]


def render(reports: Sequence[ReportData], title: str, now: datetime) -> str:
    """Return the page, with the tables in the order given."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        at=now.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        tables=[_table(number, report) for number, report in enumerate(reports, start=1)],
    )


def _table(number: int, report: ReportData) -> dict[str, Any]:
    information, estimate, balance = report.information, report.estimate, report.balance
    rounds = [entry for entry in report.history if entry.is_recluster]
    return {
        "id": f"table-{number}",
        "name": _breakable(report.table),
        "relation": report.table,
        "key": information["cluster_key"],
        "axis": "curve" if "curve" in information else "key",
        "partitions": report.partitions,
        "suspended": report.suspended,
        "empty": not information["total_block_count"],
        "blocks": f"{information['total_block_count']:,}",
        "size": size(information["total_bytes"]),
        "depth": _number(information["average_depth"]),
        "expected_depth": _number(estimate.expected_depth) if estimate.bytes else "",
        "gain": _number(estimate.gain) if estimate.bytes else "",
        "to_rewrite": size(estimate.bytes) if estimate.bytes else "within its threshold",
        "last": rounds[-1].at.strftime("%Y-%m-%d %H:%M") if rounds else "never",
        "facts": _facts(report, rounds),
        "loss": balance_text(balance.rewritten, balance.saved)
        if balance and balance.rewritten > balance.saved
        else "",
        "undone": undone_text(information["rows_undone"]) if information["rows_undone"] else "",
        "compared": report.after is not None,
        "ends": figures.shows_ends(report),
        "reclustered": bool(rounds),
        "levels": [(shade, name) for shade, name, _ in figures.level_shades(report.now)],
        "figures": _figures(report),
        "only_commit": _only_commit(report.history),
        "commits": [_commit(entry) for entry in reversed(report.history[-_LAST_COMMITS:])],
        "all_commits": len(report.history),
    }


def _figures(report: ReportData) -> dict[str, str]:
    if not report.information["total_block_count"]:
        return {}
    return {
        "curve": figures.depth_curve(report),
        "histogram": figures.histogram(report.information),
        "blocks": figures.blocks(report),
        "history": figures.history(report.history, report.table) if len(report.history) > 1 else "",
    }


def _only_commit(history: Sequence[HistoryEntry]) -> str:
    """Describe a history of a single commit, which is no curve."""
    if len(history) != 1:
        return ""
    entry = history[0]
    what = "written" if entry.bytes_in else "loaded"
    return f"{size(entry.bytes_out)} {what} at {entry.at:%Y-%m-%d %H:%M} UTC; the only commit so far."


def _breakable(name: str) -> Markup:
    """Allow a long name to break between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", name))


def _facts(report: ReportData, rounds: Sequence[HistoryEntry]) -> list[tuple[str, str]]:
    values: Mapping[str, Any] = report.information
    amplification = report.history[-1].write_amplification if report.history else 0.0
    facts = [
        ("average depth", _number(values["average_depth"])),
        *(
            (f"{name} opens", f"{_number(now)} ({_number(then)} sorted at once)")
            for name, now, then in (opened_on_curve(values["curve"]) if values.get("curve") else ())
        ),
        *([("read depth", _number(values["read_depth"]))] if "read_depth" in values else []),
        ("depth of 95 %", str(values["p95_depth"])),
        ("clustering ratio", f"{values['clustering_ratio']:.0f} %"),
        ("blocks", f"{values['total_block_count']:,}"),
        ("small blocks", f"{values['small_block_count']:,}"),
        ("blocks for each full one", f"{values['fragmentation']:.1f}"),
        ("size", size(values["total_bytes"])),
        ("rows", f"{values['total_rows']:,}"),
        ("reclusters", count_noun(len(rounds), "round")),
        ("rows rewritten per row loaded", f"{amplification:.2f}"),
    ]
    seconds = report.estimate.estimated_seconds
    if report.estimate.bytes and seconds is not None:
        facts.append(("left to do, about", f"{size(report.estimate.bytes)}, {seconds:.0f} s"))
    if report.balance is not None:
        facts += [
            ("rewritten in a day", size(report.balance.rewritten)),
            ("not read because of it", size(report.balance.saved)),
        ]
    return facts


def _commit(entry: HistoryEntry) -> dict[str, str]:
    recluster = entry.is_recluster
    of_depth = ""
    if entry.depth_before is not None and entry.depth_after is not None:
        about = "~" if entry.depth_after_is == "expected" else ""
        of_depth = depths(entry.depth_before, entry.depth_after, about).replace("->", "→")
    return {
        "at": entry.at.strftime("%Y-%m-%d %H:%M"),
        "kind": _kind(entry),
        "recluster": "yes" if recluster else "",
        "blocks": f"{entry.blocks_in:,} → {entry.blocks_out:,}"
        if recluster
        else added_and_removed(entry.blocks_in, entry.blocks_out, "{:,}".format),
        "size": size(entry.bytes_in)
        if recluster
        else added_and_removed(entry.bytes_in, entry.bytes_out, size),
        "depths": of_depth,
        "seconds": "" if entry.seconds is None else f"{entry.seconds:.1f}",
    }


def _kind(entry: HistoryEntry) -> str:
    if entry.rows_undone:
        return f"{entry.kind}, {entry.rows_undone:,} rows undone"
    return f"load ({entry.kind})" if entry.rows_loaded else entry.kind


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
