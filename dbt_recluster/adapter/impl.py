"""The adapter: dbt-spark, its handling of Iceberg tables corrected, and the operations.

What works on tables is imported by the methods that need it: commands such as ``dbt parse`` do without.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.spark.impl import SparkConfig
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, interrupted_operation, logger
from dbt_recluster.adapter.relations.table_methods import TableMethods
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.session.environment import check_environment
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.operations.model_options import CONFIGS, file_format
from dbt_recluster.text import did_you_mean

if TYPE_CHECKING:
    from dbt.adapters.contracts.relation import RelationConfig

    from dbt_recluster.adapter.dbt_run import DbtRun
    from dbt_recluster.adapter.model_build import ModelBuild

_CAPABILITIES = (
    Capability.TableLastModifiedMetadata,
    Capability.TableLastModifiedMetadataBatch,
    Capability.SchemaMetadataByRelations,
    Capability.CatalogsV2,
)

# dbt does not check the values of an adapter's configs; ModelOptions does.
ReclusterConfig: type[SparkConfig] = make_dataclass(
    "ReclusterConfig",
    [(name, Any, None) for name in ("catalog", "catalog_name", *CONFIGS)],
    bases=(SparkConfig,),
)


def _no_build(*_: Any) -> ModelBuild:
    from dbt_recluster.adapter.model_build import ModelBuild

    return ModelBuild(None, None)  # type: ignore[arg-type]


class ReclusterAdapter(TableMethods):
    """dbt-spark and clustering.

    dbt derives the module ``dbt.adapters.recluster`` from the name of this class after each model.
    """

    AdapterSpecificConfigs = ReclusterConfig
    _capabilities = CapabilityDict({c: CapabilitySupport(support=Support.Full) for c in _CAPABILITIES})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begun: DbtRun | None = None
        self._lock = threading.Lock()
        self._threads = threading.local()

    # --- dbt-spark's handling of Iceberg tables, corrected ---

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add a table's catalog and clustering to what ``dbt docs`` knows about it."""
        statistics: dict[str, Any] = {}
        if not self.cannot_recluster() and self.may_have_clustering(relation):
            from dbt_recluster.adapter.table_figures import clustering_statistics

            try:
                statistics = clustering_statistics(self.open_table(relation.render()))
            except ReclusterError as e:
                logger.debug(f"no clustering statistics of {relation}: {e}")
        for column in super()._get_columns_for_catalog(relation):
            yield {**column, "table_database": relation.database, **statistics}

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_adapter_specific_run_info(config)
        return {**info, "adapter_type": "recluster"}

    def debug_query(self) -> None:
        """``dbt debug``: check that Spark has what clustering needs."""
        if self.credentials.in_process:
            with as_dbt_errors():
                check_environment(self.spark, self.credentials.catalog)
        super().debug_query()
        if self._tables is not None:
            with as_dbt_errors():
                logger.info(self._tables.check(str(self.credentials.schema)))

    # --- builds ---

    @property
    def _run(self) -> DbtRun:
        """What the builds of this invocation share, one for all threads."""
        with self._lock:
            if self._begun is None:
                from dbt_recluster.adapter.dbt_run import DbtRun

                self._begun = DbtRun(self)
            return self._begun

    def connection_named(self, name: str, query_header_context: Any = None, *more: Any, **named: Any) -> Any:
        """Open a node's connection. A microbatch model is checked first: dbt takes an error in a batch for a crash."""
        config = getattr(query_header_context, "config", {})
        is_microbatch = config.get("incremental_strategy") == "microbatch"
        if is_microbatch and self.config.args.which in ("run", "build", "retry"):
            from dbt_recluster.adapter.model_build import options_of

            options_of(query_header_context)
        return super().connection_named(name, query_header_context, *more, **named)

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: nothing is known of it, and its file format is in lower case, by default Iceberg."""
        node_config = getattr(getattr(config, "model", None), "config", None)
        if node_config is not None:
            node_config["file_format"] = file_format(node_config)
        self._threads.build = None
        return super().pre_model_hook(config)

    def post_model_hook(self, config: Any, context: Any) -> None:
        """After each node, built or not: what a hook at the end of the run drops is dropped."""
        self._threads.build = None
        super().post_model_hook(config, context)

    @available.parse(_no_build)
    def current_build(self) -> ModelBuild:
        """Return the node that this thread builds, one thread from its first hook to its last."""
        from dbt_recluster.adapter.model_build import ModelBuild

        build: ModelBuild | None = getattr(self._threads, "build", None)
        if build is None:
            build = self._threads.build = ModelBuild(self, self._run)
        return build

    @available.parse_none
    def drop_relation(self, relation: BaseRelation) -> None:
        """Drop a relation, or postpone that until the one that replaces it is created."""
        if not self.current_build().postpones_drop(relation):
            super().drop_relation(relation)  # type: ignore[no-untyped-call]

    @available
    def as_subquery(self, query: str) -> str:
        """Return a model's query to be put between parentheses (see :func:`without_end`)."""
        from dbt_recluster.adapter.model_build import without_end

        return without_end(query)

    @available
    def literal(self, value: Any) -> str:
        """Return a value as a text in SQL."""
        return sql_literal(str(value))

    @available.parse_none
    def first_time(self, subject: str) -> bool:
        """Whether this is the first call with ``subject`` in this invocation, so that warnings come once."""
        return self._run.first_time(subject)

    @available.parse_none
    def refuse_function(self, function: Mapping[str, Any]) -> None:
        """Refuse a user-defined function; nothing is parsed of it here, so the project's models are built."""
        raise ConfigurationError(
            f"{function['name']} is a user-defined function, and Spark 3.5 has none in SQL or of dbt's kind in Python. "
            "Write it as a macro, which every model can call"
        )

    def cancel_open_connections(self) -> Any:
        """Ctrl-C: nothing more is submitted. After ``--fail-fast``, what was built before still is."""
        is_failure = isinstance(sys.exc_info()[1], Exception)
        if self._begun is not None and self._begun.submission is not None and not is_failure:
            self._begun.submission.tables.clear()
        return super().cancel_open_connections()  # type: ignore[no-untyped-call]

    def cleanup_connections(self) -> None:
        """At the end of dbt's run, whether it went well or not."""
        if self._begun is not None:
            self._begun.end()
        super().cleanup_connections()

    # --- operations ---

    def execute_macro(self, macro_name: str, *arguments: Any, **named: Any) -> Any:
        """Run a macro; one that does not exist may be a misspelt operation.

        Ctrl-C ends an operation with one line, and dbt with the exit code of a shell.
        """
        try:
            with interrupted_operation():
                return super().execute_macro(macro_name, *arguments, **named)
        except DbtRuntimeError as e:
            from dbt_recluster.operations.runner import OPERATIONS

            meant = did_you_mean(macro_name, OPERATIONS)
            if not meant or "could not find a macro" not in str(e.msg):
                raise
            raise DbtRuntimeError(f"{e.msg}; {meant}") from e

    @available.parse_none
    @as_dbt_errors()
    def operate(self, name: str, given: Mapping[str, Any], macros: Mapping[str, Any]) -> None:
        """Run an operation and print what it answers; it fails if the operation failed for any table.

        A node's hook that reclusters its own table does so as after the build.
        """
        from dbt_recluster.adapter.dbt_run import run_vars
        from dbt_recluster.adapter.hooks import recluster_arguments, with_table
        from dbt_recluster.adapter.operations import operate

        given, is_own = with_table(given, macros)
        if is_own and name == "recluster" and not given.get("dry_run"):
            self.current_build().recluster(macros, recluster_arguments(given, macros))
        else:
            operate(name, given, macros, self._run.context(run_vars(macros)))

    @available.parse_list
    @as_dbt_errors()
    def broken_clustering_limits(self, model: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the limits that the table ``model`` exceeds, for the generic test ``well_clustered``."""
        from dbt_recluster.adapter.table_figures import broken_limits

        return broken_limits(model, arguments, self.open_table)
