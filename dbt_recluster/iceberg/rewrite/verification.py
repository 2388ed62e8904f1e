"""Verify that new files hold the rows of the files they replace, and that a commit changes no other row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dbt_recluster.exceptions import CommitFailedError, CommitMismatchError, MergeFailedError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.scan import ColumnCounts, column_counts, written_counts
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup
from dbt_recluster.iceberg.snapshots import Snapshot
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.names import join_parts, name_parts


def assign_files(
    table: IcebergTable, files: Sequence[Any], groups: Sequence[FileGroup]
) -> list[RewrittenGroup]:
    """Assign the new files of one job to the file groups that they replace, in the order that Spark wrote them in.

    If no file ends where the rows of a group do, that is a MergeFailedError.
    """
    rewritten = []
    remaining = iter(files)
    for group in groups:
        own: list[Any] = []
        rows, expected = 0, group.live_rows or 0
        while rows < expected and (file := next(remaining, None)) is not None:
            own.append(file)
            rows += int(file.recordCount())
        if rows != expected:
            raise _error(table, group, f"read {expected} rows and wrote {rows}")
        rewritten.append(RewrittenGroup(group, tuple(own)))
    if surplus := sum(int(file.recordCount()) for file in remaining):
        raise _error(table, groups[-1], f"wrote {surplus} rows that no block had")
    return rewritten


def verify_rewrite(table: IcebergTable, snapshot_id: int, groups: Sequence[RewrittenGroup]) -> None:
    """Raise a MergeFailedError if partitions or counts of values and NULLs are not those of the replaced files.

    In groups without deletes, counts are compared for each column that all files have them of, old and new.
    """
    for group in groups:
        # Not by equals(): Java compares bytes by their identity, and a dropped field of v1 may have another type.
        kind = table.java.specs().get(group.source.spec_id).partitionType()
        wrapper = table.iceberg.util.StructLikeWrapper.forType(kind)
        partition = wrapper.copyFor(group.source.partition)
        if not all(partition.equals(wrapper.copyFor(file.partition())) for file in group.files):
            raise _error(table, group.source, "wrote rows into another partition")
    comparable = [group for group in groups if group.files and not group.source.has_deletes]
    if not comparable:
        return
    columns = {field_id: path for path, _, field_id in table.primitive_fields()}
    old_paths = [file.path for group in comparable for file in group.source.files]
    old = column_counts(table, snapshot_id, old_paths)
    new = written_counts(table, [file for group in comparable for file in group.files])
    for group in comparable:
        before = [old[file.path] for file in group.source.files]
        after = [new[path] for path in group.paths]
        if difference := _difference(columns, before, after):
            raise _error(table, group.source, difference)


def verify_counts(before: Snapshot, after: Snapshot, groups: Sequence[RewrittenGroup]) -> None:
    """Raise a CommitFailedError if the counts of an uncommitted snapshot are not those of its rewrite."""
    if difference := _wrong_count(before, after, groups):
        raise CommitFailedError(
            f"the new snapshot would have {difference}. A file that the table lists more than once may be the reason"
        )


def verify_committed(
    table: IcebergTable, committed: IcebergTable, added: Mapping[int, Sequence[RewrittenGroup]]
) -> None:
    """Compare the counts of snapshots once more after their commit.

    If another commit comes after :func:`verify_counts`, Iceberg silently applies the changes again, to its snapshot.
    ``added`` has the groups that each snapshot replaces, by its id; ``committed`` is the table in a state that has
    these snapshots, of which expired ones are skipped.

    Raises:
        CommitMismatchError: They differ. No file is deleted, so the parent snapshot still has all rows.
    """
    for snapshot_id, groups in added.items():
        after = committed.snapshot(snapshot_id)
        if after is None or after.parent is None:
            continue
        if difference := _wrong_count(committed.snapshot(after.parent), after, groups):
            raise CommitMismatchError(_how_to_roll_back(table, after, after.parent, difference))


def _wrong_count(before: Snapshot | None, after: Snapshot, groups: Sequence[RewrittenGroup]) -> str | None:
    """Return the first count in a snapshot's summary that shows a change of other rows; a parent may lack totals."""
    # Iceberg counts a path that one manifest lists twice as one file removed and as one duplicate.
    expected = {"added-delete-files": 0, "deleted-duplicate-files": 0}
    for what, removed, added in (
        ("data-files", sum(len(g.source.files) for g in groups), sum(len(g.files) for g in groups)),
        ("records", sum(g.source.rows for g in groups), sum(g.rows for g in groups)),
    ):
        expected |= {f"added-{what}": added, f"deleted-{what}": removed}
        total = None if before is None else before.count(f"total-{what}")
        if total is not None and total + added >= removed:
            expected[f"total-{what}"] = total + added - removed
    for name, count in expected.items():
        if (actual := after.count(name) or 0) != count:
            return f"{name} = {actual}, which must be {count}"
    return None


def _how_to_roll_back(table: IcebergTable, after: Snapshot, parent: int, difference: str) -> str:
    name = name_parts(table.identifier)
    rollback = (
        f"CALL {join_parts(name[:1])}.system.rollback_to_snapshot({sql_literal(join_parts(name))}, {parent})"
    )
    if table.branch is not None:
        branch = f"{join_parts(name)} CREATE OR REPLACE BRANCH `{table.branch}`"
        rollback = f"ALTER TABLE {branch} AS OF VERSION {parent}"
    mismatch = (
        f"{table.name} was reclustered, but another writer committed at the same moment, and snapshot {after.id} has "
        f"{difference}. A file that the table lists more than once may be the reason. No file was deleted: snapshot "
        f"{parent} has the rows as they were"
    )
    undone = "what is committed after it is undone too"
    with suppress(Exception):  # the catalog may be gone by now
        table.refresh()
        if not table.has_snapshot(parent):
            return f"{mismatch}, but it has expired since, and its files may be deleted."
        ancestors = [snapshot.id for snapshot in table.snapshots()]
        later = ancestors[ancestors.index(after.id) + 1 :]
        if later:
            undone = f"it undoes {', '.join(map(str, later))} too, committed by others since: load that again"
    return f"{mismatch}. Until it expires, {rollback} restores it; {undone}."


def _difference(
    columns: Mapping[int, str], before: Sequence[ColumnCounts], after: Sequence[ColumnCounts]
) -> str | None:
    """Describe the first difference between files before and after, or return None."""
    for what, noun in (("values", "values"), ("nulls", "NULLs")):
        old, new = ([getattr(file, what) for file in files] for files in (before, after))
        for field_id in columns.keys() & set.intersection(*map(set, [*old, *new])):
            read, wrote = (sum(counts[field_id] for counts in files) for files in (old, new))
            if read != wrote:
                return f"read {read} {noun} in column {columns[field_id]} and wrote {wrote}"
    return None


def _error(table: IcebergTable, group: FileGroup, what: str) -> MergeFailedError:
    return MergeFailedError(
        f"Merging {len(group.files)} blocks of {table.name} {what}. This round changed nothing. It is a fault of "
        "dbt-recluster, or of the writer that counted the blocks' rows; please report it."
    )
