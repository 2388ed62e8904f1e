"""dbt's manifest.json and run_results.json as data, of dbt 1 and 2 and any adapter.

dbt evaluates selectors: ``dbt ls --select ... --output json | dbt-recluster ... --select -``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt_recluster.advice.imported_reads import translate_to_spark
from dbt_recluster.exceptions import ManifestError, OptionError, PredicateError
from dbt_recluster.names import Parts, join_parts
from dbt_recluster.operations.model_options import file_format
from dbt_recluster.operations.targets import (
    TABLES,
    Node,
    has_table,
    labelled,
    project_queries,
    relation_of,
    required_table,
)
from dbt_recluster.text import did_you_mean

# The commands that build tables; `dbt retry` writes the name of the command that it repeats.
_BUILDS = ("build", "run", "seed", "snapshot")
# The adapters of Trino and Athena, which fold every identifier; the manifest keeps the model's spelling.
_FOLDING = ("athena", "trino")
# Under other adapters, the catalog decides whether a table of such files is an Iceberg table.
_FILES = ("parquet", "orc", "avro")
STANDARD_INPUT = "-"  # for the lines of `dbt ls`
# Types of the fields of nodes, their configs and groups; a value of another type counts as absent.
_TYPES: dict[str, type] = {"depends_on": dict, "meta": dict, "nodes": list, "owner": dict, "tags": list}
_NAMES = ("alias", "compiled_path", "database", "group", "identifier", "name", "package_name", "schema")
_TYPES |= dict.fromkeys(_NAMES, str)


@dataclass(frozen=True)
class Manifest:
    """The nodes of a project."""

    path: Path
    nodes: Mapping[str, Node]  # by unique id; the ``database`` of each is Spark's catalog of its table
    relations: Mapping[str, str]  # Spark's names of relations, sources included, by those of dbt, unquoted
    metadata: Mapping[str, Any]  # of the file

    @classmethod
    def read(cls, path: Path, catalog: str | None = None, renamed: Mapping[str, str] | None = None) -> Manifest:
        """Read a manifest whose tables Spark has in one ``catalog``, or in their own, of which some are ``renamed``."""
        content, spark_names = _read(path, "manifest", 9), renamed or {}  # dbt 1.5
        adapter = content["metadata"].get("adapter_type")
        fold, is_ours = str.lower if adapter in _FOLDING else str, adapter == "recluster"

        def placed(node: Node, **more: Any) -> Node:
            """Return a node or a source with the name that its table has in Spark."""
            alias = node.get("alias") or node.get("identifier") or node.get("name")
            names = {**{part: node.get(part) for part in ("database", "schema")}, "alias": alias}
            names = {part: fold(name) if isinstance(name, str) else name for part, name in names.items()}
            database = catalog or spark_names.get(str(node.get("database")), names["database"])
            config = dict(node.get("config") or {})
            if not is_ours and file_format(config) in _FILES:
                del config["file_format"]
            return {**node, **names, "database": database, "config": config, **more}

        raw_nodes, (sources, groups) = content.get("nodes"), map(_typed, map(content.get, ("sources", "groups")))
        if not isinstance(raw_nodes, dict):
            schema = content["metadata"]["dbt_schema_version"]
            raise ManifestError(f"{path} has no nodes: it is not a manifest.json that can be read here ({schema})")
        _check_nodes(raw_nodes, path)
        nodes = {unique_id: placed(_typed(node), unique_id=unique_id) for unique_id, node in raw_nodes.items()}
        _check_relations(nodes, path)
        typed_sources = list(map(_typed, sources.values()))
        catalogs = {str(node["database"]) for node in (*raw_nodes.values(), *typed_sources) if node.get("database")}
        for name in spark_names:
            if name not in catalogs:
                meant = did_you_mean(name, sorted(catalogs), "they are in") if catalogs else "use --catalog"
                raise OptionError(f"--map {name}: no table of {path} is in a catalog {name}; {meant}")
        relations = {
            re.sub('[`"]', "", str(node["relation_name"])).lower(): join_parts(relation_of(node))
            for node in (*nodes.values(), *map(placed, typed_sources))
            if node.get("relation_name") and node.get("schema") and node["alias"]
        }
        nodes = labelled(nodes, {name: _typed(group) for name, group in groups.items()})
        return cls(path, nodes, relations, content["metadata"])

    def selected(self, words: Iterable[str], lines: Iterable[str]) -> set[str]:
        """Return the ids of the nodes that ``--select`` names; ``-`` stands for the lines of ``dbt ls``."""
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
        """Return the ids of the nodes that a run built, by its run_results.json; none if it ran with ``--empty``."""
        content = _read(path, "run-results", 4)
        results, arguments = content.get("results"), content.get("args")
        if not isinstance(arguments, dict):
            arguments = {}
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise ManifestError(f"{path} has no results: it is not the run_results.json of dbt")
        command = arguments.get("which")
        if command not in (None, *_BUILDS):
            raise ManifestError(
                f"{path} is of dbt's command {command}, which builds no table: give that of {', '.join(_BUILDS[:-1])} "
                f"or {_BUILDS[-1]}"
            )
        ids = {str(result.get("unique_id")): str(result.get("status")) for result in results}
        node_ids = [unique_id for unique_id in ids if unique_id in self.nodes]
        if ids and not node_ids:
            raise ManifestError(f"{path} and {self.path} are of different projects: they have no node in common")
        written, ended = (str(of.get("generated_at", "")) for of in (self.metadata, content["metadata"]))
        invocation = content["metadata"].get("invocation_id")
        is_same = invocation is not None and invocation == self.metadata.get("invocation_id")
        if ended < written and not is_same:
            raise ManifestError(
                f"{path} of {ended} is older than {self.path} of {written}: it is not of the last run; "
                "give both files of one run"
            )
        return set() if arguments.get("empty") else {each for each in node_ids if ids[each] in ("success", "warn")}

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL that reads the table of a node, directly or through views, by the reader's id."""
        queries = dict(project_queries(self.nodes, unique_id, self._compiled))
        dialect = "trino" if self.metadata.get("adapter_type") in _FOLDING else "spark"
        for name, query in queries.items():
            with suppress(PredicateError):  # Spark says what is wrong with it
                queries[name] = ";\n".join(
                    translate_to_spark(query, dialect, lambda of: self.relations.get(of.lower()))
                )
        return queries

    def _compiled(self, node: Node) -> str | None:
        if text := node.get("compiled_code"):
            return str(text)
        # Where dbt says, or beside the manifest: target/manifest.json, target/compiled/shop/models/orders.sql
        beside = self.path.parent / f"compiled/{node.get('package_name')}/{node.get('original_file_path')}"
        for path in filter(None, (node.get("compiled_path"), beside)):
            with suppress(OSError, ValueError):
                return Path(path).read_text(encoding="utf-8")
        return None


