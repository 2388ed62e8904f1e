"""``dbt run-operation``: the operations that clean up after a table's commits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dbt_recluster.adapter.arguments import parse_dry_run
from dbt_recluster.adapter.config import parse_recluster_maintain
from dbt_recluster.adapter.operation_runner import Open, Operation
from dbt_recluster.adapter.targets import EVERY_TABLE, Eligible, Node, Target
from dbt_recluster.clustering.housekeeping import as_dict
from dbt_recluster.clustering.values import parse_boolean, parse_moment, parse_row_count
from dbt_recluster.exceptions import OptionError
from dbt_recluster.report import housekeeping_text

# Java's greatest int.
_MOST_SNAPSHOTS = 2**31 - 1


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
    number = None if value is None else parse_row_count("retain_last", value)
    if number is not None and number > _MOST_SNAPSHOTS:
        raise OptionError(f"retain_last must be at most {_MOST_SNAPSHOTS:,}, not {value!r}")
    return number


def parse_force(value: Any) -> bool:
    """``force``: allow an ``older_than`` that other readers and writers may suffer from. Default false."""
    return parse_boolean("force", value, default=False)


def parse_orphans(value: Any) -> bool:
    """``orphans``: also remove orphan files. Default false."""
    return parse_boolean("orphans", value, default=False)


def parse_orphans_dry_run(value: Any) -> bool:
    """``dry_run`` of remove_orphan_files. Default true."""
    return parse_boolean("dry_run", value, default=True)


def _expire(
    open_table: Open,
    target: Target,
    *,
    older_than: datetime | None,
    retain_last: int | None,
    force: bool,
    dry_run: bool,
) -> dict[str, Any]:
    housekeeping = open_table(target.relation, None).housekeeping()
    return as_dict(housekeeping.expire_snapshots(older_than, retain_last, force=force, dry_run=dry_run))


def _remove_orphans(
    open_table: Open, target: Target, *, older_than: datetime | None, force: bool, dry_run: bool
) -> dict[str, Any]:
    housekeeping = open_table(target.relation, None).housekeeping()
    return as_dict(housekeeping.remove_orphan_files(older_than, force=force, dry_run=dry_run))


def _rewrite_manifests(open_table: Open, target: Target, dry_run: bool) -> dict[str, Any]:
    return as_dict(open_table(target.relation, None).housekeeping().rewrite_manifests(dry_run=dry_run))


def _rewrite_deletes(open_table: Open, target: Target, dry_run: bool) -> dict[str, Any]:
    housekeeping = open_table(target.relation, None).housekeeping()
    return as_dict(housekeeping.rewrite_position_delete_files(dry_run=dry_run))


def _maintain(open_table: Open, target: Target, orphans: bool, dry_run: bool) -> dict[str, Any]:
    done = open_table(target.relation, None).housekeeping().maintain(orphans=orphans, dry_run=dry_run)
    return {"table": target.relation, "done": [as_dict(task) for task in done]}


HOUSEKEEPING: dict[str, Operation] = {
    "expire_snapshots": Operation(
        _expire,
        housekeeping_text.done,
        needs_choice=True,
        eligible=EVERY_TABLE,
        parsers={
            "older_than": parse_older_than,
            "retain_last": parse_retain_last,
            "force": parse_force,
            "dry_run": parse_dry_run,
        },
    ),
    "remove_orphan_files": Operation(
        _remove_orphans,
        housekeeping_text.done,
        needs_choice=True,
        eligible=EVERY_TABLE,
        parsers={"older_than": parse_older_than, "force": parse_force, "dry_run": parse_orphans_dry_run},
    ),
    "rewrite_manifests": Operation(
        _rewrite_manifests,
        housekeeping_text.done,
        needs_choice=True,
        eligible=EVERY_TABLE,
        parsers={"dry_run": parse_dry_run},
    ),
    "rewrite_position_delete_files": Operation(
        _rewrite_deletes,
        housekeeping_text.done,
        needs_choice=True,
        eligible=EVERY_TABLE,
        parsers={"dry_run": parse_dry_run},
    ),
    "maintain": Operation(
        _maintain,
        housekeeping_text.maintained,
        eligible=MAINTAINED,
        parsers={"orphans": parse_orphans, "dry_run": parse_dry_run},
    ),
}
