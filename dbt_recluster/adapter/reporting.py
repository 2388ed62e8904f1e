"""``dbt run-operation clustering_report``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import AdapterMeta, available
from dbt_common.exceptions import CompilationError

from dbt_recluster.adapter.operate import Answer
from dbt_recluster.adapter.operations import Node, targets
from dbt_recluster.exceptions import OptionError, ReclusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PATH = "target/clustering_report.html"


class Reporting(metaclass=AdapterMeta):
    """The adapter's method that writes the report."""

    @property
    def spark(self) -> SparkSession:
        """The session of this process."""
        raise NotImplementedError

    def _exists(self, relation: str) -> bool:
        raise NotImplementedError

    @available.parse_none
    def clustering_report(self, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Write the report of the tables named, and say where it is.

        A table that cannot be looked at is left out and named, unless none is left.
        """
        from dbt_recluster.report.html import write_report
        from dbt_recluster.survey import survey

        try:
            path = _path(arguments.get("path"))
            surveys, failures = [], []
            for target in targets(arguments.get("tables"), nodes):
                if not target.required and not self._exists(target.relation):
                    continue  # one of "every model" that is not built yet
                config = target.config
                key = [str(item) for item in config.cluster_by.fields] if config.cluster_by else None
                try:
                    found = survey(
                        self.spark,
                        target.relation,
                        key,
                        depth=config.depth,
                        strategy=config.strategy,
                        block_rows=config.block_rows,
                    )
                    surveys.append(found)
                except ReclusterError as e:
                    failures.append(str(e) if target.relation in str(e) else f"{target.relation}: {e}")
            if not surveys:
                return Answer("", "\n".join(failures) or "No table of this project is built yet.")
            written = write_report(surveys, path)
        except ReclusterError as e:
            raise CompilationError(str(e)) from e
        return Answer("\n".join(str(each) for each in written), "\n".join(failures) or None)


def _path(value: Any) -> Path:
    """``path``: the file to write, within the project by default."""
    text = DEFAULT_PATH if value is None else value
    if not isinstance(text, str) or not text.lower().endswith((".html", ".htm")):
        raise OptionError(f"path must be the name of an HTML file, such as {DEFAULT_PATH}, not {value!r}")
    return Path(text)
