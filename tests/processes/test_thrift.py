"""`method: thrift`: models are built over the connection, and `recluster_session` reclusters them in dbt's process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import postgres
import pytest
import thrift_server
from dbt_command import EVENTS, Project
from runtime import iceberg_jar

from dbt_recluster.adapter.dbt_run import JOB

pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")
pytestmark = pytest.mark.xdist_group("the thrift server")


SOURCES = """
sources:
  - name: loaded
    database: lake
    schema: analytics
    config: {freshness: {error_after: {count: 1, period: day}}}
    tables: [{name: events}]"""


class Server(NamedTuple):
    port: int
    url: str
    directory: Path

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        return thrift_server.ask(self.port, *statements)

    def profile(self, **more: Any) -> dict[str, Any]:
        address = {"host": "127.0.0.1", "port": self.port, "user": "dbt", "poll_interval": 1}
        return {"method": "thrift", **address, "catalog": "lake", **more}

    def session(self, catalog: str = "lake", **more: Any) -> dict[str, Any]:
        return {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            **thrift_server.catalog(catalog, self.url, self.directory / "warehouse"),
            **more,
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Thrift server with two catalogs in one PostgreSQL, neither of which is its default one."""
    directory = tmp_path_factory.mktemp("thrift")
    with postgres.server_or_skip() as url:
        catalogs = {
            **thrift_server.catalog("lake", url, directory / "warehouse"),
            **thrift_server.catalog("twin", url, directory / "warehouse"),
        }
        with thrift_server.server(directory, catalogs) as port:
            yield Server(port, url, directory)


def checksum(server: Server, table: str) -> tuple[Any, ...]:
    (row,) = server.ask(f"select count(*), sum(xxhash64(id, k)) from {table}")
    return row


def test_without_a_session_tables_are_built_and_one_line_says_what_to_add(
    server: Server, tmp_path: Path
) -> None:
    project = Project(
        tmp_path / "p", server.profile(schema="plain"), {"events.sql": EVENTS, "others.sql": EVENTS}
    )
    project.succeed("debug")
    for _ in range(2):
        out = project.succeed("run")
        assert out.count("Tables are not reclustered in this run: reclustering needs a Spark session") == 1
        assert "Add `recluster_session` to the profile" in " ".join(out.split())
        assert "PASS=2 WARN=0 ERROR=0" in out
    properties = dict(server.ask("show tblproperties lake.plain.events"))
    assert properties["sort-order"] == "k ASC NULLS FIRST"
    assert server.ask("select count(*) from lake.plain.events") == [(2000,)]
    out = project.fail("run-operation", "recluster", code=1)
    assert "plain.events: failed: reclustering needs a Spark session" in out


def test_a_session_reclusters_what_is_built_over_the_connection(server: Server, tmp_path: Path) -> None:
    session = server.session(**{"spark.driver.extraClassPath": str(postgres.DRIVER)})
    profile = server.profile(recluster_session=session)
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "sources.yml": SOURCES})
    out = project.succeed("debug")
    assert "analytics has no Iceberg table yet" in out
    for expected in ("[OK (depth 1.0 of 1)", ", reclustered "):
        out = project.succeed("run")
        assert expected in out
    assert "(1.0 of 1, reclustered" in out
    assert checksum(server, "lake.analytics.events")[0] == 2000
    assert response(project)["average_depth"] == 1.0
    project.succeed("source", "freshness")
    (source,) = json.loads((project.root / "target/sources.json").read_text())["results"]
    loads = "from lake.analytics.events.snapshots where operation <> 'replace'"
    ((loaded,),) = server.ask(f"select unix_micros(max(committed_at)) {loads}")
    assert datetime.fromisoformat(source["max_loaded_at"]) == datetime.fromtimestamp(
        loaded / 1e6, timezone.utc
    )
    # Nothing but what dbt writes, and Spark's log among its own.
    assert project.files() == {"dbt_project.yml", "profiles.yml", "models", "target", "logs"}


