"""dbt's files as its versions write them: nodes of a manifest, and the results of a run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def node(name: str, kind: str = "model", **more: Any) -> dict[str, Any]:
    """Return a node of the project ``shop``, a table unless its config says otherwise."""
    config = {"materialized": "table", **more.pop("config", {})}
    place = {"database": "awsdatacatalog", "schema": "sales", "original_file_path": f"{kind}s/{name}.sql"}
    names = {"unique_id": f"{kind}.shop.{name}", "name": name, "alias": name, "package_name": "shop"}
    return {**names, "resource_type": kind, **place, "depends_on": {"nodes": []}, **more, "config": config}


def write_manifest(path: Path, nodes: Iterable[dict[str, Any]], version: str = "v12", **metadata: Any) -> Path:
    return _write(path, f"manifest/{version}", metadata, nodes={each["unique_id"]: each for each in nodes})


def write_results(path: Path, statuses: dict[str, str], at: str = "2026-01-02T00:01:00Z", **args: Any) -> Path:
    """Write the statuses of a run's nodes; ``args`` are those of its command."""
    results = [{"unique_id": name, "status": status} for name, status in statuses.items()]
    return _write(path, "run-results/v6", {"generated_at": at}, results=results, args=args)


def _write(path: Path, schema: str, metadata: dict[str, Any], **content: Any) -> Path:
    schema = f"https://schemas.getdbt.com/dbt/{schema}.json"
    known = {"dbt_schema_version": schema, "generated_at": "2026-01-02T00:00:00Z", **metadata}
    path.write_text(json.dumps({"metadata": known, **content}))
    return path
