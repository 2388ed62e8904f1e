"""Import the reads of a table: from queries of a project, a query log of any engine, or Spark's event logs.

In event logs, Iceberg prints filters for people: names and texts are not escaped, dates are days and times microseconds
since 1970. A filter that cannot be parsed restricts nothing. Queries of other engines are translated by sqlglot.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache, partial, reduce
from typing import Any

from dbt_recluster.clustering.options import digest, parse_iso_time, parse_number
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_reads import EVENT_LOG, MOST_READS, PROJECT, QUERY_LOG, ReadRange, compact, faded
from dbt_recluster.exceptions import EventLogError, OptionError, PredicateError
from dbt_recluster.iceberg.event_logs import EventLogFiles, file_name
from dbt_recluster.iceberg.predicates import ColumnRanges, alternatives_of, both_alternatives, ranges_as_json
from dbt_recluster.iceberg.session.redaction import raise_as
from dbt_recluster.key.types import ColumnType
from dbt_recluster.names import join_parts, name_parts
from dbt_recluster.text import count_noun

# The start of a query, UTC, how often it runs, and the ranges of each alternative.
LoggedRead = tuple[datetime, float, list[ColumnRanges]]

# The event's name, at the beginning of its line of JSON.
_STARTED = b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
# Longer lines are skipped. A plan of 1,000 scans takes about one megabyte.
LONGEST_LINE = 16 * 2**20

# The texts of Iceberg's scans: with Spark 3.5 and 4.0, `lake.s.t (branch=null) [filters=k = 1, groupedBy=]`, and with
# Spark 4.1, `IcebergScan(table=lake.s.t, ..., filters=k = 1, runtimeFilters=, groupedBy=)`.
_BRANCH, _FILTERS, _GROUPED = " (branch=", ") [filters=", ", groupedBy="
_KIND, _LIST, _RUNTIME = "Scan(table=", ", filters=", ", runtimeFilters="
_NODE = "BatchScan "
_OPERATORS = {"=": "eq", ">": "gt", ">=": "gt-eq", "<": "lt", "<=": "lt-eq"}
_COMPARISON = re.compile(r" (=|>=|>|<=|<|LIKE|IN) ")
_LITERAL = re.compile(r"X'(?P<hex>[0-9A-F]*)'|'(?P<text>.*?)'(?=, |\)| AND | OR |$)|(?P<plain>[^\s,)(']+)", re.S)

# Queries of this past are imported by default. For as long, one that is logged late is told from those counted before.
_WEEK = timedelta(days=7)
# A file system's clock may be this much behind.
_SKEW = timedelta(hours=1)
# Of a query log: distinct queries whose ranges are kept, and the greatest count of a query.
_MOST_PLANNED, _MOST_COUNTED = 1_000, 1e9
# Reasons to skip a query. A missing table's name may be shown, literals may not.
_CONDITION = re.compile(r"a query cannot be planned: \[([A-Z_.]+)\](?: The table or view (`.+?`) cannot be found)?")
_NOT_PARSED, _COMMAND = "sqlglot cannot parse it", "a command is no query"


@dataclass(frozen=True)
class ImportedReads(Result):
    """The result of an import of reads.

    Attributes:
        table: The table.
        imported_from: Where they come from, ``project``, ``event log`` or ``query log``.
        scans: Scans of the table in the queries.
        ranges: Ranges that they restrict columns to.
        recorded: Ranges that the table records now, of all imports.
        left_out: Queries and logs that could not be read, a line for each.
    """

    table: str
    imported_from: str
    scans: int
    ranges: int
    recorded: int
    left_out: list[str] = field(default_factory=list)


def has_recorded(table: ClusteredTable, queries: Mapping[str, str]) -> bool:
    """Whether a table records the reads of these queries of a project, as of today."""
    recorded = table.reads.recorded
    imported = recorded.at.get(PROJECT)
    # A query with `current_date` reads another range every day.
    is_fresh = imported is not None and datetime.now(timezone.utc) - imported < timedelta(days=1)
    return is_fresh and recorded.state.get(PROJECT) == digest(queries)


def record_queries(table: ClusteredTable, queries: Mapping[str, str]) -> ImportedReads:
    """Record the ranges that the queries of a project read, by name, in place of earlier ones; no query is run."""
    new: list[ReadRange] = []
    scans, left_out = 0, []
    for name, query in queries.items():
        try:
            of_query, alternatives = table.reads.column_ranges.of_query(query)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        scans += of_query
        new += [ReadRange(ranges_as_json(ranges), 1.0, PROJECT) for ranges in alternatives]
    state = {PROJECT: digest(queries)}
    recorded = table.reads.record(PROJECT, new if scans else None, state, datetime.now(timezone.utc))
    return ImportedReads(table.name, PROJECT, scans, len(new), recorded, left_out)


def import_log(
    table: ClusteredTable,
    event_log: str | None = None,
    query_log: str | None = None,
    dialect: str | None = None,
    since: datetime | None = None,
    logged_as: str | None = None,
) -> ImportedReads:
    """Add the ranges that logged queries read, after those of an earlier import from there.

    Raises:
        EventLogError: There are no event logs there, or the query log cannot be read.
        OptionError: Neither log is given, or both, or a dialect of event logs, or sqlglot is not installed.
    """
    name = logged_as or ".".join(name_parts(table.iceberg.identifier))
    log: EventLogs | QueryLog
    if query_log is not None and event_log is None:
        kind, path, log = QUERY_LOG, query_log, QueryLog(table, query_log, dialect or "spark", name)
    elif event_log is not None and query_log is None and dialect is None:
        files, kinds = EventLogFiles(table.iceberg.spark, event_log), table.reads.column_ranges.kinds
        kind, path, log = EVENT_LOG, event_log, EventLogs(files, name, kinds)
    else:
        raise OptionError("name one log: by event_log, or by query_log, which may have a dialect")
    now, recorded = datetime.now(timezone.utc), table.reads.recorded
    state_name = f"{kind} {digest({'directory': path, 'name': name})}"
    progress = LogProgress(recorded.state.get(state_name), since or now - _WEEK, now)
    count = 0

    def logged() -> Iterator[ReadRange]:
        nonlocal count
        for at, weight, alternatives in log.reads(progress):
            for ranges in alternatives:
                count += 1
                yield ReadRange(ranges_as_json(ranges), weight * faded(at, now), kind)

    new, on_record = compact(logged(), MOST_READS), len(recorded.reads)
    if log.scanned:
        first = min(log.first or now, recorded.time_of(kind) or now)
        state = {state_name: progress.text(), kind: first.isoformat(timespec="seconds")}
        on_record = table.reads.record(kind, new, state, now)
    left_out, when = [*log.left_out, *progress.left_out], progress.since.isoformat(sep=" ", timespec="seconds")[:19]
    if not log.scanned and log.place:
        no_query = "no new query" if progress.last_import else "no query"
        left_out.append(f"{name} is read by {no_query} since {when} UTC in {log.place}")
    return ImportedReads(table.name, kind, log.scanned, count, on_record, left_out)


class LogProgress:
    """How many queries of each day of a log are counted, so that a later import counts the others alone.

    A query may be logged at its end with the time of its start, or in a file that appears late: one that began before
    the last import may be new. Those counted before come first in the log.

    Attributes:
        now: The time of the import.
        since: The time from which queries are imported.
        counted_since: The time from which they are counted.
        last_import: The time of the last import, or None.
    """

    def __init__(self, recorded: str | None, since: datetime, now: datetime) -> None:
        self.now = now
        self.last_import: datetime | None = None
        self._counted, self._read, self._again = Counter[date](), Counter[date](), Counter[date]()
        self._future = 0
        with suppress(ValueError):
            at, *counts = (recorded or "").split()
            last = parse_iso_time(at)
            self._counted.update({last.date() - timedelta(number): int(count) for number, count in enumerate(counts)})
            self.last_import = min(last, now)
        first_day = datetime.combine((self.last_import or now).date() - _WEEK, time(), timezone.utc)
        self.since = max(since, first_day) if self.last_import else since
        self.counted_since = first_day if self.last_import else min(since, first_day)

    @property
    def files_since(self) -> datetime:
        """The last change of the files that are not read to their end yet."""
        return max(self.counted_since, self.last_import - _SKEW) if self.last_import else self.counted_since

    def is_new(self, at: datetime, *, is_read_again: bool = True) -> bool:
        """Count a query of the table; return whether to import it."""
        if at > self.now:
            self._future += 1
            return False
        day = at.astimezone(timezone.utc).date()
        self._read[day] += 1
        self._again[day] += is_read_again
        return self._read[day] > self._counted[day] and at >= self.since

    @property
    def left_out(self) -> list[str]:
        """A line for the queries of the future, and for each day of which the log has lost some."""
        lines = [f"{count_noun(self._future, 'read')}: a time in the future"] if self._future else []
        for day, number in sorted(self._read.items()):
            if number < self._counted[day] and day > self.since.date():
                lines.append(
                    f"{count_noun(number, 'read')} of {day}: {self._counted[day]:,} of that day were counted before"
                )
        return lines

    def text(self) -> str:
        """Return what to record: the time, and the queries counted on its day and on each day before."""
        days = [self.now.date() - timedelta(number) for number in range(_WEEK.days + 1)]
        return f"{self.now.isoformat()} {' '.join(str(self._again[day]) for day in days)}"


class EventLogs:
    """The scans in event logs of a table with this full unquoted name."""

    def __init__(self, files: EventLogFiles, table: str, kinds: Mapping[str, ColumnType]) -> None:
        self.files, self._table, self._filters = files, table.lower(), LoggedFilters(kinds)
        self.left_out = files.faults
        self.scanned = self.unknown = 0  # scans of the table so far, and those with an unknown text
        self.first: datetime | None = None  # the start of the first query of any table
        self.namesakes: set[str] = set()  # up to ten tables of the same name in other catalogs

    def scans(self, progress: LogProgress) -> Iterator[tuple[datetime, str]]:
        """Yield the time and the filters of the table's scans by new queries."""
        # The next import reads files again that have changed this late.
        for path, is_read_again in self.files.paths(progress.files_since, progress.now - _SKEW):
            malformed, unknown = 0, self.unknown
            for line in self._lines(path):
                if _STARTED not in line[:200]:
                    continue
                try:
                    at, plan = _query(line[:LONGEST_LINE])
                except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
                    # The last line may be incomplete.
                    malformed += line.endswith(b"\n") or len(line) >= LONGEST_LINE
                    continue
                if at >= progress.counted_since:
                    for filters in self._scans_of(at, plan, progress.since):
                        if progress.is_new(at, is_read_again=is_read_again):
                            self.scanned += 1
                            yield at, filters
            if malformed:
                lines = "1 line is" if malformed == 1 else f"{malformed:,} lines are"
                self.files.faults.append(f"{file_name(path)}: {lines} malformed, too long or too deep")
            if unknown != self.unknown:
                times = f"{self.unknown - unknown:,} times"
                self.files.faults.append(
                    f"{file_name(path)}: unknown text of a scan, {times}. Known are those of Iceberg 1.10 to 1.12, "
                    "with spark.sql.ui.explainMode formatted, the default"
                )

    def reads(self, progress: LogProgress) -> Iterator[LoggedRead]:
        """Yield the reads of the table by new queries."""
        return ((at, 1, self._filters.ranges(text)) for at, text in self.scans(progress))

    @property
    def place(self) -> str:
        """Where no scan of the table is; empty if there are scans that could not be read."""
        names = ", ".join(sorted(self.namesakes))
        advice = f"; {names} is: name it with logged_as" if names else ""
        return "" if self.unknown else f"{self.files.count} logs{advice}"

    def _scans_of(self, at: datetime, plan: str, since: datetime) -> Iterator[str]:
        for table, filters in scans(plan):
            if at >= since:
                self.first = min(self.first or at, at)
            if table.lower() != self._table:
                if table.lower().split(".")[-2:] == self._table.split(".")[-2:]:
                    self.namesakes.update([table] if len(self.namesakes) < 10 else [])
            elif filters is None:
                self.unknown += 1
            else:
                yield filters

    def _lines(self, path: Any) -> Iterator[bytes]:
        """Yield the lines of a log, each cut off after `LONGEST_LINE`."""
        rest = b""
        for chunk in self.files.chunks(path):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines)
            rest = rest[:LONGEST_LINE]
        yield rest


