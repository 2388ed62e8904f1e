"""How much a table of many loads records of the levels of its blocks, and what is lost by recording means.

    python benchmarks/recorded_levels.py            # 20,000 loads
    python benchmarks/recorded_levels.py --quick    # a tenth of the loads

Workloads of small_blocks.py are loaded twice with the same keys, with one round of recluster after each load: once
the planner knows all levels, once what `recluster.levels` records of them. A line has the characters of that property,
those of a property for each snapshot, as earlier versions recorded it, and the figures of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from small_blocks import BLOCK_ROWS, WORKLOADS, FloatArray, Table

from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.planner import Policy, clustering_information

LOADS = (1_000, 5_000, 20_000)
STANDARD = ("in order, a tenth of a block", "in order, a tenth, 0.1 % late")
FIGURES = ("rewritten", "fragmentation", "average depth")


@dataclass
class RecordingTable(Table):
    """A table whose runs are the sequence numbers of snapshots, and whose levels are what a property records."""

    exact: bool = False
    text: str = ""
    sequence: int = 0
    sequence_of_run: dict[int, int] = field(default_factory=dict)

    def load(self, keys: FloatArray) -> None:
        """Append a load."""
        self.sequence += 1
        super().load(keys)

    def recluster(self) -> None:
        """Plan and merge once, and record the levels."""
        merges = self.merges
        super().recluster()
        if self.merges > merges and not self.exact:
            self._record()

    def _add(self, keys: FloatArray, level: int, run: int) -> None:
        if run and run not in self.sequence_of_run:
            self.sequence += 1
            self.sequence_of_run[run] = self.sequence
        super()._add(keys, level, self.sequence_of_run.get(run, 0))

    def _record(self) -> None:
        recorded = RecordedLevels.of({table_properties.LEVELS: self.text})
        added = set(self.sequence_of_run.values())
        self.sequence_of_run = {}
        by_number = {
            run: level
            for run, level in zip(self.run, self.level, strict=True)
            if run in added or run in recorded.by_number
        }
        self.text = RecordedLevels(by_number, recorded.last_old, recorded.mean_old).packed()
        levels = RecordedLevels.of({table_properties.LEVELS: self.text}).look_up(np.array(self.run))
        self.level = [level if run else 0 for level, run in zip(levels.tolist(), self.run, strict=True)]


def measure(name: str, loads: Sequence[int], *, exact: bool) -> list[dict[str, Any]]:
    """Load and recluster in turn; return the figures after each of these numbers of loads."""
    random = np.random.default_rng(11)
    table = RecordingTable(Policy(block_rows=BLOCK_ROWS), exact=exact)
    figures = []
    for count, keys in enumerate(WORKLOADS[name].loads(random, loads[-1]), start=1):
        table.load(keys)
        table.recluster()
        if count in loads:
            snapshots = {run for run in table.run if run}
            figures.append(
                {
                    "loads": count,
                    "snapshots": len(snapshots),
                    "characters": len(table.text),
                    "one property each": len(snapshots) * len("recluster.level.1234567890123456789=10"),
                    "rewritten": table.rewritten / table.loaded,
                    "fragmentation": table.fragmentation(),
                    "average depth": clustering_information(table.blocks()).average_depth,
                }
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=STANDARD)
    options = parser.parse_args()
    loads = [count // 10 for count in LOADS] if options.quick else list(LOADS)
    print(
        "| workload | loads | snapshots | characters | one each | rewritten | fragmentation | average depth |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(2) as pool:
        running = {
            name: [pool.submit(measure, name, loads, exact=exact) for exact in (True, False)]
            for name in options.workloads
        }
        for name, of_name in running.items():
            exact, recorded = (future.result() for future in of_name)
            for before, after in zip(exact, recorded, strict=True):
                both = " | ".join(f"{before[figure]:.3f} -> {after[figure]:.3f}" for figure in FIGURES)
                sizes = f"{after['snapshots']:,} | {after['characters']:,} | {after['one property each']:,}"
                print(f"| {name} | {after['loads']:,} | {sizes} | {both} |", flush=True)


if __name__ == "__main__":
    main()
