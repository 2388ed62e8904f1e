"""`method: thrift`: models are built over the connection, and `recluster_session` reclusters them in dbt's process."""

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import thrift_server
from dbt_command import EVENTS, Project, one_line
from programs import interrupt
from thrift_server import Server

pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")
pytestmark = pytest.mark.xdist_group("the thrift server")


SOURCES = """
sources:
  - name: loaded
    database: lake
    schema: analytics
    config: {freshness: {error_after: {count: 1, period: day}}}
    tables: [{name: events}]"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with thrift_server.with_catalogs(tmp_path_factory.mktemp("thrift"), "lake", "twin") as running:
        yield running


def checksum(server: Server, table: str) -> tuple[Any, ...]:
    (row,) = server.ask(f"select count(*), sum(xxhash64(id, k)) from {table}")
    return row


def test_without_a_session_tables_are_built_and_one_line_says_what_to_add(server: Server, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", server.profile(schema="plain"), {"events.sql": EVENTS, "others.sql": EVENTS})
    project.succeed("debug")
    for _ in range(2):
        out = project.succeed("run")
        assert out.count("Tables are not reclustered in this run: reclustering needs a Spark session") == 1
        assert "Add `recluster_session` to the profile" in one_line(out)
        assert "PASS=2 WARN=0 ERROR=0" in out
    properties = dict(server.ask("show tblproperties lake.plain.events"))
    assert properties["sort-order"] == "k ASC NULLS FIRST"
    assert server.ask("select count(*) from lake.plain.events") == [(2000,)]
    out = project.fail("run-operation", "recluster", code=1)
    assert "plain.events: failed: reclustering needs a Spark session" in out


def test_a_session_reclusters_what_is_built_over_the_connection(server: Server, tmp_path: Path) -> None:
    session = server.session()
    profile = server.profile(recluster_session=session)
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "sources.yml": SOURCES})
    out = project.succeed("debug")
    assert "analytics has no Iceberg table yet" in out
    for expected in ("[OK (depth 1.0, at most 1)", " blocks into "):
        out = project.succeed("run")
        assert expected in out
    assert re.search(r"\(depth \d\.\d -> 1\.0, \d blocks into", out)
    assert checksum(server, "lake.analytics.events")[0] == 2000
    (result,) = project.artifact("run_results")["results"]
    assert result["adapter_response"]["average_depth"] == 1.0
    project.succeed("source", "freshness")
    (source,) = project.artifact("sources")["results"]
    loads = "from lake.analytics.events.snapshots where operation <> 'replace'"
    ((loaded,),) = server.ask(f"select unix_micros(max(committed_at)) {loads}")
    assert datetime.fromisoformat(source["max_loaded_at"]) == datetime.fromtimestamp(loaded / 1e6, timezone.utc)
    assert "analytics.events is the same table over the connection" in project.run("debug")[1]
    operate = ("--quiet", "run-operation", "recluster", "--args", "{table: events, depth: 1, format: json}")
    project.succeed("run", DBT_RECLUSTER_AUTOMATIC_CLUSTERING="false")
    before = checksum(server, "lake.analytics.events")
    assert json.loads(project.succeed(*operate))["depth_after"] == 1.0
    assert checksum(server, "lake.analytics.events") == before
    assert server.ask("select operation from lake.analytics.events.snapshots")[-2:] == [
        ("append",),
        ("replace",),
    ]
    # Nothing but what dbt writes, and Spark's log among its own.
    assert project.files() == {"dbt_project.yml", "profiles.yml", "models", "target", "logs"}


def test_a_session_that_reaches_another_table_changes_nothing(server: Server, tmp_path: Path) -> None:
    """The twin is registered from the table's own metadata, so it has its name, its uuid and its snapshot."""
    session = server.session("twin")
    profile = server.profile(recluster_session=session, schema="copied")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    text = one_line(project.succeed("run"))
    assert "copied.events was built but not reclustered: the session of recluster_session has no table" in text
    assert "is in the catalog lake, the session in twin (JdbcCatalog). Nothing was changed." in text

    file = server.ask("select file from lake.copied.events.metadata_log_entries")[-1][0]
    server.ask(
        "create namespace twin.copied",
        f"call twin.system.register_table(table => 'copied.events', metadata_file => '{file}')",
    )
    text = one_line(project.succeed("run"))
    assert "copied.events over the connection is another table than twin.copied.events in the session" in text, text
    for catalog, loads in (("lake", 2), ("twin", 1)):
        operations = server.ask(f"select operation from {catalog}.copied.events.snapshots")
        assert len(operations) == loads
        assert ("replace",) not in operations
    project.fail("run-operation", "recluster", code=1)
    out = project.fail("debug", code=1)
    assert "is another table than copied.events" in one_line(out)


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
    assert "lake.submitted.events: reclustered 2 blocks into 5, depth 2.0 -> 1.0" in out
    assert out.index("Done. PASS=1") < out.index("reclustered 2 blocks")
    text = one_line(project.succeed("run"))
    assert "lake.submitted.events: reclustered 2 blocks into 5" in text
    assert "submitted.others was built but not reclustered: recluster_submit: " in text
    assert "ended with code 1: no space left" in text
    out = project.fail("--warn-error", "run", code=2)
    assert "no space left" in out
    results = project.artifact("run_results")["results"]
    assert [result["status"] for result in results] == ["success", "success"]
    (project.root / "called").unlink()
    words = ("--vars", "recluster_max_bytes: 1 GB")
    text = one_line(project.succeed("run", "--select", "events", *words))
    assert text.count("recluster_submit does not know the var recluster_max_bytes") == 1
    (project.root / "called").unlink()
    out = project.succeed("--no-write-json", "run")
    assert "which tells the job what was built; run dbt without --no-write-json" in one_line(out)
    assert not (project.root / "called").exists()


