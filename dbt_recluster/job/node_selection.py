"""Which nodes of a manifest are meant: dbt's selectors without graph operators, or the lines of ``dbt ls``.

dbt's own selection needs dbt's own manifest, so graph operators come by ``dbt ls --select ... | dbt-recluster ...
--select -``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.tables import Node

STANDARD_INPUT = "-"
_GRAPH = ("+", "@")
_FILE_SUFFIXES = (".sql", ".py", ".csv", ".yml", ".yaml")


def selected_nodes(
    nodes: Mapping[str, Node],
    select: Sequence[str] | None,
    exclude: Sequence[str] | None,
    lines: Iterable[str],
) -> frozenset[str]:
    """Return the ids of the nodes that selectors admit.

    Args:
        nodes: The nodes by their ids.
        select: Selectors, of which one has to admit a node; None admits all. ``-`` stands for ``lines``.
        exclude: Selectors, of which none may admit it.
        lines: Lines of ``dbt ls --output name``, ``json``, ``path`` or ``selector``.
    """
    chosen = set(nodes)
    if select is not None:
        chosen = set()
        for word in select:
            chosen |= _of_lines(nodes, lines) if word == STANDARD_INPUT else _admitted(nodes, word)
    for word in exclude or ():
        chosen -= _admitted(nodes, word)
    if not chosen:
        given = (("select", select), ("exclude", exclude))
        words = [f"{name}: {' '.join(each)}" for name, each in given if each]
        raise OptionError(f"nothing in this manifest is left by {', '.join(words)}")
    return frozenset(chosen)


def _admitted(nodes: Mapping[str, Node], word: str) -> set[str]:
    """Return the nodes that a selector admits; one with commas, those that all of its parts admit."""
    tests = [_test(part) for part in word.split(",")]
    return {unique_id for unique_id, node in nodes.items() if all(test(node) for test in tests)}


def _test(selector: str) -> Callable[[Node], bool]:
    if selector.startswith(_GRAPH) or selector.endswith("+"):
        raise OptionError(
            f"{selector} needs dbt's graph: dbt ls --select '{selector}' --output json | dbt-recluster ... --select -"
        )
    method, colon, value = selector.partition(":")
    if not colon:
        return lambda node: _is_called(node, selector) or _is_at(node, selector)
    if method.startswith("config."):
        return lambda node: _has(node["config"], method.split(".")[1:], value)
    tests: dict[str, Callable[[Node], bool]] = {
        "tag": lambda node: any(fnmatchcase(str(tag), value) for tag in node.get("tags") or ()),
        "path": lambda node: _is_at(node, value),
        "file": lambda node: fnmatchcase(str(node.get("original_file_path")).rpartition("/")[2], value),
        "fqn": lambda node: _is_called(node, value),
        "package": lambda node: fnmatchcase(str(node.get("package_name")), value),
        "resource_type": lambda node: node.get("resource_type") == value,
    }
    if method not in tests:
        raise OptionError(
            f"{selector} is not a selector that works without dbt: there are {', '.join(tests)}, config.NAME, names "
            "and paths, and whatever dbt ls --output json prints with --select -"
        )
    return tests[method]


def _is_called(node: Node, name: str) -> bool:
    """Whether a node has a name, or a fully qualified name or a beginning of one, with wildcards."""
    fqn = [str(part) for part in node.get("fqn") or ()]
    names = [str(node.get("name")), *(".".join(fqn[:length]) for length in range(1, len(fqn) + 1))]
    names += [".".join(fqn[1:length]) for length in range(2, len(fqn) + 1)]
    return any(fnmatchcase(each, name) for each in names)


def _is_at(node: Node, path: str) -> bool:
    """Whether a node's file is a path, or lies under it."""
    file, path = str(node.get("original_file_path")), path.removeprefix("./").rstrip("/")
    return "/" in path + file and (fnmatchcase(file, path) or fnmatchcase(file, f"{path}/*"))


def _has(config: Any, names: Sequence[str], value: str) -> bool:
    for name in names:
        config = config.get(name) if isinstance(config, Mapping) else None
    if isinstance(config, (list, tuple)):
        return any(str(each) == value for each in config)
    return config is not None and str(config).lower() == value.lower()


def _of_lines(nodes: Mapping[str, Node], lines: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for line in filter(None, map(str.strip, lines)):
        found |= _of_line(nodes, line)
    return found


def _of_line(nodes: Mapping[str, Node], line: str) -> set[str]:
    """Return the node of a line of ``dbt ls``; none for a node without a table, such as a test or a source."""
    if line.startswith("{"):
        try:
            unique_id = json.loads(line).get("unique_id")
        except ValueError:
            raise OptionError(f"a line of standard input is not what dbt ls prints: {line:.80}") from None
        return {unique_id} & set(nodes)
    if line.endswith(_FILE_SUFFIXES):
        return {name for name, node in nodes.items() if node.get("original_file_path") == line}
    if " " in line:
        raise OptionError(
            f"a line of standard input is not what dbt ls prints: {line:.80}; use dbt --quiet ls"
        )
    return {
        name
        for name, node in nodes.items()
        if line in (name, node.get("name"), ".".join(map(str, node.get("fqn") or ())))
    }
