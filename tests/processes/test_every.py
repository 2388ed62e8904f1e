"""``dbt-recluster recluster --every``: a process that stays, loads beside it, and signals."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import rest_server
from jobs import Jobs
from tables import append, checksum, keyed


class Service:
    """The command with ``--json``."""

    def __init__(self, jobs: Jobs, *arguments: str):
        self.process = jobs.start("recluster", *arguments, "--every", "1s", "--json")

    def next_pass(self) -> Any:
        """Return the next line of JSON."""
        assert self.process.stdout is not None
        printed = []
        while not (line := self.process.stdout.readline()).startswith("{"):
            printed.append(line)
            assert line, "".join(printed)
        return json.loads(line)

    def next_answer(self, table: str, *, merged: bool) -> Any:
        """Return what a pass answers next for a table that it merges, or fails to merge."""
        while True:
            for answer in self.next_pass()["tables"]:
                if answer["table"] == table and bool(answer.get("rounds") if merged else answer.get("error")):
                    return answer

    def end(self) -> tuple[int, str]:
        """Terminate it; return its code and what it prints then."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(warehouse: Path, settings: dict[str, str], *arguments: str) -> Service:
        services.append(Service(Jobs(tmp_path_factory.mktemp("job"), warehouse, settings), *arguments))
        return services[-1]

    yield start
    for service in services:
        with suppress(ProcessLookupError):
            os.killpg(service.process.pid, signal.SIGKILL)


def test_tables_are_reclustered_as_they_change(
    spark: Any, uncached_catalog: str, tmp_path: Path, start: Callable[..., Service]
) -> None:
    """By what they gain for a byte; a table that fails is tried again beside the others, and a new one joins them."""
    sales = f"{uncached_catalog}.sales"
    keyed(spark, sales, "broken", depth="banana")
    keyed(spark, sales, "large", rows=20_000, depth="1")
    orders = keyed(spark, sales, "orders", depth="1")
    metrics = tmp_path / "recluster.prom"
    service = start(tmp_path, {}, "--namespace", "lake.sales", "--metrics", str(metrics))
    first = service.next_pass()
    assert first["exit_code"] == 1
    assert [(table["table"], table.get("blocks_in")) for table in first["tables"]] == [
        ("lake.sales.orders", 6),
        ("lake.sales.large", 6),
        ("lake.sales.broken", None),
    ]
    append(spark, orders, 600, 300, files=3)
    before = checksum(spark, orders)
    assert service.next_answer("lake.sales.orders", merged=True)["depth_after"] == 1
    keyed(spark, sales, "joins", depth="1")
    assert service.next_answer("lake.sales.joins", merged=True)["blocks_in"] == 6
    assert "depth must be a number" in service.next_answer("lake.sales.broken", merged=False)["error"]
    spark.sql(f"alter table {sales}.broken set tblproperties ('recluster.option.depth' = '1')")
    assert service.next_answer("lake.sales.broken", merged=True)["blocks_in"] == 6
    assert 'verdict{table="lake.sales.joins",verdict="well clustered"} 1.0' in metrics.read_text()
    while service.next_pass()["tables"]:
        pass
    code, out = service.end()
    assert (code, json.loads(out.splitlines()[-1])["error"]) == (0, None)
    assert "Traceback" not in out
    assert checksum(spark, orders) == before


@pytest.mark.alike
@pytest.mark.parametrize("lost", ["lost_catalog", "lost_spark"])
def test_an_idle_pass_reads_the_metadata_of_each_table_once_and_a_loss_ends_it(
    lost: str, spark: Any, tmp_path: Path, start: Callable[..., Service]
) -> None:
    with rest_server.server(tmp_path / "rest") as rest:
        for setting, value in rest.settings(lost).items():
            spark.conf.set(setting, value)
        spark.sql(f"create schema {lost}.s")
        for number in range(3):
            keyed(spark, f"{lost}.s", f"t{number}", depth="1")
        service = start(tmp_path, rest.settings("lake"), *(f"lake.s.t{number}" for number in range(3)))
        while service.next_pass()["tables"]:
            pass
        before = rest.requests
        passes = 0
        while rest.requests["loadTable"] - before["loadTable"] < 12:
            assert service.next_pass()["tables"] == []
            passes += 1
        asked = {name: count - before.get(name, 0) for name, count in rest.requests.items()}
        assert passes in (3, 4, 5)
        assert {name for name, count in asked.items() if count} == {"loadTable"}
        if lost == "lost_catalog":
            rest.process.kill()
        else:
            subprocess.run(["pkill", "-KILL", "-P", str(service.process.pid), "java"], check=True)
        while (last := service.next_pass())["exit_code"] == 0:
            assert last["tables"] == []
    assert last["exit_code"] == service.process.wait(60) == 1
    error = {"lost_catalog": "the catalog of lake.s.t0 does not answer", "lost_spark": "Spark has stopped"}[lost]
    assert last["error"].startswith(error)
