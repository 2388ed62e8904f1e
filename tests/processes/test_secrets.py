"""A secret of a profile or a command is in no log, no artifact, no table, no environment and on no command line."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import thrift_server
from dbt_command import EVENTS, Project, one_line, session_settings
from jobs import Jobs
from programs import start
from sessions import catalog_settings, hadoop_lake
from thrift_server import Server

from dbt_recluster.adapter.dbt_run import JOB

MARKER = "0pen-5esame"
# The driver's manager quotes the address that it has no driver for.
BROKEN = "{{ config(materialized='table') }} select * from broken.a.b"
SECRETS = {
    **catalog_settings(
        "broken",
        {
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".warehouse": "/nowhere",
            ".uri": f"jdbc:nothing://db/lake?user=x&pwd={MARKER}&ssl=true",
            ".jdbc.password": f"{MARKER}@home",
            ".header.Authorization": f"Bearer {MARKER}",
            ".shared_key": MARKER,
        },
    ),
    "spark.hadoop.fs.s3a.sse.key": MARKER,
    "spark.hadoop.nobody.knows.passwords": MARKER,
}


def command_lines(root: int) -> set[str]:
    """Return the command lines of a process and of all that it has started, not of tests that run beside this one."""
    parents, lines = {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            process = int(directory.name)
            parents[process] = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            lines[process] = (directory / "cmdline").read_text(errors="replace").replace("\0", " ")
    family = [root]
    for process in family:
        family += [child for child, parent in parents.items() if parent == process]
    return {lines[process] for process in family if process in lines}


def watch(process: subprocess.Popen[str]) -> tuple[str, str, set[str]]:
    """Return what a process prints, and the command lines of it and of all that it starts."""
    seen = set()
    while process.poll() is None:
        seen |= command_lines(process.pid)
        time.sleep(0.1)
    return *process.communicate(), seen


def files_with_marker(root: Path) -> list[str]:
    """Return the files under a directory, but for the profile, that hold the marker."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != "profiles.yml")
    return [str(path) for path in found if MARKER.encode() in path.read_bytes()]


def run_and_look(project: Project, *lakes: Path) -> str:
    """Run a project twice, its broken model included, and look for the marker everywhere; return what it printed."""
    printed = ""
    for _ in range(2):
        out, err, commands = watch(project.start("--debug", "run"))
        assert "PASS=1 WARN=0 ERROR=1" in out, out
        assert MARKER not in out + err
        assert not [command for command in commands if MARKER in command]
        assert any("SparkSubmit" in command for command in commands), "the JVM was not seen"
        printed += out
    for directory in (project.root, *lakes):
        assert files_with_marker(directory) == []
    return printed


@pytest.mark.alike
@pytest.mark.parametrize("method", ["session", "embedded"])
def test_a_secret_of_a_spark_in_this_process(method: str, tmp_path: Path) -> None:
    options = f"-Dderby.system.home={tmp_path} -Djavax.net.ssl.trustStorePassword={MARKER}"
    settings: dict[str, Any] = {**SECRETS, "spark.driver.extraJavaOptions": options}
    if method == "session":
        profile: dict[str, Any] = {"catalog": "lake"}
        settings = {**session_settings(tmp_path, **hadoop_lake(tmp_path / "lake")), **settings}
    else:
        profile = {"path": "lake"}
        settings |= {"spark.eventLog.enabled": True, "spark.eventLog.dir": str(tmp_path)}
    profile |= {"method": method, "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
    out = run_and_look(project, tmp_path)
    assert "No suitable driver found for jdbc:nothing://db/lake?user=x&pwd=*****" in out
    assert " blocks into " in out


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with thrift_server.with_catalogs(tmp_path_factory.mktemp("thrift"), "lake") as running:
        yield running


def test_a_secret_of_recluster_session_is_hidden(server: Server, tmp_path: Path) -> None:
    session = {**SECRETS, **server.session(), "spark.sql.catalog.lake.jdbc.password": MARKER}
    profile = server.profile(recluster_session=session, password=None, schema="s1")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
    assert " blocks into " in run_and_look(project, server.warehouse)
    session["spark.sql.catalog.lake.uri"] = f"jdbc:nothing://db/lake?password={MARKER}"
    project = Project(tmp_path / "q", {**profile, "recluster_session": session}, {"events.sql": EVENTS})
    code, out, err = project.run("--debug", "debug")
    assert code == 1
    shown = "No suitable driver found for jdbc:nothing://db/lake?password=*****"
    assert f"the catalog lake does not answer: SQLException: {shown}" in out
    assert MARKER not in out + err
    assert files_with_marker(project.root) == []


def test_a_secret_of_recluster_submit_is_hidden(server: Server, tmp_path: Path) -> None:
    """The command prints all it was given, and fails with it; its environment is that of dbt."""
    stub = "import os, sys; open('environment', 'w').write(str(os.environ)); sys.exit(' '.join(sys.argv))"
    words = [f"--conf=spark.a.b={MARKER}", "--password", MARKER, "-u", f"bob:{MARKER}", f"Bearer {MARKER}"]
    submit = [sys.executable, "-c", stub, *words]
    secret = {"some.secret": MARKER}
    profile = server.profile(recluster_submit=submit, server_side_parameters=secret, schema="s2")
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
    printed = ""
    for _ in range(2):
        code, out, err = project.run("--debug", "run")
        assert code == 1
        printed += out + err
    assert "was built but not reclustered: recluster_submit: " in one_line(printed)
    assert "--conf=spark.a.b=*****" in printed
    assert MARKER not in printed
    assert "PATH" in (project.root / "environment").read_text()
    assert files_with_marker(project.root) + files_with_marker(server.warehouse) == []


def test_a_secret_of_the_command_through_spark_submit(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, tmp_path / "lake", SECRETS)
    done = jobs.submit("information", "--catalog", "broken", "--debug", "--json", code=1)
    assert "No suitable driver found for jdbc:nothing://db/lake?user=x&pwd=*****" in done.out + done.err
    assert "Traceback" in done.err
    # spark-submit's own log is Spark's.
    own = [line for line in (done.out + done.err).splitlines() if "SparkSubmit" not in line]
    assert not [line for line in own if MARKER in line]


@pytest.mark.parametrize("in_file", [False, True], ids=["--conf", "--properties-file"])
def test_a_secret_of_the_command_and_its_jvm(in_file: bool, tmp_path: Path) -> None:
    """Settings after --conf are on the command line of the command and on no other, those in a file on none."""
    options = {"spark.driver.defaultJavaOptions": f"-Djavax.net.ssl.trustStorePassword={MARKER}"}
    jobs = Jobs(tmp_path, tmp_path / "lake", {**SECRETS, **options})
    file = tmp_path / "lake.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in jobs.settings.items()))
    settings = ["--properties-file", str(file)] if in_file else jobs.arguments()
    command = [sys.executable, str(JOB), "information", "--catalog", "broken", "--debug", *settings]
    out, err, commands = watch(start(*command, env=jobs.environment, cwd=tmp_path))
    assert "No suitable driver found for jdbc:nothing://db/lake?user=x&pwd=*****" in err, out + err
    assert MARKER not in out + err
    assert any("SparkSubmit" in command for command in commands), "the JVM was not seen"
    shown = [command for command in commands if MARKER in command]
    assert all(str(JOB) in command for command in shown)
    assert bool(shown) != in_file
