"""Rows rewritten and read in a month of daily loads whose reads drift: `cluster_by: auto` beside keys chosen by hand.

    python benchmarks/auto_key.py

Rows have a time, by which they arrive, and two columns of random values; a read asks for a range of one of the three.
The planner reclusters after each load, one round at the default threshold, and a row counts each time it is rewritten
or in a block that a read opens. Reads are declared, so that `auto` knows those of the day, or logged, so that it knows
those of the past, which fade. OReO's rule (arXiv 2405.04984) counts for each key what reads would have cost; where the
counter of the table's key reaches a rewrite of the table, it moves to a random key whose counter has not, and when
there is none all counters begin again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import command
import numpy as np
from workloads import FloatArray

from dbt_recluster.advice.auto_key import AutoKey, KeyCosts, compare_keys
from dbt_recluster.advice.cost_model import REWRITTEN, THRESHOLDS
from dbt_recluster.clustering.table_reads import faded
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS

DAYS, LOAD, BLOCK, WIDTH = 30, 4_096, 256, 0.02
KEYS = ("time", "customer", "product")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEPT = REWRITTEN[0][THRESHOLDS.index(Policy().depth)]


def _between(first: int, second: int, share: FloatArray) -> FloatArray:
    mix = np.zeros((DAYS, len(KEYS)))
    mix[:, first] += 1 - share
    mix[:, second] += share
    return mix


def drifts() -> dict[str, FloatArray]:
    """Return the shares of the reads that ask for each column, on each day: (days, columns)."""
    day = np.arange(DAYS)
    return {
        "steady": _between(1, 2, np.full(DAYS, 0.2)),
        "slow": _between(1, 2, day / (DAYS - 1)),
        "shift on day 6": _between(1, 2, (day >= 6).astype(float)),
        "shift on day 15": _between(1, 2, (day >= 15).astype(float)),
        "to and fro": _between(1, 2, 0.5 - 0.5 * np.cos(2 * np.pi * day / (DAYS - 1))),
        "each week": _between(1, 2, (day // 7 % 2).astype(float)),
    }


class Table:
    """Rows, (n, columns), in blocks, under a key or none."""

    def __init__(self) -> None:
        self.rows = np.zeros((0, len(KEYS)))
        self.blocks: list[Any] = []  # positions of rows
        self.level: list[int] = []
        self.run: list[int] = []
        self.key: int | None = None
        self.rewritten = 0

    def load(self, rows: FloatArray) -> None:
        """Append a load, sorted by the key."""
        places = len(self.rows) + np.arange(len(rows))
        self.rows = np.concatenate([self.rows, rows])
        self._write(places, 0)

    def change(self, key: int) -> None:
        """Change the key; all blocks become level 0."""
        self.key, self.level = key, [0] * len(self.blocks)
        self.run = [-number for number in range(len(self.blocks))]

    def recluster(self) -> None:
        """Merge what one round merges."""
        if self.key is None:
            return
        ends = [self.rows[block, self.key] for block in self.blocks]
        lower, upper = [part.min() for part in ends], [part.max() for part in ends]
        rows, level, run = (np.array(of) for of in (list(map(len, self.blocks)), self.level, self.run))
        planned = plan(Blocks.build(lower, upper, rows=rows, level=level, run=run), Policy(block_rows=BLOCK))
        gone = {place for of in planned.block_sets for place in of.blocks.tolist()}
        merged = [(np.concatenate([self.blocks[place] for place in of.blocks]), of.level) for of in planned.block_sets]
        for name in ("blocks", "level", "run"):
            setattr(self, name, [value for place, value in enumerate(getattr(self, name)) if place not in gone])
        for places, new_level in merged:
            self.rewritten += len(places)
            self._write(places, new_level)

    def opened(self, lower: FloatArray) -> FloatArray:
        """Return the rows that the mean read of each column opens; reads begin at ``lower``, (reads,)."""
        return opened(self.rows, self.blocks, lower)

    def _write(self, places: Any, level: int) -> None:
        if self.key is not None:
            places = places[np.argsort(self.rows[places, self.key], kind="stable")]
        parts = np.array_split(places, -(-len(places) // BLOCK))
        self.blocks += parts
        self.level += [level] * len(parts)
        self.run += [max(self.run, default=0) + 1] * len(parts)


def opened(rows: FloatArray, blocks: list[Any], lower: FloatArray) -> FloatArray:
    """Return the rows that the mean read of each column opens in some blocks."""
    sizes = np.array(list(map(len, blocks)))
    least = np.array([rows[block].min(axis=0) for block in blocks])
    greatest = np.array([rows[block].max(axis=0) for block in blocks])
    ends = lower[:, None, None] * np.append(rows[:, 0].max(), [1.0] * (len(KEYS) - 1))
    meets = (least <= ends + WIDTH * ends.max(axis=0)) & (greatest >= ends)
    mean: FloatArray = (meets * sizes[:, None]).sum(axis=1).mean(axis=0)
    return mean


def sorted_opened(rows: FloatArray, lower: FloatArray) -> FloatArray:
    """Return the same in a table sorted by each key, and in order of arrival: (keys + 1, columns)."""
    orders = [*(np.argsort(rows[:, key], kind="stable") for key in range(len(KEYS))), np.arange(len(rows))]
    return np.array([opened(rows, np.array_split(order, -(-len(order) // BLOCK)), lower) for order in orders])


# Returns the key of a day, by the table and what reads of each column open in one sorted by each key.
Choose = Callable[[int, Table, FloatArray], int | None]


def auto(mix: FloatArray, a_day: float, *, is_logged: bool) -> Choose:
    """Choose as `cluster_by: auto` does."""
    state = AutoKey()

    def choose(day: int, table: Table, by_sort: FloatArray) -> int | None:
        nonlocal state
        now, rows = START + timedelta(days=day), len(table.rows)
        if rows < LEAST_FULL_BLOCKS * BLOCK or state.waits(now, rows, a_day):
            return table.key
        left = [faded(START + timedelta(days=past), now) if is_logged else past == day for past in range(day + 1)]
        *by_key, unsorted = (by_sort @ (a_day * (left @ mix[: day + 1]) / sum(left))).tolist()
        costs = [
            KeyCosts(name, bytes_, KEPT * LOAD, 0.0 if key == table.key else rows)
            for key, (name, bytes_) in enumerate(zip(KEYS, by_key, strict=True))
        ]
        found = compare_keys(KeyCosts("", unsorted) if table.key is None else costs[table.key], costs)
        state = state.compared(now, rows, a_day, found)
        return KEYS.index(found.best.key) if found.pays else table.key

    return choose


def oreo(mix: FloatArray, a_day: float, seed: int) -> Choose:
    """Choose by OReO's counters; a table without a key is one of the states, the last."""
    random, count = np.random.default_rng(seed), np.zeros(len(KEYS) + 1)

    def choose(day: int, table: Table, by_sort: FloatArray) -> int | None:
        state, shares = len(KEYS) if table.key is None else table.key, by_sort / len(table.rows)
        for column in random.choice(len(KEYS), int(a_day), p=mix[day]):
            count[:] += shares[:, column]
            if count[state] >= 1 and len(left := np.flatnonzero(count < 1)):
                state = int(random.choice(left))
            elif count[state] >= 1:
                count[:] = 0  # it stays where it is
        return table.key if state == len(KEYS) else state

    return choose


