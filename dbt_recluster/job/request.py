"""A parsed command line, and how a command ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbt_recluster.operations.declaration import Operation

PROGRAM = "dbt-recluster"
# Exit codes.
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Request:
    """A parsed command line.

    Attributes:
        command: The command as it was written.
        operation: The operation; None is ``job``.
        tables: Tables that are named.
        namespace: The namespace whose tables are meant, or None.
        catalog: The catalog whose tables are meant, or that Spark has the manifest's tables in, or None.
        manifest: dbt's manifest whose tables are meant, or None.
        run_results: The run whose tables are meant, or None for all of the manifest.
        select: Selectors of the manifest's nodes, or None.
        exclude: Selectors of nodes that are not meant, or None.
        renamed: Spark's names of catalogs by those of the manifest.
        arguments: The arguments of the operation.
        settings: Spark settings.
        properties_file: A file of more Spark settings, or None.
        as_json: Whether standard output is JSON.
        debug: Whether to print the tracebacks of errors.
    """

    command: str
    operation: Operation | None = None
    tables: tuple[str, ...] = ()
    namespace: str | None = None
    catalog: str | None = None
    manifest: Path | None = None
    run_results: Path | None = None
    select: list[str] | None = None
    exclude: list[str] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    properties_file: Path | None = None
    as_json: bool = False
    debug: bool = False
