"""Names that match a pattern of SQL's ``LIKE``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARTS = re.compile(r"\\(?P<literal>.)|(?P<any>%)|(?P<one>_)|(?P<plain>[^%_\\]+|\\)", re.DOTALL)


def names_like(names: Iterable[str], pattern: str, exclude: str = "") -> list[str]:
    """Return the names like ``pattern`` and not like ``exclude``, in alphabetical order.

    As in ``ILIKE``, ``%`` stands for any text, ``_`` for one character, a backslash takes the next character as it is,
    and case does not matter.
    """
    wanted, unwanted = _as_regex(pattern), _as_regex(exclude)
    return sorted(name for name in names if wanted.fullmatch(name) and not unwanted.fullmatch(name))


def _as_regex(pattern: str) -> re.Pattern[str]:
    parts = []
    for part in _PARTS.finditer(pattern):
        kind = str(part.lastgroup)
        parts.append({"any": ".*", "one": "."}.get(kind) or re.escape(part[kind]))
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
