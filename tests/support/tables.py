"""Real tables for tests, and what is in them."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from sessions import checksum as checksum

from dbt_recluster.api import ReclusterResult, clustering_history, recluster
from dbt_recluster.clustering.process_cache import CACHE
from dbt_recluster.clustering.result import Progress
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.recorded_levels import RecordedLevels, levels_and_runs
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.session.jvm import java_array, java_items, jvm
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.iceberg.table_properties import FAILURE

MERGE_METHODS = ("native", "spark")


def add_catalog(spark: Any, name: str, **settings: object) -> None:
    """Give Spark a catalog of Iceberg; ``_`` stands for a hyphen in the names of settings."""
    prefix = f"spark.sql.catalog.{name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for setting, value in settings.items():
        spark.conf.set(f"{prefix}.{setting.replace('_', '-')}", str(value))


@contextmanager
def spark_settings(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of the session for a while."""
    usual = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, before in usual.items():
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)


# The ends of what types hold, as SQL; of text and binary, what is awkward to write.
EXTREMES = {
    "boolean": "true, false, null",
    "int": "-2147483648, -2147483600, 2147483647",
    "bigint": "-9223372036854775808L, -9223372036854775800L, 9223372036854775807L",
    "float": "float('-Infinity'), float('Infinity'), float('1.4E-45'), float('3.4E38'), float('-3.4E38')",
    "double": "double('-Infinity'), double('Infinity'), double('4.9E-324'), double('1.7E308'), double('-1.7E308')",
    "decimal(20,3)": "-99999999999999999.999, 99999999999999999.999, 0.001",
    "decimal(38,10)": f"-{'9' * 28}.{'9' * 10}, {'9' * 28}.{'9' * 10}, 1E-10BD",
    "string": r"""'', '\0', '\\', '\'"`${x}', '\n', repeat('x', 3000), """
    "string(X'f48fbfbf'), string(X'eda080'), string(X'ff80')",
    "binary": "X'', X'00', X'ff', unhex(repeat('ff', 40))",
    "date": "date_from_unix_date(-2147483648), date_from_unix_date(2147483647), date'0000-01-01', date'+10000-01-01'",
    "timestamp": "timestamp_micros(-9223372036854775808L), timestamp_micros(9223372036854775807L), "
    "timestamp_micros(-62167219200000001L), timestamp_micros(253402300800000000L), timestamp_micros(-1L)",
    "timestamp_ntz": "timestamp_ntz'-290308-12-21 19:59:05.224192', timestamp_ntz'+294247-01-10 04:00:54.775807', "
    "timestamp_ntz'-0001-12-31 23:59:59', timestamp_ntz'+10000-01-01', timestamp_ntz'1969-12-31 23:59:59.999999'",
    "struct<x:int,a b:string>": "named_struct('x', -2147483648, 'a b', ''), named_struct('x', 2147483647, 'a b', '')",
}


def insert_extremes(spark: Any, name: str, ids: range, null: str = "") -> None:
    """Append a file whose rows have each of these values in turn, in every column but ``id`` and one of NULLs."""
    kinds = {field.name: field.dataType.simpleString() for field in spark.table(name).schema.fields}
    extremes = ("null" if column == null else EXTREMES[kind] for column, kind in kinds.items() if column != "id")
    arrays = (f"array({values})" for values in extremes)
    values = ", ".join(f"get({array}, cast(id % size({array}) as int))" for array in arrays)
    source = f"range({ids.start}, {ids.stop}, 1, 1)"
    spark.sql(f"insert into {name} select id, {values} from {source}")


@contextmanager
def merge_method(method: str | None) -> Iterator[None]:
    """Merge by one of :data:`MERGE_METHODS`, whatever it costs, where it can be; None leaves the choice."""
    if method is None:
        yield
        return
    refusal = NativeWriter.refusal if method == "native" else lambda *_: "off"
    with patch.object(NativeWriter, "refusal", refusal):
        yield


def forget_checkpoints() -> None:
    """Forget the checkpoints that this process remembers, as if it had just begun."""
    CACHE.clear()


