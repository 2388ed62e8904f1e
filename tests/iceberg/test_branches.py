"""Reclustering on a branch leaves main as it is, until the branch is published."""

import re
from typing import Any

import pytest
from tables import Meanwhile, append, checksum, forget_checkpoints, make_table, orphans, spark_settings

from dbt_recluster.api import clustering_history, clustering_information, recluster
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import (
    ClusterKeyError,
    NotAnIcebergTableError,
    OptionError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.rewrite.sample import sample_rows
from dbt_recluster.iceberg.table_properties import CHANGES, CHECKPOINT, SETTLED

OPTIONS: dict[str, Any] = {"depth": 1, "block_rows": 1000}


def with_branch(spark: Any, schema: str, key: str = "k", **properties: Any) -> str:
    """Make a table whose main was clustered once, with a load after it, and a branch of that."""
    name = make_table(spark, schema, files=2, properties=properties)
    assert recluster(spark, name, key, **OPTIONS).rounds
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
@pytest.mark.parametrize(
    ("key", "version"), [("k", 2), ("hilbert(id, k)", 2), pytest.param("k", 1, marks=pytest.mark.exhaustive)]
)
def test_a_branch_is_reclustered_and_published(spark: Any, schema: str, key: str, version: int) -> None:
    name = with_branch(spark, schema, key, **{"format-version": version})
    before, main = checksum(spark, name), head(spark, name)
    on_main = clustering_information(spark, name)
    assert recluster(spark, name, branch="audit", dry_run=True, **OPTIONS).plan
    properties = IcebergTable.load(spark, name).properties
    result = recluster(spark, name, branch="audit", final=True, **OPTIONS)
    assert result.rounds
    assert result.branch == "audit"
    assert (head(spark, name), checksum(spark, name)) == (main, before)
    assert checksum(spark, f"{name} version as of 'audit'") == before
    after = IcebergTable.load(spark, name).properties
    moved = [each for each in properties if after.get(each) != properties[each] and "curve" in each]
    # Boundaries are shared, and know the loads of the branch: those of ids, which ascend, have moved at least.
    assert ("recluster.curve.id" in moved) == key.startswith("hilbert")
    if not moved:
        of_main = {k: v for k, v in clustering_information(spark, name).items() if k != "levels"}
        assert of_main == {k: v for k, v in on_main.items() if k != "levels"}
    on_branch = clustering_information(spark, name, branch="audit")["average_depth"]
    assert max(on_branch, result.depth_after) < on_main["average_depth"]
    # The checkpoint of main stays, and the levels of main are still known.
    assert all(after.get(each) == properties.get(each) for each in (CHANGES, CHECKPOINT))
    assert max(levels_of(spark, name, None)) > 0
    assert min(levels_of(spark, name, "audit")) > 0
    assert not recluster(spark, name, branch="audit", **OPTIONS).rounds
    spark.sql(f"call spark_catalog.system.fast_forward('{name}', 'main', 'audit')")
    forget_checkpoints()
    assert clustering_information(spark, name)["average_depth"] == on_branch
    assert not recluster(spark, name, trigger="run", **OPTIONS).rounds
    assert clustering_history(spark, name).entries[-1].is_recluster
    assert checksum(spark, name) == before
    assert orphans(spark, name) == set()


@pytest.mark.thorough
def test_a_recluster_of_a_branch_leaves_main_at_rest(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few values overlap after each merge, so only the record of settled blocks ends merging."""
    # How the rows of a value are shared among its blocks depends on the writer.
    monkeypatch.setattr(NativeWriter, "refusal", lambda *_: "off")
    name, options = f"{schema}.t", {"depth": 1, "block_rows": 64, "final": True}
    spark.sql(f"create table {name} (a int, b int) using iceberg")

    def load(target: str, seed: int) -> None:
        values = (f"pmod(hash(id, {seed}), 7) a", f"pmod(hash(id, -{seed}), 7) b")
        spark.range(512).selectExpr(*values).coalesce(1).writeTo(target).append()

    load(name, 0)
    recluster(spark, name, "hilbert(a, b)", **options)
    load(name, 1)
    done = recluster(spark, name, **options)
    assert clustering_history(spark, name).entries[-1].depth_after == done.depth_after
    spark.sql(f"alter table {name} create branch audit")
    load(f"{name}.branch_audit", 2)
    of_branch: dict[str, Any] = {**options, "branch": "audit", "depth": 1.1}
    assert recluster(spark, name, **of_branch).rounds
    assert recluster(spark, name, **options).rounds == []
    assert recluster(spark, name, **of_branch).rounds == []
    load(name, 3)
    assert recluster(spark, name, **options).rounds
    # The load has moved the boundaries, which branches share: the branch may be merged by them, once.
    recluster(spark, name, **of_branch)
    assert recluster(spark, name, **of_branch).rounds == []
    IcebergTable.load(spark, name).set_property(SETTLED, None)
    assert all(recluster(spark, name, dry_run=True, **each).plan.sets for each in (options, of_branch))


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
    name = with_branch(spark, schema, **{"write.delete.mode": "copy-on-write"})
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
def test_a_missing_branch_or_a_tag_is_refused(spark: Any, schema: str) -> None:
    name = with_branch(spark, schema)
    spark.sql(f"alter table {name} create tag audited")
    for branch in ("nowhere", "audited"):
        with pytest.raises(OptionError, match=rf"has no branch {branch}, only audit, main; to make one: alter"):
            recluster(spark, name, branch=branch)
    with pytest.raises(OptionError, match="branch must be the name of a branch, not ''"):
        clustering_information(spark, name, branch="")
    with pytest.raises(ClusterKeyError, match=r"another sort order than v, and all its branches share it"):
        recluster(spark, name, "v", branch="audit")
    assert clustering_information(spark, name, "v", branch="audit")["cluster_key"] == "v"
    main = head(spark, name)
    assert recluster(spark, name, branch="main", **OPTIONS).rounds
    assert head(spark, name) != main


MADE_ANEW = "create or replace table {} using iceberg as select 1L as id, "


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("alter table {} drop column v", "v (string, now dropped)"),
        (f"{MADE_ANEW} 'x' as k, 'y' as v", "k (int, now string)"),
        (f"{MADE_ANEW} 2 as k, 'y' as w", "v (string, now dropped)"),
    ],
)
def test_a_branch_of_another_schema_is_refused(spark: Any, schema: str, change: str, lost: str) -> None:
    """Iceberg reads a branch by the table's schema: a recluster would lose columns, or fail on their types."""
    name = with_branch(spark, schema)
    spark.sql(change.format(name))
    before = IcebergTable.load(spark, name).on_branch("audit").snapshot_id
    with pytest.raises(UnsupportedTableError, match=rf"branch audit: .* of another schema: {re.escape(lost)}"):
        recluster(spark, name, "k", branch="audit", **OPTIONS)
    assert IcebergTable.load(spark, name).on_branch("audit").snapshot_id == before


def test_a_branch_is_reclustered_after_compatible_schema_changes(spark: Any, schema: str) -> None:
    name = with_branch(spark, schema)
    before = checksum(spark, name)[0]
    spark.sql(f"alter table {name} add column w int")
    spark.sql(f"alter table {name} rename column v to u")
    spark.sql(f"alter table {name} alter column k type bigint")
    assert recluster(spark, name, branch="audit", **OPTIONS).rounds
    assert checksum(spark, f"{name} version as of 'audit'")[0] == before


def test_a_table_rolled_back_to_another_schema_is_refused(spark: Any, schema: str) -> None:
    name = with_branch(spark, schema)
    main = head(spark, name)
    spark.sql(f"{MADE_ANEW} 'x' as k".format(name))
    spark.sql(f"call spark_catalog.system.set_current_snapshot('{name}', {main})")
    with pytest.raises(UnsupportedTableError, match=r"of another schema: k \(int, now string\)"):
        recluster(spark, name, "k", **OPTIONS)
    assert head(spark, name) == main


@pytest.mark.thorough
def test_the_command_and_a_session_that_writes_to_the_branch(spark: Any, schema: str, run: Any) -> None:
    """Write-audit-publish: the session's own writes go to the branch."""
    name = with_branch(spark, schema, **{"write.wap.enabled": "true"})
    main = head(spark, name)
    with spark_settings(spark, {"spark.wap.branch": "audit"}):
        append(spark, name, 20_000, 1000, files=2)
        with pytest.raises(NotAnIcebergTableError, match=r"spark\.wap\.branch sends .* to branch audit"):
            recluster(spark, name)
        for command in (("recluster", "--depth", "1", "--block-rows", "1000"), ("information",)):
            code, out, _ = run(*command, name, "--branch", "audit")
            assert (code, f"{name}, branch audit" in out) == (0, True)
        assert clustering_information(spark, name, branch="audit")["average_depth"] <= 2
        assert checksum(spark, f"{name} version as of 'audit'")[0] == 7000
    assert head(spark, name) == main
    assert checksum(spark, name)[0] == 6000
    assert len(sample_rows(IcebergTable.load(spark, name).on_branch("audit"), ["id"], 7000, 7000)) == 7000
