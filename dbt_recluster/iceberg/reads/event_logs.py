"""Spark's event logs: the scans of all queries of applications, their times, and what they filter by.

Iceberg writes filters for people: names and texts are not escaped, dates are days and times are microseconds since
1970. A filter that cannot be parsed restricts nothing.
"""

from __future__ import annotations

import io
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dbt_recluster.exceptions import EventLogError
from dbt_recluster.iceberg.reads.expressions import ColumnRanges, expression_ranges
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import java_array, jvm
from dbt_recluster.iceberg.value_types import ValueType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# An event is a line of JSON that begins with its name.
_STARTED = b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_BEGINNING = 200
# A longer line is passed over. A plan of 1,000 scans takes about one megabyte.
LONGEST_LINE = 16 * 2**20
# Bytes that come from the JVM in one call.
_CHUNK = 4 * 2**20

_BRANCH, _FILTERS, _GROUPED = " (branch=", ") [filters=", ", groupedBy="
_OPERATORS = {"=": "eq", ">": "gt", ">=": "gt-eq", "<": "lt", "<=": "lt-eq"}
_COMPARISON = re.compile(r" (=|>=|>|<=|<|LIKE|IN) ")
_LITERAL = re.compile(
    r"X'(?P<hex>[0-9A-F]*)'|'(?P<text>.*?)'(?=, |\)| AND | OR |$)|(?P<plain>[^\s,)(']+)", re.S
)
_EPOCH = date(1970, 1, 1)


class LoggedScan(NamedTuple):
    """A scan of a query: when the query began, UTC, the table's full name without quotes, and Iceberg's filters."""

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
        faults: The logs, or parts of logs, that could not be read as a whole, a line for each.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self.count = 0
        self.faults: list[str] = []
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
                self.faults.append(f"{entry.getPath().getName()}: could not be read")
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
        malformed = 0
        for line in self._lines(path):
            if _STARTED not in line[:_BEGINNING]:
                continue
            try:
                at, plan = _query(line)
            except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
                # The last line of a log may still be written.
                malformed += line.endswith(b"\n") or len(line) >= LONGEST_LINE
                continue
            if at >= since:
                yield from (LoggedScan(at, table, filters) for table, filters in scans(plan))
        if malformed:
            lines = "1 line is" if malformed == 1 else f"{malformed:,} lines are"
            self.faults.append(f"{path.getName()}: {lines} malformed, too long or too deep")

    def _lines(self, path: Any) -> Iterator[bytes]:
        """Yield the lines of a log, each cut off after `LONGEST_LINE` bytes."""
        reader = jvm(self._spark).org.apache.spark.deploy.history.EventLogFileReader
        with _JavaStream(self._spark, lambda: reader.openEventLog(path, self._files)) as stream:
            log = io.BufferedReader(stream, _CHUNK)
            while line := log.readline(LONGEST_LINE):
                yield line
                while line and not line.endswith(b"\n"):
                    line = log.readline(LONGEST_LINE)
            if stream.error is not None:
                logger.debug("%s could not be read to its end", path, exc_info=stream.error)
                self.faults.append(f"{path.getName()}: could not be read to its end")


def scans(plan: str) -> Iterator[tuple[str, str]]:
    """Yield the table and the filters of each scan in the text of a physical plan."""
    for line in plan.split("\n"):
        table, _, rest = line.partition(_BRANCH)
        _, _, rest = rest.partition(_FILTERS)
        filters, is_scan, rest = rest.rpartition(_GROUPED)
        if is_scan and rest.rstrip().endswith("]"):
            yield table.strip(), filters


def logged_ranges(kinds: Mapping[str, ValueType], filters: str) -> list[ColumnRanges]:
    """Return the ranges of each alternative of a scan's filters; none if they restrict no column to a range."""
    logged = {column: replace(kind, read=partial(_value, kind)) for column, kind in kinds.items()}
    return expression_ranges(_Filters(kinds, filters).conjunction(), logged)


