"""Helpers of the tests that work on real tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from sessions import checksum

from dbt_recluster.iceberg.jvm import java_array, jvm
from dbt_recluster.iceberg.table import IcebergTable

__all__ = [
    "append",
    "checksum",
    "delete_by_equality",
    "make_table",
    "metadata_file",
    "orphans",
    "staged_sets",
]


def append(
    spark: Any, table: str, start: int, rows: int, *, files: int = 1, seed: int = 0, keys: int = 1000
) -> None:
    """Append rows with random keys: ``id`` unique, ``k`` between 0 and ``keys``, ``v`` a word."""
    spark.sql(
        f"insert into {table} select /*+ repartition({files}) */ id, cast(rand({seed + start}) * {keys} as int) k, "
        f"concat('row ', id) v from range({start}, {start + rows})"
    )


def make_table(
    spark: Any, schema: str, *, loads: int = 6, rows: int = 1000, name: str = "t", **options: Any
) -> str:
    """A table of ``id, k, v`` in overlapping loads, left as they come."""
    table = f"{schema}.{name}"
    properties = {"write.distribution-mode": "none", **options.get("properties", {})}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    partitioned = f"partitioned by ({options['partitioned']})" if "partitioned" in options else ""
    spark.sql(
        f"create table {table} (id bigint, k int, v string) using iceberg {partitioned} tblproperties ({listed})"
    )
    for load in range(loads):
        append(spark, table, load * rows, rows)
    return table


def delete_by_equality(spark: Any, name: str, column: str, values: Iterable[str]) -> None:
    """Delete rows of an unpartitioned table as streaming engines do: by a file of the values of a column."""
    table = IcebergTable.load(spark, name)
    schema, iceberg = table.java.schema(), table.iceberg
    selected = jvm(spark).java.util.ArrayList()
    selected.add(column)
    deleted = schema.select(selected)
    ids = java_array(spark, jvm(spark).int, [schema.findField(column).fieldId()])
    factory = iceberg.data.GenericAppenderFactory(schema, table.java.spec(), ids, deleted, None)
    file = table.java.io().newOutputFile(f"{table.java.location()}/data/{uuid.uuid4().hex}.parquet")
    encrypted = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)
    writer = factory.newEqDeleteWriter(encrypted, iceberg.FileFormat.PARQUET, None)
    for value in values:
        record = iceberg.data.GenericRecord.create(deleted)
        record.set(0, value)
        writer.write(record)
    writer.close()
    table.java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"refresh table {name}")


def orphans(spark: Any, name: str) -> set[str]:
    """Data files in the table's directory that no snapshot of it refers to."""
    location = IcebergTable.load(spark, name).java.location()
    root = Path(unquote(urlparse(location).path)) / "data"
    known = {
        Path(unquote(urlparse(row[0]).path))
        for which in ("all_data_files", "all_delete_files")
        for row in spark.sql(f"select file_path from {name}.{which}").collect()
    }
    return {
        str(path) for path in root.rglob("*") if path.suffix in (".parquet", ".puffin") and path not in known
    }


def metadata_file(spark: Any, name: str) -> str:
    """The table's current metadata file: it is another one after every change."""
    return str(IcebergTable.load(spark, name).java.operations().current().metadataFileLocation())


def staged_sets(spark: Any, name: str) -> tuple[int, int]:
    """Task sets and rewrites that a merge has left behind in the JVM."""
    table = IcebergTable.load(spark, name)
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    return len(manager.fetchSetIds(table.java)), len(coordinator.fetchSetIds(table.java))
