"""dbt's own tests in the file formats that Spark has without a jar, each run twice over in the embedded lake."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_incremental import BaseIncremental
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.util import check_relations_equal, run_dbt

pytestmark = pytest.mark.alike


@pytest.fixture(scope="class", params=["parquet", "orc", "csv", "json", "hive"])
def file_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="class")
def catalog(file_format: str) -> str:
    """The session catalog: the others hold Iceberg tables only."""
    return "spark_catalog"


class InFormat:
    @pytest.fixture(scope="class")
    def project_config_update(self, file_format: str) -> dict[str, Any]:
        configs = {"+file_format": file_format}
        return {"name": "formats", "models": configs, "seeds": configs}


class TestSimpleMaterializations(InFormat, BaseSimpleMaterializations):
    def test_base(self, project):
        super().test_base(project)
        super().test_base(project)


class TestEphemeral(InFormat, BaseEphemeral):
    def test_ephemeral(self, project):
        super().test_ephemeral(project)
        super().test_ephemeral(project)


class TestTableMaterialization(InFormat, BaseTableMaterialization):
    def test_table_materialization_sort_dist_no_op(self, project):
        super().test_table_materialization_sort_dist_no_op(project)
        super().test_table_materialization_sort_dist_no_op(project)


class TestGenericTests(InFormat, BaseGenericTests):
    def test_generic_tests(self, project):
        super().test_generic_tests(project)
        super().test_generic_tests(project)


class TestIncremental(InFormat, BaseIncremental):
    def test_incremental(self, project):
        super().test_incremental(project)
        run_dbt(["seed", "--full-refresh"])
        for seed, flags in (("base", ["--full-refresh"]), ("added", [])):
            run_dbt(["run", "--vars", f"seed_name: {seed}", *flags])
            check_relations_equal(project.adapter, [seed, "incremental"])
