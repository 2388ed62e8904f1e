"""A table's columns and struct fields: their types, and their names and values in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any


@dataclass(frozen=True)
class Columns:
    """The columns of a table and how the session compares their names."""

    names: tuple[str, ...]  # top-level columns, in order
    # Spark's type of each column and struct field, by dotted path. Elements of lists and maps have no path, nor have
    # names with a dot, which Iceberg would read as a path.
    types: Mapping[str, str]
    case_sensitive: bool = False  # whether ``k`` and ``K`` are two columns (``spark.sql.caseSensitive``)

    @classmethod
    def parse(cls, types: Mapping[str, str], *, case_sensitive: bool = False) -> Columns:
        """Parse Spark's types as ``DESCRIBE`` prints them, such as ``struct<city:string,zip:int>``."""
        paths = dict(pair for name, spark_type in types.items() for pair in _paths(name, spark_type))
        return cls(tuple(types), paths, case_sensitive)

    def find(self, path: str) -> str | None:
        """Return ``path`` as the table spells it, or None if it is unknown or ambiguous."""
        matches = self._matches(path, self.types)
        return matches[0] if len(matches) == 1 else None

    def why_not(self, path: str) -> str:
        """Return the reason why :meth:`find` returns None."""
        if len(matches := self._matches(path, self.types)) > 1:
            return f"{path!r} is ambiguous: it may be {' or '.join(matches)}; set spark.sql.caseSensitive"
        if self._matches(path, [name for name in self.names if "." in name]):
            return f"{path!r} has a dot in its name, and such a column cannot be clustered by"
        parts = path.split(".")
        for count in range(len(parts) - 1, 0, -1):
            parent = self.find(".".join(parts[:count]))
            if parent is None:
                continue
            if base_type(self.types[parent]) != "struct":
                return f"{parent} is {self.types[parent]}, and only structs have fields to cluster by"
            if "more fields" in self.types[parent]:
                return f"Spark lists only some fields of {parent}; set spark.sql.debug.maxToStringFields to more"
            fields = [path[len(parent) + 1 :] for path in self.types if path.startswith(f"{parent}.")]
            direct = ", ".join(field for field in fields if "." not in field)
            return f"{parent} has no field {parts[count]!r}; its fields are {direct}"
        return f"there is no column {path!r}; the columns are {', '.join(self.names)}"

    def lacks(self, path: str) -> bool:
        """Whether there is no such column or struct field."""
        above = [name for name in (*self.types, *self.names) if f"{path}.".startswith(f"{name}.")]
        nearest = max(above, key=len, default=None)
        kind = self.types.get(nearest or "", "")
        is_listed = base_type(kind) == "struct" and "more fields" not in kind
        return nearest is None or (nearest != path and is_listed)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names without a top-level column."""
        return [name for name in names if not self._matches(name, self.names)]

    def _matches(self, path: str, among: Iterable[str]) -> list[str]:
        fold = str if self.case_sensitive else str.lower
        return [column for column in among if fold(column) == fold(path)]


def base_type(spark_type: str) -> str:
    """Return a Spark type without parameters: ``decimal`` for ``decimal(10,2)``."""
    return re.split(r"[(<]", spark_type, maxsplit=1)[0].strip().lower()


def decimal_digits(decimal_type: str) -> tuple[int, int]:
    """Return the precision and the scale of a type such as ``decimal(10,2)``, or Arrow's ``decimal128(10, 2)``."""
    digits = list(map(int, re.findall(r"-?\d+", decimal_type.partition("(")[2]))) or [10]
    return digits[0], digits[1] if len(digits) > 1 else 0


def quote(name: str) -> str:
    """Return one name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def unquote(name: str) -> str:
    """Return a name without backquotes."""
    quoted = len(name) > 1 and name.startswith("`") and name.endswith("`")
    return name[1:-1].replace("``", "`") if quoted else name


def quote_path(column: str) -> str:
    """Return a column, or a struct field written ``column.field``, with each part in backquotes."""
    return ".".join(map(quote, column.split(".")))


def quote_if_needed(name: str) -> str:
    """Return one name, in backquotes only if it needs them."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else quote(name)


def sql_literal(value: Any, spark_type: str | None = None) -> str:
    """Return a Python value as SQL, numbers with their Spark type if it is given, times as UTC or ``timestamp_ntz``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"timestamp_ntz'{value}'" if spark_type == "timestamp_ntz" else f"timestamp'{value}Z'"
    if isinstance(value, date):
        return f"date'{value}'"
    return f"cast('{value}' as {spark_type})" if spark_type else str(value)


def _paths(name: str, spark_type: str) -> Iterator[tuple[str, str]]:
    """Yield the path and type of a column and of its struct fields."""
    if "." in name:
        return
    yield name, spark_type
    if base_type(spark_type) != "struct":
        return
    inside = spark_type.strip()[len("struct") :].strip()[1:-1]
    for part in split_at_commas(inside, brackets="<>()", quotes=""):
        field, colon, field_type = part.partition(":")
        if colon:  # Spark truncates a very wide type to ``... 9 more fields``
            paths = _paths(field.strip().strip("`"), field_type.strip())
            yield from ((f"{name}.{path}", kind) for path, kind in paths)


def split_at_commas(text: str, *, brackets: str = "()", quotes: str = "'\"`") -> list[str]:
    """Split a text at the commas outside of brackets, given in pairs, and quotes."""
    parts, start, depth, quote = [], 0, 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in quotes:
            quote = character
        elif character in brackets:
            depth += -1 if brackets.index(character) % 2 else 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]
