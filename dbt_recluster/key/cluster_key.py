"""The cluster key: ordered columns or monotonic expressions of one column each.

It is parsed without Spark, so that a mistake in ``cluster_by`` is an error before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dbt_recluster.exceptions import ClusterKeyError, KeyTypeError
from dbt_recluster.key.columns import Columns, quote_if_needed, quote_path, split_at_commas, unquote
from dbt_recluster.key.transforms import TRANSFORMS, FunctionCall, Transform
from dbt_recluster.key.types import column_type

ALLOWED = ", ".join(example for transform in TRANSFORMS for example in transform.written) + ", hilbert(a, b)"

_CURVES = ("hilbert", "zorder")

_PART = r"(?:`(?:[^`]|``)+`|(?!\d+(?:\W|$))\w+)"  # a number alone is no name
_COLUMN = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_CAST = re.compile(rf"({_COLUMN.pattern})\s+as\s+(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class KeyField:
    """One item of a cluster key."""

    column: str  # or the struct field ``parent.child``
    transform: Transform = Transform()  # noqa: RUF009 -- it is frozen
    written: str | None = field(default=None, compare=False)  # the text that was parsed, for errors

    def __str__(self) -> str:  # as users write it
        return self.transform.text(".".join(quote_if_needed(part) for part in self.column.split(".")))

    def check(self, columns: Columns) -> KeyField:
        """Return the item with the column's case taken from the schema.

        Raises:
            ClusterKeyError: There is no such column, it is inside a list or a map, or its type has no order or does not
                fit the transform.
        """
        path, item = columns.find(self.column), f"cluster_by item {self.written or self}"
        if path is None:
            raise ClusterKeyError(f"{item}: {columns.why_not(self.column)}")
        kind = type(column_type(spark_type := columns.types[path]))
        if kind not in Transform.takes:
            raise KeyTypeError(f"{item}: a column of type {spark_type} has no order to cluster by")
        if kind not in self.transform.takes:
            types = " or ".join(self.transform.types)
            raise ClusterKeyError(f"{item}: {path} is {spark_type}, and this expression needs {types}")
        return replace(self, column=path)


@dataclass(frozen=True)
class ClusterKey:
    """The items of a cluster key, most significant first."""

    fields: tuple[KeyField, ...]  # all columns, those of a curve last
    curve: int = 0  # how many of the last fields are on a Hilbert curve, with equal weight: 0, or 2 to 4
    called: str = field(default="hilbert", compare=False)  # the curve's name in ``cluster_by``

    def __str__(self) -> str:  # as users write it
        items = list(map(str, self.leading))
        if self.curve:
            items.append(f"hilbert({', '.join(map(str, self.on_curve))})")
        return ", ".join(items)

    @property
    def leading(self) -> tuple[KeyField, ...]:
        """The fields before the curve."""
        return self.fields[: len(self.fields) - self.curve]

    @property
    def on_curve(self) -> tuple[KeyField, ...]:
        """The fields of the curve."""
        return self.fields[len(self.fields) - self.curve :]

    @property
    def note(self) -> str | None:
        """A note for the user if the curve is not of the kind that was asked for, or None."""
        if not self.curve or self.called == "hilbert":
            return None
        return f"{self.called} is treated as hilbert, so the cluster key is {self}"

    def ddl(self) -> str:
        """Return the leading fields for ``ALTER TABLE ... WRITE ORDERED BY``."""
        return ", ".join(field.transform.text(quote_path(field.column)) for field in self.leading)

    def description(self) -> str:
        """Return the leading fields as the sort order in ``SHOW TBLPROPERTIES``."""
        return ", ".join(field.transform.description(field.column) for field in self.leading)

    def order_by(self, columns: Columns) -> str:
        """Return the leading fields, checked, as an ``ORDER BY`` list."""
        kinds = ((field, columns.types[field.column]) for field in self.leading)
        return ", ".join(field.transform.sql(quote_path(field.column), kind) for field, kind in kinds)

    def missing_from(self, columns: Columns) -> list[str]:
        """Return the top-level columns of the key that are not in ``columns``."""
        return columns.missing([field.column.partition(".")[0] for field in self.fields])

    def check(self, columns: Columns) -> ClusterKey:
        """Return the key with the columns' case taken from the schema; see :meth:`KeyField.check`."""
        return _without_repeats(replace(self, fields=tuple(field.check(columns) for field in self.fields)))