def test_what_is_built_before_a_failure_that_ends_the_run_is_submitted(server: Server, tmp_path: Path) -> None:
    """A node that failed is not submitted, and dbt ends with its code. The command fails, too."""
    stub = "import sys; open('called', 'w').write(' '.join(sys.argv[1:])); sys.exit(1)"
    profile = server.profile(recluster_submit=[sys.executable, "-c", stub], schema="failing")
    broken = "-- depends_on: {{ ref('events') }}\nselect * from nothing.at_all"
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": broken})
    project.succeed("run", "--select", "events")
    text = one_line(project.fail("run", "--fail-fast", code=1))
    assert "reclusters 1 table of this run" in text
    assert "lake.failing.events was built but not reclustered: recluster_submit: " in text
    assert "ended with code 1" in text
    assert "--run-results" in (project.root / "called").read_text()
    statuses = {each["unique_id"]: each["status"] for each in project.artifact("run_results")["results"]}
    assert statuses == {"model.p.events": "success", "model.p.broken": "error"}


def test_ctrl_c_ends_the_command(server: Server, tmp_path: Path) -> None:
    stub = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(120)"
    profile = server.profile(recluster_submit=[sys.executable, "-c", stub], schema="interrupted")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    project.succeed("run")
    code, out, err = interrupt(project.start("run"), "reclusters 1 table of this run", after=2)
    assert code == 1
    assert "Traceback" not in out + err
    with pytest.raises(ProcessLookupError):
        os.kill(int((project.root / "pid").read_text()), 0)


def test_a_real_job_is_submitted(server: Server, tmp_path: Path) -> None:
    """The command is this Python, which runs the job's file with Spark settings of its environment's file."""
    stub = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[2:], '--properties-file', sys.argv[1]])"
    settings = server.session()
    file = tmp_path / "spark-defaults.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    submit = [sys.executable, "-c", stub, str(file)]
    profile = server.profile(recluster_submit=submit, schema="really_submitted")
    model = EVENTS.replace("block_rows=500", "block_rows=500, recluster_after={'commits': 1}")
    project = Project(tmp_path / "p", profile, {"events.sql": model})
    for _ in range(2):
        out = project.succeed("run")
    assert re.search(r"lake\.really_submitted\.events: reclustered 2 blocks into \d, depth 2\.0 -> 1\.0", out), out
    assert checksum(server, "lake.really_submitted.events")[0] == 2000
