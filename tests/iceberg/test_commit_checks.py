"""Nothing is committed that has not been counted, and nothing that was written stays behind unnamed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tables import (
    Meanwhile,
    append,
    checksum,
    levels,
    list_again,
    local_path,
    make_table,
    metadata_file,
    orphans,
    rewrite_manifests,
    spark_settings,
    staged_sets,
    state,
    stays_as_it_is,
)

from dbt_recluster.api import recluster
from dbt_recluster.clustering.checkpoint import Checkpoint
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    CommitStateUnknownError,
    MergeFailedError,
)
from dbt_recluster.iceberg import commit
from dbt_recluster.iceberg.commit import RoundCommit
from dbt_recluster.iceberg.iceberg_table import IcebergTable, Transaction
from dbt_recluster.iceberg.rewrite.verification import Verifier
from dbt_recluster.names import table_lock

OPTIONS: dict[str, Any] = {"depth": 1, "block_rows": 1000}


def unused_manifests(spark: Any, name: str) -> set[str]:
    """The names of the table's manifests and manifest lists that no snapshot refers to."""
    table = IcebergTable.load(spark, name)
    known = {local_path(row[0]).name for row in spark.sql(f"select path from {name}.all_manifests").collect()}
    known |= {local_path(table.manifest_list(snapshot.id)).name for snapshot in table.snapshots()}
    directory = local_path(str(table.java.location())) / "metadata"
    return {path.name for path in directory.glob("*.avro")} - known


def commit_after(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any], then: Callable[[], Any] = lambda: None
) -> None:
    """Let another writer commit when a transaction is made and not yet sent, and after it has been sent."""
    send, left = IcebergTable.commit, [change]

    def change_and_send(table: IcebergTable, transaction: Any) -> None:
        if left:
            left.pop()()
        send(table, transaction)
        then()

    monkeypatch.setattr(IcebergTable, "commit", change_and_send)


@pytest.mark.alike
@pytest.mark.parametrize("manifests", ["one", "several", "others"])
def test_a_file_listed_again_before_the_commit_loses_no_row(spark: Any, schema: str, manifests: str) -> None:
    """Between the merge and the commit.

    Iceberg looks for a file in the manifest that it was read from. Where this one still lists it, and once only, the
    other listing stays, as it should. Otherwise both would go.
    """
    name = make_table(spark, schema, files=3)
    append(spark, name, 10_000, 3000, files=3)
    rows = checksum(spark, name)[0]

    def change() -> None:
        if manifests == "others":
            rewrite_manifests(spark, name)
        list_again(spark, name, "id = 1")
        if manifests == "one":
            rewrite_manifests(spark, name)

    meanwhile = Meanwhile("commit", change)
    if manifests == "several":
        assert recluster(spark, name, "k", listener=meanwhile, **OPTIONS).rounds
    else:
        wrong = r"deleted-(data-files = 7, which must be 6|duplicate-files = 1, which must be 0)"
        with pytest.raises(CommitFailedError, match=f"{wrong}.* changed nothing, and its new files are deleted"):
            recluster(spark, name, "k", listener=meanwhile, **OPTIONS)
    assert checksum(spark, name)[0] == rows + 1000
    assert orphans(spark, name) == set()
    assert unused_manifests(spark, name) == set()
    assert staged_sets(spark, name) == (0, 0)
    recluster(spark, name, "k", **OPTIONS)
    assert checksum(spark, name)[0] == rows + 1000


