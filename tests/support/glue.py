"""A Glue Data Catalog and its S3, both by moto (PyPI), and the jar that reaches them (Maven Central)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import s3
from environments import from_maven, program
from ports import HOST, free_port
from programs import serving
from runtime import iceberg_jar
from sessions import UNCACHED, catalog_settings

MOTO = ("moto[server,glue,s3]==5.2.5",)
ACCESS_KEY, SECRET_KEY = "dbt-recluster", "0pen/5esame+0pen/5esame"
BUCKET = "lake"
# The environment of a process that reaches it: the catalog and S3FileIO take their keys from there.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": "us-east-1",
}


class Glue(NamedTuple):
    """A running server with an empty bucket."""

    port: int

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for a catalog ``lake``."""
        catalog = {
            ".type": "glue",
            ".warehouse": f"s3://{BUCKET}/warehouse",
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".glue.endpoint": self._address,
            ".s3.endpoint": self._address,
            ".s3.path-style-access": "true",
            ".s3.access-key-id": ACCESS_KEY,
            ".s3.secret-access-key": SECRET_KEY,
        }
        jars = f"{iceberg_jar()}:{from_maven(s3.AWS_BUNDLE)}"
        return {
            **catalog_settings("lake", {**catalog, **UNCACHED}),
            "spark.driver.extraClassPath": jars,
        }

    def call(self, action: str, **parameters: Any) -> Any:
        """Call the API of Glue."""
        scope = f"{ACCESS_KEY}/20260101/us-east-1/glue/aws4_request"
        headers = {
            "X-Amz-Target": f"AWSGlue.{action}",
            "Content-Type": "application/x-amz-json-1.1",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=x",
        }
        with urllib.request.urlopen(
            urllib.request.Request(self._address, json.dumps(parameters).encode(), headers)
        ) as answer:
            return json.load(answer)

    def objects(self) -> dict[str, bytes]:
        """Return the contents of all objects, by path."""
        from pyarrow import fs

        found = self._files.get_file_info(fs.FileSelector(BUCKET, recursive=True))
        return {each.path: self._files.open_input_stream(each.path).readall() for each in found if each.is_file}

    def put(self, path: str) -> None:
        """Write an object that belongs to no table."""
        with self._files.open_output_stream(path) as stream:
            stream.write(b"x")

    @property
    def _address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def _files(self) -> Any:
        from pyarrow import fs

        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
        return fs.S3FileSystem(**keys, endpoint_override=f"{HOST}:{self.port}", scheme="http")


@contextmanager
def server_or_skip(directory: Path) -> Iterator[Glue]:
    """Run a server for tests; skip them, with the reason, where it or the client's jar cannot be had."""
    python, port = program("python", "moto", *MOTO), free_port()
    from_maven(s3.AWS_BUNDLE)
    script = Path(__file__).with_name("moto_server.py")
    with serving(python, script, HOST, port, log=directory / "moto.log", ports=[port]):
        request = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request).close()
        yield Glue(port)
