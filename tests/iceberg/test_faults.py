"""What a recluster that fails leaves behind: the table as it was, and an error that says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from tables import checksum, make_table, orphans, staged_sets

from dbt_recluster.iceberg import merge
from dbt_recluster.maintenance import recluster


def test_a_merge_that_fails_leaves_no_files(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(spark, schema, partitioned="truncate(500, k)")
    before = checksum(spark, name)
    written: list[Any] = []

    def interrupted(table: Any, each: Any, merged: Any) -> None:
        written.extend(merged.files)
        raise KeyboardInterrupt

    monkeypatch.setattr(merge, "_check_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recluster(spark, name, "k", depth=1, block_rows=1000)
    assert written
    assert orphans(spark, name) == set()
    assert checksum(spark, name) == before
    assert staged_sets(spark, name) == (0, 0)