def create_table(
    spark: Any, name: str, columns: str, properties: dict[str, Any] | None = None, partitioned: str | None = None
) -> str:
    """Create a table whose files are written as its loads come; return its name."""
    given = {"write.distribution-mode": "none", **(properties or {})}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    clause = f"partitioned by ({partitioned})" if partitioned else ""
    spark.sql(f"create or replace table {name} ({columns}) using iceberg {clause} tblproperties ({listed})")
    return name


def call(spark: Any, procedure: str, table: str, *arguments: str) -> None:
    """Call a procedure of Iceberg's on a table of the current catalog."""
    given = ", ".join([f"table => '{table}'", *arguments])
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.{procedure}({given})")


def expire(spark: Any, table: str, keep: int = 1) -> None:
    """Expire all snapshots but the last, as an engine does that knows nothing of this package."""
    call(spark, "expire_snapshots", table, "older_than => timestamp '2999-01-01'", f"retain_last => {keep}")


def compact(spark: Any, table: str) -> None:
    """Rewrite all files as others do."""
    call(spark, "rewrite_data_files", table, "options => map('rewrite-all', 'true')")


def append(spark: Any, table: str, start: int, rows: int, *, files: int = 1, seed: int = 0, keys: int = 1000) -> None:
    """Append rows with random keys: ``id`` unique, ``k`` between 0 and ``keys``, ``v`` a word."""
    spark.sql(
        f"insert into {table} select /*+ repartition({files}) */ id, cast(rand({seed + start}) * {keys} as int) k, "
        f"concat('row ', id) v from range({start}, {start + rows})"
    )


def make_table(
    spark: Any,
    schema: str,
    *,
    files: int = 6,
    rows: int = 1000,
    keys: int = 1000,
    name: str = "t",
    partitioned: str | None = None,
    properties: dict[str, Any] | None = None,
) -> str:
    """Make a table of ``id, k, v`` with overlapping files of about ``rows`` rows each, loaded by one commit."""
    table = create_table(spark, f"{schema}.{name}", "id bigint, k int, v string", properties, partitioned)
    if files:
        append(spark, table, 0, files * rows, files=files, keys=keys)
    return table


def keyed(spark: Any, schema: str, name: str = "t", order: str = "k", rows: int = 100, **options: Any) -> str:
    """Make a table of six overlapping files with a sort order, and options among its properties."""
    properties = {f"recluster.option.{option}": value for option, value in options.items()}
    table = make_table(spark, schema, name=name, rows=rows, properties=properties)
    spark.sql(f"alter table {table} write locally ordered by {order}")
    return table


def make_even_table(spark: Any, schema: str, loads: int = 4) -> str:
    """Make a table of loads that cover all keys ``k`` from 0 to 999, in ten files each; ``p`` is 0."""
    table = create_table(spark, f"{schema}.t", "k bigint, p int")
    for _ in range(loads):
        spark.range(0, 1000, 1, 10).selectExpr("id as k", "0 as p").writeTo(table).append()
    return table


def planned(spark: Any, name: str, *key: Any, **options: Any) -> Any:
    """Return what a dry run plans."""
    return recluster(spark, name, *key, dry_run=True, **options).plan


def recluster_keeping_rows(spark: Any, name: str, *key: Any, **options: Any) -> ReclusterResult:
    """Recluster a table, and check that its rows stay."""
    before = checksum(spark, name)
    result = recluster(spark, name, *key, **options)
    assert checksum(spark, name) == before
    return result


class Meanwhile:
    """A progress callback with which another writer changes a table in the middle of a recluster.

    Args:
        step: ``merge``: before the blocks are read; ``commit``: after they are merged.
        change: What the other writer does.
        times: In how many rounds.
    """

    def __init__(self, step: str, change: Callable[[], Any], times: int = 1) -> None:
        self._step = step
        self._change = change
        self._left = times
        self.errors: list[BaseException] = []

    def __call__(self, progress: Progress) -> None:
        starts = progress.merged is None and not (progress.committed or progress.failed)
        if self._left and (starts if self._step == "merge" else progress.merged == 1):
            self._left -= 1
            try:
                self._change()
            except BaseException as e:
                self.errors.append(e)
                raise


