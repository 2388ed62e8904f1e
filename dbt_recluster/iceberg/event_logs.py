"""Spark's event logs: the scans of all queries of applications, and their times."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import EventLogError
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jvm import java_array, jvm
from dbt_recluster.iceberg.logged_filters import scans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


@dataclass(frozen=True)
class LoggedScan:
    """A scan of a query.

    Attributes:
        at: When the query began, UTC.
        table: The table's full name, without quotes.
        filters: What Iceberg filters by, as `logged_filters` reads it.
    """

    at: datetime
    table: str
    filters: str


class EventLogs:
    """The event logs of a directory, of any file system that Spark reads, compressed or rolled over or neither.

    Args:
        spark: A session, whose JVM opens the logs.
        directory: The directory, or one log.

    Raises:
        EventLogError: There is no such directory or log.

    Attributes:
        count: Number of logs read.
        unreadable: The names of logs, or parts of logs, that could not be read to their ends.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self.count = 0
        self.unreadable: list[str] = []
        hadoop = jvm(spark).org.apache.hadoop
        try:
            self._path = hadoop.fs.Path(directory)
            self._files = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            self._entries = list(self._files.listStatus(self._path))
        except Exception as e:
            raise EventLogError(f"event logs at {directory} cannot be listed: {short_message(e)}") from e

    def scans(self, since: datetime) -> Iterator[LoggedScan]:
        """Yield the scans of Iceberg tables by queries that began at a time or later."""
        for entry in self._entries:
            try:
                parts = self._parts(entry, since)
            except Exception:  # a directory without the files of a log, or one that nobody may read
                logger.debug("%s could not be read", entry.getPath(), exc_info=True)
                self.unreadable.append(str(entry.getPath().getName()))
                continue
            for path in parts:
                yield from self._scans_of(path, since)

    def _parts(self, entry: Any, since: datetime) -> list[Any]:
        """Return the paths of a log's files that may hold queries since a time."""
        reader = jvm(self._spark).org.apache.spark.deploy.history.EventLogFileReader.apply(self._files, entry)
        if reader.isEmpty():
            return []
        parts, is_complete = reader.get().listEventLogFiles(), bool(reader.get().completed())
        self.count += 1
        # HDFS updates the time of a file that is still written only when the file is closed.
        return [
            part.getPath()
            for part in map(parts.apply, range(parts.size()))
            if not is_complete or part.getModificationTime() >= since.timestamp() * 1000
        ]

    def _scans_of(self, path: Any, since: datetime) -> Iterator[LoggedScan]:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "events"
            try:
                self._copy(path, copy)
            except Exception:
                logger.debug("%s could not be read to its end", path, exc_info=True)
                self.unreadable.append(str(path.getName()))
            if copy.exists():
                with copy.open(encoding="utf-8", errors="replace") as lines:
                    for line in lines:
                        yield from _scans_of_event(line, since)

    def _copy(self, path: Any, copy: Path) -> None:
        """Copy a log to a file of this machine: a call into the JVM for every line would take hours."""
        root = jvm(self._spark)
        stream = root.org.apache.spark.deploy.history.EventLogFileReader.openEventLog(path, self._files)
        try:
            options = java_array(self._spark, root.java.nio.file.CopyOption, [])
            root.java.nio.file.Files.copy(stream, root.java.io.File(str(copy)).toPath(), options)
        finally:
            stream.close()


def _scans_of_event(line: str, since: datetime) -> Iterator[LoggedScan]:
    if _STARTED not in line[:200]:
        return
    try:
        event = json.loads(line)
        at = datetime.fromtimestamp(event["time"] / 1000, timezone.utc)
        plan = event["physicalPlanDescription"]
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return  # such as the last line of a log that is still written
    if at >= since and isinstance(plan, str):
        for table, filters in scans(plan):
            yield LoggedScan(at, table, filters)
