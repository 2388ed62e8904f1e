"""A standalone Spark cluster of processes on this machine."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from ports import HOST, free_port
from programs import serving

from dbt_recluster.iceberg.session.local_spark import find_java_home


@contextmanager
def cluster(directory: Path, path: str | None = None) -> Iterator[str]:
    """Run a master and two workers of one core each; yield the master's URL.

    Args:
        directory: For their files.
        path: Their PATH, and so that of the executors; None is that of this process.
    """
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    environment = {
        **os.environ,
        "PATH": path or os.environ["PATH"],
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(program.parents[1]),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    url, deploy = f"spark://{HOST}:{port}", "org.apache.spark.deploy"
    ends = ["--host", HOST, "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *ends, "--port", str(port)]]
    for number in range(2):
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}")]
        commands.append([f"{deploy}.worker.Worker", *ends, *work, url])
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = directory / f"process-{number}.log"
            stack.enter_context(serving(program, *command, log=log, ports=[port], env=environment))
        yield url
