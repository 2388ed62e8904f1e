import pytest

from dbt_recluster.key.columns import Columns, quote, quote_if_needed, unquote

TYPES = {
    "k": "int",
    "K": "string",
    "s": "struct<a:int,A:date,b c:decimal(10,2),x.y:int,deep:struct<z:array<int>>>",
    "a.b": "struct<c:int>",
}


def test_names_are_compared_as_the_session_does() -> None:
    exact = Columns.parse(TYPES, case_sensitive=True)
    assert exact.names == ("k", "K", "s", "a.b")
    for path in ("k", "K", "s.a", "s.A", "s.b c", "s.deep.z"):
        assert exact.find(path) == path
    # A name with a dot would be taken for a nested field.
    for path in ("S", "s.x.y", "a.b", "a.b.c"):
        assert exact.find(path) is None
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


def test_quotes_go_on_and_off_again() -> None:
    assert quote_if_needed("orders_2") == "orders_2"
    for name in ("tabelle_\u00fc", "2x", "a b", "a`b", ""):
        assert quote_if_needed(name) == quote(name)
        assert unquote(quote(name)) == name
