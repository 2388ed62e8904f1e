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
        "cells": _cells,
        "grouped": "{:,}".format,
        "minute": "{:%Y-%m-%d %H:%M}".format,
        "number": _number,
        "opened": opened_on_curve,
        "rounds": lambda count: count_noun(count, "round"),
        "size": size,
        "undone": undone_text,
    }
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        at=now.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        tables=list(map(_table, reports)),
        last_commits=_LAST_COMMITS,
    )


def _table(report: ReportData) -> dict[str, Any]:
    """Return what the template shows of a table beside its data."""
    balance = report.balance
    is_loss = balance is not None and balance.rewritten > balance.saved
    return {
        "report": report,
        "axis": "curve" if "curve" in report.information else "key",
        "rounds": [entry for entry in report.history if entry.is_recluster],
        "loss": balance_text(balance.rewritten, balance.saved) if balance and is_loss else "",
        "ends": figures.shows_ends(report),
        "levels": [(shade, name) for shade, name, _ in figures.level_shades(report.now)],
        "figures": _figures(report),
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


def _cells(entry: HistoryEntry) -> dict[str, str]:
    return {name: text.replace("->", "→") for name, text in history_row(entry.as_dict()).items()}


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
