"""Numbers, sizes and tables as people read them, and the names that they may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from difflib import get_close_matches

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def count_noun(count: int, noun: str) -> str:
    """Return ``1 set`` or ``3 sets``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int, *, up: bool = False) -> str:
    """Return a number of bytes in the unit that reads best, ``1.4 GB``; rounded ``up`` it suffices as a limit."""
    unit, factor = best_unit(count)
    if factor == 1:
        return f"{count} bytes"
    tenths = -(-count * 10 // factor) if up else round(count * 10 / factor)
    return f"{tenths / 10:.1f} {unit}"


def best_unit(count: int) -> tuple[str, int]:
    """Return the unit that a number of bytes reads best in, and its bytes."""
    power = 0
    while count / 1024**power >= 1024 and power < len(_UNITS) - 1:
        power += 1
    return _UNITS[power], 1024**power


def moment_text(iso: str) -> str:
    """Return an ISO time as ``2026-01-31 12:00:00 UTC``, any other text as it is."""
    with suppress(ValueError):
        return f"{datetime.fromisoformat(iso).astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    return iso


def printable(text: str, keep: str = "") -> str:
    """Return a text from a table for a terminal, a figure or a page: control characters but ``keep`` as escapes."""
    if text.isprintable():
        return text
    kept = (c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    return "".join(kept)


def shortened(text: str) -> str:
    """Return at most 60 characters of a text, as one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def span(low: str, high: str) -> str:
    """Return ``low to high``, or one of them if they are equal."""
    return low if low == high else f"{low} to {high}"


def depth_bucket(name: str) -> str:
    """Return the name of a bucket of a depth histogram: exact up to 16, above that a range that doubles."""
    depth = int(name)
    return str(depth) if depth <= 16 else f"{depth // 2 + 1} to {depth}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns under a header."""
    lines = [tuple(map(printable, line)) for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a question for the known name that is most like another; if none is like it, ``otherwise`` and all."""
    names = list(names)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"{otherwise} {', '.join(names)}" if otherwise else ""
