"""A Glue Data Catalog and its S3, both by moto (PyPI), and the jar that reaches them (Maven Central)."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import s3
from environments import from_maven, program
from ports import HOST, free_port
from programs import serving
from runtime import iceberg_jar
from sessions import UNCACHED, catalog_settings

MOTO = ("moto[server,glue,s3]==5.2.5",)
# The environment of a process that reaches it: the catalog and S3FileIO take their keys from there.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": s3.ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY,
    "AWS_REGION": "us-east-1",
}


class Glue(s3.Buckets):
    """A running server at an address, with an empty bucket ``lake``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for a catalog ``lake``."""
        catalog = {".type": "glue", ".warehouse": f"s3://{s3.LAKE}/warehouse", ".glue.endpoint": self.endpoint}
        jars = f"{iceberg_jar()}:{from_maven(s3.AWS_BUNDLE)}"
        return {
            **catalog_settings("lake", {**catalog, **s3.of_s3(self.endpoint), **UNCACHED}),
            "spark.driver.extraClassPath": jars,
        }

    def call(self, action: str, **parameters: Any) -> Any:
        """Call the API of Glue."""
        scope = f"{s3.ACCESS_KEY}/20260101/us-east-1/glue/aws4_request"
        headers = {
            "X-Amz-Target": f"AWSGlue.{action}",
            "Content-Type": "application/x-amz-json-1.1",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=x",
        }
        request = urllib.request.Request(self.endpoint, json.dumps(parameters).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@contextmanager
def server_or_skip(directory: Path) -> Iterator[Glue]:
    """Run a server for tests; skip them, with the reason, where it or the client's jar cannot be had."""
    python, port = program("python", "moto", *MOTO), free_port()
    from_maven(s3.AWS_BUNDLE)
    script = Path(__file__).with_name("moto_server.py")
    with serving(python, script, HOST, port, log=directory / "moto.log", ports=[port]):
        running = Glue(f"http://{HOST}:{port}")
        urllib.request.urlopen(urllib.request.Request(f"{running.endpoint}/{s3.LAKE}", method="PUT")).close()
        yield running
