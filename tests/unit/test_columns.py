from __future__ import annotations

import pytest

from dbt_recluster.key.columns import Columns, quote, quote_if_needed, unquote

TYPES = {
    "k": "int",
    "K": "string",
    "s": "struct<a:int,A:date,b c:decimal(10,2),x.y:int,deep:struct<z:array<int>>>",
}


def test_fields_of_structs_have_paths() -> None:
    columns = Columns.parse({"s": TYPES["s"], "l": "array<struct<x:int>>", "a.b": "struct<c:int>"})
    assert columns.names == ("s", "l", "a.b")
    assert columns.types == {
        "s": TYPES["s"],
        "s.a": "int",
        "s.A": "date",
        "s.b c": "decimal(10,2)",
        "s.deep": "struct<z:array<int>>",
        "s.deep.z": "array<int>",
        "l": "array<struct<x:int>>",
    }


def test_names_are_compared_as_the_session_does() -> None:
    exact = Columns.parse(TYPES, case_sensitive=True)
    assert (exact.find("k"), exact.find("K"), exact.find("S"), exact.find("s.A")) == ("k", "K", None, "s.A")
    assert exact.missing(["k", "S"]) == ["S"]
    loose = Columns.parse(TYPES)
    assert (loose.find("k"), loose.find("S.Deep.Z"), loose.find("s.a")) == (None, "s.deep.z", None)
    assert "'k' is ambiguous: it may be k or K" in loose.why_not("k")
    assert loose.missing(["S", "nope"]) == ["nope"]


@pytest.mark.parametrize("path", ["wide.f9", "wide.f30.element"])
def test_a_type_that_spark_cuts_off_is_not_guessed(path: str) -> None:
    columns = Columns.parse({"wide": "struct<f1:int,f2:int,... 28 more fields>"})
    assert columns.find("wide.f2") == "wide.f2"
    assert columns.find(path) is None
    assert "set spark.sql.debug.maxToStringFields" in columns.why_not(path)


def test_names_in_and_out_of_quotes() -> None:
    assert quote_if_needed("orders_2") == "orders_2"
    for name in ("tabelle_\u00fc", "2x", "a b", "a`b", ""):
        assert quote_if_needed(name) == quote(name)
        assert unquote(quote(name)) == name
