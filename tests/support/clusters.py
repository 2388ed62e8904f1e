"""A standalone Spark cluster of processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ports import HOST, free_port, wait_for_port

from dbt_recluster.iceberg.session.local_spark import find_java_home


@contextmanager
def cluster(directory: Path, path: str | None = None) -> Iterator[str]:
    """Run a master and two workers of one core each; yield the master's URL.

    Args:
        directory: For their files.
        path: Their PATH, and so that of the executors; None is that of this process.
    """
    import pyspark

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
    url = f"spark://{HOST}:{port}"
    deploy = "org.apache.spark.deploy"
    ends = ["--host", HOST, "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *ends, "--port", str(port)]]
    for number in range(2):
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}")]
        commands.append([f"{deploy}.worker.Worker", *ends, *work, url])
    processes = []
    try:
        for number, command in enumerate(commands):
            with (directory / f"process-{number}.log").open("w") as log:
                processes.append(
                    subprocess.Popen(
                        [str(program), *command],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        wait_for_port(port, "the master of the cluster")
        yield url
    finally:
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(timeout=30)
