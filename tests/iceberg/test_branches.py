"""Reclustering on a branch leaves main as it is, until the branch is published."""

from __future__ import annotations

from typing import Any

import pytest
from tables import Meanwhile, append, checksum, forget_checkpoints, make_table, orphans

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.table_properties import CHANGES, CHECKPOINT
from dbt_recluster.job.command_line import main as command
from dbt_recluster.maintenance import clustering_history, clustering_information, recluster

OPTIONS: dict[str, Any] = {"depth": 1, "block_rows": 1000}


def with_branch(spark: Any, schema: str, **options: Any) -> str:
    """Make a table whose main was clustered once, with a load after it, and a branch of that."""
    name = make_table(spark, schema, files=2, **options)
    assert recluster(spark, name, "k", **OPTIONS).rounds
    append(spark, name, 10_000, 4000, files=4)
    spark.sql(f"alter table {name} create branch audit")
    return name


def head(spark: Any, name: str) -> int | None:
    return IcebergTable.load(spark, name).snapshot_id


def levels_of(spark: Any, name: str, branch: str | None) -> list[int]:
    table = ClusteredTable(spark, name)
    blocks = (table if branch is None else table.on_branch(branch)).blocks().blocks
    return sorted(blocks.level.tolist())


@pytest.mark.thorough
@pytest.mark.parametrize("version", [2, 1])
def test_a_branch_is_reclustered_and_published(spark: Any, schema: str, version: int) -> None:
    name = with_branch(spark, schema, properties={"format-version": version})
    before, main = checksum(spark, name), head(spark, name)
    on_main = clustering_information(spark, name)
    planned = recluster(spark, name, branch="audit", dry_run=True, **OPTIONS)
    assert planned.plan is not None
    properties = IcebergTable.load(spark, name).properties
    result = recluster(spark, name, branch="audit", final=True, **OPTIONS)
    assert result.rounds
    assert result.branch == "audit"
    assert (head(spark, name), checksum(spark, name)) == (main, before)
    assert checksum(spark, f"{name} version as of 'audit'") == before
    of_main = {k: v for k, v in clustering_information(spark, name).items() if k != "levels"}
    assert of_main == {k: v for k, v in on_main.items() if k != "levels"}
    assert clustering_information(spark, name, branch="audit")["average_depth"] == result.depth_after <= 2
    # What is left to do in main is recorded as before, and its levels are still known.
    after = IcebergTable.load(spark, name).properties
    assert [after.get(p) for p in (CHANGES, CHECKPOINT)] == [properties.get(p) for p in (CHANGES, CHECKPOINT)]
    assert max(levels_of(spark, name, None)) > 0
    assert min(levels_of(spark, name, "audit")) > 0
    assert not recluster(spark, name, branch="audit", **OPTIONS).rounds
    spark.sql(f"call spark_catalog.system.fast_forward('{name}', 'main', 'audit')")
    forget_checkpoints()
    assert clustering_information(spark, name)["average_depth"] == result.depth_after
    following = recluster(spark, name, trigger="run", **OPTIONS)
    assert not following.rounds
    assert clustering_history(spark, name)[-1].is_recluster
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()


@pytest.mark.thorough
def test_main_and_branch_keep_their_levels(spark: Any, schema: str) -> None:
    """A commit to one of them keeps the levels of blocks that only the other still has."""
    name = with_branch(spark, schema)
    assert recluster(spark, name, branch="audit", **OPTIONS).rounds
    assert recluster(spark, name, **OPTIONS).rounds
    append(spark, name, 20_000, 4000, files=4)
    assert recluster(spark, name, **OPTIONS).rounds
    assert min(levels_of(spark, name, "audit")) > 0
    assert min(levels_of(spark, name, None)) > 0


