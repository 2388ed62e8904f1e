"""Seconds and processor seconds of the phases of a recluster, from check to commit."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbt_recluster.clustering import rounds
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import merge as merge_module
from dbt_recluster.iceberg.rewrite.merge import Merger
from dbt_recluster.iceberg.sort_order import TableChange

# What is called in a phase. Time within an inner phase counts there only, so `cut` is what a merge does beside.
PHASES: list[tuple[str, Any, str]] = [
    ("load", IcebergTable, "load"),
    ("key", TableChange, "pending"),
    ("check", ClusteredTable, "current_blocks"),
    ("plan", rounds, "plan"),
    ("tasks", rounds, "_file_groups"),
    ("sample", merge_module, "take_samples"),
    ("cut", Merger, "merge"),
    ("write", merge_module, "write_files"),
    ("verify", merge_module, "assign_files"),
    ("verify", merge_module, "verify_rewrite"),
    ("commit", RoundCommit, "run"),
]
REST = "rest"


def processor_seconds(spark: Any) -> float:
    """Return the processor time that Spark's JVM has used so far."""
    process = spark.sparkContext._gateway.proc.pid
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PhaseTimer:
    """Measures calls of ``recluster``, phase by phase."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._stack: list[str] = []
        self._calls: list[dict[str, list[float]]] = []
        self._last = (0.0, 0.0)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Measure one call of recluster within the block."""
        originals = [(owner, name, owner.__dict__[name]) for _, owner, name in PHASES]
        for phase, owner, name in PHASES:
            setattr(owner, name, self._timed(owner.__dict__[name], phase))
        self._calls.append(defaultdict(lambda: [0.0, 0.0]))
        self._last = self._now()
        self._stack = [REST]
        try:
            yield
        finally:
            self._charge()
            for owner, name, original in originals:
                setattr(owner, name, original)

    def medians(self) -> list[tuple[str, float, float]]:
        """Return the phases in order, with the medians of their seconds and processor seconds; nothing without calls.

        The first call is left out: it warms up the JVM.
        """
        calls = self._calls[1:]
        if not calls:
            return []
        names = dict.fromkeys([phase for phase, _, _ in PHASES] + [REST])
        return [
            (name, *(statistics.median(call[name][unit] for call in calls) for unit in (0, 1)))
            for name in names
        ]

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), processor_seconds(self._spark) + time.process_time()

    def _charge(self) -> None:
        now = self._now()
        spent = self._calls[-1][self._stack[-1]]
        spent[0] += now[0] - self._last[0]
        spent[1] += now[1] - self._last[1]
        self._last = now

    def _timed(self, original: Any, phase: str) -> Any:
        function: Callable[..., Any] = original.__func__ if isinstance(original, classmethod) else original

        def timed(*arguments: Any, **keywords: Any) -> Any:
            self._charge()
            self._stack.append(phase)
            try:
                return function(*arguments, **keywords)
            finally:
                self._charge()
                self._stack.pop()

        return classmethod(timed) if isinstance(original, classmethod) else timed
