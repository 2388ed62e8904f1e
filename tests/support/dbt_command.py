"""Run the `dbt` command in processes of its own, as users do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from jobs import EXTENSIONS
from runtime import iceberg_jar

# Each run loads the same thousand rows once more.
EVENTS = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=500) }}
select id, pmod(hash(id), 100) as k from range(1000)"""


def session_settings(directory: Path, **more: Any) -> dict[str, Any]:
    """Spark settings of `method: session`, with a metastore in a directory."""
    return {
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
        **more,
    }


def hadoop_lake(directory: Path) -> dict[str, str]:
    """Spark settings of a catalog `lake` in a directory."""
    catalog, lake = "spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"
    return {catalog: lake, f"{catalog}.type": "hadoop", f"{catalog}.warehouse": str(directory)}


class Project:
    """A dbt project in a directory, with a profile."""

    def __init__(self, root: Path, profile: dict[str, Any], models: dict[str, str]) -> None:
        self.root = root
        (root / "models").mkdir(parents=True)
        for name, text in models.items():
            (root / "models" / name).write_text(text)
        flags = {"send_anonymous_usage_stats": False}
        self.write("dbt_project.yml", {"name": "p", "version": "1.0", "profile": "p", "flags": flags})
        self._started: list[subprocess.Popen[str]] = []
        target = {"type": "recluster", "schema": "analytics", "threads": 1, **profile}
        self.write("profiles.yml", {"p": {"target": "dev", "outputs": {"dev": target}}})

    def write(self, name: str, content: Any) -> None:
        (self.root / name).write_text(yaml.safe_dump(content))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        dbt = Path(sys.executable).with_name("dbt")
        process = subprocess.Popen(
            [str(dbt), "--no-use-colors", *arguments, "--profiles-dir", "."],
            cwd=self.root,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts the tests in the background has them ignore Ctrl-C, and dbt would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """Kill what was started and has not ended, as after a test that failed: its Spark would work on."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def succeed(self, *arguments: str, **environment: str) -> str:
        """Run a command that must succeed; return its standard output."""
        code, out, err = self.run(*arguments, **environment)
        assert code == 0, out + err
        return out

    def fail(self, *arguments: str, code: int | None = None, **environment: str) -> str:
        """Run a command that must fail, with a code if one is given; return its standard output."""
        ended, out, err = self.run(*arguments, **environment)
        assert ended == code if code is not None else ended != 0, out + err
        return out

    def wait_for_log(self, text: str, process: subprocess.Popen[str], seconds: float) -> None:
        """Wait until dbt's log has a text, while the process runs."""
        log, deadline = self.root / "logs" / "dbt.log", time.monotonic() + seconds
        while not (log.exists() and text in log.read_text()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def files(self) -> set[str]:
        return {path.name for path in self.root.iterdir()}
