"""The overview in Prometheus' text format: a file for node_exporter's textfile collector."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from dbt_recluster.advice.overview import Overview
from dbt_recluster.clustering.options import Expected, parse_iso_time
from dbt_recluster.clustering.table_state import locked_directory
from dbt_recluster.clustering.verdict import VERDICTS
from dbt_recluster.exceptions import OptionError
from dbt_recluster.text import printable

# A metric's name, its help, and figures of the overview by their period, if they have one. All are gauges: a snapshot
# that expires takes its figures along, and a counter must not fall.
_FIGURES = (
    ("depth", "Depth that is compared with the threshold", {"": "depth"}),
    ("depth_threshold", "Greatest depth allowed", {"": "threshold"}),
    ("blocks", "Blocks", {"": "blocks"}),
    ("size_bytes", "Bytes of all blocks", {"": "bytes"}),
    ("fragmentation_ratio", "Blocks for each full one", {"": "fragmentation"}),
    ("pending_bytes", "Bytes that reclustering to the end would read", {"": "recluster_bytes"}),
    ("loaded_bytes", "Bytes of new rows", {"1d": "loaded_bytes_day", "7d": "loaded_bytes_week"}),
    ("rewritten_bytes", "Bytes that reclustering read", {"1d": "rewritten_bytes_day", "7d": "rewritten_bytes_week"}),
    ("recluster_seconds", "Seconds that rounds of reclustering took", {"7d": "recluster_seconds"}),
    ("conflicts", "Rounds planned again because another writer was faster", {"7d": "conflicts"}),
    ("last_recluster_timestamp_seconds", "When the last round was committed", {"": "last_recluster"}),
    ("suspended_timestamp_seconds", "Since when the table is suspended", {"": "suspended"}),
    ("suspended_until_timestamp_seconds", "When its suspension ends, if it ends by itself", {"": "suspended_until"}),
)  # fmt: skip
_PREFIX, _MEASURED = "dbt_recluster_table_", "dbt_recluster_measured_timestamp_seconds"
_HELP = {
    **{f"{_PREFIX}{name}": meaning for name, meaning, _ in _FIGURES},
    f"{_PREFIX}verdict": "1 for the verdict of the overview",
    f"{_PREFIX}failure_info": "Why a failing table fails",
    _MEASURED: "When the figures of the table were measured",
}
# Labels beside that of the table.
_LABELS = {
    **{f"{_PREFIX}{name}": {"period"} for name, _, figures in _FIGURES if "" not in figures},
    f"{_PREFIX}verdict": {"verdict"},
    f"{_PREFIX}failure_info": {"reason"},
}
_LONGEST_REASON = 200


class _Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def _regular_file(value: Any) -> Path | None:
    """Return the path behind links, of a regular file or a new one; not of what stdout is redirected to."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as e:
        raise OptionError("metrics need the package prometheus_client: pip install 'dbt-recluster[metrics]'") from e
    path, target = Path(value), Path(os.path.realpath(value))
    is_new = not (path.exists() or os.path.lexists(target))
    is_stream = path.is_symlink() and path.is_relative_to("/dev")
    return target if target.parent.is_dir() and (is_new or path.is_file()) and not is_stream else None


# The path of a file that :func:`write_metrics` can write.
MetricsFile = Annotated[
    Path, BeforeValidator(_regular_file), Expected("a file, or a new name in a directory that exists")
]


def write_metrics(tables: Sequence[Overview], path: Path, project: Collection[str] | None = None) -> None:
    """Merge the figures of tables into a file, which is replaced at once, so that a collector never reads half of it.

    The figures of other tables stay as they were measured, unless these have left the ``project``, if it is known.

    Raises:
        OptionError: The file cannot be written.
    """
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    measured, now = {table.table for table in tables}, time.time()
    with locked_directory(path.parent):
        samples = [
            sample
            for sample in _read_samples(path)
            if (table := sample.labels.get("table")) not in measured and (project is None or table in project)
        ]
        samples += (sample for table in tables for sample in _samples(table, now))
        registry, gauges = CollectorRegistry(), dict[str, Gauge]()
        for name, labels, value in sorted(samples, key=lambda sample: sorted(sample.labels.items())):
            gauges[name] = gauges.get(name) or Gauge(name, _HELP[name], sorted(labels), registry=registry)
            gauges[name].labels(**labels).set(value)
        try:
            write_to_textfile(str(path), registry)
        except OSError as e:
            raise OptionError(f"metrics: {path} cannot be written: {e.strerror}") from e


def _read_samples(path: Path) -> list[_Sample]:
    """Return the samples of a metrics file that are ours; none if there is no such file."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []
    every = (sample for family in families for sample in family.samples)
    ours = (sample for sample in every if sample.name in _HELP)
    whole = (sample for sample in ours if sample.labels.keys() == {"table", *_LABELS.get(sample.name, ())})
    return [_Sample(sample.name, dict(sample.labels), sample.value) for sample in whole]


def _samples(table: Overview, now: float) -> Iterator[_Sample]:
    """Yield the samples of a table that is measured now; what is not known is left out."""

    def sample(name: str, value: float, **labels: str) -> _Sample:
        return _Sample(name, {**labels, "table": table.table}, value)

    yield sample(_MEASURED, now)
    for name, _, figures in _FIGURES:
        for period, figure in figures.items():
            value = getattr(table, figure)
            if isinstance(value, str):
                try:
                    value = parse_iso_time(value).timestamp()
                except ValueError:  # a suspension that was written by hand
                    continue
            if value is not None:
                yield sample(f"{_PREFIX}{name}", value, **({"period": period} if period else {}))
    for verdict in VERDICTS:
        yield sample(f"{_PREFIX}verdict", float(table.verdict == verdict), verdict=verdict)
    if table.verdict == "failing":
        yield sample(f"{_PREFIX}failure_info", 1.0, reason=printable(table.reason)[:_LONGEST_REASON])
