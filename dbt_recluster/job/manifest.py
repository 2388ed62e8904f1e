"""dbt's manifest.json and run_results.json, read as data: of dbt 1 and 2, and of any adapter.

Of compiled SQL in another dialect, names and texts are written as Spark reads them, and nothing else. Spark takes
``"a"`` for a text, where Trino and Athena have a name, and finds a table under a name of its own.

dbt's own selection needs dbt's own manifest, so selectors have no graph operators here: these come by ``dbt ls --select
... | dbt-recluster ... --select -``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dbt_recluster.columns import quote
from dbt_recluster.exceptions import ManifestError, OptionError
from dbt_recluster.operations.tables import Node, check_selected, has_table, project_queries, relation_of
from dbt_recluster.table_names import Parts, join_parts

# dbt 1.5 and later. What is read here has been the same since.
_OLDEST_SCHEMA = 9
_SUCCESS = "success"

# A selector that stands for the lines of `dbt ls` on standard input.
_STANDARD_INPUT = "-"
_GRAPH = ("+", "@")
_FILE_SUFFIXES = (".sql", ".py", ".csv", ".yml", ".yaml")


@dataclass(frozen=True)
class Manifest:
    """The nodes of a project.

    Attributes:
        path: The file.
        nodes: The nodes by their ids; the ``database`` of each is the catalog that Spark has its table in.
        relations: Spark's names of the project's relations, sources included, by those in compiled SQL.
        metadata: What dbt says of the file, such as when it wrote it.
    """

    path: Path
    nodes: Mapping[str, Node]
    relations: Mapping[str, str]
    metadata: Mapping[str, Any]

    @classmethod
    def read(
        cls, path: Path, catalog: str | None = None, renamed: Mapping[str, str] | None = None
    ) -> Manifest:
        """Read a manifest.

        Args:
            path: The file.
            catalog: The catalog that Spark has all tables in; None is that of each node.
            renamed: Spark's names of catalogs by those of the manifest.
        """
        content, spark_names = _read(path, "manifest", _OLDEST_SCHEMA), renamed or {}

        def placed(node: Node, **more: Any) -> Node:
            """Return a node or a source with the name that its table has in Spark."""
            database = catalog or spark_names.get(str(node.get("database")), node.get("database"))
            alias = node.get("alias") or node.get("identifier") or node.get("name")
            return {**node, "database": database, "alias": alias, **more}

        given, sources = content.get("nodes"), content.get("sources")
        if not isinstance(given, dict):
            schema = content["metadata"]["dbt_schema_version"]
            raise ManifestError(
                f"{path} has no nodes: it is not a manifest.json that can be read here ({schema})"
            )
        for unique_id, node in given.items():
            _check_node(unique_id, node, path)
        nodes = {unique_id: placed(node, unique_id=unique_id) for unique_id, node in given.items()}
        _check_relations(nodes, path)
        known = [
            node for node in (sources.values() if isinstance(sources, dict) else ()) if isinstance(node, dict)
        ]
        relations = {
            str(node["relation_name"]): join_parts(relation_of(node))
            for node in (*nodes.values(), *map(placed, known))
            if node.get("relation_name") and node.get("schema") and node["alias"]
        }
        return cls(path, nodes, relations, content["metadata"])

    def built(self, path: Path) -> set[str]:
        """Return the ids of the nodes that a run built, by its run_results.json."""
        content = _read(path, "run-results", 4)
        results = content.get("results")
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise ManifestError(f"{path} has no results: it is not the run_results.json of dbt")
        ids = {str(result.get("unique_id")): str(result.get("status")) for result in results}
        known = [unique_id for unique_id in ids if unique_id in self.nodes]
        if ids and not known:
            raise ManifestError(
                f"{path} and {self.path} are of different projects: they have no node in common"
            )
        written, ended = (str(of.get("generated_at", "")) for of in (self.metadata, content["metadata"]))
        invocation = content["metadata"].get("invocation_id")
        is_same = invocation is not None and invocation == self.metadata.get("invocation_id")
        if ended < written and not is_same:
            raise ManifestError(
                f"{path} of {ended} is older than {self.path} of {written}: it is not of the last run; "
                "give both files of one run"
            )
        return {unique_id for unique_id in known if ids[unique_id] == _SUCCESS}

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of everything that reads the table of a node, by name."""
        double_quotes = any(name.startswith('"') for name in self.relations)
        queries = project_queries(self.nodes, unique_id, self._compiled)
        return {
            name: as_spark_reads_it(query, self.relations, double_quotes=double_quotes)
            for name, query in queries.items()
        }

    def _compiled(self, node: Node) -> str | None:
        if text := node.get("compiled_code"):
            return str(text)
        written = node.get("compiled_path")
        # Beside the manifest, wherever dbt ran: target/manifest.json, target/compiled/shop/models/orders.sql
        name = f"{node.get('package_name')}/{node.get('original_file_path')}"
        for path in (*([Path(written)] if written else []), self.path.parent / "compiled" / name):
            try:
                return path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
        return None


