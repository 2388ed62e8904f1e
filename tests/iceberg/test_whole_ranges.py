"""Values over the whole range of every type: as literals, in print, under each transform, and on a curve."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbt_recluster.clustering.curve_boundaries import as_properties, recorded_curve
from dbt_recluster.iceberg.rewrite.keyed_rows import key_columns
from dbt_recluster.iceberg.rewrite.literals import keys_sql, place_query, printed
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import EXACT, Truncate

INT, LONG = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64))
DAY = 86_400_000_000
# The first and the last, those around the years 1, 0 and 10,000, and beyond the hours that an int holds.
MOMENTS = [-(2**63), 1 - 2**63, 2**63 - 1, -1, 0, 1, -3_600_000_001, 253_402_300_800_000_000]
MOMENTS += [-62_135_596_800_000_001, -62_167_219_200_000_001, -(2**31) * 3_600_000_000 - 1]
TIME = st.sampled_from(MOMENTS) | LONG | st.integers(-100 * DAY, 100 * DAY)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\'\"\n\r\t\0`${}%_;-é\uffff\U0010ffff")
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    digits = st.sampled_from([-most, most, 1, -1, 49 - most]) | st.integers(-most, most)
    return digits.map(lambda number: Decimal(f"{number}E-{scale}"))


# By Spark's type: Arrow's, and its values, days and microseconds as numbers.
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.sampled_from([-(2**31), 2**31 - 1, 7 - 2**31]) | INT),
    "bigint": (pa.int64(), st.sampled_from([-(2**63), 2**63 - 1, 7 - 2**63]) | LONG),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal(38,0)": (pa.decimal128(38, 0), decimals(38, 0)),
    "decimal(38,38)": (pa.decimal128(38, 38), decimals(38, 38)),
    "decimal(18,2)": (pa.decimal128(18, 2), decimals(18, 2)),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), st.binary()),
    "date": (pa.date32(), st.sampled_from([-(2**31), 2**31 - 1]) | INT),
    "timestamp": (pa.timestamp("us", "UTC"), TIME),
    "timestamp_ntz": (pa.timestamp("us"), TIME),
}
# Under each of them, a column has the values of a key item.
NUMBERS, TIMES = ("truncate(10, {})", "truncate(1073741824, {})"), ("days({})", "months({})", "years({})")
ITEMS = {
    **dict.fromkeys(("int", "bigint", "decimal(38,0)", "decimal(38,38)"), NUMBERS),
    **dict.fromkeys(("string", "binary"), ("truncate(2, {})",)),
    "date": TIMES,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), ("hours({})", *TIMES)),
}
property_test = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def draw(data: st.DataObject, kind: str) -> pa.Array:
    type_, values = TYPES[kind]
    drawn = data.draw(st.lists(st.none() | values, min_size=2, max_size=20))
    if pa.types.is_temporal(type_):
        return pa.array(drawn, pa.int32() if kind == "date" else pa.int64()).cast(type_)
    return pa.array(drawn, type_)


def rows(values: pa.Array, kind: str) -> str:
    return f"select explode({keys_sql([[value] for value in values], [kind])}) c"


def raw(frame: Any) -> list[Any]:
    """The first column: dates and moments as numbers, floats bit by bit, but for NaN."""
    column = pa.chunked_array([frame] if isinstance(frame, pa.Array) else collect_arrow(frame).column(0))
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    if pa.types.is_decimal(column.type):
        return [None if v is None else int(v.scaleb(column.type.scale, EXACT)) for v in column.to_pylist()]
    if pa.types.is_floating(column.type):
        return ["NaN" if v != v else v and struct.pack("d", v) for v in column.to_pylist()]
    return list(column.to_pylist())


@pytest.fixture
def in_new_york(spark: Any) -> Iterator[None]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.thorough
@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("kind", TYPES)
@property_test
@given(data=st.data())
def test_a_literal_is_the_value_and_prints_as_it(spark: Any, kind: str, data: st.DataObject) -> None:
    values = draw(data, kind)
    assert raw(spark.sql(rows(values, kind))) == raw(values)
    as_text = "lower(hex(c))" if kind == "binary" else "string(c)"
    texts = spark.sql(f"select coalesce({as_text}, 'NULL') from ({rows(values, kind)})")
    assert printed(spark, list(values), kind) == raw(texts)


@pytest.mark.thorough
@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(("kind", "item"), [(kind, item) for kind in ITEMS for item in ITEMS[kind]])
@property_test
@given(data=st.data())
def test_a_transform_is_the_same_in_spark_and_in_bounds(
    spark: Any, kind: str, item: str, data: st.DataObject
) -> None:
    key, values = parse_cluster_key(item.format("c")), draw(data, kind)
    with key_columns(spark, key) as columns:
        frame = spark.sql(rows(values, kind)).select(*columns)
    assert raw(frame) == raw(key.fields[0].transform.values(values))
    order = key.order_by(Columns.parse({"c": kind}))  # no value is an error
    assert len(raw(spark.sql(f"{rows(values, kind)} order by {order}"))) == len(values)


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("kind", ["timestamp", *(kind for kind in TYPES if kind != "timestamp")])
@settings(property_test, max_examples=5)
@given(data=st.data())
def test_a_place_in_sql_is_that_of_the_curve(spark: Any, kind: str, data: st.DataObject) -> None:
    """Also by boundaries that a property has shortened: they lie between values, or beyond all."""
    values, items = draw(data, kind), [*ITEMS.get(kind, ()), "{}", "{}"][:4]
    types = dict.fromkeys("cdef"[: len(items)], kind)
    on_curve = ", ".join(map(str.format, items, types))
    key = parse_cluster_key(f"hilbert({on_curve})").check(Columns.parse(types))
    columns = [field.transform.values(values) for field in key.fields]
    drawn = Curve.of([column[::2] for column in columns])
    query = f"select {', '.join(f'c {name}' for name in types)} from ({rows(values, kind)})"
    ids = {name: number for number, name in enumerate(types, 1)}
    for curve in (drawn, recorded_curve(as_properties(key, drawn, ids), key, ids)):
        assert curve is not None
        curve = replace(
            curve, ascending=tuple(not isinstance(field.transform, Truncate) for field in key.fields)
        )
        placed = place_query(query, curve, key, types, "place")
        assert raw(spark.sql(f"select place from ({placed})")) == curve.index(columns).tolist()
        assert (
            raw(spark.sql(f"select place_of_load from ({placed})")) == curve.index_of_load(columns).tolist()
        )
