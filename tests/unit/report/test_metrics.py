"""The overview's file for Prometheus, read back by its own parser and, where it is installed, by promtool."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dbt_recluster.advice.overview import Overview, parse_metrics_file, write_metrics
from dbt_recluster.exceptions import OptionError

DOCS = Path(__file__).resolve().parents[3] / "docs"
ODD = 'lake.sales."odd\\name"\n'
TABLES = [
    Overview(
        "lake.sales.events",
        "deep",
        depth=5.25,
        average_depth=6.5,
        threshold=4,
        blocks=12,
        bytes=1000,
        fragmentation=1.5,
        loaded_bytes_day=10,
        loaded_bytes_week=70,
        rewritten_bytes_day=0,
        rewritten_bytes_week=30,
        last_recluster="2026-11-20T10:00:00+00:00",
        conflicts=2,
        recluster_seconds=12.5,
        recluster_bytes=900,
    ),
    Overview(ODD, "failing", "there is no table"),
]


@pytest.fixture
def text(tmp_path: Path) -> str:
    write_metrics(TABLES, tmp_path / "recluster.prom")
    assert [path.name for path in tmp_path.iterdir()] == ["recluster.prom"]
    return (tmp_path / "recluster.prom").read_text()


def samples(text: str) -> list[Any]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_what_is_known_of_a_table_is_written(text: str) -> None:
    """The depth is the one that decides."""
    found = {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels, reverse=True))): sample.value
        for sample in samples(text)
    }
    for of, value in {
        ("depth", "lake.sales.events"): 5.25,
        ("depth_threshold", "lake.sales.events"): 4,
        ("verdict", "deep", "lake.sales.events"): 1,
        ("verdict", "failing", "lake.sales.events"): 0,
        ("verdict", "failing", ODD): 1,
        ("loaded_bytes", "lake.sales.events", "7d"): 70,
        ("rewritten_bytes", "lake.sales.events", "1d"): 0,
        ("last_recluster_timestamp_seconds", "lake.sales.events"): 1795168800,
    }.items():
        assert found[(f"dbt_recluster_table_{of[0]}", *of[1:])] == value, of
    assert {name[0] for name in found if ODD in name} == {"dbt_recluster_table_verdict"}


def test_promtool_accepts_the_metrics(text: str) -> None:
    """Names, units and help are as Prometheus wants them."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_dashboard_asks_for_what_is_written(text: str) -> None:
    """Each metric and label of its queries is in the file."""
    panels = json.loads((DOCS / "grafana-dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    written = {sample.name: set(sample.labels) for sample in samples(text)}
    for query in queries:
        names = re.findall(r"dbt_recluster_table_\w+", query)
        assert names
        for name in names:
            labels = re.findall(r"(\w+)=", query) + re.findall(r"by \((\w+)\)", query)
            assert set(labels) <= written[name], query


def test_only_a_regular_file_is_replaced_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, circle, pipe = (tmp_path / name for name in ("link.prom", "circle.prom", "pipe.prom"))
    link.symlink_to("real/new.prom")
    circle.symlink_to(circle)
    os.mkfifo(pipe)
    for _ in range(2):  # a new file, then the file
        write_metrics(TABLES, parse_metrics_file("metrics", str(link)))
        assert link.is_symlink()
        assert "dbt_recluster" in (tmp_path / "real/new.prom").read_text()
    broken = tmp_path / "nowhere" / "new.prom"
    for path in ("/dev/full", "/dev/stdout", pipe, circle, tmp_path, broken, "", "a\0b", 5):
        with pytest.raises(OptionError, match="metrics must be a file, or a new name in a directory"):
            parse_metrics_file("metrics", path)
