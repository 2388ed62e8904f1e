"""Java's properties files, in which spark-submit finds settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t\f"
# The name ends at the first blank, = or : that no backslash precedes.
_PROPERTY = re.compile(rf"((?:\\.|[^\\{_BLANK}=:])*)[{_BLANK}]*[=:]?[{_BLANK}]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Return the properties in the text of a file, as ``java.util.Properties`` reads them."""
    found = {}
    for line in _logical_lines(text):
        if match := _PROPERTY.fullmatch(line):
            found[_unescaped(match.group(1))] = _unescaped(match.group(2))
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, each joined with those that a backslash continues it on."""
    joined, continues = "", False
    for line in re.split(r"\r\n?|\n", re.sub(r"[\r\n]\Z", "", text)):
        line = line.lstrip(_BLANK)
        # To Java a line is new as long as nothing is in it, so a comment may follow a backslash that stands alone.
        if not joined and (not line or line[0] in "#!"):
            continues = False
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield joined
            joined = ""
    if continues:
        yield joined


def property_line(name: str, value: str) -> str:
    """Return the line of a property, in which no character has a meaning of its own."""
    return f"{_escaped(name)}={_escaped(value)}"


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2]), text
    )
    # Two escapes may be one character.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escaped(text: str) -> str:
    plain = text.isascii() and text.replace(".", "").replace("-", "").replace("/", "").isalnum()
    if plain:
        return text
    data = text.encode("utf-16-be")
    return "".join(f"\\u{data[place] << 8 | data[place + 1]:04x}" for place in range(0, len(data), 2))
