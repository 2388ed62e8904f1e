"""What a recluster that fails leaves behind: the table as it was, and an error that says what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from tables import append, checksum, make_table, orphans, staged_sets

from dbt_recluster import maintenance
from dbt_recluster.exceptions import MergeFailedError
from dbt_recluster.iceberg import merge
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.maintenance import recluster


def test_a_merge_that_fails_leaves_no_files(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(spark, schema, partitioned="truncate(500, k)")
    before = checksum(spark, name)
    written: list[Any] = []

    def interrupted(table: Any, snapshot_id: int, merged: Any) -> None:
        written.extend(file for each in merged for file in each.files)
        raise KeyboardInterrupt

    monkeypatch.setattr(merge, "check_merge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert written
    assert orphans(spark, name) == set()
    assert checksum(spark, name) == before
    assert staged_sets(spark, name) == (0, 0)


def broken_blocks(spark: Any, name: str) -> Path:
    """Return the local path of one data file."""
    row = spark.sql(f"select file_path from {name}.files limit 1").first()
    return Path(unquote(urlparse(row[0]).path))


def test_a_block_that_is_gone(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    snapshot = IcebergTable.load(spark, name).snapshot_id
    path = broken_blocks(spark, name)
    path.unlink()
    with pytest.raises(MergeFailedError, match=path.name):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert IcebergTable.load(spark, name).snapshot_id == snapshot
    assert orphans(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)


def test_a_block_that_cannot_be_read(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    snapshot = IcebergTable.load(spark, name).snapshot_id
    path = broken_blocks(spark, name)
    path.with_name(f".{path.name}.crc").unlink()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(MergeFailedError, match=r"could not be merged: .*This round changed nothing"):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert IcebergTable.load(spark, name).snapshot_id == snapshot
    assert orphans(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)


def test_a_disk_that_is_full(spark: Any, schema: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        name = make_table(spark, schema)
        before = checksum(spark, name)
        spark.sql(f"alter table {name} set tblproperties ('write.data.path' = '{small.as_uri()}')")
        (small / "other").write_bytes(bytes(96 * 1024))
        with pytest.raises(MergeFailedError, match=r"No space left on device.*remove_orphan_files"):
            recluster(spark, name, "k", depth=1, block_rows=1000)
        assert checksum(spark, name) == before
        assert staged_sets(spark, name) == (0, 0)
        (small / "other").unlink()
        assert recluster(spark, name, "k", depth=1, block_rows=1000).depth_after <= 2
        assert checksum(spark, name) == before
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)  # Spark may still have a file open


def test_a_round_that_fails_tells_of_those_before_it(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_table(spark, schema)
    take_step, calls = maintenance._merge, []

    def fail_later(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("the room is on fire")
        merged = take_step(*args)
        append(spark, name, 50_000, 1000)  # the next round has something to do
        return merged

    monkeypatch.setattr(maintenance, "_merge", fail_later)
    said = r"the room is on fire\. .* 1 round before it was committed\."
    with pytest.raises(MergeFailedError, match=said) as raised:
        recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert raised.value.bytes_rewritten > 0
    assert checksum(spark, name)[0] == 7000


def test_a_listener_that_fails_changes_nothing(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)

    def gone(_: Any) -> None:
        raise BrokenPipeError

    assert recluster(spark, name, "k", depth=1, block_rows=1000, listener=gone).depth_after <= 2