def delete_by_equality(spark: Any, name: str, column: str, values: Iterable[str]) -> None:
    """Delete rows of an unpartitioned table as streaming engines do: by a file of the values of a column."""
    table = IcebergTable.load(spark, name)
    field_id = table.field_ids[column]
    location = f"{table.java.location()}/data/{uuid.uuid4().hex}.parquet"
    deleted = pa.field(column, pa.string(), metadata={"PARQUET:field_id": str(field_id)})
    rows = pa.table([pa.array(values, pa.string())], schema=pa.schema([deleted]))
    pq.write_table(rows, local_path(location))
    builder = table.iceberg.FileMetadata.deleteFileBuilder(table.java.spec())
    builder = builder.ofEqualityDeletes(java_array(spark, jvm(spark).int, [field_id])).withFormat("parquet")
    builder = builder.withPath(location).withFileSizeInBytes(local_path(location).stat().st_size)
    deletes = builder.withRecordCount(len(rows)).build()
    table.java.newRowDelta().addDeletes(deletes).commit()
    spark.sql(f"refresh table {name}")


def with_field_ids(field: pa.Field, schema: Any, above: str = "") -> pa.Field:
    """Return a field of a file with the ids, also of what is in it, that a Java schema has for these names."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([with_field_ids(inner, schema, f"{path}.") for inner in kind])
    elif pa.types.is_map(kind):
        inner = (kind.key_field.with_name("key"), kind.item_field.with_name("value"))
        kind = pa.map_(*(with_field_ids(part, schema, f"{path}.") for part in inner))
    elif pa.types.is_list(kind):
        kind = pa.list_(with_field_ids(kind.value_field.with_name("element"), schema, f"{path}."))
    return pa.field(field.name, kind, field.nullable, {"PARQUET:field_id": str(schema.findField(path).fieldId())})


def append_files(
    spark: Any,
    name: str,
    files: Iterable[pa.Table | Path],
    partition: str = "",
    bounds: Mapping[str, Sequence[bytes]] | None = None,
    **options: Any,
) -> None:
    """Append files as another writer does.

    Args:
        spark: The session.
        name: The table.
        files: Rows of which to write a file each, of their columns alone, or the path of what is written already.
        partition: That of all of them, such as ``p=7``.
        bounds: The lower and upper bounds of columns in Iceberg's binary form, instead of those of the rows.
        options: Options of Arrow's writer.
    """
    table = IcebergTable.load(spark, name)
    iceberg, java, append = table.iceberg, jvm(spark).java, table.java.newFastAppend()
    mapping = table.properties.get("schema.name-mapping.default")
    mapping = mapping and iceberg.mapping.NameMappingParser.fromJson(mapping)
    config, ids = iceberg.MetricsConfig.forTable(table.java), table.field_ids
    for file in files:
        path = file if isinstance(file, Path) else directory(spark, name) / f"data/{uuid.uuid4().hex}.parquet"
        location = f"file:{path}"
        if isinstance(file, pa.Table):
            path.parent.mkdir(parents=True, exist_ok=True)
            fields = [with_field_ids(field, table.java.schema()) for field in file.schema]
            pq.write_table(file.cast(pa.schema(fields)), path, store_schema=False, **options)
        read = iceberg.parquet.ParquetUtil.fileMetrics(table.java.io().newInputFile(location), config, mapping)
        ends = [java.util.HashMap(read.lowerBounds()), java.util.HashMap(read.upperBounds())]
        for column, pair in (bounds or {}).items():
            for of_side, bound in zip(ends, pair, strict=True):
                of_side.put(ids[column], java.nio.ByteBuffer.wrap(bound))
        counts = read.recordCount(), read.columnSizes(), read.valueCounts(), read.nullValueCounts()
        built = iceberg.DataFiles.builder(table.java.spec()).withPath(location).withFormat("parquet")
        built = built.withFileSizeInBytes(path.stat().st_size).withMetrics(iceberg.Metrics(*counts, None, *ends))
        append.appendFile((built.withPartitionPath(partition) if partition else built).build())
    append.commit()
    spark.sql(f"refresh table {name}")


def list_again(spark: Any, name: str, where: str = "true", times: int = 1) -> set[str]:
    """Add the files that hold such a row once more; return their paths."""
    table = IcebergTable.load(spark, name)
    paths = {row[0] for row in spark.sql(f"select distinct _file from {name} where {where}").collect()}
    tasks = table.iceberg.relocated.com.google.common.collect.Lists.newArrayList(
        table.java.newScan().includeColumnStats().planFiles()
    )
    files = [task.file() for task in java_items(tasks)]
    for _ in range(times):
        append = table.java.newFastAppend()
        for file in (file for file in files if file.location() in paths):
            spec = table.java.specs().get(file.specId())
            append.appendFile(table.iceberg.DataFiles.builder(spec).copy(file).build())
        append.commit()
    spark.sql(f"refresh table {name}")
    return paths


def writers(spark: Any, name: str) -> list[str | None]:
    """Return who has written the blocks of each recluster, and why."""
    spark.sql(f"refresh table {name}")
    return [entry.writer for entry in clustering_history(spark, name).entries if entry.is_recluster]


def rewrite_manifests(spark: Any, name: str) -> None:
    """Put all listings into one manifest: Iceberg counts the removal of only one of them then."""
    table = IcebergTable.load(spark, name)
    actions = table.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    actions.rewriteManifests(table.java).execute()
    spark.sql(f"refresh table {name}")


def local_path(location: str) -> Path:
    return Path(unquote(urlparse(location).path))


def directory(spark: Any, name: str) -> Path:
    return local_path(IcebergTable.load(spark, name).java.location())


def data_files(spark: Any, name: str) -> set[Path]:
    files = (directory(spark, name) / "data").rglob("*.parquet")
    return {path for path in files if "-deletes" not in path.name}


def orphans(spark: Any, name: str) -> set[Path]:
    """Return the data and delete files in the table's directory that no snapshot refers to."""
    known = {
        local_path(row[0])
        for which in ("all_data_files", "all_delete_files")
        for row in spark.sql(f"select file_path from {name}.{which}").collect()
    }
    files = (directory(spark, name) / "data").rglob("*")
    return {path for path in files if path.suffix in (".parquet", ".puffin") and path not in known}