@pytest.mark.thorough
def test_writers_to_main_are_no_conflict(spark: Any, schema: str) -> None:
    name = with_branch(spark, schema, properties={"write.delete.mode": "copy-on-write"})
    before = checksum(spark, name)

    def write() -> None:
        spark.sql(f"delete from {name} where id % 2 = 0")
        append(spark, name, 30_000, 10)

    meanwhile = Meanwhile("commit", write)
    result = recluster(spark, name, branch="audit", listener=meanwhile, **OPTIONS)
    assert meanwhile.errors == []
    assert (len(result.rounds), result.conflicts) == (1, 0)
    assert checksum(spark, f"{name} version as of 'audit'") == before
    assert checksum(spark, name)[0] == before[0] / 2 + 10
    deletes = Meanwhile("commit", lambda: spark.sql(f"delete from {name}.branch_audit where id % 2 = 0"))
    spark.sql(f"insert into {name}.branch_audit select id, k + 1, v from {name}")
    spark.sql(f"insert into {name}.branch_audit select id, k + 2, v from {name}")
    assert recluster(spark, name, branch="audit", listener=deletes, **OPTIONS).conflicts == 1


@pytest.mark.thorough
def test_what_a_branch_refuses(spark: Any, schema: str) -> None:
    name = with_branch(spark, schema)
    spark.sql(f"alter table {name} create tag audited")
    for branch in ("nowhere", "audited"):
        with pytest.raises(
            OptionError, match=rf"has no branch {branch}, only audit, main; to make one: alter"
        ):
            recluster(spark, name, branch=branch)
    with pytest.raises(OptionError, match="branch must be the name of a branch, not ''"):
        clustering_information(spark, name, branch="")
    with pytest.raises(ClusterKeyError, match=r"another sort order than v, and all its branches share it"):
        recluster(spark, name, "v", branch="audit")
    assert clustering_information(spark, name, "v", branch="audit")["cluster_key"] == "v"
    main = head(spark, name)
    assert recluster(spark, name, branch="main", **OPTIONS).rounds
    assert head(spark, name) != main


@pytest.mark.thorough
def test_a_curve_on_a_branch(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    key = ["hilbert(id, k)"]
    assert recluster(spark, name, key, final=True, **OPTIONS).rounds
    append(spark, name, 10_000, 6000, files=6)
    spark.sql(f"alter table {name} create branch audit")
    before, main = checksum(spark, name), head(spark, name)
    curve = {k: v for k, v in IcebergTable.load(spark, name).properties.items() if "recluster.curve" in k}
    assert recluster(spark, name, branch="audit", final=True, **OPTIONS).rounds
    after = IcebergTable.load(spark, name).properties
    assert {k: v for k, v in after.items() if "recluster.curve" in k} == curve
    assert (head(spark, name), checksum(spark, name)) == (main, before)
    spark.sql(f"call spark_catalog.system.fast_forward('{name}', 'main', 'audit')")
    assert not recluster(spark, name, **OPTIONS).rounds
    assert checksum(spark, name) == before


@pytest.mark.thorough
def test_the_command_and_a_session_that_writes_to_the_branch(
    spark: Any, schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write-audit-publish: the session's own writes go to the branch."""
    name = with_branch(spark, schema, properties={"write.wap.enabled": "true"})
    main = head(spark, name)
    spark.conf.set("spark.wap.branch", "audit")
    try:
        append(spark, name, 20_000, 1000, files=2)
        for operation in ("recluster", "information"):
            given = ("--depth", "1", "--block-rows", "1000") if operation == "recluster" else ()
            assert command([operation, name, "--branch", "audit", *given]) == 0
            assert f"{name}, branch audit" in capsys.readouterr().out
        assert clustering_information(spark, name, branch="audit")["average_depth"] <= 2
        assert checksum(spark, f"{name} version as of 'audit'")[0] == 7000
    finally:
        spark.conf.unset("spark.wap.branch")
    assert head(spark, name) == main
    assert checksum(spark, name)[0] == 6000
    assert len(ClusteredTable(spark, name).on_branch("audit").iceberg.sample(["id"], 7000, 7000)) == 7000
