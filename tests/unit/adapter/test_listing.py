"""What a connection says of its catalogs, and how often it is asked."""

from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.catalogs import Catalogs, Listed, names_like

CLASS = "set `spark.sql.catalog.lake`"
ICEBERG = {CLASS: [("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")]}


class Connection:
    """Answers statements as Spark 3.5 does."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, sql: str) -> list[Any]:
        self.asked.append(sql)
        answer = self.answers[sql]
        if isinstance(answer, str):
            raise DbtRuntimeError(answer)
        return list(answer)


def test_a_schema_of_a_thousand_tables_takes_three_statements_and_the_next_one_two() -> None:
    tables = [("s", f"t{number}", False) for number in range(1000)]
    answers = {
        "show tables in lake.s": [*tables, ("", "temporary", True), ("s", "v", False)],
        "show views in lake.s": [("s", "v", False), ("", "temporary", True)],
        "show tables in lake.empty": [],
        "show views in lake.empty": [],
    }
    connection = Connection({**ICEBERG, **answers})
    catalogs = Catalogs(connection)
    found = catalogs.relations("lake", "lake.s")
    assert found == [*(Listed(name, False, True) for _, name, _ in tables), Listed("v", True, False)]
    assert len(connection.asked) == 3
    assert catalogs.relations("lake", "lake.empty") == []
    assert len(connection.asked) == 5


def test_a_missing_schema_lists_nothing() -> None:
    """A schema, or the directory of a Hadoop catalog."""
    error = "NoSuchNamespaceException: Namespace does not exist: s"
    missing = ("show tables in lake.s", "show views in lake.s", "show schemas in `lake`", "show schemas")
    catalogs = Catalogs(Connection({**ICEBERG, **dict.fromkeys(missing, error)}))
    assert catalogs.relations("lake", "lake.s") == []
    assert catalogs.schemas("lake") == catalogs.schemas(None) == []
    with pytest.raises(DbtRuntimeError, match="connection refused"):
        Catalogs(Connection({"show tables in lake.s": "connection refused"})).relations("lake", "lake.s")


def test_a_catalog_without_views_is_asked_for_them_once() -> None:
    answers = {
        "show tables in lake.s": [("s", "t", False)],
        "show views in lake.s": "JDBC catalog is initialized without view support",
    }
    connection = Connection({**ICEBERG, **answers})
    catalogs = Catalogs(connection)
    for _ in range(2):
        assert catalogs.relations("lake", "lake.s") == [Listed("t", False, True)]
    assert connection.asked.count("show views in lake.s") == 1


def test_tables_of_a_catalog_that_is_not_icebergs_are_described_one_by_one() -> None:
    answers = {
        "show tables in lake.s": [("s", "a", False), ("s", "b-c", False)],
        "show views in lake.s": [],
        CLASS: [("spark.sql.catalog.lake", "com.example.Catalog")],
        "describe extended lake.s.`a`": [("id", "int", None), ("Provider", "iceberg", "")],
        "describe extended lake.s.`b-c`": [("id", "int", None), ("Provider", "delta", "")],
    }
    found = Catalogs(Connection(answers)).relations("lake", "lake.s")
    assert found == [Listed("a", False, True), Listed("b-c", False, False)]


def test_schemas_are_listed_by_catalog() -> None:
    answers = {
        "show current namespace": [("spark_catalog", "default")],
        "show schemas in `lake`": [("s",), ("`a-b`",)],
        "show schemas": [("default",)],
    }
    catalogs = Catalogs(Connection(answers))
    is_session = [catalogs.is_session_catalog(name) for name in (None, "Spark_Catalog", "lake")]
    assert is_session == [True, True, False]
    assert (catalogs.schemas("lake"), catalogs.schemas(None)) == (["s", "a-b"], ["default"])


@pytest.mark.parametrize(
    ("pattern", "exclude", "expected"),
    [
        ("events%", "", ["Events_2026", "events_2025", "eventsx2026"]),
        ("EVENTS_202_", "%2025", ["Events_2026", "eventsx2026"]),
        (r"events\_%", "", ["Events_2026", "events_2025"]),
        (r"%\%", "", ["50%"]),
        (r"a\\c", "", ["a\\c"]),
        ("a_c", "a.%", ["a\\c"]),
        ("user", "", []),
        ("users", "%", []),
    ],
)
def test_names_like_a_pattern_and_not_like_another(pattern: str, exclude: str, expected: list[str]) -> None:
    names = ["events_2025", "Events_2026", "eventsx2026", "users", "50%", "a.c", "a\\c"]
    assert names_like(names, pattern, exclude) == expected
