"""Locks that serialise the commits of this process's threads to one table.

Without the metastore's locks (``method: embedded``), Iceberg's Hive catalog checks the table's metadata pointer and
then swaps it. Two threads between these two steps would lose a commit. Other catalogs swap atomically, and for them a
lock that is held only during a commit costs nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dbt_recluster.names import NAME, name_parts

_locks: dict[str, threading.RLock] = {}
_registry = threading.Lock()

_WRITES = re.compile(
    r"\b(?:insert\s+(?:into|overwrite)|merge\s+(?:with\s+schema\s+evolution\s+)?into|delete\s+from|update|truncate\s+table"
    r"|(?:create|replace|drop|alter)\s+(?:or\s+replace\s+)?(?:external\s+)?table)\s+"
    rf"(?:table\s+)?(?:if\s+(?:not\s+)?exists\s+)?({NAME.pattern})",
    re.IGNORECASE,
)
_STRING = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.)*)\"")
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


@contextmanager
def table_lock(*tables: str) -> Iterator[None]:
    """Hold the locks of tables (see :func:`canonical_name`), acquired in the order of their names."""
    with ExitStack() as held:
        for table in sorted(set(tables)):
            with _registry:
                lock = _locks.setdefault(table, threading.RLock())
            held.enter_context(lock)
        yield


def canonical_name(identifier: str) -> str:
    """Return schema and table of a name, unquoted and in lower case, the same for every spelling."""
    return ".".join(part.lower() for part in name_parts(identifier)[-2:])


def written_tables(sql: str) -> list[str]:
    """Return the canonical names of the tables that a statement may write; a string literal may add one by mistake."""
    text = _COMMENTS.sub(" ", sql)
    names = _WRITES.findall(text)
    if re.match(r"\s*call\b", text, re.IGNORECASE):
        # Any string may name the table of a procedure.
        names = [single or double for single, double in _STRING.findall(text)]
    return [canonical_name(name) for name in names if NAME.fullmatch(name.strip())]
