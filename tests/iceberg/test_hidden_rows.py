"""No merge hides a row: random tables of many writers, read by several engines around every bound."""

import math
import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from merges import SMALL_ROW_GROUPS
from nightly import NIGHTLY
from pyiceberg import expressions as px
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import StaticTable
from tables import (
    append_files,
    call,
    create_table,
    delete_by_equality,
    local_path,
    merge_method,
    metadata_file,
    spark_settings,
    with_field_ids,
)

from dbt_recluster.api import recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import collect_arrow, java_items, java_list, java_map
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.columns import quote
from dbt_recluster.key.sql import literal

KINDS = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(38,10)": pa.decimal128(38, 10),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "struct<x: string, `y z`: int>": pa.struct([("x", pa.string()), ("y z", pa.int32())]),
    "array<string>": pa.list_(pa.string()),
    "map<string, binary>": pa.map_(pa.string(), pa.binary()),
    "array<struct<x: binary>>": pa.list_(pa.struct([("x", pa.binary())])),
    "struct<in: struct<d: decimal(20,3), t: timestamp>>": pa.struct(
        [("in", pa.struct([("d", pa.decimal128(20, 3)), ("t", pa.timestamp("us", "UTC"))]))]
    ),
}
PLAIN = list(KINDS)[:13]
PROMOTED = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(18,2)"}
NAMES = ["v", "order id", "é", "a-b", "select", "x.y", "1st", "日本", "_row", "UPPER", "it's", "#", "a\\b"]
WRITERS = ["spark_writer", "arrow", "duckdb", "pyiceberg", "arrow", "spark_writer", "mapped", "imported"]
LENGTHS = [*[0, 1, 5, 15, 16, 17, 40] * 3, 4095, 4096, 4097, 9000, 100_000]
STARTS = ["", "a", "b", "z", "a common prefix ", "é", "日本", "~"]
# Spark would compile each predicate.
WITHOUT_COMPILER = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
FIRST, LAST = datetime(1900, 1, 1), datetime(2100, 1, 1)


@dataclass(frozen=True)
class Column:
    """A column of a random table."""

    name: str
    kind: str

    @property
    def arrow(self) -> pa.DataType:
        return KINDS.get(self.kind) or pa.decimal128(18, 2)

    @property
    def is_plain(self) -> bool:
        return not pa.types.is_nested(self.arrow)


