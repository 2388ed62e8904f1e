"""Files that a recluster had to leave behind: which they are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 10


def orphan_note(table: str, files: Sequence[str], *, kept: bool = False) -> str:
    """Return a sentence that names ``files``, or the first of many, and says how they go away.

    Args:
        table: The table.
        files: Files that could not be deleted.
        kept: They were kept, since the table may use them.
    """
    more = f" and {len(files) - _NAMED:,} more beside them" if len(files) > _NAMED else ""
    count = "1 new file" if len(files) == 1 else f"{len(files):,} new files"
    fate = ("is" if len(files) == 1 else "are") + " left" if kept else "could not be deleted"
    return (
        f"{count} {fate}: {', '.join(files[:_NAMED])}{more}. "
        f"Iceberg's remove_orphan_files(table => '{table}') removes what the table does not use, "
        "once it is three days old"
    )
