"""The overview's file for Prometheus, read back by its own parser and, where it is installed, by promtool."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dbt_recluster.advice.overview import Overview
from dbt_recluster.clustering.options import parse_value
from dbt_recluster.clustering.verdict import Verdict
from dbt_recluster.exceptions import OptionError
from dbt_recluster.report.prometheus import MetricsFile, write_metrics

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
    Overview("paused", "suspended", depth=20.0, threshold=4, suspended="2026-10-01T00:00:00+00:00"),
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
    known = {
        "dbt_recluster_measured_timestamp_seconds",
        "dbt_recluster_table_verdict",
        "dbt_recluster_table_failure_info",
    }
    assert {name[0] for name in found if ODD in name} == known
    assert found["dbt_recluster_table_failure_info", ODD, "there is no table"] == 1


def test_a_sample_with_a_damaged_label_is_left_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.prom"
    for old, new in (('verdict="deep"', 'verdct="deep"'), ('period="1d"', 'perod="1d"')):
        path.write_text(text.replace(old, new, 1))
        write_metrics([Overview("another", "deep")], path)
        assert new not in path.read_text()
        assert 'verdict{table="another",verdict="deep"} 1.0' in path.read_text()


def test_a_suspension_without_a_time_has_no_figure_of_it(tmp_path: Path) -> None:
    path = tmp_path / "r.prom"
    write_metrics([Overview("by_hand", "suspended", suspended="true")], path)
    assert 'verdict{table="by_hand",verdict="suspended"} 1.0' in path.read_text()
    assert "suspended_timestamp" not in path.read_text()


def test_a_run_merges_its_tables_into_the_file(tmp_path: Path) -> None:
    """Others stay with their time, and those that left the project go."""
    path, (deep, odd, paused) = tmp_path / "r.prom", TABLES

    def verdicts() -> dict[str, str]:
        verdict = [
            sample.labels for sample in samples(path.read_text()) if sample.name.endswith("verdict") and sample.value
        ]
        return {labels["table"]: labels["verdict"] for labels in verdict}

    def measured() -> dict[str, float]:
        of = samples(path.read_text())
        return {sample.labels["table"]: sample.value for sample in of if "measured" in sample.name}

    write_metrics([deep, paused], path)
    before = measured()
    write_metrics([replace(deep, verdict="well clustered"), odd], path)
    assert verdicts() == {deep.table: "well clustered", ODD: "failing", "paused": "suspended"}
    assert measured()["paused"] == before["paused"] < measured()[deep.table] == measured()[ODD]
    write_metrics([deep], path, project=[deep.table, ODD])
    assert verdicts() == {deep.table: "deep", ODD: "failing"}
    write_metrics([replace(odd, verdict="deep")], path)
    assert "failure_info" not in path.read_text()
    path.write_text("not { metrics")
    write_metrics([deep], path)
    assert verdicts() == {deep.table: "deep"}


def test_runs_beside_each_other_lose_no_table(tmp_path: Path) -> None:
    path, names = tmp_path / "r.prom", [f"t{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: write_metrics([Overview(name, "deep")], path), names))
    found = {sample.labels["table"] for sample in samples(path.read_text())}
    assert found == set(names)
    assert [file.name for file in tmp_path.iterdir()] == ["r.prom"]


def promtool(*words: str, text: str = "") -> tuple[int, str]:
    """Run promtool; return its code and what it prints."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_promtool_accepts_the_metrics(text: str) -> None:
    """Names, units and help are as Prometheus wants them."""
    assert promtool("check", "metrics", text=text) == (0, "")


def test_the_documented_alerts_fire(tmp_path: Path) -> None:
    """All tables are measured at the start, of which three are suspended since then."""
    verdicts: dict[str, Verdict] = {"deep": "deep", ODD: "failing", "gone": "missing"}
    verdicts |= {"waits": "waiting", "fine": "well clustered"}
    suspended: dict[str, Any] = {"suspended": "2026-10-01T00:00:00+00:00", "threshold": 4}
    tables = [
        *(Overview(name, verdict, depth=50, threshold=4) for name, verdict in verdicts.items()),
        Overview("forgotten", "suspended", depth=13, **suspended),
        Overview("shallow", "suspended", depth=11, **suspended),
        Overview("until", "suspended", depth=13, suspended_until="2999-01-01T00:00:00+00:00", **suspended),
    ]
    write_metrics(tables, tmp_path / "r.prom")
    series = []
    for sample in samples((tmp_path / "r.prom").read_text()):
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
        value = 0 if sample.name.endswith("_seconds") else sample.value
        series.append({"series": f"{sample.name}{{{labels}}}", "values": f"{value}x1000"})
    every = sorted(table.table for table in tables)
    cases = []
    for alert, hours, names in (
        ("TableDecays", 5, []),
        ("TableDecays", 7, ["deep", "gone", ODD]),
        ("TableNotMeasured", 47, []),
        ("TableNotMeasured", 49, every),
        ("SuspendedTableDecays", 1, ["forgotten", "until"]),
        ("SuspensionForgotten", 30 * 24 - 1, []),
        ("SuspensionForgotten", 30 * 24 + 1, ["forgotten", "shallow"]),
    ):
        fired = [{"table": name, **({"verdict": verdicts[name]} if alert == "TableDecays" else {})} for name in names]
        expected = [{"exp_labels": labels} for labels in fired]
        cases.append({"eval_time": f"{hours}h", "alertname": alert, "exp_alerts": expected})
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", (DOCS / "guides/production.md").read_text(), re.DOTALL)
    (tmp_path / "rules.yml").write_text(rules)
    test = {"rule_files": ["rules.yml"], "evaluation_interval": "1h"}
    test["tests"] = [{"interval": "1h", "input_series": series, "alert_rule_test": cases}]
    (tmp_path / "test.yml").write_text(json.dumps(test))
    code, output = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert code == 0, output


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
        write_metrics(TABLES, parse_value(MetricsFile, "metrics", str(link)))
        assert link.is_symlink()
        assert "dbt_recluster" in (tmp_path / "real/new.prom").read_text()
    broken = tmp_path / "nowhere" / "new.prom"
    for path in ("/dev/full", "/dev/stdout", pipe, circle, tmp_path, broken, "", "a\0b", 5):
        with pytest.raises(OptionError, match="metrics must be a file, or a new name in a directory"):
            parse_value(MetricsFile, "metrics", path)
