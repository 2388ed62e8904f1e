"""The results of maintenance as text for people: one line for each thing done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt_recluster.text import count_noun, moment, size

_MOST_FILES = 20


def done(values: Mapping[str, Any]) -> str:
    """Write what one task did to a table, or would do."""
    return f"{values['table']}: {_TASKS[values['task']](values)}"


def maintained(values: Mapping[str, Any]) -> str:
    """Write what was due, on one line."""
    if not values["done"]:
        return f"{values['table']}: nothing to do"
    return f"{values['table']}: " + "; ".join(_TASKS[task["task"]](task) for task in values["done"])


def _expired(values: Mapping[str, Any]) -> str:
    kept = count_noun(values["kept"], "snapshot")
    if not values["snapshots"] and not values["refs"]:
        return f"no snapshot to expire, {kept} kept"
    snapshots = count_noun(values["snapshots"], "snapshot")
    refs = f" and the tags and branches {', '.join(values['refs'])}" if values["refs"] else ""
    what = f"{'would expire' if values['dry_run'] else 'expired'} {snapshots}{refs}"
    if values["files"] is not None:
        size_of = "" if values["bytes"] is None else f" ({size(values['bytes'])})"
        verb = "free" if values["dry_run"] else "freed"
        what = f"{what} and {verb} {count_noun(values['files'], 'file')}{size_of}"
    return f"{what}; history begins at {moment(values['kept_since'])} UTC, {kept} kept"


def _orphans(values: Mapping[str, Any]) -> str:
    files = values["files"]
    before = f"older than {moment(values['older_than'])} UTC"
    if not files:
        return f"no orphan file {before}"
    verb = "would remove" if values["dry_run"] else "removed"
    more = len(files) - _MOST_FILES
    named = [f"  {file}" for file in files[:_MOST_FILES]] + ([f"  and {more:,} more"] if more > 0 else [])
    hint = "; dry_run: false removes them" if values["dry_run"] else ""
    return "\n".join([f"{verb} {count_noun(len(files), 'orphan file')} {before}{hint}", *named])


def _manifests(values: Mapping[str, Any]) -> str:
    if not values["before"]:
        return "no manifest to rewrite"
    verb = "would rewrite" if values["dry_run"] else "rewrote"
    return f"{verb} {count_noun(values['before'], 'manifest')} into {values['after']:,}"


def _position_deletes(values: Mapping[str, Any]) -> str:
    if not values["before"]:
        return "no position delete file to rewrite"
    if values["dry_run"]:
        return f"would look at {count_noun(values['before'], 'position delete file')} of one partition"
    return f"rewrote {count_noun(values['before'], 'position delete file')} into {values['after']:,}"


_TASKS = {
    "expire_snapshots": _expired,
    "remove_orphan_files": _orphans,
    "rewrite_manifests": _manifests,
    "rewrite_position_delete_files": _position_deletes,
}
