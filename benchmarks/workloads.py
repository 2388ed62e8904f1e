"""Workloads of benchmarks/frontier.py: series of loads, and a table of real keys that receives them.

Keys are floats. A compound key of tenant and time is tenant + time / (last time + 1), which orders like the tuples.
Loads arrive sorted in full blocks, unsorted in full blocks, as one block, or unsorted in eight quarters of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dbt_recluster.planner import Blocks, Plan, Reads

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BLOCK_ROWS = 64
BLOCKS_PER_LOAD = 8
LOAD_ROWS = BLOCK_ROWS * BLOCKS_PER_LOAD


@dataclass(frozen=True)
class Load:
    """Keys that arrive together.

    Attributes:
        keys: The keys.
        read: Maps numbers from 0 to 1 to the keys that random reads ask for.
        is_backlog: Whether the load arrives unsorted even if loads are sorted.
    """

    keys: FloatArray
    read: Callable[[FloatArray], FloatArray]
    is_backlog: bool = False


def uniform(random: np.random.Generator, loads: int) -> Iterator[Load]:
    """Every load covers all keys."""
    for _ in range(loads):
        yield Load(random.random(LOAD_ROWS), lambda at: at)


def time_ordered(
    random: np.random.Generator,
    loads: int,
    late: float,
    lag: float | None = None,
    rows: Callable[[], int] = lambda: LOAD_ROWS,
) -> Iterator[Load]:
    """Load t brings times from t to t + 1, and a share of late rows: of any earlier time, or late by a mean lag."""
    for t in range(loads):
        keys = t + random.random(rows())
        is_late = (random.random(len(keys)) < late) & (t > 0)
        count = int(is_late.sum())
        if lag is None:
            keys[is_late] = random.random(count) * t
        else:
            keys[is_late] = np.maximum(keys[is_late] - random.exponential(lag, count), random.random(count))
        yield Load(keys, lambda at, t=t: at * (t + 1))  # type: ignore[misc]


def hot_range(random: np.random.Generator, loads: int) -> Iterator[Load]:
    """80 % of every load lie in a tenth of the domain, which moves through it three times."""
    for t in range(loads):
        keys = random.random(LOAD_ROWS)
        is_hot = random.random(LOAD_ROWS) < 0.8
        keys[is_hot] = (t / loads * 3) % 1 * 0.9 + 0.1 * random.random(int(is_hot.sum()))
        yield Load(keys, lambda at: at)


def backlog(random: np.random.Generator, loads: int) -> Iterator[Load]:
    """Fifty loads at once, unsorted, then one by one."""
    yield Load(random.random(50 * LOAD_ROWS), lambda at: at, is_backlog=True)
    yield from uniform(random, loads)


def tenants(random: np.random.Generator, loads: int) -> Iterator[Load]:
    """Twenty tenants whose sizes follow Zipf's law, each ordered by time."""
    share = 1 / np.arange(1, 21)
    share /= share.sum()
    name = random.permutation(20)
    for t in range(loads):
        keys = name[random.choice(20, LOAD_ROWS, p=share)] + (t + random.random(LOAD_ROWS)) / (loads + 1)
        yield Load(keys, lambda at, t=t: np.floor(at * 20) + (at * 20 % 1) * (t + 1) / (loads + 1))  # type: ignore[misc]


def few_values(random: np.random.Generator, loads: int) -> Iterator[Load]:
    """Fifty values, each in every load."""
    for _ in range(loads):
        yield Load(np.floor(50 * random.random(LOAD_ROWS)), lambda at: np.floor(50 * at))


_LOADS: dict[str, Callable[[np.random.Generator, int], Iterator[Load]]] = {
    "uniform": uniform,
    "late 10 %": lambda random, loads: time_ordered(random, loads, 0.1),
    "late 1 %": lambda random, loads: time_ordered(random, loads, 0.01),
    "late 10 % by a few loads": lambda random, loads: time_ordered(random, loads, 0.1, 10.0),
    "hot range": hot_range,
    "backlog": backlog,
    "tenants": tenants,
    "in order": lambda random, loads: time_ordered(random, loads, 0.0),
    "few values": few_values,
}
WORKLOADS = [f"{name}, {arrival}" for arrival in ("sorted", "unsorted") for name in _LOADS]
WORKLOADS += [f"{name}, {arrival}" for arrival in ("one block", "small blocks") for name in ("uniform", "late 10 %")]


def blocks_of_load(workload: str) -> float:
    """Mean number of full blocks that a load would make."""
    name, arrival = workload.rsplit(", ", 1)
    return {"one block": 1, "small blocks": 2}.get(arrival, BLOCKS_PER_LOAD) * (1.5 if name == "backlog" else 1)


