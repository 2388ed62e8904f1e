"""``dbt-recluster`` in processes of its own, where dbt cannot be imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import JAVA_OPTIONS, iceberg_jar

import dbt_recluster
from dbt_recluster.iceberg.session.local_spark import find_java_home

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_ROOT = Path(dbt_recluster.__file__).resolve().parents[1]
_JOB = _ROOT / "dbt_recluster" / "job" / "recluster_job.py"
# Python imports this module when it starts.
_NO_DBT = """
import sys

class NoDbt:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dbt", "dbt_common", "dbt_adapters", "agate", "jinja2"):
            raise ModuleNotFoundError(f"{name} must not be imported by a job", name=name)

sys.meta_path.insert(0, NoDbt())
"""
# An environment that tests are run in has the package installed.
_NOT_INSTALLED = """
import os

sys.path[:] = [path for path in sys.path if not os.path.exists(f"{path}/dbt_recluster/__init__.py")]
"""


@dataclass(frozen=True)
class Ran:
    """A job that has ended."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The one line of standard output, which is JSON."""
        (line,) = self.out.splitlines()
        return json.loads(line)


class Jobs:
    """Runs jobs on the catalog ``lake``, a directory.

    Args:
        directory: For the files of the processes.
        warehouse: The directory of the catalog.
        settings: More Spark settings.
        wheel: Bring the package as this wheel. Otherwise it is on the path of the processes.
    """

    def __init__(
        self,
        directory: Path,
        warehouse: Path,
        settings: Mapping[str, str] | None = None,
        *,
        wheel: Path | None = None,
    ) -> None:
        self._directory = directory
        self._wheel = wheel
        (directory / "no_dbt").mkdir(exist_ok=True)
        customize = _NO_DBT + _NOT_INSTALLED if wheel else _NO_DBT
        (directory / "no_dbt" / "sitecustomize.py").write_text(customize)
        self.settings = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.driver.extraClassPath": str(iceberg_jar()),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.extensions": EXTENSIONS,
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": warehouse.as_uri(),
            **(settings or {}),
        }

    @property
    def file(self) -> Path:
        """The file that is run."""
        return _JOB

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the processes."""
        path = [self._directory / "no_dbt", *([] if self._wheel else [_ROOT])]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "COV_"))}
        return {
            **kept,
            "JAVA_HOME": str(find_java_home()),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def submit(self, *arguments: str) -> Ran:
        """Run a command through ``spark-submit``."""
        return self.submit_file(_JOB, *arguments)

    def submit_file(self, file: Path, *arguments: str) -> Ran:
        """Run a Python file through ``spark-submit``."""
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        packages = ["--py-files", str(self._wheel)] if self._wheel else []
        return self._run([str(program), *self.arguments(), *packages, str(file), *arguments])

    def run(self, *arguments: str) -> Ran:
        """Run a command as ``dbt-recluster`` does, in a session of its own."""
        return self._run([sys.executable, str(_JOB), *arguments, *self.arguments()])

    def run_on_terminal(self, *arguments: str, interrupt_at: str) -> tuple[int, str]:
        """Run a command on a terminal and press Ctrl-C once a text is seen; return the exit code and what was shown."""
        import pty

        command = [sys.executable, str(_JOB), *arguments, *self.arguments()]
        process, terminal = pty.fork()
        if process == 0:
            # A shell that starts the tests in the background has them ignore Ctrl-C.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(command[0], command, {**self.environment, "TERM": "xterm", "COLUMNS": "120"})
        shown, pressed = b"", False
        with suppress(OSError):  # how the end of a terminal looks
            while data := os.read(terminal, 4096):
                shown += data
                if not pressed and interrupt_at.encode() in shown:
                    os.write(terminal, b"\x03")
                    pressed = True
        _, status = os.waitpid(process, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")

    def arguments(self) -> list[str]:
        """Return the settings as arguments."""
        return [word for name, value in self.settings.items() for word in ("--conf", f"{name}={value}")]

    def _run(self, command: list[str]) -> Ran:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        return Ran(done.returncode, done.stdout, done.stderr)
