"""dbt's manifest.json and run_results.json, read as data: of dbt 1 and 2, and of any adapter.

Of compiled SQL in another dialect, names and texts are written as Spark reads them, and nothing else. Spark takes
``"a"`` for a text, where Trino and Athena have a name, and finds a table under a name of its own.

Selectors are left to dbt: ``dbt ls --select ... --output json | dbt-recluster ... --select -``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt_recluster.exceptions import ManifestError, OptionError
from dbt_recluster.key.columns import quote
from dbt_recluster.names import Parts, join_parts
from dbt_recluster.operations.tables import (
    TABLES,
    Node,
    has_table,
    labelled,
    project_queries,
    relation_of,
    required_table,
)
from dbt_recluster.text import did_you_mean

# dbt 1.5 and later. What is read here has been the same since.
_OLDEST_SCHEMA = 9
_SUCCESS = "success"
# Adapters of engines that fold every identifier to lower case, quoted or not. The manifest keeps the model's spelling.
_FOLDING = ("athena", "trino")
# The commands that build tables; `dbt retry` writes the name of the command that it repeats.
_BUILDS = ("build", "run", "seed", "snapshot")

# Stands for the lines of `dbt ls` on standard input.
STANDARD_INPUT = "-"


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
        fold = str.lower if content["metadata"].get("adapter_type") in _FOLDING else str

        def placed(node: Node, **more: Any) -> Node:
            """Return a node or a source with the name that its table has in Spark."""
            alias = node.get("alias") or node.get("identifier") or node.get("name")
            names = {**{part: node.get(part) for part in ("database", "schema")}, "alias": alias}
            names = {part: fold(name) if isinstance(name, str) else name for part, name in names.items()}
            database = catalog or spark_names.get(str(node.get("database")), names["database"])
            return {**node, **names, "database": database, **more}

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
        catalogs = {str(node["database"]) for node in (*given.values(), *known) if node.get("database")}
        for name in spark_names:
            if name not in catalogs:
                others = did_you_mean(name, sorted(catalogs), "they are in") if catalogs else "use --catalog"
                raise OptionError(f"--map {name}: no table of {path} is in a catalog {name}; {others}")
        relations = {
            str(node["relation_name"]): join_parts(relation_of(node))
            for node in (*nodes.values(), *map(placed, known))
            if node.get("relation_name") and node.get("schema") and node["alias"]
        }
        return cls(path, labelled(nodes, content.get("groups") or {}), relations, content["metadata"])

    def selected(self, words: Iterable[str], lines: Iterable[str]) -> set[str]:
        """Return the ids of the nodes that ``--select`` names.

        Args:
            words: Unique ids and names of nodes with tables; ``-`` stands for ``lines``.
            lines: What ``dbt ls --output json`` printed; nodes without tables may be among it.
        """
        nodes, ids = list(self.nodes.values()), set[str]()
        for word in words:
            if word == STANDARD_INPUT:
                ids.update(self._listed(lines))
            elif re.search(r"[+@*:,/]", word):
                raise OptionError(
                    f"--select takes names, and {word} is a selector: dbt --quiet ls --select '{word}' --output json | "
                    "dbt-recluster ... --select -"
                )
            else:
                ids.add(required_table(word, nodes)["unique_id"])
        return ids

    def _listed(self, lines: Iterable[str]) -> set[str]:
        """Return the ids of the models, seeds and snapshots among the lines of ``dbt ls``."""
        listed = []
        for line in filter(None, map(str.strip, lines)):
            try:
                listed.append(str(json.loads(line)["unique_id"]))
            except (ValueError, TypeError, LookupError):
                raise OptionError(
                    f"standard input is not what dbt --quiet ls --output json prints: {line:.80}"
                ) from None
        if not listed:
            raise OptionError("standard input is empty: dbt ls selects nothing, or has failed")
        ids = {unique_id for unique_id in listed if unique_id.partition(".")[0] in TABLES}
        if unknown := sorted(ids.difference(self.nodes)):
            raise OptionError(
                f"{self.path} has no {unknown[0]}, which dbt ls lists: it is of another project, or older"
            )
        return ids

    def built(self, path: Path) -> set[str]:
        """Return the ids of the nodes that a run built, by its run_results.json; none after one with ``--empty``."""
        content = _read(path, "run-results", 4)
        results, arguments = content.get("results"), content.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise ManifestError(f"{path} has no results: it is not the run_results.json of dbt")
        command = arguments.get("which")
        if command not in (None, *_BUILDS):
            raise ManifestError(
                f"{path} is of dbt's command {command}, which builds no table: give that of {', '.join(_BUILDS[:-1])} "
                f"or {_BUILDS[-1]}"
            )
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
        return set() if arguments.get("empty") else {each for each in known if ids[each] == _SUCCESS}

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
