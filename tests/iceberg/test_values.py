"""Values of every type: bounds against brute force; the whole range as literals, in print and under transforms."""

import datetime as dt
import decimal
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nightly import examples
from tables import spark_settings

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.sql import literals
from dbt_recluster.key.transforms import TRANSFORMS, Truncate
from dbt_recluster.key.types import EXACT, column_type

pytestmark = pytest.mark.thorough

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
COLUMNS = ("i", "l", "n", "w", "day", "ts", "tz", "u", "flag", "d", "f", "b")
OF_TIMES = ("months(day)", "years(day)", "hours(ts)", "to_date(ts)", "hours(tz)", "days(tz)")
TRUNCATED = ("date_trunc('month', ts)", "date_trunc('year', ts)", "left(u, 18)", "truncate(7, i)")
ROUNDED = ("truncate(1000, l)", "truncate(50, n)", "truncate(50, w)")


def comparable(value: Any, kind: str, key: str) -> Any:
    """Convert a value that Spark computed to the form of a bound."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None if value is None else "NaN"
    if key in COLUMNS:
        if kind == "timestamp":
            return round((value.replace(tzinfo=dt.timezone.utc) - EPOCH) / dt.timedelta(microseconds=1))
        if kind == "timestamp_ntz":
            return round((value - EPOCH.replace(tzinfo=None)) / dt.timedelta(microseconds=1))
        return bytes(value) if kind == "binary" else value
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).days
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(int(kind.rstrip(")").split(",")[1])))
    return value


def rank(value: Any) -> tuple[int, Any]:
    """NULL below everything, NaN above."""
    if value is None:
        return (0, 0)
    return (2, 0) if value == "NaN" else (1, value)


@pytest.fixture(scope="module")
def wide(spark: Any, typed: tuple[str, Any]) -> str:
    """A table with a column of every type: files of many values, of one, of NULLs alone and of NaNs alone."""
    name = f"{typed[0]}_wide"
    properties = "('write.metadata.metrics.default' = 'full')"
    rows = f"select /*+ repartition(4) */ * from {typed[0]} where id < 900"
    spark.sql(f"create table {name} using iceberg tblproperties {properties} as {rows}")
    spark.sql(f"insert into {name} select * from {typed[0]} where id = 5")
    nulls = ", ".join(["null"] * 10)
    spark.sql(f"insert into {name} select 1, null, null, null, null, {nulls}")
    spark.sql(f"insert into {name} select 2, null, null, double('NaN'), float('NaN'), {nulls}")
    return name


@pytest.mark.parametrize("key", [*COLUMNS, *OF_TIMES, *TRUNCATED, *ROUNDED])
def test_bounds_are_those_of_the_rows(spark: Any, wide: str, key: str) -> None:
    table = IcebergTable.load(spark, wide)
    cluster_key = parse_cluster_key(key).check(table.columns())
    kind = table.columns().types[cluster_key.fields[0].column]
    blocks = read_blocks(table, cluster_key)
    rows = spark.table(wide).selectExpr("_file", f"{cluster_key.order_by(table.columns())} as v").collect()
    assert len(blocks) == 7
    for position, path in enumerate(blocks.path.to_pylist()):
        values = sorted((comparable(row.v, kind, key) for row in rows if row._file == path), key=rank)
        lower, upper = blocks.lower[0][position].as_py(), blocks.upper[0][position].as_py()
        if key in COLUMNS and kind in ("double", "float"):
            lower, upper = ("NaN" if isinstance(x, float) and math.isnan(x) else x for x in (lower, upper))
        if key not in COLUMNS and kind.startswith("decimal"):
            lower, upper = (None if x is None else int(x) for x in (lower, upper))
        assert (lower, upper) == (values[0], values[-1]), path
        assert not blocks.unbounded[0][position]
        assert blocks.rows[position] == len(values)


INT, LONG = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64))
DAY = 86_400_000_000
# The first and the last, those around the years 1, 0 and 10,000, and beyond the hours that an int holds.
MOMENTS = [-(2**63), 1 - 2**63, 2**63 - 1, -1, 0, 1, -3_600_000_001, 253_402_300_800_000_000]
MOMENTS += [-62_135_596_800_000_001, -62_167_219_200_000_001, -(2**31) * 3_600_000_000 - 1]
TIME = st.sampled_from(MOMENTS) | LONG | st.integers(-100 * DAY, 100 * DAY)
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\'\"\n\r\t\0`${}%_;-é\uffff\U0010ffff"))


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
WIDTHS = {"string": (2,), "binary": (2,), "decimal(38,38)": (10, 10**9)}  # Spark rounds the last of 38 digits
ITEMS = {
    name: [
        (kind() if kind is not Truncate else kind(width)).text("{}")
        for kind in TRANSFORMS[1:]
        if kind.written and type(column_type(name)) in kind.takes
        for width in (WIDTHS.get(name, (10, 2**30)) if kind is Truncate else (0,))
    ]
    for name in TYPES
}
property_test = settings(
    max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def draw(data: st.DataObject, kind: str) -> pa.Array:
    type_, values = TYPES[kind]
    drawn = data.draw(st.lists(st.none() | values, min_size=2, max_size=20))
    if pa.types.is_temporal(type_):
        return pa.array(drawn, pa.int32() if kind == "date" else pa.int64()).cast(type_)
    return pa.array(drawn, type_)


def rows(values: pa.Array, kind: str) -> str:
    return f"select explode({literals(values, kind)}) c"


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
    with spark_settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        yield


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("kind", TYPES)
@property_test
@given(data=st.data())
def test_a_literal_is_the_value_and_prints_as_it(spark: Any, kind: str, data: st.DataObject) -> None:
    values = draw(data, kind)
    assert raw(spark.sql(rows(values, kind))) == raw(values)
    as_text = "lower(hex(c))" if kind == "binary" else "string(c)"
    texts = spark.sql(f"select coalesce({as_text}, 'NULL') from ({rows(values, kind)})")
    assert IcebergTable(spark, "", "", None).printed(list(values), kind) == raw(texts)


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(("kind", "item"), [(kind, item) for kind in ITEMS for item in ITEMS[kind]])
@property_test
@given(data=st.data())
def test_a_transform_is_the_same_in_spark_and_in_bounds(spark: Any, kind: str, item: str, data: st.DataObject) -> None:
    key, values = parse_cluster_key(item.format("c")), draw(data, kind)
    frame = spark.sql(rows(values, kind)).selectExpr(key.order_by(Columns.parse({"c": kind})))
    assert raw(frame) == raw(key.fields[0].transform.values(values))
