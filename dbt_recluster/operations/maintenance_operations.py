"""The operations that clean up: after a table's commits, and after dbt-recluster itself."""

from __future__ import annotations

from functools import wraps
from typing import Any

from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_moment, parse_snapshot_count
from dbt_recluster.iceberg import sort_order
from dbt_recluster.operations.declaration import METRICS, Argument, Call, OperationTable, flag
from dbt_recluster.operations.tables import EVERY_TABLE, MAINTAINED, Eligible
from dbt_recluster.report import operation_text

OPERATIONS = OperationTable()


def _declare(name: str, meaning: str, *arguments: Argument, eligible: Eligible = EVERY_TABLE) -> None:
    """Declare the method of :class:`TableMaintenance` of this name; the method takes all arguments but ``metrics``."""
    method = getattr(TableMaintenance, name)

    @wraps(method)
    def run(call: Call) -> Any:
        given = {each.name: call.arguments[each.name] for each in arguments if each is not METRICS}
        return method(TableMaintenance(call.opened.iceberg, catalog=call.catalog), **given)

    OPERATIONS.declare(
        lambda result, _: operation_text.maintained(result.as_dict()),
        *arguments,
        meaning=meaning,
        eligible=eligible,
        needs_choice=eligible is EVERY_TABLE,
    )(run)


def _older_than(meaning: str, otherwise: str) -> Argument:
    return Argument("older_than", parse_moment, meaning, "TIME", otherwise)


_declare(
    "expire_snapshots",
    "Expire the snapshots of tables, and delete the data and delete files that no other snapshot references, such as "
    "blocks that merges have replaced. Branches and tags stay. Expired snapshots leave history and time travel.",
    _older_than(
        "Snapshots committed before it expire: a date, a time (UTC unless it has a zone) or a period such as '7 days'. "
        "Within the past hour it is refused.",
        "the table's history.expire.max-snapshot-age-ms, else 5 days",
    ),
    Argument(
        "retain_last",
        parse_snapshot_count,
        "How many snapshots stay, however old.",
        "NUMBER",
        "the table's history.expire.min-snapshots-to-keep, else 1",
    ),
    flag(
        "force",
        "Allow an older_than within the past hour, though a running query may still read what is deleted.",
    ),
    flag("dry_run", "Report what would expire and the bytes freed; change nothing."),
)
_declare(
    "remove_orphan_files",
    "Name orphan files: files in the directories of tables that no snapshot references, left by writers that failed or "
    "were killed; with dry_run false, delete them. A file that any table of the catalog uses stays. Refused where "
    "another table writes to the same place, or a table of the catalog cannot be read.",
    _older_than(
        "Only files last changed before it: a date, a time (UTC unless it has a zone) or a period such as '7 days'. "
        "Less than 3 days is refused, since the files of a writer that has not committed yet look like orphans.",
        "3 days ago",
    ),
    flag(
        "force",
        "Allow an older_than of less than 3 days, and remove files that a dropped table left in the same directories.",
    ),
    flag("dry_run", "Only name the files.", default=True),
)
_declare(
    "rewrite_manifests",
    "Rewrite the manifests of tables, ordered by partition and of the size in commit.manifest.target-size-bytes, so "
    "that planning a query reads fewer. Data files stay as they are.",
    flag("dry_run", "Report how many manifests there are and would be at best; change nothing."),
)
_declare(
    "rewrite_position_delete_files",
    "Compact the small position delete files of tables, and drop those whose rows are gone. Iceberg leaves fewer than "
    "five in a partition as they are, and deletion vectors.",
    flag("dry_run", "Report the most that one partition has; change nothing."),
)
_declare(
    "maintain",
    "Do the maintenance that is due, with one line for each table: compact position delete files (five or more in a "
    "partition), rewrite manifests (ten or more, and four times as many as needed), expire snapshots by the tables' "
    "own settings and, with orphans, remove orphan files of more than three days.",
    flag(
        "orphans",
        "Also remove orphan files of more than three days, which lists all files in the table's directories.",
    ),
    flag("dry_run", "Report what is due; change nothing."),
    METRICS,
    eligible=MAINTAINED,
)


@OPERATIONS.declare(
    lambda values, _: operation_text.removed(values),
    flag("dry_run", "Report what would be removed; change nothing."),
    eligible=EVERY_TABLE,
    needs_choice=True,
)
def remove_clustering(call: Call) -> dict[str, Any]:
    """Strip tables of what dbt-recluster keeps in them: the sort order that their models have set, with its
    write.distribution-mode, and all properties recluster.*. Data, history and Iceberg's other properties stay. For
    tables that no model clusters any more, and before dbt-recluster is uninstalled.

    Returns:
        table: The table.
        dry_run: Whether nothing was changed.
        sort_order: The sort order that was cleared, or would be; None if there is none, or none that a model had set.
        properties: The properties that were removed, or would be.
    """
    dry_run = call.arguments["dry_run"]
    if call.target.options is not None and call.target.options.cluster_by is not None:
        call.warnings.append("its model has cluster_by, and sets it again at its next run")
    order, properties = sort_order.remove_clustering(call.opened.iceberg, dry_run=dry_run)
    if order is None and (kept := sort_order.sort_order_text(call.opened.iceberg)):
        call.warnings.append(
            f"its sort order {kept} is not a model's and stays; to clear it: "
            f"alter table {call.opened.name} write unordered"
        )
    return {"table": call.target.relation, "dry_run": dry_run, "sort_order": order, "properties": properties}
