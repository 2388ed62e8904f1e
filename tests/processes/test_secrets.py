"""A secret of a profile or a command is in no log, no artifact, no table, no environment and on no command line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import postgres
import pytest
import thrift_server
from dbt_command import EVENTS, Project, hadoop_lake, session_settings
from jobs import Jobs
from runtime import iceberg_jar

MARKER = "0pen-5esame"
# The driver's manager quotes the address that it has no driver for.
BROKEN = "{{ config(materialized='table') }} select * from broken.a.b"
CATALOG = "spark.sql.catalog.broken"
SECRETS = {
    CATALOG: "org.apache.iceberg.spark.SparkCatalog",
    f"{CATALOG}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    f"{CATALOG}.warehouse": "/nowhere",
    f"{CATALOG}.uri": f"jdbc:nothing://db/lake?user=x&pwd={MARKER}&ssl=true",
    f"{CATALOG}.jdbc.password": f"{MARKER}@home",
    f"{CATALOG}.header.Authorization": f"Bearer {MARKER}",
    f"{CATALOG}.shared_key": MARKER,
    "spark.hadoop.fs.s3a.sse.key": MARKER,
    "spark.hadoop.nobody.knows.this": MARKER,
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


def run_and_look(project: Project, *lakes: Path, of_jvm: str | None) -> str:
    """Run a project twice, its broken model included, and look for the marker everywhere; return what it printed."""
    printed = ""
    for _ in range(2):
        out, err, commands = watch(project.start("--debug", "run"))
        assert "PASS=1 WARN=0 ERROR=1" in out, out
        assert MARKER not in out + err
        assert not [command for command in commands if MARKER in command]
        if of_jvm is not None:
            assert any(of_jvm in command for command in commands), "the JVM was not seen"
        printed += out
    for directory in (project.root, *lakes):
        assert files_with_marker(directory) == []
    return printed


def test_embedded(tmp_path: Path) -> None:
    options = {"spark.driver.extraJavaOptions": f"-Djavax.net.ssl.trustStorePassword={MARKER}"}
    settings = {**SECRETS, **options, "spark.eventLog.enabled": True, "spark.eventLog.dir": str(tmp_path)}
    profile = {"method": "embedded", "path": "lake", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
    out = run_and_look(project, tmp_path, of_jvm="SparkSubmit")
    assert "No suitable driver found for *****" in out
    assert ", reclustered " in out
    # Spark's own log is where the address comes from.
    log = project.root / "lake" / "logs" / "spark.log"
    assert not log.exists() or MARKER not in log.read_text()


def test_session(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    options = {"spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path} -Dsome.secret={MARKER}"}
    settings = session_settings(tmp_path, **SECRETS, **hadoop_lake(tmp_path / "lake"), **options)
    profile = {"method": "session", "catalog": "lake", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
    out = run_and_look(project, tmp_path / "lake", of_jvm="SparkSubmit")
    assert "No suitable driver found for *****" in out


class TestThrift:
    @pytest.fixture(scope="class")
    def server(self, tmp_path_factory: pytest.TempPathFactory) -> Any:
        """The port of a Thrift server over a catalog in PostgreSQL, and the settings of that catalog."""
        pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")
        directory = tmp_path_factory.mktemp("thrift")
        with postgres.server_or_skip() as url:
            catalog = thrift_server.catalog("lake", url, directory / "warehouse")
            with thrift_server.server(directory, catalog) as port:
                yield port, {**catalog, "spark.sql.catalog.lake.jdbc.password": MARKER}

    def profile(self, server: Any, **more: Any) -> dict[str, Any]:
        port, catalog = server
        address = {"host": "127.0.0.1", "port": port, "user": "dbt", "poll_interval": 1, "catalog": "lake"}
        warehouse = catalog["spark.sql.catalog.lake.warehouse"].removeprefix("file://")
        return {"method": "thrift", **address, "schema": f"s{len(more)}", "warehouse": warehouse, **more}

    def test_recluster_session(self, server: Any, tmp_path: Path) -> None:
        session = {
            **SECRETS,
            **server[1],
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": f"{postgres.DRIVER}:{iceberg_jar()}",
            "spark.sql.defaultCatalog": "lake",
        }
        profile = self.profile(server, recluster_session=session, password=None)
        warehouse = Path(profile.pop("warehouse"))
        project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
        out = run_and_look(project, warehouse, of_jvm="SparkSubmit")
        assert ", reclustered " in out
        session["spark.sql.catalog.lake.uri"] = f"jdbc:nothing://db/lake?password={MARKER}"
        project = Project(tmp_path / "q", {**profile, "recluster_session": session}, {"events.sql": EVENTS})
        code, out, err = project.run("--debug", "debug")
        assert code == 1
        assert "the catalog lake does not answer: SQLException: No suitable driver found for *****" in out
        assert MARKER not in out + err
        assert files_with_marker(project.root) == []

    def test_recluster_submit(self, server: Any, tmp_path: Path) -> None:
        """The command prints all it was given, and fails with it; its environment is that of dbt."""
        stub = "import os, sys; open('environment', 'w').write(str(os.environ)); sys.exit(' '.join(sys.argv))"
        words = [
            "--conf=spark.a.b=" + MARKER,
            "--password",
            MARKER,
            "-u",
            f"bob:{MARKER}",
            f"Bearer {MARKER}",
        ]
        profile = self.profile(
            server,
            recluster_submit=[sys.executable, "-c", stub, *words],
            server_side_parameters={"some.secret": MARKER},
        )
        warehouse = Path(profile.pop("warehouse"))
        project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "broken.sql": BROKEN})
        printed = ""
        for _ in range(2):
            code, out, err = project.run("--debug", "run")
            assert code == 1
            printed += out + err
        assert "was built but not reclustered: recluster_submit: " in " ".join(printed.split())
        assert "--conf=spark.a.b=*****" in printed
        assert MARKER not in printed
        assert "PATH" in (project.root / "environment").read_text()
        assert files_with_marker(project.root) == []
        assert files_with_marker(warehouse) == []


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "JSON"])
@pytest.mark.parametrize("how", [Jobs.run, Jobs.submit], ids=["alone", "through spark-submit"])
def test_the_command(how: Callable[..., Any], as_json: bool, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    jobs = Jobs(tmp_path, tmp_path / "lake", SECRETS)
    done = how(jobs, "information", "--catalog", "broken", "--debug", *(["--json"] if as_json else []))
    assert done.code == 1
    assert "No suitable driver found for *****" in done.out + done.err
    assert "Traceback" in done.err
    # spark-submit's own log is Spark's.
    own = [line for line in (done.out + done.err).splitlines() if "SparkSubmit" not in line]
    assert not [line for line in own if MARKER in line]
    wrong = jobs.run(
        "information", "--password", MARKER, f"spark.password={MARKER}", "--conf", f"password:{MARKER}"
    )
    assert wrong.code == 2
    assert MARKER not in wrong.out + wrong.err


@pytest.mark.parametrize("in_file", [False, True], ids=["--conf", "--properties-file"])
def test_the_command_line_of_the_command_s_jvm(in_file: bool, tmp_path: Path) -> None:
    """Settings after --conf are on the command line of the command and on no other, those in a file on none."""
    (tmp_path / "lake").mkdir()
    options = {"spark.driver.defaultJavaOptions": f"-Djavax.net.ssl.trustStorePassword={MARKER}"}
    jobs = Jobs(tmp_path, tmp_path / "lake", {**SECRETS, **options})
    file = tmp_path / "lake.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in jobs.settings.items()))
    settings = ["--properties-file", str(file)] if in_file else jobs.arguments()
    command = [sys.executable, str(jobs.file), "information", "--catalog", "broken", "--debug", *settings]
    environment = {**os.environ, **jobs.environment}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, text=True, cwd=tmp_path, **pipes)
    out, err, commands = watch(process)
    assert "No suitable driver found for *****" in err, out + err
    assert MARKER not in out + err
    assert any("SparkSubmit" in command for command in commands), "the JVM was not seen"
    shown = [command for command in commands if MARKER in command]
    assert all(str(jobs.file) in command for command in shown)
    assert bool(shown) != in_file
