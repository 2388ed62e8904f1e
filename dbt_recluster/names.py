"""Names of tables: how they are written, and which of them mean the same table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.columns import quote_if_needed, unquote

_PART = r"`(?:[^`]|``)+`|\w+"
_NAME = re.compile(rf"\s*(?:{_PART})\s*(?:\.\s*(?:{_PART})\s*)*")

Parts = tuple[str, ...]


def name_parts(name: Any, of: str = "table") -> Parts:
    """Return the parts of a name such as ``lake.sales.orders``, without their backquotes.

    Raises:
        OptionError: It is no name ``of`` that kind. Nothing in it is passed over.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return tuple(map(unquote, re.findall(_PART, name)))
    raise OptionError(
        f"{name!r} is not the name of a {of}: its parts are joined by dots, and a part with other characters than "
        "letters, digits and _ stands in backquotes"
    )


def join_parts(parts: Sequence[str]) -> str:
    """Return the name with these parts, with backquotes where they are needed."""
    return ".".join(map(quote_if_needed, parts))


@dataclass(frozen=True)
class NameResolution:
    """Which table a name means to a connection, by Spark's rule.

    The first of several parts is a catalog if there is one of that name. Otherwise the name belongs to the current
    catalog. Whether two names that differ in case mean one table depends on the catalog.
    """

    current_catalog: Callable[[], str]
    is_catalog: Callable[[str], bool]
    is_one_table: Callable[[str, str], bool]

    def is_same(self, one: Parts, other: Parts) -> bool:
        """Whether two names of a namespace and a table, and perhaps a catalog, mean the same table."""
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
    """Return the parts as a catalog compares them that takes upper and lower case for one."""
    return tuple(part.casefold() for part in parts)
