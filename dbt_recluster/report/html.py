"""The report as a self-contained HTML file: no network, no script, light and dark, readable on a phone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dbt_recluster.exceptions import ReportError
from dbt_recluster.report import figures
from dbt_recluster.report.operation_text import opened_on_curve
from dbt_recluster.report.recluster_text import balance_text, history_row, undone_text
from dbt_recluster.text import count_noun, size

if TYPE_CHECKING:
    from dbt_recluster.clustering.history import HistoryEntry
    from dbt_recluster.clustering.report_data import ReportData

_TEMPLATE = Path(__file__).with_name("page.html")
_LAST_COMMITS = 30


def write_report(reports: Sequence[ReportData], path: str | Path) -> list[Path]:
    """Write the report on one or more tables, and a picture of the same name beside it for a terminal or a chat.

    Raises:
        ReportError: matplotlib is missing, or a file cannot be written. Then neither is.
    """
    ranked = sorted(reports, key=lambda report: (-report.estimate.gain, report.table))
    page = render(ranked, "Clustering report", datetime.now(timezone.utc))
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
    environment.filters |= {
        "breakable": _breakable,
        "day": "{:%Y-%m-%d %H:%M}".format,
        "grouped": "{:,}".format,
        "number": _number,
        "size": size,
        "undone": undone_text,
    }
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        at=now.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        tables=list(map(_table, reports)),
    )


def _table(report: ReportData) -> dict[str, Any]:
    """Return what the template shows of a table beside its data."""
    balance = report.balance
    loss = ""
    if balance is not None and balance.rewritten > balance.saved:
        loss = balance_text(balance.rewritten, balance.saved)
    rounds = [entry for entry in report.history if entry.is_recluster]
    return {
        "report": report,
        "axis": "curve" if "curve" in report.information else "key",
        "last_round": rounds[-1] if rounds else None,
        "facts": _facts(report, len(rounds)),
        "loss": loss,
        "ends": figures.shows_ends(report),
        "levels": [(shade, name) for shade, name, _ in figures.level_shades(report.now)],
        "figures": _figures(report),
        "commits": [_commit(entry) for entry in reversed(report.history[-_LAST_COMMITS:])],
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


def _breakable(name: str) -> Markup:
    """Allow a long name to break between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", name))


def _facts(report: ReportData, rounds: int) -> list[tuple[str, str]]:
    values, estimate, balance = report.information, report.estimate, report.balance
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
        ("reclusters", count_noun(rounds, "round")),
        ("rows rewritten per row loaded", f"{amplification:.2f}"),
    ]
    if estimate.bytes and estimate.estimated_seconds is not None:
        left = f"{size(estimate.bytes)}, {estimate.estimated_seconds:.0f} s"
        facts.append(("left to do, about", left))
    if balance is not None:
        facts.append(("rewritten in a day", size(balance.rewritten)))
        facts.append(("not read because of it", size(balance.saved)))
    return facts


def _commit(entry: HistoryEntry) -> dict[str, Any]:
    row = {name: text.replace("->", "→") for name, text in history_row(entry.as_dict()).items()}
    kind = f"load ({entry.kind})" if entry.rows_loaded else entry.kind
    return {
        "entry": entry,
        "row": row,
        "kind": f"{entry.kind}, {entry.rows_undone:,} rows undone" if entry.rows_undone else kind,
        "size": size(entry.bytes_in) if entry.is_recluster else row["size"],
    }


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
