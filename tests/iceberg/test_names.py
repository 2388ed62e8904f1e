"""Names of tables as Spark reads and resolves them, and what is said of those that lead nowhere."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbt_recluster.exceptions import CatalogError, NotAnIcebergTableError, OptionError
from dbt_recluster.iceberg.catalog_tables import has_catalog, resolve
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.names import NameResolution, name_parts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab_`.*, ", min_size=1, max_size=8))
def test_a_name_has_the_parts_that_spark_reads(spark: Any, text: str) -> None:
    try:
        parser = spark._jsparkSession.sessionState().sqlParser()
        read = list(parser.parseMultipartIdentifier(text).mkString("\n").split("\n"))
    except Exception:
        read = None
    if read is not None and "" in read:
        read = None  # Spark reads two backquotes as a name of nothing, which no catalog takes
    try:
        found = list(name_parts(text))
    except OptionError:
        found = None
    assert found == read


def test_two_names_match_if_spark_resolves_them_to_one_table(spark: Any, hadoop_catalog: str) -> None:
    """Namespaces called like catalogs, and tables in a catalog's root, where Hadoop's catalog has them too."""
    resolution = NameResolution(
        lambda: str(spark._jsparkSession.sessionState().catalogManager().currentCatalog().name()),
        lambda name: has_catalog(spark, name),
        lambda one, other: False,
    )

    def resolved(name: tuple[str, ...]) -> tuple[str, ...]:
        found = resolve(spark, name)
        return found.catalog().name(), *found.identifier().namespace(), found.identifier().name()

    parts = (hadoop_catalog, "spark_catalog", "an", "t")
    names = [(a, b) for a in parts for b in parts] + [(a, b, c) for a in parts for b in parts for c in parts]
    found = {name: resolved(name) for name in names}
    for one in names:
        for other in names:
            assert resolution.is_same(one, other) == (found[one] == found[other]), (one, other)


def test_the_catalog_that_is_missing_or_broken_is_blamed(spark: Any, broken_catalog: str) -> None:
    with pytest.raises(CatalogError, match=r"^catalog broken does not start: .*Unknown catalog type: nonsense"):
        IcebergTable.load(spark, "broken.sales.orders")
    with pytest.raises(
        NotAnIcebergTableError,
        match=r"^nocat\.sales\.orders cannot be loaded: Spark has no catalog nocat: set spark\.sql\.catalog\.nocat to",
    ):
        IcebergTable.load(spark, "nocat.sales.orders")
