"""The report as a self-contained HTML file: no network, no script, light and dark, readable on a phone.

matplotlib draws the figures in the page's light colours, which its CSS variables then replace: one drawing serves light
and dark.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from dbt_recluster.advice.cost_model import Balance
from dbt_recluster.advice.overview import Overview, totals
from dbt_recluster.exceptions import ReportError
from dbt_recluster.report.report_data import DrawnBlocks, ReportData
from dbt_recluster.report.result_text import balance_text, history_row, opened_on_curve, standing, undone_text
from dbt_recluster.text import best_unit, count_noun, depth_bucket, moment_text, printable, size

_TEMPLATE = Path(__file__).with_name("page.html")
_MOST_BARS = 400
_STRETCHES = 100
_SHORTEST_SPAN = timedelta(minutes=1)
# The page's light colours. Those that are equal are equal in the dark too.
_COLOURS = dict(re.findall(r"--(\w+): (#\w+)", _TEMPLATE.read_text(encoding="utf-8").partition("@media")[0]))
_STYLE: dict[str, Any] = {
    "font.size": 9,
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may have dollar signs
    "text.color": _COLOURS["ink"],
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _COLOURS["muted"]),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _COLOURS["grid"]),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.linewidth": 0.7,
}


def write_report(reports: Sequence[ReportData], path: Path, unread: Sequence[Overview] = ()) -> None:
    """Write the HTML report on tables, and on those that could not be ``unread``.

    Raises:
        ReportError: matplotlib is missing, or the file cannot be written.
    """
    page = render(reports, datetime.now(timezone.utc), unread)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as e:
        raise ReportError(f"The report cannot be written to {path}: {e.strerror or e}") from e


def render(reports: Sequence[ReportData], now: datetime, unread: Sequence[Overview] = ()) -> str:
    """Return the page: counts by verdict, the tables that are not well clustered, the others, and each in full."""
    environment = Environment(
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": lambda name: Markup("<wbr>").join(re.split(r"(?<=[._])", printable(name))),
        "cells": lambda entry: {name: text.replace("->", "→") for name, text in history_row(entry.as_dict()).items()},
        "grouped": "{:,}".format,
        "moment": moment_text,
        "minute": "{:%Y-%m-%d %H:%M}".format,
        "number": lambda value: f"{value:.1f}" if value < 100 else f"{value:,.0f}",
        "opened": opened_on_curve,
        "rounds": lambda count: count_noun(count, "round"),
        "size": size,
        "standing": lambda line: standing(line.depth, line.threshold, word=""),
        "tables": lambda count: count_noun(count, "table"),
        "undone": undone_text,
    }
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    with _pyplot().rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ")  # one that the report's font lacks is not worth it
        tables = [_table(report) for report in sorted(reports, key=lambda report: report.overview.rank)]
    places = {id(table["report"].overview): place for place, table in enumerate(tables, 1)}
    lines = [*unread, *(table["report"].overview for table in tables)]
    return template.render(
        at=now.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        lines=[(line, places.get(id(line))) for line in sorted(lines, key=lambda line: line.rank)],
        verdicts=totals(lines)["verdicts"],
        prices=next((report.prices for report in reports), None),
        tables=tables,
        last_commits=30,
    )


def _table(report: ReportData) -> dict[str, Any]:
    balance, figures = report.balance, {}
    is_loss = balance is not None and balance.rewritten > balance.saved
    if report.information["total_block_count"]:
        figures = {
            "curve": draw_depth_curve(report),
            "histogram": draw_histogram(report.information),
            "blocks": draw_blocks(report, report.now),
            "history": draw_history(report) if len(report.history) > 1 else "",
            "bytes": draw_read_bytes(balance, report.overview.table) if balance is not None and balance.opened else "",
        }
    return {
        "report": report,
        "rounds": [entry for entry in report.history if entry.is_recluster],
        "loss": balance_text(balance.rewritten, balance.saved) if balance and is_loss else "",
        "ends": shows_ends(report),
        "levels": [(shade, name) for shade, name, _ in level_shades(report.now)],
        "figures": figures,
        "columns": [(name, draw_blocks(report, drawn)) for name, drawn in report.on_curve.items()],
    }


def draw_depth_curve(report: ReportData) -> str:
    """Draw how many blocks cover each key, before and after the last recluster and now; threshold; where reads end."""
    figure, axes = _figure()
    _draw_curves(axes, report)
    if shows_ends(report):  # bars that hang from above
        weight, _ = np.histogram(report.now.at, _STRETCHES, (0, 1), weights=report.now.ends)
        top = 1.25 * axes.get_ylim()[1]
        places = np.flatnonzero(weight)
        heights = -0.18 * top * weight[places] / weight.max()
        style = {"bottom": top, "align": "edge", "color": _COLOURS["load"]}
        axes.bar(places / _STRETCHES, heights, 1 / _STRETCHES, **style)
        axes.set_ylim(0, top)
    _key_axis(axes, report, report.now)
    return _svg(figure, f"depth {report.overview.table}", "Depth along the cluster key")


def shows_ends(report: ReportData) -> bool:
    """Return whether the curve shows where reads end: some are known, and the axis is that of the blocks now."""
    ends = report.now.ends
    return ends is not None and bool(ends.sum() > 0) and (report.after is None or report.partitions == 1)


def draw_histogram(information: Mapping[str, Any]) -> str:
    """Draw the number of blocks of each depth."""
    figure, axes = _figure()
    counts = information["block_depth_histogram"]
    names = list(map(depth_bucket, counts))
    axes.bar(range(len(names)), list(counts.values()), color=_COLOURS["after"], width=0.72)
    axes.set_xticks(range(len(names)), names)
    if len(names) < 4:
        axes.set_xlim(-1.5, len(names) + 0.5)
    axes.set_xlabel("depth")
    axes.set_ylabel("blocks")
    _count_blocks(axes)
    return _svg(figure, f"histogram {information['table']}", "Number of blocks of each depth")


def draw_blocks(report: ReportData, drawn: DrawnBlocks) -> str:
    """Draw each block as a bar over its range, new blocks above reclustered ones."""
    count = len(drawn.lower)
    figure, axes = _figure()
    # Evenly spaced blocks if there are too many to tell apart.
    shown = np.unique(np.linspace(0, count - 1, min(count, _MOST_BARS)).round().astype(np.int64))
    order = shown[np.lexsort((drawn.lower[shown], drawn.level[shown]))]
    for shade, _, levels in level_shades(drawn):
        rows = np.flatnonzero(np.isin(drawn.level[order], levels))
        lower = drawn.lower[order[rows]]
        upper = np.maximum(drawn.upper[order[rows]], lower + 0.004)  # a block of a single key is visible
        width = max(0.6, min(5.0, 110 / max(1, len(order))))
        axes.hlines(rows, lower, upper, colors=_COLOURS[f"level{shade}"], linewidths=width)
    axes.set_ylim(len(order) - 0.2, -0.8)
    axes.set_yticks([])
    axes.set_ylabel(f"{len(order):,} of {count:,} blocks" if len(order) < count else "blocks")
    _key_axis(axes, report, drawn)
    axes.grid(visible=False, axis="y")
    place = next((name for name, along in report.on_curve.items() if along is drawn), "keys")
    return _svg(figure, f"blocks {report.overview.table} {place}", f"Each block as a bar over its range of {place}")


def level_shades(drawn: DrawnBlocks) -> list[tuple[int, str, Sequence[int]]]:
    """Return the shades for the levels: number, name and levels of each."""
    levels = np.unique(drawn.level)
    shades: list[tuple[int, str, Sequence[int]]] = [(0, "new", [0])] if 0 in levels else []
    parts = [part for part in np.array_split(levels[levels > 0], 4) if len(part)]
    for number, part in enumerate(parts, start=1):
        first, last = int(part[0]), int(part[-1])
        shades.append((number, f"level {first}" + (f" to {last}" if last > first else ""), part.tolist()))
    return shades


def draw_read_bytes(balance: Balance, table: str) -> str:
    """Draw what reads open in a day without reclustering and with it, and what it rewrites."""
    figure, axes = _figure()
    bars = {
        "read without it": (balance.opened + balance.saved, "before"),
        "read with it": (balance.opened, "after"),
        "rewritten": (balance.rewritten, "load"),
    }
    unit, factor = best_unit(max(count for count, _ in bars.values()))
    for name, (count, colour) in bars.items():
        axes.barh(name, count / factor, color=_COLOURS[colour], height=0.6)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{unit} in a day")
    return _svg(figure, f"bytes {table}", "Bytes that reads open in a day without reclustering and with it")


def draw_history(report: ReportData) -> str:
    """Draw depth and threshold over time, and below them the bytes loaded and rewritten."""
    entries = report.history
    rounds = [entry for entry in entries if entry.is_recluster and entry.depth_before is not None]
    figure, axes = _figure(rows=2 if rounds else 1)
    above, below = axes if rounds else (None, axes)
    if above is not None:
        at = [entry.at for entry in rounds]
        depths = {name: [getattr(e, f"depth_{name}") for e in rounds] for name in ("before", "after")}
        for time, *ends in zip(at, *depths.values(), strict=True):
            above.plot([time, time], ends, color=_COLOURS["muted"], linewidth=1)
        for name, ends in depths.items():
            above.plot(at, ends, "o", color=_COLOURS[name], markersize=4)
        above.set_ylabel("depth")
        _draw_threshold(above, report.threshold, max(filter(None, depths["before"]), default=0))
        above.set_ylim(bottom=0)
        above.margins(y=0.2)
    loads = [(entry.at, entry.bytes_loaded) for entry in entries if not entry.is_recluster]
    rewrites = [(entry.at, entry.bytes_in) for entry in entries if entry.is_recluster]
    unit, factor = best_unit(max(sum(count for _, count in series) for series in (loads, rewrites)))
    for name, series in (("load", loads), ("after", rewrites)):
        if series:
            times, counts = zip(*series, strict=True)
            heights = np.cumsum(counts) / factor
            below.step(times, heights, where="post", color=_COLOURS[name], linewidth=1.6)
            below.plot([times[-1]], [heights[-1]], "o", color=_COLOURS[name], markersize=3)
    below.set_ylabel(f"{unit} so far")
    below.set_ylim(bottom=0)
    if entries[-1].at - entries[0].at < _SHORTEST_SPAN:
        below.set_xlim(entries[0].at - _SHORTEST_SPAN / 20, entries[0].at + _SHORTEST_SPAN)
    dates: Any = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(minticks=2, maxticks=5)
    below.xaxis.set_major_locator(locator)
    below.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    return _svg(figure, f"history {report.overview.table}", "Depth over time, and bytes loaded and rewritten so far")


def _draw_curves(axes: Any, report: ReportData) -> None:
    curves = {"before": report.before, "after": report.after}
    if report.changed or report.after is None:
        curves["now"] = report.now
    deepest = 0
    for name, drawn in curves.items():
        if drawn is None or not len(drawn.at):
            continue
        # Each point is the deepest of those it represents.
        starts = np.unique(np.linspace(0, len(drawn.at), 800, endpoint=False).astype(np.int64))
        at, depth = drawn.at[starts], np.maximum.reduceat(drawn.depth, starts)
        deepest = max(deepest, int(depth.max()))
        if name == "after":  # hide the curve of before
            axes.fill_between(at, depth, step="mid", color=_COLOURS["card"], linewidth=0)
        if name != "now" or report.after is None:
            axes.fill_between(at, depth, step="mid", color=_COLOURS[name], alpha=0.14, linewidth=0)
        axes.step(at, depth, where="mid", color=_COLOURS[name], linewidth=1.4)
    _draw_threshold(axes, report.threshold, deepest)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01, y=0.12)
    axes.set_ylabel("depth")
    _count_blocks(axes)


def _draw_threshold(axes: Any, threshold: float | None, deepest: float) -> None:
    # A threshold far above the greatest depth would leave no room for the curve.
    if threshold is not None and threshold <= 3 * deepest:
        axes.axhline(threshold, color=_COLOURS["muted"], linewidth=1.2, dashes=(5, 3))


def _count_blocks(axes: Any) -> None:
    axes.locator_params("y", nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def _key_axis(axes: Any, report: ReportData, drawn: DrawnBlocks) -> None:
    axes.set_xlim(-0.01, 1.01)
    if report.partitions > 1:
        axes.set_xlabel(f"{report.partitions:,} partitions, one after the other")
    axes.set_xticks([place for place, _ in drawn.labels], [text for _, text in drawn.labels])
    for label, (place, _) in zip(axes.get_xticklabels(), drawn.labels, strict=True):  # within the figure
        label.set_horizontalalignment("left" if place < 0.2 else "right" if place > 0.8 else "center")


def _figure(rows: int = 1) -> Any:
    # As wide as a phone, in inches.
    return _pyplot().subplots(rows, 1, figsize=(4.2, 2.35), layout="constrained", sharex=rows > 1)


def _svg(figure: Any, salt: str, label: str) -> str:
    pyplot, buffer = _pyplot(), io.StringIO()
    # Ids must differ between the figures of a page, so each salts its own.
    with pyplot.rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    text = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    for attribute in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {attribute}="[^"]*"', r"\1", text, count=1)
    for name, colour in _COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(printable(label))}"', 1)


def _pyplot() -> Any:
    """Return matplotlib's pyplot, which draws without a screen."""
    try:
        import_module("matplotlib").use("agg")
    except ImportError as e:
        raise ReportError(
            "The report's figures are drawn by matplotlib, which is not installed: pip install 'dbt-recluster[report]'"
        ) from e
    return import_module("matplotlib.pyplot")
