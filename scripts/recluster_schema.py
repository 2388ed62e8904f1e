"""The JSON schema of a model's configs and of its ``meta``, from their declarations, for editors of YAML."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from dbt_recluster.clustering.options import Option
from dbt_recluster.operations.model_options import CONFIGS, META, MODEL_OPTIONS

URL = "https://dbt-recluster.github.io/dbt-recluster/latest/reference/recluster.schema.json"
IN_EDITORS = f"""
## In an editor

With [recluster.schema.json](recluster.schema.json) an editor completes these names in YAML, explains them and marks
wrong values. For the YAML extension of VS Code, in `.vscode/settings.json`:

    {{"yaml.schemas": {{"{URL}": ["dbt_project.yml", "models/**/*.yml"]}}}}

Names that are not ours and values in Jinja are not checked.
"""

_JINJA = {"type": "string", "pattern": r"\{\{"}


class _Plain(GenerateJsonSchema):
    """pydantic's schema without titles, which repeat the names, and without nulls, which an editor would offer."""

    def default_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])

    nullable_schema = default_schema

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def schema() -> str:
    """Return the schema, of a file of properties and of ``dbt_project.yml``."""
    types = [(name, "validation", TypeAdapter(option.kind)) for name, option in MODEL_OPTIONS.items()]
    found, shared = TypeAdapter.json_schemas(types, ref_template="#/definitions/{model}", schema_generator=_Plain)
    own = {"properties": {name: _reference(name) for name in MODEL_OPTIONS}, "additionalProperties": False}
    meta = {"properties": {META: {"type": "object", **own}}}
    configs = {name: _reference(option.name) for name, option in CONFIGS.items()}
    misspelt = f"recluster_(?!({'|'.join(name.removeprefix('recluster_') for name in CONFIGS)})$)"
    plus = {f"+{name}": value for name, value in configs.items()}
    definitions = {
        **shared["$defs"],
        "options": {name: _of_option(option, found[name, "validation"]) for name, option in MODEL_OPTIONS.items()},
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


def _of_option(option: Option, values: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an option's values; a value in Jinja is any text."""
    described = {"description": f"{option.meaning} Default: {option.otherwise}. Example: {option.example}"}
    return {**described, "anyOf": [values, _JINJA, {"type": "null"}]}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/options/{name}"}
