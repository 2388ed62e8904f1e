"""Turn Google docstrings into Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):\n", re.MULTILINE)


def sections(documented: Any) -> dict[str, str]:
    """Return the parts of a docstring: its text under an empty name, then its sections, still indented."""
    parts = _SECTION.split(inspect.getdoc(documented) or "")
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(documented: Any, section: str = "Attributes") -> list[tuple[str, str]]:
    """Return the entries of a section as cells of a table; attributes of a class begin with those it inherits."""
    inherits = inspect.isclass(documented) and section == "Attributes"
    sources = [each for each in reversed(documented.__mro__) if each.__doc__] if inherits else [documented]
    texts = [sections(each).get(section, "") for each in sources]
    found = re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", "\n".join(texts), re.MULTILINE)
    return [
        (", ".join(f"`{each}`" for each in re.split(r",\s*", names)), _capital(markdown(body)))
        for names, body in found
    ]


def markdown(text: str) -> str:
    """Turn a docstring's text into one line of Markdown."""
    text = re.sub(r":\w+:`([^`]*)`", lambda match: f"`{match.group(1).rpartition('.')[2]}`", text)
    return re.sub(r"\s+", " ", text.replace("``", "`")).replace("|", "\\|").strip()


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
