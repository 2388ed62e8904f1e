"""The cluster key: ordered columns or monotonic expressions of one column each, as a sort order holds them.

What users write in ``cluster_by`` is read here, without Spark, so that a mistake is an error before anything
runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from dbt_recluster.columns import Columns, base_type, decimal_scale, quote_if_needed, quote_path
from dbt_recluster.exceptions import ClusterKeyError

ALLOWED = (
    "a column, days(ts), hours(ts), months(ts), years(ts), truncate(n, c), to_date(ts), cast(ts as date), "
    "date_trunc('hour' | 'day' | 'month' | 'year', ts), substr(c, 1, n) or left(c, n)"
)

_PART = r"(?:`(?:[^`]|``)+`|(?!\d+(?:\W|$))\w+)"  # a number alone is no name
_COLUMN = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_CAST = re.compile(rf"({_COLUMN.pattern})\s+as\s+date", re.IGNORECASE)

_TRUNC_UNITS = {
    "hour": "hour",
    "day": "day",
    "dd": "day",
    "month": "month",
    "mon": "month",
    "mm": "month",
    "year": "year",
    "yyyy": "year",
    "yy": "year",
}
# Spark's functions of these names return a part of the time (the hour of the day), which is not monotonic.
_PARTS_OF_TIME = {"hour": "hours", "day": "days", "month": "months"}

_DATES = ("date", "timestamp", "timestamp_ntz")
_INTEGERS = ("tinyint", "smallint", "int", "integer", "bigint", "long")
# Iceberg's types with an order. Spark has no name for its uuid, which arrives as a string.
_ORDERED = (
    *("boolean", "float", "double", "decimal", "string", "varchar", "char", "binary"),
    *_DATES,
    *_INTEGERS,
)
_MAX_WIDTH = 2**31 - 1  # a Java int


@dataclass(frozen=True)
class KeyField:
    """One item of a cluster key.

    Attributes:
        column: The column's name; a field of a struct is written ``parent.child``.
        transform: One of Iceberg's: ``identity``, ``hour``, ``day``, ``month``, ``year`` or ``truncate``.
        width: The width of ``truncate``, else None.
        written: The text that it was read from, for errors.
    """

    column: str
    transform: str = "identity"
    width: int | None = None
    written: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the item as users write it, quoted where it has to be."""
        return self._render(".".join(quote_if_needed(part) for part in self.column.split(".")))

    def ddl(self) -> str:
        """Return the item for ``ALTER TABLE ... WRITE ORDERED BY``, its column quoted."""
        return self._render(quote_path(self.column))

    def description(self) -> str:
        """Return the item as Iceberg lists a sort order in ``SHOW TBLPROPERTIES``."""
        truncate = f"truncate({self.column}, {self.width})"
        return f"{truncate if self.transform == 'truncate' else self._render(self.column)} ASC NULLS FIRST"

    def order_by(self, spark_type: str) -> str:
        """Return a Spark SQL expression that orders rows as this item does.

        Days and longer spans are those of the session's time zone here and of UTC in Iceberg: the order
        differs, if at all, within the hours around midnight, which costs a little overlap and nothing else.
        """
        column = quote_path(self.column)
        if self.transform == "day":
            return f"cast({column} as date)"
        if self.transform in ("hour", "month", "year"):
            return f"date_trunc('{self.transform.upper()}', {column})"
        if self.transform == "truncate":
            if base_type(spark_type) == "decimal":
                # Iceberg truncates the unscaled number: a width of 50 is 0.50 in a decimal(10, 2).
                width = Decimal(self.width or 0).scaleb(-decimal_scale(spark_type))
                return f"{column} - pmod({column}, {width:f})"
            if base_type(spark_type) in _INTEGERS:
                return f"{column} - pmod({column}, {self.width})"
            return f"substr({column}, 1, {self.width})"
        return column

    def _render(self, column: str) -> str:
        if self.transform == "identity":
            return column
        if self.transform == "truncate":
            return f"truncate({self.width}, {column})"
        return f"{self.transform}s({column})"

    def check(self, columns: Columns) -> KeyField:
        """Return this item with its column spelled as the table does.

        Raises:
            ClusterKeyError: There is no such column, it lies within a list or a map, or its type has no order or
                cannot take the transform.
        """
        path = columns.find(self.column)
        if path is None:
            raise ClusterKeyError(f"cluster_by item {self.written or self}: {columns.why_not(self.column)}")
        spark_type = columns.types[path]
        base = base_type(spark_type)
        if base not in _ORDERED:
            raise ClusterKeyError(
                f"cluster_by item {self.written or self}: a column of type {spark_type} has no order to cluster by"
            )
        needs = {
            "hour": ("timestamp", "timestamp_ntz"),
            "day": _DATES,
            "month": _DATES,
            "year": _DATES,
            "truncate": (*_INTEGERS, "decimal", "string", "varchar", "char", "binary"),
        }.get(self.transform)
        if needs and base not in needs:
            raise ClusterKeyError(
                f"cluster_by item {self.written or self}: {path} is {spark_type}, and this expression needs "
                f"{' or '.join(needs)}"
            )
        return replace(self, column=path)


