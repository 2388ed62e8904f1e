"""dbt's own tests of an adapter, on Iceberg tables: file_format is this adapter's default."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_incremental import BaseIncremental
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt.tests.adapter.caching.test_caching import BaseCachingLowercaseModel
from dbt.tests.adapter.concurrency.test_concurrency import BaseConcurrency
from dbt.tests.adapter.dbt_show.test_dbt_show import BaseShowLimit, BaseShowSqlHeader
from dbt.tests.adapter.empty.test_empty import (
    BaseTestEmpty,
    BaseTestEmptyInlineSourceRef,
)
from dbt.tests.adapter.incremental.test_incremental_merge_exclude_columns import BaseMergeExcludeColumns
from dbt.tests.adapter.incremental.test_incremental_microbatch import BaseMicrobatch
from dbt.tests.adapter.unit_testing.test_case_insensitivity import BaseUnitTestCaseInsensivity
from dbt.tests.adapter.unit_testing.test_invalid_input import BaseUnitTestInvalidInput
from dbt.tests.adapter.unit_testing.test_types import BaseUnitTestingTypes
from dbt.tests.util import run_dbt


class TestSimpleMaterializations(BaseSimpleMaterializations):
    pass


class TestSingularTests(BaseSingularTests):
    pass


class TestSingularTestsEphemeral(BaseSingularTestsEphemeral):
    pass


class TestEmpty(BaseEmpty):
    pass


class TestEphemeral(BaseEphemeral):
    pass


class TestIncremental(BaseIncremental):
    pass


class TestGenericTests(BaseGenericTests):
    pass


class TestSnapshotCheckCols(BaseSnapshotCheckCols):
    pass


class TestSnapshotTimestamp(BaseSnapshotTimestamp):
    pass


class TestAdapterMethod(BaseAdapterMethod):
    pass


class TestValidateConnection(BaseValidateConnection):
    pass


class TestCachingLowercaseModel(BaseCachingLowercaseModel):
    """The base class also compares the database, which a relation of Spark does not have."""

    def run_and_inspect_cache(self, project, run_args=None):
        for _ in range(2):
            run_dbt(run_args)
            cached = [(key.schema, key.identifier) for key in project.adapter.cache.relations]
            assert cached == [(project.test_schema, "model")]


class TestConcurrency(BaseConcurrency):
    pass


class TestShowLimit(BaseShowLimit):
    pass


class TestShowSqlHeader(BaseShowSqlHeader):
    pass


class TestEmptyInlineSourceRef(BaseTestEmptyInlineSourceRef):
    pass


class TestEmptyFlag(BaseTestEmpty):
    pass


class TestMergeExcludeColumns(BaseMergeExcludeColumns):
    pass


class TestMicrobatch(BaseMicrobatch):
    """Spark's microbatch overwrites partitions, so the model names them and the input has a timestamp."""

    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        return """
            {{ config(materialized="table", event_time="event_time") }}
            select 1 as id, timestamp '2020-01-01 00:00:00' as event_time
            union all select 2 as id, timestamp '2020-01-02 00:00:00' as event_time
            union all select 3 as id, timestamp '2020-01-03 00:00:00' as event_time
        """

    @pytest.fixture(scope="class")
    def microbatch_model_sql(self) -> str:
        return """
            {{ config(materialized="incremental", incremental_strategy="microbatch", event_time="event_time",
                      batch_size="day", begin=modules.datetime.datetime(2020, 1, 1, 0, 0, 0),
                      partition_by=["date_day"], unique_key="id") }}
            select *, cast(event_time as date) as date_day from {{ ref("input_model") }}
        """

    @pytest.fixture(scope="class")
    def insert_two_rows_sql(self, project) -> str:
        schema = project.adapter.Relation.create(database=project.database, schema=project.test_schema)
        return (
            f"insert into {schema.without_identifier()}.input_model values "
            "(4, timestamp '2020-01-04 00:00:00'), (5, timestamp '2020-01-05 00:00:00')"
        )


class TestUnitTestCaseInsensitivity(BaseUnitTestCaseInsensivity):
    pass


class TestUnitTestInvalidInput(BaseUnitTestInvalidInput):
    pass


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
