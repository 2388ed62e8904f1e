"""The adapter: dbt-spark, corrected for Iceberg tables, and clustering.

It owns a session, the catalogs and their tables. Here are only the methods that dbt calls or overrides, and those that
macros call. What works on tables is imported by the methods that need it, so that ``dbt parse`` does without.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.impl import BaseAdapter
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.spark.impl import SparkAdapter, SparkConfig
from dbt.adapters.spark.relation import SparkIncludePolicy, SparkRelation
from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.catalogs import Catalogs, Integrations, names_like
from dbt_recluster.adapter.clustering_session import ClusteringSession, RemoteSession
from dbt_recluster.adapter.connections.connection_manager import ReclusterConnectionManager
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, interrupted_operation, logger, message
from dbt_recluster.adapter.existing_tables import ExistingTables
from dbt_recluster.adapter.freshness import SnapshotFreshness
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.operations.model_options import CONFIGS, file_format
from dbt_recluster.text import did_you_mean

if TYPE_CHECKING:
    import agate
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


@dataclass(frozen=True, eq=False, repr=False)
class ReclusterRelation(SparkRelation):
    """A relation whose ``database`` is a catalog, or None for the connection's current one.

    dbt-spark's relations have no database (dbt-adapters#495).
    """

    include_policy: Policy = field(default_factory=lambda: SparkIncludePolicy(database=True))
    render = BaseRelation.render

    def __post_init__(self) -> None:
        """Accept any database."""


def _of_tables(name: str) -> Callable[..., Any]:
    """Make a method of :class:`ExistingTables` one that macros can call; while dbt parses, it returns None."""

    @available.parse_none
    def method(self: ReclusterAdapter, relation: BaseRelation | None) -> Any:
        return getattr(self.tables, name)(relation)

    return method


def _no_build(*_: Any) -> ModelBuild:
    from dbt_recluster.adapter.model_build import ModelBuild

    return ModelBuild(None, None, None)  # type: ignore[arg-type]


class ReclusterAdapter(SnapshotFreshness, SparkAdapter):
    """dbt-spark and clustering. dbt derives the module ``dbt.adapters.recluster`` from the name of this class."""

    Relation = ReclusterRelation
    ConnectionManager = ReclusterConnectionManager
    AdapterSpecificConfigs = ReclusterConfig
    connections: ReclusterConnectionManager
    _capabilities = CapabilityDict(dict.fromkeys(_CAPABILITIES, CapabilitySupport(support=Support.Full)))
    # dbt's limit of 100 is for adapters that name all relations in one statement.
    MAX_SCHEMA_METADATA_RELATIONS = sys.maxsize

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        credentials: Any = self.connections.profile.credentials
        is_remote = credentials.recluster_session is not None
        self.session = (RemoteSession if is_remote else ClusteringSession)(self.connections)
        self.catalogs = Catalogs(self.connections.ask)
        self.tables = ExistingTables(self.session, self.catalogs)
        self.integrations = Integrations()
        self._run: DbtRun | None = None
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._in_batches: set[str] = set()  # the ids of microbatch models that are being built

    def debug_query(self) -> None:
        """``dbt debug``: check that Spark has what clustering needs."""
        # Not by `execute`, which would run a Spark job: a second more, and a class archive of too few classes.
        query = partial(self.connections.add_query, "select 1 as id")
        steps: list[Callable[[], object]] = [self.session.check, query]
        for step in steps if self.session.credentials.in_process else reversed(steps):
            with as_dbt_errors():
                step()

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        return {**super()._get_adapter_specific_run_info(config), "adapter_type": "recluster"}

    # --- schemas and relations of any catalog; dbt-spark knows one catalog ---

    def set_relations_cache(self, *arguments: Any, **named: Any) -> None:
        """List the relations of all schemas; when models are compiled, each schema when a macro asks for it."""
        if getattr(self.config.args, "which", None) != "compile":
            super().set_relations_cache(*arguments, **named)

    def _build_spark_relation_list(
        self, row_list: agate.Table, relation_info_func: Callable[[agate.Row], tuple[str, str, str]]
    ) -> list[BaseRelation]:
        """List relations; recognise Iceberg tables of a Hive metastore (dbt-spark#870), omit temporary views."""
        rows = [row for row in row_list if row[0]]  # temporary views have no schema
        relations: list[Any] = super()._build_spark_relation_list(rows, relation_info_func)
        for number, relation in enumerate(relations):
            if "table_type=ICEBERG" in (relation.information or "") and not relation.is_view:
                relations[number] = relation.incorporate(is_iceberg=True)
        return relations

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """List a schema: as dbt-spark does in the session catalog, by two statements in any other."""
        database = schema_relation.database
        if self.catalogs.is_session_catalog(database):
            relations: list[Any] = super().list_relations_without_caching(schema_relation)
            return [relation.incorporate(path={"database": database}) for relation in relations]
        schema = schema_relation.without_identifier().render()
        return [
            self.Relation.create(
                database=database,
                schema=schema_relation.schema,
                identifier=listed.name,
                type=RelationType.View if listed.is_view else RelationType.Table,
                is_iceberg=listed.is_iceberg,
                dbt_created=True,  # compared as written: these catalogs keep the case of names
            )
            for listed in self.catalogs.relations(database or self.catalogs.current, schema)
        ]

    @available.parse_list
    def described_relations(self, schema_relation: BaseRelation) -> list[Any]:
        """Describe the relations of a schema of the session catalog."""
        return self.catalogs.described(schema_relation.without_identifier().render())

    @available.parse_none
    def get_relation(self, database: str | None, schema: str, identifier: str) -> Any:
        """Return a relation that exists, or None. In macros, a node without a catalog has an undefined database."""
        return super().get_relation(database or None, schema, identifier)  # type: ignore[arg-type]

    @available.parse_list
    def list_schemas(self, database: str | None) -> list[str]:
        """Return the names of a catalog's schemas."""
        return self.catalogs.schemas(database or None)

    def check_schema_exists(self, database: str, schema: str) -> bool:
        """Return whether a catalog has a schema."""
        return schema in self.list_schemas(database)

    def drop_schema(self, relation: BaseRelation) -> None:
        """Drop a schema and all its relations, which ``cascade`` does not do in Iceberg's catalogs."""
        if not self.catalogs.is_session_catalog(relation.database):
            for listed in self.list_relations_without_caching(relation.without_identifier()):
                self.drop_relation(listed)
        super().drop_schema(relation)

    get_catalog = BaseAdapter.get_catalog  # dbt-spark's refuses a second catalog

    def _get_one_catalog(self, information_schema: Any, schemas: set[str], *_: Any) -> agate.Table:
        database = information_schema.database
        return self._describe(each for schema in schemas for each in self.list_relations(database, schema))

    def _get_one_catalog_by_relations(self, _: Any, relations: Iterable[Any], *__: Any) -> agate.Table:
        return self._describe(self.get_relation(r.database, r.schema, r.identifier) for r in relations)

    def _describe(self, relations: Iterable[BaseRelation | None]) -> agate.Table:
        """Describe relations for ``dbt docs``, a row for each column."""
        import agate

        rows = [row for relation in relations if relation for row in self._get_columns_for_catalog(relation)]
        return agate.Table.from_object(rows, column_types=DEFAULT_TYPE_TESTER)

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add a table's catalog and clustering statistics to its columns."""
        statistics: dict[str, Any] = {}
        if not self.session.missing_reason and self.tables.may_be_clustered(relation):
            from dbt_recluster.adapter.operations import clustering_statistics

            try:
                statistics = clustering_statistics(self.session.open(relation.render()))
            except ReclusterError as e:
                logger.debug(f"no clustering statistics of {relation}: {e}")
        for column in super()._get_columns_for_catalog(relation):
            yield {**column, "table_database": relation.database, **statistics}

    @available.parse_list
    def relations_like(
        self, schema_pattern: str, pattern: str, exclude: str, database: str | None
    ) -> list[BaseRelation]:
        """Return the relations whose names match a pattern, in all schemas whose names match another."""
        relations: list[BaseRelation] = []
        for schema in names_like(self.list_schemas(database), schema_pattern):
            listed = {str(r.identifier): r for r in self.list_relations(database or None, schema)}
            relations += [listed[name] for name in names_like(listed, pattern, exclude)]
        return relations

    def add_catalog_integration(self, catalog_integration: Any) -> Any:
        """Accept an integration of any type: dbt adds all of them before it parses."""
        self.integrations[catalog_integration.name] = catalog_integration
        return catalog_integration

    @available
    def integration_catalog(self, name: str | None) -> str | None:
        """Return the Spark catalog of a model's ``catalog_name``, or None if it has none."""
        return self.integrations.catalog(name)

    takes_grants = _of_tables("takes_grants")
    cannot_replace_view = _of_tables("cannot_replace_view")
    cannot_rename = _of_tables("cannot_rename")
    is_own_table_of_spark = _of_tables("is_own_table_of_spark")

    # --- builds ---

    @property
    def run(self) -> DbtRun:
        """The invocation of dbt, one for all threads."""
        with self._lock:
            if self._run is None:
                from dbt_recluster.adapter.dbt_run import DbtRun

                self._run = DbtRun(self, self.tables)
            return self._run

    @contextmanager
    def connection_named(self, name: str, query_header_context: Any = None, *more: Any, **named: Any) -> Iterator[None]:
        """Open a node's connection; that of a microbatch model is opened around those of its batches."""
        with (
            self._microbatch(query_header_context),
            super().connection_named(name, query_header_context, *more, **named),
        ):
            yield

    @contextmanager
    def _microbatch(self, node: Any) -> Iterator[None]:
        """Check a microbatch model before its batches, where dbt takes an error for a crash, and mark the last one."""
        is_microbatch = getattr(node, "config", {}).get("incremental_strategy") == "microbatch"
        builds = is_microbatch and self.config.args.which in ("run", "build", "retry")
        if not builds or node.unique_id in self._in_batches:
            yield
            return
        from dbt.artifacts.resources.v1.config import Hook

        from dbt_recluster.adapter.dbt_run import LAST_BATCH
        from dbt_recluster.adapter.model_build import options_of

        with self._refusal_measured(node):
            options_of(node)
        if getattr(node, "previous_batch_results", None):
            # `dbt retry` of a full refresh would make the table of the failed batches alone.
            node.config.full_refresh = False
        mark = Hook(sql=LAST_BATCH)
        node.config.post_hook.append(mark)
        self._in_batches.add(node.unique_id)
        try:
            yield
        finally:
            node.config.post_hook.remove(mark)
            self._in_batches.remove(node.unique_id)

    @contextmanager
    def _refusal_measured(self, node: Any) -> Iterator[None]:
        """Have the metrics tell of a node that is refused before its build begins."""
        try:
            yield
        except DbtRuntimeError:
            self.run.measure_unbuilt(node)
            raise

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: check its catalog, and write its file format, by default Iceberg, in lower case."""
        node: Any = getattr(config, "model", None)
        with self._refusal_measured(node):
            self.integrations.check(node)
        if (node_config := getattr(node, "config", None)) is not None:
            node_config["file_format"] = file_format(node_config)
        self._threads.build = None
        return super().pre_model_hook(config)

    def post_model_hook(self, config: Any, context: Any) -> None:
        """After each node, built or not: forget it, so that drops in on-run-end hooks are not postponed."""
        self._threads.build = None
        super().post_model_hook(config, context)

    @available.parse(_no_build)
    def current_build(self) -> ModelBuild:
        """Return the node that this thread builds, from its first hook to its last."""
        from dbt_recluster.adapter.model_build import ModelBuild

        build: ModelBuild | None = getattr(self._threads, "build", None)
        if build is None:
            build = self._threads.build = ModelBuild(self, self.tables, self.run)
        return build

    @available.parse_none
    def drop_relation(self, relation: BaseRelation) -> None:
        """Drop a relation; the one that a build replaces, once its successor exists."""
        if not self.current_build().replacement.takes_drop(relation):
            super().drop_relation(relation)  # type: ignore[no-untyped-call]

    @available.parse_none
    def clear_directory(self, relation: BaseRelation) -> None:
        """Move files out of the way of a table of Spark's own."""
        self.current_build().replacement.clear_directory(relation)

    @available.parse(lambda *_: None)
    def new_name(self, relation: BaseRelation, to: BaseRelation) -> BaseRelation:
        """Return a relation's new name for a rename; only views outside of the session catalog have a catalog there."""
        has_catalog = relation.is_view and not self.catalogs.is_session_catalog(relation.database)
        return to if has_catalog else to.include(database=False)

    @available
    def literal(self, value: Any) -> str:
        """Return a value as a string literal of SQL."""
        return sql_literal(str(value))

    @available.parse_none
    def warn_once(self, subject: str) -> bool:
        """Return whether to warn of ``subject``: once in an invocation."""
        return self.run.warn_once(subject)

    @available.parse_none
    def refuse_function(self, function: Mapping[str, Any]) -> None:
        """Refuse to build a user-defined function; the project's models are built all the same."""
        raise ConfigurationError(
            f"{function['name']} is a user-defined function, which dbt-recluster does not create. Write it as a macro, "
            "which every model can call"
        )

    def cancel_open_connections(self) -> Any:
        """On Ctrl-C, submit nothing more. After ``--fail-fast``, the tables built before are still submitted."""
        if self._run and self._run.submission and not isinstance(sys.exc_info()[1], Exception):
            self._run.submission.tables.clear()
        return super().cancel_open_connections()  # type: ignore[no-untyped-call]

    def cleanup_connections(self) -> None:
        """End dbt's run, whether it went well or not."""
        if self._run:
            self._run.end()
        super().cleanup_connections()

    # --- operations ---

    def execute_macro(self, macro_name: str, *arguments: Any, **named: Any) -> Any:
        """Run a macro; name the operation that a misspelt one may mean."""
        try:
            with interrupted_operation():
                return super().execute_macro(macro_name, *arguments, **named)
        except DbtRuntimeError as e:
            from dbt_recluster.api import OPERATIONS

            meant = did_you_mean(macro_name, OPERATIONS)
            if not meant or "could not find a macro" not in str(e.msg):
                raise
            raise DbtRuntimeError(f"{e.msg}; {meant}") from e

    @available.parse(lambda *_: "")
    def operate(self, name: str, args: Mapping[str, Any], macros: Mapping[str, Any]) -> str:
        """Run an operation and print its answers, in a command that builds tables; it fails if any table failed.

        In a hook that reclusters the hook's own table, it is the recluster after the build. The error of a hook of the
        run is the statement returned: dbt takes an exception there for Ctrl-C.
        """
        from dbt_recluster.adapter.operations import acts, check_is_built, operate, precedes_table, with_table

        if not acts(macros["flags"]):
            return ""
        try:
            with as_dbt_errors():
                args, is_own = with_table(args, macros)
                is_recluster = is_own and name == "recluster" and not args.get("dry_run")
                if is_own and not is_recluster and precedes_table(macros):
                    logger.info(f"{name}: {macros['this']} is not built yet, so there is nothing to do")
                elif is_recluster:
                    check_is_built(macros)
                    self.current_build().recluster(macros, args)
                else:
                    operate(name, args, macros, self.run.context(self.run.settings(macros)))
        except DbtRuntimeError as e:
            if (macros.get("model") or {}).get("resource_type") != "operation":
                raise
            return f"select raise_error({sql_literal(message(e))})"
        return ""

    @available.parse_list
    @as_dbt_errors()
    def clustering_violations(self, model: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the limits that the table ``model`` exceeds, for the generic test ``well_clustered``."""
        from dbt_recluster.adapter.operations import clustering_violations

        return clustering_violations(model, arguments, self.session.open)