def parse_cluster_key(cluster_by: str | Sequence[str]) -> ClusterKey:
    """Parse ``cluster_by``: a string of items separated by commas, or a list of items.

    Raises:
        ClusterKeyError: An item is empty, repeated, or not one of :data:`ALLOWED`; a curve is not the last item or has
            not two to four columns; or the value is neither a string nor a list.
    """
    items = split_arguments(cluster_by) if isinstance(cluster_by, str) else cluster_by
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise ClusterKeyError(f"cluster_by must be a string or a list of strings, not {cluster_by!r}")
    if not items:
        raise ClusterKeyError("cluster_by is empty; name at least one column, or leave it out")
    if not all(map(str.strip, items)):
        raise ClusterKeyError(f"cluster_by {cluster_by!r} has an empty item")
    *leading, last = items
    curve = _CALL.fullmatch(last.strip())
    if curve is None or curve.group(1).lower() not in _CURVES:
        return _without_repeats(ClusterKey(tuple(map(_parse_item, items))))
    inside = split_arguments(curve.group(2))
    if not 2 <= (count := len(inside)) <= 4:
        raise ClusterKeyError(f"cluster_by item {last.strip()}: a curve has two to four columns, not {count}")
    fields = tuple(map(_parse_item, [*leading, *inside]))
    return _without_repeats(ClusterKey(fields, len(inside), curve.group(1).lower()))


def _without_repeats(key: ClusterKey) -> ClusterKey:
    for position, item in enumerate(key.fields):
        before = key.fields[:position]
        if item in before:
            raise ClusterKeyError(f"cluster_by names {item.written or item} twice")
        if position >= len(key.leading) and item.column in [other.column for other in before]:
            raise ClusterKeyError(f"cluster_by names {item.column} twice, once on a curve; a curve needs other columns")
    return key


def split_arguments(text: str) -> list[str]:
    """Split the arguments of a function."""
    return split_at_commas(text) if text.strip() else []


def _parse_item(item: str) -> KeyField:
    text = item.strip()
    if _COLUMN.fullmatch(text):
        return KeyField(_unquote(text))
    call = _CALL.fullmatch(text)
    if call and call.group(1).lower() in _CURVES:
        raise ClusterKeyError(f"cluster_by item {text}: a curve must be the last item of a key and cannot be nested")
    field = _parse_call(call.group(1).lower(), call.group(2)) if call else None
    if field is None:
        raise ClusterKeyError(f"cluster_by item {text!r} is not supported. An item is {ALLOWED}.")
    return replace(field, written=text)


def _parse_call(function: str, inside: str) -> KeyField | None:
    """Parse ``function(inside)``; None if it is not supported."""
    cast = _CAST.fullmatch(inside.strip()) if function == "cast" else None
    arguments = list(cast.groups()) if cast else [argument.strip() for argument in split_arguments(inside)]
    columns = [argument for argument in arguments if _COLUMN.fullmatch(argument)]
    if len(columns) != 1 and not cast:
        return None
    arguments.remove(columns[0])  # the first: the other date of cast(date as date) is a type
    call = FunctionCall(function, _unquote(columns[0]), [argument.strip("'\"").lower() for argument in arguments])
    transform = next(filter(None, (kind.parse(call) for kind in TRANSFORMS)), None)
    return None if transform is None else KeyField(call.column, transform)


def _unquote(column: str) -> str:
    parts = list(map(unquote, re.findall(_PART, column)))
    if any("." in part for part in parts):
        # Iceberg and the table's properties would take it for a nested field.
        raise ClusterKeyError(f"cluster_by item {column}: a column with a dot in its name cannot be clustered by")
    return ".".join(parts)
