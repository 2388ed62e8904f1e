"""The figures of the report, drawn by matplotlib: SVG with the colours of the page, and one PNG.

Figures are drawn in placeholder colours, which are then replaced by the page's CSS variables, so that one drawing
serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from dbt_recluster.exceptions import ReportError
from dbt_recluster.text import best_unit, count_noun, depth_bucket

if TYPE_CHECKING:
    from dbt_recluster.clustering.history import HistoryEntry
    from dbt_recluster.clustering.report_data import Layout, ReportData

_SIZE = (4.2, 2.35)  # inches: about the width of a phone, so that text is readable there
_MOST_BARS = 400
_STRETCHES = 100
_MOST_LEVELS = 5
_LEVELS = [f"level{number}" for number in range(_MOST_LEVELS)]
_NAMES = ("card", "ink", "muted", "grid", "before", "after", "load", *_LEVELS)
_COLOURS = {name: f"#0a1b{number:02x}" for number, name in enumerate(_NAMES)}
_PNG_COLOURS = {
    "card": "#ffffff",
    "ink": "#1d2126",
    "muted": "#626a73",
    "grid": "#dfe3e8",
    "before": "#c25a1c",
    "after": "#1f66b5",
    "load": "#9aa3ad",
}


def depth_curve(report: ReportData) -> str:
    """Draw how many blocks cover each key: before and after the last recluster, or now if there was none.

    Where reads end hangs from above.
    """
    figure, axes = _figure()
    _draw_curves(axes, report, _COLOURS)
    if shows_ends(report):
        _draw_ends(axes, report.now)
    _key_axis(axes, report)
    return _svg(figure, f"depth {report.table}", "Depth along the cluster key")


def shows_ends(report: ReportData) -> bool:
    """Whether the curve shows where reads end: some are known, and its axis is that of the blocks now."""
    ends = report.now.ends
    return ends is not None and bool(ends.sum() > 0) and (report.after is None or report.partitions == 1)


def histogram(information: Mapping[str, Any]) -> str:
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
    _whole_numbers(axes)
    return _svg(figure, f"histogram {information['table']}", "Number of blocks of each depth")


def blocks(report: ReportData) -> str:
    """Draw each block as a bar over its range of keys, new blocks above, reclustered ones below them."""
    layout = report.now
    figure, axes = _figure()
    shown = _shown(layout)
    order = shown[np.lexsort((layout.lower[shown], layout.level[shown]))]
    for shade, _, levels in level_shades(layout):
        rows = np.flatnonzero(np.isin(layout.level[order], levels))
        lower = layout.lower[order[rows]]
        # A block of a single key must still be visible.
        upper = np.maximum(layout.upper[order[rows]], lower + 0.004)
        width = max(0.6, min(5.0, 110 / max(1, len(order))))
        axes.hlines(rows, lower, upper, colors=_COLOURS[f"level{shade}"], linewidths=width)
    axes.set_ylim(len(order) - 0.2, -0.8)
    axes.set_yticks([])
    axes.set_ylabel(
        f"{len(order):,} of {len(layout.lower):,} blocks" if len(order) < len(layout.lower) else "blocks"
    )
    _key_axis(axes, report)
    axes.grid(visible=False, axis="y")
    return _svg(figure, f"blocks {report.table}", "Each block as a bar over its range of keys")


def level_shades(layout: Layout) -> list[tuple[int, str, Sequence[int]]]:
    """Return each shade that the levels need: its number, its name and its levels."""
    levels = np.unique(layout.level)
    shades: list[tuple[int, str, Sequence[int]]] = [(0, "new", [0])] if 0 in levels else []
    older = levels[levels > 0]
    parts = [part for part in np.array_split(older, _MOST_LEVELS - 1) if len(part)]
    for number, part in enumerate(parts, start=1):
        first, last = int(part[0]), int(part[-1])
        shades.append((number, f"level {first}" + (f" to {last}" if last > first else ""), part.tolist()))
    return shades


def history(entries: Sequence[HistoryEntry], table: str) -> str:
    """Draw the depth after each round over time, and the bytes loaded and rewritten below it."""
    rounds = [entry for entry in entries if entry.is_recluster and entry.depth_before is not None]
    figure, axes = _figure(rows=2 if rounds else 1)
    above, below = axes if rounds else (None, axes)
    if above is not None:
        _draw_rounds(above, rounds)
    series = {}
    for name in ("load", "after"):
        own = [entry for entry in entries if entry.is_recluster == (name == "after")]
        sizes = [entry.bytes_in if name == "after" else entry.bytes_loaded for entry in own]
        series[name] = own, np.cumsum(np.array(sizes, np.int64))
    unit, factor = best_unit(max((int(total[-1]) for _, total in series.values() if len(total)), default=0))
    for name, (own, total) in series.items():
        heights = total / factor
        if own:
            times = [entry.at for entry in own]
            below.step(times, heights, where="post", color=_COLOURS[name], linewidth=1.6)
            below.plot([times[-1]], [heights[-1]], "o", color=_COLOURS[name], markersize=3)
    below.set_ylabel(f"{unit} so far")
    below.set_ylim(bottom=0)
    if entries:
        _time_axis(below, entries[0].at, entries[-1].at)
    return _svg(figure, f"history {table}", "Depth over time, and bytes loaded and rewritten so far")


def _draw_rounds(axes: Any, rounds: Sequence[HistoryEntry]) -> None:
    for entry in rounds:
        ends = [entry.depth_before, entry.depth_after]
        axes.plot([entry.at, entry.at], ends, color=_COLOURS["muted"], linewidth=1)
    at = [entry.at for entry in rounds]
    axes.plot(at, [entry.depth_before for entry in rounds], "o", color=_COLOURS["before"], markersize=4)
    axes.plot(at, [entry.depth_after for entry in rounds], "o", color=_COLOURS["after"], markersize=4)
    axes.set_ylabel("average depth")
    axes.set_ylim(bottom=0)
    axes.margins(y=0.2)


def overview_png(reports: Sequence[ReportData]) -> bytes:
    """Draw the depth curves of the tables, one below the other, as a PNG that is 1200 pixels wide."""
    pyplot = _pyplot()
    drawn = list(reports)[:8]
    with pyplot.rc_context(_settings(_PNG_COLOURS)):
        figure, axes = pyplot.subplots(
            len(drawn), 1, figsize=(8, 0.4 + 1.9 * len(drawn)), layout="constrained", squeeze=False
        )
        for report, place in zip(drawn, axes[:, 0], strict=True):
            _draw_curves(place, report, _PNG_COLOURS)
            _key_axis(place, report)
            info = report.information
            place.set_title(
                f"{report.table} by {info['cluster_key']}: {count_noun(info['total_block_count'], 'block')}, "
                f"average depth {info['average_depth']:.1f}",
                loc="left",
                fontsize=10,
            )
            if place.get_legend_handles_labels()[0]:
                place.legend(loc="lower right", frameon=False, fontsize=9, ncols=2)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, facecolor="#ffffff", metadata={"Software": None})
        pyplot.close(figure)
    return buffer.getvalue()


def _draw_curves(axes: Any, report: ReportData, colours: Mapping[str, str]) -> None:
    curves = [("before", report.before), ("after", report.after)]
    for name, layout in curves if report.after else [("now", report.now)]:
        if layout is None or not len(layout.at):
            continue
        at, depth = _thinned(layout)
        colour = colours["before" if name == "before" else "after"]
        if name == "after":  # hide the curve of before
            axes.fill_between(at, depth, step="mid", color=colours["card"], linewidth=0)
        axes.fill_between(at, depth, step="mid", color=colour, alpha=0.14, linewidth=0)
        axes.step(at, depth, where="mid", color=colour, linewidth=1.4, label=name)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01, y=0.12)
    axes.set_ylabel("depth")
    _whole_numbers(axes)


def _draw_ends(axes: Any, layout: Layout) -> None:
    """Draw how often reads end in each stretch of the keys, as bars from above the curves downwards."""
    weight, _ = np.histogram(layout.at, _STRETCHES, (0, 1), weights=layout.ends)
    top = 1.25 * axes.get_ylim()[1]
    stretches = np.flatnonzero(weight)
    axes.bar(
        stretches / _STRETCHES,
        -0.18 * top * weight[stretches] / weight.max(),
        1 / _STRETCHES,
        bottom=top,
        align="edge",
        color=_COLOURS["load"],
    )
    axes.set_ylim(0, top)


def _thinned(layout: Layout, most: int = 800) -> tuple[Any, Any]:
    """Return at most ``most`` points of the curve, each the deepest of those that it represents."""
    if len(layout.at) <= most:
        return layout.at, layout.depth
    starts = np.linspace(0, len(layout.at), most, endpoint=False).astype(np.int64)
    return layout.at[starts], np.maximum.reduceat(layout.depth, starts)


def _shown(layout: Layout) -> Any:
    """Return the blocks to draw: all of them, or evenly spaced ones if there are too many to tell apart."""
    count = len(layout.lower)
    if not count:
        return np.zeros(0, np.int64)
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_BARS)).round().astype(np.int64))


def _key_axis(axes: Any, report: ReportData) -> None:
    labels = report.labels
    axes.set_xlim(-0.01, 1.01)
    if report.partitions > 1:
        axes.set_xlabel(f"{report.partitions:,} partitions, one after the other")
    axes.set_xticks([place for place, _ in labels], [text for _, text in labels])
    _keep_inside(axes, last=bool(labels) and labels[-1][0] > 0.8)


def _time_axis(axes: Any, first: datetime, last: datetime) -> None:
    """Label the beginning with its date, and the middle and the end as far as they differ from it."""
    span = last - first
    form = (
        "%Y-%m-%d" if span >= timedelta(days=3) else "%H:%M" if span >= timedelta(minutes=3) else "%H:%M:%S"
    )
    beginning = form if form == "%Y-%m-%d" else f"%Y-%m-%d {form}"
    at = [first, first + span / 2, last] if span else [first]
    names = [at[0].strftime(beginning), *(moment.strftime(form) for moment in at[1:])]
    if timedelta(days=1) <= span < timedelta(days=3):
        names[1:] = [moment.strftime("%m-%d %H:%M") for moment in at[1:]]
    axes.set_xticks(at, names)
    _keep_inside(axes, last=len(at) > 1)


def _keep_inside(axes: Any, *, last: bool) -> None:
    """Keep the labels of the outermost ticks within the figure."""
    ticks = axes.get_xticklabels()
    if ticks:
        ticks[0].set_horizontalalignment("left")
        if len(ticks) > 1 and last:
            ticks[-1].set_horizontalalignment("right")


def _whole_numbers(axes: Any) -> None:
    axes.locator_params("y", nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def _figure(rows: int = 1) -> tuple[Any, Any]:
    pyplot = _pyplot()
    with pyplot.rc_context(_settings(_COLOURS)):
        figure, axes = pyplot.subplots(rows, 1, figsize=_SIZE, layout="constrained", sharex=rows > 1)
    return figure, axes


def _settings(colours: Mapping[str, str]) -> dict[str, Any]:
    return {
        "font.size": 9,
        "svg.fonttype": "none",
        "text.color": colours["ink"],
        **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), colours["muted"]),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), colours["grid"]),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.linewidth": 0.7,
    }


def _svg(figure: Any, salt: str, label: str) -> str:
    pyplot = _pyplot()
    buffer = io.StringIO()
    # All figures end up on one page, so each salts its ids with its own name.
    with pyplot.rc_context({**_settings(_COLOURS), "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    for attribute in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {attribute}="[^"]*"', r"\1", text, count=1)
    for name, colour in _COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _pyplot() -> Any:
    """Return matplotlib's pyplot, set up to draw without a screen."""
    try:
        import matplotlib
    except ImportError as e:
        raise ReportError(
            "The report's figures are drawn by matplotlib, which is not installed: pip install 'dbt-recluster[report]'"
        ) from e
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot
