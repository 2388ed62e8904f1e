"""Tasks that merge blocks in Spark's Python workers: DuckDB reads and sorts, Arrow writes.

The module travels to executors by value, so it imports nothing but the standard library and, within a task, DuckDB,
pyarrow, fsspec for remote stores and pyspark for the number of the task. For a piece that it cannot write exactly as
Iceberg's writer would, a task deletes its files and returns the reason, and Spark's writer takes over.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import os
import pickle
import select
import shutil
import stat
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

# Bytes that one request reads from the end of a remote file, and the most of neighbouring columns of a row group.
_FOOTER_BYTES = 64 << 10
_RANGE_BYTES = 8 << 20
# Bytes of the longest value of which Arrow writes a statistic; a chunk with a longer one gets neither end.
_LONGEST_STATISTIC = 4096
# DuckDB's types of columns in files, by those of the table that hold the same values.
_WIDENED = {"INTEGER": ("TINYINT", "SMALLINT"), "BIGINT": ("TINYINT", "SMALLINT", "INTEGER"), "DOUBLE": ("FLOAT",)}


@dataclass(frozen=True)
class Statement:
    """A query of neighbouring blocks."""

    where: str  # of the rows of all its blocks
    block: str | None  # the number of a row's block among them, or None if it is one block
    directories: tuple[str, ...]  # where the file of each block is written


@dataclass(frozen=True)
class Piece:
    """Neighbouring blocks of one block set, written by one task."""

    group: int  # position of the block set
    first: int  # number of the first block
    files: tuple[str, ...]  # locations of the files of the set
    sizes: tuple[int, ...]  # in bytes
    variables: Mapping[str, Any]  # Arrow arrays, each a list that statements refer to by ``getvariable``
    statements: tuple[Statement, ...]
    row_group_rows: int
    batch_rows: int  # that DuckDB hands over at a time
    constants: Sequence[str]  # columns, such as c0, whose value is the first of the variable of that name
    deleted: Any = None  # an Arrow table of deleted rows: place of the file, and number of the row in it

    @property
    def directories(self) -> list[str]:
        """The directories of all blocks, in order."""
        return [directory for statement in self.statements for directory in statement.directories]


@dataclass(frozen=True)
class NativeJob:
    """The settings that all tasks of a job share."""

    id: str  # a part of the names of all its files
    schema: Any  # of the files, in Arrow, with field ids
    columns: tuple[str, ...]  # SQL of each column, where the table's are c0, c1...
    steps: tuple[tuple[str, ...], ...]  # columns as SQL, each step from those before it
    order: tuple[str, ...]  # the columns that sort rows
    macros: tuple[str, ...]
    variables: Mapping[str, Any]
    parquet: Mapping[str, Any]  # options of Arrow's writer
    memory_bytes: int  # of DuckDB in one task; it spills beyond
    bound_length: int | None  # the most characters, or bytes, of a bound that the driver needs; None for all
    # Arguments of pyarrow's S3 file system, secrets among them; None for local files.
    store: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class NativeFile:
    """A new data file."""

    location: str
    size: int  # in bytes
    footer: bytes  # as a Parquet file without rows
    split_offsets: list[int]
    bounds: dict[int, tuple[Any, Any]]  # of text and binary columns whose statistics are incomplete, by field id


# The files of a piece, or why there are none.
PieceResult = tuple[int, int, "list[NativeFile] | str"]


def file_location(directory: str, job_id: str, task: int, attempt: int, number: int) -> str:
    """Return the location of the file ``number`` of a task's attempt."""
    return f"{directory}/{task:05d}-{attempt}-{job_id}-{number:05d}.parquet"


