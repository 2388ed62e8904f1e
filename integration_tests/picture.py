"""Draw docs/img/loads-*.svg: what each load of `make demo` did to both tables, read from their snapshots.

    make demo && .venv/bin/python integration_tests/picture.py

Iceberg's metadata has all of it, so no Spark starts. The hundred one-day queries are those of loads.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import matplotlib
from loads import QUERIES, query_days
from pyiceberg.conversions import from_bytes
from pyiceberg.table import StaticTable
from pyiceberg.types import DateType

from dbt_recluster.planner import Blocks, clustering_information

matplotlib.use("svg")
from matplotlib import pyplot

HERE = Path(__file__).resolve().parent
TABLES = {
    "lineitem_not_reclustered": "not reclustered",
    "lineitem": "with dbt-recluster",
}
COLORS = {"light": ("#57606a", "#c2571a", "#1f66b5"), "dark": ("#9da7b3", "#e58a4e", "#6cb0f5")}


def main() -> None:
    """Draw the picture in both palettes."""
    series = {title: list(after_each_load(name)) for name, title in TABLES.items()}
    for title, points in series.items():
        depth, opened = points[-1]
        print(f"{title}: depth {depth:.2f}, {opened / 2**20:.1f} MB read by {QUERIES} one-day queries")
    for palette in COLORS:
        draw(series, palette)


def after_each_load(name: str) -> Iterator[tuple[float, float]]:
    """Yield the average depth and the bytes that the queries open, as each load left the table."""
    metadata = max((HERE / "lakehouse/warehouse/analytics.db" / name / "metadata").glob("*.metadata.json"))
    table = StaticTable.from_metadata(str(metadata))
    key = table.schema().find_field("l_shipdate").field_id
    snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number)
    queries = query_days()
    for snapshot, following in zip(snapshots, [*snapshots[1:], None], strict=True):
        if following is not None and following.summary.operation.value == "replace":
            continue
        files = [task.file for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()]
        lower = [days_since_1970(each.lower_bounds[key]) for each in files]
        upper = [days_since_1970(each.upper_bounds[key]) for each in files]
        wanted = [(day - date(1970, 1, 1)).days for day in queries]
        opened = sum(
            file.file_size_in_bytes
            for file, least, greatest in zip(files, lower, upper, strict=True)
            for day in wanted
            if least <= day <= greatest
        )
        yield clustering_information(Blocks.build(lower, upper)).average_depth, opened


def days_since_1970(bound: bytes) -> int:
    """Decode a bound of a date column."""
    return int(from_bytes(DateType(), bound))


def draw(series: dict[str, list[tuple[float, float]]], palette: str) -> None:
    """Draw depth and bytes over the loads."""
    ink, *colors = COLORS[palette]
    style = {"svg.hashsalt": "dbt-recluster", "font.size": 11, "font.family": "sans-serif"}
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
    with pyplot.rc_context(style):
        figure, (depth, opened) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for (title, points), color in zip(series.items(), colors, strict=True):
            loads = range(1, len(points) + 1)
            depth.plot(loads, [each[0] for each in points], color=color, linewidth=2.4, label=title)
            opened.plot(loads, [each[1] / 2**20 for each in points], color=color, linewidth=2.4)
        depth.set_title("average depth")
        opened.set_title(f"MB read by {QUERIES} one-day queries")
        for axes in (depth, opened):
            axes.set(xlabel="load", xlim=(1, len(loads)), ylim=(0, None), xticks=[1, 5, 10, 15, 20])
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.25)
        depth.legend(frameon=False, labelcolor=ink)
        file = HERE.parent / "docs" / "img" / f"loads-{palette}.svg"
        figure.savefig(file, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    main()
