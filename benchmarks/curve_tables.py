"""Tables of benchmarks/curves.py that need no series of loads, or look at one at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from curve_boxes import boxes_depth
from curve_layout import (
    FloatArray,
    IntArray,
    Queries,
    Table,
    arrow,
    cell_cuts,
    curve_of,
    even_cuts,
    sorted_table,
    z_order,
)
from curve_planning import (
    MOST_ROUNDS,
    average_depth,
    by_boxes,
    by_rows,
    by_runs,
    rank_boxes,
    recluster,
)
from curve_workloads import WORKLOADS, samples

from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.curve_boundaries import as_properties, recorded_curve
from dbt_recluster.curve import Curve
from dbt_recluster.planner import Blocks, Policy, curve_information, plan
from dbt_recluster.planner.curves import Boxes, CurveBlocks, renewed, unevenness


@dataclass(frozen=True)
class Scale:
    """How long a run takes.

    Attributes:
        loads: Loads of a synthetic workload.
        seeds: Its seeds.
        lineitem: TPC-H's scale factor.
        blocks: Blocks of the greatest table that is planned.
    """

    loads: int = 50
    seeds: tuple[int, ...] = (1, 2)
    lineitem: float = 1.0
    blocks: int = 1_000_000

    @classmethod
    def quick(cls) -> Scale:
        """A short run."""
        return cls(12, (1,), 0.01, 20_000)


def markdown(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print(f"{title}\n\n| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n", flush=True)


def table_cuts(scale: Scale) -> None:
    """The whole table sorted along the curve at once, by where it is cut; means and worst of 12 numbers of blocks."""
    numbers = (64, 80, 100, 128, 150, 200, 256, 300, 350, 420, 512, 700)[:: 4 if len(scale.seeds) == 1 else 1]
    cuts: dict[str, Callable[[IntArray, int], IntArray]] = {
        "even": lambda place, _: even_cuts(len(place), 256),
        **{
            f"largest cell from {least:g} of a block": lambda place, dimensions, least=least: cell_cuts(  # type: ignore[misc]
                place, dimensions, 256, least
            )
            for least in (0.5, 0.6, 0.7, 0.8, 0.9)
        },
        "from 0.7, by a sample of 32 rows a block": _cuts_of_sample,
    }
    rows = []
    for dimensions in (2, 3):
        for name in ("uniform", "skewed", "correlated"):
            for label, cut in cuts.items():
                ratios = np.array(
                    [_cut_figures(WORKLOADS[name], dimensions, blocks, cut) for blocks in numbers]
                )
                mean, most = ratios.mean(axis=0), ratios.max(axis=0)
                rows.append(
                    [
                        name,
                        str(dimensions),
                        label,
                        f"{mean[0]:.2f} ({most[0]:.2f})",
                        *(f"{value:.2f}" for value in mean[1:]),
                    ]
                )
    headings = [
        "workload",
        "columns",
        "cut",
        "times the ideal (worst)",
        "times z-order",
        "times z-order of ranks",
        "a box, times z-order",
        "rows read, times an even cut's ideal",
        "blocks",
    ]
    markdown("blocks that a point opens; the ideal for B blocks is B**(1 - 1/columns)", headings, rows)


def _cuts_of_sample(place: IntArray, dimensions: int) -> IntArray:
    """Cuts that a merge would choose from one row in eight."""
    sample = place[4::8]
    chosen = cell_cuts(sample, dimensions, 31)
    # The cut lies at the border of the cell, not at the sampled row.
    before, after = sample[chosen - 1], sample[chosen]
    bits = (
        (np.frexp((before ^ after).astype(np.float64))[1] + dimensions - 1) // dimensions - 1
    ) * dimensions
    bits = np.maximum(bits, 0)
    return np.searchsorted(place, (after >> bits) << bits)


def _cut_figures(
    workload: Callable[..., list[IntArray]],
    dimensions: int,
    blocks: int,
    cut: Callable[[IntArray, int], IntArray],
) -> list[float]:
    columns = workload(np.random.default_rng(1), blocks * 256, dimensions, 50)
    queries = Queries.of(columns, 1_000)
    curve = curve_of(columns)
    key = curve.index(arrow(columns))
    table = sorted_table(columns, 256, key, cut(np.sort(key), dimensions))
    opened = queries.opened(table)
    z = queries.opened(sorted_table(columns, 256, z_order(columns)))
    z_of_ranks = queries.opened(sorted_table(columns, 256, z_order(curve.ranks(arrow(columns)))))
    power, point = 1 - 1 / dimensions, float(opened[:-1].mean())
    read = float(np.mean([_rows_read(table, queries.points[column], column) for column in range(dimensions)]))
    return [
        point / len(table) ** power,
        point / float(z[:-1].mean()),
        point / float(z_of_ranks[:-1].mean()),
        float(opened[-1] / z[-1]),
        read / 256 / blocks**power,
        len(table) / blocks,
    ]


def _rows_read(table: Table, points: IntArray, column: int) -> float:
    low, high = table.lower[:, column], table.upper[:, column]
    inside = (low[:, None] <= points) & (high[:, None] >= points)
    return float((inside * table.sizes[:, None]).sum(axis=0).mean())


def table_parts(_: Scale) -> None:
    """Parts of a column against blocks: 1,024 blocks, sorted at once; rows of one cell in the order of the columns."""
    rows = []
    for dimensions in (2, 3):
        for name in ("uniform", "skewed"):
            columns = WORKLOADS[name](np.random.default_rng(1), 1_024 * 64, dimensions, 50)
            queries, points = Queries.of(columns, 2_000), []
            for bits in (10, 8, 7, 6, 5, 4, 3):
                key = curve_of(columns, bits).index(arrow(columns))
                order = np.lexsort([*columns[::-1], key])
                table = Table(columns, 64, loaded=len(key))
                table.add(order, cell_cuts(key[order], dimensions, 64))
                points.append(float(queries.opened(table)[:-1].mean()))
            rows.append([name, str(dimensions), *(f"{point / points[0]:.2f}" for point in points)])
    headings = ["workload", "columns", *(f"2^{bits} parts" for bits in (10, 8, 7, 6, 5, 4, 3))]
    markdown("blocks that a point opens, times those with 2^10 parts", headings, rows)


def table_borders(_: Scale) -> None:
    """What is known of the place of a block on the curve: borders by boxes, against those of the rows."""
    rows = []
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            columns = WORKLOADS[name](np.random.default_rng(1), 400 * 256, dimensions, 50)
            curve = curve_of(columns)
            key = curve.index(arrow(columns))
            ordered = np.sort(key)
            table = sorted_table(columns, 256, key, cell_cuts(ordered, dimensions, 256))
            true = by_rows(table, curve)[0]
            policy = Policy(depth=4, block_rows=256)
            depths = [
                average_depth(Blocks.build(*extents(table, curve), rows=table.sizes), policy)
                for extents in (by_boxes, by_runs)
            ]
            begin, _ = by_runs(table, curve)
            place = np.argsort(np.argsort(begin, kind="stable"), kind="stable")
            error = np.abs(np.searchsorted(ordered, begin) - np.searchsorted(ordered, true)) / 256
            rows.append(
                [
                    name,
                    str(dimensions),
                    f"{float((place != np.arange(len(place))).mean()):.3f}",
                    f"{float(error.mean()):.2f}",
                    f"{depths[0]:.1f}",
                    f"{depths[1]:.2f}",
                    f"{float(boxes_depth(*rank_boxes(table, curve), curve.bits).mean()):.1f}",
                ]
            )
    headings = [
        "workload",
        "columns",
        "blocks out of order",
        "error of a border, in blocks",
        "depth by (a)",
        "by (a')",
        "of boxes",
    ]
    markdown("400 blocks sorted at once: a depth above 1 is one that no merge can remove", headings, rows)


def table_rest(scale: Scale) -> None:
    """Rounds until (a') has nothing to plan, or 50; and until one does not lower the depth, as the product stops."""
    rows = []
    depths = (1, 1.5, 2, 3, 4)
    for dimensions in (2, 3):
        for name in WORKLOADS:
            columns = WORKLOADS[name](
                np.random.default_rng(1), scale.loads * 8 * 256, dimensions, scale.loads
            )
            curve, cells = curve_of(columns), []
            key = curve.index(arrow(columns))
            for depth in depths:
                rounds, rewritten = [], []
                for until_empty in (True, False):
                    table, counts = Table(columns, 256), []
                    for _ in range(scale.loads):
                        table.load(8 * 256, key)
                        counts.append(recluster(table, curve, "a'", depth, until_empty=until_empty))
                    rounds.append(counts)
                    rewritten.append(table.rewritten / table.loaded)
                endless = sum(count == MOST_ROUNDS for count in rounds[0])
                most, mean = max(rounds[1]), float(np.mean(rounds[1]))
                cells.append(f"{endless} / {rewritten[0]:.2f}: {mean:.2f} / {most} / {rewritten[1]:.2f}")
            rows.append([name, str(dimensions), *cells])
    headings = ["workload", "columns", *(f"depth {depth}" for depth in depths)]
    markdown(
        f"loads of {scale.loads} after which there was no end / rows rewritten: rounds after a load / most / rows",
        headings,
        rows,
    )


def table_stale(_: Scale) -> None:
    """Rows that have moved since the boundaries were drawn: the whole table sorted at once, 400 blocks, two columns."""
    rows = []
    random = np.random.default_rng(3)
    shares = [random.random(400 * 256) for _ in range(2)]
    domain = 1 << 20
    drawn = [(share * domain).astype(np.int64) for share in shares]
    stale = curve_of(drawn)
    cases: dict[str, tuple[FloatArray, FloatArray]] = {
        **{
            f"{beyond:.0%} beyond the last": (shares[0] / (1 - beyond), shares[1])
            for beyond in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
        },
        **{f"all within {part:.0%}": (shares[0] * part, shares[1]) for part in (0.75, 0.5, 0.25, 0.1)},
        "both within 25%": (shares[0] * 0.25, shares[1] * 0.25),
    }
    for label, moved in cases.items():
        columns = [(share * domain).astype(np.int64) for share in moved]
        queries, fresh = Queries.of(columns, 2_000), curve_of(columns)
        opened, uneven = [], []
        for curve in (stale, fresh):
            key = curve.index(arrow(columns))
            opened.append(queries.opened(sorted_table(columns, 256, key, cell_cuts(np.sort(key), 2, 256))))
            ranks = curve.ranks(arrow(columns))
            uneven.append(unevenness(ranks, [np.ones(len(key))] * 2, curve.bits, 400))
        rows.append(
            [
                label,
                *(f"{ratio:.2f}" for ratio in opened[0] / opened[1]),
                f"{float(opened[0][:-1].mean() / opened[1][:-1].mean()):.2f}",
                f"{float((uneven[0] / uneven[1]).max()):.2f}",
            ]
        )
    headings = [
        "rows of the first column",
        "its points",
        "points of the second",
        "a box",
        "a point, mean",
        "unevenness",
    ]
    markdown("blocks opened, times those on a fresh curve", headings, rows)


def table_boundaries(_: Scale) -> None:
    """Characters of the property that records a column's boundaries, and how uneven parts are by it and as drawn."""
    rows, key = [], parse_cluster_key("hilbert(a, b)")
    for name, sample in samples(np.random.default_rng(0), 32_768).items():
        drawn = Curve.of([sample, sample])
        properties = as_properties(key, drawn)
        recorded = recorded_curve(properties, key)
        assert recorded is not None
        uneven = [
            unevenness(curve.ranks([sample, sample]), [np.ones(len(sample))] * 2, curve.bits, 1_024)[0]
            for curve in (recorded, drawn)
        ]
        length = max(map(len, properties.values()))
        rows.append([name, f"{length:,}", *(f"{ratio:.3f}" for ratio in uneven)])
    markdown("boundaries", ["type", "characters", "unevenness as recorded", "as drawn"], rows)


def table_report(scale: Scale) -> None:
    """What a report can say by boxes and rows of blocks alone, times what reads of real rows see."""
    rows = []
    for dimensions in (2, 3):
        for name in WORKLOADS:
            columns = WORKLOADS[name](
                np.random.default_rng(1), scale.loads * 8 * 256, dimensions, scale.loads
            )
            curve, queries = curve_of(columns), Queries.of(columns, 2_000)
            key = curve.index(arrow(columns))
            at_once = queries.opened(sorted_table(columns, 256, key))
            for label, depth in (("depth 4", 4.0), ("depth 2", 2.0), ("unsorted", None)):
                table = Table(columns, 256)
                for _ in range(scale.loads):
                    table.load(8 * 256, None if depth is None else key, known=depth is not None)
                    if depth is not None:
                        recluster(table, curve, "a'", depth)
                seen = curve_information(CurveBlocks(curve, *table.bounds), 256)
                ratios = (
                    np.array([*seen.point_blocks, seen.box_blocks]) / queries.opened(table),
                    np.array([*seen.sorted_point_blocks, seen.sorted_box_blocks]) / at_once,
                )
                cells = [
                    " / ".join(f"{value:.2f}" for value in part)
                    for ratio in ratios
                    for part in np.split(ratio, [-1])
                ]
                rows.append([name, str(dimensions), label, *cells])
    headings = [
        "workload",
        "columns",
        "table",
        "a point of each column",
        "a box",
        "a point, sorted at once",
        "a box",
    ]
    markdown("estimated, times real", headings, rows)


def table_scale(scale: Scale) -> None:
    """Processor seconds of one plan: six runs of descending size over each other, depth 4."""
    rows, others = [], []
    for dimensions in (2, 3, 4):
        for blocks in (scale.blocks // 10, scale.blocks):
            lower, upper, rows_of, level, run = _runs(dimensions, blocks)
            others += [[str(dimensions), *row] for row in _seconds_of_bounds(lower, upper, rows_of)]
            began = time.process_time()
            first, last = Boxes(lower, upper, 10).intervals(run)
            extents = time.process_time()
            table = Blocks.build(first, last, rows=rows_of, level=level, run=run)
            built = time.process_time()
            planned = plan(table, Policy(depth=4, block_rows=8))
            ended = time.process_time()
            seconds = (extents - began, built - extents, ended - built, ended - began)
            rows.append(
                [
                    str(dimensions),
                    f"{len(first):,}",
                    *(f"{took:.2f}" for took in seconds),
                    f"{planned.rows:,}",
                ]
            )
    headings = ["columns", "blocks", "extents", "Blocks.build", "plan", "together", "rows to rewrite"]
    markdown("seconds", headings, rows)
    headings = ["columns", "of", "blocks", "ranks", "renewal", "new boundaries", "information"]
    markdown("seconds, from bounds", headings, others)


def _seconds_of_bounds(
    lower: list[IntArray], upper: list[IntArray], rows_of: IntArray
) -> Iterator[list[str]]:
    """What it takes to rank bounds, to see that a curve may stay, to draw one anew, and to report what reads open."""
    texts = [f"https://www.example.com/{rank:04}" for rank in range(1 << 10)]
    for name, values in (("numbers", pa.array(range(1 << 10))), ("text", pa.array(texts))):
        low, high = ([values.take(pa.array(column)) for column in columns] for columns in (lower, upper))
        known = [np.zeros(len(rows_of), np.bool_)] * len(low)
        curve, took = Curve((values[1:],) * len(low)), []
        steps: list[Callable[[CurveBlocks], object]] = [
            lambda blocks: blocks.boxes,
            renewed,
            partial(renewed, most=1.0),
            partial(curve_information, block_rows=8),
        ]
        for step in steps:
            began = time.process_time()
            step(CurveBlocks(curve, low, high, known, rows_of))
            took.append(time.process_time() - began)
        yield [name, f"{len(rows_of):,}", *(f"{seconds:.2f}" for seconds in took)]


def _runs(
    dimensions: int, blocks: int
) -> tuple[list[IntArray], list[IntArray], IntArray, IntArray, IntArray]:
    """Boxes of runs of eight rows a block, as ranks: lower, upper, rows, level, run."""
    random = np.random.default_rng(blocks)
    domain = 1 << 10
    curve = Curve((pa.array(np.arange(1, domain)),) * dimensions)
    lower: list[list[IntArray]] = [[] for _ in range(dimensions)]
    upper: list[list[IntArray]] = [[] for _ in range(dimensions)]
    levels, sizes = [12, 6, 3, 1, 0, 0], [0.7, 0.2, 0.05, 0.025, 0.0125, 0.0125]
    counts = [int(share * blocks) for share in sizes]
    for count in counts:
        columns = [random.integers(0, domain, count * 8) for _ in range(dimensions)]
        order = np.argsort(curve.index(arrow(columns)), kind="stable")
        for place, column in enumerate(columns):
            parts = column[order].reshape(count, 8)
            lower[place].append(parts.min(axis=1))
            upper[place].append(parts.max(axis=1))
    return (
        [np.concatenate(parts) for parts in lower],
        [np.concatenate(parts) for parts in upper],
        np.full(sum(counts), 8),
        np.repeat(levels, counts),
        np.repeat(np.arange(1, 7), counts),
    )
