"""``dbt run-operation clustering_report``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available

from dbt_recluster.adapter.errors import as_dbt_errors
from dbt_recluster.adapter.mixin import TableMixin
from dbt_recluster.adapter.operate import Answer
from dbt_recluster.adapter.operations import Node, Target, targets
from dbt_recluster.exceptions import OptionError

if TYPE_CHECKING:
    from dbt_recluster.survey import Survey

DEFAULT_PATH = "target/clustering_report.html"


class Reporting(TableMixin):
    """The adapter's method that writes the report."""

    @available.parse_none
    def clustering_report(self, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Write the report of the tables named, and say where it is.

        A table that cannot be looked at is left out and named, unless none is left.
        """
        from dbt_recluster.report.html import write_report

        with as_dbt_errors():
            path = _path(arguments.get("path"))
            surveys, failures = self._each(targets(arguments.get("tables"), nodes), self._survey)
            if not surveys:
                return Answer("", "\n".join(failures) or "No table of this project is built yet.")
            written = write_report(surveys, path)
        return Answer("\n".join(map(str, written)), "\n".join(failures) or None)

    def _survey(self, target: Target) -> Survey:
        from dbt_recluster.survey import survey

        config = target.config
        return survey(
            self.spark,
            target.relation,
            config.key,
            depth=config.depth,
            strategy=config.strategy,
            block_rows=config.block_rows,
        )


def _path(value: Any) -> Path:
    """``path``: the file to write, within the project by default."""
    text = DEFAULT_PATH if value is None else value
    if not isinstance(text, str) or not text.lower().endswith((".html", ".htm")):
        raise OptionError(f"path must be the name of an HTML file, such as {DEFAULT_PATH}, not {value!r}")
    return Path(text)
