"""Event logs of Spark, read by the session's JVM."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from dbt_recluster.exceptions import EventLogError
from dbt_recluster.iceberg.session.jvm import SparkSession, java_array, java_context, jvm
from dbt_recluster.iceberg.session.redaction import raise_as

logger = logging.getLogger(__name__)


class EventLogFiles:
    """The event logs of a directory, or one log; an EventLogError if there is none.

    The session's JVM opens them: on any file system, compressed or rolled over.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self.count = 0  # logs read so far
        self.faults: list[str] = []  # a line for each log, or part of one, that could not be read completely
        self._reader = jvm(spark).org.apache.spark.deploy.history.EventLogFileReader
        with raise_as(EventLogError, f"event logs at {directory} cannot be listed"):
            path = jvm(spark).org.apache.hadoop.fs.Path(directory)
            self._files = path.getFileSystem(java_context(spark).hadoopConfiguration())
            self._entries = sorted(self._files.listStatus(path), key=lambda entry: file_name(entry.getPath()))

    def paths(self, since: datetime, again_since: datetime) -> Iterator[tuple[Any, bool]]:
        """Yield the Java paths of files that were changed since a time or may grow, and whether this is so later."""
        for entry in self._entries:
            try:
                yield from self._parts(entry, since, again_since)
            except Exception:  # a directory that is not a log, or without permission
                logger.debug("%s could not be read", entry.getPath(), exc_info=True)
                self.faults.append(f"{file_name(entry.getPath())}: could not be read")

    def _parts(self, entry: Any, since: datetime, again_since: datetime) -> list[tuple[Any, bool]]:
        reader = self._reader.apply(self._files, entry)
        if reader.isEmpty():
            return []
        parts, is_complete = reader.get().listEventLogFiles(), bool(reader.get().completed())
        self.count += 1

        def may_grow_after(part: Any, when: datetime) -> bool:
            # HDFS updates a file's modification time only when the file is closed.
            return not is_complete or part.getModificationTime() >= when.timestamp() * 1000

        listed = map(parts.apply, range(parts.size()))
        return [(part.getPath(), may_grow_after(part, again_since)) for part in listed if may_grow_after(part, since)]

    def chunks(self, path: Any) -> Iterator[bytes]:
        """Yield the bytes of a log by way of a file, since py4j is a hundred times slower."""
        java, guava = jvm(self._spark).java, jvm(self._spark).org.apache.iceberg.relocated.com.google.common
        no_options = java_array(self._spark, java.nio.file.CopyOption, [])
        with tempfile.TemporaryDirectory() as directory:
            chunk = Path(directory) / "chunk"
            stream: Any = None
            try:
                stream = self._reader.openEventLog(path, self._files)
                while not chunk.exists() or chunk.stat().st_size:
                    chunk.unlink(missing_ok=True)
                    part = guava.io.ByteStreams.limit(stream, 4 * 2**20)
                    java.nio.file.Files.copy(part, java.io.File(str(chunk)).toPath(), no_options)
                    yield chunk.read_bytes()
            except Exception:
                logger.debug("%s could not be read to its end", path, exc_info=True)
                self.faults.append(f"{file_name(path)}: could not be read to its end")
                if chunk.exists():
                    yield chunk.read_bytes()
            finally:
                with suppress(Exception):
                    stream.close()


def file_name(path: Any) -> str:
    """Return the last part of a Java path."""
    return str(path.getName())
