"""The overview in Prometheus' text format, as the node exporter's textfile collector reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dbt_recluster.clustering.overview import VERDICTS, Overview
from dbt_recluster.exceptions import OptionError

# The figures of a table: a metric's name without its prefix, its labels, and what the overview calls the figure.
# Bytes and conflicts of a period are gauges: a snapshot that expires takes its figures along, and no counter may fall.
_FIGURES: tuple[tuple[str, dict[str, str], str, str], ...] = (
    ("depth", {}, "depth", "Average depth, or read depth where reads are known"),
    ("depth_threshold", {}, "threshold", "Greatest average depth allowed"),
    ("blocks", {}, "blocks", "Blocks"),
    ("size_bytes", {}, "bytes", "Bytes of all blocks"),
    ("fragmentation_ratio", {}, "fragmentation", "Blocks for each full one"),
    ("pending_bytes", {}, "recluster_bytes", "Bytes that reclustering to the end would read"),
    ("loaded_bytes", {"period": "1d"}, "loaded_bytes_day", "Bytes of new rows in a period"),
    ("loaded_bytes", {"period": "7d"}, "loaded_bytes_week", ""),
    ("rewritten_bytes", {"period": "1d"}, "rewritten_bytes_day", "Bytes that reclustering has read in a period"),
    ("rewritten_bytes", {"period": "7d"}, "rewritten_bytes_week", ""),
    ("conflicts", {"period": "7d"}, "conflicts", "Rounds that started again because another writer was faster"),
)  # fmt: skip


def check_metrics_file(path: Path) -> Path:
    """Return a path that :func:`write_metrics` can write to.

    Raises:
        OptionError: prometheus_client is missing, or there is no such directory.
    """
    try:
        import prometheus_client  # noqa: F401
    except ImportError as e:
        raise OptionError(
            "metrics need the package prometheus_client: pip install 'dbt-recluster[metrics]'"
        ) from e
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OptionError(f"metrics: {path} must be a file in a directory that exists")
    return path


def write_metrics(tables: Sequence[Overview], path: Path) -> None:
    """Write the figures of tables to a file, by renaming: nobody reads half of it.

    Raises:
        OptionError: The file cannot be written.
    """
    from prometheus_client import CollectorRegistry, write_to_textfile

    registry = CollectorRegistry()
    registry.register(_Tables(tables))
    try:
        write_to_textfile(str(path), registry)
    except OSError as e:
        raise OptionError(f"metrics: {path} cannot be written: {e.strerror}") from e


class _Tables:
    """What prometheus_client asks for the metrics of tables."""

    def __init__(self, tables: Sequence[Overview]) -> None:
        self._tables = tables

    def collect(self) -> Iterator[Any]:
        """Yield each metric with its value for each table."""
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {}

        def add(
            name: str, labels: dict[str, str], value: float | None, table: str, meaning: str = ""
        ) -> None:
            metric = families.get(name)
            if metric is None:
                metric = families[name] = GaugeMetricFamily(
                    f"dbt_recluster_table_{name}", meaning, labels=["table", *labels]
                )
            if value is not None:
                metric.add_metric([table, *labels.values()], value)

        for table in self._tables:
            for verdict in VERDICTS:
                is_it = float(table.verdict == verdict)
                add("verdict", {"verdict": verdict}, is_it, table.table, "1 for the verdict of the overview")
            for name, labels, field, meaning in _FIGURES:
                add(name, labels, getattr(table, field), table.table, meaning)
            last = table.last_recluster
            seconds = None if last is None else datetime.fromisoformat(last).timestamp()
            add(
                "last_recluster_timestamp_seconds",
                {},
                seconds,
                table.table,
                "When the last round was committed",
            )
        yield from families.values()
