"""The cluster key: ordered columns or monotonic expressions of one column each, as a sort order holds them.

What users write in ``cluster_by`` is read here, without Spark, so that a mistake is an error before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dbt_recluster.exceptions import ClusterKeyError, KeyTypeError
from dbt_recluster.key.columns import (
    Columns,
    base_type,
    quote_if_needed,
    quote_path,
    split_at_commas,
    unquote,
)
from dbt_recluster.key.transforms import ORDERED, TRANSFORMS, FunctionCall, Transform

ALLOWED = ", ".join(example for transform in TRANSFORMS for example in transform.written) + ", hilbert(a, b)"
MOST_CURVE_COLUMNS = 4

_CURVES = ("hilbert", "zorder")

_PART = r"(?:`(?:[^`]|``)+`|(?!\d+(?:\W|$))\w+)"  # a number alone is no name
_COLUMN = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_CAST = re.compile(rf"({_COLUMN.pattern})\s+as\s+(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class KeyField:
    """One item of a cluster key.

    Attributes:
        column: The column's name; a field of a struct is written ``parent.child``.
        transform: The function of it that the key has.
        written: The text that it was read from, for errors.
    """

    column: str
    transform: Transform = Transform()  # noqa: RUF009 -- it is frozen
    written: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the item as users write it, quoted where it has to be."""
        return self.transform.text(".".join(quote_if_needed(part) for part in self.column.split(".")))

    def check(self, columns: Columns) -> KeyField:
        """Return this item with its column spelled as the table does.

        Raises:
            ClusterKeyError: There is no such column, it lies within a list or a map, or its type has no order or
                cannot take the transform.
        """
        path = columns.find(self.column)
        spark_type = columns.types.get(path or "", "")
        if path is None:
            why = columns.why_not(self.column)
        elif base_type(spark_type) not in ORDERED:
            raise KeyTypeError(
                f"cluster_by item {self.written or self}: a column of type {spark_type} has no order to cluster by"
            )
        elif base_type(spark_type) not in self.transform.types:
            why = f"{path} is {spark_type}, and this expression needs {' or '.join(self.transform.types)}"
        else:
            return replace(self, column=path)
        raise ClusterKeyError(f"cluster_by item {self.written or self}: {why}")


@dataclass(frozen=True)
class ClusterKey:
    """The items of a cluster key, most significant first.

    Attributes:
        fields: The columns of all items, leading ones before those of a curve.
        curve: How many of the last fields lie on a Hilbert curve, which gives them equal weight: 0, or 2 to 4.
        called: What the user called the curve.
    """

    fields: tuple[KeyField, ...]
    curve: int = 0
    called: str = field(default="hilbert", compare=False)

    def __str__(self) -> str:
        """Return the key as users write it."""
        items = list(map(str, self.leading))
        if self.curve:
            items.append(f"hilbert({', '.join(map(str, self.on_curve))})")
        return ", ".join(items)

    @property
    def leading(self) -> tuple[KeyField, ...]:
        """The fields that sort rows before a curve does: all of them if there is none."""
        return self.fields[: len(self.fields) - self.curve]

    @property
    def on_curve(self) -> tuple[KeyField, ...]:
        """The fields of the curve; none if there is none."""
        return self.fields[len(self.fields) - self.curve :]

    @property
    def note(self) -> str | None:
        """What to tell the user of the curve, or None."""
        if not self.curve or self.called == "hilbert":
            return None
        return f"{self.called} is taken for hilbert, so the cluster key is {self}"

    def ddl(self) -> str:
        """Return what a sort order can have of the key for ``ALTER TABLE ... WRITE ORDERED BY``; empty if nothing."""
        return ", ".join(field.transform.text(quote_path(field.column)) for field in self.leading)

    def description(self) -> str:
        """Return the same as Iceberg lists a sort order in ``SHOW TBLPROPERTIES``."""
        return ", ".join(field.transform.description(field.column) for field in self.leading)

    def order_by(self, columns: Columns) -> str:
        """Return an ``ORDER BY`` list that sorts rows by the leading fields (see :meth:`Transform.order_by`)."""
        return ", ".join(
            field.transform.order_by(quote_path(field.column), columns.types.get(field.column, ""))
            for field in self.leading
        )

    def missing_from(self, columns: Columns) -> list[str]:
        """Return the top-level columns of the key that ``columns`` does not have."""
        return columns.missing([field.column.partition(".")[0] for field in self.fields])

    def check(self, columns: Columns) -> ClusterKey:
        """Return the key with its columns spelled as the table does; see :meth:`KeyField.check`."""
        return _without_repeats(replace(self, fields=tuple(field.check(columns) for field in self.fields)))