@dataclass
class Table:
    """A table of real keys, as lists of blocks.

    Attributes:
        block_rows: Rows in a full block.
        keys: Sorted keys of every block.
        level: Level of every block.
        run: Run of every block.
        runs: Number of runs so far.
        loaded: Rows loaded so far.
        rewritten: Rows rewritten so far.
        reads: Key ranges of the latest queries, for strategies that go by them.
    """

    block_rows: int = BLOCK_ROWS
    keys: list[FloatArray] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    run: list[int] = field(default_factory=list)
    runs: int = 0
    loaded: int = 0
    rewritten: int = 0
    reads: Reads | None = None

    @property
    def lower(self) -> FloatArray:
        """Least key of every block."""
        return np.array([part[0] for part in self.keys])

    @property
    def upper(self) -> FloatArray:
        """Greatest key of every block."""
        return np.array([part[-1] for part in self.keys])

    def blocks(self, **more: Any) -> Blocks:
        """Describe the blocks to the planner."""
        rows, level, run = (np.array(each) for each in (list(map(len, self.keys)), self.level, self.run))
        return Blocks.build(self.lower, self.upper, rows=rows, level=level, run=run, **more)

    def load(self, keys: FloatArray) -> None:
        """Append a load as one sorted run."""
        self.loaded += len(keys)
        self._add(np.array_split(np.sort(keys), max(1, len(keys) // self.block_rows)), 0)

    def load_unsorted(self, keys: FloatArray, random: np.random.Generator, blocks: int | None = None) -> None:
        """Append a load cut into blocks in the order of arrival, each a run by itself."""
        for part in np.array_split(random.permutation(keys), blocks or max(1, len(keys) // self.block_rows)):
            self.load(part)

    def merge(self, plan: Plan) -> None:
        """Merge the block sets of a plan."""
        self.merge_sets([(s.blocks.tolist(), s.level) for s in plan.block_sets])

    def merge_sets(self, sets: list[tuple[list[int], int]]) -> None:
        """Merge block sets, given as positions and the level to write."""
        gone = {place for members, _ in sets for place in members}
        old = self.keys
        kept = [place for place in range(len(old)) if place not in gone]
        self.keys = [old[place] for place in kept]
        self.level = [self.level[place] for place in kept]
        self.run = [self.run[place] for place in kept]
        for members, level in sets:
            keys = np.sort(np.concatenate([old[place] for place in members]))
            self.rewritten += len(keys)
            self._add(np.array_split(keys, -(-len(keys) // self.block_rows)), level)

    def opened(self, lower: FloatArray, upper: FloatArray) -> IntArray:
        """Number of blocks whose bounds intersect each key range."""
        begun = np.searchsorted(np.sort(self.lower), upper, "right")
        opened: IntArray = begun - np.searchsorted(np.sort(self.upper), lower)
        return opened

    def _add(self, parts: list[FloatArray], level: int) -> None:
        self.runs += 1
        self.keys += parts
        self.level += [level] * len(parts)
        self.run += [self.runs] * len(parts)


class Point(NamedTuple):
    """Result of one threshold.

    Attributes:
        threshold: `Policy.depth`.
        scan: Mean number of blocks that a read opens, of one random key or beyond those that its rows would fill.
        write_amplification: Rows rewritten for each row loaded.
    """

    threshold: float
    scan: float
    write_amplification: float


def best_at(points: list[Point], scan: float) -> float:
    """Least write amplification among points of at most this scan; infinite if there are none."""
    return min((point.write_amplification for point in points if point.scan <= scan), default=np.inf)


def simulate(workload: str, threshold: float, step: Callable[[Table], None], loads: int, seed: int) -> Point:
    """Load and recluster in turn, and read random keys after every load."""
    name, arrival = workload.rsplit(", ", 1)
    random = np.random.default_rng(seed)
    table, scans = Table(), []
    for load in _LOADS[name](random, loads):
        if arrival in ("one block", "small blocks"):
            rows, blocks = (BLOCK_ROWS, 1) if arrival == "one block" else (2 * BLOCK_ROWS, 8)
            table.load_unsorted(load.keys[:rows], random, blocks)
        elif arrival == "sorted" and not load.is_backlog:
            table.load(load.keys)
        else:
            table.load_unsorted(load.keys, random)
        step(table)
        points = load.read((np.arange(1024) + random.random(1024)) / 1024)
        scans.append(table.opened(points, points).mean())
    return Point(threshold, float(np.mean(scans)), table.rewritten / table.loaded)