class QueryLog:
    """The queries in a log of any engine: lines of JSON, in a file on any file system that Spark reads.

    Each line has ``query``, and may have ``time`` (ISO 8601 or seconds since 1970, by default the file's last change),
    ``count``, and ``catalog`` and ``schema`` for names without them, by default those of the table. Anything else, such
    as ``user``, is ignored. Only queries with the table's name are planned, so those of its views do not count.
    """

    def __init__(self, table: ClusteredTable, path: str, dialect: str, logged_as: str) -> None:
        _sqlglot(dialect)  # or an error, before anything is read
        self._table, self.place, self._dialect, self.scanned = table, path, dialect, 0
        self.first: datetime | None = None
        self._lines = defaultdict[str, list[int]](list)  # numbers of lines left out, by the reason
        self._parts = name_parts(table.iceberg.identifier)
        logged = logged_as.lower().split(".")
        self._logged = [self._parts[0].lower(), *logged] if len(logged) == 2 else logged
        self._name_in_query = re.compile(rf"(?<!\w){re.escape(self._logged[-1])}(?!\w)", re.IGNORECASE)
        self._ranges = lru_cache(_MOST_PLANNED)(self._ranges_of)  # dashboards repeat their queries

    def reads(self, progress: LogProgress) -> Iterator[LoggedRead]:
        """Yield the reads of the table by new queries."""
        for number, (query, started, changed, times, *place) in enumerate(self._entries(), start=1):
            at = min(_time_of(changed) or progress.now, progress.now) if started is None else _time_of(started)
            count = parse_number(times)
            if query is None or at is None or count is None or not 0 < count < _MOST_COUNTED:
                self._lines["malformed"].append(number)
                continue
            if progress.since <= at <= progress.now:
                self.first = min(self.first or at, at)
            is_of_table = at >= progress.counted_since and self._name_in_query.search(query)
            if not is_of_table or not progress.is_new(at):
                continue
            scanned, alternatives, reason = self._ranges(query, *place)
            if reason:
                self._lines[reason].append(number)
            elif scanned:
                self.scanned += scanned
                yield at, count, alternatives

    @property
    def left_out(self) -> list[str]:
        """A line for each reason to leave queries out."""
        return [
            f"{count_noun(len(numbers), 'line')}, such as {', '.join(map(str, numbers[:5]))}: {reason}"
            for reason, numbers in self._lines.items()
        ]

    def _entries(self) -> Iterator[Sequence[Any]]:
        """Yield of each line its query, its time, that of the file's last change, its count, catalog and schema."""
        fields = "query string, time string, count string, catalog string, schema string"
        modified = "double(_metadata.file_modification_time)"
        with raise_as(EventLogError, f"the query log {self.place} cannot be read"):
            lines = self._table.iceberg.spark.read.text(self.place)
            entries = lines.selectExpr(f"from_json(value, '{fields}') as entry", f"string({modified}) as modified")
            yield from entries.selectExpr(
                *("entry.query", "entry.time", "modified", "coalesce(entry.count, '1')"),
                *("coalesce(entry.catalog, '')", "coalesce(entry.schema, '')"),
            ).toLocalIterator()

    def _ranges_of(self, query: str, catalog: str, schema: str) -> tuple[int, list[ColumnRanges], str]:
        """Return the number of scans and their ranges, or the reason to leave a query out."""

        def spark_name(name: str) -> str:
            place, parts = [catalog or self._logged[0], schema or self._logged[-2]], name.split(".")
            parts = [*place[: max(0, 3 - len(parts))], *parts]
            if list(map(str.lower, parts)) == self._logged:
                return join_parts(self._parts)
            if parts[0].lower() == self._logged[0]:
                parts[0] = self._parts[0]
            return join_parts(parts)

        scanned, alternatives = 0, list[ColumnRanges]()
        try:
            for text in translate_to_spark(query, self._dialect, spark_name):
                of_statement, ranges = self._table.reads.column_ranges.of_query(text)
                scanned, alternatives = scanned + of_statement, alternatives + ranges
        except PredicateError as e:
            return 0, [], _short_reason(str(e))
        return scanned, alternatives, ""


