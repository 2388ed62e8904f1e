"""The JSON schema of a model's configs and of its ``meta``, from their declarations, for editors of YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dbt_recluster.clustering import options
from dbt_recluster.clustering.options import Option
from dbt_recluster.key.cluster_key import ALLOWED
from dbt_recluster.operations.model_options import CONFIGS, META, MODEL_OPTIONS
from dbt_recluster.planner import STRATEGIES

URL = "https://dbt-recluster.github.io/dbt-recluster/latest/reference/recluster.schema.json"
IN_EDITORS = f"""
## In an editor

With [recluster.schema.json](recluster.schema.json) an editor completes these names in YAML, explains them and marks
wrong values. For the YAML extension of VS Code, in `.vscode/settings.json`:

    {{"yaml.schemas": {{"{URL}": ["dbt_project.yml", "models/**/*.yml"]}}}}

Names that are not ours and values in Jinja are not checked.
"""

_ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}
_SHARE = {**_ABOVE_ZERO, "maximum": 1}
_TEXT = {"type": "string", "minLength": 1}


def _count(least: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least}


def _mapping(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}


def _one_or_many(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item}]}


_AFTER = {f.name: _SHARE if f.name == "share" else _ABOVE_ZERO for f in fields(options.After)}
_LIMITS = {f.name: _ABOVE_ZERO for f in fields(options.When) if f.name != "query"}
_WHEN = {
    **_LIMITS,
    "query": _TEXT,
    "skipped": _SHARE,
    "selectivity": _SHARE,
    "ratio": {**_ABOVE_ZERO, "maximum": 100},
}
_READ = _mapping(
    {"where": _TEXT, "query": _TEXT, "weight": _ABOVE_ZERO},
    oneOf=[{"required": ["where"]}, {"required": ["query"]}],
)
_OF_PARSER: dict[Any, dict[str, Any]] = {
    options.parse_boolean: {"type": "boolean"},
    options.parse_depth: {"anyOf": [_ABOVE_ZERO, {"const": options.AUTO}]},
    options.parse_strategy: {"enum": list(STRATEGIES)},
    options.parse_merge_blocks: _count(2),
    options.parse_count: _count(1),
    options.parse_bytes: {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]?[bB])?\s*$"},
        ]
    },
    options.parse_seconds: _ABOVE_ZERO,
    options.parse_predicate: _TEXT,
    options.parse_reads: _one_or_many({"anyOf": [_TEXT, _READ]}),
    options.parse_after: _mapping(_AFTER, minProperties=1),
    options.parse_when: _one_or_many(_mapping(_WHEN, minProperties=1)),
}


def schema() -> str:
    """Return the schema, of a file of properties and of ``dbt_project.yml``."""
    meta = {"properties": {META: _mapping({name: _reference(name) for name in MODEL_OPTIONS})}}
    configs = {name: _reference(option.name) for name, option in CONFIGS.items()}
    misspelt = f"recluster_(?!({'|'.join(name.removeprefix('recluster_') for name in CONFIGS)})$)"
    plus = {f"+{name}": value for name, value in configs.items()}
    definitions = {
        "options": {name: _of_option(option) for name, option in MODEL_OPTIONS.items()},
        "meta": meta,
        "config": {
            "properties": {**configs, "meta": {"$ref": "#/definitions/meta"}},
            "patternProperties": {f"^{misspelt}": False},
        },
        "node": {"properties": {"config": {"$ref": "#/definitions/config"}, "meta": {"$ref": "#/definitions/meta"}}},
        "folder": {
            "properties": {**plus, "+meta": {"$ref": "#/definitions/meta"}},
            "patternProperties": {rf"^\+{misspelt}": False},
            "additionalProperties": {"if": {"type": "object"}, "then": {"$ref": "#/definitions/folder"}},
        },
    }
    nodes = {
        "if": {"type": "array"},
        "then": {"items": {"$ref": "#/definitions/node"}},
        "else": {"$ref": "#/definitions/folder"},
    }
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": URL,
        "title": "dbt-recluster",
        "$comment": "Written by scripts/reference.py from the code; edit that.",
        "properties": dict.fromkeys(("models", "seeds", "snapshots"), nodes),
        "definitions": definitions,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _of_option(option: Option) -> dict[str, Any]:
    """Return the schema of an option's values; a value in Jinja is any text."""
    described = {"description": f"{option.meaning} Default: {option.otherwise}. Example: {option.example}"}
    if option.name == "cluster_by":
        # Its parser is bound to the model's class, so its kind is told by its name.
        item = {**_TEXT, "description": ALLOWED}
        return {**described, "anyOf": [*_one_or_many(item)["anyOf"], {"type": "null"}]}
    if option.parse not in _OF_PARSER:
        raise SystemExit(f"scripts/recluster_schema.py has no schema for the values of {option.name}: add its parser")
    jinja = {"type": "string", "pattern": r"\{\{"}
    return {**described, "anyOf": [_OF_PARSER[option.parse], jinja, {"type": "null"}]}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/options/{name}"}
