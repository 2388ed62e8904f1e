"""Docstrings for mkdocstrings: Sphinx roles and double backquotes become Markdown's code.

And operations are shown as the functions of Python that their decorator makes of them.
"""

import inspect
import re
from importlib import import_module
from typing import Any

from griffe import Extension, Function, Object, Parameter, ParameterKind, Parameters

from dbt_recluster.operations.arguments import arguments_of, documented_arguments

_ROLE = re.compile(r":\w+:`(?:[\w.]*\.)?(\w+)`")
_DOUBLE = re.compile(r"(?<!`)``(?!`)")
_TYPES = {"spark": "SparkSession", "table": "str | ClusteredTable"}


class Docstrings(Extension):
    """Rewrites each docstring of the package before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if isinstance(obj, Function) and obj.path.startswith("dbt_recluster.api.") and obj.decorators:
            function = getattr(import_module(obj.path.rpartition(".")[0]), obj.name, None)
            if (declared := getattr(function, "__wrapped__", None)) is not None:
                _show_as_function(obj, function, declared)
        if obj.docstring is not None:
            obj.docstring.value = _DOUBLE.sub("`", _ROLE.sub(r"`\1`", obj.docstring.value))


def _show_as_function(obj: Function, function: Any, declared: Any) -> None:
    meanings = {each.name: each.meaning for each in arguments_of(declared)}
    meanings = {**documented_arguments(declared), **meanings}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        text = _TYPES.get(name) or getattr(annotation, "__name__", None) or str(annotation)
        kind = ParameterKind[parameter.kind.name.lower()]
        default = None if parameter.default is parameter.empty else str(parameter.default)
        parameters.append(Parameter(name, annotation=text, kind=kind, default=default))
    obj.parameters = Parameters(*parameters)
    entries = "".join(f"\n    {p.name}: {meanings[p.name]}" for p in parameters if p.name in meanings)
    assert obj.docstring is not None
    text = re.sub(r"\n\nArgs:\n(?:    .*\n?)*", "\n", inspect.cleandoc(obj.docstring.value))
    head, _, rest = text.partition("\n\n")
    obj.docstring.value = "\n\n".join([head, f"Args:{entries}", rest.strip()]) if entries else text
