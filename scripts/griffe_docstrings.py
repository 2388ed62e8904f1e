"""Docstrings for mkdocstrings: Sphinx roles and double backquotes become Markdown's code."""

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":\w+:`(?:[\w.]*\.)?(\w+)`")
_DOUBLE = re.compile(r"(?<!`)``(?!`)")


class Docstrings(Extension):
    """Rewrites each docstring of the package before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _DOUBLE.sub("`", _ROLE.sub(r"`\1`", obj.docstring.value))