def _time_of(text: str) -> datetime | None:
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(float(text), timezone.utc)
    with suppress(ValueError):  # Python 3.10 reads no more than six digits of a second
        return parse_iso_time(re.sub(r"(\.\d{6})\d+", r"\1", text))
    return None


def _short_reason(error: str) -> str:
    """Return why a query cannot be planned, without its text: Spark's messages may have literals of it."""
    if match := _CONDITION.match(error):
        condition = match[1].lower().replace("_", " ").replace(".", ", ")
        return f"{condition} {match[2] or ''}".strip()
    return next((reason for reason in (_NOT_PARSED, _COMMAND) if error.startswith(reason)), "not planned")


def translate_to_spark(query: str, dialect: str, spark_name: Callable[[str], str | None]) -> list[str]:
    """Translate the queries in a text to Spark's SQL: each statement, or the query in it; commands are left out.

    ``dialect`` is sqlglot's name of the text's dialect. ``spark_name`` takes the unquoted name of a table and returns
    Spark's name of it, or None if that is the same.

    Raises:
        PredicateError: sqlglot cannot parse it, or there are only commands.
        OptionError: sqlglot is not installed, or does not know the dialect.
    """
    sqlglot = _sqlglot(dialect)
    exp = sqlglot.exp

    def rename(node: Any, part: str, name: str | None) -> None:
        if name is not None:
            new = exp.to_table(name, dialect="spark")
            for old_part, new_part in (("catalog", "catalog"), ("db", "db"), (part, "this")):
                node.set(old_part, new.args.get(new_part))

    def translated(parsed: Any) -> str:
        names: dict[str, str | None] = {}
        for table in list(parsed.find_all(exp.Table)):
            if isinstance(table.this, exp.Identifier) and not _is_cte(table, exp):
                name = ".".join(part.name for part in table.parts)
                rename(table, "this", names.setdefault(name.lower(), spark_name(name)))
        for column in parsed.find_all(exp.Column):
            if column.args.get("db"):  # sales.orders.id
                rename(column, "table", names.get(".".join(part.name for part in column.parts[:-1]).lower()))
        return str(parsed.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.IGNORE))

    try:
        statements = [each for each in sqlglot.parse(query, dialect=dialect) if each is not None]
        queries = [query for query in (each.find(exp.Query) for each in statements) if query is not None]
        queries = queries or [each for each in statements if not isinstance(each, exp.Command)]
        if not queries:
            raise PredicateError(_COMMAND)
        return list(map(translated, queries))
    except (sqlglot.errors.SqlglotError, RecursionError) as e:
        raise PredicateError(f"{_NOT_PARSED} as {dialect}") from e


