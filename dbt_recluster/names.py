"""Names of tables: their parts, quoting, and which of them mean the same table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.columns import quote_if_needed, unquote

_PART = r"`(?:[^`]|``)+`|\w+"
NAME = re.compile(rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*")

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
