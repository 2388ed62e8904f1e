"""Names of tables: parts, quoting, which mean the same table, which ones a statement writes, and locks by name.

A table's lock serialises the commits of this process's threads to it. Without the metastore's locks (``method:
embedded``), Iceberg's Hive catalog checks the table's metadata pointer and then swaps it. Two threads between these two
steps would lose a commit. Other catalogs swap atomically, and for them a lock that is held only during a commit costs
nothing. That of a temporary view is held during a load, since threads share a session's views.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.columns import quote_if_needed, unquote

_PART = r"`(?:[^`]|``)+`|\w+"
NAME = re.compile(rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*")
_WRITES = re.compile(
    r"\b(?:insert\s+(?:into|overwrite)|merge\s+(?:with\s+schema\s+evolution\s+)?into|delete\s+from|update|truncate\s+table"
    r"|(?:create|replace|drop|alter)\s+(?:or\s+replace\s+)?(?:external\s+)?table)\s+"
    rf"(?:table\s+)?(?:if\s+(?:not\s+)?exists\s+)?({NAME.pattern})",
    re.IGNORECASE,
)
_STRING = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.)*)\"")
# Comments, and the strings and names that may hold what looks like one; raw strings know no escape.
_COMMENTS = re.compile(
    r"""( \b[rR](?:'[^']*' | "[^"]*") | '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" | `[^`]*` )
    | /\*.*?\*/ | --[^\n]*""",
    re.DOTALL | re.VERBOSE,
)

_locks: dict[str, threading.RLock] = {}
_registry = threading.Lock()

Parts = tuple[str, ...]


def name_parts(name: Any, of: str = "table") -> Parts:
    """Return the parts of a name such as ``lake.sales.orders``, unquoted; an OptionError if it is malformed."""
    if isinstance(name, str) and NAME.fullmatch(name.strip()):
        return tuple(map(unquote, re.findall(_PART, name)))
    raise OptionError(
        f"{name!r} is not the name of a {of}: its parts are joined by dots, and a part with other characters than "
        "letters, digits and _ stands in backquotes"
    )


def join_parts(parts: Sequence[str]) -> str:
    """Return the name with these parts, quoted where needed."""
    return ".".join(map(quote_if_needed, parts))


@dataclass(frozen=True)
class NameResolution:
    """Resolution of names by Spark's rule: the first of several parts is a catalog if there is one of that name.

    Otherwise the name belongs to the current catalog. Whether case matters depends on the catalog.
    """

    current_catalog: Callable[[], str]
    is_catalog: Callable[[str], bool]
    is_one_table: Callable[[str, str], bool]

    def is_same(self, one: Parts, other: Parts) -> bool:
        """Whether two names, with or without a catalog, mean the same table."""
        shorter, longer = sorted((one, other), key=len)
        full = shorter
        if len(longer) == len(shorter) + 1 and folded(longer[1:]) == folded(shorter):
            if self.is_catalog(shorter[0]):
                return False
            full = (self.current_catalog(), *shorter)
        if full == longer:
            return True
        return folded(full) == folded(longer) and self.is_one_table(join_parts(one), join_parts(other))


def folded(parts: Parts) -> Parts:
    """Return the parts as a catalog that ignores case compares them."""
    return tuple(part.casefold() for part in parts)


@contextmanager
def table_lock(*tables: str) -> Iterator[None]:
    """Hold the locks of tables (see :func:`canonical_name`) or of views, acquired in the order of their names."""
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
    text = _COMMENTS.sub(lambda match: match[1] or " ", sql)
    names = _WRITES.findall(text)
    if re.match(r"\s*call\b", text, re.IGNORECASE):
        # Any string may name the table of a procedure.
        names = [single or double for single, double in _STRING.findall(text)]
    return [canonical_name(name) for name in names if NAME.fullmatch(name.strip())]