def test_a_concurrent_append_is_kept_when_iceberg_reapplies_the_transaction(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg applies the transaction again, to the table with the rows that have come."""
    name = make_table(spark, schema)
    commit_after(monkeypatch, lambda: append(spark, name, 10_000, 10))
    result = recluster(spark, name, "k", **OPTIONS)
    assert (len(result.rounds), result.rounds[0].blocks_in) == (1, 6)
    assert checksum(spark, name)[0] == 6010
    assert orphans(spark, name) == set()
    # The other commit took the sequence number that the new blocks would have had.
    assert [level > 0 for level in levels(spark, name)] == [False] + [True] * result.rounds[0].blocks_out


WRONG_COMMITS = [
    ("manifests first", "nothing"),
    pytest.param("manifests last", "nothing", marks=pytest.mark.exhaustive),
    ("manifests first", "another commit"),
    ("manifests first", "no answer"),
    ("manifests first", "an expiry"),
]


@pytest.mark.parametrize(("order", "follows"), WRONG_COMMITS)
def test_a_wrong_commit_is_told_with_the_statement_that_undoes_it(
    spark: Any, schema: str, hadoop_catalog: str, monkeypatch: pytest.MonkeyPatch, order: str, follows: str
) -> None:
    """Iceberg applies the transaction again, after another writer listed a file again, and removes both listings.

    Nobody counts before it is committed. It may be followed by another commit, the loss of the catalog's answer, or
    the expiry of the rows.
    """
    if order == "manifests first":
        name = make_table(spark, f"{hadoop_catalog}.a", files=3, name="`it's ``odd```")
        steps, wrong = [rewrite_manifests, list_again], "data-files = 7, which must be 6"
    else:
        name = make_table(spark, schema, files=3)
        steps, wrong = [list_again, rewrite_manifests], "duplicate-files = 1, which must be 0"
    append(spark, name, 10_000, 3000, files=3)
    made: list[tuple[int, int]] = []
    wrong_ids: list[int | None] = []

    def change() -> None:
        for step in steps:
            step(spark, name, *(["id = 1"] if step is list_again else []))
        made.append(checksum(spark, name))

    def follow() -> None:
        table = IcebergTable.load(spark, name)
        wrong_ids.append(table.snapshot_id)
        if follows == "another commit":
            append(spark, name, 20_000, 10)
        elif follows == "an expiry":
            expire = table.java.expireSnapshots().expireOlderThan(2**62).retainLast(1)
            expire.cleanExpiredFiles(False).commit()
        elif follows == "no answer":
            raise ValueError("no answer")

    with monkeypatch.context() as patch:
        commit_after(patch, change, follow)
        with pytest.raises(CommitMismatchError, match=f"deleted-{wrong}") as raised:
            recluster(spark, name, "k", **OPTIONS)
    error, last = str(raised.value), IcebergTable.load(spark, name).snapshot_id
    assert name in error
    assert str(wrong_ids[0]) in error
    assert (f"undoes {last} too" in error) == (follows == "another commit")
    spark.sql(f"refresh table {name}")
    assert checksum(spark, name)[0] == (6010 if follows == "another commit" else 6000)
    if follows == "an expiry":
        assert "CALL" not in error
        assert "has expired since" in error
        return
    (statement,) = re.findall(r"CALL .*?system\.rollback_to_snapshot\('.*', \d+\)", error)
    spark.sql(statement)
    assert checksum(spark, name) == made[0]
    assert recluster(spark, name, **OPTIONS).rounds
    assert checksum(spark, name) == made[0]


@pytest.mark.alike
@pytest.mark.parametrize("fault", ["another file is removed", "a new file is left out"])
def test_whatever_the_reason_a_table_that_would_lose_rows_is_not_committed(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    name = make_table(spark, schema, partitioned="truncate(3000, id)")
    replace = RoundCommit._replace

    def replace_with_a_fault(self: RoundCommit, rewrite: Any, group: Any, order: Any) -> None:
        replace(self, rewrite, group, order)
        if fault == "another file is removed":
            others = self.table.iceberg.expressions.Expressions.greaterThanOrEqual("id", 3000)
            tasks = self.table.java.newScan().filter(others).planFiles()
            rewrite.deleteFile(tasks.iterator().next().file())
        else:
            object.__setattr__(group, "files", (*group.files, group.files[0]))

    monkeypatch.setattr(RoundCommit, "_replace", replace_with_a_fault)
    with stays_as_it_is(spark, name), pytest.raises(CommitFailedError, match="which must be"):
        recluster(spark, name, "k", where="id < 3000", **OPTIONS)


@pytest.mark.alike
@pytest.mark.parametrize("totals", [{}, {"total-records": "many", "total-data-files": "-1"}, {"total-records": "1"}])
def test_snapshots_without_totals_are_reclustered(
    spark: Any, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, totals: dict[str, str]
) -> None:
    original = make_table(spark, schema, name="original")
    before = checksum(spark, original)
    metadata = json.loads(local_path(metadata_file(spark, original)).read_text())
    for snapshot in metadata["snapshots"]:
        summary = snapshot["summary"]
        snapshot["summary"] = {k: v for k, v in summary.items() if not k.startswith("total-")} | totals
    file = tmp_path / "v1.metadata.json"
    file.write_text(json.dumps(metadata))
    name = f"{schema}.t"
    # The procedure that does this wants the totals.
    package = IcebergTable.load(spark, original).iceberg
    catalog = package.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "spark_catalog")
    catalog.registerTable(package.catalog.TableIdentifier.parse(name), file.as_uri())
    assert recluster(spark, name, "k", **OPTIONS).rounds
    assert checksum(spark, name) == before
    append(spark, name, 10_000, 6000, files=6)

    def change() -> None:
        rewrite_manifests(spark, name)
        list_again(spark, name, "id = 10001")

    commit_after(monkeypatch, change)
    with pytest.raises(CommitMismatchError, match="deleted-data-files"):
        recluster(spark, name, **OPTIONS)


@pytest.mark.alike
@pytest.mark.parametrize("key", ["hilbert(k, id)", "k", ["v", "k"], "truncate(5, v)"], ids=str)
def test_session_settings_do_not_change_the_sql_of_a_merge(spark: Any, schema: str, key: Any) -> None:
    """Quoted names as regular expressions, and no columns that refer to earlier ones."""
    name = make_table(spark, schema, files=3, rows=200)
    before = checksum(spark, name)

    def settings() -> dict[str, str]:
        """Those of the session, without what Iceberg sets for itself."""
        rows = map(tuple, spark.sql("set").collect())
        return {name: value for name, value in rows if "_iceberg" not in name}

    names = {"parser.quotedRegexColumnNames": "true", "lateralColumnAlias.enableImplicitResolution": "false"}
    with spark_settings(spark, {f"spark.sql.{name}": value for name, value in names.items()}):
        unchanged = settings()
        assert recluster(spark, name, key, depth=1, block_rows=150).rounds
        assert settings() == unchanged
    assert checksum(spark, name) == before


STEPS: dict[str, tuple[Any, str]] = {
    "verify": (Verifier, "differences"),
    "plan what is left": (Checkpoint, "leaves_nothing"),
    "wait for the lock": (commit, "table_lock"),
    "begin": (Transaction, "begin"),
    "replace": (RoundCommit, "_replace"),
    "record the look": (Checkpoint, "properties"),
    "count": (commit, "verify_counts"),
    "send": (IcebergTable, "commit"),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_before_the_commit_leaves_no_unnamed_file(
    spark: Any,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
) -> None:
    """The files that were written are deleted; or named, where nobody can tell whether the catalog has them."""
    name = make_table(spark, schema, files=3)
    before, metadata = checksum(spark, name), state(spark, name)
    for step, (owner, function) in STEPS.items():
        called, left = getattr(owner, function), orphans(spark, name)

        def interrupt(*arguments: Any, called: Any = called, left: set[Path] = left, **named: Any) -> Any:
            if called in (Transaction.begin, table_lock) and orphans(spark, name) == left:
                return called(*arguments, **named)  # it is not merged yet
            raise error("now")

        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, function, interrupt)
            errors = (error, CommitFailedError, CommitStateUnknownError, MergeFailedError)
            with pytest.raises(errors) as e:
                recluster(spark, name, "k", **OPTIONS)
        assert e.type is error or error is ValueError, step
        kept = orphans(spark, name) - left
        assert bool(kept) == (step == "send"), step
        assert all(file.name in f"{e.value}{caplog.text}" for file in kept), step
        assert state(spark, name) == metadata, step
    assert checksum(spark, name) == before
    assert staged_sets(spark, name) == (0, 0)