def metadata_file(spark: Any, name: str) -> str:
    """The table's current metadata file: it is another one after every change."""
    return str(IcebergTable.load(spark, name).java.operations().current().metadataFileLocation())


def state(spark: Any, name: str) -> tuple[Any, ...]:
    """What a table is, besides the record of a failed recluster."""
    table = IcebergTable.load(spark, name)
    properties = {key: value for key, value in table.properties.items() if key != FAILURE}
    return table.snapshot_id, table.sort_order_id, table.spec_id, table.schema_json, properties


def staged_sets(spark: Any, name: str) -> tuple[int, int]:
    """Task sets and rewrites that a merge has left behind in the JVM."""
    table = IcebergTable.load(spark, name)
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    return len(manager.fetchSetIds(table.java)), len(coordinator.fetchSetIds(table.java))


@contextmanager
def stays_as_it_is(spark: Any, name: str) -> Iterator[None]:
    """Check that neither the rows nor the state of a table change, and that nothing is left behind."""
    before = checksum(spark, name), state(spark, name)
    yield
    assert (checksum(spark, name), state(spark, name)) == before
    assert orphans(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)


def raise_java(spark: Any, name: str, message: str) -> None:
    """Raise an exception of ``org.apache.iceberg.exceptions``, as a catalog would."""
    package = jvm(spark).org.apache.iceberg
    cause = jvm(spark).java.net.SocketTimeoutException(message)
    exceptions = {
        "CommitFailedException": lambda: package.exceptions.CommitFailedException(cause),
        "CommitStateUnknownException": lambda: package.exceptions.CommitStateUnknownException(cause),
    }
    package.relocated.com.google.common.base.Throwables.throwIfUnchecked(exceptions[name]())


def recorded_levels(spark: Any, name: str) -> dict[int, int]:
    """The levels that a table has recorded, by the snapshot that added the blocks: its id, or sequence number."""
    return dict(RecordedLevels.from_properties(IcebergTable.load(spark, name).properties).by_number)


def levels(spark: Any, name: str) -> list[int]:
    """The levels of all blocks, in order."""
    return sorted(_levels_and_runs(spark, name)[0].tolist())


def runs(spark: Any, name: str) -> set[int]:
    """The runs of all blocks, 0 for those without one."""
    return set(_levels_and_runs(spark, name)[1].tolist())


def _levels_and_runs(spark: Any, name: str) -> tuple[Any, Any]:
    table = IcebergTable.load(spark, name)
    key = table_cluster_key(table)
    assert key is not None
    return levels_and_runs(table, read_blocks(table, key), key)
