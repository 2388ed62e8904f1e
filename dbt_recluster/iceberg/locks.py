"""Locks that serialise the commits of this process's threads to one table.

Iceberg's Hive catalog without the metastore's locks (``method: embedded``) checks that the table has not changed and
then swaps its metadata pointer. Two threads between these two steps would lose one commit. With catalogs that swap
atomically the lock costs nothing, because it is held only during a commit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dbt_recluster.names import name_parts

_locks: dict[str, threading.RLock] = {}
_registry = threading.Lock()

_IDENTIFIER = r"((?:`(?:[^`]|``)+`|[\w]+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|[\w]+))*)"
_WRITES = re.compile(
    r"\b(?:insert\s+(?:into|overwrite)|merge\s+(?:with\s+schema\s+evolution\s+)?into|delete\s+from|update|truncate\s+table"
    r"|(?:create|replace|drop|alter)\s+(?:or\s+replace\s+)?(?:external\s+)?table)\s+"
    r"(?:table\s+)?(?:if\s+(?:not\s+)?exists\s+)?" + _IDENTIFIER,
    re.IGNORECASE,
)
# A procedure names its table in one of its strings; only the procedure knows which.
_CALL = re.compile(r"^\s*call\b", re.IGNORECASE)
_STRING = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.)*)\"")
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


@contextmanager
def table_lock(*tables: str) -> Iterator[None]:
    """Hold the locks of ``tables`` (see :func:`canonical_name`), always acquired in the same order."""
    with ExitStack() as held:
        for table in sorted(set(tables)):
            with _registry:
                lock = _locks.setdefault(table, threading.RLock())
            held.enter_context(lock)
        yield


def canonical_name(identifier: str) -> str:
    """Return the same spelling for every way to write a table's name: no quotes, lower case, schema and table only."""
    return ".".join(part.lower() for part in name_parts(identifier)[-2:])


def written_tables(sql: str) -> list[str]:
    """Return the canonical names of the tables that a statement may write.

    A string literal may add a name by mistake, which costs a moment of waiting and nothing else.
    """
    text = _COMMENTS.sub(" ", sql)
    if _CALL.match(text):
        strings = [single or double for single, double in _STRING.findall(text)]
        return [canonical_name(name) for name in strings if re.fullmatch(_IDENTIFIER, name.strip())]
    return [canonical_name(name) for name in _WRITES.findall(text)]
