"""Before each commit, the metrics of new files are held against those of the old ones."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from merges import groups_of
from tables import append_files, create_table, merge_method, recluster_keeping_rows, stays_as_it_is
from test_native import COLUMNS, make_pair

from dbt_recluster.api import recluster
from dbt_recluster.exceptions import UnsupportedTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.manifest_entries import FileMetrics, SnapshotScan
from dbt_recluster.iceberg.rewrite import verification
from dbt_recluster.iceberg.rewrite.file_groups import RewrittenGroup, discard_files
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.rewrite.verification import Verifier
from dbt_recluster.iceberg.sort_order import FILE_FORMAT
from dbt_recluster.key.cluster_key import parse_cluster_key

METRICS = ("values", "nulls", "nans", "lower", "upper")
BOUNDED = [*(column.split()[0] for column in list(COLUMNS)[:13]), "st.x", "st.a b"]


@pytest.fixture(scope="module", params=["native", "spark"])
def merged(request: pytest.FixtureRequest, spark: Any) -> Iterator[tuple[IcebergTable, Verifier, RewrittenGroup]]:
    """A table of every type, with its files merged into one that is not committed."""
    schema = f"verified_{request.param}"
    spark.sql(f"create schema {schema}")
    name = make_pair(spark, schema, 3, (300, 200), 11, extremes=True)[0]
    table, key = IcebergTable.load(spark, name), parse_cluster_key("i")
    blocks, groups = groups_of(table, key)
    scan = SnapshotScan(table, blocks.snapshot_id)
    with merge_method(request.param):
        (group,) = Merger(table, key, BlockLimits(1000, 1 << 40)).merge(scan, groups)
    assert (group.not_native is None) == (request.param == "native")
    yield table, Verifier(table, scan), group
    discard_files(table, group.paths, ValueError())
    spark.sql(f"drop schema {schema} cascade")


def tampered(known: FileMetrics, metric: str, field_id: int, change: int) -> FileMetrics | None:
    """Return metrics with a count changed by one, or a bound by a bit; None if there is none."""
    of_fields = getattr(known, metric)
    value = of_fields.get(field_id)
    if metric in ("lower", "upper"):
        if not value:
            return None
        place = change % len(value)
        value = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
    elif value is None:
        return None
    else:
        value += 1 if change % 2 else -1
    return replace(known, **{metric: {**of_fields, field_id: value}})


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(BOUNDED), metric=st.sampled_from(METRICS), change=st.integers(0, 7))
def test_each_metric_that_is_tampered_with_is_noticed(
    merged: tuple[IcebergTable, Verifier, RewrittenGroup], path: str, metric: str, change: int
) -> None:
    table, verifier, group = merged
    assert verifier.differences({7: group}) == {}
    read, found = verification.written_metrics, []

    def read_tampered(*arguments: Any) -> dict[str, FileMetrics]:
        found.append(tampered(read(*arguments)[group.paths[0]], metric, table.field_ids[path], change))
        return {group.paths[0]: found[0] or read(*arguments)[group.paths[0]]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "written_metrics", read_tampered)
        differences = verifier.differences({7: group})
    noun = {"values": "values", "nulls": "values", "nans": "NaNs"}.get(metric, "bounds")
    if found[0] is None:
        assert differences == {}
    else:
        assert noun in differences[7]
        assert f"column {path}" in differences[7]


def test_bounds_of_other_writers_block_no_table(spark: Any, schema: str) -> None:
    """They may be wider than the rows, damaged, or those of text that is not UTF-8."""
    name = create_table(spark, f"{schema}.t", "k int, `a.b` string, st struct<`x.y`: int>, damaged double, t string")
    text = pa.array([b"\x01\xff", b"m"] * 150, pa.binary())
    broken, fields = pa.StringArray.from_buffers(300, *text.buffers()[1:]), [pa.field("x.y", pa.int32())]
    files = []
    for load in range(3):
        keys = pa.array(range(load, 900, 3), pa.int32())
        structs = pa.StructArray.from_arrays([keys], fields=fields)
        columns = [keys, pa.array(["m"] * 300), structs, keys.cast("double"), broken]
        files.append(pa.table(columns, ["k", "a.b", "st", "damaged", "t"]))
    text_ends, int_ends = (b"", b"z"), (struct.pack("<i", -1), struct.pack("<i", 1000))
    bounds = {"a.b": text_ends, "st.x.y": int_ends, "t": text_ends, "damaged": (b"abc", b"")}
    append_files(spark, name, files, bounds=bounds)
    with stays_as_it_is(spark, name), pytest.raises(UnsupportedTableError, match="has bounds that Iceberg cannot read"):
        recluster(spark, name, "damaged")
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=300).depth_after == 1


@pytest.mark.parametrize("formats", [("orc", "parquet"), ("parquet", "orc")])
def test_orc_counts_no_values_where_a_struct_is_null(spark: Any, schema: str, formats: tuple[str, str]) -> None:
    name = create_table(spark, f"{schema}.t", "k int, st struct<x: int, d: double>", {FILE_FORMAT: formats[0]})
    value = "if(id % 3 = 0, null, named_struct('x', int(id), 'd', double('NaN')))"
    for load in range(3):
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ int(id), {value} from range({load}, 900, 3, 1)")
    spark.sql(f"alter table {name} set tblproperties ('{FILE_FORMAT}' = '{formats[1]}')")
    assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=300).depth_after == 1