def test_operations_look_at_tables_through_the_session(server: Server, tmp_path: Path) -> None:
    profile = server.profile(recluster_session=server.session(), schema="looked_at")
    model = EVENTS.replace("recluster_depth=1", "automatic_clustering=false")
    project = Project(tmp_path / "p", profile, {"events.sql": model})
    for _ in range(2):
        project.succeed("run")
    before = checksum(server, "lake.looked_at.events")
    arguments = "{table: events, depth: 1, format: json}"
    out = project.succeed("--quiet", "run-operation", "recluster", "--args", arguments)
    assert json.loads(out)["depth_after"] == 1.0
    assert checksum(server, "lake.looked_at.events") == before
    project.succeed("run-operation", "suspend_recluster", "--args", "{table: events}")
    assert "recluster.suspended" in dict(server.ask("show tblproperties lake.looked_at.events"))
    _, out, _ = project.run("debug")
    assert "looked_at.events is the same table over the connection" in out


def test_a_session_that_reaches_another_table_changes_nothing(server: Server, tmp_path: Path) -> None:
    """The twin is registered from the table's own metadata, so it has its name, its uuid and its snapshot."""
    session = server.session("twin", **{"spark.sql.defaultCatalog": "twin"})
    profile = server.profile(recluster_session=session, schema="copied")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    out = project.succeed("run")
    text = " ".join(out.split())
    assert (
        "copied.events was built but not reclustered: the session of recluster_session has no table" in text
    )
    assert "is in the catalog lake, the session in twin (JdbcCatalog). Nothing was changed." in text

    file = server.ask("select file from lake.copied.events.metadata_log_entries")[-1][0]
    server.ask(
        "create namespace twin.copied",
        f"call twin.system.register_table(table => 'copied.events', metadata_file => '{file}')",
    )
    out = project.succeed("run")
    text = " ".join(out.split())
    assert (
        "copied.events over the connection is another table than twin.copied.events in the session" in text
    ), text
    for catalog, loads in (("lake", 2), ("twin", 1)):
        operations = server.ask(f"select operation from {catalog}.copied.events.snapshots")
        assert len(operations) == loads
        assert ("replace",) not in operations
    project.fail("run-operation", "recluster", code=1)
    out = project.fail("debug", code=1)
    assert "is another table than copied.events" in " ".join(out.split())


STUB = """
import json, os, sys
given = dict(zip(sys.argv[3:-1:2], sys.argv[4:-1:2]))
manifest, results = (json.load(open(given[name])) for name in ("--manifest", "--run-results"))
built = sorted(result["unique_id"] for result in results["results"] if result["status"] == "success")
with open("called", "a") as called:
    called.write(" ".join(built) + chr(10))
figures = dict(cluster_key="k", rounds=1, blocks_in=2, blocks_out=5, depth_before=2.0, depth_after=1.0)
tables = [".".join(manifest["nodes"][name][part] for part in ("database", "schema", "alias")) for name in built]
print(json.dumps(dict(tables=[dict(figures, table=tables[0]),
                              *(dict(table=table, error="no space left") for table in tables[1:])])))
sys.exit(len(tables) > 1)
"""


def test_a_command_reclusters_at_the_end_where_dbt_drives_nothing(server: Server, tmp_path: Path) -> None:
    """Here the command only prints what a job prints; it has dbt's files of the run, and is called once."""
    profile = server.profile(recluster_submit=[sys.executable, "-c", STUB], schema="submitted")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "others.sql": EVENTS})
    project.succeed("run")
    assert not (project.root / "called").exists()  # every table is a single block
    out = project.succeed("run", "--exclude", "others")
    assert (project.root / "called").read_text() == "model.p.events\n"
    assert "[OK (reclustered at the end of the run)" in out
    assert "lake.submitted.events: reclustered 2 blocks into 5, depth 1.0, 2.0 before" in out
    assert out.index("Done. PASS=1") < out.index("reclustered 2 blocks")
    out = project.succeed("run")
    text = " ".join(out.split())
    assert "lake.submitted.events: reclustered 2 blocks into 5" in text
    assert "submitted.others was built but not reclustered: recluster_submit: " in text
    assert "ended with code 1: no space left" in text
    out = project.fail("--warn-error", "run", code=2)
    assert "no space left" in out
    results = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    assert [result["status"] for result in results] == ["success", "success"]
    (project.root / "called").unlink()
    out = project.succeed("--no-write-json", "run")
    assert "which tells the job what was built; run dbt without --no-write-json" in " ".join(out.split())
    assert not (project.root / "called").exists()


