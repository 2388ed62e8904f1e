"""The report as one HTML file that needs nothing else: no network, no script, light and dark, readable on a phone."""

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
from dbt_recluster.report.text import plural, size

if TYPE_CHECKING:
    from dbt_recluster.history import HistoryEntry
    from dbt_recluster.survey import Survey

_TEMPLATE = Path(__file__).with_name("page.html")
_LAST_COMMITS = 30


def write_report(
    surveys: Sequence[Survey],
    path: str | Path,
    *,
    title: str = "Clustering report",
    now: datetime | None = None,
) -> list[Path]:
    """Write the report, and ``clustering.png`` beside it for a terminal or a chat.

    Args:
        surveys: The tables, at least one (see :func:`dbt_recluster.survey.survey`).
        path: The HTML file; its directory is made.
        title: Its heading.
        now: The time it tells, now by default.

    Returns:
        The two files.

    Raises:
        ReportError: matplotlib is missing, or a file cannot be written. Then neither is.
    """
    ranked = sorted(surveys, key=lambda each: (-each.forecast.gain, each.table))
    page = render(ranked, title, now or datetime.now(timezone.utc))
    picture = figures.overview_png(ranked)
    html = Path(path)
    png = html.with_name("clustering.png")
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page, encoding="utf-8")
        png.write_bytes(picture)
    except OSError as e:
        raise ReportError(f"The report cannot be written to {html}: {e.strerror or e}") from e
    return [html, png]


def render(surveys: Sequence[Survey], title: str, now: datetime) -> str:
    """Return the page; tables come in the order given."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        at=now.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        tables=[_table(number, each) for number, each in enumerate(surveys, start=1)],
    )


def _table(number: int, each: Survey) -> dict[str, Any]:
    information, forecast = each.information, each.forecast
    rounds = [entry for entry in each.history if entry.kind == "recluster"]
    return {
        "id": f"table-{number}",
        "name": _breakable(each.table),
        "relation": each.table,
        "key": information["cluster_key"],
        "partitions": each.partitions,
        "suspended": each.suspended,
        "empty": not information["total_block_count"],
        "blocks": f"{information['total_block_count']:,}",
        "size": size(information["total_bytes"]),
        "depth": _number(information["average_depth"]),
        "expected_depth": _number(forecast.expected_depth),
        "gain": _number(forecast.gain),
        "to_rewrite": size(forecast.bytes) if forecast.bytes else "nothing",
        "last": rounds[-1].at.strftime("%Y-%m-%d %H:%M") if rounds else "never",
        "facts": _facts(each, rounds),
        "compared": each.after is not None,
        "reclustered": bool(rounds),
        "levels": _levels(each),
        "figures": _figures(each),
        "commits": [_commit(entry) for entry in reversed(each.history[-_LAST_COMMITS:])],
        "all_commits": len(each.history),
    }


def _figures(each: Survey) -> dict[str, str]:
    if not each.information["total_block_count"]:
        return {}
    return {
        "curve": figures.depth_curve(each),
        "histogram": figures.histogram(each.information),
        "blocks": figures.blocks(each),
        "history": figures.history(each.history, each.table),
    }


def _levels(each: Survey) -> list[tuple[int, str]]:
    """Return the levels that the table has, as the figure shows them, and what to call them."""
    names = ("new", "reclustered once", "twice", "3 times", "4 times or more")
    shown = {min(max(0, level), len(names) - 1) for level in each.now.level.tolist()}
    return [(level, names[level]) for level in sorted(shown)]


def _breakable(name: str) -> Markup:
    """Let a long name break where its words do."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", name))


def _facts(each: Survey, rounds: Sequence[HistoryEntry]) -> list[tuple[str, str]]:
    found: Mapping[str, Any] = each.information
    amplification = each.history[-1].write_amplification if each.history else 0.0
    facts = [
        ("average depth", _number(found["average_depth"])),
        ("depth of 95 %", str(found["p95_depth"])),
        ("clustering ratio", f"{found['clustering_ratio']:.0f} %"),
        ("blocks", f"{found['total_block_count']:,}"),
        ("size", size(found["total_bytes"])),
        ("rows", f"{found['total_rows']:,}"),
        ("reclusters", plural(len(rounds), "round")),
        ("rows rewritten per row loaded", f"{amplification:.2f}"),
    ]
    seconds = each.forecast.estimated_seconds
    if each.forecast.bytes and seconds is not None:
        facts.append(("left to do, about", f"{size(each.forecast.bytes)}, {seconds:.0f} s"))
    return facts


def _commit(entry: HistoryEntry) -> dict[str, str]:
    recluster = entry.kind == "recluster"
    depths = ""
    if entry.depth_before is not None and entry.depth_after is not None:
        about = "~" if entry.depth_after_is == "expected" else ""
        depths = f"{entry.depth_before:.1f} → {about}{entry.depth_after:.1f}"
    return {
        "at": entry.at.strftime("%Y-%m-%d %H:%M"),
        "kind": "recluster" if recluster else f"load ({entry.kind})",
        "recluster": "yes" if recluster else "",
        "blocks": f"{entry.blocks_in:,} → {entry.blocks_out:,}" if recluster else f"+{entry.blocks_out:,}",
        "size": size(entry.bytes_in if recluster else entry.bytes_out),
        "depths": depths,
        "seconds": "" if entry.seconds is None else f"{entry.seconds:.1f}",
    }


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