def _read(path: Path, kind: str, oldest: int) -> dict[str, Any]:
    """Return one of dbt's files, its schema checked: ``.../dbt/manifest/v12.json``."""
    if not path.exists() and Path(path.name).exists():  # put there by spark-submit --files
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


def _check_nodes(nodes: Mapping[str, Any], path: Path) -> None:
    for unique_id, node in nodes.items():
        if not isinstance(node, dict) or not isinstance(node.get("config"), dict):
            raise ManifestError(f"{path}: node {unique_id} has no config")
        names = (node.get("schema"), node.get("name"), node.get("alias") or "", node.get("database") or "")
        if has_table(node) and not all(isinstance(name, str) for name in names):
            raise ManifestError(f"{path}: node {unique_id} has no schema or name, or one that is no text")


def _typed(content: Any) -> dict[str, Any]:
    """Return an object of JSON, and its own config and dependencies, without values of unexpected types."""
    values = content.items() if isinstance(content, dict) else ()
    typed = {name: value for name, value in values if isinstance(value, _TYPES.get(name, object))}
    return {**typed, **{name: _typed(typed[name]) for name in ("config", "depends_on") if name in typed}}


def _check_relations(nodes: Mapping[str, Node], path: Path) -> None:
    owners: dict[Parts, str] = {}
    for unique_id, node in nodes.items():
        if has_table(node) and (other := owners.setdefault(relation_of(node), unique_id)) != unique_id:
            relation = join_parts(relation_of(node))
            raise ManifestError(f"{path}: {other} and {unique_id} have one table, {relation}")