def _is_cte(table: Any, exp: Any) -> bool:
    """Return whether a table is one that a ``with`` around it defines; within a definition, those before it count."""
    inner = table
    while len(table.parts) == 1 and (outer := inner.parent) is not None:
        clause = next((each for each in outer.args.values() if isinstance(each, exp.With)), None)
        visible = [] if clause is None or clause is inner else clause.expressions
        if isinstance(outer, exp.With):
            place = [cte is inner for cte in outer.expressions].index(True)
            visible = outer.expressions[: place + bool(outer.args.get("recursive"))]
        if any(cte.alias.lower() == table.name.lower() for cte in visible):
            return True
        inner = outer
    return False


def _sqlglot(dialect: str) -> Any:
    try:
        import sqlglot

        sqlglot.Dialect.get_or_raise(dialect)
    except ImportError as e:
        raise OptionError(
            "queries are translated to Spark by sqlglot, which is not installed: pip install 'dbt-recluster[dialects]'"
        ) from e
    except ValueError as e:
        raise OptionError(f"dialect: {e}") from e
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings quote the query
    return sqlglot


def scans(plan: str) -> Iterator[tuple[str, str | None]]:
    """Yield the table and the filters of each scan in the text of a physical plan; None for an unknown text."""
    waiting = None  # the table of an operator whose text is still to come
    for line in plan.split("\n"):
        if scan := _scan(line):
            table, filters = scan
            waiting = None
            if filters is not None:
                yield table, filters
            continue
        before, is_node, after = line.partition(_NODE)
        table, is_simple, _ = after.partition("[")
        if is_node and (is_simple or before.startswith("(")):
            if waiting is not None:
                yield waiting, None
            waiting = table.strip()
    if waiting is not None:
        yield waiting, None