class Month:
    """The loads of a month, after a backlog of so many, and what reads of each day begin at."""

    def __init__(self, backlog: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.loads, self.lower, self._by_sort, rows = [], random.random((DAYS, 20)) * (1 - WIDTH), [], []
        for day in range(DAYS):
            count = LOAD * (1 + (0 if day else backlog))
            times = day + random.random(count) - (0 if day else backlog) * random.random(count)
            self.loads.append(np.column_stack([np.sort(times + backlog), random.random((count, len(KEYS) - 1))]))
            rows = np.concatenate(self.loads)
            self._by_sort.append(sorted_opened(rows, self.lower[day]))

    def run(self, choose: Choose | int | None) -> tuple[int, FloatArray]:
        """Return the rows rewritten, and those that the mean read of each column opens each day: (days, columns).

        The table has one key, or none, or one that is chosen each day.
        """
        table, read = Table(), []
        table.key = choose if isinstance(choose, int) else None
        for day in range(DAYS):
            table.load(self.loads[day])
            if callable(choose) and (key := choose(day, table, self._by_sort[day])) not in (table.key, None):
                table.change(key)
            table.recluster()
            read.append(opened(table.rows, table.blocks, self.lower[day]))
        return table.rewritten, np.array(read)


def main() -> None:
    """Simulate every drift at every rate of reading, and print the sums relative to the best key by hand."""
    parser = command.parser(__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 10, 100], help="reads a day")
    parser.add_argument("--backlogs", type=int, nargs="+", default=[0, 30], help="loads before the first day")
    parser.add_argument("--seeds", type=int, default=3)
    options: argparse.Namespace = parser.parse_args()
    months = {(backlog, seed): Month(backlog, seed) for backlog in options.backlogs for seed in range(options.seeds)}
    fixed = {(place, key): month.run(key) for place, month in months.items() for key in (*range(len(KEYS)), None)}
    figures = []
    for (drift, mix), rate, backlog in product(drifts().items(), options.rates, options.backlogs):

        def mean(run: Callable[[int], tuple[int, FloatArray]]) -> float:
            runs = map(run, range(options.seeds))
            return float(np.mean([rewritten + rate * (read * mix).sum() for rewritten, read in runs]))  # noqa: B023

        def ruled(rule: Callable[[int], Choose]) -> float:
            return mean(lambda seed: months[backlog, seed].run(rule(seed)))  # noqa: B023

        by_hand = [mean(lambda seed: fixed[(backlog, seed), key]) for key in range(len(KEYS))]  # noqa: B023
        costs = {
            "auto, declared": ruled(lambda _: auto(mix, rate, is_logged=False)),  # noqa: B023
            "auto, logged": ruled(lambda _: auto(mix, rate, is_logged=True)),  # noqa: B023
            "OReO": ruled(lambda seed: oreo(mix, rate, seed)),  # noqa: B023
            "no key": mean(lambda seed: fixed[(backlog, seed), None]),  # noqa: B023
            "worst key": max(by_hand),
        }
        best = min(by_hand)
        relative = {name: cost / best for name, cost in costs.items()}
        figures.append(
            {"drift": drift, "a day": rate, "backlog": backlog, "best": KEYS[by_hand.index(best)], **relative}
        )
    command.show(list(figures[0]), [list(of.values()) for of in figures])
    for name in relative:
        values = [of[name] for of in figures]
        print(f"{name}: mean {np.mean(values):.2f}, most {max(values):.2f} times the best key by hand")
    command.save(options, {"figures": figures})


if __name__ == "__main__":
    main()
