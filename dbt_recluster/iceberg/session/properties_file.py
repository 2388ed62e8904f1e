"""Java's properties files, in which spark-submit finds settings."""

from __future__ import annotations

import re

_BLANK = " \t\f"
# The name ends at the first blank, = or : that no backslash precedes.
_PROPERTY = re.compile(rf"((?:\\.|[^\\{_BLANK}=:])*)[{_BLANK}]*[=:]?[{_BLANK}]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Return the properties in the text of a file, as ``java.util.Properties`` reads them."""
    found = {}
    lines = iter(re.split(r"\r\n?|\n", text))
    for line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(_BLANK)
        if match := _PROPERTY.fullmatch(line):
            found[_unescaped(match.group(1))] = _unescaped(match.group(2))
    return found


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
