"""dbt's own tests of an adapter, on Iceberg tables: file_format is this adapter's default."""

from pkgutil import resolve_name

import pytest
from dbt.tests.adapter.unit_testing.test_types import BaseUnitTestingTypes
from dbt.tests.util import run_dbt

AS_THEY_ARE = [
    "basic.test_base:BaseSimpleMaterializations",
    "basic.test_singular_tests:BaseSingularTests",
    "basic.test_singular_tests_ephemeral:BaseSingularTestsEphemeral",
    "basic.test_empty:BaseEmpty",
    "basic.test_ephemeral:BaseEphemeral",
    "basic.test_incremental:BaseIncremental",
    "basic.test_generic_tests:BaseGenericTests",
    "basic.test_snapshot_check_cols:BaseSnapshotCheckCols",
    "basic.test_snapshot_timestamp:BaseSnapshotTimestamp",
    "basic.test_adapter_methods:BaseAdapterMethod",
    "basic.test_validate_connection:BaseValidateConnection",
    "dbt_clone.test_dbt_clone:BaseCloneNotPossible",
    "concurrency.test_concurrency:BaseConcurrency",
    "dbt_show.test_dbt_show:BaseShowLimit",
    "empty.test_empty:BaseTestEmptyInlineSourceRef",
    "empty.test_empty:BaseTestEmpty",
    "incremental.test_incremental_merge_exclude_columns:BaseMergeExcludeColumns",
    "basic.test_table_materialization:BaseTableMaterialization",
    "basic.test_incremental:BaseIncrementalNotSchemaChange",
    "hooks.test_model_hooks:BaseDuplicateHooksInConfigs",
    "hooks.test_model_hooks:BasePrePostModelHooksOnSnapshots",
    "relations.test_changing_relation_type:BaseChangeRelationTypeValidator",
    "relations.test_dropping_schema_named:BaseDropSchemaNamed",
    "store_test_failures_tests.test_store_test_failures:BaseStoreTestFailures",
    "simple_seed.test_seed:BaseTestEmptySeed",
    "incremental.test_incremental_on_schema_change:BaseIncrementalOnSchemaChange",
]
# What dbt-core and dbt-spark do alone.
AT_NIGHT = [
    "aliases.test_aliases:BaseAliasErrors",
    "dbt_show.test_dbt_show:BaseShowSqlHeader",
    *(f"query_comment.test_query_comment:Base{kind}QueryComments" for kind in ("", "Macro", "Null", "Empty")),
    "sample_mode.test_sample_mode:BaseSampleModeTest",
    "unit_testing.test_case_insensitivity:BaseUnitTestCaseInsensivity",
    "unit_testing.test_invalid_input:BaseUnitTestInvalidInput",
]
LEFT_OUT = {
    "incremental.test_incremental_unique_id:BaseIncrementalUniqueKey": "inserts a string into a date",
    "incremental.test_incremental_predicates:BaseIncrementalPredicates": "has no merge; dbt-spark no delete+insert",
    "basic.test_incremental:BaseIncrementalBadStrategy": "dbt-spark words the error in its own way",
    "empty.test_empty:BaseTestEmptySeedFlag": "dbt 1.11 has no `seed --empty`",
    "basic.test_docs_generate:BaseDocsGenerate": "reads a user name and a password from the profile",
    "ephemeral.test_ephemeral:BaseEphemeralMulti": "compares compiled SQL with that of a view of Postgres",
    "simple_seed.test_seed:BaseBasicSeedTests": "creates tables with types of Postgres",
    "hooks.test_model_hooks:BasePrePostModelHooks": "creates tables with types of Postgres",
    "simple_snapshot.test_snapshot:BaseSimpleSnapshot": "updates tables that are not Iceberg",
    "simple_snapshot.test_various_configs:BaseSnapshotColumnNames": "uses SQL of Postgres",
    "constraints.test_constraints:BaseTableConstraintsColumnsEqual": "uses the type text, which Spark lacks",
    "column_types.test_column_types:BaseColumnTypes": "abstract: dbt-spark has no list of types for it",
    "persist_docs.test_persist_docs:BasePersistDocs": "reads comments as Postgres shows them",
    "grants.test_model_grants:BaseModelGrants": "Spark without a server has no users to grant anything to",
    "python_model.test_python_model:BasePythonModelTests": "dbt-spark runs Python models on Databricks clusters only",
}


class Caching:
    """The base classes lower the name of the database, and a relation of the session catalog has none."""

    def run_and_inspect_cache(self, project, run_args=None):
        for _ in range(2):
            run_dbt(run_args)
            cached = [(key.database, key.schema, key.identifier) for key in project.adapter.cache.relations]
            assert cached == [(project.database, project.test_schema, "model")]


def of_dbt(name: str, *mixins: type) -> type:
    """Return a class of dbt's as one of this file."""
    base = resolve_name(f"dbt.tests.adapter.{name}")
    return type(base.__name__.replace("Base", "Test", 1), (*mixins, base), {})


CLASSES = [of_dbt(name) for name in AS_THEY_ARE]
CLASSES += [pytest.mark.exhaustive(of_dbt(name)) for name in AT_NIGHT]
CLASSES += [pytest.mark.skip(reason=reason)(of_dbt(name)) for name, reason in LEFT_OUT.items()]
for kind in ("LowercaseModel", "UppercaseModel", "SelectedSchemaOnly"):
    CLASSES.append(of_dbt(f"caching.test_caching:BaseCaching{kind}", Caching))
globals().update({made.__name__: made for made in CLASSES})


class TestUnitTestingTypes(BaseUnitTestingTypes):
    """The base class has literals that Spark does not know (TIMESTAMPTZ, JSON)."""

    @pytest.fixture
    def data_types(self):
        return [
            ["1", "1"],
            ["'12345'", "12345"],
            ["true", "true"],
            ["date '2011-11-11'", "2011-11-11"],
            ["timestamp '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"],
            ["1.5", "1.5"],
        ]