def _read(path: Path, kind: str, oldest: int) -> dict[str, Any]:
    """Return one of dbt's files, its schema checked: ``.../dbt/manifest/v12.json``."""
    if not path.exists() and Path(path.name).exists():
        # spark-submit --files puts it into the working directory of a driver elsewhere
        path = Path(path.name)
    what = kind.replace("-", " ")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ManifestError(f"{path} cannot be read: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        raise ManifestError(f"{path} is not the {what} of dbt, or only a part of it: {e}"[:300]) from e
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        raise ManifestError(f"{path} is not the {what} of dbt: it has no metadata")
    schema = str(content["metadata"].get("dbt_schema_version"))
    name, _, version = schema.removesuffix(".json").rpartition("/v")
    if not name.endswith(f"/{kind}") or not version.isdigit():
        raise ManifestError(f"{path} is not a {kind} of dbt: its schema is {schema}")
    if int(version) < oldest:
        raise ManifestError(f"{path} has the schema v{version} of an older dbt; v{oldest} or later is needed")
    return content


def _check_node(unique_id: str, node: Any, path: Path) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("config"), dict):
        raise ManifestError(f"{path}: node {unique_id} has no config")
    if has_table(node) and not all(isinstance(node.get(part), str) for part in ("schema", "name")):
        raise ManifestError(f"{path}: node {unique_id} has no schema or name")


def _check_relations(nodes: Mapping[str, Node], path: Path) -> None:
    owners: dict[Parts, str] = {}
    for unique_id, node in nodes.items():
        if not has_table(node):
            continue
        relation = relation_of(node)
        if (other := owners.setdefault(relation, unique_id)) != unique_id:
            raise ManifestError(f"{path}: {other} and {unique_id} have one table, {join_parts(relation)}")


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


def selected_nodes(
    nodes: Mapping[str, Node],
    select: Sequence[str] | None,
    exclude: Sequence[str] | None,
    lines: Iterable[str],
) -> set[str]:
    """Return the ids of the nodes that selectors admit.

    Args:
        nodes: The nodes by their ids.
        select: Selectors, of which one has to admit a node; None admits all. ``-`` stands for ``lines``.
        exclude: Selectors, of which none may admit it.
        lines: Lines of ``dbt ls --output name``, ``json``, ``path`` or ``selector``.
    """
    selected = set(nodes)
    if select is not None:
        selected = set()
        for word in select:
            selected |= _of_lines(nodes, lines) if word == _STANDARD_INPUT else _admitted(nodes, word)
    for word in exclude or ():
        selected -= _admitted(nodes, word)
    check_selected(selected, select, exclude)
    return selected


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
    return any(fnmatchcase(known, name) for known in names)


def _is_at(node: Node, path: str) -> bool:
    """Whether a node's file is a path, or lies under it."""
    file, path = str(node.get("original_file_path")), path.removeprefix("./").rstrip("/")
    return "/" in path + file and (fnmatchcase(file, path) or fnmatchcase(file, f"{path}/*"))


def _has(config: Any, names: Sequence[str], value: str) -> bool:
    for name in names:
        config = config.get(name) if isinstance(config, Mapping) else None
    if isinstance(config, (list, tuple)):
        return any(str(item) == value for item in config)
    return config is not None and str(config).lower() == value.lower()


def _of_lines(nodes: Mapping[str, Node], lines: Iterable[str]) -> set[str]:
    return set().union(*(_of_line(nodes, line) for line in filter(None, map(str.strip, lines))))


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
