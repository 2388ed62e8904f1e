"""The filters of a scan as Spark's plans show them, in the event log of any application.

Iceberg writes them for people: names and texts are not escaped, dates are days and times are microseconds since 1970.
What cannot be understood restricts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from dbt_recluster.iceberg.read_boxes import Box, ValueType, expression_boxes

_SCAN = re.compile(
    r"^\s*(?P<table>\S.*?) \(branch=[^)]*\) \[filters=(?P<filters>.*), groupedBy=.*\]\s*$", re.M
)
_OPERATORS = {"=": "eq", ">": "gt", ">=": "gt-eq", "<": "lt", "<=": "lt-eq"}
_COMPARISON = re.compile(r" (=|>=|>|<=|<|LIKE|IN) ")
_LITERAL = re.compile(
    r"X'(?P<hex>[0-9A-F]*)'|'(?P<text>.*?)'(?=, |\)| AND | OR |$)|(?P<plain>[^\s,)(']+)", re.S
)
_EPOCH = date(1970, 1, 1)


def scans(plan: str) -> Iterator[tuple[str, str]]:
    """Yield the table and the filters of each scan in the text of a physical plan."""
    for match in _SCAN.finditer(plan):
        yield match["table"], match["filters"]


def logged_boxes(kinds: Mapping[str, ValueType], filters: str) -> list[Box]:
    """Return the boxes that the filters of a scan ask for; none if they say nothing of where columns begin and end."""
    logged = {column: replace(kind, read=partial(_value, kind)) for column, kind in kinds.items()}
    return expression_boxes(_Filters(kinds, filters).conjunction(), logged)


class _Filters:
    """Reads filters from left to right into Iceberg's JSON; anything unknown is `True`."""

    def __init__(self, columns: Iterable[str], text: str) -> None:
        # The longest first: a name may begin with another one.
        self._columns = sorted(columns, key=len, reverse=True)
        self._text = text
        self._at = 0

    def conjunction(self) -> Any:
        """Read filters with commas between them, all of which hold."""
        result = self._expression()
        while self._take(", "):
            result = _both("and", result, self._expression())
        # What is left over means that something before it was misread.
        return result if self._at == len(self._text) else True

    def _expression(self) -> Any:
        if self._take("("):
            result = self._expression()
            for word, kind in ((" AND ", "and"), (" OR ", "or")):
                if self._take(word):
                    result = _both(kind, result, self._expression())
                    break
            return result if self._take(")") else self._give_up()
        return self._predicate()

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
            values = []
            if not self._take("("):
                return self._give_up()
            while True:
                values.append(self._literal())
                if not self._take(", "):
                    break
            return {"type": "in", "term": column, "values": values} if self._take(")") else self._give_up()
        value = self._literal()
        if operator[1] != "LIKE":
            return {"type": _OPERATORS[operator[1]], "term": column, "value": value}
        return {"type": "starts-with", "term": column, "value": value.removesuffix("%")}

    def _literal(self) -> str:
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            self._at = -1
            return ""
        self._at = match.end()
        return next(group for group in match.groups() if group is not None)

    def _skip(self) -> bool:
        """Pass over a filter that says nothing of ranges: up to where the brackets around it end, or the next one."""
        depth = 0
        while 0 <= self._at < len(self._text):
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
        if self._at < 0 or not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _give_up(self) -> bool:
        self._at = -1
        return True


def _both(kind: str, left: Any, right: Any) -> Any:
    return {"type": kind, "left": left, "right": right}


def _value(kind: ValueType, text: str) -> Any:
    if pa.types.is_date(kind.arrow):
        return _EPOCH + timedelta(days=int(text))
    if pa.types.is_timestamp(kind.arrow):
        return datetime(1970, 1, 1) + timedelta(microseconds=int(text))
    return text == "true" if pa.types.is_boolean(kind.arrow) else kind.read(text)
