"""``dbt-recluster`` in processes of its own, where dbt cannot be imported."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from programs import start
from runtime import JAVA_OPTIONS, iceberg_jar
from sessions import hadoop_lake

import dbt_recluster
from dbt_recluster.adapter.dbt_run import JOB
from dbt_recluster.iceberg.session.local_spark import find_java_home

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_ROOT = Path(dbt_recluster.__file__).resolve().parents[1]
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
        self.variables: dict[str, str] = {}  # of the processes' environment, beside those of this one
        (directory / "no_dbt").mkdir(parents=True, exist_ok=True)
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
            **hadoop_lake(warehouse),
            **(settings or {}),
        }

    @property
    def environment(self) -> dict[str, str]:
        path = [self._directory / "no_dbt", *([] if self._wheel else [_ROOT])]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "COV_"))}
        return {
            **kept,
            "JAVA_HOME": str(find_java_home()),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **self.variables,
        }

    def submit(self, *arguments: str, code: int = 0, file: Path = JOB) -> Ran:
        """Run a command, or another Python file, through ``spark-submit``; it must end with a code."""
        program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        packages = ["--py-files", str(self._wheel)] if self._wheel else []
        return self._run([program, *self.arguments(), *packages, file, *arguments], code)

    def run(self, *arguments: str) -> Ran:
        """Run a command as ``dbt-recluster`` does, in a session of its own; it must succeed."""
        return self._run([sys.executable, JOB, *arguments, *self.arguments()], 0)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command as ``dbt-recluster`` does; all its output is in one pipe."""
        place = {"cwd": self._directory, "env": self.environment}
        return start(sys.executable, JOB, *arguments, *self.arguments(), stderr=subprocess.STDOUT, **place)

    def arguments(self) -> list[str]:
        return [word for name, value in self.settings.items() for word in ("--conf", f"{name}={value}")]

    def _run(self, command: Sequence[object], code: int) -> Ran:
        process = start(*command, cwd=self._directory, env=self.environment)
        out, err = process.communicate(timeout=600)
        assert process.returncode == code, out + err
        return Ran(out, err)
