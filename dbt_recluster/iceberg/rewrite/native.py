"""The native writer: DuckDB sorts the rows of blocks and Arrow writes them in Python workers.

Readers find in its files what they find in Iceberg's; only pages, dictionaries and compression may differ.
An allowlist decides: everything else goes to Spark's writer, with a reason whose first word is shown to users.
Iceberg's own code derives the metrics, from footers and, where these lack statistics, from values.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.iceberg.iceberg_table import IcebergTable, whole_number
from dbt_recluster.iceberg.metadata.manifest_entries import partition_values
from dbt_recluster.iceberg.rewrite import native_tasks
from dbt_recluster.iceberg.rewrite.file_groups import (
    FileGroup,
    GroupPlan,
    RewrittenGroup,
    Written,
    delete_files,
    delete_unfinished,
    discard_files,
)
from dbt_recluster.iceberg.rewrite.native_sql import BlockSql, NativeKey
from dbt_recluster.iceberg.rewrite.native_tasks import (
    NativeFile,
    NativeJob,
    Piece,
    PieceResult,
    Statement,
    file_location,
)
from dbt_recluster.iceberg.session.jobs import RoundJobs, ended_by_crash, stop_if_interrupted, task_attempts
from dbt_recluster.iceberg.session.jvm import (
    JavaFunctions,
    java_class,
    java_context,
    java_items,
    java_list,
    java_map,
    jvm,
)
from dbt_recluster.iceberg.session.redaction import redact, short_message
from dbt_recluster.iceberg.sort_order import DEFAULT_WIDTH, FILE_FORMAT, bounds_width
from dbt_recluster.key.box_tree import BoxTree
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.sql import MACROS
from dbt_recluster.key.transforms import Truncate
from dbt_recluster.key.types import DecimalNumber, IntArray, column_type, iceberg_type

logger = logging.getLogger(__name__)

# The setting of a session that turns the native writer off.
SWITCH = "spark.recluster.native"
_PARQUET = "write.parquet."
_METRICS = "write.metadata.metrics."
_WHOLE = (1 << 31) - 1
_CODECS = {"zstd": 3, "gzip": 6, "snappy": None, "uncompressed": None}  # with Iceberg's default levels
# Properties of a table that change how its files are written; the writer follows the first, and others change no file.
_FOLLOWED = frozenset(
    _PARQUET + name
    for name in (
        "compression-codec",
        "compression-level",
        "row-group-size-bytes",
        "page-size-bytes",
        "page-row-limit",
        "dict-size-bytes",
        "row-group-check-min-record-count",
        "row-group-check-max-record-count",
    )
) | {FILE_FORMAT, "write.data.path", "write.folder-storage.path"}
_IRRELEVANT = (
    "write.metadata.",
    "write.delete.",
    "write.update.",
    "write.merge.",
    "write.object-storage.",
    "write.manifest.",
    "write.summary.",
    "write.spark.",
    "write.avro.",
    "write.orc.",
    "write.wap.",
    "write.upsert.",
    "write.distribution-mode",
    "write.target-file-size-bytes",
    "write.location-provider.",
)
# Columns of files in format 3, by Iceberg's reserved ids.
_ROW_IDS = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
_LOCAL_SCHEMES, _S3_SCHEMES = {"", "file"}, {"s3", "s3a", "s3n"}
# Settings of S3FileIO and of S3A by our names, of which the first three are arguments of pyarrow's S3 file system.
_S3_SETTINGS = {
    "access_key": ("s3.access-key-id", "fs.s3a.access.key"),
    "secret_key": ("s3.secret-access-key", "fs.s3a.secret.key"),
    "session_token": ("s3.session-token", "fs.s3a.session.token"),
    "endpoint": ("s3.endpoint", "fs.s3a.endpoint"),
    "path_style": ("s3.path-style-access", "fs.s3a.path.style.access"),
    "region": ("client.region", "fs.s3a.endpoint.region"),
    "ssl": ("", "fs.s3a.connection.ssl.enabled"),  # S3FileIO has it in the endpoint
}
_S3_FILE_IO, _S3A = ({ours: theirs[place] for ours, theirs in _S3_SETTINGS.items()} for place in (0, 1))
# Others of S3FileIO that change no request for an object, or only how often it is sent.
_S3_IRRELEVANT = (
    "s3.delete",
    "s3.multipart.",
    "s3.staging-dir",
    "s3.retry.",
    "s3.preload-client-enabled",
    "s3.cross-region",
    "s3.checksum-enabled",
    "s3.remote-signing-enabled=false",
)
_S3A_PROVIDERS = "fs.s3a.aws.credentials.provider"
# Providers of the keys in the configuration, and those that pyarrow's S3 file system has in its own chain.
_S3A_KEY_PROVIDERS = {"", "SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider"}
_S3A_ROLE_PROVIDERS = {
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
}
_S3A_OTHERS = (
    "fs.s3a.server-side-encryption-algorithm",
    "fs.s3a.encryption.algorithm",
    "fs.s3a.acl.default",
    "fs.s3a.assumed.role.arn",
    "fs.s3a.proxy.host",
    "fs.s3a.security.credential.provider.path",
)
# Native failures by Spark application id. After a second failure the native writer is off for
# the application; the first may be a lost executor or a full disk.
_FAILED = defaultdict[str, list[str]](list)
# Tasks for each core: the last ones end at about the same time.
_TASKS_PER_CORE = 2
# Bytes that a task reads at most, so that progress shows and a repeated task is short.
_MOST_BYTES = 256 << 20
# A task of fewer bytes takes longer to open the files of its set than to sort them.
_LEAST_BYTES = 1 << 20
# Each task of a set reads all of its unsorted files, and a shuffle reads them twice.
_MOST_READERS = 8
_UNSORTED_SHARE = 0.1
# The most deleted rows of a set, since each of its tasks is sent all their positions.
_MOST_DELETED = 1_000_000
_TASK_MEMORY = 1 << 30
_LEAST_MEMORY = 128 << 20
# The address space that a worker with DuckDB and Arrow reserves before its first row is 2.1 GB.
_ADDRESSES_MB = 2304
_BATCH_BYTES = 8 << 20  # compressed


class NotNative(Exception):  # an answer, not an error
    """The reason that blocks cannot be written natively; its first word is shown to users."""


@dataclass(frozen=True)
class NativeWriter:
    """Writes file groups of a table; ``pending`` is the table as the commit will leave it."""

    table: IcebergTable
    pending: IcebergTable
    key: ClusterKey
    curve: Curve | None

    def refusal(self, plan: GroupPlan) -> str | None:
        """Return the reason why a group cannot be written natively, a word and sometimes details, or None."""
        files = plan.group.files
        if self._table_refusal:
            return self._table_refusal
        if None in self._identities[plan.group.spec_id].values():
            return "partition: its column is in a struct"
        deletes = [delete for file in files for delete in file.deletes]
        are_positions = all(str(delete.content()) == "POSITION_DELETES" for delete in deletes)
        if not are_positions or sum(int(delete.recordCount()) for delete in deletes) > _MOST_DELETED:
            return "deletes"
        if not all(file.path.endswith(".parquet") and not set("*?[") & set(file.path) for file in files):
            return "files"
        is_s3 = self._job.store is not None
        if other := {_scheme(file.path) for file in files} - (_S3_SCHEMES if is_s3 else _LOCAL_SCHEMES):
            return f"store: {other.pop()}"
        if not plan.is_utf_8:
            return "text"
        if isinstance(plan.cuts, BoxTree):
            return "curve: a value fills several blocks" if plan.has_shares else None
        if self.curve is not None and plan.blocks > 1:
            return "curve"  # DuckDB would copy each step of a search into the next
        if self._is_read_whole(plan) and min(self._parallelism, plan.blocks) > _MOST_READERS:
            return "unsorted"
        return None

    @cached_property
    def _table_refusal(self) -> str | None:
        try:
            self._job  # noqa: B018
        except NotNative as e:
            return str(e)
        failed = self._failed
        is_over = len(failed) > 1 or any(reason.startswith("packages") for reason in failed)
        return failed[-1] if is_over else None

    @property
    def _failed(self) -> list[str]:
        return _FAILED[str(self.table.spark.sparkContext.applicationId)]

    @cached_property
    def _parallelism(self) -> int:
        """Tasks that run at once."""
        return int(self.table.spark.sparkContext.defaultParallelism)

    @cached_property
    def _job(self) -> NativeJob:
        """The settings that all tasks share; raises `NotNative`."""
        spark, properties = self.table.spark, self.pending.properties
        if str(spark.conf.get(SWITCH, "true")).lower() == "false":
            raise NotNative("off")
        if properties.get(FILE_FORMAT, "parquet").lower() != "parquet":
            raise NotNative("format")
        if any(name.startswith("encryption.") for name in properties):
            raise NotNative("encryption")
        schema = pa.schema([self._column(field) for field in self._fields])
        columns = [f"c{place}" for place in range(len(schema))]
        if self._has_row_ids:
            for name, field_id in _ROW_IDS.items():
                schema = schema.append(_arrow_field(name, pa.int64(), field_id, False))
            number, updated = f"c{len(columns)}", f"c{len(columns) + 1}"
            first = "getvariable('first_row_ids')[file_index + 1]"
            columns.append(f"coalesce({number}, {first} + file_row_number)")
            columns.append(f"coalesce({updated}, getvariable('sequence_numbers')[file_index + 1])")
        truncated = [item.column for item in self.key.fields if isinstance(item.transform, Truncate)]
        if any(isinstance(column_type(self._sql.types[path]), DecimalNumber) for path in truncated):
            raise NotNative("key")  # DuckDB computes rests of decimals as floating-point numbers
        return NativeJob(
            id=str(uuid.uuid4()),
            schema=schema,
            columns=tuple(columns),
            steps=tuple(map(tuple, self._sql.steps())),
            order=tuple(self._sql.order),
            macros=MACROS,
            variables=self._sql.variables,
            parquet=self._parquet_options(properties),
            memory_bytes=task_memory(
                dict(self.table.spark.sparkContext.getConf().getAll()),
                jvm(self.table.spark).org.apache.spark.network.util.JavaUtils.byteStringAsMb,
            ),
            bound_length=self._bound_length,
            store=self._store(),
        )

    @cached_property
    def _fields(self) -> list[dict[str, Any]]:
        """The table's columns, as in Iceberg's JSON."""
        return list(json.loads(self.pending.schema_json)["fields"])

    @cached_property
    def _identities(self) -> dict[int, dict[int, Any]]:
        """The places of the columns that partitions have the values of, or None in structs.

        By the partition spec, and the place in the partition.
        """
        columns = {field["id"]: place for place, field in enumerate(self._fields)}
        return {
            spec_id: {
                place: columns.get(field["source-id"])
                for place, field in enumerate(self.pending.spec_fields(spec_id))
                if field["transform"] == "identity"
            }
            for spec_id in map(int, java_items(self.pending.java.specs().keySet()))
        }

    @cached_property
    def _bound_length(self) -> int | None:
        """The characters, or bytes, of a value that decide its bounds in every column; None for all."""
        modes = [mode.lower() for name, mode in self.pending.properties.items() if name.startswith(_METRICS)]
        cut = (re.fullmatch(r"truncate\((\d+)\)", mode) for mode in modes)
        return None if "full" in modes else 1 + max([DEFAULT_WIDTH, *(int(match[1]) for match in cut if match)])

    @cached_property
    def _metrics(self) -> Any:
        """Iceberg's configuration of metrics, by the names that columns have in files."""
        iceberg, schema, spark = self.pending.iceberg, self.pending.java.schema(), self.table.spark
        parquet, names = iceberg.parquet.ParquetSchemaUtil, iceberg.types.TypeUtil.indexNameById
        config = iceberg.MetricsConfig.forTable(self.pending.java)
        of_files = parquet.convert(parquet.convert(schema, "table"))
        in_table, in_files = (java_map(spark, names(of.asStruct())) for of in (schema, of_files))
        if in_table == in_files:
            return config
        modes = jvm(spark).java.util.HashMap()
        modes.put(f"{_METRICS}default", "none")
        for field_id, name in in_table.items():
            modes.put(f"{_METRICS}column.{in_files[field_id]}", str(config.columnMode(name)))
        return iceberg.MetricsConfig.fromProperties(modes)

    @cached_property
    def _has_row_ids(self) -> bool:
        """Whether rows keep their ids, as in format 3."""
        version = int(self.pending.java.operations().current().formatVersion())
        if version > 3:
            raise NotNative("version")
        return version == 3

    def _store(self) -> Mapping[str, Any] | None:
        """Return the arguments of pyarrow's S3 file system, or None for local files."""
        java_io, hadoop = self.pending.java.io(), java_context(self.table.spark).hadoopConfiguration()
        io = str(java_io.getClass().getSimpleName())
        try:
            scheme = _scheme(str(self.pending.java.locationProvider().newDataLocation("x")))
        except Exception as e:  # `check_location` says so before anything is written
            raise NotNative("store: no location for data files") from e
        default = str(hadoop.get("fs.defaultFS", "file:///")).partition(":")[0]
        if scheme in _LOCAL_SCHEMES and io in ("HadoopFileIO", "ResolvingFileIO") and (scheme or default == "file"):
            return None
        if scheme not in _S3_SCHEMES:
            raise NotNative(f"store: {scheme or default}")
        if io in ("S3FileIO", "ResolvingFileIO"):
            return _s3_arguments(java_map(self.table.spark, java_io.properties()), _S3_FILE_IO)
        if io != "HadoopFileIO":
            raise NotNative(f"store: {io}")
        implementation = str(hadoop.get(f"fs.{scheme}.impl", "S3AFileSystem"))
        if not implementation.endswith("S3AFileSystem"):
            raise NotNative(f"store: {implementation}")
        names = [*_S3A.values(), _S3A_PROVIDERS, *_S3A_OTHERS]
        settings = {name: str(hadoop.get(name, "")) for name in names}
        # Settings of single buckets cannot be listed by name.
        if hadoop.getPropsWithPrefix("fs.s3a.bucket.").size():
            raise NotNative("store: fs.s3a.bucket")
        providers = {name.strip().rpartition(".")[2] for name in settings.pop(_S3A_PROVIDERS).split(",")}
        if other := providers - _S3A_KEY_PROVIDERS - _S3A_ROLE_PROVIDERS:
            raise NotNative(f"store: {other.pop()}")
        if not providers & _S3A_KEY_PROVIDERS:  # keys that are configured are not used
            settings |= {_S3A[name]: "" for name in ("access_key", "secret_key", "session_token")}
        if unknown := next((name for name in _S3A_OTHERS if settings[name]), None):
            raise NotNative(f"store: {unknown}")
        return _s3_arguments({name: value for name, value in settings.items() if value}, _S3A)

    def _parquet_options(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of Arrow's writer that follow the table's properties."""
        for name in properties:
            if name.startswith("write.") and name not in _FOLLOWED and not name.startswith(_IRRELEVANT):
                raise NotNative(f"properties: {name}")
        for name in ("compression-codec", "compression-level", "compression-strategy"):
            if self.table.spark.conf.get(f"spark.sql.iceberg.{name}", None) is not None:
                raise NotNative(f"properties: spark.sql.iceberg.{name}")
        codec = properties.get(f"{_PARQUET}compression-codec", "zstd").lower()
        level = properties.get(f"{_PARQUET}compression-level")
        if codec not in _CODECS or (level is not None and (codec != "zstd" or whole_number(level) is None)):
            raise NotNative(f"properties: {codec} {level or ''}".strip())
        self._row_group_bytes  # noqa: B018  a wrong one is no failure of the writer
        number = self.pending.number_property
        options: dict[str, Any] = {
            "compression": "none" if codec == "uncompressed" else codec,
            "data_page_size": number(f"{_PARQUET}page-size-bytes", 1 << 20),
            "max_rows_per_page": number(f"{_PARQUET}page-row-limit", 20_000),
            "dictionary_pagesize_limit": number(f"{_PARQUET}dict-size-bytes", 2 << 20),
        }
        if _CODECS[codec] is not None:
            options["compression_level"] = int(level or _CODECS[codec] or 0)
        return options

    @cached_property
    def _row_group_bytes(self) -> int:
        return self.pending.number_property(f"{_PARQUET}row-group-size-bytes", 128 << 20)

    @cached_property
    def _sql(self) -> NativeKey:
        columns = self.table.columns()
        return NativeKey(self.key, columns.types, self.curve, columns=columns.names, file_name=self._file_name)

    def write(self, plans: Sequence[GroupPlan], jobs: RoundJobs) -> Written:
        """Write groups, except those for which the result has a reason."""
        tasks = list[list[Piece]]()
        results = self._run(plans, tasks, jobs)
        if isinstance(results, str):
            self._report(results)
            return {plan.number: results for plan in plans}
        refused = {number: result for number, _, result in results if isinstance(result, str)}
        written = chain.from_iterable(files for *_, files in results if not isinstance(files, str))
        locations = {file.location for file in written}
        groups: Written = {**refused}
        try:
            kept: set[str] = set()
            for plan in plans:
                if plan.number in refused:
                    continue
                parts = sorted((first, files) for number, first, files in results if number == plan.number)
                files = [file for _, files in parts for file in files if not isinstance(file, str)]
                data_files = tuple(self._data_files(plan.group, files))
                groups[plan.number] = RewrittenGroup(plan.group, data_files)
                kept |= {file.location for file in files}
            # Attempts that Spark ran beside those whose results it took.
            if len(task_attempts(self.table.spark, self._job.id)) > len(tasks):
                locations |= set(self._paths(tasks))
            delete_files(self.table, locations - kept)
        except BaseException as e:
            discard_files(self.table, sorted(locations), e)
            raise
        for reason in {reason for reason in refused.values() if reason.startswith("packages")}:
            self._report(reason)
        return groups

    def _run(self, plans: Sequence[GroupPlan], tasks: list[list[Piece]], jobs: RoundJobs) -> list[PieceResult] | str:
        """Divide groups among ``tasks`` and run these; return the reason if that fails."""
        from pyspark.cloudpickle import register_pickle_by_value
        from pyspark.serializers import CloudPickleSerializer

        context, crashes = self.table.spark.sparkContext, list[str]()
        if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable  # not a python3 of the path
        dumps: Callable[[Any], bytes] = CloudPickleSerializer().dumps
        try:
            tasks += self._tasks(plans)
            register_pickle_by_value(native_tasks)
            # Bytes, since a worker without pyarrow cannot load the pieces, and has to say so.
            sent = [(n, [(p.group, p.first) for p in of], dumps((self._job, of))) for n, of in enumerate(tasks)]
            rows = context.parallelize(sent, len(tasks))
            numbers = [piece.group for pieces in tasks for piece in pieces]
            with (
                jobs.write("merge natively", self._job.id, numbers, 1),
                ended_by_crash(self.table.spark, self._job.id) as crashes,
            ):
                return list(chain.from_iterable(rows.map(native_tasks.write_pieces).collect()))
        except BaseException as e:
            delete_unfinished(self.table, self._job.id, partial(self._paths, tasks), e)
            stop_if_interrupted(e)
            if not isinstance(e, Exception) or ("cancelled" in str(e) and not crashes):
                raise
            text = redact(crashes[0].partition("\n")[0]) if crashes else short_message(e)
            is_killed = re.search("memory limits|OOM|137", text)
            return f"memory: {text}" if is_killed else f"error {type(e).__name__}: {text}"

    def _report(self, reason: str) -> None:
        self._failed.append(reason)
        if not reason.startswith("packages"):
            logger.warning("The native writer failed, and Spark's takes over, which is slower: %s", reason)
            return
        logger.warning(
            "Spark's Python workers cannot write blocks, so merges take twice as long: %s. They need "
            "'duckdb>=2' 'pyarrow>=23' fsspec and the driver's version of Python; or set %s to false.",
            reason,
            SWITCH,
        )

    def _paths(self, tasks: Sequence[Sequence[Piece]]) -> list[str]:
        """Return the files that all attempts of the tasks may have written, once they have ended."""
        return [
            file_location(directory, self._job.id, index, attempt, number)
            for index, attempt in task_attempts(self.table.spark, self._job.id)
            for number, directory in enumerate(chain.from_iterable(p.directories for p in tasks[index]), 1)
        ]

    def _is_read_whole(self, plan: GroupPlan) -> bool:
        """Whether each task of a group reads all of its files, because too many are not sorted inside."""
        sizes = zip(plan.group.files, plan.is_sorted, strict=True)
        unsorted = sum(file.bytes for file, is_sorted in sizes if not is_sorted)
        return unsorted > _UNSORTED_SHARE * plan.group.bytes

    def _tasks(self, plans: Sequence[GroupPlan]) -> list[list[Piece]]:
        """Divide blocks among tasks: pieces of neighbouring blocks."""
        total = sum(plan.group.bytes for plan in plans)
        share = min(_MOST_BYTES, max(_LEAST_BYTES, total // (_TASKS_PER_CORE * self._parallelism)))
        tasks, filled, constants = [list[Piece]()], 0, self._constants(plans)
        for plan in plans:
            size, is_whole, sql = plan.group.bytes, self._is_read_whole(plan), BlockSql(self._sql, plan.cuts)
            whole = self._piece(plan, sql, constants[plan.number])
            count = min(plan.blocks, max(1, round(size / share)))
            if is_whole:
                count = min(count, self._parallelism)
            ends = [plan.blocks * part // count for part in range(count + 1)]
            for first, end in pairwise(ends):
                if tasks[-1] and filled + size // count > share:
                    tasks.append([])
                    filled = 0
                spans = [(first, end)] if is_whole else [(block, block + 1) for block in range(first, end)]
                statements = self._statements(plan.group, sql, spans)
                tasks[-1].append(replace(whole, first=first, statements=statements))
                filled += size // count
        return tasks

    def _piece(self, plan: GroupPlan, sql: BlockSql, constants: Mapping[str, pa.Array]) -> Piece:
        """Return a piece of a group without its blocks."""
        group = plan.group
        first_rows = np.cumsum([0, *(file.rows for file in group.files[:-1])])
        row_bytes = max(1.0, group.bytes / max(1, group.rows))
        return Piece(
            group=plan.number,
            first=0,
            files=tuple(file.path for file in group.files),
            sizes=tuple(file.bytes for file in group.files),
            variables={
                "first_rows": pa.array(first_rows),
                **sql.variables,
                **constants,
                **(self._row_ids(group) if self._has_row_ids else {}),
            },
            statements=(),
            row_group_rows=max(100, int(self._row_group_bytes / row_bytes)),
            batch_rows=max(1024, min(100_000, int(_BATCH_BYTES / row_bytes))),
            constants=tuple(constants),
            deleted=self._deleted(group),
        )

    def _statements(self, group: FileGroup, sql: BlockSql, spans: Iterable[tuple[int, int]]) -> tuple[Statement, ...]:
        # With object-storage layout, each file has its own directory.
        is_hashed = self.pending.properties.get("write.object-storage.enabled", "").lower() == "true"
        directory = "" if is_hashed else self._directory(group)
        return tuple(
            sql.statement(first, end, tuple(directory or self._directory(group) for _ in range(first, end)))
            for first, end in spans
        )

    def _directory(self, group: FileGroup) -> str:
        """Return a directory for a new file of a group."""
        provider, spec = self.pending.java.locationProvider(), self.pending.java.specs().get(group.spec_id)
        name = uuid.uuid4().hex
        names = (name,) if spec.isUnpartitioned() else (spec, group.partition, name)
        # Hadoop's paths have file:/ where a table's location has file:///.
        file = self.pending.java.io().newOutputFile(provider.newDataLocation(*names))
        return str(file.location()).rpartition("/")[0]

    def _constants(self, plans: Sequence[GroupPlan]) -> dict[int, dict[str, pa.Array]]:
        """Return the columns that have the value of an identity partition, by the numbers of groups.

        To Iceberg it is the value of every row, and files may lack the column.
        """
        constants: dict[int, dict[str, pa.Array]] = {plan.number: {} for plan in plans}
        spec_of = attrgetter("group.spec_id")
        for spec_id, members in groupby(sorted(plans, key=spec_of), key=spec_of):
            columns, of_spec = self._identities[spec_id], list(members)
            kinds = {place: self._fields[column]["type"] for place, column in columns.items()}
            read = partition_values(self.table, [plan.group.partition for plan in of_spec], kinds) if kinds else {}
            for place, values in read.items():
                typed = values.cast(self._job.schema.field(columns[place]).type)
                for number, plan in enumerate(of_spec):
                    constants[plan.number][f"c{columns[place]}"] = typed[number : number + 1]
        return constants

    def _row_ids(self, group: FileGroup) -> dict[str, pa.Array]:
        """Return the row ids and sequence numbers that rows inherit from each file."""
        files = [file.task.file() for file in group.files]
        pairs = [(file.firstRowId(), file.dataSequenceNumber()) for file in files]
        updated = [None if first is None else number for first, number in pairs]
        return {
            "first_row_ids": pa.array([first for first, _ in pairs], pa.int64()),
            "sequence_numbers": pa.array(updated, pa.int64()),
        }

    def _deleted(self, group: FileGroup) -> pa.Table | None:
        """Return the positions of deleted rows, by Iceberg's own reader of delete files."""
        if not any(file.deletes for file in group.files):
            return None
        spark, files, positions = self.table.spark, list[int](), list[IntArray]()
        functions, java, io = JavaFunctions(spark), jvm(spark).java, "org.apache.iceberg.io"
        read = functions.method(f"{io}.FileIO", "newInputFile", f"{io}.InputFile", "org.apache.iceberg.DeleteFile")
        loader = self.table.iceberg.data.BaseDeleteLoader(functions.function(read.bindTo(self.table.java.io())))
        for place, file in enumerate(group.files):
            if not file.deletes:
                continue
            index = loader.loadPositionDeletes(java_list(spark, file.deletes), file.path)
            rows = java.util.stream.LongStream.builder()
            index.forEach(rows)
            buffer = java.nio.ByteBuffer.allocate(8 * int(index.cardinality()))
            buffer.asLongBuffer().put(rows.build().toArray())
            positions.append(np.frombuffer(buffer.array(), ">i8").astype(np.int64))
            files += [place] * len(positions[-1])
        return pa.table({"file": pa.array(files, pa.int64()), "row": np.concatenate(positions)})

    def _data_files(self, group: FileGroup, files: Iterable[NativeFile]) -> list[Any]:
        """Return Java data files with Iceberg's metrics."""
        iceberg, spark, config = self.pending.iceberg, self.table.spark, self._metrics
        spec = self.pending.java.specs().get(group.spec_id)
        mapper = iceberg.util.JsonUtil.mapper()
        kinds, boxed = mapper.getTypeFactory(), [java_class(spark, f"java.lang.{n}") for n in ("Integer", "Long")]
        longs = kinds.constructCollectionType(java_class(spark, "java.util.ArrayList"), boxed[1])
        counts = kinds.constructMapType(java_class(spark, "java.util.HashMap"), *boxed)
        floats = {self._file_name(c["name"]): c["id"] for c in self._fields if c["type"] in ("float", "double")}
        # Files with NaN are Spark's.
        no_nan = json.dumps({n: 0 for name, n in floats.items() if str(config.columnMode(name)) != "none"})
        result = []
        for file in files:
            footer = jvm(spark).org.apache.iceberg.inmemory.InMemoryInputFile(file.footer)
            read = iceberg.parquet.ParquetUtil.fileMetrics(footer, config)
            counted = read.recordCount(), read.columnSizes(), read.valueCounts(), read.nullValueCounts()
            nans = mapper.readValue(no_nan, counts)
            metrics = iceberg.Metrics(*counted, nans, *self._bounds(read, file))
            builder = iceberg.DataFiles.builder(spec).withPath(file.location).withFormat("parquet")
            builder = builder.withFileSizeInBytes(file.size).withMetrics(metrics)
            builder = builder.withSplitOffsets(mapper.readValue(json.dumps(file.split_offsets), longs))
            if not spec.isUnpartitioned():
                builder = builder.withPartition(group.partition)
            result.append(builder.build())
        return result

    def _bounds(self, read: Any, file: NativeFile) -> tuple[Any, Any]:
        """Return the Java maps of a file's lower and upper bounds: those of its values where its footer has none."""
        lower, upper = read.lowerBounds(), read.upperBounds()
        if not file.bounds:
            return lower, upper
        iceberg, schema, java = self.pending.iceberg, self.pending.java.schema(), jvm(self.table.spark).java
        lower, upper = java.util.HashMap(lower), java.util.HashMap(upper)
        for field_id, (least, most) in file.bounds.items():
            width = bounds_width(self.pending, str(schema.findColumnName(field_id)), in_key=False)
            if width == 0:
                continue
            width = _WHOLE if width is None else width
            if isinstance(least, str):
                cut = iceberg.util.UnicodeUtil
                ends = cut.truncateStringMin(least, width), cut.truncateStringMax(most, width)
            else:
                cut, wrap = iceberg.util.BinaryUtil, java.nio.ByteBuffer.wrap
                ends = cut.truncateBinaryMin(wrap(least), width), cut.truncateBinaryMax(wrap(most), width)
            for bounds, end in zip((lower, upper), ends, strict=True):
                bounds.remove(field_id)
                if end is not None:  # no shorter text is above the greatest one
                    bounds.put(field_id, iceberg.types.Conversions.toByteBuffer(schema.findType(field_id), end))
        return lower, upper

    def _file_name(self, name: str) -> str:
        """Return the name that Iceberg gives a column in files."""
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return name
        return str(self.pending.iceberg.avro.AvroSchemaUtil.makeCompatibleName(name))

    def _column(self, field: Mapping[str, Any]) -> pa.Field:
        if field.get("initial-default") is not None:
            raise NotNative("evolved: a column with a default")
        return self._field(str(field["name"]), field["type"], field["id"], field["required"])

    def _field(self, name: str, kind: Any, field_id: int, required: bool) -> pa.Field:
        fields = () if required or isinstance(kind, str) else kind.get("fields", ())
        if any(inner["required"] for inner in fields):  # Arrow does not cast it
            raise NotNative("types: a required field in a struct that may be NULL")
        return _arrow_field(self._file_name(name), self._type(kind), field_id, required)

    def _type(self, kind: Any) -> pa.DataType:
        if isinstance(kind, str):
            column = iceberg_type(kind)
            if not column.has_bounds or kind.startswith("fixed"):
                raise NotNative(f"types: {kind}")
            return column.arrow
        if kind["type"] == "struct":
            if any(field["type"] in ("float", "double") for field in kind["fields"]):
                # Where the struct is NULL, Iceberg 1.10 does not count a value, and 1.12 does.
                raise NotNative("types: a floating-point number in a struct")
            return pa.struct([self._column(field) for field in kind["fields"]])
        if kind["type"] == "list":
            return pa.list_(self._field("element", kind["element"], kind["element-id"], kind["element-required"]))
        key = self._field("key", kind["key"], kind["key-id"], True)
        return pa.map_(key, self._field("value", kind["value"], kind["value-id"], kind["value-required"]))


def _scheme(location: str) -> str:
    return location.partition(":")[0] if "://" in location or location.startswith("file:") else ""


def _s3_arguments(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of pyarrow's S3 file system for settings, of which ``names`` are known."""
    for name, value in settings.items():
        is_s3 = name.startswith(("s3.", "client.")) and name not in names.values()
        if is_s3 and not f"{name}={value}".startswith(_S3_IRRELEVANT):
            raise NotNative(f"store: {name}")
    options = {ours: settings[theirs] for ours, theirs in names.items() if settings.get(theirs)}
    arguments: dict[str, Any] = {n: options[n] for n in ("access_key", "secret_key", "session_token") if n in options}
    scheme, _, host = options.get("endpoint", "").rpartition("://")
    host = host.rstrip("/").removeprefix("s3.amazonaws.com")  # the default of S3A
    if host:
        is_plain = scheme == "http" or (not scheme and options.get("ssl") == "false")
        arguments |= {"endpoint_override": host, "scheme": "http" if is_plain else "https"}
        arguments["force_virtual_addressing"] = options.get("path_style", "false").lower() != "true"
    arguments["allow_delayed_open"] = True  # one request for a file of one part
    if host or "region" in options:
        arguments["region"] = options.get("region", "us-east-1")
    return arguments


def _arrow_field(name: str, kind: pa.DataType, field_id: int, required: bool) -> pa.Field:
    metadata = {b"PARQUET:field_id": str(field_id).encode()}
    return pa.field(name, kind, nullable=not required, metadata=metadata)


def task_memory(settings: Mapping[str, str], megabytes: Callable[[str], int]) -> int:
    """Return the bytes that DuckDB gets in a task, at most 1 GB: half the container's share for Python of a core.

    ``megabytes`` is Spark's parser of sizes.

    Raises:
        NotNative: It is too little.
    """
    cores = max(1, int(settings.get("spark.executor.cores") or 1))

    def first(*names: str) -> str | None:
        return next(filter(None, (settings.get(f"spark.{name}") for name in names)), None)

    if limit := first("executor.pyspark.memory"):  # Spark limits each worker's addresses to its share
        share = megabytes(limit) // cores - _ADDRESSES_MB
    elif settings.get("spark.master", "").startswith(("local", "spark:")):
        return _TASK_MEMORY
    elif overhead := first("executor.memoryOverhead", "yarn.executor.memoryOverhead"):
        share = megabytes(overhead) // cores
    else:
        # EMR sets its factor on YARN, and Kubernetes has 0.4 for Python.
        factors = (
            "executor.memoryOverheadFactor",
            "yarn.executor.memoryOverheadFactor",
            "kubernetes.memoryOverheadFactor",
        )
        size = megabytes(first("executor.memory") or "1g") * float(first(*factors) or 0.1)
        share = max(384, int(size)) // cores
    if (memory := (share << 20) // 2) < _LEAST_MEMORY:
        raise NotNative("memory")
    return min(memory, _TASK_MEMORY)