class _JavaStream(io.RawIOBase):
    """An input stream of the JVM, which writes a chunk at a time into a file: py4j is a hundred times slower.

    Attributes:
        error: What ended the stream before its end, or None.
    """

    def __init__(self, spark: SparkSession, open_stream: Callable[[], Any]) -> None:
        self._java, self._no_options = jvm(spark), java_array(spark, jvm(spark).java.nio.file.CopyOption, [])
        self._directory = tempfile.TemporaryDirectory()
        self._chunk = Path(self._directory.name) / "chunk"
        self._stream: Any = None
        self.error: Exception | None = None
        try:
            self._stream = open_stream()
        except Exception as e:
            self.error = e

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as many bytes as the buffer holds; return how many."""
        if self.error is not None:
            return 0
        java = self._java.java
        guava = self._java.org.apache.iceberg.relocated.com.google.common
        try:
            part = guava.io.ByteStreams.limit(self._stream, len(buffer))
            java.nio.file.Files.copy(part, java.io.File(str(self._chunk)).toPath(), self._no_options)
        except Exception as e:  # what was read before it is in the chunk
            self.error = e
        if not self._chunk.exists():
            return 0
        with self._chunk.open("rb") as chunk:
            read = chunk.readinto(buffer)
        self._chunk.unlink()
        return read

    def close(self) -> None:
        """Close the stream."""
        if not self.closed:
            with suppress(Exception):
                self._stream.close()
            self._directory.cleanup()
        super().close()


def _query(line: bytes) -> tuple[datetime, str]:
    """Return when the query of an event began, and its plan; any other event raises, as does one too deep."""
    event = json.loads(line.decode("utf-8", errors="replace"))
    plan = event["physicalPlanDescription"]
    if not isinstance(plan, str):
        raise TypeError
    return datetime.fromtimestamp(event["time"] / 1000, timezone.utc), plan


class _Malformed(Exception):
    """The text is not one that Iceberg writes."""


class _Filters:
    """Parses filters from left to right into Iceberg's JSON; an unknown filter is `True`."""

    def __init__(self, columns: Iterable[str], text: str) -> None:
        # The longest first: a name may begin with another one.
        self._columns = sorted(columns, key=len, reverse=True)
        self._text = text
        self._at = 0

    def conjunction(self) -> Any:
        """Parse filters with commas between them, all of which hold."""
        try:
            result = self._conjunction()
        except _Malformed:
            return True
        # A rest means that something before it was misread.
        return result if self._at == len(self._text) else True

    def _conjunction(self) -> Any:
        # For every open bracket the word between its operands, and these; the filters themselves come first.
        open_brackets: list[tuple[str, list[Any]]] = [("and", [])]
        while True:
            if self._take("("):
                open_brackets.append(("and", []))
                continue
            operand = self._predicate()
            while len(open_brackets) > 1 and self._take(")"):
                word, operands = open_brackets.pop()
                operand = _joined(word, [*operands, operand])
            word, operands = open_brackets[-1]
            operands.append(operand)
            if len(open_brackets) > 1:
                word = "and" if self._take(" AND ") else "or"
                if len(operands) > 1 or (word == "or" and not self._take(" OR ")):
                    raise _Malformed
                open_brackets[-1] = (word, operands)
            elif not self._take(", "):
                return _joined("and", operands)

    def _predicate(self) -> Any:
        column = next((name for name in self._columns if self._text.startswith(f"{name} ", self._at)), None)
        if column is None:
            return self._skip()
        self._at += len(column)
        operator = _COMPARISON.match(self._text, self._at)
        if operator is None:
            return self._skip()
        self._at = operator.end()
        if operator[1] == "IN":
            self._expect("(")
            values = [self._literal()]
            while self._take(", "):
                values.append(self._literal())
            self._expect(")")
            return {"type": "in", "term": column, "values": values}
        value = self._literal()
        if operator[1] != "LIKE":
            return {"type": _OPERATORS[operator[1]], "term": column, "value": value}
        return {"type": "starts-with", "term": column, "value": value.removesuffix("%")}

    def _literal(self) -> str:
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            raise _Malformed
        self._at = match.end()
        return next(group for group in match.groups() if group is not None)

    def _skip(self) -> bool:
        """Pass over a filter without a range, up to the next filter or the end of the brackets around it."""
        depth = 0
        while self._at < len(self._text):
            if self._text[self._at] == "'":
                self._literal()
                continue
            ends = (", ", " AND ", " OR ", ")")
            if depth == 0 and self._text.startswith(ends, self._at):
                break
            depth += {"(": 1, ")": -1}.get(self._text[self._at], 0)
            self._at += 1
        return True

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise _Malformed


def _joined(word: str, operands: Iterable[Any]) -> Any:
    return reduce(lambda left, right: {"type": word, "left": left, "right": right}, operands)


def _value(kind: ValueType, text: str) -> Any:
    if pa.types.is_date(kind.arrow):
        return _EPOCH + timedelta(days=int(text))
    if pa.types.is_timestamp(kind.arrow):
        return datetime(1970, 1, 1) + timedelta(microseconds=int(text))
    return text == "true" if pa.types.is_boolean(kind.arrow) else kind.read(text)
