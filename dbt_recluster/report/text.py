"""Reports as lines and tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dbt_recluster.orphans import orphan_note

if TYPE_CHECKING:
    from dbt_recluster.maintenance import ReclusterReport

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def summary(report: ReclusterReport) -> str:
    """Return what was done in one phrase: ``reclustered 42 blocks into 12, depth 8.3 -> 1.4``."""
    return (
        f"reclustered {report.blocks_in} blocks into {report.blocks_out}, "
        f"depth {report.depth_before:.1f} -> {report.depth_after:.1f}"
    )


def recluster_line(report: ReclusterReport) -> str:
    """Return one line: the table, counts, bytes, depths and seconds."""
    if report.plan is not None:
        sets = report.plan.sets
        if not sets:
            return f"{report.table}: nothing to do, {report.reason}"
        blocks = sum(each.blocks for each in sets)
        what = f"{blocks} blocks ({size(report.plan.bytes)}) in {plural(len(sets), 'set')}"
        return f"{report.table}: would recluster {what}, since {report.reason}"
    if report.suspended and not report.rounds:
        resume = f"dbt run-operation resume_recluster --args '{{table: {report.table}}}'"
        return f"{report.table}: not reclustered, {report.reason}; to resume: {resume}"
    if not report.rounds:
        return f"{report.table}: nothing to do, {report.reason}"
    rounds = f" in {len(report.rounds)} rounds" if len(report.rounds) > 1 else ""
    line = f"{report.table}: {summary(report)}, {size(report.bytes_in)} rewritten{rounds} in {report.seconds:.1f}s"
    return f"{line}. {orphan_note(report.table, report.orphans)}" if report.orphans else line


def plan_table(report: ReclusterReport) -> str:
    """Return the plan of a dry run as a table, one line a block set, and its totals; empty when nothing is to do."""
    found = report.plan
    if found is None or not found.sets:
        return ""
    rows = [
        (
            str(number),
            f"{each.level} -> {each.new_level}",
            str(each.blocks),
            str(each.expected_blocks),
            f"{each.rows:,}",
            size(each.bytes),
            f"{each.lower} to {each.upper}",
            str(each.depth),
            str(each.expected_depth),
        )
        for number, each in enumerate(found.sets, start=1)
    ]
    header = ("set", "level", "blocks", "into", "rows", "size", report.cluster_key, "depth", "after")
    seconds = (
        "how long is not known, since the snapshots hold no recluster of this table"
        if found.estimated_seconds is None
        else f"about {found.estimated_seconds:.1f} s at the speed of this table's earlier reclusters"
    )
    total = (
        f"total: {size(found.bytes)}, {found.rows:,} rows, {seconds}; "
        f"average depth {report.depth_before:.1f} -> {found.expected_depth:.1f} expected"
    )
    return f"{table(header, rows)}\n{total}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns under a header, numbers to the right."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def size(count: int) -> str:
    """Return a number of bytes in the unit that reads best: ``1.4 GB``."""
    unit, one = unit_of(count)
    return f"{count} bytes" if one == 1 else f"{count / one:.1f} {unit}"


def unit_of(count: int) -> tuple[str, int]:
    """Return the unit that a number of bytes reads best in, and its bytes."""
    power = 0
    while count / 1024**power >= 1024 and power < len(_UNITS) - 1:
        power += 1
    return _UNITS[power], 1024**power


def plural(count: int, noun: str) -> str:
    """Return ``1 set`` or ``3 sets``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
