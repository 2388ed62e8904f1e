"""``dbt run-operation``: the operations that clean up after a table's commits."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from dbt_recluster.adapter.arguments import Parser, parse_dry_run
from dbt_recluster.adapter.config import parse_recluster_maintain
from dbt_recluster.adapter.operation_runner import Open, Operation
from dbt_recluster.adapter.targets import EVERY_TABLE, Eligible, Node, Target
from dbt_recluster.clustering.values import parse_boolean, parse_moment, parse_snapshot_count
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.report import housekeeping_text


def _is_maintained(node: Node) -> bool:
    try:
        return parse_recluster_maintain(node["config"].get("recluster_maintain"))
    except OptionError:
        return True  # its turn tells what is wrong


MAINTAINED = Eligible(_is_maintained, "has recluster_maintain: true", by_default=True)


def parse_older_than(value: Any) -> datetime | None:
    """``older_than``: a date, a time (without a zone it is UTC) or a period such as ``7 days``."""
    return parse_moment("older_than", value)


def parse_retain_last(value: Any) -> int | None:
    """``retain_last``: how many snapshots stay, however old."""
    return parse_snapshot_count("retain_last", value)


def parse_force(value: Any) -> bool:
    """``force``: allow an ``older_than`` that other readers and writers may suffer from. Default false."""
    return parse_boolean("force", value, default=False)


def parse_orphans(value: Any) -> bool:
    """``orphans``: also remove orphan files. Default false."""
    return parse_boolean("orphans", value, default=False)


def parse_orphans_dry_run(value: Any) -> bool:
    """``dry_run`` of remove_orphan_files. Default true."""
    return parse_boolean("dry_run", value, default=True)


def _operation(task: str, **parsers: Parser) -> Operation:
    """Return the operation that calls the method of `Housekeeping` of this name with its arguments."""

    def run(open_table: Open, target: Target, catalog: CatalogFiles, **arguments: Any) -> dict[str, Any]:
        result = getattr(open_table(target.relation, None).housekeeping(catalog), task)(**arguments)
        values: dict[str, Any] = result.as_dict()
        return values

    return Operation(
        run,
        housekeeping_text.done,
        needs_choice=True,
        eligible=EVERY_TABLE,
        parsers=parsers,
        shared=lambda: {"catalog": CatalogFiles()},
    )


HOUSEKEEPING: dict[str, Operation] = {
    "expire_snapshots": _operation(
        "expire_snapshots",
        older_than=parse_older_than,
        retain_last=parse_retain_last,
        force=parse_force,
        dry_run=parse_dry_run,
    ),
    "remove_orphan_files": _operation(
        "remove_orphan_files", older_than=parse_older_than, force=parse_force, dry_run=parse_orphans_dry_run
    ),
    "rewrite_manifests": _operation("rewrite_manifests", dry_run=parse_dry_run),
    "rewrite_position_delete_files": _operation("rewrite_position_delete_files", dry_run=parse_dry_run),
    "maintain": replace(
        _operation("maintain", orphans=parse_orphans, dry_run=parse_dry_run),
        text=housekeeping_text.maintained,
        needs_choice=False,
        eligible=MAINTAINED,
    ),
}
