"""The filters of scans in the text of Spark's plans, as event logs hold them.

Iceberg writes them for people: names and texts are not escaped, dates are days and times are microseconds since 1970.
A filter that cannot be parsed restricts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial, reduce
from typing import Any

import pyarrow as pa

from dbt_recluster.iceberg.reads.column_ranges import ColumnRanges, expression_ranges
from dbt_recluster.iceberg.value_types import ValueType

_BRANCH, _FILTERS, _GROUPED = " (branch=", ") [filters=", ", groupedBy="
_OPERATORS = {"=": "eq", ">": "gt", ">=": "gt-eq", "<": "lt", "<=": "lt-eq"}
_COMPARISON = re.compile(r" (=|>=|>|<=|<|LIKE|IN) ")
_LITERAL = re.compile(
    r"X'(?P<hex>[0-9A-F]*)'|'(?P<text>.*?)'(?=, |\)| AND | OR |$)|(?P<plain>[^\s,)(']+)", re.S
)
_EPOCH = date(1970, 1, 1)


def scans(plan: str) -> Iterator[tuple[str, str]]:
    """Yield the table and the filters of each scan in the text of a physical plan."""
    for line in plan.split("\n"):
        table, _, rest = line.partition(_BRANCH)
        _, _, rest = rest.partition(_FILTERS)
        filters, is_scan, rest = rest.rpartition(_GROUPED)
        if is_scan and rest.rstrip().endswith("]"):
            yield table.strip(), filters


def logged_ranges(kinds: Mapping[str, ValueType], filters: str) -> list[ColumnRanges]:
    """Return the ranges of each alternative of a scan's filters; none if they restrict no column to a range."""
    logged = {column: replace(kind, read=partial(_value, kind)) for column, kind in kinds.items()}
    return expression_ranges(_Filters(kinds, filters).conjunction(), logged)


class _Malformed(Exception):
    """The text is not one that Iceberg writes."""


class _Filters:
    """Parses filters from left to right into Iceberg's JSON; an unknown filter is `True`."""

    def __init__(self, columns: Iterable[str], text: str) -> None:
        # The longest first: a name may begin with another one.
        self._columns = sorted(columns, key=len, reverse=True)
        self._text = text
        self._at = 0

    def conjunction(self) -> Any:
        """Parse filters with commas between them, all of which hold."""
        try:
            result = self._conjunction()
        except _Malformed:
            return True
        # A rest means that something before it was misread.
        return result if self._at == len(self._text) else True

    def _conjunction(self) -> Any:
        # For every open bracket the word between its operands, and these; the filters themselves come first.
        open_brackets: list[tuple[str, list[Any]]] = [("and", [])]
        while True:
            if self._take("("):
                open_brackets.append(("and", []))
                continue
            operand = self._predicate()
            while len(open_brackets) > 1 and self._take(")"):
                word, operands = open_brackets.pop()
                operand = _joined(word, [*operands, operand])
            word, operands = open_brackets[-1]
            operands.append(operand)
            if len(open_brackets) > 1:
                word = "and" if self._take(" AND ") else "or"
                if len(operands) > 1 or (word == "or" and not self._take(" OR ")):
                    raise _Malformed
                open_brackets[-1] = (word, operands)
            elif not self._take(", "):
                return _joined("and", operands)

    def _predicate(self) -> Any:
        column = next((name for name in self._columns if self._text.startswith(f"{name} ", self._at)), None)
        if column is None:
            return self._skip()
        self._at += len(column)
        operator = _COMPARISON.match(self._text, self._at)
        if operator is None:
            return self._skip()
        self._at = operator.end()
        if operator[1] == "IN":
            self._expect("(")
            values = [self._literal()]
            while self._take(", "):
                values.append(self._literal())
            self._expect(")")
            return {"type": "in", "term": column, "values": values}
        value = self._literal()
        if operator[1] != "LIKE":
            return {"type": _OPERATORS[operator[1]], "term": column, "value": value}
        return {"type": "starts-with", "term": column, "value": value.removesuffix("%")}

    def _literal(self) -> str:
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            raise _Malformed
        self._at = match.end()
        return next(group for group in match.groups() if group is not None)

    def _skip(self) -> bool:
        """Pass over a filter without a range, up to the next filter or the end of the brackets around it."""
        depth = 0
        while self._at < len(self._text):
            if self._text[self._at] == "'":
                self._literal()
                continue
            ends = (", ", " AND ", " OR ", ")")
            if depth == 0 and self._text.startswith(ends, self._at):
                break
            depth += {"(": 1, ")": -1}.get(self._text[self._at], 0)
            self._at += 1
        return True

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise _Malformed


def _joined(word: str, operands: Iterable[Any]) -> Any:
    return reduce(lambda left, right: {"type": word, "left": left, "right": right}, operands)


def _value(kind: ValueType, text: str) -> Any:
    if pa.types.is_date(kind.arrow):
        return _EPOCH + timedelta(days=int(text))
    if pa.types.is_timestamp(kind.arrow):
        return datetime(1970, 1, 1) + timedelta(microseconds=int(text))
    return text == "true" if pa.types.is_boolean(kind.arrow) else kind.read(text)
