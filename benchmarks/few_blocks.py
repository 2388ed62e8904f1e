"""A table of fewer than eight full blocks: what files cost its reads, what merges cost, and what leaving it alone does.

    python benchmarks/few_blocks.py

Processor seconds are those of Spark and its workers, warm. Shapes are simulated up to eight full blocks, by the default
depth and by the rule for small tables: means over all loads of files, of files that a read of one key opens, of rows
rewritten for each row loaded, and the merges.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import command
import numpy as np
from workloads import FloatArray, Table

from dbt_recluster.api import recluster
from dbt_recluster.planner import Policy, plan
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS

FILES, ROWS, BLOCK_ROWS = (1, 4, 16, 32), 5_000, 1_000
# Full blocks in a load, and the files of a load.
SHAPES = {
    "one full block a load": (1.0, 1),
    "a tenth a load": (0.1, 1),
    "unsorted, 4 files of a tenth": (0.4, 4),
    "five values, a quarter a load": (0.25, 1),
    "in order, a tenth a load": (0.1, 1),
}


def processor() -> float:
    """Return the processor seconds of this process and all below it, of those that have ended too."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(file.parent.name)
        parents[pid], seconds[pid] = int(facts[1]), sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")

    def total(pid: int) -> float:
        return seconds[pid] + sum(total(child) for child, parent in parents.items() if parent == pid)

    return total(os.getpid())


def cost(call: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    before = processor()
    call()
    return processor() - before


def loads(shape: str, random: np.random.Generator) -> Iterator[list[FloatArray]]:
    """Yield the files of each load until the table is no longer small."""
    share, files = SHAPES[shape]
    for number in range(int(LEAST_FULL_BLOCKS / share - 0.01)):
        keys = random.random(int(share * BLOCK_ROWS)) + number * shape.startswith("in order")
        yield np.array_split(np.floor(5 * keys) if shape.startswith("five") else keys, files)


def simulated(shape: str, *, is_small_table: bool) -> list[float]:
    """Return the figures of a shape, the means of three seeds."""
    figures = []
    for seed in (5, 6, 7):
        table, files, opened, merges = Table(BLOCK_ROWS), [], [], 0
        for load in loads(shape, np.random.default_rng(seed)):
            for keys in load:
                table.load(keys)
            planned = plan(table.blocks(), Policy(block_rows=BLOCK_ROWS, is_small_table=is_small_table))
            table.merge(planned)
            merges += bool(planned.block_sets)
            read = np.random.default_rng(seed).choice(np.concatenate(table.keys), 500)
            files.append(len(table.keys))
            opened.append(table.opened(read, read).mean())
        figures.append([np.mean(files), np.mean(opened), table.rewritten / table.loaded, merges])
    return [float(value) for value in np.mean(figures, axis=0)]


def main() -> None:
    """Measure reads and merges, simulate the shapes, print both."""
    options = command.parser(__doc__).parse_args()
    with command.own_spark("few") as (spark, _):
        spark.sql("create namespace lake.s")

        def table(name: str, files: int) -> str:
            spark.sql(f"create table lake.s.{name} (k bigint, v string) using iceberg")
            for number in range(files):
                rows = f"select /*+ coalesce(1) */ pmod(xxhash64(id, {number}), 1000000) k, repeat('x', 20) v"
                spark.sql(f"insert into lake.s.{name} {rows} from range({ROWS}) order by k")
            return f"lake.s.{name}"

        def reader(name: str) -> Callable[[], float]:
            return lambda: cost(lambda: spark.sql(f"select sum(length(v)) from {name} where k < 100").collect())

        reads = command.in_turn({str(files): reader(table(f"r{files}", files)) for files in FILES}, 15)
        rows = [["a read", *(statistics.mean(values) for values in reads.values())]]
        merged: list[float | str] = ["a merge", ""]
        for files in FILES[1:]:
            names = [table(f"m{files}_{number}", files) for number in range(4)]
            costs = [cost(lambda name=name: recluster(spark, name, "k", depth=1)) for name in names]
            merged.append(statistics.median(costs[1:]))
    command.show(["processor seconds, by files", *map(str, FILES)], [*rows, merged])
    shapes = [
        [shape, rule, *simulated(shape, is_small_table=rule == "small")]
        for shape in SHAPES
        for rule in ("depth", "small")
    ]
    command.show(["shape", "rule", "files", "opened", "rewritten", "merges"], shapes)
    command.save(options, {"costs": [*rows, merged], "shapes": shapes})


if __name__ == "__main__":
    main()