def parse_cluster_key(cluster_by: str | Sequence[str]) -> ClusterKey:
    """Read ``cluster_by``: a string (items separated by commas) or a list of strings.

    Raises:
        ClusterKeyError: An item is empty, twice there, or not one of :data:`ALLOWED`; a curve is not the last item or
            has not two to four columns; the type is neither.
    """
    items = split_arguments(cluster_by) if isinstance(cluster_by, str) else cluster_by
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise ClusterKeyError(f"cluster_by must be a string or a list of strings, not {cluster_by!r}")
    if not items:
        raise ClusterKeyError("cluster_by is empty; name at least one column, or leave it out")
    *leading, last = items
    curve = _CALL.fullmatch(last.strip())
    if curve is None or curve.group(1).lower() not in _CURVES:
        return _without_repeats(ClusterKey(tuple(map(_parse_item, items))))
    inside = split_arguments(curve.group(2))
    if not 2 <= len(inside) <= MOST_CURVE_COLUMNS:
        raise ClusterKeyError(
            f"cluster_by item {last.strip()}: a curve has two to four columns, not {len(inside)}"
        )
    fields = tuple(map(_parse_item, [*leading, *inside]))
    return _without_repeats(ClusterKey(fields, len(inside), curve.group(1).lower()))


def _without_repeats(key: ClusterKey) -> ClusterKey:
    for position, item in enumerate(key.fields):
        before = key.fields[:position]
        if item in before:
            raise ClusterKeyError(f"cluster_by names {item.written or item} twice")
        if position >= len(key.leading) and item.column in [other.column for other in before]:
            raise ClusterKeyError(
                f"cluster_by names {item.column} twice, once on a curve; a curve needs other columns"
            )
    return key


def split_arguments(text: str) -> list[str]:
    """Split the arguments of a function; an empty text has none."""
    return split_at_commas(text) if text.strip() else []


def _parse_item(item: str) -> KeyField:
    text = item.strip()
    if _COLUMN.fullmatch(text):
        return KeyField(_unquote(text))
    call = _CALL.fullmatch(text)
    if call and call.group(1).lower() in _CURVES:
        raise ClusterKeyError(
            f"cluster_by item {text}: a curve is the last item of a key, and its columns are no curves themselves"
        )
    field = _parse_call(call.group(1).lower(), call.group(2)) if call else None
    if field is None:
        raise ClusterKeyError(f"cluster_by item {text!r} is not supported. An item is {ALLOWED}.")
    return replace(field, written=text)


def _parse_call(function: str, inside: str) -> KeyField | None:
    """Return the key field of ``function(inside)``, or None when it is not one that is allowed."""
    cast = _CAST.fullmatch(inside.strip()) if function == "cast" else None
    arguments = cast.groups() if cast else [argument.strip() for argument in split_arguments(inside)]
    columns = [argument for argument in arguments if _COLUMN.fullmatch(argument)]
    if cast:
        columns = columns[:1]
    if len(columns) != 1:
        return None
    column = _unquote(columns[0])
    others = [argument.strip("'\"").lower() for argument in arguments if argument != columns[0]]
    call = FunctionCall(function, column, others)
    transform = next(filter(None, (kind.parse(call) for kind in TRANSFORMS)), None)
    return None if transform is None else KeyField(column, transform)


def _unquote(column: str) -> str:
    parts = list(map(unquote, re.findall(_PART, column)))
    if any("." in part for part in parts):
        # Iceberg and the properties that keep bounds name a nested field by dots, so this would name another.
        raise ClusterKeyError(
            f"cluster_by item {column}: a column with a dot in its name cannot be clustered by"
        )
    return ".".join(parts)