def write_pieces(numbered: tuple[int, Sequence[tuple[int, int]], bytes]) -> list[PieceResult]:
    """Write the blocks of one task. Return a reason instead of failing where Spark's writer may succeed.

    ``numbered`` has the number of the task, the group and the first block of each piece, and pickled, the job and the
    pieces.
    """
    task, places, pickled = numbered
    try:
        import duckdb
        import pyarrow
        import pyarrow.parquet

        job, pieces = pickle.loads(pickled)
        if job.store is not None:
            import fsspec  # noqa: F401
    except ImportError as e:
        return [(group, first, f"packages: {e.name} is missing") for group, first in places]
    for package, least in ((duckdb, 2), (pyarrow, 23)):
        if int(package.__version__.partition(".")[0]) < least:
            reason = f"packages: {package.__name__} {package.__version__} is older than {least}"
            return [(group, first, reason) for group, first in places]
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    attempt, threads = int(context.taskAttemptId()), int(context.cpus())
    sizes = {path_of(file): size for piece in pieces for file, size in zip(piece.files, piece.sizes, strict=True)}
    with _connection(job, threads, sizes) as connection:
        worker = _Worker(job, connection, task, attempt)
        return [(piece.group, piece.first, worker.write(piece)) for piece in pieces]


@contextmanager
def _connection(job: NativeJob, threads: int, sizes: Mapping[str, int]) -> Iterator[Any]:
    import duckdb

    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    spill = tempfile.mkdtemp(prefix="recluster-", dir=local if local and Path(local).is_dir() else None)
    settings: dict[str, Any] = {
        "threads": threads,
        "memory_limit": f"{job.memory_bytes // 1024}KiB",
        "temp_directory": spill,
        "autoinstall_known_extensions": False,
        "parquet_metadata_cache": True,
        "parquet_can_have_nan": True,  # else row groups are skipped that only NaN keeps
        "preserve_insertion_order": False,
    }
    try:
        with duckdb.connect(config=settings) as connection:
            connection.execute("set timezone = 'UTC'")
            if job.store is not None:
                connection.register_filesystem(_for_duckdb(_file_system(job), sizes, job.memory_bytes // 4))
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


class _Worker:
    """Writes pieces through one connection."""

    def __init__(self, job: NativeJob, connection: Any, task: int, attempt: int) -> None:
        self._job, self._connection, self._task, self._attempt = job, connection, task, attempt
        self._files = _file_system(job)
        self._jvm = _Jvm()
        self._number = 0
        # No cached_property, whose lock Python 3.11 cannot pickle with the class.
        self._layout: tuple[dict[int, list[tuple[Any, ...]]], str] | None = None

    def write(self, piece: Piece) -> list[NativeFile] | str:
        """Write a piece; if refused, delete its files and return the reason."""
        number, files = self._number, list[NativeFile]()
        self._number += len(piece.directories)
        try:
            scan = self._scan(piece)
            for name, values in piece.variables.items():
                self._set(name, values)
            for statement in piece.statements:
                files += self._run(piece, statement, scan, number)
                number += len(statement.directories)
            return files
        except BaseException as e:
            for offset, directory in enumerate(piece.directories, self._number - len(piece.directories)):
                with suppress(Exception):
                    self._files.delete_file(path_of(self._location(directory, offset)))
            if not isinstance(e, Exception) or self._jvm.is_gone():
                raise
            kind = type(e).__name__
            word = "memory" if kind == "OutOfMemoryException" else f"error {kind}"
            return str(e) if isinstance(e, _Refused) else f"{word}: {e}".partition("\n")[0]

    def _location(self, directory: str, number: int) -> str:
        return file_location(directory, self._job.id, self._task, self._attempt, number + 1)

    def _set(self, name: str, values: Any) -> None:
        import pyarrow as pa

        self._connection.register("given", pa.table({"value": values, "place": range(len(values))}))
        self._connection.execute(f"set variable {name} = (select list(value order by place) from given)")
        self._connection.unregister("given")

    def _prepare(self) -> tuple[dict[int, list[tuple[Any, ...]]], str]:
        """Return how DuckDB reads a file with the schema of the new ones: nodes of its columns, and what it is told."""
        if self._layout is not None:
            return self._layout
        import pyarrow.parquet as pq

        for macro in self._job.macros:
            self._connection.execute(f"create macro {macro}")
        for name, values in self._job.variables.items():
            self._set(name, values)
        with tempfile.TemporaryDirectory() as directory:
            sample = str(Path(directory, "sample.parquet"))
            pq.write_table(self._job.schema.empty_table(), sample, store_schema=False, store_decimal_as_integer=True)
            described = self._connection.execute("describe select * from read_parquet($file)", {"file": sample})
            types = [row[1] for row in described.fetchall()]
            tree = self._trees([sample])[sample]
        fields = enumerate(zip([field.metadata[b"PARQUET:field_id"] for field in self._job.schema], types, strict=True))
        entries = (
            f"{int(number)}: {{name: 'c{place}', type: {_text(kind)}, default_value: null}}"
            for place, (number, kind) in fields
        )
        self._layout = tree, f"map {{{', '.join(entries)}}}"
        return self._layout

    def _trees(self, files: Sequence[str]) -> dict[str, dict[int, list[tuple[Any, ...]]]]:
        """Return the nodes of each top-level column of files, by its field id."""
        query = (
            "select file_name, name, coalesce(num_children, 0), field_id, if(type = 'INT96', type, duckdb_type) "
            "from parquet_schema($files) order by file_name, column_id"
        )
        trees: dict[str, dict[int, list[tuple[Any, ...]]]] = {}
        left = 0  # nodes of the current column
        for file, name, children, field_id, kind in self._connection.execute(query, {"files": list(files)}).fetchall():
            if file not in trees:  # the root
                trees[file] = {}
                continue
            if not left:
                if field_id is None or field_id in trees[file]:
                    raise _Refused("evolved: a file has columns without field ids")
                top, left = field_id, 1
                trees[file][top] = []
            trees[file][top].append((name, children, field_id, kind))
            left += children - 1
        return trees

    def _scan(self, piece: Piece) -> str:
        """Return a query of the rows of a piece's files."""
        wanted, schema = self._prepare()
        prefix = "" if self._job.store is None else "s3://"
        paths = [prefix + path_of(file) for file in piece.files]
        for tree in self._trees(paths).values():
            for field_id, nodes in wanted.items():
                file_nodes = tree.get(field_id, nodes)
                if file_nodes != nodes and (len(nodes) > 1 or len(file_nodes) > 1):
                    raise _Refused("evolved: a nested column has changed")
                if not _is_read_alike(file_nodes[0][3], nodes[0][3]):
                    raise _Refused(f"types: {file_nodes[0][3]} in a file")
        self._set("files", paths)
        scan = (
            "select *, file_index::bigint as file_index from read_parquet(getvariable('files'), "
            f"schema = {schema}, hive_partitioning = false, file_row_number = true)"
        )
        if piece.constants:
            replaced = ", ".join(f"getvariable('{column}')[1] as {column}" for column in piece.constants)
            scan = f"select * replace ({replaced}) from ({scan})"
        if piece.deleted is not None:
            self._connection.register("deleted", piece.deleted)
            scan = f"select * from ({scan}) anti join deleted on file_index = file and file_row_number = row"
        return scan

    def _run(self, piece: Piece, statement: Statement, scan: str, number: int) -> list[NativeFile]:
        job = self._job
        block = [] if statement.block is None else ["block"]
        query = scan
        for step in job.steps:
            query = f"select *, {', '.join(step)} from ({query})"
        columns = [*job.columns, *(f"{statement.block} as {name}" for name in block)]
        order = [f"{name} nulls first" for name in [*block, *job.order]]
        query = f"select {', '.join(columns)} from ({query}) where {statement.where} order by {', '.join(order)}"
        reader = self._connection.sql(query).to_arrow_reader(piece.batch_rows)
        files: list[NativeFile] = []
        parts = (part for batch in reader for part in _parts(batch, block))
        for place, rows in itertools.groupby(parts, operator.itemgetter(0)):
            self._jvm.check()
            location = self._location(statement.directories[place], number + place)
            writer = _FileWriter(job, self._files, location, piece.row_group_rows)
            try:
                for _, part in rows:
                    writer.add(part)
                files.append(writer.close())
            except BaseException:
                writer.abandon()
                raise
        return files


def _parts(batch: Any, block: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each block in a batch, which is sorted by the number of the block, its last column if any."""
    if not block:
        yield 0, batch
        return
    import pyarrow.compute as pc

    runs, start = pc.run_end_encode(batch.column(batch.num_columns - 1)), 0
    for end, place in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield place, batch.slice(start, end - start)
        start = end


class _FileWriter:
    """Writes one data file; its row groups are the batches up to a number of rows.

    Java's writer chooses the columns with dictionaries for each row group, Arrow's for the whole file, so the first row
    group decides. Buffering row groups to decide by most of them made merges 6 % slower.
    """

    def __init__(self, job: NativeJob, files: Any, location: str, row_group_rows: int) -> None:
        self._job, self._schema, self._location, self._rows_in_group = job, job.schema, location, row_group_rows
        self._most_bytes = max(job.memory_bytes // 2, 64 << 20)
        self._footers: list[Any] = []
        self._ids: dict[str, int] = {}  # of the columns with bounds, by their paths
        # The least and the greatest value of such a column in a row group, where Arrow writes no statistic of them.
        self._long: dict[tuple[int, str], Any] = {}
        self._row_groups = 0
        path = path_of(location)
        if job.store is None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self._sink = files.open_output_stream(path)
        self._writer: Any = None
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        import pyarrow as pa

        arrays = [batch.column(place).cast(field.type) for place, field in enumerate(self._schema)]
        table = pa.Table.from_batches([pa.RecordBatch.from_arrays(arrays, schema=self._schema)])
        while self._rows + len(table) >= self._rows_in_group:
            room = self._rows_in_group - self._rows
            self._batches.append(table.slice(0, room))
            table = table.slice(room)
            self._flush()
        if len(table):
            self._batches.append(table)
            self._rows += len(table)
            self._bytes += table.nbytes
            if self._bytes > self._most_bytes:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._batches:
            return
        table = pa.concat_tables(self._batches)
        for path, field_id, column in _bounded(self._schema, table.columns):
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                # Spark's filters find NaN above all numbers, but Arrow's statistics of row groups leave it out.
                raise _Refused("nan")
            self._ids[path] = field_id
            is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
            if is_text and (pc.max(pc.binary_length(column)).as_py() or 0) > _LONGEST_STATISTIC:
                self._long[self._row_groups, path] = pc.min_max(column)
        if self._writer is None:
            self._open(_with_dictionary(table, self._job.parquet))
        self._writer.write_table(table, row_group_size=len(table))
        self._row_groups += 1
        self._batches, self._rows, self._bytes = [], 0, 0

    def _open(self, dictionaries: Iterable[str] = ()) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            use_dictionary=list(dictionaries) or False,
            write_page_index=True,
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=self._footers,
            **self._job.parquet,
        )

    def close(self) -> NativeFile:
        """Write the rest and the footer; refuse a file whose bounds its statistics would make too narrow."""
        self._flush()
        if self._writer is None:  # no rows
            self._open()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        footer, sink = self._footers[0], BytesIO()
        footer.write_metadata_file(sink)
        offsets = []
        for number in range(footer.num_row_groups):
            column = footer.row_group(number).column(0)
            offsets.append(column.dictionary_page_offset or column.data_page_offset)
        return NativeFile(self._location, size, sink.getvalue(), offsets, self._bounds(footer))

    def _bounds(self, footer: Any) -> dict[int, tuple[Any, Any]]:
        """Return the bounds of columns of which a row group has no statistics, as long as the driver needs them.

        Iceberg takes them from the other row groups alone, so readers would miss rows.
        """
        ends: dict[str, list[str | bytes]] = {path: [] for _, path in self._long}
        for number, place in itertools.product(range(footer.num_row_groups), range(footer.num_columns)):
            chunk = footer.row_group(number).column(place)
            path, statistics = chunk.path_in_schema, chunk.statistics
            long = self._long.get((number, path))
            if long is None and (statistics is None or not statistics.has_min_max):
                if path in self._ids and (statistics is None or statistics.num_values):
                    raise _Refused(f"bounds: no statistics of {path}")
            elif path in ends:
                pair = (statistics.min, statistics.max) if long is None else (long["min"].as_py(), long["max"].as_py())
                ends[path] += [value[: self._job.bound_length] for value in pair]
        return {self._ids[path]: (min(values), max(values)) for path, values in ends.items()}

    def abandon(self) -> None:
        """Close the file after an error; the worker deletes it."""
        for stream in (self._writer, self._sink):
            with suppress(Exception):
                stream.close()


def _with_dictionary(row_group: Any, parquet: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the columns that Java's writer would give a dictionary, under the options of Arrow's writer.

    A dictionary pays if, in the first page, it and the indices into it take fewer bytes than the values. A column of
    NULLs has one: values that follow may repeat, and Arrow gives up a dictionary that grows too large.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def size(values: Any) -> int:
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            return 4 * len(values) + (pc.sum(pc.binary_length(values)).as_py() or 0)
        is_int = values.type.bit_width == 32 or (pa.types.is_decimal(values.type) and values.type.precision < 10)
        return (4 if is_int else 8) * len(values)

    for path, column in _leaves(row_group.slice(0, parquet["max_rows_per_page"]), parquet["data_page_size"]):
        # Java gives booleans and fixed numbers of bytes, such as decimals beyond 18 digits, no dictionary.
        if pa.types.is_boolean(column.type) or (pa.types.is_decimal(column.type) and column.type.precision > 18):
            continue
        values = column.drop_null()
        dictionary = values.unique()
        # Packed by eights, with a byte for each 63 of these and one for all.
        eights = -(-len(values) // 8)
        indices = 1 + eights * max(0, len(dictionary) - 1).bit_length() + -(-eights // 63)
        is_small = size(dictionary) <= parquet["dictionary_pagesize_limit"]
        if not len(values) or (is_small and size(dictionary) + indices < size(values)):
            yield path


def _leaves(rows: Any, most_bytes: int) -> Iterator[tuple[str, Any]]:
    """Yield the leaf columns by their paths in Parquet; of wide ones, about the first ``most_bytes``."""
    for column, name in zip(rows.columns, rows.column_names, strict=True):
        count = max(1, len(column) * most_bytes // max(1, column.nbytes))
        yield from _leaves_of(name, column.slice(0, count).combine_chunks())


def _leaves_of(path: str, values: Any) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    if pa.types.is_map(values.type):
        first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        yield from _leaves_of(f"{path}.key_value.key", values.keys[first:end])
        yield from _leaves_of(f"{path}.key_value.value", values.items[first:end])
    elif pa.types.is_list(values.type):
        yield from _leaves_of(f"{path}.list.element", values.flatten())
    elif pa.types.is_struct(values.type):
        for child, part in zip(values.type, values.flatten(), strict=True):
            yield from _leaves_of(f"{path}.{child.name}", part)
    else:
        yield path, values


def _bounded(fields: Iterable[Any], columns: Iterable[Any], above: str = "") -> Iterator[tuple[str, int, Any]]:
    """Yield the path, field id and values of each leaf column that has bounds: it is in no list and no map."""
    import pyarrow as pa

    for leaf, column in zip(fields, columns, strict=True):
        if pa.types.is_struct(leaf.type):
            yield from _bounded(leaf.type, column.flatten(), f"{above}{leaf.name}.")
        elif not pa.types.is_nested(leaf.type):
            yield f"{above}{leaf.name}", int(leaf.metadata[b"PARQUET:field_id"]), column


def _is_read_alike(kind: str, wanted: str) -> bool:
    """Whether DuckDB reads a type of a file as another as Iceberg does; as text, it escapes bytes beyond ASCII."""
    if kind.startswith("DECIMAL") and wanted.startswith("DECIMAL"):
        return kind.rpartition(",")[2] == wanted.rpartition(",")[2]
    return kind == wanted or kind in _WIDENED.get(wanted, ())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _file_system(job: NativeJob) -> Any:
    import pyarrow.fs

    return pyarrow.fs.LocalFileSystem() if job.store is None else pyarrow.fs.S3FileSystem(**job.store)


class _RangeReader:
    """Reads remote files in ranges that serve several reads of DuckDB, given the bytes of each file by its path."""

    def __init__(self, files: Any, sizes: Mapping[str, int], memory_bytes: int) -> None:
        self._sizes = sizes
        self._open = functools.cache(files.open_input_file)
        self._end, self._ranges = functools.cache(self._read_end), functools.cache(self._find_ranges)
        # A request takes as long as reading megabytes, and the next block may begin in the same row group.
        most = max(2, memory_bytes // _RANGE_BYTES)
        self._range = functools.lru_cache(most)(lambda path, first, last: self._open(path).read_at(last - first, first))
        # DuckDB reads columns at the same time, and all but the first would miss the cache.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def read(self, path: str, place: int, count: int) -> Any:
        with self._locks[path]:
            end = self._end(path)
            start = self._sizes[path] - len(end)
            if place >= start:
                return end[place - start : place - start + count]
            parts, ranges = [], self._ranges(path)
            for first, last in ranges[bisect.bisect_right(ranges, (place, self._sizes[path])) - 1 :]:
                if not count or not first <= place < last <= first + _RANGE_BYTES:
                    break
                parts.append(self._range(path, first, last)[place - first : place - first + count])
                place, count = place + len(parts[-1]), count - len(parts[-1])
        return b"".join([*parts, self._open(path).read_at(count, place)] if count else parts)

    def _read_end(self, path: str) -> Any:
        """Return the end of a file, with the whole footer."""
        size = self._sizes[path]
        least = min(size, _FOOTER_BYTES)
        data = self._open(path).read_at(least, size - least)
        length = min(size, 8 + int.from_bytes(data[-8:-4], "little"))
        return data if length <= least else self._open(path).read_at(length, size - length)

    def _find_ranges(self, path: str) -> list[tuple[int, int]]:
        """Return the starts and ends of what one request reads: neighbouring columns of a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        footer = pq.read_metadata(pa.BufferReader(self._end(path)))
        ranges = [(0, 0)]
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            columns = [group.column(place) for place in range(group.num_columns)]
            starts = [of.dictionary_page_offset or of.data_page_offset for of in columns]
            first = self._sizes[path]
            for start, of in sorted(zip(starts, columns, strict=True), key=operator.itemgetter(0)):
                stop = start + of.total_compressed_size
                if first < start and stop - first <= _RANGE_BYTES:
                    ranges[-1] = (first, stop)
                else:
                    ranges.append((first := start, stop))
        return sorted(ranges)


def _for_duckdb(files: Any, sizes: Mapping[str, int], memory_bytes: int) -> Any:
    """Wrap a pyarrow file system as one of fsspec, which DuckDB can read."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    reader = _RangeReader(files, sizes, memory_bytes)

    class Files(ArrowFSWrapper):  # type: ignore[misc]
        cachable = False

        def info(self, path: str, **_: Any) -> Any:
            return {"name": path, "size": sizes[self._strip_protocol(path)], "type": "file"}

        def glob(self, path: str, **_: Any) -> list[str]:
            return [path]

        def exists(self, path: str, **_: Any) -> bool:
            return self._strip_protocol(path) in sizes

        def modified(self, _path: str) -> Any:
            return datetime.fromtimestamp(0, timezone.utc)

        def _open(self, path: str, *_: Any, **__: Any) -> Any:
            path = self._strip_protocol(path)
            return _RemoteFile(functools.partial(reader.read, path), sizes[path])

    return Files(files)


class _RemoteFile:
    """An open file with a position for each of DuckDB's threads, which share it and seek before they read."""

    def __init__(self, read: Callable[[int, int], Any], size: int) -> None:
        self._read, self._size = read, size
        self._places: dict[int, int] = {}

    def seek(self, place: int, whence: int = 0) -> int:
        place += (0, self.tell(), self._size)[whence]
        self._places[threading.get_ident()] = place
        return place

    def tell(self) -> int:
        return self._places.get(threading.get_ident(), 0)

    def read(self, count: int = -1) -> Any:
        place = self.tell()
        count = self._size - place if count < 0 else min(count, self._size - place)
        self.seek(place + count)
        return self._read(place, count) if count else b""

    def close(self) -> None:
        """Do nothing: the next block of the task reads the file again."""


def path_of(location: str) -> str:
    """Return the path of a location in its file system."""
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return location.partition("://")[2] or location


class _Refused(Exception):
    """The native writer cannot write this piece; the text begins with the reason in a word."""


class _Jvm:
    """The JVM of the executor, by this worker's connection to it.

    Spark does not kill the worker of a cancelled task that its JVM no longer waits for, so a worker has to notice.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
            with suppress(OSError):  # the listing's own descriptor is closed by now
                if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                    self._poll.register(int(number), getattr(select, "POLLRDHUP", 0))

    def is_gone(self) -> bool:
        """Whether the JVM has closed the connection."""
        return bool(self._poll.poll(0))

    def check(self) -> None:
        """End the task if the JVM has closed the connection."""
        if self.is_gone():
            raise _Refused("cancelled")
