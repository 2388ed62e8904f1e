"""What a recluster that fails leaves behind: the table as it was, and an error that says what to do."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tables import (
    data_files,
    local_path,
    make_table,
    orphans,
    recluster_keeping_rows,
    staged_sets,
    state,
    stays_as_it_is,
)

from dbt_recluster.api import recluster, remove_orphan_files, suggest_cluster_by, suspend_recluster
from dbt_recluster.clustering.result import Progress
from dbt_recluster.exceptions import MergeFailedError, ReclusterError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite import native


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["missing", "truncated"])
def test_a_block_that_cannot_be_read_changes_nothing(spark: Any, schema: str, fault: str) -> None:
    name = make_table(spark, schema, files=3)
    snapshot = IcebergTable.load(spark, name).snapshot_id
    path = local_path(spark.sql(f"select file_path from {name}.files limit 1").first()[0])
    if fault == "missing":
        path.unlink()
    else:
        path.with_name(f".{path.name}.crc").unlink()
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = path.name if fault == "missing" else r"could not be merged: .*This round changed nothing"
    with pytest.raises(MergeFailedError, match=message):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert IcebergTable.load(spark, name).snapshot_id == snapshot
    assert orphans(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)


@pytest.mark.thorough
def test_a_full_disk_leaves_the_table_as_it_was(spark: Any, schema: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        name = make_table(spark, schema)
        spark.sql(f"alter table {name} set tblproperties ('write.data.path' = '{small.as_uri()}')")
        (small / "other").write_bytes(bytes(96 * 1024))
        full = pytest.raises(MergeFailedError, match=r"No space left on device.*changed nothing\.$")
        with stays_as_it_is(spark, name), full:
            recluster(spark, name, "k", depth=1, block_rows=1000)
        assert [path.name for path in small.rglob("*") if path.is_file()] == ["other"]
        (small / "other").unlink()
        assert recluster_keeping_rows(spark, name, "k", depth=1, block_rows=1000).depth_after <= 2
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)  # Spark may still have a file open


@pytest.mark.parametrize(
    ("lost", "message"), [(False, "banana"), pytest.param(True, r"changed nothing\.", marks=pytest.mark.thorough)]
)
def test_an_error_tells_of_the_rounds_before_it(spark: Any, schema: str, lost: bool, message: str) -> None:
    """It comes between two rounds, or in a merge whose files are gone."""
    name = make_table(spark, schema, files=5)

    def spoil(progress: Progress) -> None:
        if progress.committed and lost:
            for file in data_files(spark, name) - orphans(spark, name):
                file.unlink()
        elif progress.committed:
            spark.sql(f"alter table {name} set tblproperties ('write.target-file-size-bytes' = 'banana')")

    options = {"depth": 1, "block_rows": 1000, "max_merge_blocks": 2}  # so that there is a second round
    error = MergeFailedError if lost else ReclusterError
    with pytest.raises(error, match=rf"{message}.* 1 round before it was committed\.$") as raised:
        recluster(spark, name, "k", final=True, listener=spoil, **options)
    assert raised.value.bytes_rewritten > 0


NO_PLACE = r"^{} cannot write data files: .*Nothing was changed; check its properties write\.data\.path"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("write.data.path", "nofs://a/b", NO_PLACE),
        ("write.location-provider.impl", "no.such.Provider", NO_PLACE),
        ("write.format.default", "bogus", r"(?i)bogus.*changed nothing|Nothing was changed"),
    ],
)
def test_a_property_that_prevents_merging_is_named_and_changes_nothing(
    spark: Any, schema: str, name: str, value: str, message: str
) -> None:
    table = make_table(spark, schema, rows=100)
    spark.sql(f"alter table {table} set tblproperties ('{name}' = '{value}')")
    refused = pytest.raises(ReclusterError, match=message.format(table))
    with stays_as_it_is(spark, table), refused as caught:
        recluster(spark, table, "k", depth=1)
    assert caught.value.orphans == ()  # no file that never was is said to be left behind
    assert recluster(spark, table, "k", depth=1, dry_run=True).plan is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("read.split.target-size", lambda *table: suggest_cluster_by(*table, ["k = 1"])),
        ("commit.retry.num-retries", suspend_recluster),
        ("commit.retry.num-retries", lambda *table: recluster(*table, "v", depth=1)),
        ("write.parquet.row-group-size-bytes", lambda *table: recluster(*table, "k", depth=1)),
        ("write.parquet.compression-level", lambda *table: recluster(*table, "k", depth=1)),
        ("commit.manifest.target-size-bytes", lambda *table: recluster(*table, "k", depth=1)),
        ("read.split.open-file-cost", remove_orphan_files),
    ],
)
def test_a_property_that_is_no_number_is_named(spark: Any, schema: str, name: str, call: Any) -> None:
    table = make_table(spark, schema, files=9, rows=50)
    spark.sql(f"alter table {table} set tblproperties ('{name}' = 'abc')")
    before, failed = state(spark, table), native._FAILED[spark.sparkContext.applicationId]
    failures = list(failed)
    with pytest.raises(ReclusterError, match=rf"{table}.*(abc.*, the value of {name}|{name} = 'abc')"):
        call(spark, table)
    assert state(spark, table) == before
    assert list(failed) == failures  # two of which would switch the native writer off