def draw(rng: random.Random, kind: pa.DataType) -> Any:
    """Return a random value."""
    if rng.random() < 0.08:
        return None
    if pa.types.is_struct(kind):
        return {inner.name: draw(rng, inner.type) for inner in kind}
    if pa.types.is_map(kind):
        return [(f"k{n}", draw(rng, kind.item_type)) for n in range(rng.randrange(3))]
    if pa.types.is_list(kind):
        return [draw(rng, kind.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        text = rng.choice(STARTS) + rng.choice("abcxyz") * rng.choice(LENGTHS) + str(rng.randrange(1000))
        return text if pa.types.is_string(kind) else text.encode() + rng.choice([b"", b"\xff", b"\x00", b"\xff" * 20])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return rng.choice([rng.randrange(100), rng.randrange(-most, most), most - 1, -most])
    if pa.types.is_floating(kind):
        return float(np.float32(rng.choice([rng.uniform(-1e3, 1e3), rng.uniform(-1e30, 1e30), math.inf, -math.inf])))
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        number = rng.choice([rng.randrange(-1000, 1000), rng.randrange(-most, most), most, -most])
        return Decimal(f"{number}E-{kind.scale}")
    moment = FIRST + timedelta(microseconds=rng.randrange((LAST - FIRST) // timedelta(microseconds=1)))
    if pa.types.is_date(kind):
        return moment.date()
    return moment.replace(tzinfo=timezone.utc if kind.tz else None)


@dataclass(frozen=True)
class Load:
    writer: str
    seed: int
    rows: int
    change: str  # of the schema before it
    options: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Case:
    """A random table and its merge."""

    columns: tuple[Column, ...]
    version: int
    partition: str
    loads: tuple[Load, ...]
    deletes: str
    key: str
    block_rows: int
    branch: bool
    seed: int


OPTIONS = st.fixed_dictionaries(
    {
        "version": st.sampled_from(["2.6", "1.0", "2.4"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_statistics": st.sampled_from([True, False, ["k"]]),
        "use_dictionary": st.sampled_from([True, False, ["c0"]]),
        "compression": st.sampled_from(["zstd", "snappy", "gzip", "none", "lz4"]),
        "dictionary_pagesize_limit": st.sampled_from([1 << 20, 200]),
        "row_group_size": st.sampled_from([1 << 20, 20, 7]),
        "data_page_size": st.sampled_from([1 << 20, 100]),
        "write_page_index": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
        "encoded": st.booleans(),
        "write_page_checksum": st.booleans(),
        "times": st.sampled_from(["us", "us", "ms", "INT96"]),
        "no_partition": st.booleans(),
        "legacy": st.booleans(),
        "bloom": st.booleans(),
    }
)


@st.composite
def cases(draw_from: st.DrawFn) -> Case:
    names = draw_from(st.lists(st.sampled_from(NAMES), min_size=3, max_size=5, unique_by=str.lower))
    kinds = [draw_from(st.sampled_from(PLAIN)), *(draw_from(st.sampled_from(list(KINDS))) for _ in names[1:])]
    columns = tuple(map(Column, names, kinds))
    version = draw_from(st.sampled_from([2, 1, 3]))
    partition = draw_from(st.sampled_from(["", "p", "bucket(2, k)", "", "p"]))
    writers = WRITERS if not partition else WRITERS[:7] if partition == "p" else ["spark_writer"]
    changes = ["", "rename", "add", "promote", "reorder", "respec", "drop"]
    loads = draw_from(
        st.lists(
            st.builds(
                Load,
                st.sampled_from(writers),
                st.integers(0, 1 << 30),
                st.integers(1, 80),
                st.sampled_from(changes),
                OPTIONS,
            ),
            min_size=2,
            max_size=4,
        )
    )
    deletes = draw_from(st.sampled_from(["", "positions", "positions", "equality"])) if version > 1 else ""
    return Case(
        columns,
        version,
        partition,
        tuple(loads),
        deletes,
        draw_from(st.sampled_from(["plain", "plain", "compound", "transform", "hilbert", "k"])),
        draw_from(st.integers(15, 120)),
        draw_from(st.booleans()),
        draw_from(st.integers(0, 1 << 30)),
    )


class Builder:
    """Makes the table of a case."""

    def __init__(self, spark: Any, schema: str, case: Case, directory: Path) -> None:
        self.spark, self.case, self.directory = spark, case, directory
        self.columns = list(case.columns)
        self.rows = 0
        self.not_vectorized: set[str] = set()  # files that Iceberg's vectorized reader misreads
        self.without_ids: set[str] = set()
        properties = {
            **SMALL_ROW_GROUPS,
            "format-version": case.version,
            "write.delete.mode": "merge-on-read" if case.version > 1 else "copy-on-write",
            "write.spark.fanout.enabled": "true",
        }
        ordinary = {"version": "2.6", "data_page_version": "1.0", "encoded": False}
        options = [load.options for load in case.loads if load.writer in ("arrow", "mapped")]
        if any(of[name] != value for of in options for name, value in ordinary.items()):
            properties["read.parquet.vectorization.enabled"] = "false"
        listed = ", ".join(["k int", "p int", *(f"{quote(c.name)} {c.kind}" for c in self.columns)])
        self.name = create_table(spark, f"{schema}.t", listed, properties, case.partition)
        if any(load.writer == "mapped" for load in case.loads):
            iceberg, java = self.table.iceberg, self.table.java
            mapping = iceberg.mapping.NameMappingParser.toJson(iceberg.mapping.MappingUtil.create(java.schema()))
            java.updateProperties().set("schema.name-mapping.default", mapping).commit()
            spark.sql(f"refresh table {self.name}")

    @property
    def table(self) -> IcebergTable:
        return IcebergTable.load(self.spark, self.name)

    def build(self) -> None:
        for number, load in enumerate(self.case.loads):
            if number:
                self.change(load.change, number)
            rows = self.draw(load, number)
            getattr(self, load.writer)(load, rows)
            self.spark.sql(f"refresh table {self.name}")
        if self.case.deletes == "positions":
            self.spark.sql(f"delete from {self.name} where k % 7 = {self.case.seed % 7}")
            if self.case.seed % 2:
                self.spark.sql(f"delete from {self.name} where k % 11 = 3")
        texts = [column.name for column in self.columns if column.kind == "string"]
        if self.case.deletes == "equality" and texts and not self.case.partition:
            values = self.spark.sql(f"select {quote(texts[0])} from {self.name} where k % 13 = 5").collect()
            delete_by_equality(self.spark, self.name, texts[0], [row[0] for row in values if row[0] is not None])
        if self.case.branch:
            self.spark.sql(f"alter table {self.name} create branch b")

    def change(self, change: str, number: int) -> None:
        place = number % len(self.columns)
        column, alter = self.columns[place], f"alter table {self.name}"
        if change == "rename":
            self.columns[place] = Column(f"renamed {number}", column.kind)
            self.spark.sql(f"{alter} rename column {quote(column.name)} to `renamed {number}`")
        elif change == "add":
            self.columns.append(Column(f"added-{number}", "string"))
            self.spark.sql(f"{alter} add column `added-{number}` string")
        elif change == "promote" and column.kind in PROMOTED:
            self.columns[place] = Column(column.name, PROMOTED[column.kind])
            self.spark.sql(f"{alter} alter column {quote(column.name)} type {PROMOTED[column.kind]}")
        elif change == "reorder":
            self.spark.sql(f"{alter} alter column {quote(column.name)} first")
        elif change == "drop" and len(self.columns) > 2:
            self.spark.sql(f"{alter} drop column {quote(self.columns.pop(place).name)}")
        elif change == "respec" and all(load.writer == "spark_writer" for load in self.case.loads):
            self.spark.sql(f"{alter} add partition field truncate({50 + number}, k)")

    def draw(self, load: Load, number: int) -> pa.Table:
        rng = random.Random(load.seed)
        keys = list(range(self.rows, self.rows + load.rows))
        rng.shuffle(keys)
        self.rows += load.rows
        one = load.writer != "spark_writer"
        arrays = [pa.array(keys, pa.int32()), pa.array([number if one else rng.randrange(3) for _ in keys], pa.int32())]
        pools = [[draw(rng, column.arrow) for _ in range(rng.choice([3, 30, 1000]))] for column in self.columns]
        for column, pool in zip(self.columns, pools, strict=True):
            values = [rng.choice(pool) for _ in keys]
            if column.kind in ("float", "double") and load.seed % 5 == 0:
                values[0] = math.nan
            arrays.append(pa.array(values, column.arrow))
        return pa.table(arrays, ["k", "p", *(column.name for column in self.columns)])

    def spark_frame(self, rows: pa.Table) -> Any:
        path = self.directory / f"{self.rows}.parquet"
        pq.write_table(rows, path, store_schema=False)
        return self.spark.read.parquet(str(path)).coalesce(1)

    def spark_writer(self, load: Load, rows: pa.Table) -> None:
        bloom = [f"write.parquet.bloom-filter-enabled.column.{column.name}" for column in self.columns[:1]]
        if load.options["bloom"] and not set(".'\\") & set(bloom[0].rpartition("column.")[2]):
            self.spark.sql(f"alter table {self.name} set tblproperties ('{bloom[0]}' = 'true')")
        else:
            bloom = []
        self.spark_frame(rows).writeTo(self.name).append()
        for name in bloom:
            self.spark.sql(f"alter table {self.name} unset tblproperties ('{name}')")

    def kwargs(self, load: Load, rows: pa.Table) -> dict[str, Any]:
        given = {**load.options}
        own = ("times", "no_partition", "legacy", "bloom", "encoded")
        times, _, _, bloom, encoded = (given.pop(name) for name in own)
        has_ntz = any(column.kind == "timestamp_ntz" for column in self.columns)
        if times == "INT96" and not has_ntz:
            given["use_deprecated_int96_timestamps"] = True
        elif times == "ms":
            given |= {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
        if given["use_dictionary"] == ["c0"]:
            given["use_dictionary"] = [self.columns[0].name]
        if encoded:
            encodings = {
                "int": "DELTA_BINARY_PACKED",
                "string": "DELTA_BYTE_ARRAY",
                "binary": "DELTA_LENGTH_BYTE_ARRAY",
            }
            encodings |= dict.fromkeys(("float", "double"), "BYTE_STREAM_SPLIT")
            given["column_encoding"] = {c.name: encodings[c.kind] for c in self.columns if c.kind in encodings}
            given["use_dictionary"] = False
        if bloom:
            given["bloom_filter_options"] = {"k": {"ndv": 100, "fpp": 0.05}}
        return given

    def partition(self, rows: pa.Table) -> str:
        return f"p={rows['p'][0]}" if self.case.partition else ""

    def remember(self, load: Load, before: set[str]) -> None:
        if load.options["times"] == "ms" or self.unvectorized:
            self.not_vectorized |= self.files() - before

    def files(self) -> set[str]:
        return {row[0] for row in self.spark.sql(f"select file_path from {self.name}.files").collect()}

    def arrow(self, load: Load, rows: pa.Table) -> None:
        before = self.files()
        lacks_partition = self.case.partition and load.options["no_partition"]
        own = rows.drop_columns(["p"]) if lacks_partition else rows
        append_files(self.spark, self.name, [own], self.partition(rows), **self.kwargs(load, rows))
        if lacks_partition:
            self.without_ids |= self.files() - before
        self.remember(load, before)

    def mapped(self, load: Load, rows: pa.Table) -> None:
        before = self.files()
        path = self.path()
        pq.write_table(rows, path, store_schema=False, **self.kwargs(load, rows))
        append_files(self.spark, self.name, [path], self.partition(rows))
        self.remember(load, before)
        self.without_ids |= self.files() - before

    def path(self) -> Path:
        path = local_path(f"{self.table.java.location()}/data/{self.rows}-of-others.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def duckdb(self, load: Load, rows: pa.Table) -> None:
        schema, path = self.table.java.schema(), self.path()

        def ids(field: pa.Field) -> str:
            kind, number = field.type, field.metadata[b"PARQUET:field_id"].decode()
            if not pa.types.is_nested(kind):
                return f'"{field.name}": {number}'
            inner = (
                [kind.key_field, kind.item_field] if pa.types.is_map(kind) else map(kind.field, range(kind.num_fields))
            )
            return f'"{field.name}": {{{", ".join([f"__duckdb_field_id: {number}", *map(ids, inner)])}}}'

        given = ", ".join(ids(with_field_ids(field, schema)) for field in rows.schema)
        size = max(1, load.options["row_group_size"])
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            connection.register("given", rows)
            connection.execute(
                f"copy (select * from given) to '{path}' (format parquet, field_ids {{{given}}}, "
                f"row_group_size {size}, compression zstd)"
            )
        append_files(self.spark, self.name, [path], self.partition(rows))

    @property
    def unvectorized(self) -> bool:
        return self.table.properties.get("read.parquet.vectorization.enabled") == "false"

    def pyiceberg(self, load: Load, rows: pa.Table) -> None:
        table = StaticTable.from_metadata(metadata_file(self.spark, self.name))
        names = {number: name for name, number in self.table.field_ids.items()}
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            lower, upper = file.lower_bounds, file.upper_bounds
            bounds = {names[number]: (lower[number], upper[number]) for number in lower if number in names}
            append_files(self.spark, self.name, [local_path(file.file_path)], self.partition(rows), bounds)

    def imported(self, load: Load, rows: pa.Table) -> None:
        before = self.files()
        times = {"us": "TIMESTAMP_MICROS", "ms": "TIMESTAMP_MILLIS", "INT96": "INT96"}[load.options["times"]]
        path = self.directory / f"imported-{self.rows}"
        written = {
            "spark.sql.parquet.outputTimestampType": times,
            "spark.sql.parquet.writeLegacyFormat": str(load.options["legacy"]).lower(),
        }
        with spark_settings(self.spark, written):
            self.spark_frame(rows).write.parquet(str(path))
        call(self.spark, "add_files", self.name, f"source_table => '`parquet`.`{path}`'")
        self.remember(load, before)
        self.without_ids |= self.files() - before


@dataclass(frozen=True)
class Predicate:
    """A condition on a column or a field of a struct."""

    column: Column
    operator: str
    values: tuple[pa.Scalar, ...]

    def sql(self, name: str, literals: Sequence[str]) -> str:
        if self.operator == "between":
            text = f"{name} between {literals[0]} and {literals[1]}"
        elif self.operator == "in":
            text = f"{name} in ({', '.join(literals)})"
        elif self.operator.startswith("is"):
            text = f"{name} {self.operator}"
        else:
            text = f"{name} {self.operator} {literals[0]}"
        # Iceberg's filters find NaN in no range, which Spark has above all numbers.
        return f"({text} and not isnan({name}))" if self.is_range_of_floats else text

    def in_spark(self) -> str:
        return self.sql(quote(self.column.name), [literal(value, self.column.kind) for value in self.values])

    def in_duckdb(self, name: str) -> tuple[str, list[Any]]:
        kind = {"timestamp": "timestamptz", "binary": "blob", "timestamp_ntz": "timestamp"}
        sql_type = kind.get(self.column.kind, self.column.kind)
        return self.sql(name, [f"?::{sql_type}"] * len(self.values)), [value.as_py() for value in self.values]

    def in_pyiceberg(self) -> Any:
        own = self._in_pyiceberg()
        return px.And(own, px.NotNaN(self.column.name)) if self.is_range_of_floats else own

    def is_right_in_pyiceberg(self, without_ids: bool) -> bool:
        """Return False for what pyiceberg has wrong: dots in names, infinite floats, columns that files lack."""
        is_infinite = self.column.kind == "float" and any(math.isinf(value.as_py()) for value in self.values)
        has_column = self.column.name != "p" or not without_ids
        return has_column and not is_infinite and "." not in self.column.name and self.operator != "!="

    @property
    def is_range_of_floats(self) -> bool:
        return self.column.kind in ("float", "double") and not self.operator.startswith("is")

    def _in_pyiceberg(self) -> Any:
        name, values = self.column.name, [plain(value) for value in self.values]
        kinds = {
            "=": "EqualTo",
            "<": "LessThan",
            "<=": "LessThanOrEqual",
            ">": "GreaterThan",
            ">=": "GreaterThanOrEqual",
        }
        kinds |= {"!=": "NotEqualTo", "is null": "IsNull", "is not null": "NotNull"}
        if self.operator == "between":
            return px.And(px.GreaterThanOrEqual(name, values[0]), px.LessThanOrEqual(name, values[1]))
        if self.operator == "in":
            return px.In(name, set(values))
        return getattr(px, kinds[self.operator])(name, *values)


def plain(value: pa.Scalar) -> Any:
    """Return a value as pyiceberg's filters take it."""
    given = value.as_py()
    return given.isoformat() if isinstance(given, date) else given


def decode(bound: bytes, kind: pa.DataType) -> pa.Scalar:
    """Return a bound of the binary form of Iceberg; columns may have been promoted since."""
    if pa.types.is_string(kind):
        return pa.scalar(bound.decode())
    if pa.types.is_binary(kind):
        return pa.scalar(bound)
    if pa.types.is_floating(kind):
        return pa.scalar(struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0], kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(int.from_bytes(bound, "big", signed=True)).scaleb(-kind.scale), kind)
    number = int.from_bytes(bound, "little", signed=True)
    if pa.types.is_boolean(kind):
        return pa.scalar(bool(number))
    return pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)[0]


def neighbours(value: pa.Scalar) -> Iterator[pa.Scalar]:
    """Yield a value, and others just below and above it."""
    yield value
    kind, own = value.type, value.as_py()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield pa.scalar(own[:-1], kind)
        yield pa.scalar(own + ("a" if isinstance(own, str) else b"\x00"), kind)
        yield pa.scalar(own[:16], kind)
    elif pa.types.is_floating(kind):
        for toward in (-np.inf, np.inf):
            yield pa.scalar(float(np.nextafter(np.float32(own), np.float32(toward))), kind)
    elif pa.types.is_decimal(kind):
        for step in (-1, 1):
            moved = own + Decimal(step).scaleb(-kind.scale)
            if abs(moved) < Decimal(10) ** (kind.precision - kind.scale):
                yield pa.scalar(moved, kind)
    elif not pa.types.is_boolean(kind):
        whole = value.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()
        for step in (-1, 1):
            if -(2 ** (kind.bit_width - 1)) <= whole + step < 2 ** (kind.bit_width - 1):
                moved = pa.array([whole + step], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)[0]
                yield moved


class Reader:
    """Reads a table of a case by several engines."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.spark, self.name, self.builder = builder.spark, name, builder
        self.columns = [Column("k", "int"), Column("p", "int"), *builder.columns]
        self.source = f"{name} version as of 'b'" if builder.case.branch else name
        self.static = StaticTable.from_metadata(metadata_file(self.spark, name))
        self.snapshot = self.static.metadata.refs["b" if builder.case.branch else "main"].snapshot_id
        table = IcebergTable.load(self.spark, name)
        scan = table.java.newScan().useSnapshot(self.snapshot).includeColumnStats()
        self.tasks = java_items(java_list(self.spark, scan.planFiles()))
        self.paths = {str(task.file().location()) for task in self.tasks}
        deletes = [delete for task in self.tasks for delete in java_items(task.deletes())]
        self.deletes = {str(delete.content()) for delete in deletes}

    def rows(self) -> pa.Table:
        """Return all rows, read without a filter and one by one."""
        names = ", ".join(quote(column.name) for column in self.columns)
        with spark_settings(self.spark, {"spark.sql.iceberg.vectorization.enabled": "false"}):
            return collect_arrow(self.spark.sql(f"select {names} from {self.source}"))

    def bounds(self) -> dict[str, list[pa.Scalar]]:
        """Return all bounds of each column of a primitive type."""
        ids = {column.name: self.static.schema().find_field(column.name).field_id for column in self.columns}
        found: dict[str, list[pa.Scalar]] = {}
        for task in self.tasks:
            for side in (task.file().lowerBounds(), task.file().upperBounds()):
                of_file = java_map(self.spark, side) if side is not None else {}
                for column in self.columns:
                    if column.is_plain and ids[column.name] in of_file:
                        bound = bytes(of_file[ids[column.name]].array())
                        found.setdefault(column.name, []).append(decode(bound, column.arrow))
        return found

    def counts(self, predicates: Sequence[Predicate]) -> dict[str, list[Any]]:
        """Return what each engine counts; None where it cannot read the table or has a predicate wrong itself."""
        found: dict[str, list[Any]] = {"Spark": self.by_spark(predicates, vectorized=False)}
        without_ids = bool(self.paths & self.builder.without_ids)
        if not self.paths & self.builder.not_vectorized:
            found["Spark, vectorized"] = self.by_spark(predicates, vectorized=True)
        if not self.deletes and not without_ids:
            found["DuckDB"] = self.by_duckdb(predicates)
        reads = "EQUALITY_DELETES" not in self.deletes
        found["pyiceberg"] = [
            self.by_pyiceberg(predicate) if reads and predicate.is_right_in_pyiceberg(without_ids) else None
            for predicate in predicates
        ]
        return found

    def by_spark(self, predicates: Sequence[Predicate], vectorized: bool) -> list[int]:
        parts = (
            f"select {number} n from {self.source} where {predicate.in_spark()}"
            for number, predicate in enumerate(predicates)
        )
        vectorization = {"spark.sql.iceberg.vectorization.enabled": str(vectorized).lower()}
        with spark_settings(self.spark, vectorization | WITHOUT_COMPILER):
            counts = Counter(row.n for row in self.spark.sql(" union all ".join(parts)).collect())
        return [counts[number] for number in range(len(predicates))]

    def by_pyiceberg(self, predicate: Predicate) -> int:
        scan = self.static.scan(row_filter=predicate.in_pyiceberg(), selected_fields=("k",), snapshot_id=self.snapshot)
        return len(scan.to_arrow())

    def by_duckdb(self, predicates: Sequence[Predicate]) -> list[int]:
        names = [column.name for column in self.columns]
        fields = pa.schema([(f"c{place}", column.arrow) for place, column in enumerate(self.columns)])
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            connection.register("typed", fields.empty_table())
            types = [row[1] for row in connection.execute("describe typed").fetchall()]
            ids = [self.static.schema().find_field(name).field_id for name in names]
            schema = ", ".join(
                f"{number}: {{name: 'c{place}', type: '{kind}', default_value: null}}"
                for place, (number, kind) in enumerate(zip(ids, types, strict=True))
            )
            paths = [str(local_path(path)) for path in sorted(self.paths)]
            scan = f"read_parquet({paths}, schema = map {{{schema}}}, hive_partitioning = false)"
            counts = []
            for predicate in predicates:
                condition, values = predicate.in_duckdb(f"c{names.index(predicate.column.name)}")
                counts.append(
                    connection.execute(f"select count(*) from {scan} where {condition}", values).fetchall()[0][0]
                )
            return counts


class Truth:
    """Rows in memory."""

    def __init__(self, rows: pa.Table, columns: Sequence[Column]) -> None:
        self.connection, self.names = duckdb.connect(), [column.name for column in columns]
        self.connection.execute("set timezone = 'UTC'")
        self.rows = self.put("truth", rows)

    def put(self, name: str, rows: pa.Table) -> int:
        numbered = rows.rename_columns([f"c{place}" for place in range(rows.num_columns)])
        self.connection.register("given", numbered)
        self.connection.execute(f"create or replace table {name} as select * from given").fetchall()
        return len(rows)

    def count(self, predicate: Predicate) -> int:
        condition, values = predicate.in_duckdb(f"c{self.names.index(predicate.column.name)}")
        return int(self.connection.execute(f"select count(*) from truth where {condition}", values).fetchall()[0][0])

    def check_same(self, rows: pa.Table) -> None:
        assert self.put("other", rows) == self.rows
        for pair in (("truth", "other"), ("other", "truth")):
            query = "select * from (select * from {} except all select * from {}) limit 1"
            assert self.connection.execute(query.format(*pair)).fetchall() == []


def predicates(
    rng: random.Random, reader: Reader, rows: pa.Table, bounds: Sequence[dict[str, list[pa.Scalar]]]
) -> list[Predicate]:
    """Return random predicates at and around bounds and values."""
    result = []
    for column in reader.columns:
        if not column.is_plain:
            continue
        known = [value for of in bounds for value in of.get(column.name, ())]
        known += [value for value in rng.sample(rows[column.name].to_pylist(), min(5, len(rows))) if value is not None]
        values = [value if isinstance(value, pa.Scalar) else pa.scalar(value, column.arrow) for value in known]
        around = [other for value in rng.sample(values, min(6, len(values))) for other in neighbours(value)]
        around = [
            v for v in around if not (column.kind in ("float", "double") and (v.as_py() == 0 or v.as_py() != v.as_py()))
        ]
        result.append(Predicate(column, rng.choice(["is null", "is not null"]), ()))
        for value in rng.sample(around, min(4, len(around))):
            operator = rng.choice(["=", "<", "<=", ">", ">=", "between", "in", "!="])
            count = 2 if operator in ("between", "in") else 1
            chosen = [value, *(rng.choice(around) for _ in range(count - 1))]
            if operator == "between":
                chosen.sort(key=lambda scalar: scalar.as_py())
            result.append(Predicate(column, operator, tuple(chosen)))
    return result


def key_of(rng: random.Random, case: Case, columns: Sequence[Column]) -> list[str]:
    """Return a random key."""
    named = {quote(c.name): c.kind for c in columns if c.is_plain}
    named = {name: kind for name, kind in named.items() if "." not in name}
    if case.key == "k" or not named:
        return ["k"]
    name = rng.choice(list(named))
    if case.key == "plain":
        return [name]
    if case.key == "compound":
        return [name, *rng.sample([n for n in [*named, "k", "p"] if n != name], 1)]
    if case.key == "hilbert" and named[name] not in ("string", "binary"):  # long ones may begin alike
        return [f"hilbert({name}, k)"]
    kind = named[name]
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return [f"{rng.choice(['days', 'months', 'years'])}({name})", "k"]
    if kind in ("string", "binary", "int", "bigint"):
        return [f"truncate({rng.choice([1, 3, 17])}, {name})", "k"]
    return [name]


def check(spark: Any, schema: str, case: Case, directory: Path) -> None:
    """Merge the table of a case by both writers and compare what readers find."""
    builder = Builder(spark, schema, case, directory)
    builder.build()
    rng = random.Random(case.seed)
    key, branch = key_of(rng, case, builder.columns), "b" if case.branch else None
    if branch:  # whose key is that of main
        TableChange(parse_cluster_key(key).check(builder.table.columns())).commit(builder.table)
    names = {"native": builder.name, "spark": f"{schema}.again"}
    for name in (names["spark"], f"{schema}.before"):
        call(spark, "register_table", name, f"metadata_file => '{metadata_file(spark, builder.name)}'")
    reader = Reader(builder, f"{schema}.before")
    rows = reader.rows()
    truth, before = Truth(rows, reader.columns), reader.bounds()
    for method, name in names.items():
        with merge_method(method):
            recluster(spark, name, key, depth=1, block_rows=case.block_rows, final=True, branch=branch)
        after = Reader(builder, name)
        truth.check_same(after.rows())
        asked = predicates(rng, after, rows, [before, after.bounds()])
        expected, found = [truth.count(predicate) for predicate in asked], after.counts(asked)
        wrong = {
            (engine, asked[place]): (counts[place], expected[place])
            for engine, counts in found.items()
            for place in range(len(asked))
            if counts[place] not in (None, expected[place])
        }
        # Files of milliseconds have bounds that hide their rows, and no merge may have read them: as before, or better.
        if wrong:
            first = reader.counts(asked)
            for (engine, predicate), (count, wanted) in wrong.items():
                known = first.get(engine, expected)[asked.index(predicate)]
                least, most = sorted((wanted if known is None else known, wanted))
                assert least <= count <= most, f"{method} {engine} {predicate}: {known} to {wanted}, not {count}"


@settings(
    max_examples=30 if NIGHTLY else 5,
    deadline=None,
    derandomize=not NIGHTLY,  # the night draws new cases
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(case=cases())
def test_readers_find_the_rows_that_they_found(spark: Any, tmp_path_factory: Any, case: Case) -> None:
    note(repr(case))
    schema = f"t_{case.seed}"
    spark.sql(f"create schema {schema}")
    try:
        check(spark, schema, case, tmp_path_factory.mktemp("files"))
    finally:
        spark.sql(f"drop schema {schema} cascade")
