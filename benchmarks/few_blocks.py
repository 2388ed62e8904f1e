"""What a table of 2 to 20 full blocks should do: bytes that one-day reads open against bytes rewritten, by threshold.

    python benchmarks/few_blocks.py                  # 12 and 48 loads of two seeds: two minutes
    python benchmarks/few_blocks.py --loads 12 --blocks 2 8 --seeds 0

The workloads are those of benchmarks/frontier.py whose loads overlap, one round after each load, cut so that all loads
together make so many full blocks. Loads come sorted; one smaller than a block is one file. A read asks for one of a
hundred days, and opens of each file the row groups with a row of that day; so bytes are counted in row groups. All
figures are means over loads, workloads and seeds:

- opened: row groups that a read opens, after each load,
- files: files that it opens,
- rewritten: rows rewritten for each row loaded,
- merges: loads of a hundred that a merge followed,
- pays from: how many reads between two loads make this threshold cheaper in bytes than the next higher one.

A threshold below 1 is a share of the blocks, and compared with 4. `none` is compaction alone. The last lines are of a
large table (one seed), for which the default was chosen.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from command import parser, save
from workloads import LOAD_ROWS, FloatArray, Table, series

from dbt_recluster.planner import Policy, plan
from dbt_recluster.text import table as text_table

NONE = 1000.0
THRESHOLDS = (1, 1.5, 2, 3, 4, 6, NONE, 0.25, 0.5)
WORKLOADS = ("uniform", "late 10 %", "late 1 %", "late 10 % by a few loads", "hot range", "tenants")
HEADER = ("blocks", "threshold", "opened", "files", "rewritten", "merges", "pays from")
# Loads and full blocks of the large table.
LARGE = (100, 800)
DAYS = 100
READS = 100


@dataclass(frozen=True)
class Figures:
    """What a threshold comes to.

    Attributes:
        opened: Row groups that a read opens.
        files: Files that it opens.
        rewritten: Rows rewritten for each row loaded.
        merges: Share of the loads that a merge followed.
        rewritten_row_groups: Row groups rewritten after a load.
    """

    opened: float
    files: float
    rewritten: float
    merges: float
    rewritten_row_groups: float


def opened(table: Table, lower: FloatArray, upper: FloatArray, group_rows: int) -> FloatArray:
    """Return the rows in the row groups that reads of these ranges open, and files: float64 (2,), means over reads."""
    rows, files = np.zeros(len(lower)), np.zeros(len(lower))
    for keys in table.keys:
        first, last = keys[::group_rows], np.append(keys[group_rows - 1 : -1 : group_rows], keys[-1])
        begin, end = np.searchsorted(last, lower), np.searchsorted(first, upper, side="right")
        rows += np.maximum(np.minimum(end * group_rows, len(keys)) - begin * group_rows, 0)
        files += (keys[0] <= upper) & (keys[-1] >= lower)
    return np.array([rows.mean(), files.mean()])


def simulate(
    workload: str, depth: float, loads: int, blocks: int, row_groups: int, seed: int
) -> tuple[FloatArray, float, float]:
    """Load and recluster in turn.

    Returns:
        Row groups and files that a read opens, rows rewritten for each row loaded, and the share of loads with a merge.
    """
    block_rows = loads * LOAD_ROWS // blocks
    group_rows = max(1, block_rows // row_groups)
    policy = Policy(depth=depth, block_rows=block_rows)
    random = np.random.default_rng(seed)
    table, means, merges = Table(block_rows=block_rows, file_rows=block_rows), [], 0
    for number, load in enumerate(series(workload, random, loads)):
        table.load(load, True, random)
        planned = plan(table.blocks(), policy)
        merges += bool(planned.block_sets)
        table.merge(planned)
        if number % max(1, loads // 50) == 0:
            at = (np.arange(READS) + random.random(READS)) / READS * (1 - 1 / DAYS)
            means.append(opened(table, load.read(at), load.read(at + 1 / DAYS), group_rows))
    return (
        np.mean(means, axis=0) / (group_rows, 1),
        table.rewritten / table.loaded,
        merges / loads,
    )


def measure(
    depth: float, loads: int, blocks: int, row_groups: int, workloads: Sequence[str], seeds: Sequence[int]
) -> Figures:
    """Return the means over workloads and seeds."""
    runs = [
        simulate(workload, depth, loads, blocks, row_groups, seed) for workload in workloads for seed in seeds
    ]
    (row_groups_opened, files), rewritten, merges = (
        np.mean([run[part] for run in runs], axis=0) for part in range(3)
    )
    return Figures(
        float(row_groups_opened),
        float(files),
        float(rewritten),
        float(merges),
        float(rewritten) * blocks * row_groups / loads,
    )


def pays_from(figures: Figures, other: Figures) -> str:
    """Return how many reads between two loads make a threshold cheaper than a higher one."""
    saved, cost = other.opened - figures.opened, figures.rewritten_row_groups - other.rewritten_row_groups
    if cost <= 0:
        return "0" if saved >= 0 else "-"
    return f"{cost / saved:.1f}" if saved > 0 else "never"


def lines(
    sizes: Sequence[tuple[int, int]], thresholds: Sequence[float], row_groups: int, options: Namespace
) -> dict[float, Figures]:
    """Measure thresholds on tables that loads fill to a number of blocks: the means over these pairs of them."""
    found = {}
    for depth in thresholds:
        runs = [
            measure(depth, loads, blocks, row_groups, options.workloads, options.seeds)
            for loads, blocks in sizes
        ]
        found[depth] = Figures(*np.mean([astuple(run) for run in runs], axis=0).tolist())
    return found


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--blocks", type=int, nargs="+", default=[2, 3, 5, 8, 12, 20])
    arguments.add_argument("--loads", type=int, nargs="+", default=[12, 48])
    arguments.add_argument("--row-groups", type=int, nargs="+", default=[2, 8], help="in a full block")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    options = arguments.parse_args()
    saved = {}
    for row_groups in options.row_groups:
        rows: list[tuple[str, ...]] = []
        for blocks in options.blocks:
            found = lines([(loads, blocks) for loads in options.loads], THRESHOLDS, row_groups, options)
            rows += rows_of(str(blocks), found)
            saved[f"{row_groups} row groups, {blocks} blocks"] = {
                str(d): astuple(f) for d, f in found.items()
            }
        large = lines([LARGE], (2, 3, 4, 6), row_groups, Namespace(**{**vars(options), "seeds": [0]}))
        rows += rows_of(f"{LARGE[1]}, in {LARGE[0]} loads", large)
        saved[f"{row_groups} row groups, large"] = {str(d): astuple(f) for d, f in large.items()}
        print(f"\n{row_groups} row groups in a full block", flush=True)
        print(text_table(HEADER, rows), flush=True)
    save(options, {"figures": saved})


def rows_of(blocks: str, found: Mapping[float, Figures]) -> list[tuple[str, ...]]:
    """Return a line for each threshold."""
    rows = []
    absolute = sorted(depth for depth in found if depth >= 1)
    for depth, figures in found.items():
        higher = absolute[absolute.index(depth) + 1 :] if depth in absolute else [4]
        pays = pays_from(figures, found[higher[0]]) if higher else ""
        name = "none" if depth == NONE else f"{depth:g}"
        rows.append(
            (
                blocks,
                name,
                f"{figures.opened:.2f}",
                f"{figures.files:.2f}",
                f"{figures.rewritten:.2f}",
                f"{100 * figures.merges:.0f}",
                pays,
            )
        )
    return rows


if __name__ == "__main__":
    main()
