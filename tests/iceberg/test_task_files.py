"""The files of a write that fails after its tasks have written them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tables import (
    MERGE_METHODS,
    append,
    checksum,
    local_path,
    make_table,
    merge_method,
    orphans,
    staged_sets,
)

from dbt_recluster.clustering.result import Progress
from dbt_recluster.exceptions import MergeFailedError, OrphanFilesError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.file_groups import StagedFiles
from dbt_recluster.iceberg.rewrite.writing import TaskFiles
from dbt_recluster.maintenance import recluster

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned": "truncate(300, k), bucket(2, id)"},
    "object storage": {"properties": {"write.object-storage.enabled": "true"}},
    "partitioned object storage": {
        "partitioned": "truncate(300, k)",
        "properties": {"write.object-storage.enabled": "true", "format-version": "3"},
    },
    "ORC, v1": {"properties": {"write.format.default": "orc", "format-version": "1"}},
}


class AfterTheWriteError(Exception):
    """What a test fails a write with."""


def files_on_disk(spark: Any, name: str) -> set[Path]:
    root = local_path(IcebergTable.load(spark, name).java.location()) / "data"
    return {path for path in root.rglob("*") if path.is_file()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "method"),
    [
        # Where files lie does not depend on the method, and how tasks are numbered not on the layout.
        pytest.param(layout, method, marks=pytest.mark.exhaustive if number and method == "ranges" else ())
        for number, layout in enumerate(LAYOUTS)
        for method in MERGE_METHODS
    ],
)
def test_all_files_are_deleted(
    spark: Any, schema: str, layout: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_table(spark, schema, rows=500, **LAYOUTS[layout])
    before, on_disk = checksum(spark, name), files_on_disk(spark, name)
    rewrite, seen = StagedFiles.rewrite, []

    def fail(self: Any, table: Any, rows: Any, options: Mapping[str, str]) -> list[Any]:
        seen.extend(rewrite(self, table, rows, options))
        assert len(files_on_disk(spark, name)) > len(on_disk)
        raise AfterTheWriteError

    monkeypatch.setattr(StagedFiles, "rewrite", fail)
    with (
        merge_method(method),
        pytest.raises(
            MergeFailedError, match=r"a fault of dbt-recluster.*AfterTheWriteError.*changed nothing\.$"
        ),
    ):
        recluster(spark, name, "k", depth=1, block_rows=100)  # every partition has several blocks
    assert len(seen) > 1
    assert files_on_disk(spark, name) == on_disk
    assert checksum(spark, name) == before
    assert staged_sets(spark, name) == (0, 0)


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("partitioned", [None, "bucket(2, id)"])
def test_a_job_that_is_cancelled_leaves_no_files(spark: Any, schema: str, partitioned: str | None) -> None:
    name = make_table(spark, schema, files=4, rows=50_000, keys=1_000_000, partitioned=partitioned)
    before, on_disk, written = checksum(spark, name), len(files_on_disk(spark, name)), 0

    def cancel(progress: Progress) -> None:
        nonlocal written
        if progress.merged and not written and (new := len(files_on_disk(spark, name)) - on_disk):
            written = new
            threading.Thread(target=spark.sparkContext.cancelAllJobs).start()

    with pytest.raises(MergeFailedError, match="cancelled"):
        recluster(spark, name, "k", depth=1, block_rows=2_000, listener=cancel)
    assert written
    assert orphans(spark, name) == set()
    assert checksum(spark, name) == before
    # Nobody listens any more.
    append(spark, name, 1_000_000, 1000)
    assert recluster(spark, name, "k", depth=1).depth_after == 1


def test_files_that_are_not_known_are_said_to_be_left(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_table(spark, schema)

    def fail(*_: Any) -> Any:
        raise AfterTheWriteError

    monkeypatch.setattr(StagedFiles, "rewrite", fail)
    monkeypatch.setattr(TaskFiles, "paths", fail)
    with pytest.raises(
        OrphanFilesError, match=r"Files that Spark had begun may be left behind; remove_orphan_files"
    ):
        recluster(spark, name, "k", depth=1)