@dataclass(frozen=True)
class ClusterKey:
    """The items of a cluster key, most significant first."""

    fields: tuple[KeyField, ...]

    def __str__(self) -> str:
        """Return the key as users write it."""
        return ", ".join(map(str, self.fields))

    def ddl(self) -> str:
        """Return the key for ``ALTER TABLE ... WRITE ORDERED BY``."""
        return ", ".join(field.ddl() for field in self.fields)

    def description(self) -> str:
        """Return the key as Iceberg lists a sort order in ``SHOW TBLPROPERTIES``."""
        return ", ".join(field.description() for field in self.fields)

    def order_by(self, columns: Columns) -> str:
        """Return the items of an ``ORDER BY`` that sorts rows by this key (see :meth:`KeyField.order_by`)."""
        return ", ".join(field.order_by(columns.types.get(field.column, "")) for field in self.fields)

    def missing_from(self, columns: Columns) -> list[str]:
        """Return the top-level columns of the key that ``columns`` does not have."""
        return columns.missing([field.column.partition(".")[0] for field in self.fields])

    def check(self, columns: Columns) -> ClusterKey:
        """Return the key with its columns spelled as the table does.

        Raises:
            ClusterKeyError: As :meth:`KeyField.check`, or an item stands there twice.
        """
        return _without_repeats(tuple(field.check(columns) for field in self.fields))


def parse_cluster_key(cluster_by: str | Sequence[str]) -> ClusterKey:
    """Read ``cluster_by``: a string (items separated by commas) or a list of strings.

    Raises:
        ClusterKeyError: An item is empty, twice there, or not one of :data:`ALLOWED`; the type is neither.
    """
    if isinstance(cluster_by, str):
        items = split_arguments(cluster_by)
    elif isinstance(cluster_by, Sequence):
        items = list(cluster_by)
    else:
        raise ClusterKeyError(f"cluster_by must be a string or a list of strings, not {cluster_by!r}")
    for item in items:
        if not isinstance(item, str):
            raise ClusterKeyError(
                f"cluster_by must be a string or a list of strings; its item {item!r} is neither"
            )
    fields = tuple(_parse_item(item) for item in items)
    if not fields:
        raise ClusterKeyError("cluster_by is empty; name at least one column, or leave it out")
    return _without_repeats(fields)


def _without_repeats(fields: tuple[KeyField, ...]) -> ClusterKey:
    for position, item in enumerate(fields):
        if item in fields[:position]:
            raise ClusterKeyError(f"cluster_by names {item.written or item} twice")
    return ClusterKey(fields)


def split_arguments(text: str) -> list[str]:
    """Split at the commas outside parentheses and quotes; an empty text has no arguments."""
    if not text.strip():
        return []
    parts, start, depth, quote = [], 0, 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _parse_item(item: str) -> KeyField:
    text = item.strip()
    if _COLUMN.fullmatch(text):
        return KeyField(_unquote(text))
    call = _CALL.fullmatch(text)
    field = _parse_call(call.group(1).lower(), call.group(2)) if call else None
    if field is None:
        raise ClusterKeyError(f"cluster_by item {text!r} is not supported. An item is {ALLOWED}.")
    return replace(field, written=text)


def _parse_call(function: str, inside: str) -> KeyField | None:
    """Return the key field of ``function(inside)``, or None when it is not one that is allowed."""
    arguments = [argument.strip() for argument in split_arguments(inside)]
    columns = [argument for argument in arguments if _COLUMN.fullmatch(argument)]
    if function == "cast":
        cast = _CAST.fullmatch(inside.strip())
        return KeyField(_unquote(cast.group(1)), "day") if cast else None
    if len(columns) != 1:
        return None
    column = _unquote(columns[0])
    others = [argument.strip("'\"").lower() for argument in arguments if argument != columns[0]]
    if not others:
        if function in ("hours", "days", "months", "years"):
            return KeyField(column, function[:-1])
        if function in ("to_date", "date"):
            return KeyField(column, "day")
        if function == "year":
            return KeyField(column, "year")
        if function in _PARTS_OF_TIME:
            raise ClusterKeyError(
                f"cluster_by item {function}({column}) is a part of the time that starts over, not an order of rows; "
                f"write {_PARTS_OF_TIME[function]}({column})"
            )
        return None
    if function in ("date_trunc", "trunc") and len(others) == 1 and others[0] in _TRUNC_UNITS:
        return KeyField(column, _TRUNC_UNITS[others[0]])
    return _parse_truncate(function, column, others)


def _parse_truncate(function: str, column: str, numbers: list[str]) -> KeyField | None:
    if not all(number.isdigit() for number in numbers):
        return None
    from_start = function in ("substr", "substring") and len(numbers) == 2 and numbers[0] in ("0", "1")
    if not from_start and not (function in ("truncate", "left") and len(numbers) == 1):
        return None
    width = int(numbers[-1])
    if width > _MAX_WIDTH:
        raise ClusterKeyError(f"cluster_by item {function}({column}): the width must be at most {_MAX_WIDTH}")
    return KeyField(column, "truncate", width) if width > 0 else None


def _unquote(column: str) -> str:
    parts = [
        part[1:-1].replace("``", "`") if part.startswith("`") else part for part in re.findall(_PART, column)
    ]
    if any("." in part for part in parts):
        # Iceberg and the properties that keep bounds name a nested field by dots, so this would name another.
        raise ClusterKeyError(
            f"cluster_by item {column}: a column with a dot in its name cannot be clustered by"
        )
    return ".".join(parts)
