"""The compiled SQL of another dialect as Spark reads it: its names and its texts, and nothing else.

Spark takes ``"a"`` for a text, where Trino and Athena have a name, and finds a table under a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dbt_recluster.columns import quote


def _tokens(text: str, quoted_name: str) -> re.Pattern[str]:
    part = rf"(?: {quoted_name} | [^\W\d]\w* )"
    return re.compile(
        rf"(?P<text> {text} ) | (?P<comment> --[^\n]* | /\*.*?\*/ ) | (?P<name> {part} (?:\.{part})* )",
        re.DOTALL | re.VERBOSE,
    )


_TOKENS = _tokens(r"""'(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" """, r"`(?:[^`]|``)+`")
_TOKENS_WITH_DOUBLE_QUOTES = _tokens(r"'(?:[^']|'')*'", r'"(?:[^"]|"")+"')
_PARTS = re.compile(r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|\w+')


def as_spark_reads_it(query: str, relations: Mapping[str, str], *, double_quotes: bool) -> str:
    """Return a query with the names that Spark has for its tables.

    Args:
        query: The query.
        relations: Spark's names of relations by those that dbt writes into queries.
        double_quotes: Whether ``"a"`` is a name there, and a backslash in a text nothing special.
    """

    def translated(match: re.Match[str]) -> str:
        if (text := match["text"]) is not None and double_quotes:
            return "'" + text[1:-1].replace("\\", "\\\\").replace("''", "\\'") + "'"
        return match[0] if match["name"] is None else _name(match[0], relations, double_quotes=double_quotes)

    tokens = _TOKENS_WITH_DOUBLE_QUOTES if double_quotes else _TOKENS
    return tokens.sub(translated, query)


def _name(name: str, relations: Mapping[str, str], *, double_quotes: bool) -> str:
    parts = _PARTS.findall(name)
    written = parts
    if double_quotes:
        written = [quote(part[1:-1].replace('""', '"')) if part.startswith('"') else part for part in parts]
    for length in range(len(parts), 0, -1):  # a column may follow the table's name
        if (known := relations.get(".".join(parts[:length]))) is not None:
            return ".".join([known, *written[length:]])
    return ".".join(written)
