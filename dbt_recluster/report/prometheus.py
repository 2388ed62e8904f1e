"""The overview in Prometheus' text format, as the node exporter's textfile collector reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dbt_recluster.advice.overview import VERDICTS, Overview
from dbt_recluster.exceptions import OptionError

# A metric's name, its help, and figures of the overview by their period, if they have one. All are gauges: a snapshot
# that expires takes its figures along, and a counter must not fall.
_FIGURES = (
    ("depth", "Average depth, or read depth where reads are known", {"": "depth"}),
    ("depth_threshold", "Greatest average depth allowed", {"": "threshold"}),
    ("blocks", "Blocks", {"": "blocks"}),
    ("size_bytes", "Bytes of all blocks", {"": "bytes"}),
    ("fragmentation_ratio", "Blocks for each full one", {"": "fragmentation"}),
    ("pending_bytes", "Bytes that reclustering to the end would read", {"": "recluster_bytes"}),
    ("loaded_bytes", "Bytes of new rows", {"1d": "loaded_bytes_day", "7d": "loaded_bytes_week"}),
    ("rewritten_bytes", "Bytes that reclustering read", {"1d": "rewritten_bytes_day", "7d": "rewritten_bytes_week"}),
    ("recluster_seconds", "Seconds that rounds of reclustering took", {"7d": "recluster_seconds"}),
    ("conflicts", "Rounds planned again because another writer was faster", {"7d": "conflicts"}),
)  # fmt: skip


def parse_metrics_file(name: str, value: Any) -> Path:
    """Return the path, given as the argument ``name``, of a file that :func:`write_metrics` can write.

    Raises:
        OptionError: prometheus_client is missing, or there is no such directory.
    """
    try:
        import prometheus_client  # noqa: F401
    except ImportError as e:
        raise OptionError(
            "metrics need the package prometheus_client: pip install 'dbt-recluster[metrics]'"
        ) from e
    path = Path(value) if isinstance(value, (str, Path)) else None
    if path is None or path.is_dir() or not path.absolute().parent.is_dir():
        raise OptionError(f"{name} must be a file in a directory that exists, not {str(value)!r}")
    return path


def write_metrics(tables: Sequence[Overview], path: Path) -> None:
    """Write the figures of tables to a new file and rename it, so that a collector never reads half of it.

    Raises:
        OptionError: The file cannot be written.
    """
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"dbt_recluster_table_{name}", meaning, ["table", *labels], registry=registry)

    for name, meaning, figures in _FIGURES:
        metric = gauge(name, meaning, *([] if "" in figures else ["period"]))
        for table in tables:
            for period, figure in figures.items():
                if (value := getattr(table, figure)) is not None:
                    metric.labels(table.table, *filter(None, [period])).set(value)
    verdict = gauge("verdict", "1 for the verdict of the overview", "verdict")
    last = gauge("last_recluster_timestamp_seconds", "When the last round was committed")
    for table in tables:
        for word in VERDICTS:
            verdict.labels(table.table, word).set(table.verdict == word)
        if table.last_recluster is not None:
            last.labels(table.table).set(datetime.fromisoformat(table.last_recluster).timestamp())
    try:
        write_to_textfile(str(path), registry)
    except OSError as e:
        raise OptionError(f"metrics: {path} cannot be written: {e.strerror}") from e
