"""Merges alone, without a plan: every partition of a table as one group."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tables import create_table, insert_extremes, merge_method

from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import partition_scan, read_blocks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, file_group
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve

# Row groups of a few dozen rows, so that there is something to skip.
SMALL_ROW_GROUPS = {
    "write.parquet.row-group-size-bytes": 2048,
    "write.parquet.row-group-check-min-record-count": 20,
    "write.parquet.row-group-check-max-record-count": 20,
}


def groups_of(table: IcebergTable, key: ClusterKey) -> tuple[Any, list[FileGroup]]:
    """Return a table's blocks, and those of each partition as a group."""
    blocks = read_blocks(table, key)
    columns = [field.column for field in key.fields]
    tasks = partition_scan(table, blocks).tasks(blocks.path.to_pylist(), bounds_of=columns)
    groups = []
    for code in np.unique(blocks.partition):
        own = blocks.take(blocks.partition == code)
        groups.append(file_group(tasks, own.path.to_pylist(), int(own.spec_id[0]), 1, 1))
    return blocks, groups


def merge_groups(
    table: IcebergTable,
    key: ClusterKey,
    block_rows: int,
    method: str | None = None,
    curve: Curve | None = None,
    refusals: list[str | None] | None = None,
) -> list[list[Any]]:
    """Merge each partition and commit; return the new data files of each, and in ``refusals`` why not natively."""
    blocks, groups = groups_of(table, key)
    merger = Merger(table, key, BlockLimits(block_rows, 1 << 40), curve=curve)
    with merge_method(method):
        merged = merger.merge(partition_scan(table, blocks), groups)
    levels = LevelChanges.from_blocks(table, blocks, replaced=np.ones(len(blocks), dtype=bool))
    RoundCommit(table, blocks.snapshot_id, merged, levels).run()
    if refusals is not None:
        refusals += [group.not_native for group in merged]
    return [list(group.files) for group in merged]


def rows_by_file(spark: Any, name: str, columns: str) -> dict[str, list[Any]]:
    """Return columns of the rows of each file, in their order."""
    rows: dict[str, list[Any]] = {}
    for file, _, *row in spark.sql(f"select _file, _pos, {columns} from {name} order by _file, _pos").collect():
        rows.setdefault(file, []).append(row[0] if len(row) == 1 else row)
    return rows


@contextmanager
def typed_table(spark: Any) -> Iterator[str]:
    """A table with a column of every type that a key may have; many values are NULL, some extreme.

    Beside it is one called ``_native``, without the values that only Spark writes: NaN, and text that is not UTF-8.
    """
    schema = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"create schema {schema}")
    columns = (
        "id bigint, i int, l bigint, d double, f float, s string, u string, b binary, n decimal(20, 3), "
        "w decimal(38, 10), day date, ts timestamp, tz timestamp_ntz, flag boolean, st struct<x: int, `a b`: string>"
    )
    name = create_table(spark, f"{schema}.typed", columns, SMALL_ROW_GROUPS)
    spark.sql(
        f"""
            insert into {name} select /*+ repartition(3) */ id,
              if(id % 11 = 0, null, cast(h % 500 - 250 as int)), (h - 500) * 9000000000000000,
              case id % 9 when 0 then null when 1 then double('NaN') when 2 then double('Infinity') when 3 then -0.0
                when 4 then 0.0 when 5 then double('-Infinity') else (h - 500) / 7.0 end,
              case id % 13 when 0 then float('NaN') when 1 then float(-0.0) when 2 then null
                else cast(h / 3.0 as float) end,
              if(id % 12 = 0, null, if(id % 7 = 0, cast(unhex(lpad(hex(h * 37), 6, '8')) as string),
                concat('a common prefix ''"\\\\ é,', h % 300))),
              if(id % 8 = 0, null, concat('a common prefix é', h % 300)),
              if(id % 10 = 0, null, unhex(lpad(hex(h * 61), 6, '0'))),
              cast((h - 500) / 1000.0 as decimal(20, 3)), cast(h - 300 as decimal(38, 10)) * 100000000000000000,
              date_add(date '1969-01-01', cast(h as int)),
              timestamp '1969-12-20 00:00:00' + make_interval(0, 0, 0, 0, cast(h as int), 0, h / 1000.0),
              cast(timestamp '1900-03-24 23:30:00' + make_interval(0, 0, 0, cast(h * 40 as int)) as timestamp_ntz),
              if(id % 7 = 0, null, h % 2 = 0),
              if(id % 8 = 0, null, named_struct('x', cast(h % 90 as int), 'a b', 'y'))
            from (select id, xxhash64(id) & 1023 h from range(900))
            """
    )
    insert_extremes(spark, name, range(900, 1020), null="u")  # Arrow truncates no text that is not UTF-8
    create_table(spark, f"{name}_native", columns, SMALL_ROW_GROUPS)
    replaced = {
        "d": "nullif(d, double('NaN'))",
        "f": "nullif(f, float('NaN'))",
        "s": "if(encode(s, 'UTF-8') = cast(s as binary), s, hex(s))",
    }
    values = ", ".join(replaced.get(column, column) for column in spark.table(name).columns)
    spark.sql(f"insert into {name}_native select /*+ repartition(3) */ {values} from {name}")
    yield name
    spark.sql(f"drop schema {schema} cascade")
