"""What the command remembers: tables of which it found nothing to do, and to which nobody has written since.

Every commit, of rows or of properties, gives a table another metadata file. So while the catalog names the one that
the last command has read, the same command finds the same, and pyiceberg asks a REST catalog without starting Spark.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbt_recluster.iceberg.session.environment import ICEBERG_CATALOG, package_version
from dbt_recluster.iceberg.session.local_spark import cache_directory, replace_file
from dbt_recluster.names import name_parts
from dbt_recluster.operations.declaration import Answer

logger = logging.getLogger(__name__)

# The settings of other catalogs have other names in pyiceberg, or it has no such catalog.
_REST = ("rest", "org.apache.iceberg.rest.RESTCatalog")
# Of a threshold `auto`, and of options that go by time, only the table itself knows the present value.
_SECONDS = 24 * 60 * 60


class UnchangedTables:
    """The tables without anything to do that earlier commands have recorded in the user's cache directory.

    Args:
        settings: Spark's settings, of which the catalogs are asked.
        arguments: What else the answer depends on, as it was given.
    """

    def __init__(self, settings: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
        self._settings = settings
        self._rules = repr((package_version(), sorted(settings.items()), sorted(arguments.items())))
        self._directory: Path | None = None
        if importlib.util.find_spec("pyiceberg") is not None:
            with suppress(OSError, RuntimeError):  # the latter where there is no home
                self._directory = cache_directory()

    def answer(self, table: str) -> Answer | None:
        """Return the answer of an earlier command if nothing was written to the table since it, or None."""
        if (file := self._file(table)) is None or not file.is_file():
            return None
        try:
            entry = json.loads(file.read_text("utf-8"))
            if time.time() - entry["at"] > _SECONDS or self._metadata_file(table) != entry["metadata_file"]:
                return None
            since = time.strftime("%H:%M:%S", time.localtime(entry["at"]))
            reason = f"nothing was written since the check at {since}"
            text = f"{entry['text']} ({reason})"
            return Answer(table, {**entry["values"], "reason": reason}, text, warnings=entry["warnings"])
        except Exception as e:  # Spark looks, and says what is wrong
            logger.debug("%s: pyiceberg does not know whether it has changed: %s", table, type(e).__name__)
            return None

    def remember(self, answer: Answer, metadata_file: str) -> None:
        """Record that nothing was to be done to a table that was read from this metadata file."""
        if (file := self._file(answer.table)) is None:
            return
        entry = {name: getattr(answer, name) for name in ("values", "text", "warnings")}
        with suppress(OSError, TypeError, ValueError):
            file.parent.mkdir(0o700, exist_ok=True)
            replace_file(file, json.dumps({**entry, "metadata_file": metadata_file, "at": time.time()}).encode())

    def _file(self, table: str) -> Path | None:
        """Return the file of a table, or None if its catalog cannot be asked."""
        if self._directory is None or self._catalog(table) is None:
            return None
        name = hashlib.sha256(f"{table}\n{self._rules}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self._directory / "unchanged" / f"{name}.json"

    def _catalog(self, table: str) -> dict[str, str] | None:
        """Return the properties of a table's catalog for pyiceberg, or None."""
        name, *rest = name_parts(table)
        prefix = f"spark.sql.catalog.{name}"
        if len(rest) < 2 or self._settings.get(prefix) != ICEBERG_CATALOG:
            return None
        settings = {key.removeprefix(f"{prefix}."): value for key, value in self._settings.items() if key != prefix}
        properties = {key: value for key, value in settings.items() if not key.startswith("spark.")}
        implementation = properties.pop("catalog-impl", "") or properties.get("type")
        return {**properties, "type": "rest"} if implementation in _REST else None

    def _metadata_file(self, table: str) -> str:
        from pyiceberg.catalog import load_catalog

        name, *rest = name_parts(table)
        catalog = load_catalog(name, **(self._catalog(table) or {}))
        return str(catalog.load_table(tuple(rest)).metadata_location)