def _scan(line: str) -> tuple[str, str | None] | None:
    """Return the table and the filters of a scan, None for a scan of given files; or None for any other line."""
    line = line.strip()
    kind, is_named, rest = line.partition(_KIND)
    if is_named and kind == "IcebergStaged":
        return rest, None
    if is_named and kind.startswith("Iceberg") and line.endswith(")"):
        table, _, rest = rest.partition(", ")
        filters, is_scan, _ = f", {rest}".partition(_LIST)[2].rpartition(_GROUPED)
        before, has_runtime, _ = filters.rpartition(_RUNTIME)
        return (table, before if has_runtime else filters) if is_scan else None
    table, _, rest = line.partition(_BRANCH)
    filters, is_scan, _ = rest.partition(_FILTERS)[2].rpartition(_GROUPED)
    return (table, filters) if is_scan and line.endswith("]") and _NODE not in table else None


def _query(line: bytes) -> tuple[datetime, str]:
    """Return the start of an event's query and its plan; any other event raises."""
    event = json.loads(line.decode("utf-8", errors="replace"))
    plan = event["physicalPlanDescription"]
    if not isinstance(plan, str):
        raise TypeError
    return datetime.fromtimestamp(event["time"] / 1000, timezone.utc), plan


class LoggedFilters:
    """Parses filters of columns with these types from left to right; an unknown filter restricts nothing."""

    def __init__(self, kinds: Mapping[str, ColumnType]) -> None:
        self._alternatives = partial(alternatives_of, kinds=kinds, read=lambda kind, text: kind.read_plan(text))
        # Longest first, since a name may begin with another one.
        self._columns = sorted(kinds, key=len, reverse=True)

    def ranges(self, text: str) -> list[ColumnRanges]:
        """Return the ranges of each alternative of a scan's filters, without empty ones."""
        self._text, self._at = text, 0
        # The operands of the filters and of every open bracket, and the words between them.
        groups: list[list[Any]] = [[]]
        try:
            while self._at < len(text):
                if self._take("("):
                    groups.append([])
                elif self._take(")"):
                    operands = groups.pop()
                    groups[-1].append(_joined(operands, (" AND ", " OR ")))
                elif word := next(filter(self._take, (", ", " AND ", " OR ")), None):
                    groups[-1].append(word)
                else:
                    groups[-1].append(self._predicate())
            (filters,) = groups
            return [ranges for ranges in _joined(filters, (", ",)) if ranges]
        except (ValueError, IndexError):  # not written by Iceberg
            return []

    def _predicate(self) -> list[ColumnRanges]:
        column = next((name for name in self._columns if self._text.startswith(f"{name} ", self._at)), None)
        self._at += len(column or "")
        operator = _COMPARISON.match(self._text, self._at) if column else None
        if operator is None:
            self._skip()
            return [{}]
        self._at = operator.end()
        if operator[1] == "IN":
            values: list[str] = []
            while self._take(", " if values else "("):
                values.append(self._literal())
            if not self._take(")"):
                raise ValueError
            return self._alternatives({"type": "in", "term": column, "values": values})
        value = self._literal()
        kind = _OPERATORS.get(operator[1], "starts-with")
        if kind == "starts-with":
            value = value.removesuffix("%")
        return self._alternatives({"type": kind, "term": column, "value": value})

    def _literal(self) -> str:
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            raise ValueError
        self._at = match.end()
        return next(group for group in match.groups() if group is not None)

    def _skip(self) -> None:
        """Skip a filter without a range, up to the next one or the closing bracket."""
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

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True


def _joined(operands: Sequence[Any], words: Sequence[str]) -> list[ColumnRanges]:
    """Return the alternatives of operands joined by one of these words, or raise a ValueError."""
    values, between = operands[::2], operands[1::2]
    is_complete = len(values) == len(between) + 1 and all(isinstance(value, list) for value in values)
    if not is_complete or not any(all(word == connective for connective in between) for word in words):
        raise ValueError
    return reduce(partial(both_alternatives, "or" if " OR " in between else "and"), values)
