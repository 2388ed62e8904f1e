"""Run the `dbt` command in processes of its own, as users do."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jobs import EXTENSIONS
from programs import start
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


class Project:
    """A dbt project in a directory, with a profile."""

    def __init__(
        self,
        root: Path,
        profile: dict[str, Any],
        models: dict[str, str],
        *,
        dbt: Sequence[object] = (Path(sys.executable).with_name("dbt"),),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.root, self._dbt = root, list(map(str, dbt))
        for name, text in models.items():
            self.write(f"models/{name}", text)
        flags = {"send_anonymous_usage_stats": False}
        self.write(
            "dbt_project.yml",
            {"name": "p", "version": "1.0", "profile": "p", "flags": flags, **(config or {})},
        )
        self._started: list[subprocess.Popen[str]] = []
        target = {"type": "recluster", "schema": "analytics", "threads": 1, **profile}
        self.write("profiles.yml", {"p": {"target": "dev", "outputs": {"dev": target}}})

    def write(self, name: str, content: Any) -> None:
        """Write a file of the project: a text, or what becomes YAML."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [*self._dbt, "--no-use-colors", *arguments, "--profiles-dir", "."]
        process = start(*command, cwd=self.root, env={**os.environ, **environment})
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

    def ask(self, sql: str) -> Any:
        """Return the first row of a query, of a process that did not build its tables."""
        out = self.succeed("--quiet", "show", "--inline", sql, "--output", "json")
        return tuple(json.loads(out)["show"][0].values())

    def artifact(self, name: str) -> Any:
        """Return a file that dbt has written, ``run_results`` or another."""
        return json.loads((self.root / "target" / f"{name}.json").read_text())

    def files(self) -> set[str]:
        return {path.name for path in self.root.iterdir()}


def one_line(text: str) -> str:
    """Return a text without the line ends at which dbt wraps it."""
    return " ".join(text.split())
