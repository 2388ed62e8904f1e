"""Names in Spark SQL."""

from __future__ import annotations

import re


def quote(name: str) -> str:
    """Return one name in backquotes, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def quote_path(column: str) -> str:
    """Return a column, or a field of one as ``column.field``, with each part in backquotes."""
    return ".".join(map(quote, column.split(".")))


def quote_if_needed(name: str) -> str:
    """Return one name as people write it: in backquotes only where it would not be read as a name."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else quote(name)