def test_a_command_that_fails_leaves_what_dbt_has_built(server: Server, tmp_path: Path) -> None:
    """A node that failed is not submitted, and dbt ends with its code."""
    profile = server.profile(recluster_submit=["false"], schema="failing")
    models = {"events.sql": EVENTS, "broken.sql": "select * from nothing.at_all"}
    project = Project(tmp_path / "p", profile, models)
    for _ in range(2):
        out = project.fail("run", code=1)
    text = " ".join(out.split())
    assert (
        "lake.failing.events was built but not reclustered: recluster_submit: false ended with code 1" in text
    )
    assert "PASS=1 WARN=0 ERROR=1" in text


def test_what_is_built_before_a_failure_that_ends_the_run_is_submitted(
    server: Server, tmp_path: Path
) -> None:
    stub = "import sys; open('called', 'w').write(' '.join(sys.argv[1:]))"
    profile = server.profile(recluster_submit=[sys.executable, "-c", stub], schema="failing_fast")
    broken = "-- depends_on: {{ ref('events') }}\nselect * from nothing.at_all"
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": broken})
    project.succeed("run", "--select", "events")
    out = project.fail("run", "--fail-fast", code=1)
    assert "recluster_submit: " in out
    assert "reclusters 1 table of this run" in out
    assert "--run-results" in (project.root / "called").read_text()
    results = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    assert {result["unique_id"].rpartition(".")[2]: result["status"] for result in results} == {
        "events": "success",
        "broken": "error",
    }


def test_ctrl_c_ends_the_command(server: Server, tmp_path: Path) -> None:
    stub = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(120)"
    profile = server.profile(recluster_submit=[sys.executable, "-c", stub], schema="interrupted")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    project.succeed("run")
    process = project.start("run")
    pid = project.root / "pid"
    try:
        wait_until(lambda: pid.exists() and pid.read_text() != "")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        project.stop()
    assert process.returncode == 1
    assert "Traceback" not in out + err
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_real_job_is_submitted(server: Server, tmp_path: Path) -> None:
    """The command is this Python, which runs the job's file with Spark settings of its environment's file."""
    stub = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[2:], '--properties-file', sys.argv[1]])"
    profile = server.profile(
        recluster_submit=[sys.executable, "-c", stub, str(properties_file(server, tmp_path))],
        schema="really_submitted",
    )
    model = EVENTS.replace("block_rows=500", "block_rows=500, recluster_after={'commits': 1}")
    project = Project(tmp_path / "p", profile, {"events.sql": model})
    for _ in range(2):
        out = project.succeed("run")
    assert re.search(
        r"lake\.really_submitted\.events: reclustered 2 blocks into \d, depth 1\.0 of 1, 2\.0 before", out
    ), out
    assert checksum(server, "lake.really_submitted.events")[0] == 2000


def test_what_dbt_spark_builds_is_reclustered_by_its_manifest(server: Server, tmp_path: Path) -> None:
    """`type: spark`, without this adapter: its names have two parts, of the default catalog of its server."""
    profile = server.profile(type="spark", schema="plainly")
    del profile["catalog"]
    config = "incremental_strategy='append', file_format='iceberg', meta={'recluster': {'depth': 1}}, cluster_by='k'"
    models = dict.fromkeys(("events.sql", "others.sql"), EVENTS.replace("cluster_by='k'", config))
    server.ask("create namespace if not exists lake.default", "select 1")  # PyHive uses it at once
    catalog = thrift_server.catalog("lake", server.url, server.directory / "warehouse")
    with thrift_server.server(tmp_path / "spark", {**catalog, "spark.sql.defaultCatalog": "lake"}) as port:
        project = Project(tmp_path / "p", {**profile, "port": port}, models)
        project.succeed("run")
        project.succeed("run", "--select", "events")
    before = checksum(server, "lake.plainly.events")
    command = [sys.executable, str(JOB), "recluster", "--manifest", "target/manifest.json"]
    command += ["--run-results", "target/run_results.json", "--catalog", "lake"]
    command += ["--json", "--properties-file", str(properties_file(server, tmp_path))]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    assert (table["table"], table["rounds"], table["depth_after"]) == ("lake.plainly.events", 1, 1.0)
    assert checksum(server, "lake.plainly.events") == before


def properties_file(server: Server, directory: Path) -> Path:
    """Return a file with the settings of a Spark beside the server's."""
    settings = server.session(**{"spark.driver.extraClassPath": f"{postgres.DRIVER}:{iceberg_jar()}"})
    path = directory / "spark-defaults.conf"
    path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return path


def response(project: Project) -> dict[str, Any]:
    """Return what dbt has of the only model of its last run."""
    (result,) = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    found: dict[str, Any] = result["adapter_response"]
    return found
