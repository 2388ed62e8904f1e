"""YARN and HDFS in one process of Hadoop's own test classes (Maven), and a packed environment for its containers."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from environments import from_maven, program
from ports import free_port
from programs import run, serving
from runtime import JAVA_OPTIONS, iceberg_jar

from dbt_recluster.iceberg.session.local_spark import find_java_home

JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.3.4",  # the Hadoop of pyspark 3.5
    "junit:junit:4.13.2",
    "org.bouncycastle:bcprov-jdk15on:1.68",
    "org.bouncycastle:bcpkix-jdk15on:1.68",
)
# Virtual memory of 5 times the physical one: room for Spark in a container of 900 MB, but not for DuckDB beside it.
SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.minicluster.control-resource-monitoring": "true",
    "yarn.nodemanager.resource.memory.enforced": "false",  # by cgroups, in place of the two checks
    "yarn.nodemanager.pmem-check-enabled": "true",
    "yarn.nodemanager.vmem-check-enabled": "true",
    "yarn.nodemanager.vmem-pmem-ratio": "5",
    "yarn.nodemanager.container-monitor.interval-ms": "300",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}


class Yarn(NamedTuple):
    """A running cluster by its directory, which has the configuration of its clients."""

    directory: Path

    @property
    def hdfs(self) -> str:
        found = re.search("hdfs://[^<]+", (self.directory / "core-site.xml").read_text())
        assert found
        return found[0]

    def settings(self, **more: str) -> dict[str, str]:
        """Return Spark's settings; jars are read where they are, not copied to HDFS."""
        return {
            "spark.master": "yarn",
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
            "spark.yarn.maxAppAttempts": "1",
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraClassPath": str(iceberg_jar()),
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            **{f"spark.{name.replace('_', '.')}": value for name, value in more.items()},
        }

    def printed(self) -> str:
        """Return the standard output of the last application's driver in cluster mode."""
        return max(self.directory.rglob("*_000001/stdout")).read_text()


@contextmanager
def cluster_or_skip(directory: Path) -> Iterator[Yarn]:
    """Run a cluster for tests; skip them, with the reason, where its jars or a Java compiler cannot be had."""
    home, port, source = find_java_home(), free_port(), Path(__file__).with_name("MiniHadoop.java")
    if not (home / "bin/javac").exists():
        pytest.skip(f"YARN needs a JDK here, and {home} has no compiler")
    # Spark's proxy is for Hadoop's jars without relocated classes.
    of_spark = (jar for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if "web-proxy" not in jar.name)
    class_path = os.pathsep.join(map(str, [*of_spark, *map(from_maven, JARS)]))
    java = [home / "bin/java", "-Xmx512m", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", class_path, source]
    words = [f"{name}={value}" for name, value in SETTINGS.items()]
    environment = {**os.environ, "JAVA_HOME": str(home)}  # which containers inherit
    options = {"log": directory / "cluster.log", "ports": [port], "env": environment, "cwd": directory}
    with serving(*java, directory, port, *words, **options):
        yield Yarn(directory)


def packed_environment(directory: Path) -> Path:
    """Return an archive of a virtual environment with what the driver and the executors need."""
    packages = ("numpy", "pyarrow>=23", "click", "pydantic>=2.11", "duckdb>=2,<3", "fsspec")
    pack = program("venv-pack", "yarn", "venv-pack", "setuptools", *packages)
    archive = directory / "environment.tar.gz"
    run(pack, "--quiet", "--prefix", pack.parents[1], "--output", archive)
    return archive


def wheel(directory: Path) -> Path:
    """Return the package as a wheel."""
    root = Path(__file__).resolve().parents[2]
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", directory, root)
    return next(directory.glob("*.whl"))
